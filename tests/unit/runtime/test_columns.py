"""Columns and rows give the same results in a chain and behind every partitioner."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel.common import Row, RowKind, Types
from firesteel.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation
from firesteel.core.errors import ProgramError, TypeMismatchError
from firesteel.expressions import Expression, col, when
from firesteel.expressions.keys import ColumnKey
from firesteel.expressions.schema import uncolumnar
from firesteel.functions.functions import MapFunction, RuntimeContext
from firesteel.functions.sink import Sink, SinkWriter, WriterContext
from firesteel.graph.specs import OperatorKind, OperatorSpec, OutputSpec, PartitionerKind
from firesteel.runtime.chain.chain import ChainExecutor
from firesteel.runtime.chain.partitioners import SingleOutput, create_output
from firesteel.runtime.loop.interrupts import CancelToken, InterruptGuard
from firesteel.runtime.records.batch import Batch, Watermark
from firesteel.runtime.records.columns import StreamColumns
from firesteel.runtime.records.rows import to_records
from tests.unit.runtime.support import FakeOutput, line, opened, spec

ROW = Types.ROW_NAMED(["item", "price", "n"], [Types.STRING(), Types.DOUBLE(), Types.INT()])
PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])

ROWS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.text("abcü", max_size=3)),
        st.floats(allow_nan=False, width=32),
        st.integers(-1000, 1000),
    ),
    max_size=40,
)


def rows(values: list[tuple[Any, ...]]) -> list[Row]:
    return [Row(item=item, price=price, n=n) for item, price, n in values]


def columns_spec(
    kind: OperatorKind, function: Any, input_type: TypeInformation, result: TypeInformation, **extra: Any
) -> OperatorSpec:
    operator_spec: OperatorSpec = spec(kind, function, extra={"input_type": input_type, "result_type": result, **extra})
    return operator_spec


def keep(condition: Expression, type_info: TypeInformation = ROW) -> OperatorSpec:
    return columns_spec(OperatorKind.COLUMNS_FILTER, condition, type_info, type_info)


def project(input_type: TypeInformation, result: RowTypeInfo, *expressions: Expression) -> OperatorSpec:
    return columns_spec(OperatorKind.COLUMNS_PROJECT, expressions, input_type, result)


def run(batches: list[Batch], *operators: OperatorSpec, watermarks: bool = False) -> FakeOutput:
    """What leaves a chain."""
    chain = line(*operators, outputs=[OutputSpec(len(operators) - 1, 0, PartitionerKind.FORWARD)])
    plan = opened(chain)
    channel = FakeOutput()
    plan.outlet_of(chain.outputs[0]).outputs.append(SingleOutput("out", [channel]))
    executor = ChainExecutor(plan, InterruptGuard(), CancelToken("t"))
    for number, batch in enumerate(batches):
        executor.feed(batch)
        while executor.pending:
            executor.step()
        if watermarks:
            executor.advance(Watermark(number))
            while executor.pending:
                executor.step()
    return channel


def test_rows_that_operators_over_columns_drop_are_counted() -> None:
    def halves(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.slice(0, batch.num_rows // 2)

    operators = [
        keep(col("n") > 1),
        columns_spec(OperatorKind.COLUMNS_MAP, halves, ROW, ROW),
        keep(col("n") < 100),
    ]
    for operator, name in zip(operators, ("large", "halves", "small"), strict=True):
        operator.name = name
    chain = line(*operators, outputs=[OutputSpec(2, 0, PartitionerKind.FORWARD)])
    plan = opened(chain)
    plan.outlet_of(chain.outputs[0]).outputs.append(SingleOutput("out", [FakeOutput()]))
    executor = ChainExecutor(plan, InterruptGuard(), CancelToken("t"))
    for _ in range(2):
        executor.feed(Batch(StreamColumns(ROW).from_records(rows([("a", 0.0, n) for n in range(10)]))))
        while executor.pending:
            executor.step()
    assert plan.flows() == [("large", 20, 16), ("halves", 16, 8), ("small", 8, 8)]


def records(channel: FakeOutput) -> list[Any]:
    return [record for batch in channel.batches for record in to_records(batch.values)]


def stamped_columns(columns: StreamColumns, part: list[Any], stamps: list[int] | None) -> Batch:
    return Batch(columns.from_records(part), None if stamps is None else np.array(stamps, np.int64))


def cut(values: list[Any], sizes: list[int], stamped: bool, columns: StreamColumns | None) -> list[Batch]:
    """Batches of these sizes, as rows or as columns."""
    batches, start = [], 0
    for size in [*sizes, len(values)]:
        part = values[start : start + size]
        stamps = list(range(start, start + len(part))) if stamped else None
        batches.append(Batch(part, stamps) if columns is None else stamped_columns(columns, part, stamps))
        start += len(part)
    return batches


RESULT = Types.ROW_NAMED(["name", "twice", "kind"], [Types.STRING(), Types.INT(), Types.STRING()])


def doubled(value: Row) -> Row:
    return Row(name=value.item, twice=value.n * 2, kind="high" if value.price > 1 else "low")


@given(values=ROWS, sizes=st.lists(st.integers(0, 9), max_size=4), stamped=st.booleans(), columnar=st.booleans())
def test_conditions_and_projections_are_what_functions_of_rows_would_be(
    values: list[tuple[Any, ...]], sizes: list[int], stamped: bool, columnar: bool
) -> None:
    batches = cut(rows(values), sizes, stamped, StreamColumns(ROW) if columnar else None)
    kind = when(col("price") > 1).then("high").otherwise("low")
    output = run(
        batches,
        keep((col("n") % 3 == 0) | col("item").is_null()),
        project(ROW, RESULT, col("item"), col("n") * 2, kind),
    )
    expected = [(row, stamp) for stamp, row in enumerate(rows(values)) if row.n % 3 == 0 or row.item is None]
    assert records(output) == [doubled(row) for row, _ in expected]
    assert output.timestamps == [stamp if stamped else None for _, stamp in expected]
    assert all(isinstance(batch.values, pa.RecordBatch) for batch in output.batches)
    assert all(isinstance(batch.timestamps, np.ndarray) is stamped for batch in output.batches)


@given(values=ROWS)
def test_functions_of_rows_and_columns_mix(values: list[tuple[Any, ...]]) -> None:
    batches = cut(rows(values), [7, 7], True, StreamColumns(ROW))
    output = run(
        batches,
        keep(col("n") > 0),
        spec(OperatorKind.MAP, doubled, output_type=RESULT),
        project(RESULT, Types.ROW_NAMED(["t"], [Types.INT()]), col("twice") + 1),
        spec(OperatorKind.FILTER, lambda row: row.t > 3),
    )
    expected = [(row.n * 2 + 1, stamp) for stamp, row in enumerate(rows(values)) if row.n > 0 and row.n * 2 + 1 > 3]
    assert [(row.t, stamp) for row, stamp in zip(records(output), output.timestamps, strict=True)] == expected


def test_watermarks_stay_behind_the_columns_before_them() -> None:
    batches = cut(rows([("a", 1.0, n) for n in range(6)]), [2, 2], True, StreamColumns(ROW))
    output = run(batches[:3], keep(col("n") != 2), watermarks=True)
    assert output.elements == [(2, Watermark(0)), (3, Watermark(1)), (5, Watermark(2))]


def test_tuples_stay_tuples() -> None:
    pairs = [("a", 1), ("b", 2), ("c", 3)]
    output = run([Batch(list(pairs))], keep(col("f1") > 1, PAIR), spec(OperatorKind.MAP, lambda pair: pair))
    assert records(output) == pairs[1:]
    assert all(type(pair) is tuple for pair in records(output))


def mapped(
    function: Callable[[pa.RecordBatch], Any] | MapFunction[pa.RecordBatch, Any],
    result: TypeInformation = ROW,
    stamps: bool = True,
    **extra: Any,
) -> FakeOutput:
    batch = StreamColumns(ROW).from_records(rows([("a", 1.0, 1), ("b", 2.0, 2), ("c", 3.0, 3)]))
    operator = columns_spec(OperatorKind.COLUMNS_MAP, function, ROW, result, **extra)
    return run([Batch(batch, [10, 20, 30] if stamps else None)], operator)


def test_a_function_of_batches_gives_one_several_or_none() -> None:
    assert records(mapped(lambda batch: batch)) == rows([("a", 1.0, 1), ("b", 2.0, 2), ("c", 3.0, 3)])
    assert mapped(lambda batch: batch).timestamps == [10, 20, 30]
    assert mapped(lambda batch: None).batches == []

    def slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        yield batch.slice(0, 1)
        yield batch.slice(1)

    several = mapped(slices, stamps=False)
    assert [len(batch) for batch in several.batches] == [1, 2]
    wider = Types.ROW_NAMED(["n"], [Types.LONG()])
    assert records(mapped(lambda batch: batch, wider)) == [Row(n=1), Row(n=2), Row(n=3)]


class AddLoaded(MapFunction[pa.RecordBatch, pa.RecordBatch]):
    """Adds what it has loaded, once, before the first batch."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.loaded = pa.scalar(len(runtime_context.get_task_name()), pa.int32())

    def map(self, value: pa.RecordBatch) -> pa.RecordBatch:
        return value.set_column(2, "n", pc.add(value["n"], self.loaded))


