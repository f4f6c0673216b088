"""Serialisation schemas and bulk writers: what was written is read again."""

from __future__ import annotations

import datetime
import io
import json
import math
import pickle
import tempfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import fastavro
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from firesteel.common.serialization import BulkWriterFactory, Encoder, SimpleStringSchema
from firesteel.common.time import Instant
from firesteel.common.typeinfo import RowTypeInfo, TypeInformation, Types
from firesteel.common.types import Row, make_row
from firesteel.connectors.formats import json_rows
from firesteel.connectors.formats.csv_files import CsvBulkWriters, CsvReaderFormat
from firesteel.connectors.formats.csv_rows import CsvRowDeserializationSchema, CsvRowSerializationSchema
from firesteel.connectors.formats.csv_schema import CsvSchema
from firesteel.connectors.formats.json_rows import (
    JsonLinesFormat,
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
    exact_parser,
    json_parser,
)
from firesteel.connectors.formats.parquet_files import ParquetBulkWriters, ParquetColumnarRowInputFormat
from firesteel.core.errors import MalformedDataError, ProgramError, UnsupportedFeatureError
from firesteel.table import DataTypes
from firesteel_formats.avro_files import AvroBulkWriters, AvroFormat
from firesteel_formats.avro_parquet import AvroParquetReaders, AvroParquetWriters
from firesteel_formats.avro_rows import AvroRowDeserializationSchema, AvroRowSerializationSchema
from firesteel_formats.avro_schema import AvroSchema, GenericRecordAvroTypeInfo
from tests.examples import examples
from tests.unit.connectors.reading import read_file

TEXT = st.text(st.characters(codec="utf-8"))
LOCAL = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1))
FLAT: list[tuple[TypeInformation, st.SearchStrategy[Any]]] = [
    (Types.STRING(), TEXT),
    (Types.BOOLEAN(), st.booleans()),
    (Types.BYTE(), st.integers(-128, 127)),
    (Types.SHORT(), st.integers(-(2**15), 2**15 - 1)),
    (Types.INT(), st.integers(-(2**31), 2**31 - 1)),
    (Types.LONG(), st.integers(-(2**63), 2**63 - 1)),
    (Types.FLOAT(), st.floats(width=32, allow_nan=False, allow_infinity=False)),
    (Types.DOUBLE(), st.floats(allow_nan=False, allow_infinity=False)),
    (Types.CHAR(), st.characters(codec="utf-8")),
    (Types.BIG_INT(), st.integers(-(10**37), 10**37)),
    (Types.BIG_DEC(), st.decimals(-(10**15), 10**15, places=6)),
    (Types.INSTANT(), LOCAL.map(lambda d: _instant(d))),
    (Types.SQL_DATE(), st.dates()),
    (Types.SQL_TIME(), st.times()),
    (Types.SQL_TIMESTAMP(), LOCAL),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), st.binary()),
]


def _instant(moment: datetime.datetime) -> Instant:
    since = moment - datetime.datetime(1970, 1, 1)
    return Instant(since.days * 86400 + since.seconds, since.microseconds * 1000)


def nested(draw: st.DrawFn, depth: int) -> tuple[TypeInformation, st.SearchStrategy[Any]]:
    kind = draw(st.integers(0, 5)) if depth else 0
    if kind == 1:
        element, values = nested(draw, depth - 1)
        return Types.LIST(element), st.lists(st.none() | values, max_size=3)
    if kind == 2:
        element, values = nested(draw, depth - 1)
        return Types.MAP(Types.STRING(), element), st.dictionaries(TEXT, st.none() | values, max_size=3)
    if kind == 3:
        return row_of(draw, depth - 1)
    flat: tuple[TypeInformation, st.SearchStrategy[Any]] = draw(st.sampled_from(FLAT))
    return flat


def row_of(draw: st.DrawFn, depth: int) -> tuple[RowTypeInfo, st.SearchStrategy[Any]]:
    fields = [nested(draw, depth) for _ in range(draw(st.integers(1, 4)))]
    names = [f"field_{i}" for i in range(len(fields))]
    values = st.tuples(*(st.none() | strategy for _, strategy in fields))
    return RowTypeInfo([t for t, _ in fields], names), values.map(lambda vs: make_row(tuple(names), list(vs)))


