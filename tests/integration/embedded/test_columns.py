"""Programs over columns, in real slots: the same results as with Python functions over rows."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from firesteel.common import Instant, Row, Types, WatermarkStrategy
from firesteel.core.errors import UserFunctionError
from firesteel.datastream import KeyedProcessFunction, RuntimeContext
from firesteel.datastream.connectors.data_generator import DataGeneratorSource
from firesteel.datastream.connectors.file_system import FileSink, FileSource
from firesteel.datastream.formats.csv import CsvReaderFormat, CsvSchema
from firesteel.datastream.formats.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat
from firesteel.datastream.state import ValueStateDescriptor
from firesteel.expressions import col, when
from tests.integration.embedded.programs import new_environment

pytestmark = pytest.mark.usefixtures("cluster")
BID = Types.ROW_NAMED(["auction", "price", "channel"], [Types.LONG(), Types.INT(), Types.STRING()])
COUNT = 20_000


def bids_of(start: int, count: int) -> pa.RecordBatch:
    """Rows start to start + count - 1; the columns stand in another order than in the type, and there is one more."""
    numbers = range(start, start + count)
    return pa.RecordBatch.from_pydict(
        {
            "channel": [f"channel {number % 7}" if number % 11 else None for number in numbers],
            "auction": pa.array([number % 97 for number in numbers], pa.int64()),
            "unused": [number * 0.5 for number in numbers],
            "price": pa.array([number % 1000 for number in numbers], pa.int64()),
        }
    )


def bid(number: int) -> Row:
    return Row(auction=number % 97, price=number % 1000, channel=f"channel {number % 7}" if number % 11 else None)


class Running(KeyedProcessFunction[int, Row, Row]):
    """Number of bids of an auction so far, as a Python function between columns."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Any:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield Row(auction=value.auction, n=count, cents=value.cents)


