"""What people write who come from Java, from other libraries, in a hurry: accepted, or answered by what they meant."""

from __future__ import annotations

import copy
from collections import namedtuple
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from firesteel.common import Duration, Row, Time, Types, WatermarkStrategy
from firesteel.core.errors import ProgramError
from firesteel.datastream import DataStream, KeyedStream, StreamExecutionEnvironment
from firesteel.datastream.aggregations import FieldReduce, PickRecord, check_position
from firesteel.datastream.functions import (
    AggregateFunction,
    CoProcessFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    ProcessWindowFunction,
)
from firesteel.datastream.window import TumblingEventTimeWindows
from firesteel.functions.sink import Sink, SinkWriter
from tests.unit.runtime.whole_graphs import WholeGraph

SECOND = TumblingEventTimeWindows.of(Time.seconds(1))


def key(record: Any) -> Any:
    return record[0]


def timed(stream: DataStream) -> DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda record, before: record[1])
    return stream.assign_timestamps_and_watermarks(strategy)


# --- names


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("flatmap", "flat_map"),
        ("flatMap", "flat_map"),
        ("keyBy", "key_by"),
        ("keyby", "key_by"),
        ("key_buy", "key_by"),
        ("group_by", "key_by"),
        ("filtre", "filter"),
        ("assignTimestampsAndWatermarks", "assign_timestamps_and_watermarks"),
        ("assign_timestamp_and_watermarks", "assign_timestamps_and_watermarks"),
        ("getSideOutput", "get_side_output"),
        ("sinkTo", "sink_to"),
        ("collect", "execute_and_collect"),
        ("window_al", "window_all"),
    ],
)
def test_a_missing_method_of_a_stream_is_answered_with_the_near_one(pairs: DataStream, name: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=rf"'DataStream' object has no attribute '{name}'; did you mean {meant}\?"):
        getattr(pairs, name)
    assert not hasattr(pairs, name)


def test_missing_methods_of_environments_and_other_streams_are_answered_with_near_ones(
    env: StreamExecutionEnvironment, pairs: DataStream
) -> None:
    keyed = pairs.key_by(key)
    steps: list[tuple[Any, str, str]] = [
        (env, "fromCollection", "from_collection"),
        (env, "from_elements", "from_collection"),
        (keyed, "minBy", "min_by"),
        (keyed, "countWindow", "count_window"),
        (keyed.window(SECOND), "allowedLateness", "allowed_lateness"),
        (keyed.window(SECOND), "agregate", "aggregate"),  # codespell:ignore agregate
        (pairs.window_all(SECOND), "sideOutputLateData", "side_output_late_data"),
        (pairs.connect(pairs), "flatMap", "flat_map"),
        (pairs.join(pairs), "were", "where"),
        (pairs.join(pairs).where(key), "equalTo", "equal_to"),
        (pairs.join(pairs).where(key).equal_to(key), "windows", "window"),
        (keyed.interval_join(keyed), "betwen", "between"),  # codespell:ignore betwen
        (pairs.print(), "setParallelism", "set_parallelism"),
    ]
    for owner, name, meant in steps:
        with pytest.raises(AttributeError, match=rf"has no attribute '{name}'; did you mean {meant}\?"):
            getattr(owner, name)


def test_what_is_near_to_nothing_gets_no_guess(pairs: DataStream) -> None:
    for name in ("xyzzy", "_private", "__array__"):
        with pytest.raises(AttributeError, match=rf"no attribute '{name}'$"):
            getattr(pairs, name)
    assert copy.copy(pairs).get_name() == pairs.get_name()


# --- spans


