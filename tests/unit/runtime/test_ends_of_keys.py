"""Batch mode: what functions, triggers and windows do when the input of a key ends, and how many subtasks they have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from firesteel.common import Configuration, Row, Time, TimestampAssigner, Types, WatermarkStrategy
from firesteel.connectors.enumerators import create_enumerator
from firesteel.datastream import (
    BroadcastProcessFunction,
    DataStream,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ReduceFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from firesteel.datastream.state import MapStateDescriptor, ValueStateDescriptor
from firesteel.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from firesteel.expressions import sum_
from firesteel_jobmaster.stages import plan_stages
from tests.unit.runtime.test_bounded import Spark

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
ROW = Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.LONG()])
RECORDS = [("a", 1), ("b", 2), ("a", 3), ("b", 4), ("a", 5)]
YEARS = Time.hours(100_000)
STATE = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
Build = Callable[[StreamExecutionEnvironment], DataStream]


class ByNumber(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


def environment() -> StreamExecutionEnvironment:
    configuration = Configuration.from_dict({"execution.runtime-mode": "BATCH"})
    return StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)


def results(build: Build) -> list[Any]:
    env = environment()
    return sorted(Spark(build(env), env, groups=16).run().collected)


def timed(stream: DataStream) -> DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ByNumber())
    return stream.assign_timestamps_and_watermarks(strategy)


def pairs(env: StreamExecutionEnvironment) -> DataStream:
    return timed(env.from_collection(RECORDS, PAIR))


def key(record: Any) -> str:
    return str(record[0])


def added(pair: Any, other: Any) -> Any:
    return pair[0], pair[1] + other[1]


class Periodic:
    """Sets a timer with the first record of a key, and each timer the next one."""

    def __init__(self, domain: str) -> None:
        self.domain = domain

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def counted(self, ctx: Any) -> Any:
        before = self.count.value()
        self.count.update((before or 0) + 1)
        if before is None:
            self.register(ctx.timer_service(), ctx.timer_service().current_processing_time())
        return ()

    def register(self, timers: Any, now: int) -> None:
        if self.domain == "event":
            timers.register_event_time_timer(now + 1000)
        else:
            timers.register_processing_time_timer(now + 1000)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        assert ctx.timer_service().current_watermark() == 2**63 - 1
        self.register(ctx.timer_service(), timestamp)
        yield ctx.get_current_key(), self.count.value()


class PeriodicProcess(Periodic, KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Any:
        return self.counted(ctx)


class PeriodicCoProcess(Periodic, KeyedCoProcessFunction[Any, Any, Any, Any]):
    def process_element1(self, value: Any, ctx: Any) -> Any:
        return self.counted(ctx)

    def process_element2(self, value: Any, ctx: Any) -> Any:
        return self.counted(ctx)


class PeriodicBroadcast(Periodic, KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Any:
        return self.counted(ctx)

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        return ()


PERIODIC: dict[str, tuple[Callable[[DataStream, str], DataStream], list[Any]]] = {
    "process": (lambda s, domain: s.key_by(key).process(PeriodicProcess(domain)), [("a", 3), ("b", 2)]),
    "co-process": (
        lambda s, domain: s.connect(s).key_by(key, key).process(PeriodicCoProcess(domain)),
        [("a", 6), ("b", 4)],
    ),
    "broadcast": (
        lambda s, domain: s.key_by(key).connect(s.broadcast(STATE)).process(PeriodicBroadcast(domain)),
        [("a", 3), ("b", 2)],
    ),
}


@pytest.mark.parametrize("domain", ["event", "processing"])
@pytest.mark.parametrize("name", PERIODIC)
def test_a_timer_that_sets_the_next_one_fires_once_for_a_key(
    name: str, domain: str, caplog: pytest.LogCaptureFixture
) -> None:
    build, expected = PERIODIC[name]
    assert results(lambda env: build(pairs(env), domain)) == expected
    assert "timers that are set by timers are ignored in batch mode" in caplog.text


TRIGGERS: dict[str, tuple[Callable[[DataStream], DataStream], list[Any]]] = {
    "continuous, by the clock": (
        lambda s: (
            s.key_by(key).window(TumblingProcessingTimeWindows.of(YEARS))
            .trigger(ContinuousProcessingTimeTrigger.of(Time.hours(1))).reduce(added)
        ),
        [("a", 9), ("b", 6)],
    ),
    "continuous, by event time": (
        lambda s: (
            s.key_by(key).window(TumblingEventTimeWindows.of(Time.milliseconds(100)))
            .trigger(ContinuousEventTimeTrigger.of(Time.milliseconds(10))).reduce(added)
        ),
        [("a", 9), ("a", 9), ("b", 6), ("b", 6)],  # at the first multiple of the interval, and at the end
    ),
    "continuous, without end": (
        lambda s: (
            s.key_by(key).window(GlobalWindows.create())
            .trigger(ContinuousProcessingTimeTrigger.of(Time.hours(1))).reduce(added)
        ),
        [("a", 9), ("b", 6)],
    ),
    "sessions, which set their timers again": (
        lambda s: s.key_by(key).window(EventTimeSessionWindows.with_gap(Time.milliseconds(1))).reduce(added),
        [("a", 1), ("a", 3), ("a", 5), ("b", 2), ("b", 4)],
    ),
    "sessions by the clock": (
        lambda s: s.key_by(key).window(ProcessingTimeSessionWindows.with_gap(YEARS)).reduce(added),
        [("a", 9), ("b", 6)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TRIGGERS)
def test_windows_whose_timers_are_set_again(name: str) -> None:
    build, expected = TRIGGERS[name]
    assert results(lambda env: build(pairs(env))) == expected


@pytest.mark.parametrize(
    "windows", [TumblingProcessingTimeWindows.of(YEARS), ProcessingTimeSessionWindows.with_gap(YEARS)]
)
def test_windows_over_columns_by_the_clock_end_with_the_input(windows: Any) -> None:
    def build(env: StreamExecutionEnvironment) -> DataStream:
        rows = env.from_collection([Row(k=k, n=n) for k, n in RECORDS], ROW)
        return rows.key_by("k").window(windows).aggregate(sum_("n")).map(lambda row: (row.k, row.sum_n))

    assert results(build) == [("a", 9), ("b", 6)]


class Weighted(ReduceFunction[Any]):
    """Adds a number as often as it was called for the key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.calls = runtime_context.get_state(ValueStateDescriptor("calls", Types.LONG()))

    def reduce(self, value1: Any, value2: Any) -> Any:
        self.calls.update((self.calls.value() or 0) + 1)
        return value1[0], value1[1] + value2[1] * self.calls.value()


def test_reduce_functions_have_state_of_their_own() -> None:
    assert results(lambda env: pairs(env).key_by(key).reduce(Weighted())) == [("a", 1 + 3 + 2 * 5), ("b", 2 + 4)]


class Ruled(BroadcastProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value[0], value[1] * ctx.get_broadcast_state(STATE).get(value[0])

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(STATE).put(value[0], 10)
        return ()


def test_a_broadcast_function_has_as_many_subtasks_as_there_is_to_read() -> None:
    env = environment()
    spread = env.from_collection(RECORDS, PAIR).rebalance().map(lambda pair: pair, PAIR)
    spark = Spark(spread.connect(spread.broadcast(STATE)).process(Ruled()), env)
    spark.starts = [0]  # as for little data: one task reads what both subtasks in front sent
    (stage,) = [planned for planned in plan_stages(spark.graph, create_enumerator) if "Broadcast" in planned.name]
    assert stage.sizing is not None
    assert stage.sizing[:2] == (1, 2)
    assert sorted(spark.run().collected) == sorted((k, 10 * n) for k, n in RECORDS)
    assert len([report for report in spark.reports if report["vertex"] == stage.id]) == 1
