"""CSV and Parquet by columns: what their row readers give, malformed input and positions alike; projections."""

from __future__ import annotations

import csv
import ctypes
import io
import math
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firesteel.common.typeinfo import RowTypeInfo, TypeInformation, Types
from firesteel.common.types import Row
from firesteel.connectors.formats import csv_columns
from firesteel.connectors.formats.csv_files import CsvReaderFormat
from firesteel.connectors.formats.csv_schema import CsvDialect, CsvSchema
from firesteel.connectors.formats.csv_values import RowReader, RowWriter
from firesteel.connectors.formats.declared_types import row_type as row_type_of
from firesteel.connectors.formats.parquet_files import ParquetBulkWriters, ParquetColumnarRowInputFormat
from firesteel.connectors.malformed import MalformedPolicy, MalformedRecords
from firesteel.connectors.split_reader import Chunk
from firesteel.core.errors import MalformedDataError
from firesteel.expressions.schema import FILE
from firesteel.expressions.values import arrow_schema
from firesteel.functions.source import Split, Wait
from firesteel.runtime.records.columns import StreamColumns
from firesteel.table.types import DataTypes
from tests.examples import examples
from tests.unit.connectors.reading import builder_of, read_file, read_split
from tests.unit.expressions.strategies import PLAIN, same

TYPES: list[tuple[TypeInformation, st.SearchStrategy[Any]]] = [
    (type_info, values) for type_info, values in PLAIN if type_info != Types.CHAR()
] + [(Types.LIST(Types.INT()), st.lists(st.integers(0, 9), min_size=1, max_size=3))]
to_float32 = ctypes.c_float
ODD_TEXTS = (
    "", "x", "0x1F", "+5", " 5", "5 ", "1_000", "٣", "nan", "-nan", "inf", "-0", "1e400", ".5", "5.", "TRUE", "1",
    "9" * 30, "20200101", "2020-01-01", "0000-01-01", "12020-01-01", "2020-W01-1", "2020-01-01T00:00:00Z",
    "2020-01-01T10:00+02:00", "2020-01-01 10:00", "2020-01-01T10:00:00.123456789", "0000-01-01T00:00:00Z", "10:00",
    '"', '""', '"a"b', 'a"b', '"a,b"', '"a,",b', '"a""b"', '"a\nb"', "a\rb", "\r", "#x", "\0", "NULL", '"NULL"', ",",
    "\ufeff", "é", "AQI=", "1;2", "1;x",
)  # fmt: skip
DIALECTS = [
    CsvDialect(),
    CsvDialect(separator=";", quote=None, escape="\\"),
    CsvDialect(null_value="NULL", allow_comments=True),
    CsvDialect(use_header=True),
    CsvDialect(skip_first_row=True, quote="'"),
]


def read(
    file_format: CsvReaderFormat, path: Path, policy: MalformedPolicy, sizes: list[int], restarts: list[int]
) -> tuple[list[Any], int, str | None]:
    """Records, how many were skipped, and the error."""
    malformed = MalformedRecords(policy)
    split = Split("0", {"path": str(path), "start": 0, "end": path.stat().st_size})
    try:
        return read_split(file_format, split, malformed, sizes, restarts), malformed.count, None
    except MalformedDataError as error:
        return [], 0, str(error)


