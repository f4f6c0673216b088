"""Programs with windows and joins in real slots, at several parallelisms, beside plain Python."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from firesteel.common import Time, Types, WatermarkStrategy
from firesteel.common.time import Duration
from firesteel.common.watermark_strategy import TimestampAssigner
from firesteel.datastream import (
    AggregateFunction,
    DataStream,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from firesteel.datastream.state import ValueStateDescriptor
from firesteel.datastream.window import (
    CountEvictor,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
)
from tests.integration.embedded.programs import new_environment

pytestmark = pytest.mark.usefixtures("cluster")
PARALLELISMS = pytest.mark.parametrize("parallelism", [pytest.param(1, marks=pytest.mark.long), 5])
_random = random.Random(11)
EVENTS = [(_random.choice("abcdefgh"), _random.randrange(100), at + _random.randrange(60)) for at in range(0, 9000, 3)]
"""Key, number, event time: at most 60 ms out of order."""


class ByThird(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[2])


def timed(env: StreamExecutionEnvironment, records: list[Any], slack: int = 60) -> DataStream:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(slack))
    stream = env.from_collection(records).assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(ByThird()))
    return stream.set_parallelism(1)


def collected(stream: DataStream) -> list[Any]:
    with stream.execute_and_collect() as results:
        return sorted(results, key=repr)


class MaxAndCount(AggregateFunction[Any, Any, Any]):
    def create_accumulator(self) -> tuple[int, int]:
        return -1, 0

    def add(self, value: Any, accumulator: tuple[int, int]) -> tuple[int, int]:
        return max(value[1], accumulator[0]), accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return max(acc_a[0], acc_b[0]), acc_a[1] + acc_b[1]


class WithWindow(ProcessWindowFunction[Any, Any, Any, TimeWindow]):
    """Key, window and its only element; counts the evaluations of each key in its state."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = ValueStateDescriptor("count", Types.LONG())

    def process(self, key: Any, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[Any]) -> Any:
        state = context.global_state().get_state(self.count)
        state.update((state.value() or 0) + 1)
        window = context.window()
        assert context.current_watermark() >= window.max_timestamp()
        yield key, window.start, window.end, *elements, state.value()