def cents(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column("cents", pc.multiply(batch.column("price"), 100))


CENTS = Types.ROW_NAMED(["auction", "cents"], [Types.LONG(), Types.LONG()])
RUNNING = Types.ROW_NAMED(["auction", "n", "cents"], [Types.LONG(), Types.LONG(), Types.LONG()])


@pytest.mark.parametrize("parallelism", [pytest.param(1, marks=pytest.mark.long), 3])
def test_columns_from_source_to_sink(parallelism: int) -> None:
    env = new_environment(parallelism)
    source = DataGeneratorSource.of_batches(bids_of, BID, COUNT)
    bids = env.from_source(source, WatermarkStrategy.no_watermarks(), "Bids")
    counted = (
        bids.filter(col("channel").is_not_null() & (col("price") >= 100))
        .map_batches(cents, CENTS)
        .key_by("auction")
        .process(Running(), RUNNING)
    )
    result = counted.with_columns(when(col("n") == 1).then("first").otherwise("later").alias("which"))
    rows = [tuple(row) for row in result.execute_and_collect()]
    passing_bids = [row for row in map(bid, range(COUNT)) if row.channel is not None and row.price >= 100]
    seen: dict[int, int] = {}
    expected = []
    for row in passing_bids:
        seen[row.auction] = seen.get(row.auction, 0) + 1
        expected.append((row.auction, seen[row.auction], "first" if seen[row.auction] == 1 else "later"))
    assert sorted((auction, n, which) for auction, n, _, which in rows) == sorted(expected)
    assert sum(amount for _, _, amount, _ in rows) == sum(row.price * 100 for row in passing_bids)
    if parallelism == 1:
        assert [row[2] for row in rows] == [
            row.price * 100 for row in passing_bids
        ]  # in order, each with its own value


def test_rows_become_columns_and_columns_rows_across_slots() -> None:
    env = new_environment(2)
    rows = env.from_collection([tuple(bid(number)) for number in range(300)], BID)
    result = (
        rows.rebalance()
        .select("auction", (col("price") // 2).alias("half"))
        .shuffle()
        .filter(col("half") % 2 == 0)
        .broadcast()
        .key_by(["auction", "half"])
        .reduce(lambda row, other: row)
    )
    pairs_seen = sorted({tuple(row) for row in result.execute_and_collect()})
    halves = {(row.auction, row.price // 2) for row in map(bid, range(300))}
    assert pairs_seen == sorted(pair for pair in halves if pair[1] % 2 == 0)


def test_a_number_that_overflows_names_operator_and_row_unless_it_may_wrap() -> None:
    def program(wrap: str) -> list[Row]:
        env = new_environment(1, firesteel__expressions__wrap_integers=wrap)
        rows = env.from_collection([(1,), (2**31 - 1,)], Types.ROW_NAMED(["n"], [Types.INT()]))
        return list(rows.select((col("n") + 1).alias("m")).name("plus one").execute_and_collect())

    with pytest.raises(UserFunctionError) as error:
        program("false")
    assert "plus one" in str(error.value)
    assert "can't be computed for n = 2147483647: overflow" in str(error.value)
    assert program("true") == [Row(m=2), Row(m=-(2**31))]


def test_a_function_of_batches_that_raises_is_shown_as_any_other() -> None:
    env = new_environment(1)

    def broken(batch: pa.RecordBatch) -> pa.RecordBatch:
        raise ValueError(f"{batch.num_rows} rows are too many")

    stream = env.from_collection([(1,)], Types.ROW_NAMED(["n"], [Types.INT()]))
    stream.map_batches(broken, stream.get_type()).print()
    with pytest.raises(UserFunctionError, match="1 rows are too many") as error:
        env.execute()
    assert "MapBatches" in str(error.value)
    assert "in broken" in str(error.value)


def test_columns_of_all_kinds_from_file_to_file(tmp_path: Path) -> None:
    """CSV by columns, across an exchange with lists, maps, rows, instants and decimals, to Parquet and back."""
    count = 3000
    lines = [f"{n},{n % 100}.50,2020-01-01T00:00:{n % 60:02d},t{n % 5}\n" for n in range(count)]
    (tmp_path / "in.csv").write_text("".join(lines))
    types = [Types.LONG(), Types.BIG_DEC(), Types.SQL_TIMESTAMP(), Types.STRING()]
    row_type = Types.ROW_NAMED(["n", "price", "at", "tag"], types)
    rich = Types.ROW_NAMED(
        ["n", "price", "at", "tags", "more"],
        [*types[:2], Types.INSTANT(), Types.LIST(Types.STRING()), Types.MAP(Types.STRING(), Types.LONG())],
    )

    def enriched(row: Row) -> Row:
        return Row(n=row.n, price=row.price, at=row.at, tags=[row.tag, None], more={"n": row.n})

    written = Types.ROW_NAMED(["n", "price", "at", "tag"], [*types[:2], Types.INSTANT(), Types.STRING()])
    env = new_environment(2)
    lines_of = CsvReaderFormat.for_schema(CsvSchema(row_type)).rows_are_lines()
    source = FileSource.for_record_stream_format(lines_of, tmp_path / "in.csv")
    flat = env.from_source(source.set_split_size(20_000).build(), WatermarkStrategy.no_watermarks(), "File").select(
        "n", "price", col("at").cast(Types.INSTANT()).alias("at"), "tag"
    )
    assert flat.get_type() == written
    filtered = flat.map(enriched, output_type=rich).rebalance().filter(col("tags").get(0) != "t1")
    filtered = filtered.filter(col("more").get("n") > 10)
    result = filtered.select("n", "price", "at", col("tags").get(0).alias("tag"))
    sink = FileSink.for_bulk_format(tmp_path / "out", ParquetBulkWriters.for_row_type(written)).build()
    result.sink_to(sink)
    env.execute("there")
    back = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(written), tmp_path / "out").build()
    again = new_environment(2)
    rows = list(again.from_source(back, WatermarkStrategy.no_watermarks(), "Back").execute_and_collect())
    start = 1_577_836_800
    assert sorted(rows, key=lambda row: row.n) == [
        Row(n=n, price=Decimal(f"{n % 100}.50"), at=Instant(start + n % 60, 0), tag=f"t{n % 5}")
        for n in range(11, count)
        if n % 5 != 1
    ]
