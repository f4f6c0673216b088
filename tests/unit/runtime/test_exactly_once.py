"""Whole jobs that crash at any moment and go on from their last checkpoint: what is visible is compared with an oracle.

Random topologies, parallelism, data, moments; news of checkpoints that is lost; snapshots that take their time.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firesteel.common import Time, TimestampAssigner, Types, WatermarkStrategy
from firesteel.functions.checkpointed import CheckpointedFunction
from firesteel.functions.functions import FlatMapFunction, KeyedProcessFunction
from firesteel.functions.state import ListStateDescriptor, ValueStateDescriptor
from firesteel.graph.specs import OperatorKind as K
from firesteel.graph.specs import OperatorSpec
from firesteel.graph.specs import PartitionerKind as P
from firesteel.runtime.task import task as task_module
from firesteel.windowing.assigners import TumblingEventTimeWindows
from firesteel.windowing.builtin_triggers import EventTimeTrigger
from firesteel.windowing.session_assigners import EventTimeSessionWindows
from firesteel.windowing.spec import WindowGathering, WindowSpec
from tests.examples import examples
from tests.unit.runtime.mini_job import SHELVES, Checkpoint, ListSource, MiniJob, Shelf, ShelfSink, Vertex

Record = tuple[int, int]
"""Key, timestamp."""


class Second(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value[1]  # type: ignore[no-any-return]


def key_of(record: Any) -> Any:
    return record[0]


def operator(name: str, kind: K, function: Any = None, **more: Any) -> OperatorSpec:
    """With an id of its own."""
    return OperatorSpec(name.encode().hex().ljust(32, "0")[:32], name, kind, function, **more)


def source(name: str) -> Callable[[], list[OperatorSpec]]:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
    return lambda: [operator(name, K.SOURCE, ListSource(), extra={"watermark_strategy": strategy})]


class CountByKey(KeyedProcessFunction[Any, Any, Any]):
    """Gives each record with its number among those of its key."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value[0], count


