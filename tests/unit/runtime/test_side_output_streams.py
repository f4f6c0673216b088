"""Every method of a stream, called on a side output, reads the side output; as a stream and in batch mode.

The operator in front sends each record to its results as well, negated, so that a method which reads those is seen.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from firesteel.client.graph_shipment import prepare
from firesteel.common import Configuration, Encoder, Row, Time, TimestampAssigner, Types, WatermarkStrategy
from firesteel.config import Settings
from firesteel.core.errors import GraphError
from firesteel.datastream import (
    BroadcastProcessFunction,
    CoMapFunction,
    DataStream,
    KeyedProcessFunction,
    KeyedStream,
    OutputTag,
    ProcessFunction,
    ProcessJoinFunction,
    SinkFunction,
    StreamExecutionEnvironment,
)
from firesteel.datastream.connectors.file_system import FileSink
from firesteel.datastream.state import MapStateDescriptor
from firesteel.datastream.window import TumblingEventTimeWindows
from firesteel.expressions import col, count, sum_
from firesteel.functions.sink import Sink, SinkWriter, WriterContext
from firesteel.graph.specs import OperatorKind
from firesteel.graph.stream_graph import StreamGraph
from tests.unit.datastream.fakes import FakeExecutor
from tests.unit.runtime.bounded_jobs import BoundedJob
from tests.unit.runtime.whole_graphs import WholeGraph

ROW = Types.ROW_NAMED(["k", "n"], [Types.LONG(), Types.LONG()])
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
RECORDS = [(number % 3, number) for number in range(1, 13)]
SIDE_ROWS, SIDE_PAIRS = OutputTag("side", ROW), OutputTag("side", PAIR)
STATE = MapStateDescriptor("seen", Types.LONG(), Types.LONG())
HOUR = TumblingEventTimeWindows.of(Time.hours(1))
Build = Callable[[DataStream], DataStream]


class Divide(ProcessFunction[Any, Any]):
    """Sends each record to a side output, and with its negation on."""

    def __init__(self, tag: OutputTag[Any]) -> None:
        self.tag = tag

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield Row(k=-value[0], n=-value[1]) if self.tag == SIDE_ROWS else (-value[0], -value[1])
        yield self.tag, value


class Twice(ProcessFunction[Any, Any]):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield value[1] * 2


class KeyAndNumber(KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        yield ctx.get_current_key(), value[1]


class Both(CoMapFunction[Any, Any, Any]):
    def map1(self, value: Any) -> Any:
        return 1, value[1]

    def map2(self, value: Any) -> Any:
        return 2, value[1]


class Ruled(BroadcastProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Any:
        return ()

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        yield value[1]


class Pairs(ProcessJoinFunction[Any, Any, Any]):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Any:
        yield left[1], right[1]


class Written(SinkFunction[Any]):
    def invoke(self, value: Any, context: Any) -> None: ...


class ByNumber(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


class _Results(Sink[Any]):
    """Keeps what is written in a list that the test holds."""

    def __init__(self, into: list[Any]) -> None:
        self.into = into

    def create_writer(self, context: WriterContext) -> SinkWriter[Any]:
        return _ResultsWriter(self.into)


class _ResultsWriter(SinkWriter[Any]):
    def __init__(self, into: list[Any]) -> None:
        self._into = into

    def write(self, values: Sequence[Any], timestamps: Sequence[int] | None) -> None:
        self._into += values


def key(record: Any) -> int:
    return int(record[0])


def larger(record: Any, other: Any) -> Any:
    return record if record[1] > other[1] else other


def timed(stream: DataStream) -> DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ByNumber())
    return stream.assign_timestamps_and_watermarks(strategy)


def joined(first: DataStream, second: DataStream) -> DataStream:
    windows = first.join(second).where(key).equal_to(key).window(HOUR)
    return windows.apply(lambda left, right: (left[1], right[1]))


def grouped(first: DataStream, second: DataStream) -> DataStream:
    windows = first.co_group(second).where(key).equal_to(key).window(HOUR)
    return windows.apply(
        lambda some, others: [sorted(record[1] for record in some), sorted(record[1] for record in others)]
    )


STREAMS: dict[str, Build] = {
    "map": lambda s: s.map(lambda r: r[1]),
    "flat_map": lambda s: s.flat_map(lambda r: [r[1], r[1]]),
    "filter": lambda s: s.filter(lambda r: r[1] % 2 == 0),
    "filter (columns)": lambda s: s.filter(col("n") % 2 == 0),
    "process": lambda s: s.process(Twice()),
    "project": lambda s: s.project(1),
    "select": lambda s: s.select("n"),
    "with_columns": lambda s: s.with_columns((col("n") + 1).alias("next")),
    "drop": lambda s: s.drop("k"),
    "map_batches": lambda s: s.map_batches(lambda batch: batch, ROW),
    "union": lambda s: s.union(s),
    "connect": lambda s: s.connect(s).map(Both()),
    "join": lambda s: joined(s, s),
    "co_group": lambda s: grouped(s, s),
    "key_by": lambda s: s.key_by(key).process(KeyAndNumber()),
    "key_by (columns)": lambda s: s.key_by("k").map(lambda r: r[1]),
    "shuffle": lambda s: s.shuffle().map(lambda r: r[1]),
    "rebalance": lambda s: s.rebalance().map(lambda r: r[1]),
    "rescale": lambda s: s.rescale().map(lambda r: r[1]),
    "forward": lambda s: s.forward().map(lambda r: r[1]).set_parallelism(1),
    "global_": lambda s: s.global_().map(lambda r: r[1]),
    "partition_custom": lambda s: s.partition_custom(lambda k, subtasks: k % subtasks, key).map(lambda r: r[1]),
    "broadcast": lambda s: s.broadcast().map(lambda r: r[1]),
    "broadcast (state)": lambda s: s.connect(s.broadcast(STATE)).process(Ruled()),
    "window_all": lambda s: s.window_all(HOUR).reduce(larger),
    "window_all (columns)": lambda s: s.window_all(HOUR).aggregate(count(), sum_("n")),
    "count_window_all": lambda s: s.count_window_all(4).reduce(larger),
    "assign_timestamps_and_watermarks": lambda s: timed(s).window_all(HOUR).reduce(larger),
    "cache": lambda s: s.cache().map(lambda r: r[1]),
    "reduce": lambda s: s.key_by(key).reduce(larger),
    "sum": lambda s: s.key_by(key).sum("n"),
    "min": lambda s: s.key_by(key).min("n"),
    "max": lambda s: s.key_by(key).max("n"),
    "min_by": lambda s: s.key_by(key).min_by("n"),
    "max_by": lambda s: s.key_by(key).max_by("n"),
    "aggregate": lambda s: s.key_by("k").aggregate(count(), sum_("n")),
    "process_batches": lambda s: s.key_by("k").process_batches(lambda batch, ctx: batch, ROW),
    "window": lambda s: s.key_by(key).window(HOUR).reduce(larger),
    "window (columns)": lambda s: s.key_by("k").window(HOUR).aggregate(count(), sum_("n")),
    "count_window": lambda s: s.key_by(key).count_window(2).reduce(larger),
    "interval_join": lambda s: (
        s.key_by(key).interval_join(s.key_by(key))
        .between(Time.milliseconds(-3), Time.milliseconds(3)).process(Pairs())
    ),
}  # fmt: skip
"""By method, with what distinguishes several programs of one method: a program that calls it on a side output."""
KEYED = [
    "connect", "union", "join", "co_group", "map", "flat_map", "filter", "select", "with_columns", "drop",
    "map_batches", "window_all", "window_all (columns)", "count_window_all",
    "assign_timestamps_and_watermarks", "key_by",
]  # fmt: skip
"""Methods of all streams that a stream keyed by a side output's records is called with, too."""
ENDS: dict[str, Callable[[DataStream], object]] = {
    "print": lambda s: s.print(),
    "sink_to": lambda s: s.sink_to(FileSink.for_row_format("/nowhere", Encoder.simple_string_encoder()).build()),
    "add_sink": lambda s: s.add_sink(Written()),
    "execute_and_collect": lambda s: s.execute_and_collect(),
}
NO_OPERATOR = {
    "disable_chaining", "force_non_parallel", "name", "set_buffer_timeout", "set_description", "set_max_parallelism",
    "set_parallelism", "set_uid_hash", "slot_sharing_group", "start_new_chain", "uid", "get_side_output",
}  # fmt: skip
"""They are an operator's; a side output is none."""
ABOUT = {"get_execution_config", "get_execution_environment", "get_name", "get_type"}