def test_a_map_function_of_batches_is_opened() -> None:
    numbers = [row.n for row in records(mapped(AddLoaded()))]
    assert numbers[1:] == [numbers[0] + 1, numbers[0] + 2]
    assert numbers[0] > 1


def test_timestamps_of_a_function_that_changes_the_number_of_rows() -> None:
    with pytest.raises(ProgramError, match="1 rows came of 3"):
        mapped(lambda batch: batch.slice(2))
    output = mapped(lambda batch: batch.slice(1), Types.ROW_NAMED(["item"], [Types.STRING()]), timestamp_column="n")
    assert output.timestamps == [2, 3]
    with pytest.raises(ProgramError, match=r"'price' has to hold timestamps.*one of double with 0 nulls"):
        mapped(lambda batch: batch, timestamp_column="price")
    with pytest.raises(ProgramError, match=r"'at' has to hold timestamps.*there is none"):
        mapped(lambda batch: batch, timestamp_column="at")


def test_what_a_function_of_batches_must_not_give() -> None:
    with pytest.raises(ProgramError, match=r"returned \[1\] \(list\)"):
        mapped(lambda batch: [1])
    with pytest.raises(ProgramError, match=r"yielded 1 \(int\)"):
        mapped(lambda batch: iter([1]), stamps=False)
    with pytest.raises(TypeMismatchError, match="has no column 'n'"):
        mapped(lambda batch: batch.drop_columns(["n"]))
    with pytest.raises(TypeMismatchError) as error:
        mapped(lambda batch: batch, Types.ROW_NAMED(["item"], [Types.INT()]))
    assert error.value.field == "item"
    assert "'a'" in str(error.value)