class FireOnce(KeyedProcessFunction[Any, Any, Any]):
    """Gives each record back by a timer at its time, which knows what the state holds."""

    def open(self, runtime_context: Any) -> None:
        self.waiting = runtime_context.get_list_state(ListStateDescriptor("waiting", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.waiting.add(value[1])
        ctx.timer_service().register_event_time_timer(value[1])

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        times = list(self.waiting.get())
        yield from [(ctx.get_current_key(), time) for time in times if time == timestamp]
        self.waiting.update([time for time in times if time != timestamp])


class HoldBack(FlatMapFunction[Any, Any], CheckpointedFunction):
    """Gives records two at a time; what waits is operator state."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def initialize_state(self, context: Any) -> None:
        self.state = context.get_operator_state_store().get_list_state(
            ListStateDescriptor("held", Types.PICKLED_BYTE_ARRAY())
        )
        self.waiting = list(self.state.get())

    def snapshot_state(self, context: Any) -> None:
        self.state.update(self.waiting)

    def flat_map(self, value: Any) -> Any:
        self.waiting.append(value)
        if len(self.waiting) >= 2:
            batch, self.waiting = self.waiting, []
            yield from batch


class Tally(FlatMapFunction[Any, Any], CheckpointedFunction):
    """Gives each record with its number among those of its key; what it counts with is the state itself."""

    def initialize_state(self, context: Any) -> None:
        self.state = context.get_operator_state_store().get_list_state(
            ListStateDescriptor("counts", Types.PICKLED_BYTE_ARRAY())
        )
        self.counts: Counter[Any] = sum(self.state.get(), Counter())

    def snapshot_state(self, context: Any) -> None:
        self.state.update([self.counts])

    def flat_map(self, value: Any) -> Any:
        self.counts[value[0]] += 1
        yield value[0], self.counts[value[0]]


def window() -> OperatorSpec:
    spec = WindowSpec(
        assigner=TumblingEventTimeWindows(10),
        trigger=EventTimeTrigger.create(),
        gathering=WindowGathering.REDUCE,
        gather_function=lambda pair, other: (pair[0], pair[1] + other[1]),
    )
    return operator("window", K.ALIGNED_WINDOW, spec, key_selectors=(key_of,))


def sink() -> OperatorSpec:
    return operator("sink", K.SINK, ShelfSink("shelf"))


def straight(p: Sequence[int]) -> list[Vertex]:
    return [Vertex("source", lambda: [*source("source")(), operator("map", K.MAP, lambda r: r), sink()], p[0])]


def keyed(p: Sequence[int]) -> list[Vertex]:
    """By key, then to a sink by turns."""
    count = operator("count", K.KEYED_PROCESS, CountByKey(), key_selectors=(key_of,))
    return [
        Vertex("source", source("source"), p[0]),
        Vertex("count", lambda: [count], p[1], [("source", P.HASH, key_of)]),
        Vertex("sink", lambda: [sink()], p[2], [("count", P.REBALANCE, None)]),
    ]


def union(p: Sequence[int]) -> list[Vertex]:
    """Two sources, one of them twice; timers."""
    fire = operator("fire", K.KEYED_PROCESS, FireOnce(), key_selectors=(key_of,))
    edges = [("source", P.HASH, key_of), ("other", P.HASH, key_of), ("other", P.HASH, key_of)]
    return [
        Vertex("source", source("source"), p[0]),
        Vertex("other", source("other"), p[1]),
        Vertex("fire", lambda: [fire, sink()], p[2], edges),
    ]


def windows(p: Sequence[int]) -> list[Vertex]:
    ones = operator("one", K.MAP, lambda r: (r[0], 1))
    return [
        Vertex("source", lambda: [*source("source")(), ones], p[0]),
        Vertex("window", lambda: [window()], p[1], [("source", P.HASH, key_of)]),
        Vertex("sink", lambda: [sink()], p[2], [("window", P.REBALANCE, None)]),
    ]


def sessions(p: Sequence[int]) -> list[Vertex]:
    def session() -> OperatorSpec:
        spec = WindowSpec(
            assigner=EventTimeSessionWindows.with_gap(Time.milliseconds(4)),
            trigger=EventTimeTrigger.create(),
            gathering=WindowGathering.REDUCE,
            gather_function=lambda pair, other: (pair[0], pair[1] + other[1]),
        )
        return operator("session", K.WINDOW, spec, key_selectors=(key_of,))

    ones = operator("one", K.MAP, lambda r: (r[0], 1))
    return [
        Vertex("source", lambda: [*source("source")(), ones], p[0]),
        Vertex("session", lambda: [session()], p[1], [("source", P.HASH, key_of)]),
        Vertex("sink", lambda: [sink()], p[2], [("session", P.REBALANCE, None)]),
    ]


def session_counts(flat: list[Record]) -> Counter[Any]:
    """Records of each session of each key."""
    sessions: list[Record] = []
    for key in {key for key, _ in flat}:
        last, count = None, 0
        for time in sorted(time for other, time in flat if other == key):
            if last is not None and time > last + 4:  # windows that touch are one
                sessions.append((key, count))
                count = 0
            last, count = time, count + 1
        sessions.append((key, count))
    return Counter(sessions)


TOPOLOGIES = {"straight": straight, "keyed": keyed, "union": union, "windows": windows, "sessions": sessions}


def expected(name: str, records: dict[str, list[list[Record]]]) -> Counter[Any]:
    """What has to be visible."""
    flat = [record for split in records["source"] for record in split]
    if name == "straight":
        return Counter(flat)
    if name == "keyed":
        seen: Counter[int] = Counter()
        numbered = []
        for key, _ in flat:
            seen[key] += 1
            numbered.append((key, seen[key]))
        return Counter(numbered)
    if name == "sessions":
        return session_counts(flat)
    if name == "windows":
        windows = Counter((key, time // 10) for key, time in flat)
        return Counter((key, count) for (key, _), count in windows.items())
    return Counter(flat + 2 * [record for split in records["other"] for record in split])


def run_with_crashes(
    build: Callable[[Sequence[int]], list[Vertex]],
    records: dict[str, list[list[Record]]],
    parallelism: Sequence[Sequence[int]],
    seed: int,
    options: dict[str, Any] | None = None,
    elsewhere: Callable[[], list[Callable[[], None]]] = list,
) -> Counter[Any]:
    """Each attempt but the last one crashes; what is visible at the end."""
    chance = random.Random(seed)
    SHELVES["shelf"] = shelf = Shelf()
    restore: Checkpoint | None = None
    number = 1
    for attempt, degrees in enumerate(parallelism):
        job = MiniJob(
            build(degrees),
            records,
            chance.randrange(1 << 30),
            restore,
            options,
            number,
            attempt,
            elsewhere=elsewhere(),
        )
        try:
            if attempt == len(parallelism) - 1:
                job.to_end()
            else:
                job.live_for_a_while(chance)
            restore, number = job.completed, job.number + 1
        finally:
            job.crash()
    return Counter(shelf.visible)


def random_splits(chance: random.Random) -> list[list[Record]]:
    """Up to four, each in the order of time."""
    splits = []
    for _ in range(chance.randrange(5)):
        times = sorted(chance.randrange(60) for _ in range(chance.randrange(70)))
        splits.append([(chance.randrange(6), time) for time in times])
    return splits


@pytest.fixture(autouse=True)
def _one_batch_for_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a subtask reads all its input in one step, and nothing can happen in between."""
    monkeypatch.setattr(task_module, "STEP_SECONDS", -1.0)


@pytest.mark.parametrize("topology", TOPOLOGIES)
@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 30))
def test_nothing_is_lost_and_nothing_is_doubled(topology: str, seed: int) -> None:
    chance = random.Random(seed)
    records = {"source": random_splits(chance), "other": random_splits(chance)}
    degrees = [[chance.randrange(1, 4) for _ in range(3)] for _ in range(chance.randrange(1, 5))]
    visible = run_with_crashes(TOPOLOGIES[topology], records, degrees, chance.randrange(1 << 30))
    assert visible == expected(topology, records)