@st.composite
def typed_rows(draw: st.DrawFn, depth: int) -> tuple[RowTypeInfo, list[Any]]:
    row_type, values = row_of(draw, depth)
    return row_type, draw(st.lists(values, max_size=5))


def written(factory: BulkWriterFactory, records: list[Any], path: Path, pieces: int = 2) -> None:
    pickle.loads(pickle.dumps(factory)).check()
    with path.open("wb") as stream:
        writer = factory.create(stream)
        try:
            for start in range(0, len(records), pieces):
                writer.write(records[start : start + pieces])
            writer.finish()
        except ValueError:
            writer.abort()
            raise
        assert writer.buffered_bytes() == 0


@settings(max_examples=examples(60), deadline=None)
@given(typed_rows(2))
def test_rows_survive_json(case: tuple[RowTypeInfo, list[Any]]) -> None:
    row_type, rows = case
    write = pickle.loads(pickle.dumps(JsonRowSerializationSchema.builder().with_type_info(row_type).build()))
    read = pickle.loads(pickle.dumps(JsonRowDeserializationSchema.builder().type_info(row_type).build()))
    assert read.get_produced_type() == row_type
    encoder = Encoder.of_schema(write)
    for row in rows:
        data = write.serialize(row)
        assert b"\n" not in data
        json.loads(data)
        assert read.deserialize(data) == row
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows"
        path.write_bytes(b"".join(map(encoder.encode, rows)))
        assert read_file(JsonLinesFormat(row_type), path, [10, 50]) == rows


@st.composite
def csv_rows(draw: st.DrawFn) -> tuple[RowTypeInfo, list[Any]]:
    kinds = draw(st.lists(st.sampled_from(FLAT), min_size=1, max_size=5))
    names = tuple(f"c{i}" for i in range(len(kinds)))
    # None and the empty text are the same in CSV without a null literal
    values = st.tuples(*(st.none() | strategy for _, strategy in kinds))
    rows = draw(st.lists(values.map(lambda vs: make_row(names, list(vs))), max_size=6))
    return RowTypeInfo([t for t, _ in kinds], list(names)), rows


ROWS_OF_TEXT = Types.ROW_NAMED(["c0", "c1"], [Types.STRING(), Types.STRING()])


@settings(max_examples=examples(60), deadline=None)
@example((ROWS_OF_TEXT, [Row(c0=None, c1="\r0")]), ",", None, False)
@given(csv_rows(), st.sampled_from([",", ";", "\t"]), st.sampled_from([None, "\\"]), st.booleans())
def test_rows_survive_csv(
    case: tuple[RowTypeInfo, list[Any]], separator: str, escape: str | None, header: bool
) -> None:
    row_type, rows = case
    to, of = CsvRowSerializationSchema.Builder(row_type), CsvRowDeserializationSchema.Builder(row_type)
    to.set_field_delimiter(separator).set_null_literal("\0NULL")
    of.set_field_delimiter(separator).set_null_literal("\0NULL")
    schema = CsvSchema.builder().add_columns_from(CsvSchema(row_type)).set_column_separator(separator)
    schema.set_null_value("\0NULL").set_use_header(header)
    if escape is not None:
        to.set_escape_character(escape)
        of.set_escape_character(escape)
        schema.set_escape_char(escape)
    write, read = pickle.loads(pickle.dumps(to.build())), pickle.loads(pickle.dumps(of.build()))
    for row in rows:
        assert read.deserialize(write.serialize(row)) == row
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows"
        written(CsvBulkWriters.for_schema(schema.build()), rows, path)
        assert read_file(CsvReaderFormat.for_schema(schema.build()), path, sizes=[2], restarts=[1]) == rows


