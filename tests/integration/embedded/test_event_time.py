"""Event time in real slots: watermarks, timers and side outputs of whole programs, beside plain Python."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from firesteel.common import Duration, TimestampAssigner, Types, WatermarkGenerator, WatermarkOutput, WatermarkStrategy
from firesteel.datastream import (
    DataStream,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
    SinkFunction,
    TimeDomain,
)
from firesteel.datastream.connectors.data_generator import DataGeneratorSource, RateLimiterStrategy
from firesteel.datastream.state import ValueStateDescriptor
from firesteel.functions.source import (
    END,
    NEED_SPLITS,
    Boundedness,
    EnumeratorSpec,
    ReaderContext,
    Source,
    SourceBatch,
    SourceReader,
    Split,
    Wait,
)
from tests.integration.embedded.programs import ended, new_environment, rest_of, state_of, until

pytestmark = pytest.mark.usefixtures("cluster")
PARALLELISMS = pytest.mark.parametrize("parallelism", [pytest.param(1, marks=pytest.mark.long), 3])
MAX_WATERMARK = 2**63 - 1
DELAY = 50

Event = tuple[str, int, int]
"""Key, timestamp, number."""


class ByField(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


class AtEachRecord(WatermarkGenerator):
    """Punctuated: behind each record the watermark that allows for ``DELAY``."""

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        output.emit_watermark(event_timestamp - DELAY - 1)

    def on_periodic_emit(self, output: WatermarkOutput) -> None: ...


PERIODIC = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(DELAY)).with_timestamp_assigner(ByField())
PUNCTUATED = WatermarkStrategy.for_generator(AtEachRecord).with_timestamp_assigner(ByField())


@dataclass(frozen=True)
class Lists(Source[Event]):
    """One split for each list, all of them read side by side."""

    lists: tuple[tuple[Event, ...], ...]

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def enumerator(self) -> EnumeratorSpec:
        splits = [
            Split(str(n), {"events": [list(e) for e in events]}).to_plain() for n, events in enumerate(self.lists)
        ]
        return EnumeratorSpec("static", {"splits": splits})

    def create_reader(self, context: ReaderContext) -> Any:
        return ListReader()


class ListReader(SourceReader[Event]):
    """Takes all splits there are, then a few records of each in turn."""

    def __init__(self) -> None:
        self.splits: list[Split] = []
        self.no_more = False

    def add_splits(self, splits: Sequence[Split]) -> None:
        self.splits.extend(splits)

    def no_more_splits(self) -> None:
        self.no_more = True

    def pause_splits(self, split_ids: Sequence[str]) -> None: ...

    def resume_splits(self, split_ids: Sequence[str]) -> None: ...

    def snapshot(self) -> list[Split]:
        return self.splits

    def poll(self, max_records: int) -> Any:
        if not self.no_more:
            return NEED_SPLITS
        if not self.splits:
            return END
        split = self.splits.pop(0)
        events: Any = split.data["events"]
        start = int(split.position or 0)  # type: ignore[arg-type]
        stop = min(start + 7, len(events))
        if stop < len(events):
            self.splits.append(split.at(stop))
        return SourceBatch([tuple(e) for e in events[start:stop]], split.id, stop, split_finished=stop >= len(events))


class Sorter(KeyedProcessFunction[str, Event, Any]):
    """Gives each key's records in the order of their timestamps, and whether event time went on before the end."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.waiting = runtime_context.get_state(ValueStateDescriptor("waiting", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: Event, ctx: KeyedProcessFunction.Context) -> None:
        assert ctx.timestamp() == value[1]
        timers = ctx.timer_service()
        assert value[1] > timers.current_watermark(), "no record is late"
        self.waiting.update([*(self.waiting.value() or ()), value])
        timers.register_event_time_timer(value[1])
        timers.register_event_time_timer(value[1] + 1_000_000)
        timers.delete_event_time_timer(value[1] + 1_000_000)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        assert ctx.time_domain() is TimeDomain.EVENT_TIME
        assert ctx.timestamp() == timestamp
        watermark = ctx.timer_service().current_watermark()
        assert timestamp <= watermark
        waiting = self.waiting.value() or []
        due = sorted(event for event in waiting if event[1] == timestamp)
        assert due, "one timer for each timestamp, in order"
        assert not [event for event in waiting if event[1] < timestamp]
        self.waiting.update([event for event in waiting if event[1] > timestamp])
        assert all(event[0] == ctx.get_current_key() for event in due)
        for event in due:
            yield *event, watermark == MAX_WATERMARK