def test_each_method_has_a_case() -> None:
    methods = {
        name
        for stream_class in (DataStream, KeyedStream)
        for name, _ in inspect.getmembers(stream_class, inspect.isfunction)
        if not name.startswith("_")
    }
    assert {name.partition(" ")[0] for name in STREAMS} | set(ENDS) | NO_OPERATOR | ABOUT == methods


def of_side_output(env: StreamExecutionEnvironment, name: str) -> DataStream:
    declared, tag = (PAIR, SIDE_PAIRS) if name == "project" else (ROW, SIDE_ROWS)
    records = RECORDS if name == "project" else [Row(k=k, n=n) for k, n in RECORDS]
    main = (
        timed(env.from_collection(records, declared))
        .set_parallelism(1)
        .process(Divide(tag), declared)
        .set_parallelism(1)
    )
    return main.get_side_output(tag)


def plain(env: StreamExecutionEnvironment, name: str) -> DataStream:
    """A stream of the records that the side output gets."""
    if name == "project":
        return timed(env.from_collection(RECORDS, PAIR)).set_parallelism(1)
    return timed(env.from_collection([Row(k=k, n=n) for k, n in RECORDS], ROW)).set_parallelism(1)


def in_order(results: Sequence[Any]) -> list[str]:
    return sorted(map(repr, results))