def test_csv_arrays_rows_and_dialects() -> None:
    inner = Types.ROW_NAMED(["x", "y"], [Types.INT(), Types.STRING()])
    row_type = Types.ROW_NAMED(["a", "b", "r"], [Types.LIST(Types.INT()), Types.BASIC_ARRAY(Types.STRING()), inner])
    to = CsvRowSerializationSchema.Builder(row_type).set_array_element_delimiter("|").set_line_delimiter("\r\n")
    of = CsvRowDeserializationSchema.Builder(row_type).set_array_element_delimiter("|").set_quote_character("'")
    row = Row(a=[1, None, 3], b=["p", "q,r"], r=Row(x=7, y="z"))
    data = to.set_quote_character("'").build().serialize(row)
    assert data == b"1||3,'p|q,r',7|z\r\n"
    assert of.build().deserialize(data) == row
    assert of.build().deserialize(b",,\n") == Row(a=None, b=None, r=None)
    with pytest.raises(ValueError, match="holds the separator"):
        to.build().serialize(Row(a=[], b=["x|y"], r=None))
    with pytest.raises(ValueError, match="can't be written as CSV"):
        to.disable_quote_character().build().serialize(Row(a=None, b=["q,r"], r=None))
    comments = CsvRowDeserializationSchema.Builder(Types.ROW([Types.INT()])).set_allow_comments(True).build()
    assert comments.deserialize(b"# 1") is None
    schema = CsvSchema.builder().add_array_column("n", "-", Types.INT()).add_boolean_column("b").build()
    assert (schema.size(), str(schema.row_type)) == (2, "RowTypeInfo(n: ListTypeInfo<Integer>, b: Boolean)")


def test_malformed_messages_raise_or_are_left_out() -> None:
    row_type = Types.ROW_NAMED(["a"], [Types.INT()])
    for strict, lenient, message in (
        (
            JsonRowDeserializationSchema.builder().type_info(row_type).build(),
            JsonRowDeserializationSchema.builder().type_info(row_type).ignore_parse_errors().build(),
            b'{"a": "x"}',
        ),
        (
            CsvRowDeserializationSchema.Builder(row_type).build(),
            CsvRowDeserializationSchema.Builder(row_type).set_ignore_parse_errors(True).build(),
            b"x",
        ),
    ):
        with pytest.raises(
            MalformedDataError, match=r"malformed \w+ b'.*': (field|column) 'a': 'x' is no whole number"
        ):
            strict.deserialize(message)
        assert lenient.deserialize(message) is None
    with pytest.raises(MalformedDataError, match=r"2 rows in one message|new-line character"):
        CsvRowDeserializationSchema.Builder(row_type).build().deserialize(b"1\n2\n")
    avro = AvroRowDeserializationSchema(avro_schema_string=json.dumps(RECORD))
    with pytest.raises(MalformedDataError, match="malformed Avro"):
        avro.deserialize(b"\x02")


def test_what_schemas_refuse() -> None:
    with pytest.raises(ProgramError, match=r"give the type of the rows with type_info\(\)"):
        JsonRowDeserializationSchema.builder().build()
    both = JsonRowDeserializationSchema.builder().type_info(Types.ROW([])).fail_on_missing_field()
    with pytest.raises(ProgramError, match="exclude each other"):
        both.ignore_parse_errors().build()
    with pytest.raises(UnsupportedFeatureError, match="json_schema"):
        JsonRowDeserializationSchema.builder().json_schema("{}")
    with pytest.raises(TypeError, match="takes a row type"):
        CsvRowSerializationSchema.Builder(Types.INT())
    with pytest.raises(TypeError, match="can't be read from CSV"):
        CsvReaderFormat.for_schema(CsvSchema(Types.ROW([Types.MAP(Types.INT(), Types.INT())])))
    with pytest.raises(ProgramError, match="more than once: a"):
        CsvSchema.builder().add_string_column("a").add_string_column("a").build()
    with pytest.raises(ProgramError, match="the column separator is one character, not 'ab'"):
        CsvSchema.builder().set_column_separator("ab")
    with pytest.raises(ProgramError, match="is no JSON"):
        AvroSchema.parse_string("{")
    with pytest.raises(ProgramError, match="is not valid"):
        AvroSchema.parse_string('{"type": "nothing"}')
    with pytest.raises(ProgramError, match="takes an Avro schema of records"):
        AvroRowSerializationSchema(avro_schema_string='"int"')
    with pytest.raises(ValueError, match=r"NaN|JSON compliant"):
        JsonRowSerializationSchema(Types.ROW([Types.DOUBLE()])).serialize(Row(float("nan")))
    with pytest.raises(TypeError, match="of_schema"):
        Encoder.of_schema("x")  # type: ignore[arg-type]
    assert Encoder.of_schema(SimpleStringSchema(), b"\0").encode("ä") == b"\xc3\xa4\0"