@settings(max_examples=examples(150))
@given(data=st.data())
def test_csv_by_columns_is_csv_by_rows(data: st.DataObject) -> None:
    """Lines that a writer made, lines that nobody would write, and what cuts of both make."""
    fields = data.draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=3))
    row_type = Types.ROW_NAMED([f"c{i}" for i in range(len(fields))], [type_info for type_info, _ in fields])
    dialect = data.draw(st.sampled_from(DIALECTS))
    schema = CsvSchema(row_type, dialect)
    writers = [RowWriter(CsvSchema(Types.ROW([type_info]), dialect)) for type_info, _ in fields]
    fitting = [st.none() | values for _, values in fields]
    lines = []
    count = data.draw(st.integers(0, 6))
    odd_line = data.draw(st.integers(0, 2 * count + 1))  # mostly one odd line among good ones, or none
    for number in range(count):
        try:
            parts = [write((data.draw(values),)) for write, values in zip(writers, fitting, strict=True)]
        except ValueError:
            continue
        texts = [part.removesuffix("\n") for part in parts]
        if number == odd_line:
            texts[data.draw(st.integers(0, len(texts) - 1))] = data.draw(st.sampled_from(ODD_TEXTS))
            if data.draw(st.integers(0, 4)) == 0:
                texts = texts[1:]
        lines.append(dialect.separator.join(texts) + "\n")
    head = "c0,c1,c2\n" if data.draw(st.booleans()) else ",".join(row_type.field_names) + "\n"
    text = (head if dialect.use_header else "") + "".join(lines)
    if data.draw(st.booleans()):
        text = text.removesuffix("\n")
    if data.draw(st.booleans()):
        text = text.replace("\n", "\r\n")
    raw = text.encode("utf-8", "surrogatepass")
    if data.draw(st.integers(0, 9)) == 0 and raw:
        raw = raw[:1] + b"\xff" + raw[1:]
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    restarts = data.draw(st.lists(st.integers(0, 6), max_size=3))
    policy = data.draw(st.sampled_from([MalformedPolicy.FAIL, MalformedPolicy.SKIP]))
    file_format = CsvReaderFormat(schema, one_line=data.draw(st.booleans()))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        path.write_bytes(raw)
        by_columns, by_rows = both(file_format, path, policy, sizes, restarts)
    assert by_columns[1:] == by_rows[1:]
    assert same([single(row, row_type) for row in by_columns[0]], [single(row, row_type) for row in by_rows[0]])


@pytest.mark.parametrize("type_info", [type_info for type_info, _ in TYPES], ids=str)
def test_odd_values_among_plain_ones(type_info: TypeInformation, tmp_path: Path) -> None:
    """The second of three lines holds something that Arrow and Python might read differently."""
    texts = ("7", "true", "2020-01-01", "2020-01-01T00:00:00", "10:00:00", "AQI=")
    value = next(text for text in texts if readable(type_info, text))
    for dialect in DIALECTS[:3]:
        schema = CsvSchema(Types.ROW_NAMED(["n", "odd", "m"], [Types.INT(), type_info, Types.INT()]), dialect)
        mark = dialect.separator
        for number, odd in enumerate(ODD_TEXTS):
            path = tmp_path / f"{number}.csv"
            lines = [f"{n}{mark}{text}{mark}{n}\n" for n, text in enumerate((value, odd, value))]
            path.write_bytes("".join(lines).encode())
            by_columns, by_rows = both(CsvReaderFormat(schema), path, MalformedPolicy.SKIP, [2], [])
            assert by_columns[1:] == by_rows[1:], odd
            columns, rows = ([single(row, schema.row_type) for row in chunk[0]] for chunk in (by_columns, by_rows))
            assert same(columns, rows), odd
            path.unlink()


def readable(type_info: TypeInformation, text: str) -> bool:
    try:
        return RowReader(CsvSchema(Types.ROW([type_info])))([text]) is not None
    except ValueError:
        return False


def both(
    file_format: CsvReaderFormat, path: Path, policy: MalformedPolicy, sizes: list[int], restarts: list[int]
) -> Any:
    by_columns = read(file_format, path, policy, sizes, restarts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_columns.CsvColumns, "reads", staticmethod(lambda schema: False))
        return by_columns, read(file_format, path, policy, sizes, restarts)


def single(row: Row, row_type: RowTypeInfo) -> list[Any]:
    """FLOATs of rows are fitted behind the source."""
    pairs = zip(row, row_type.field_types, strict=True)
    return [
        to_float32(value).value if type_info == Types.FLOAT() and value is not None else value
        for value, type_info in pairs
    ]


def chunks_of(cursor: Any, size: int) -> list[Chunk[Any]]:
    chunks = []
    while True:
        chunk = cursor.read(size)
        if not isinstance(chunk, Wait):
            chunks.append(chunk)
            if chunk.finished:
                cursor.close()
                return chunks