@pytest.mark.parametrize("count", [2, 4, 5, 9])
@pytest.mark.parametrize("kind", [PartitionerKind.HASH, PartitionerKind.REBALANCE, PartitionerKind.BROADCAST])
@given(data=st.data())
def test_partitioners_send_columns_where_they_send_rows(kind: PartitionerKind, count: int, data: st.DataObject) -> None:
    whole = rows(data.draw(ROWS))
    names, indexes = data.draw(st.sampled_from([(["item"], [0]), (["n"], [2]), (["n", "item"], [2, 0])]))
    key = ColumnKey(names, indexes)
    columns = StreamColumns(ROW)
    channels: list[list[FakeOutput]] = []
    for columnar in (False, True):
        own = [FakeOutput(number) for number in range(count)]
        channels.append(own)
        output = create_output(OutputSpec(0, 0, kind, key_selector=key), "op", own, 128, random.Random(1))
        for start in range(0, len(whole), 7):
            part = whole[start : start + 7]
            stamps = list(range(start, start + len(part)))
            if columnar:
                routed = output.route(Batch(columns.from_records(part), np.array(stamps, np.int64)))
            else:
                routed = output.route(Batch(part, stamps))
            for channel, batch in routed:
                channel.write(batch)
    for by_row, by_column in zip(*channels, strict=True):
        assert records(by_column) == records(by_row)
        assert by_column.timestamps == by_row.timestamps


def test_rows_that_do_not_fit_name_the_field() -> None:
    with pytest.raises(TypeMismatchError) as error:
        StreamColumns(ROW).from_records([Row(item="a", price="much", n=1)])
    assert error.value.field == "price"


@pytest.mark.parametrize(
    ("type_info", "reason"),
    [
        (Types.STRING(), "has no fields"),
        (Types.PICKLED_BYTE_ARRAY(), "has no fields"),
        (Types.ROW_NAMED(["a", "l"], [Types.INT(), Types.LIST(Types.INT())]), None),
        (Types.ROW_NAMED(["a", "l"], [Types.INT(), Types.PICKLED_BYTE_ARRAY()]), "its field 'l' is Pickled"),
        (Types.TUPLE([]), "no fields"),
        (ROW, None),
        (PAIR, None),
    ],
)
def test_which_types_have_columns(type_info: TypeInformation, reason: str | None) -> None:
    answer = uncolumnar(type_info)
    assert answer == reason if reason is None else reason in str(answer)