class Nowhere(SinkFunction[Any]):
    def invoke(self, value: Any, context: SinkFunction.Context) -> None: ...


class Stamped(ProcessFunction[Any, Any]):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        yield ctx.timestamp(), value


def out_of_order(seed: int, splits: int, count: int) -> Lists:
    """Events that are at most ``DELAY`` out of order within their split."""
    rng = random.Random(seed)
    number = 0
    lists = []
    for _ in range(splits):
        timestamps = sorted(rng.randrange(2000) for _ in range(count))
        shaken = sorted(timestamps, key=lambda timestamp: timestamp + rng.randrange(DELAY))
        events = []
        for timestamp in shaken:
            number += 1
            events.append((rng.choice("abcdefg"), timestamp, number))
        lists.append(tuple(events))
    return Lists(tuple(lists))


def run(stream: DataStream) -> list[Any]:
    with stream.execute_and_collect() as results:
        return list(results)


@pytest.mark.parametrize(
    ("parallelism", "strategy"), [pytest.param(1, PERIODIC, marks=pytest.mark.long), (3, PERIODIC), (5, PUNCTUATED)]
)
def test_timers_put_each_keys_records_in_order(parallelism: int, strategy: WatermarkStrategy) -> None:
    source = out_of_order(parallelism, 4, 150)
    env = new_environment(parallelism)
    events = env.from_source(source, strategy, "events").rebalance().map(lambda event: event)
    sorted_events = events.key_by(lambda event: event[0]).process(Sorter()).process(Stamped())
    by_key: dict[str, list[Event]] = defaultdict(list)
    for timestamp, (key, at, number, _) in run(sorted_events):
        assert timestamp == at, "results of a timer carry its timestamp"
        by_key[key].append((key, at, number))
    expected: dict[str, list[Event]] = defaultdict(list)
    for event in sorted((e for events in source.lists for e in events), key=lambda e: (e[1], e)):
        expected[event[0]].append(event)
    assert by_key == expected


def test_a_punctuated_watermark_takes_effect_before_the_end() -> None:
    source = out_of_order(1, 1, 200)
    stream = new_environment(1).from_source(source, PUNCTUATED, "events").key_by(lambda e: e[0]).process(Sorter())
    at_end = [event for event in run(stream) if event[3]]
    latest = max(event[1] for event in source.lists[0])
    assert 0 < len(at_end) < 50
    assert all(event[1] >= latest - DELAY - 50 for event in at_end)


def test_watermarks_assigned_in_the_middle_of_a_program() -> None:
    events = [("k", timestamp, timestamp) for timestamp in (5, 3, 40, 20, 100)]
    env = new_environment(2)
    stream = env.from_collection(events).assign_timestamps_and_watermarks(PERIODIC)
    results = run(stream.key_by(lambda event: event[0]).process(Sorter()))
    assert [event[1] for event in results] == [3, 5, 20, 40, 100]