@settings(max_examples=examples(50), deadline=None)
@given(typed_rows(2))
def test_rows_survive_parquet(case: tuple[RowTypeInfo, list[Any]]) -> None:
    row_type, rows = case
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows"
        written(ParquetBulkWriters.for_row_type(row_type), rows, path)
        got = read_file(ParquetColumnarRowInputFormat(row_type), path)
        assert got == rows


def test_parquet_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firesteel.connectors.formats.parquet_files.ROW_GROUP_ROWS", 10)
    row_type = Types.ROW_NAMED(["Id", "at"], [Types.INT(), Types.SQL_TIMESTAMP()])
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, 600)
    rows = [Row(Id=i, at=moment) for i in range(35)]
    path = tmp_path / "a.parquet"
    written(ParquetBulkWriters.for_row_type(row_type, {"parquet.compression": "ZSTD"}, True), rows, path, 7)
    metadata = pq.ParquetFile(path).metadata
    assert metadata.num_row_groups == 4
    assert metadata.row_group(0).column(0).compression == "ZSTD"
    assert read_file(ParquetColumnarRowInputFormat(row_type), path) == rows
    other = Types.ROW_NAMED(["ID", "missing"], [Types.LONG(), Types.STRING()])
    assert read_file(ParquetColumnarRowInputFormat(other, is_case_sensitive=False), path)[3] == Row(ID=3, missing=None)
    assert read_file(ParquetColumnarRowInputFormat(other), path)[34] == Row(ID=None, missing=None)
    with pytest.raises(ProgramError, match="not one of UNCOMPRESSED"):
        ParquetBulkWriters.for_row_type(row_type, {"parquet.compression": "lzo"})
    with pytest.raises(ValueError, match="a value of column 'Id' is no int32"):
        written(ParquetBulkWriters.for_row_type(row_type), [("x", None)], tmp_path / "b")


RECORD: dict[str, Any] = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "carrier", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "stops", "type": {"type": "array", "items": {"type": "record", "name": "Stop", "fields": [
            {"name": "code", "type": "string"}, {"name": "delay", "type": ["null", "double"]}]}}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    ],
}  # fmt: skip
AT = datetime.datetime(2026, 3, 4, 5, 6, 7, 8000)


def flight(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "carrier": None if number % 2 else "UA",
        "at": AT.replace(tzinfo=datetime.UTC),
        "stops": [{"code": "JFK", "delay": 1.5}, {"code": "LAX", "delay": None}][: number % 3],
        "tags": {"a": number},
        "kind": "AB"[number % 2],
    }


def test_rows_survive_avro() -> None:
    text = json.dumps(RECORD)
    write = pickle.loads(pickle.dumps(AvroRowSerializationSchema(avro_schema_string=text)))
    read = pickle.loads(pickle.dumps(AvroRowDeserializationSchema(avro_schema_string=text)))
    row = Row(id=5, carrier=None, at=AT, stops=[Row(code="X", delay=0.5)], tags={"t": 1}, kind="B")
    data = write.serialize(row)
    assert read.deserialize(data) == row
    expected = {"id": 5, "carrier": None, "stops": [{"code": "X", "delay": 0.5}], "tags": {"t": 1}, "kind": "B"}
    plain = fastavro.schemaless_reader(io.BytesIO(data), fastavro.parse_schema(RECORD), None)
    assert plain == expected | {"at": AT.replace(tzinfo=datetime.UTC)}
    assert str(read.get_produced_type()).startswith("RowTypeInfo(id: Long, carrier: String, at: Timestamp, stops: List")
    with pytest.raises(MalformedDataError, match="there are bytes behind"):
        read.deserialize(data + b"x")
    with pytest.raises(ValueError, match=r"not fields|do not exist"):
        write.serialize({"id": 5, "other": 1})
    with pytest.raises(UnsupportedFeatureError, match="record_class"):
        AvroRowSerializationSchema(record_class="org.Example")


def test_rows_of_avro_schemas_that_hold_themselves_survive() -> None:
    children = {"name": "children", "type": {"type": "array", "items": "Node"}}
    tree = {"type": "record", "name": "Node", "fields": [{"name": "value", "type": "int"}, children]}
    text = json.dumps(tree)
    row = Row(value=1, children=[Row(value=2, children=[]), Row(value=3, children=[Row(value=4, children=[])])])
    data = AvroRowSerializationSchema(avro_schema_string=text).serialize(row)
    assert AvroRowDeserializationSchema(avro_schema_string=text).deserialize(data) == row