def expected_windows(size: int, slide: int) -> list[Any]:
    groups: dict[Any, list[int]] = defaultdict(list)
    for key, value, at in EVENTS:
        for start in range(at // slide * slide, at - size, -slide):
            groups[start + size, start, key].append(value)
    seen: Counter[str] = Counter()
    results = []
    for (end, start, key), values in sorted(groups.items()):
        seen[key] += 1
        results.append((key, start, end, (max(values), len(values)), seen[key]))
    return sorted(results, key=repr)


@pytest.mark.parametrize(("parallelism", "size", "slide"), [(1, 500, 500), (5, 700, 200)])
def test_tumbling_and_sliding_windows(parallelism: int, size: int, slide: int) -> None:
    assigner: Any = TumblingEventTimeWindows.of(Time.milliseconds(size))
    if slide != size:
        assigner = SlidingEventTimeWindows.of(Time.milliseconds(size), Time.milliseconds(slide))
    windows = timed(new_environment(parallelism), EVENTS).key_by(lambda e: e[0]).window(assigner)
    assert collected(windows.aggregate(MaxAndCount(), WithWindow())) == expected_windows(size, slide)


@pytest.mark.smoke
@PARALLELISMS
def test_sessions_with_late_data(parallelism: int) -> None:
    late: OutputTag[Any] = OutputTag("late", Types.PICKLED_BYTE_ARRAY())
    stragglers = [("a", 1000, 1), ("b", 1000, 2)]
    records = [("a", 1, 0), ("b", 2, 5), ("a", 3, 15), ("a", 4, 400), ("b", 5, 1000), *stragglers, ("a", 6, 1002)]
    windowed = timed(new_environment(parallelism), records, slack=0).key_by(lambda e: e[0])
    results = windowed.window(EventTimeSessionWindows.with_gap(Time.milliseconds(20))).side_output_late_data(late)
    sums = results.reduce(lambda a, b: (a[0], a[1] + b[1], max(a[2], b[2])))
    both = sums.map(lambda r: ("sum", r)).union(sums.get_side_output(late).map(lambda r: ("late", r)))
    by_output: dict[str, list[Any]] = {"sum": [], "late": []}
    with both.execute_and_collect() as outcomes:
        for name, record in outcomes:
            by_output[name].append(record)
    # Watermarks are made from time to time: whether a straggler is late depends on whether one was made before it.
    total = sum(record[1] for record in by_output["sum"]) + sum(record[1] for record in by_output["late"])
    assert total == sum(record[1] for record in records)
    assert set(by_output["late"]) <= set(stragglers)
    for sure in (("a", 4, 400), ("b", 5, 1000), ("a", 6, 1002)):
        assert sure in by_output["sum"]


@PARALLELISMS
def test_count_windows_and_evictors(parallelism: int) -> None:
    env = new_environment(parallelism)
    keyed = env.from_collection(EVENTS).key_by(lambda e: e[0])
    sums = keyed.count_window(10).reduce(lambda a, b: (a[0], a[1] + b[1], 0)).map(lambda r: ("sum", r[:2]))
    last = keyed.count_window(10).evictor(CountEvictor.of(2)).process(Last()).map(lambda r: ("last", r))
    by_output: dict[str, list[Any]] = {"sum": [], "last": []}
    with sums.union(last).execute_and_collect() as results:
        for name, record in results:
            by_output[name].append(record)
    by_key: dict[str, list[int]] = defaultdict(list)
    for key, value, _ in EVENTS:
        by_key[key].append(value)
    tens = [(key, values[i : i + 10]) for key, values in by_key.items() for i in range(0, len(values) - 9, 10)]
    assert Counter(by_output["sum"]) == Counter((key, sum(ten)) for key, ten in tens)
    assert Counter(by_output["last"]) == Counter((key, tuple(ten[-2:])) for key, ten in tens)


class Last(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: ProcessWindowFunction.Context[Any], elements: Iterable[Any]) -> Iterator[Any]:
        yield key, tuple(element[1] for element in elements)


class Totals(ProcessAllWindowFunction[Any, Any, TimeWindow]):
    def process(self, context: ProcessAllWindowFunction.Context[TimeWindow], elements: Iterable[Any]) -> Iterator[Any]:
        yield context.window().start, sum(element[1] for element in elements)


@pytest.mark.parametrize("parallelism", [pytest.param(1, marks=pytest.mark.long), 3])
def test_windows_over_the_whole_stream(parallelism: int) -> None:
    stream = timed(new_environment(parallelism), EVENTS).rebalance().map(lambda e: e)
    totals: Counter[int] = Counter()
    for _, value, at in EVENTS:
        totals[at // 1000 * 1000] += value
    window_totals = collected(stream.window_all(TumblingEventTimeWindows.of(Time.seconds(1))).process(Totals()))
    assert dict(window_totals) == totals
    assert len(window_totals) == len(totals)


class Pairs(ProcessJoinFunction[Any, Any, Any]):
    def process_element(self, left: Any, right: Any, ctx: ProcessJoinFunction.Context) -> Iterator[Any]:
        assert (ctx.get_left_timestamp(), ctx.get_right_timestamp()) == (left[2], right[2])
        assert ctx.get_timestamp() == max(left[2], right[2])
        yield left, right


@PARALLELISMS
def test_joins(parallelism: int) -> None:
    env = new_environment(parallelism)
    left, right = EVENTS[:400], EVENTS[200:600]
    first, other = timed(env, left), timed(env, right)
    second = TumblingEventTimeWindows.of(Time.milliseconds(100))
    joined = first.join(other).where(lambda e: e[0]).equal_to(lambda e: e[0]).window(second).apply(lambda a, b: (a, b))
    groups = (
        first.co_group(other)
        .where(lambda e: e[0])
        .equal_to(lambda e: e[0])
        .window(second)
        .apply(lambda a, b: [(len(list(a)), len(list(b)))])
    )
    near = first.key_by(lambda e: e[0]).interval_join(other.key_by(lambda e: e[0]))
    pairs = near.between(Time.milliseconds(-30), Time.milliseconds(50)).upper_bound_exclusive().process(Pairs())
    by_join: dict[str, list[Any]] = {"join": [], "group": [], "interval": []}
    together = joined.map(lambda r: ("join", r)).union(
        groups.map(lambda r: ("group", r)), pairs.map(lambda r: ("interval", r))
    )
    with together.execute_and_collect() as results:
        for name, record in results:
            by_join[name].append(record)
    same = [(a, b) for a in left for b in right if a[0] == b[0]]
    assert Counter(by_join["join"]) == Counter((a, b) for a, b in same if a[2] // 100 == b[2] // 100)
    assert Counter(by_join["interval"]) == Counter((a, b) for a, b in same if -30 <= b[2] - a[2] < 50)
    sides = [Counter((e[0], e[2] // 100) for e in side) for side in (left, right)]
    assert Counter(by_join["group"]) == Counter(
        (sides[0][at], sides[1][at]) for at in sides[0].keys() | sides[1].keys()
    )