@pytest.mark.parametrize("lateness", [2000, Time.seconds(2), Duration.of_seconds(2), timedelta(seconds=2)])
def test_allowed_lateness_takes_any_span(pairs: DataStream, lateness: Any) -> None:
    for windows in (timed(pairs).key_by(key).window(SECOND), timed(pairs).window_all(SECOND)):
        stream = windows.allowed_lateness(lateness).reduce(lambda row, other: row)
        assert stream._inputs[0].source.function.allowed_lateness == 2000
    joined = timed(pairs).join(timed(pairs)).where(key).equal_to(key).window(SECOND).allowed_lateness(lateness)
    assert joined._windowed._lateness == 2000


@pytest.mark.parametrize(
    ("lateness", "error", "text"),
    [
        (-1, ValueError, "allowed_lateness must be at least 0"),
        (Time.milliseconds(-1), ValueError, "allowed_lateness in ms must be at least 0"),
        (timedelta(microseconds=1), ValueError, "whole number of milliseconds"),
        (True, TypeError, "not bool"),
        ("1 s", TypeError, "allowed_lateness is a Time, Duration or timedelta .*not str"),
    ],
)
def test_other_lateness_is_refused(pairs: DataStream, lateness: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        pairs.key_by(key).window(SECOND).allowed_lateness(lateness)


# --- parameters


class JavaProcess(ProcessFunction):  # type: ignore[type-arg]
    def process_element(self, value: Any, ctx: Any, out: Any) -> Any:  # type: ignore[override]
        out.collect(value)


class JavaKeyed(KeyedProcessFunction):  # type: ignore[type-arg]
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value

    def on_timer(self, timestamp: int, ctx: Any, out: Any) -> Any:  # type: ignore[override]
        out.collect(timestamp)


class JavaFlatMap(FlatMapFunction):  # type: ignore[type-arg]
    def flat_map(self, value: Any, collector: Any) -> Any:  # type: ignore[override]
        collector.collect(value)


class JavaCoProcess(CoProcessFunction):  # type: ignore[type-arg]
    def process_element1(self, value: Any, ctx: Any) -> Any:
        yield value

    def process_element2(self, value: Any, ctx: Any, out: Any) -> Any:  # type: ignore[override]
        out.collect(value)


class JavaWindow(ProcessWindowFunction):  # type: ignore[type-arg]
    def process(self, key: Any, context: Any, elements: Any, out: Any) -> Any:  # type: ignore[override]
        out.collect(key)


class NoContext(MapFunction):  # type: ignore[type-arg]
    def open(self) -> None:  # type: ignore[override]
        pass

    def map(self, value: Any) -> Any:
        return value


class NoMerge(AggregateFunction):  # type: ignore[type-arg]
    def create_accumulator(self) -> Any:
        return 0

    def add(self, value: Any) -> Any:  # type: ignore[override]
        return value

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a + acc_b


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (
            lambda s: s.process(JavaProcess()),
            r"JavaProcess.process_element takes \(value, ctx, out\), but is called with \(value, ctx\): missing a "
            r"required argument: 'out'; there is no collector as in Java: yield the results in place of out.collect",
        ),
        (lambda s: s.key_by(key).process(JavaKeyed()), r"on_timer .*in place of out.collect"),
        (lambda s: s.flat_map(JavaFlatMap()), r"flat_map .*in place of collector.collect"),
        (lambda s: s.connect(s).process(JavaCoProcess()), r"process_element2 .*in place of out.collect"),
        (lambda s: s.key_by(key).window(SECOND).process(JavaWindow()), r"called with \(key, context, elements\)"),
        (lambda s: s.map(NoContext()), r"NoContext.open takes \(\), but is called with \(runtime_context\)"),
        (
            lambda s: s.key_by(key).window(SECOND).aggregate(NoMerge()),
            r"add takes \(value\), but is called with \(value, accumulator\)",
        ),
        (lambda s: s.map(lambda one, other: one), r"map\(\): the function takes \(one, other\), but is called with"),
        (lambda s: s.key_by(key).reduce(lambda row: row), r"but is called with \(value1, value2\)"),
        (lambda s: s.key_by(lambda: 0), r"parameter key_selector: the function takes \(\)"),
        (lambda s: s.partition_custom(lambda k: 0, key), r"parameter partitioner: .*called with \(key, num_part"),
    ],
)
def test_functions_that_can_not_be_called_are_refused_where_they_are_given(
    pairs: DataStream, build: Any, text: str
) -> None:
    with pytest.raises(TypeError, match=text):
        build(pairs)