@pytest.mark.parametrize("codec", ["null", "deflate", "xz"])
def test_rows_survive_files_of_avro(codec: str, tmp_path: Path) -> None:
    schema_file = tmp_path / "flight.avsc"
    schema_file.write_text(json.dumps(RECORD))
    schema = AvroSchema.parse_file(schema_file)
    records = [flight(i) for i in range(40)]
    path = tmp_path / "a.avro"
    written(AvroBulkWriters(schema, codec), records, path)
    assert read_file(AvroFormat(), path, [500]) == records
    newer = {**RECORD, "fields": [*RECORD["fields"][:1], {"name": "new", "type": "int", "default": 9}]}
    assert read_file(AvroFormat(AvroSchema(newer)), path) == [{"id": i, "new": 9} for i in range(40)]
    with path.open("rb") as stream:
        assert list(fastavro.reader(stream)) == records
    assert GenericRecordAvroTypeInfo(schema) == GenericRecordAvroTypeInfo(AvroSchema(RECORD))


def test_avro_records_survive_parquet(tmp_path: Path) -> None:
    schema = AvroSchema(RECORD)
    records = [flight(i) for i in range(40)]
    path = tmp_path / "a.parquet"
    written(AvroParquetWriters.for_generic_record(schema), records, path)
    assert read_file(AvroParquetReaders.for_generic_record(schema), path) == records
    some = AvroSchema({**RECORD, "fields": [RECORD["fields"][4], {"name": "other", "type": ["null", "int"]}]})
    got = read_file(AvroParquetReaders.for_generic_record(some), path)
    assert got == [{"tags": {"a": i}, "other": None} for i in range(40)]
    with pytest.raises(ProgramError, match="the union"):
        AvroParquetWriters(AvroSchema({**RECORD, "fields": [{"name": "u", "type": ["int", "string"]}]}))


def test_types_of_the_table_api_stand_for_rows(tmp_path: Path) -> None:
    """``DataTypes`` in place of ``Types``, in every format that takes a row type."""
    wide = DataTypes.ROW(
        [
            DataTypes.FIELD("id", DataTypes.BIGINT()),
            DataTypes.FIELD("at", DataTypes.TIMESTAMP(3)),
            DataTypes.FIELD("tags", DataTypes.ARRAY(DataTypes.STRING())),
        ]
    )
    meant = Types.ROW_NAMED(
        ["id", "at", "tags"], [Types.LONG(), Types.SQL_TIMESTAMP(), Types.OBJECT_ARRAY(Types.STRING())]
    )
    row = Row(id=1, at=datetime.datetime(2020, 1, 2, 3, 4, 5), tags=["a", "b"])
    assert ParquetColumnarRowInputFormat(wide).produced_type() == meant
    assert JsonLinesFormat(wide).produced_type() == meant
    assert CsvSchema.builder().add_array_column("a", element_type=DataTypes.INT()).build().row_type == Types.ROW_NAMED(
        ["a"], [Types.LIST(Types.INT())]
    )
    for reader, writer in (
        (CsvRowDeserializationSchema.Builder(wide).build(), CsvRowSerializationSchema.Builder(wide).build()),
        (
            JsonRowDeserializationSchema.builder().type_info(wide).build(),
            JsonRowSerializationSchema.builder().with_type_info(wide).build(),
        ),
    ):
        assert reader.get_produced_type() == meant
        assert reader.deserialize(writer.serialize(row)) == row
    path = tmp_path / "rows.parquet"
    with path.open("wb") as stream:
        parquet = ParquetBulkWriters.for_row_type(wide).create(stream)
        parquet.write([row])
        parquet.finish()
    assert read_file(ParquetColumnarRowInputFormat(wide), path) == [row]
    with pytest.raises(TypeError, match="takes type information"):
        JsonLinesFormat("INT")  # type: ignore[arg-type]