def test_a_key_of_columns_is_that_of_rows_and_tuples() -> None:
    assert ColumnKey(["a"], [1])(("x", 5)) == 5
    assert ColumnKey(["a", "b"], [1, 0])(Row(b="x", a=5)) == (5, "x")
    assert isinstance(TupleTypeInfo([Types.INT()]), TypeInformation)


class Kept(SinkWriter[Any]):
    """Keeps what it is handed, as it is."""

    def __init__(self, columnar: bool) -> None:
        self.takes_columns = columnar
        self.got: list[tuple[Any, Any]] = []

    def write(self, values: Sequence[Any], timestamps: Sequence[int] | None) -> None:
        self.got.append((values, timestamps))

    def write_columns(self, batch: pa.RecordBatch, timestamps: npt.NDArray[np.int64] | None) -> None:
        self.got.append((batch, timestamps))


class KeptSink(Sink[Any]):
    def __init__(self, writer: SinkWriter[Any]) -> None:
        self.writer = writer

    def create_writer(self, context: WriterContext) -> SinkWriter[Any]:
        return self.writer


def sunk(columnar: bool, count: int) -> list[tuple[Any, Any]]:
    writer = Kept(columnar)
    chain = line(keep(col("n") >= 0), spec(OperatorKind.SINK, KeptSink(writer)))
    executor = ChainExecutor(opened(chain), InterruptGuard(), CancelToken("t"))
    batch = stamped_columns(StreamColumns(ROW), rows([("a", 1.0, n) for n in range(count)]), list(range(count)))
    executor.feed(batch)
    while executor.pending:
        executor.step()
    return writer.got


def test_a_sink_that_takes_columns_gets_them_whole() -> None:
    [(batch, stamps)] = sunk(True, 10_000)
    assert isinstance(batch, pa.RecordBatch)
    assert batch.num_rows == 10_000
    assert stamps.tolist() == list(range(10_000))


class KeptChanges(Kept):
    """Takes changes as columns."""

    def write_changes(self, batch: pa.RecordBatch, kinds: npt.NDArray[np.int8], timestamps: Any) -> None:
        self.got.append((batch, kinds))


def sunk_changes(writer: Kept, kinds: list[int]) -> list[tuple[Any, Any]]:
    sink = KeptSink(writer)
    sink.takes_changes = True
    executor = ChainExecutor(opened(line(spec(OperatorKind.SINK, sink))), InterruptGuard(), CancelToken("t"))
    records = StreamColumns(ROW).from_records(rows([("a", 1.0, n) for n in range(len(kinds))]))
    executor.feed(Batch(records, None, np.array(kinds, np.int8)))
    while executor.pending:
        executor.step()
    return writer.got


def test_a_sink_of_changes_gets_them_as_columns_with_their_kinds() -> None:
    [(batch, kinds)] = sunk_changes(KeptChanges(columnar=True), [0, 3, 2])
    assert batch.column("n").to_pylist() == [0, 1, 2]
    assert (kinds.dtype, kinds.tolist()) == (np.int8, [0, 3, 2])


def test_rows_that_are_all_inserted_are_no_changes() -> None:
    [(batch, stamps)] = sunk_changes(Kept(columnar=True), [0, 0])
    assert isinstance(batch, pa.RecordBatch)
    assert stamps is None


def test_a_writer_of_columns_that_knows_no_kinds_gets_changes_as_rows() -> None:
    [(values, _)] = sunk_changes(Kept(columnar=True), [1, 2])
    assert [row.get_row_kind() for row in values] == [RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER]


def test_rows_are_made_of_large_batches_a_piece_at_a_time() -> None:
    pieces = sunk(False, 10_000)
    assert [len(values) for values, _ in pieces] == [4096, 4096, 1808]
    assert [row.n for values, _ in pieces for row in values] == list(range(10_000))
    assert [stamp for _, stamps in pieces for stamp in stamps] == list(range(10_000))
    output = run(
        [stamped_columns(StreamColumns(PAIR), [("a", n) for n in range(9000)], list(range(9000)))],
        spec(OperatorKind.MAP, lambda pair: pair[1]),
    )
    assert records(output) == output.timestamps == list(range(9000))