def test_functions_that_take_more_or_whatever_comes_are_accepted(pairs: DataStream) -> None:
    class Flexible(ProcessFunction[Any, Any]):
        def process_element(self, *arguments: Any, out: Any = None) -> Any:
            yield arguments[0]

    twice: Any = lambda value, times=2: value * times  # noqa: E731
    pairs.process(Flexible()).map(str).map(twice).filter(bool)


# --- fields


Point = namedtuple("Point", ["k", "n"])


@dataclass(frozen=True)
class Frozen:
    k: str
    n: int


class Plain:
    def __init__(self, k: str, n: int) -> None:
        self.k, self.n = k, n


@pytest.mark.parametrize("make", [lambda k, n: {"k": k, "n": n}, Point, Frozen, Plain, lambda k, n: Row(k=k, n=n)])
def test_fields_have_names_in_all_kinds_of_records(make: Any) -> None:
    first, second = make("a", 3), make("b", 4)

    def fields(record: Any) -> tuple[Any, Any]:
        return (record["k"], record["n"]) if isinstance(record, (dict, Row)) else (record.k, record.n)

    assert fields(FieldReduce("n", lambda a, b: a + b)(first, second)) == ("a", 7)
    assert fields(first) == ("a", 3), "the record itself stays as it is"
    assert fields(PickRecord("n", smallest=False)(first, second)) == ("b", 4)


@pytest.mark.parametrize("record", [{"k": 1}, ("a", 1), Frozen("a", 1), Row(k=1)])
def test_a_field_that_is_not_there_is_named(record: Any) -> None:
    with pytest.raises(ProgramError, match=r"a record has no field 'amount': .*name one that all records have"):
        FieldReduce("amount", max)(record, record)


def test_fields_of_declared_maps_have_names() -> None:
    assert check_position("sum", "n", Types.MAP(Types.STRING(), Types.LONG())) == "n"
    with pytest.raises(TypeError, match="whose fields have no names"):
        check_position("sum", "n", Types.TUPLE([Types.LONG()]))


# --- keys


class Nowhere(Sink[Any]):
    def create_writer(self, context: Any) -> SinkWriter[Any]:
        return _NowhereWriter()


class _NowhereWriter(SinkWriter[Any]):
    def write(self, values: Any, timestamps: Any) -> None: ...


KEYED: dict[str, Any] = {
    "map": lambda keyed: keyed.map(lambda record: record),
    "flat_map": lambda keyed: keyed.flat_map(lambda record: [record]),
    "filter": lambda keyed: keyed.filter(lambda record: True),
    "union": lambda keyed: keyed.union(keyed),
    "sink": lambda keyed: keyed,
    "reduce": lambda keyed: keyed.reduce(lambda row, other: row),
    "count_window": lambda keyed: keyed.count_window(2).reduce(lambda row, other: row),
}
"""What may stand behind ``key_by``: operators that look at keys themselves, and others."""


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("name", KEYED)
@pytest.mark.parametrize(
    ("selector", "text"),
    [(lambda record: record["missing"], "missing"), (lambda record: [record["k"]], "list")],
    ids=["missing field", "no key"],
)
def test_what_is_wrong_with_a_key_is_an_error_at_any_parallelism(
    name: str, parallelism: int, selector: Any, text: str
) -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
    keyed = env.from_collection([{"k": "a"}]).key_by(selector)
    assert isinstance(keyed, KeyedStream)
    KEYED[name](keyed).sink_to(Nowhere())
    with pytest.raises(Exception, match=text):
        WholeGraph(env._stream_graph(None)).run()