INT, LONG, FLOAT, DOUBLE = Types.INT(), Types.LONG(), Types.FLOAT(), Types.DOUBLE()
BIG_INT, BIG_DEC = Types.BIG_INT(), Types.BIG_DEC()
ODD_JSON = (
    "null", "1", "-0", "-0.0", "1.0", "1e2", "1.50", "1e400", "-1e400", "1e99999999999999999999", "1" * 40, "0.1e-400",
    "128", "-129", str(2**31), str(-(2**63)), str(2**63), "true", "01", "1.", ".5", "+1", "NaN", "nan", "inf", '""',
    '"x"', '"1"', '" 1.5"', '"1_0"', '"true"', '"NaN"', '"\\ud800"', '"\\ud83d\\ude00"', '"\\u00e9"', '"\\x"', '"\x01"',
    '"\x7f"', '"2020-01-01"', '"2020-01-01T10:00:00"', '"2020-01-01T10:00:00+02:00"', '"10:00:00"', '"AQI="', "[]",
    "[1]",
    "[null]", "[1,]", "[1, 2, 3]", "{}", '{"field_0": 1}', '{"field_0": null, "field_1": "x"}', '{"1": 1}', "{,}",
    "[" * 2000 + "]" * 2000,
)  # fmt: skip


@settings(max_examples=examples(300), deadline=None)
@given(typed_rows(2), st.booleans(), st.data())
def test_json_is_read_alike_by_msgspec_and_by_the_exact_readers(
    case: tuple[RowTypeInfo, list[Any]], required: bool, data: st.DataObject
) -> None:
    """Values, their types, and errors: also of fields that are odd, missing, twice there or not known."""
    row_type, rows = case
    quick = json_parser(row_type, fail_on_missing_field=required)
    exact = exact_parser(row_type, fail_on_missing_field=required)
    untyped = [make(None, fail_on_missing_field=False) for make in (json_parser, exact_parser)]
    write = JsonRowSerializationSchema.builder().with_type_info(row_type).build()
    texts = [write.serialize(row) for row in rows]
    names = st.sampled_from([*row_type.field_names, "other", "\\u0066ield_0"])
    pair = st.tuples(names, st.sampled_from(ODD_JSON))
    for pairs in data.draw(st.lists(st.lists(pair, max_size=4), max_size=4)):
        texts.append(("{" + ", ".join(f'"{name}": {value}' for name, value in pairs) + "}").encode())
    for text in list(texts):
        cut = data.draw(st.integers(0, len(text)))
        texts.append(
            text[:cut]
            + data.draw(st.sampled_from([b"", b"\xff", b"\xc3", b" ", b"\0", b"}", b'"', b"\\"]))
            + text[cut:]
        )
        texts.append(text[:cut])
    for text in [
        *texts,
        b"\xef\xbb\xbf{}",
        b" {} ",
        b"null",
        b"1",
        *(text_of_json.encode() for text_of_json in ODD_JSON),
    ]:
        assert _outcome(quick, text) == _outcome(exact, text)
        assert _outcome(untyped[0], text) == _outcome(untyped[1], text)


def _outcome(parse: Callable[[bytes], Any], text: bytes) -> str:
    try:
        return f"value {parse(text)!r}"
    except ValueError as error:
        return f"{type(error).__name__} {error}"


