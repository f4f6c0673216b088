"""Projection push-down changes what moves, and no result."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firesteel.common import Configuration, Duration, Row, Time, Types, WatermarkStrategy
from firesteel.common.typeinfo import RowTypeInfo
from firesteel.core.errors import GraphError, ProgramError
from firesteel.datastream import DataStream, StreamExecutionEnvironment
from firesteel.datastream.connectors.data_generator import DataGeneratorSource
from firesteel.datastream.window import TumblingEventTimeWindows
from firesteel.expressions import col, count, lit, max_, sum_
from firesteel.functions.sink import Sink, SinkWriter, WriterContext
from firesteel.graph.plan import execution_plan, job_plan
from firesteel.graph.stream_graph import StreamGraph
from tests.unit.runtime.whole_graphs import WholeGraph

ROW = Types.ROW_NAMED(["a", "b", "c", "s"], [Types.LONG(), Types.LONG(), Types.LONG(), Types.STRING()])
NAMES = ("a", "b", "c", "s")
COUNT = 60
requested_columns: list[tuple[str, ...]] = []


def column(name: str, numbers: Any) -> pa.Array:
    if name == "s":
        return pa.array([f"text {number % 3}" for number in numbers.tolist()])
    return pa.array(numbers * {"a": 7, "b": 3, "c": 1}[name] % {"a": 5, "b": 11, "c": 1000}[name])


def make(start: int, rows: int) -> pa.RecordBatch:
    return make_some(start, rows, NAMES)


def make_some(start: int, rows: int, columns: Sequence[str]) -> pa.RecordBatch:
    requested_columns.append(tuple(columns))
    numbers = np.arange(start, start + rows)
    return pa.RecordBatch.from_arrays([column(name, numbers) for name in columns], list(columns))


class Kept(Sink[Any]):
    """Keeps what is written in a list that the test holds."""

    def __init__(self, into: list[Any]) -> None:
        self.into = into

    def create_writer(self, context: WriterContext) -> SinkWriter[Any]:
        return _KeptWriter(self.into)


class _KeptWriter(SinkWriter[Any]):
    def __init__(self, into: list[Any]) -> None:
        self._into = into

    def write(self, values: Sequence[Any], timestamps: Sequence[int] | None) -> None:
        self._into += zip(values, timestamps or [None] * len(values), strict=True)  # type: ignore[list-item]


# --- programs

Step = tuple[str, int]
STEPS = (
    "filter", "filter other", "with_columns", "drop", "select", "rebalance", "aggregate", "map", "map_batches", "union",
    "timestamps", "window", "window_all",
)  # fmt: skip
PROGRAMS = st.tuples(
    st.sampled_from(["projects", "columns", "rows"]),
    st.lists(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 9)), max_size=5), min_size=1, max_size=3),
)


def fields(stream: DataStream) -> RowTypeInfo:
    row_type = stream.get_type()
    assert isinstance(row_type, RowTypeInfo)
    return row_type


def numbers_of(stream: DataStream) -> list[str]:
    record = fields(stream)
    return [
        name
        for name, field_type in zip(record.field_names, record.field_types, strict=True)
        if field_type == Types.LONG()
    ]


def step(stream: DataStream, name: str, choice: int, root: DataStream) -> DataStream:
    numbers = numbers_of(stream)
    if not numbers:
        return stream
    first, second = numbers[choice % len(numbers)], numbers[(choice + 1) % len(numbers)]
    every = list(fields(stream).field_names)

    def fresh(name: str) -> str:
        return name if name not in every else fresh(name + "_")

    if name == "filter":
        return stream.filter(col(first) % 4 != 1)
    if name == "filter other":
        return stream.filter(col(first) >= col(second) - 5)
    if name == "with_columns":
        return stream.with_columns((col(first) + col(second)).alias(["a", "extra"][choice % 2]))
    if name == "drop":
        return stream.drop(every[choice % len(every)]) if len(every) > 2 else stream
    if name == "select":
        return stream.select(
            second, (col(first) * 2).alias(fresh("twice")), *(["s"] if "s" in every and choice % 2 else [])
        )
    if name == "rebalance":
        return stream.rebalance()
    if name == "aggregate":
        key = every[choice % len(every)]
        return stream.key_by(key).aggregate(count().alias(fresh("count")), sum_(first).alias(fresh("total")))
    if name == "map":
        return stream.map(lambda row: row, stream.get_type())
    if name == "map_batches":
        return stream.map_batches(lambda batch: batch, stream.get_type())
    if name == "timestamps":
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(20))
        return stream.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(col(first)))
    if name.startswith("window"):
        key = every[choice % len(every)]
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(col(first))
        timed = stream.assign_timestamps_and_watermarks(strategy)
        tens = TumblingEventTimeWindows.of(Time.milliseconds(10))
        windows: Any = timed.key_by(key).window(tens) if name == "window" else timed.window_all(tens)
        if name == "window" and key in ("window_start", "window_end"):
            with pytest.raises(GraphError, match=f"keyed by '{key}', and the results of windows have a column"):
                windows.aggregate(count())
            return stream
        aggregates: DataStream = windows.aggregate(count().alias(fresh("count")), max_(second).alias(fresh("most")))
        return aggregates
    return stream.union(root) if name == "union" and stream.get_type() == root.get_type() else stream


def program(origin: str, branches: list[list[Step]], *, push_down: bool) -> tuple[StreamGraph, list[list[Any]]]:
    configuration = Configuration()
    configuration.set_string("firesteel.optimizer.projection-push-down", str(push_down).lower())
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    if origin == "rows":
        rows = [Row(**{name: column(name, np.array([n]))[0].as_py() for name in NAMES}) for n in range(COUNT)]
        root = env.from_collection(rows, ROW)
    else:
        function: Callable[..., pa.RecordBatch] = make_some if origin == "projects" else make
        source = DataGeneratorSource.of_batches(function, ROW, COUNT, projects=origin == "projects")
        root = env.from_source(source, WatermarkStrategy.no_watermarks(), "Numbers")
    results: list[list[Any]] = []
    for steps in branches:
        stream = root
        for name, choice in steps:
            stream = step(stream, name, choice, root)
        results.append([])
        stream.sink_to(Kept(results[-1]))
    return env._stream_graph(None), results


@settings(deadline=None)
@given(drawn=PROGRAMS)
def test_programs_give_the_same_with_and_without(drawn: tuple[str, list[list[Step]]]) -> None:
    results_of_both = []
    for push_down in (True, False):
        graph, results = program(*drawn, push_down=push_down)
        whole = WholeGraph(graph)
        whole.run()
        results_of_both.append(results)
    assert results_of_both[0] == results_of_both[1]


def ran(steps: Callable[[DataStream], DataStream], *, projects: bool = True, push_down: bool = True) -> Any:
    """What the source was asked for, the columns of each edge, and the results."""
    configuration = Configuration()
    configuration.set_string("firesteel.optimizer.projection-push-down", str(push_down).lower())
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    function: Callable[..., pa.RecordBatch] = make_some if projects else make
    source = DataGeneratorSource.of_batches(function, ROW, COUNT, projects=projects)
    results: list[Any] = []
    steps(env.from_source(source, WatermarkStrategy.no_watermarks(), "Numbers")).sink_to(Kept(results))
    requested_columns.clear()
    graph = env._stream_graph(None)
    whole = WholeGraph(graph)
    whole.run()
    return (
        set(requested_columns),
        [edge.columns for edge in whole.job_graph.edges],
        [row for row, _ in results],
        graph,
        whole,
    )


def test_a_source_that_can_makes_only_what_is_read() -> None:
    requested, edges, rows, graph, whole = ran(
        lambda s: s.filter(col("b") > 4).key_by("a").aggregate(count().alias("n"))
    )
    assert requested == {("a", "b")}
    assert edges == [("a",)], "the filter's column does not cross"
    every = [n for n in range(COUNT) if n * 3 % 11 > 4]
    assert len(rows) == len(every)
    assert {row.a for row in rows} == {n * 7 % 5 for n in every}
    node, *_ = json.loads(execution_plan(graph))["nodes"]
    assert node["contents"] == "Source: Numbers, columns a, b"
    inputs = [edge for node in job_plan(whole.job_graph)["nodes"] for edge in node.get("inputs", ())]
    assert [edge["columns"] for edge in inputs] == [["a"]]


def test_a_source_that_cannot_makes_all_and_only_what_is_read_crosses() -> None:
    requested, edges, rows, _, whole = ran(lambda s: s.key_by("b").aggregate(max_("c")), projects=False)
    assert requested == {NAMES}
    assert edges == [("b", "c")]
    full = ran(lambda s: s.key_by("b").aggregate(max_("c")), projects=False, push_down=False)[4]
    assert whole.crossing < 0.7 * full.crossing
    assert max(row.max_c for row in rows) == COUNT - 1


@pytest.mark.parametrize(
    ("aggregate", "expected", "crossing"), [(max_("b"), ("b", "c"), ("b",)), (count(), ("a", "c"), ("a",))]
)
def test_windows_over_a_whole_stream_get_only_what_they_read(
    aggregate: Any, expected: tuple[str, ...], crossing: tuple[str, ...]
) -> None:
    def steps(stream: DataStream) -> DataStream:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(col("c"))
        timed = stream.assign_timestamps_and_watermarks(strategy)
        return timed.window_all(TumblingEventTimeWindows.of(Time.milliseconds(20))).aggregate(aggregate.alias("found"))

    requested, edges, rows, _, _ = ran(steps)
    assert requested == {expected}
    assert crossing in edges
    assert len(rows) == COUNT // 20
    assert rows == ran(steps, push_down=False)[2]


@pytest.mark.parametrize(
    "steps",
    [
        lambda s: s.rebalance().select(lit(1).alias("one")),
        lambda s: s.key_by(lit("all").alias("k")).aggregate(count()),
    ],
)
def test_what_reads_no_column_gets_one_that_is_there(steps: Callable[[DataStream], DataStream]) -> None:
    def timed(stream: DataStream) -> DataStream:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(col("c"))
        return steps(stream.assign_timestamps_and_watermarks(strategy))

    assert ran(timed)[2] == ran(timed, push_down=False)[2] != []


def test_push_down_can_be_switched_off() -> None:
    requested, edges, _, _, _ = ran(lambda s: s.key_by("b").aggregate(max_("c")), push_down=False)
    assert requested == {NAMES}
    assert edges == [None]


@pytest.mark.parametrize(
    "steps",
    [
        lambda s: s.key_by("a").map(lambda row: row.c),
        lambda s: s.map_batches(lambda batch: batch, ROW).key_by("a").aggregate(count()),
        lambda s: s.key_by(lambda row: row.a).filter(col("a") > 0),
        lambda s: s,
    ],
)
def test_python_functions_and_sinks_get_all_columns(steps: Callable[[DataStream], DataStream]) -> None:
    assert ran(steps)[0] == {NAMES}


def test_without_any_column_one_is_left_to_count_rows() -> None:
    requested, _, rows, _, _ = ran(
        lambda s: s.select(col("c").alias("only")).rebalance().key_by("only").aggregate(count())
    )
    assert requested == {("c",)}
    assert len(rows) == COUNT


def test_errors_of_computed_columns_stay() -> None:
    with pytest.raises(ProgramError, match="division by zero"):
        ran(lambda s: s.with_columns((col("a") // (col("b") * 0)).alias("x")).key_by("c").aggregate(count()))
