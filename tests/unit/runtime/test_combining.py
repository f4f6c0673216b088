"""What operators with keys do before records travel, in batch mode: less is sent, for the same results."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from firesteel.client.graph_shipment import prepare
from firesteel.common import Configuration, Row, Time, TimestampAssigner, Types, WatermarkStrategy
from firesteel.config import Settings
from firesteel.datastream import (
    AggregateFunction,
    DataStream,
    ProcessWindowFunction,
    ReduceFunction,
    StreamExecutionEnvironment,
    WindowedStream,
)
from firesteel.datastream.window import SlidingEventTimeWindows, TumblingEventTimeWindows
from firesteel.expressions import avg, count, first, last, max_, min_, sum_
from firesteel.graph.specs import OperatorKind
from firesteel.protocol.stages import failure_in
from firesteel.runtime.bounded import combining
from firesteel_jobmaster.stages import _AGGREGATING
from tests.unit.runtime.bounded_jobs import BoundedJob

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
ROW = Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.LONG()])
KEYS, COUNT = 5, 4000
Build = Callable[[StreamExecutionEnvironment], DataStream]


class Seconds(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1]) * 1000


TIMED = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Seconds())


def add(pair: Any, other: Any) -> Any:
    return pair[0], pair[1] + other[1]


class Adding(ReduceFunction[Any]):
    combinable = True

    def reduce(self, value1: Any, value2: Any) -> Any:
        return add(value1, value2)


class Refusing(ReduceFunction[Any]):
    combinable = True

    def reduce(self, value1: Any, value2: Any) -> Any:
        raise ValueError("never two")


def pairs(env: StreamExecutionEnvironment) -> DataStream:
    numbers = env.from_collection([(f"k{i % KEYS}", i) for i in range(COUNT)], PAIR)
    return numbers.rebalance().map(lambda pair: pair, PAIR)


def rows(env: StreamExecutionEnvironment) -> DataStream:
    numbers = env.from_collection([Row(k=f"k{i % KEYS}", n=i) for i in range(COUNT)], ROW)
    return numbers.rebalance().map(lambda row: row, ROW)


def reduced(env: StreamExecutionEnvironment) -> DataStream:
    return pairs(env).key_by(lambda pair: pair[0]).reduce(Adding())


def summed(env: StreamExecutionEnvironment) -> DataStream:
    return pairs(env).key_by(lambda pair: pair[0]).sum(1)


def aggregated(env: StreamExecutionEnvironment) -> DataStream:
    aggregates = rows(env).key_by("k").aggregate(sum_("n"), count(), avg("n"), min_("n"), max_("n"))
    return aggregates.map(tuple)


def tumbling(env: StreamExecutionEnvironment) -> DataStream:
    keyed = rows(env).assign_timestamps_and_watermarks(TIMED).key_by("k")
    return keyed.window(TumblingEventTimeWindows.of(Time.seconds(1500))).aggregate(sum_("n"), avg("n")).map(tuple)


def sliding(env: StreamExecutionEnvironment) -> DataStream:
    keyed = rows(env).assign_timestamps_and_watermarks(TIMED).key_by("k")
    windows = SlidingEventTimeWindows.of(Time.seconds(2000), Time.seconds(500))
    return keyed.window(windows).aggregate(sum_("n"), max_("n")).map(tuple)


class Numbers(AggregateFunction[Any, Any, Any]):
    """Number and sum; an accumulator that has seen nothing can't be merged."""

    combinable = True

    def create_accumulator(self) -> Any:
        return None

    def add(self, value: Any, accumulator: Any) -> Any:
        count, total = accumulator or (0, 0)
        return count + 1, total + value[1]

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class WithEnd(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        for element in elements:
            yield (key, context.window().end, *element)


def in_windows(env: StreamExecutionEnvironment) -> WindowedStream:
    keyed = pairs(env).assign_timestamps_and_watermarks(TIMED).key_by(lambda pair: pair[0])
    return keyed.window(TumblingEventTimeWindows.of(Time.seconds(1500)))


def reduced_in_windows(env: StreamExecutionEnvironment) -> DataStream:
    return in_windows(env).reduce(Adding())


def reduced_with_window(env: StreamExecutionEnvironment) -> DataStream:
    return in_windows(env).reduce(Adding(), WithEnd())


def gathered_in_windows(env: StreamExecutionEnvironment) -> DataStream:
    return in_windows(env).aggregate(Numbers(), WithEnd())


def gathered_by_name(env: StreamExecutionEnvironment) -> DataStream:
    """The key is read of many rows at once."""
    keyed = rows(env).assign_timestamps_and_watermarks(TIMED).key_by("k")
    return keyed.window(TumblingEventTimeWindows.of(Time.seconds(1500))).aggregate(Numbers(), WithEnd())


def gathered_of_all(env: StreamExecutionEnvironment) -> DataStream:
    windows = TumblingEventTimeWindows.of(Time.seconds(1500))
    return pairs(env).assign_timestamps_and_watermarks(TIMED).window_all(windows).aggregate(Numbers())


WINDOWS = [reduced_in_windows, reduced_with_window, gathered_in_windows, gathered_by_name, gathered_of_all]


def for_all(env: StreamExecutionEnvironment) -> DataStream:
    windows = TumblingEventTimeWindows.of(Time.seconds(1500))
    return (
        rows(env).assign_timestamps_and_watermarks(TIMED).window_all(windows).aggregate(count(), sum_("n")).map(tuple)
    )


def run(build: Build, combine: bool = True, parallelism: int = 2) -> tuple[list[Any], int]:
    """Results, and the bytes that were read by whom the keys belong to."""
    plain = {"execution.runtime-mode": "BATCH", "firesteel.batch.combine": str(combine).lower()}
    env = StreamExecutionEnvironment.get_execution_environment()
    env.configure(Configuration.from_dict(plain))
    stream = build(env.set_parallelism(parallelism))
    sink = env._add("Collect", OperatorKind.COLLECT, None, (stream._collected(),), extra={"buffer_bytes": 1 << 30})
    sink.internal = True
    graph, _ = env._take(None)
    job = BoundedJob(*prepare(graph, Settings(plain), same_host=True), groups=16).run()
    (reader,) = [vertex.id for vertex in job.graph.vertices if vertex.operators[0].kind in _AGGREGATING]
    read = sum(report["metrics"]["numBytesIn"] for report in job.reports if report["vertex"] == reader)
    return sorted(job.collected), read


@pytest.mark.parametrize("build", [reduced, summed, aggregated, tumbling, sliding, for_all, *WINDOWS])
def test_results_are_the_same_and_a_small_part_goes_through_the_shuffle(build: Build) -> None:
    results, read = run(build)
    expected, whole = run(build, combine=False)
    assert results == expected
    assert results
    assert read * 3 < whole, (read, whole)


@pytest.mark.parametrize("build", [reduced, aggregated, sliding, *WINDOWS])
def test_what_is_held_is_bounded(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts go out again and again, of the same keys."""
    monkeypatch.setattr(combining, "MOST_KEYS", KEYS - 2)
    assert run(build)[0] == run(build, combine=False)[0]


@pytest.mark.parametrize("build", [reduced, aggregated, tumbling, *WINDOWS])
def test_keys_that_hardly_repeat_are_not_combined(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combining, "TRIED", 10)
    monkeypatch.setattr(combining, "WORTH", 0.01)
    results, read = run(build)
    expected, whole = run(build, combine=False)
    assert results == expected
    assert read > whole / 2


class Totals(ReduceFunction[Any]):
    """Gives tuples in place of rows, and more than an INT holds."""

    combinable = True

    def reduce(self, value1: Any, value2: Any) -> Any:
        return value1.k, value1.n + value2.n


@pytest.mark.parametrize("combine", [True, False])
def test_what_a_reduce_function_gives_is_fitted_to_the_type_of_its_stream(combine: bool) -> None:
    of_int = Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.INT()])

    def build(env: StreamExecutionEnvironment) -> DataStream:
        numbers = env.from_collection([Row(k="a", n=2**31 - 1), Row(k="a", n=3), Row(k="a", n=5)], of_int)
        reduced = numbers.rebalance().map(lambda row: row, of_int).key_by(lambda row: row.k).reduce(Totals())
        return reduced.map(lambda row: (row.k, row.n))

    assert run(build, combine)[0] == [("a", 7 - 2**31)]


class Silent(Numbers):
    combinable = False


def unsaid(env: StreamExecutionEnvironment) -> DataStream:
    return in_windows(env).aggregate(Silent())


def in_several_windows(env: StreamExecutionEnvironment) -> DataStream:
    keyed = pairs(env).assign_timestamps_and_watermarks(TIMED).key_by(lambda pair: pair[0])
    windows = SlidingEventTimeWindows.of(Time.seconds(2000), Time.seconds(500))
    return keyed.window(windows).aggregate(Numbers())


@pytest.mark.parametrize("build", [unsaid, in_several_windows])
def test_other_windows_of_functions_are_not_combined(build: Build) -> None:
    results, read = run(build)
    expected, whole = run(build, combine=False)
    assert results == expected
    assert read == whole


def test_a_function_that_does_not_say_so_is_not_combined() -> None:
    """Here it counts, so what it gives is no record to count."""

    def counted(env: StreamExecutionEnvironment) -> DataStream:
        ones = pairs(env).map(lambda pair: (pair[0], 1), PAIR)
        return ones.key_by(lambda pair: pair[0]).reduce(lambda before, _: (before[0], before[1] + 1))

    assert run(counted)[0] == [(f"k{k}", COUNT // KEYS) for k in range(KEYS)]


def test_a_callable_may_say_so() -> None:
    def adds(pair: Any, other: Any) -> Any:
        return add(pair, other)

    adds.combinable = True  # type: ignore[attr-defined]

    def build(env: StreamExecutionEnvironment) -> DataStream:
        return pairs(env).key_by(lambda pair: pair[0]).reduce(adds)

    assert run(build)[1] * 5 < run(build, combine=False)[1]


@pytest.mark.parametrize("pick", [first, last])
def test_the_first_and_the_last_by_time_are_not_combined(pick: Any) -> None:
    """Records come in any order, and are brought into that of their times behind the shuffle."""
    shuffled = list(range(200))
    random.Random(1).shuffle(shuffled)

    def build(env: StreamExecutionEnvironment) -> DataStream:
        numbers = env.from_collection([Row(k=f"k{i % KEYS}", n=i) for i in shuffled], ROW).rebalance()
        return numbers.assign_timestamps_and_watermarks(TIMED).key_by("k").aggregate(pick("n")).map(tuple)

    numbers = range(KEYS) if pick is first else range(200 - KEYS, 200)
    assert run(build)[0] == [(f"k{k}", n) for k, n in enumerate(numbers)]


def test_other_fields_are_those_of_the_first_record_by_time() -> None:
    shuffled = list(range(200))
    random.Random(1).shuffle(shuffled)
    triple = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])

    def build(env: StreamExecutionEnvironment) -> DataStream:
        numbers = env.from_collection([(f"k{i % KEYS}", i, 1) for i in shuffled], triple).rebalance()
        return numbers.assign_timestamps_and_watermarks(TIMED).key_by(lambda triple: triple[0]).sum(2)

    assert run(build)[0] == [(f"k{k}", k, 40) for k in range(KEYS)]


def test_what_a_function_raises_names_its_operator() -> None:
    with pytest.raises(RuntimeError) as raised:
        run(lambda env: pairs(env).key_by(lambda pair: pair[0]).reduce(Refusing()))
    details = failure_in(str(raised.value))
    assert details is not None
    assert (details.failure["error_class"], details.failure["operator"]) == ("ValueError", "Reduce")