def test_most_json_is_read_by_msgspec(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_called(*args: Any) -> Any:
        raise AssertionError("read by the exact reader")

    monkeypatch.setattr(json_rows, "exact_parser", lambda *args, **more: not_called)
    inner = Types.ROW_NAMED(["d", "f"], [Types.BIG_DEC(), Types.FLOAT()])
    row_type = Types.ROW_NAMED(
        ["a b", "r", "m", "l", "t", "at"],
        [Types.LONG(), inner, Types.MAP(Types.INT(), Types.BIG_INT()), Types.LIST(inner),
         Types.TUPLE([Types.STRING(), Types.BOOLEAN()]), Types.SQL_TIMESTAMP()],
    )  # fmt: skip
    parse = json_parser(row_type, fail_on_missing_field=False)
    columns = parse(
        b'{"a b": 1, "r": {"d": 1.50, "f": 1}, "m": {"7": 123456789012345678901}, "l": [null, {"d": null}], '
        b'"t": ["x", true], "at": "2020-01-01T00:00:00", "more": [1e400]}'
    )
    assert repr(columns) == repr(
        Row(**{
            "a b": 1, "r": Row(d=Decimal("1.50"), f=1.0), "m": {7: 123456789012345678901},
            "l": [None, Row(d=None, f=None)], "t": ("x", True), "at": datetime.datetime(2020, 1, 1),
        })
    )  # fmt: skip
    names = Types.ROW_NAMED(['a"b'], [Types.INT()])  # which msgspec does not take
    with pytest.raises(AssertionError, match="exact reader"):
        json_parser(names, fail_on_missing_field=False)(b"{}")


ODD_VALUES: list[tuple[TypeInformation, Any, str | None]] = [
    (Types.DOUBLE(), math.nan, None), (Types.FLOAT(), math.inf, None), (Types.BIG_DEC(), Decimal("NaN"), None),
    (Types.PICKLED_BYTE_ARRAY(), {"a": [1, None]}, '{"a":[1,null]}'), (Types.PICKLED_BYTE_ARRAY(), [math.nan], None),
    (Types.PICKLED_BYTE_ARRAY(), b"x", None), (Types.STRING(), b"x", None), (Types.STRING(), 7, "7"),
    (Types.STRING(), "\ud800", None), (Types.LONG(), 10**30, str(10**30)), (Types.LONG(), True, "true"),
    (Types.BIG_DEC(), Decimal("1.50"), "1.50"), (Types.BIG_DEC(), Decimal("1E+3"), "1E+3"),
    (Types.FLOAT(), 163.3, "163.3"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "text"), ODD_VALUES)
def test_what_json_can_not_hold_is_refused_and_the_rest_is_written_as_it_is(
    kind: TypeInformation, value: Any, text: str | None
) -> None:
    write = JsonRowSerializationSchema.builder().with_type_info(Types.ROW_NAMED(["v"], [kind])).build()
    if text is None:
        with pytest.raises((ValueError, TypeError)):
            write.serialize(Row(v=value))
    else:
        assert write.serialize(Row(v=value)) == f'{{"v":{text}}}'.encode()


NUMBERS: list[tuple[TypeInformation, str, Any]] = [
    *((kind, text, 12) for kind in (INT, LONG, BIG_INT) for text in ("12", "+12", " 12\t", "0012")),
    *((kind, text, None) for kind in (INT, LONG, BIG_INT)
      for text in ("1_2", "0x12", "1e3", "12.0", "\u0661", "1 2", "+-1")),
    *((kind, text, 1.5) for kind in (FLOAT, DOUBLE) for text in ("1.5", "+1.5", " 1.5 ", "15e-1", "0.15E+1", "01.5")),
    *((kind, text, math.inf) for kind in (FLOAT, DOUBLE) for text in ("Infinity", "+Infinity", " Infinity", "1e999")),
    *((kind, text, None) for kind in (FLOAT, DOUBLE, BIG_DEC)
      for text in ("1_0.5", "nan", "NAN", "inf", "infinity", "INFINITY", "-nan", "0x1p3", "1.5f", "1,5", "1e", ".")),
    (BIG_DEC, "1.50", Decimal("1.50")), (BIG_DEC, "+1.50 ", Decimal("1.50")), (BIG_DEC, "1e2", Decimal("1e2")),
    (BIG_DEC, "NaN", None), (BIG_DEC, "Infinity", None), (BIG_DEC, "sNaN", None),
    (FLOAT, "163.3", 163.3000030517578125),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "value"), NUMBERS)
def test_numbers_are_those_of_flink_and_not_of_python(
    kind: TypeInformation, text: str, value: Any, tmp_path: Path
) -> None:
    row_type = RowTypeInfo([kind, Types.STRING()], ["n", "s"])
    json_schema = JsonRowDeserializationSchema.builder().type_info(row_type).build()
    csv_schema = CsvRowDeserializationSchema.Builder(row_type).set_field_delimiter(";").build()
    format_schema = CsvSchema.builder().add_columns_from(CsvSchema(row_type)).set_column_separator(";").build()
    file_format, path = CsvReaderFormat.for_schema(format_schema), tmp_path / "rows.csv"
    reads: list[Callable[[], Any]] = [
        lambda: json_schema.deserialize(json.dumps({"n": text, "s": "x"}).encode()).n,
        lambda: csv_schema.deserialize(f"{text};x".encode()).n,
        lambda: read_file(file_format, path)[0].n,
        lambda: read_file(file_format, path)[1].n,
    ]
    for quoted in ("x", '"x\nx"'):  # by columns, and by rows
        path.write_text(f"{text};{quoted}\n" * 2)
        for read in reads:
            if value is None:
                with pytest.raises(MalformedDataError, match=r"no number|no whole number"):
                    read()
            else:
                value_read = read()
                assert (type(value_read), value_read) == (type(value), value)