class Pair(KeyedCoProcessFunction[str, Event, Event, Any]):
    """Adds up both sides; a timer gives the sum when event time of both has passed."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))

    def _add(self, value: Event, ctx: Any) -> None:
        self.sum.update((self.sum.value() or 0) + value[2])
        ctx.timer_service().register_event_time_timer(1000)

    def process_element1(self, value: Event, ctx: KeyedCoProcessFunction.Context) -> None:
        self._add(value, ctx)

    def process_element2(self, value: Event, ctx: KeyedCoProcessFunction.Context) -> None:
        self._add(value, ctx)

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield ctx.get_current_key(), timestamp, self.sum.value()


@PARALLELISMS
def test_an_operator_with_two_inputs_waits_for_the_slower_one(parallelism: int) -> None:
    env = new_environment(parallelism)
    rng = random.Random(3)
    events = [[(rng.choice("abc"), timestamp, timestamp) for timestamp in range(900)] for _ in range(2)]
    first, second = (env.from_source(Lists((tuple(side),)), PUNCTUATED, "side") for side in events)
    pairs = first.connect(second).key_by(lambda event: event[0], lambda event: event[0]).process(Pair())
    sums: dict[str, int] = defaultdict(int)
    for key, _, number in [*events[0], *events[1]]:
        sums[key] += number
    assert sorted(run(pairs)) == [(key, 1000, sums[key]) for key in sorted(sums)]


EVEN = OutputTag("even", Types.LONG())
TEXT = OutputTag("text", Types.STRING())
UNREAD = OutputTag("unread")


class Sort(ProcessFunction[int, int]):
    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterable[Any]:
        if value % 2 == 0:
            yield EVEN, value
        else:
            yield value
        if value % 3 == 0:
            yield TEXT, f"three: {value}"
        yield UNREAD, value
        yield OutputTag("made on the spot"), value


@PARALLELISMS
@pytest.mark.parametrize("chained", [True, False])
def test_side_outputs(parallelism: int, chained: bool) -> None:
    env = new_environment(parallelism, pipeline__operator_chaining__enabled=str(chained).lower())
    main = env.from_sequence(1, 3000).process(Sort(), Types.LONG())
    even = main.get_side_output(EVEN).map(lambda value: ("even", value))
    text = main.get_side_output(TEXT).map(lambda value: ("text", value))
    results = run(main.map(lambda value: ("main", value)).union(even, text))
    by_output: dict[str, list[Any]] = defaultdict(list)
    for name, value in results:
        by_output[name].append(value)
    assert sorted(by_output["main"]) == list(range(1, 3001, 2))
    assert sorted(by_output["even"]) == list(range(2, 3001, 2))
    assert sorted(by_output["text"]) == sorted(f"three: {value}" for value in range(3, 3001, 3))


class Ticks(KeyedProcessFunction[int, int, Any]):
    """Gives a key's records together, a little after the first."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> None:
        count = self.count.value()
        if count is None:
            timers = ctx.timer_service()
            timers.register_processing_time_timer(timers.current_processing_time() + 20)
        self.count.update((count or 0) + 1)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        assert ctx.time_domain() is TimeDomain.PROCESSING_TIME
        assert ctx.timestamp() == timestamp <= ctx.timer_service().current_processing_time()
        yield ctx.get_current_key(), self.count.value()
        self.count.clear()


def test_processing_time_timers_fire_while_records_come() -> None:
    env = new_environment(2)
    source = DataGeneratorSource(lambda index: index, None, RateLimiterStrategy.per_second(2000))
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    ticks = numbers.key_by(lambda number: number % 3).process(Ticks())
    results = ticks.execute_and_collect(limit=30)
    assert len(results) == 30
    assert {key for key, _ in results} == {0, 1, 2}
    assert all(count >= 1 for _, count in results)


class NoTimers(ProcessFunction[int, Any]):
    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterable[Any]:
        timers = ctx.timer_service()
        assert timers.current_processing_time() > 1_600_000_000_000
        yield timers.current_watermark()
        timers.register_event_time_timer(5)


def test_timers_without_a_key_are_refused() -> None:
    with pytest.raises(Exception, match="Setting timers is only supported on keyed streams"):
        run(new_environment(1).from_collection([1]).process(NoTimers()))


# --- endless sources: idleness, alignment, what REST shows ---------------------------------------------------------


@dataclass(frozen=True)
class Endless(Source[Event]):
    """Splits that go on for ever: each gives its next timestamp at its own pace; a pace of 0 gives nothing."""

    paces: tuple[int, ...]

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED

    def enumerator(self) -> EnumeratorSpec:
        splits = [Split(str(n), {"pace": pace}).to_plain() for n, pace in enumerate(self.paces)]
        return EnumeratorSpec("static", {"splits": splits})

    def create_reader(self, context: ReaderContext) -> Any:
        return EndlessReader()