SENSOR = CsvSchema(Types.ROW_NAMED(["id", "at", "text"], [Types.INT(), Types.SQL_TIMESTAMP(), Types.STRING()]))


def test_plain_blocks_are_read_by_columns_and_odd_ones_by_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firesteel.connectors.line_cursor.BLOCK_BYTES", 400)
    lines = [f'{i},2020-01-01T00:00:{i % 60:02d},"text, {i}"\n' for i in range(100)]
    lines[50] = '50,2020-01-01T00:00:50,"two\nlines"\n'
    path = tmp_path / "rows.csv"
    path.write_text("".join(lines))
    split = Split("0", {"path": str(path), "start": 0, "end": path.stat().st_size})
    chunks = chunks_of(CsvReaderFormat(SENSOR).open_cursor(split, MalformedRecords()), 7)
    kinds = [isinstance(chunk.values, pa.RecordBatch) for chunk in chunks]
    assert kinds.count(True) > 10
    assert False in kinds[:-1]
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    given_rows = 0
    for chunk in chunks:
        given_rows += len(chunk.values)
        assert chunk.position == [starts[given_rows], 0]
    assert given_rows == 100


def test_records_instead_of_malformed_lines_come_in_lists(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("1,2020-01-01T00:00:00,a\nx,2020-01-01T00:00:00,b\n")
    split = Split("0", {"path": str(path), "start": 0, "end": path.stat().st_size})
    chunks = chunks_of(CsvReaderFormat(SENSOR).open_cursor(split, MalformedRecords(MalformedPolicy.EMIT)), 10)
    assert [type(chunk.values) for chunk in chunks] == [list] * len(chunks)
    assert sum(len(chunk.values) for chunk in chunks) == 2


def test_csv_leaves_out_columns_but_not_what_is_wrong_in_them(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("1,2020-01-01T00:00:00,a\n2,2020-01-01T00:00:00,b\n3,no time,c\n")
    narrow = (
        builder_of(CsvReaderFormat(SENSOR), path)
        .on_malformed(MalformedPolicy.SKIP)
        .build()
        .with_columns(["text", "id"])
    )
    assert narrow is not None
    assert narrow.produced_type() == Types.ROW_NAMED(["text", "id"], [Types.STRING(), Types.INT()])
    for one_line in (False, True):
        file_format = CsvReaderFormat(SENSOR, one_line=one_line).with_columns(["text", "id"])
        records = read_file(file_format, path, policy=MalformedPolicy.SKIP, sizes=[1, 2], restarts=[0])
        assert records == [Row(text="a", id=1), Row(text="b", id=2)]
        with pytest.raises(MalformedDataError, match="column 'at'"):
            read_file(file_format, path)
    source = builder_of(CsvReaderFormat(SENSOR), path).on_malformed(MalformedPolicy.EMIT).build()
    assert source.with_columns(["id"]) is None


@settings(max_examples=examples(40))
@given(data=st.data())
def test_parquet_of_all_types_comes_in_columns(data: st.DataObject) -> None:
    """Whatever the type, batches flow, and their records are what the row reader gives."""
    known = [
        (type_info, values)
        for type_info, values in TYPES
        if type_info not in (Types.BIG_DEC(), Types.BIG_INT(), Types.INSTANT())
    ]
    known += [(Types.BIG_INT(), st.integers(-(10**37), 10**37)), (Types.BIG_DEC(), st.decimals(-9, 9, places=3))]
    known += [(Types.INSTANT(), st.datetimes())]  # beyond them Python's datetime, which row readers go by, ends
    fields = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=4))
    row_type = RowTypeInfo([type_info for type_info, _ in fields], [f"c{i}" for i in range(len(fields))])
    rows = data.draw(st.lists(st.tuples(*[st.none() | values for _, values in fields]), max_size=9))
    schema = arrow_schema(row_type, None, FILE)
    columns = [[row[i] for row in rows] for i in range(len(fields))]
    table = pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    restarts = data.draw(st.lists(st.integers(0, 5), max_size=3))
    names = data.draw(st.permutations(row_type.field_names))[: data.draw(st.integers(1, len(fields)))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        pq.write_table(table, path, row_group_size=4)
        wide = ParquetColumnarRowInputFormat(row_type, batch_size=3)
        by_columns = read_file(wide, path, sizes=sizes, restarts=restarts)
        by_rows = read_file(wide, path, policy=MalformedPolicy.EMIT, sizes=sizes, restarts=restarts)
        narrow = read_file(wide.with_columns(names), path, sizes=sizes, restarts=restarts)
        split = Split("0", {"path": str(path), "start": 0, "end": path.stat().st_size})
        chunks = chunks_of(wide.open_cursor(split, MalformedRecords()), 100)
    assert same(by_columns, by_rows)
    assert same(narrow, [Row(**{name: row[name] for name in names}) for row in by_rows])
    assert all(isinstance(chunk.values, pa.RecordBatch) for chunk in chunks if len(chunk.values))


@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
def test_parquet_has_the_digits_of_declared_decimals(tmp_path: Path, columns: bool) -> None:
    """As Flink does: DECIMAL(p, s) is a DECIMAL(p, s) of Parquet, and values are rounded to it; also inside others."""
    money = DataTypes.DECIMAL(6, 2)
    fields = [("a", money), ("many", DataTypes.ARRAY(money)), ("by", DataTypes.MAP(DataTypes.STRING(), money))]
    fields.append(("inner", DataTypes.ROW([DataTypes.FIELD("d", money), DataTypes.FIELD("n", DataTypes.INT())])))
    row_type = DataTypes.ROW([DataTypes.FIELD(name, data_type) for name, data_type in fields])
    amount = Decimal("1.005")
    row = Row(a=amount, many=[amount, None], by={"k": amount}, inner=Row(d=amount, n=1))
    path = tmp_path / "rows.parquet"
    with path.open("wb") as stream:
        writer = ParquetBulkWriters.for_row_type(row_type).create(stream)
        if columns:
            writer.write_columns(StreamColumns(row_type_of(row_type, "test")).from_records([row]))
        else:
            writer.write([row])
        writer.finish()
    small = pa.decimal128(6, 2)
    inner = pa.struct([("d", small), ("n", pa.int32())])
    expected = {"a": small, "many": pa.list_(small), "by": pa.map_(pa.string(), small), "inner": inner}
    assert {field.name: field.type for field in pq.read_schema(path)} == expected
    read = ParquetColumnarRowInputFormat(row_type)
    for policy in (MalformedPolicy.FAIL, MalformedPolicy.EMIT):  # by columns, and by rows
        (row_read,) = read_file(read, path, policy=policy)
        texts = [row_read.a, *row_read.many, row_read.by["k"], row_read.inner.d]
        assert [str(text) for text in texts] == ["1.01", "1.01", "None", "1.01", "1.01"]
    (row_read,) = read_file(read.with_columns(["inner", "a"]), path)
    assert (str(row_read.inner.d), str(row_read.a)) == ("1.01", "1.01")
    with pytest.raises(ValueError, match=r"a value of column 'a' .* does not fit DECIMAL\(6, 2\)"):
        ParquetBulkWriters.for_row_type(row_type).create(io.BytesIO()).write_columns(
            StreamColumns(row_type_of(row_type, "test")).from_records(
                [Row(a=Decimal(10**4), many=[], by={}, inner=None)]
            )
        )


def test_numbers_are_those_of_python(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    texts = ["0.1", "1e23", "4.9e-324", "1.7976931348623157e308", "9007199254740993", "-0.0", "1e400", ".5", "5."]
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([[text] for text in texts])
    path.write_text(buffer.getvalue())
    schema = CsvSchema(Types.ROW_NAMED(["x"], [Types.DOUBLE()]))
    numbers = [row.x for row in read_file(CsvReaderFormat(schema), path)]
    assert numbers == [float(text) for text in texts]
    assert math.copysign(1, numbers[5]) == -1