def test_floats_are_written_with_the_digits_that_tell_them() -> None:
    row_type = Types.ROW_NAMED(["f", "d"], [FLOAT, DOUBLE])
    exact = 163.30001831054688
    row = Row(f=exact, d=exact)
    csv_line = CsvRowSerializationSchema.Builder(row_type).build().serialize(row)
    assert csv_line == b"163.30002,163.30001831054688\n"
    as_json = JsonRowSerializationSchema.builder().with_type_info(row_type).build()
    assert as_json.serialize(row) == b'{"f":163.30002,"d":163.30001831054688}'
    for value, text in ((math.nan, b"NaN"), (math.inf, b"Infinity"), (-math.inf, b"-Infinity")):
        line = CsvRowSerializationSchema.Builder(row_type).build().serialize(Row(f=value, d=value))
        assert line == text + b"," + text + b"\n"


def test_messages_may_begin_with_a_byte_order_mark() -> None:
    row_type = Types.ROW_NAMED(["n"], [INT])
    assert CsvRowDeserializationSchema.Builder(row_type).build().deserialize(b"\xef\xbb\xbf7") == Row(n=7)
    as_json = JsonRowDeserializationSchema.builder().type_info(row_type).build()
    assert as_json.deserialize(b'\xef\xbb\xbf{"n": 7}') == Row(n=7)


def test_a_number_that_no_double_holds_is_malformed() -> None:
    as_json = JsonRowDeserializationSchema.builder().type_info(Types.ROW_NAMED(["n"], [DOUBLE])).build()
    with pytest.raises(MalformedDataError, match="is too large"):
        as_json.deserialize(b'{"n": ' + b"7" * 400 + b"}")


DECIMALS = [
    ("1.5", "1.50"),
    ("1.005", "1.01"),
    ("-1.005", "-1.01"),
    ("1e1", "10.00"),
    ("99.994", "99.99"),
    ("0", "0.00"),
]


@pytest.mark.parametrize(("text", "value"), DECIMALS)
def test_decimal_numbers_have_the_scale_of_their_column(text: str, value: str, tmp_path: Path) -> None:
    money = DataTypes.DECIMAL(4, 2)
    row = DataTypes.ROW([DataTypes.FIELD("a", DataTypes.STRING()), DataTypes.FIELD("d", money)])
    built = CsvSchema.builder().add_string_column("a").add_number_column("d", money)
    built.add_array_column("many", element_type=money)
    again = CsvSchema.builder().add_columns_from(built.build()).build()
    path = tmp_path / "rows"
    for quoted in ("x", '"x\nx"'):  # by columns, and by rows
        path.write_text(f"{quoted},{text},{text};{text}\n")
        (read,) = read_file(CsvReaderFormat.for_schema(again), path)
        assert [str(read.d), *map(str, read.many)] == [value] * 3
    message = CsvRowDeserializationSchema.Builder(row).build().deserialize(f"x,{text}".encode())
    assert str(message.d) == value
    line = CsvRowSerializationSchema.Builder(row).build().serialize(Row(a="x", d=Decimal(text)))
    assert line == f"x,{value}\n".encode()
    path.write_text(f"x,{text}\n")
    (read,) = read_file(CsvReaderFormat.for_schema(CsvSchema(cast("Any", row))), path)
    assert str(read.d) == value
    plain = Types.ROW_NAMED(["d"], [Types.BIG_DEC()])
    assert str(CsvRowDeserializationSchema.Builder(plain).build().deserialize(text.encode()).d) == str(Decimal(text))


@pytest.mark.parametrize("text", ["100", "99.995", "1e400", "-123456789012345678901234567890"])
def test_decimal_numbers_that_do_not_fit_their_column_are_malformed(text: str) -> None:
    row = DataTypes.ROW([DataTypes.FIELD("d", DataTypes.DECIMAL(4, 2))])
    with pytest.raises(MalformedDataError, match=r"column 'd': .* does not fit DECIMAL\(4, 2\)"):
        CsvRowDeserializationSchema.Builder(row).build().deserialize(text.encode())