class EndlessReader(SourceReader[Event]):
    def __init__(self) -> None:
        self.splits: list[Split] = []
        self.paused: set[str] = set()
        self.no_more = False

    def add_splits(self, splits: Sequence[Split]) -> None:
        self.splits.extend(splits)

    def no_more_splits(self) -> None:
        self.no_more = True

    def pause_splits(self, split_ids: Sequence[str]) -> None:
        self.paused.update(split_ids)

    def resume_splits(self, split_ids: Sequence[str]) -> None:
        self.paused.difference_update(split_ids)

    def snapshot(self) -> list[Split]:
        return self.splits

    def poll(self, max_records: int) -> Any:
        if not self.no_more:
            return NEED_SPLITS
        if not self.splits:
            return END
        for _ in self.splits:
            split = self.splits.pop(0)
            pace, position = int(split.data["pace"]), int(split.position or 0)  # type: ignore[arg-type]
            self.splits.append(split.at(position + 1))
            if pace and split.id not in self.paused:
                time.sleep(0.0005)
                return SourceBatch([(split.id, position * pace, len(self.paused))], split.id, position + 1)
            self.splits[-1] = split
        return Wait(0.01)


class ByWatermark(KeyedProcessFunction[str, Event, Any]):
    """Gives the timestamps that event time has passed."""

    def process_element(self, value: Event, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(value[1])

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield ctx.get_current_key(), timestamp


MONOTONOUS = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ByField())
QUICK = {"pipeline__auto_watermark_interval": "10 ms"}


@pytest.mark.parametrize("idle", ["split", "subtask"])
def test_what_is_idle_holds_back_nobody(idle: str) -> None:
    """One silent split beside one that goes on, in one subtask or in two."""
    env = new_environment(1 if idle == "split" else 2, **QUICK)
    strategy = MONOTONOUS.with_idleness(Duration.of_millis(200))
    events = env.from_source(Endless((1, 0)), strategy, "events")
    results = events.key_by(lambda event: event[0]).process(ByWatermark()).execute_and_collect(limit=100)
    assert results == [("0", timestamp) for timestamp in range(100)]


def test_a_source_that_is_ahead_of_its_group_is_paused() -> None:
    env = new_environment(1, **QUICK)
    drift = 1000
    aligned = MONOTONOUS.with_watermark_alignment("group", Duration.of_millis(drift), Duration.of_millis(10))
    slow = env.from_source(Endless((1,)), aligned, "slow").set_parallelism(1)
    fast = env.from_source(Endless((50, 1)), aligned, "fast").set_parallelism(1)
    both = slow.map(lambda event: ("slow", event)).union(fast.map(lambda event: ("fast", event)))
    with both.execute_and_collect() as results:
        for name, (split, _, paused) in results:
            if (name, split, paused) == ("fast", "1", 1):
                break  # it was read while its neighbour stood still
        for name, (split, _, _) in results:
            if (name, split) == ("fast", "0"):
                break  # and the neighbour goes on when the slow source has caught up


def test_rest_shows_the_watermarks() -> None:
    env = new_environment(2, **QUICK)
    events = env.from_source(Endless((1, 1)), MONOTONOUS, "events").key_by(lambda event: event[0])
    events.process(ByWatermark()).add_sink(Nowhere())
    job = env.execute_async()
    try:  # one subtask may read both splits, and the other one end
        until(lambda: state_of(job) == "RUNNING", "the job runs")
        source, target = (vertex["id"] for vertex in rest_of(job)["vertices"])

        def splits() -> set[str]:
            marks = rest_of(job, f"/vertices/{source}/watermarks")
            return {mark["id"].partition(".")[2] for mark in marks if int(mark["value"]) > 0}

        until(lambda: len(splits()) == 2, "watermarks of both splits")
        assert all(name.startswith("split.") and name.endswith(".watermark.currentWatermark") for name in splits())

        def advanced() -> bool:
            marks = rest_of(job, f"/vertices/{target}/watermarks")
            assert {mark["id"] for mark in marks} <= {"0.currentInputWatermark", "1.currentInputWatermark"}
            return len(marks) == 2 and all(int(mark["value"]) > 0 for mark in marks)

        until(advanced, "watermarks of both subtasks")
    finally:
        job.cancel().result()
    assert ended(job) == "CANCELED"