def as_stream(env: StreamExecutionEnvironment, stream: DataStream) -> list[str]:
    results: list[Any] = []
    stream.sink_to(_Results(results))
    WholeGraph(env._stream_graph(None)).run()
    return in_order(results)


def in_batch_mode(env: StreamExecutionEnvironment, stream: DataStream) -> list[str]:
    sink = env._add("Collect", OperatorKind.COLLECT, None, (stream._inputs,), extra={"buffer_bytes": 1 << 30})
    sink.internal = True
    settings = Settings({"execution.runtime-mode": "BATCH"})
    return in_order(BoundedJob(*prepare(env._take(None)[0], settings, same_host=True), groups=16).run().collected)


def reads_only_the_tag(graph: StreamGraph) -> bool:
    (main,) = [node for node in graph.nodes.values() if isinstance(node.operator.function, Divide)]
    return {edge.output_tag for edge in main.out_edges} == {"side"}


@pytest.mark.parametrize("mode", ["STREAMING", "BATCH"])
@pytest.mark.parametrize(("name", "keyed"), [*((name, False) for name in STREAMS), *((name, True) for name in KEYED)])
def test_it_reads_the_side_output(name: str, keyed: bool, mode: str, tmp_path: Path) -> None:
    results = []
    for origin in (of_side_output, plain):
        settings = {"execution.runtime-mode": mode, "firesteel.cache.directory": str(tmp_path)}
        env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
        stream = origin(env.set_parallelism(2), name)
        result = STREAMS[name](stream.key_by("k") if keyed else stream)
        results.append((as_stream if mode == "STREAMING" else in_batch_mode)(env, result))
    assert results[0] == results[1]
    assert results[0]


@pytest.mark.parametrize("name", ENDS)
def test_it_ends_with_the_side_output(name: str) -> None:
    executor = FakeExecutor()
    env = StreamExecutionEnvironment(Configuration(), executor)
    ENDS[name](of_side_output(env, name))
    graph = executor.graphs[-1] if name == "execute_and_collect" else env._stream_graph(None)
    assert reads_only_the_tag(graph)


@pytest.mark.parametrize("name", sorted(NO_OPERATOR))
def test_what_belongs_to_an_operator_is_refused(name: str) -> None:
    side = of_side_output(StreamExecutionEnvironment(Configuration(), FakeExecutor()), name)
    arguments = {
        "name": "x", "uid": "x", "set_uid_hash": "a" * 32, "set_parallelism": 2, "set_max_parallelism": 2,
        "set_buffer_timeout": 1, "slot_sharing_group": "x", "set_description": "x", "get_side_output": SIDE_ROWS,
    }  # fmt: skip
    with pytest.raises(GraphError, match=f"{name}.* belongs to an operator, but this stream is a sideoutput"):
        getattr(side, name)(*([arguments[name]] if name in arguments else []))