@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 30))
def test_operator_state_is_dealt_out_and_nothing_in_it_is_lost_or_doubled(seed: int) -> None:
    chance = random.Random(seed)
    records = {"source": random_splits(chance)}
    degrees = [[chance.randrange(1, 4) for _ in range(3)] for _ in range(chance.randrange(1, 5))]

    def topology(p: Sequence[int]) -> list[Vertex]:
        return [
            Vertex("source", source("source"), p[0]),
            Vertex("hold", lambda: [operator("hold", K.FLAT_MAP, HoldBack()), sink()], p[1],
                   [("source", P.REBALANCE, None)]),
        ]  # fmt: skip

    visible = run_with_crashes(topology, records, degrees, chance.randrange(1 << 30))
    expected_records = Counter(record for split in records["source"] for record in split)
    assert visible <= expected_records, "something is doubled"
    most = max(degree[1] for degree in degrees)  # one in each subtask, or what several of them left to one
    assert (expected_records - visible).total() <= most, "more is missing than can wait"


@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 30))
def test_operator_state_that_the_function_goes_on_changing(seed: int) -> None:
    chance = random.Random(seed)
    records = {"source": random_splits(chance)}
    degrees = [[chance.randrange(1, 4), 1] for _ in range(chance.randrange(1, 5))]

    def tallied(p: Sequence[int]) -> list[Vertex]:
        return [
            Vertex("source", source("source"), p[0]),
            Vertex("tally", lambda: [operator("tally", K.FLAT_MAP, Tally()), sink()], p[1],
                   [("source", P.REBALANCE, None)]),
        ]  # fmt: skip

    visible = run_with_crashes(tallied, records, degrees, chance.randrange(1 << 30))
    times = Counter(key for split in records["source"] for key, _ in split)
    assert visible == Counter((key, number) for key, count in times.items() for number in range(1, count + 1))


@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 30), topology=st.sampled_from(["straight", "union"]))
def test_at_least_once_loses_nothing(topology: str, seed: int) -> None:
    chance = random.Random(seed)
    records = {"source": random_splits(chance), "other": random_splits(chance)}
    degrees = [[chance.randrange(1, 4) for _ in range(3)] for _ in range(3)]
    options = {"mode": "AT_LEAST_ONCE"}
    visible = run_with_crashes(TOPOLOGIES[topology], records, degrees, chance.randrange(1 << 30), options)
    assert expected(topology, records) <= visible
