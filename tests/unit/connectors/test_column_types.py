"""What Parquet files hold is what a program declares, or is refused by the name of its column."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firesteel.common import Configuration, Instant, Types
from firesteel.common.typeinfo import RowTypeInfo, TypeInformation
from firesteel.common.types import Row
from firesteel.connectors.file_format import BulkFormat, FileFormat, StreamFormat
from firesteel.connectors.file_source import FileSource
from firesteel.connectors.file_splits import FileEnumerator
from firesteel.connectors.file_watch import WatchedFilesEnumerator
from firesteel.connectors.formats.column_types import check_column, fitted
from firesteel.connectors.formats.csv_files import CsvReaderFormat
from firesteel.connectors.formats.csv_schema import CsvSchema
from firesteel.connectors.formats.json_rows import JsonRowDeserializationSchema
from firesteel.connectors.formats.parquet_files import ParquetBulkWriters, ParquetColumnarRowInputFormat
from firesteel.connectors.malformed import MalformedPolicy, MalformedRecords
from firesteel.core.errors import MalformedDataError, ProgramError
from firesteel.runtime.records.rows import to_records
from firesteel_formats.avro_files import AvroFormat
from firesteel_formats.avro_parquet import AvroParquetReaders
from firesteel_formats.avro_schema import AvroSchema
from tests.unit.connectors.reading import read_file, read_split


def read(path: Path, table: pa.Table, row_type: TypeInformation, **more: Any) -> list[Any]:
    pq.write_table(table, path / "a.parquet")
    return read_file(ParquetColumnarRowInputFormat(row_type, **more), path / "a.parquet")


def row_of(**types: TypeInformation) -> RowTypeInfo:
    return Types.ROW_NAMED(list(types), list(types.values()))


@pytest.mark.parametrize(
    ("stored", "value", "declared", "read_as"),
    [
        (pa.int64(), 7, Types.INT(), 7),
        (pa.uint32(), 4_000_000_000, Types.LONG(), 4_000_000_000),
        (pa.int32(), 7, Types.DOUBLE(), 7.0),
        (pa.float32(), 0.5, Types.DOUBLE(), 0.5),
        (pa.int32(), 7, Types.BIG_DEC(), Decimal("7.000000000000000000")),
        (pa.decimal128(9, 2), Decimal("1.25"), Types.BIG_DEC(), Decimal("1.250000000000000000")),
        (pa.binary(), "ü".encode(), Types.STRING(), "ü"),
        (pa.string(), "ü", Types.PRIMITIVE_ARRAY(Types.BYTE()), "ü".encode()),
        (pa.dictionary(pa.int32(), pa.string()), "a", Types.STRING(), "a"),
        (pa.null(), None, Types.SQL_DATE(), None),
        (pa.timestamp("ms"), datetime(2020, 1, 1), Types.SQL_TIMESTAMP(), datetime(2020, 1, 1)),
        (pa.timestamp("ns"), -1, Types.SQL_TIMESTAMP(), datetime(1969, 12, 31, 23, 59, 59, 999999)),
        (pa.timestamp("ns"), 1_700_000_000_123_456_789, Types.INSTANT(), Instant(1_700_000_000, 123_456_000)),
        (pa.timestamp("ns", tz="UTC"), 1_001_999, Types.INSTANT(), Instant(0, 1_001_000)),
        (pa.time64("ns"), 1999, Types.SQL_TIME(), time(0, 0, 0, 1)),
    ],
)  # fmt: skip
def test_values_of_the_same_kind_are_read(
    tmp_path: Path, stored: pa.DataType, value: Any, declared: TypeInformation, read_as: Any
) -> None:
    table = pa.table({"a": pa.array([value, None], stored)})
    assert [row.a for row in read(tmp_path, table, row_of(a=declared))] == [read_as, None]


@pytest.mark.parametrize(
    ("stored", "value", "declared", "message"),
    [
        (pa.float64(), 2.0, Types.INT(), "column 'a' is double, not int32"),
        (pa.string(), "7", Types.INT(), "column 'a' is string, not int32"),
        (pa.bool_(), True, Types.LONG(), "column 'a' is bool, not int64"),
        (pa.int32(), 1, Types.BOOLEAN(), "column 'a' is int32, not bool"),
        (pa.float64(), 0.1, Types.FLOAT(), "column 'a' is double, not float"),
        (pa.decimal128(9, 2), Decimal(1), Types.DOUBLE(), "not double"),
        (pa.float64(), 0.1, Types.BIG_DEC(), "column 'a' is double, not decimal"),
        (pa.int32(), 5, Types.STRING(), "column 'a' is int32, not string"),
        (pa.date32(), date(2020, 1, 1), Types.INT(), "not int32"),
        (pa.int64(), 5, Types.SQL_TIMESTAMP(), "column 'a' is int64, not timestamp"),
        (pa.timestamp("us"), 5, Types.LONG(), "not int64"),
        (pa.timestamp("us"), 5, Types.SQL_DATE(), "not date32"),
        (pa.timestamp("us"), 5, Types.SQL_TIME(), "not time64"),
        (pa.int32(), 300, Types.BYTE(), "column 'a' is int32, not int8: Integer value 300 not in range"),
        (pa.binary(), b"\xff", Types.STRING(), "Invalid UTF8"),
        (pa.list_(pa.float64()), [1.0], Types.LIST(Types.INT()), r"column 'a\[\]' is double, not int32"),
        (pa.struct([("x", pa.string())]), {"x": "1"}, row_of(x=Types.INT()), r"column 'a.x' is string, not int32"),
        (
            pa.map_(pa.string(), pa.float64()), [("k", 1.0)], Types.MAP(Types.STRING(), Types.INT()),
            r"column 'a \(values\)' is double",
        ),
    ],
)  # fmt: skip
def test_what_would_change_a_value_is_refused_by_name(
    tmp_path: Path, stored: pa.DataType, value: Any, declared: TypeInformation, message: str
) -> None:
    table = pa.table({"a": pa.array([value], stored)})
    with pytest.raises(MalformedDataError, match=message):
        read(tmp_path, table, row_of(a=declared))


def test_names_that_stand_twice_are_refused_where_they_are_read(tmp_path: Path) -> None:
    first, second, third = (pa.array([number], pa.int32()) for number in (1, 2, 3))
    table = pa.Table.from_arrays([first, second, third], names=["a", "a", "b"])
    assert read(tmp_path, table, row_of(b=Types.INT())) == [Row(b=3)]
    for more in ({}, {"is_case_sensitive": False}):
        with pytest.raises(MalformedDataError, match="'a'"):
            read(tmp_path, table, row_of(a=Types.INT()), **more)
    inner = pa.StructArray.from_arrays([first, second, third], names=["x", "x", "y"])
    nested = pa.Table.from_arrays([inner], names=["s"])
    assert read(tmp_path, nested, row_of(s=row_of(y=Types.INT()))) == [Row(s=Row(y=3))]
    with pytest.raises(MalformedDataError, match="2 fields of column 's' have the name 'x'"):
        read(tmp_path, nested, row_of(s=row_of(x=Types.INT())))
    schema = AvroSchema.parse_string(
        '{"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "int"}]}'
    )
    pq.write_table(table, tmp_path / "b.parquet")
    with pytest.raises(MalformedDataError, match="2 columns of the file have the name 'a'"):
        read_file(AvroParquetReaders.for_generic_record(schema), tmp_path / "b.parquet")


@pytest.mark.parametrize("strict", [False, True])
def test_a_csv_header_that_names_a_column_twice_is_refused(tmp_path: Path, strict: bool) -> None:
    schema = CsvSchema.builder().add_number_column("a").add_number_column("b").set_use_header()
    (tmp_path / "a.csv").write_text("b,a,a\n1,2,3\n")
    with pytest.raises(MalformedDataError, match="'a'" if not strict else "the header names the columns b, a, a"):
        read_file(CsvReaderFormat.for_schema(schema.set_strict_headers(strict).build()), tmp_path / "a.csv")
    (tmp_path / "b.csv").write_text("b,x,x,a\n1,2,3,4\n")  # others may
    only = schema.set_strict_headers(False).build()
    assert read_file(CsvReaderFormat.for_schema(only), tmp_path / "b.csv") == [Row(a=4, b=1)]


def test_of_keys_that_stand_twice_in_json_the_last_counts() -> None:
    """As in Flink, by rows and by columns."""
    schema = JsonRowDeserializationSchema.builder().type_info(row_of(a=Types.INT(), s=row_of(x=Types.INT()))).build()
    message = b'{"a": 1, "s": {"x": 1, "x": 2}, "a": 3}'
    assert schema.deserialize(message) == Row(a=3, s=Row(x=2))
    batch = schema.deserialize_columns([message])
    assert batch is None or to_records(batch, schema.get_produced_type()) == [Row(a=3, s=Row(x=2))]


TWICE = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}, {"name": "a", "type": "string"}]}


@pytest.mark.parametrize(
    "definition",
    [
        TWICE,
        ["null", TWICE],
        {"type": "array", "items": TWICE},
        {"type": "map", "values": ["null", TWICE]},
        {"type": "record", "name": "outer", "fields": [{"name": "x", "type": TWICE}]},
    ],
)
def test_an_avro_schema_with_a_name_twice_is_refused(definition: Any) -> None:
    """By Avro's own libraries, too; fastavro reads the last."""
    with pytest.raises(ProgramError, match="2 fields of record 'r' have the name 'a'"):
        AvroSchema.parse_string(json.dumps(definition))


def test_an_avro_file_with_a_name_twice_is_damaged(tmp_path: Path) -> None:
    with (tmp_path / "a.avro").open("wb") as stream:
        fastavro.writer(stream, TWICE, [])
    with pytest.raises(MalformedDataError, match="2 fields of record 'r' have the name 'a'"):
        read_file(AvroFormat(), tmp_path / "a.avro")


def test_nanoseconds_inside_are_cut_to_microseconds() -> None:
    stored = pa.struct([("l", pa.list_(pa.timestamp("ns"))), ("m", pa.map_(pa.string(), pa.time64("ns")))])
    declared = pa.struct([("l", pa.list_(pa.timestamp("us"))), ("m", pa.map_(pa.string(), pa.time64("us")))])
    column = pa.array([{"l": [1999], "m": [("k", 2999)]}, None], stored)
    check_column("a", stored, declared)
    assert fitted("a", column, declared).to_pylist() == [
        {"l": [datetime(1970, 1, 1, 0, 0, 0, 1)], "m": [("k", time(0, 0, 0, 2))]}, None,
    ]  # fmt: skip


def splits_of(file_format: FileFormat, path: Path, *, watched: bool = False) -> list[Any]:
    if isinstance(file_format, BulkFormat):
        builder = FileSource.for_bulk_file_format(file_format, path)
    else:
        assert isinstance(file_format, StreamFormat)
        builder = FileSource.for_record_stream_format(file_format, path)
    config = builder.build()._config()
    enumerator = WatchedFilesEnumerator({**config, "interval_ms": 1}) if watched else FileEnumerator(config)
    enumerator.start()
    return enumerator.next_splits(0, 1)


SCHEMA = AvroSchema.parse_string('{"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}')
ROW = row_of(a=Types.INT())
COLUMNAR: Sequence[FileFormat] = (
    ParquetColumnarRowInputFormat(ROW), AvroParquetReaders.for_generic_record(SCHEMA), AvroFormat(SCHEMA), AvroFormat(),
)  # fmt: skip


@pytest.mark.parametrize("file_format", COLUMNAR)
def test_a_file_without_a_byte_is_damaged(tmp_path: Path, file_format: FileFormat) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (split,) = splits_of(file_format, tmp_path)
    with pytest.raises(MalformedDataError, match=r"empty, byte 0: no (file of Parquet|container file of Avro)"):
        read_split(file_format, split, MalformedRecords(), [10], [])
    skipping = MalformedRecords(MalformedPolicy.SKIP)
    assert read_split(file_format, split, skipping, [10], []) == []
    assert splits_of(file_format, tmp_path, watched=True) == [], "it may be written just now"


def test_an_empty_text_file_has_no_records(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    for file_format in (CsvReaderFormat.for_schema(CsvSchema(ROW)), StreamFormat.text_line_format()):
        assert splits_of(file_format, tmp_path) == []


def test_a_configuration_of_hadoop_is_taken(tmp_path: Path) -> None:
    """PyFlink's factories take a ``Configuration``."""
    configuration = Configuration()
    configuration.set_string("parquet.compression", "GZIP")
    ParquetColumnarRowInputFormat(ROW, hadoop_config=configuration)
    with (tmp_path / "a.parquet").open("wb") as stream:
        writer = ParquetBulkWriters.for_row_type(ROW, hadoop_config=configuration).create(stream)
        writer.write([Row(a=1)])
        writer.finish()
    assert pq.ParquetFile(tmp_path / "a.parquet").metadata.row_group(0).column(0).compression == "GZIP"
    with pytest.raises(TypeError, match="a Configuration or a dict, not str"):
        ParquetBulkWriters.for_row_type(ROW, hadoop_config="parquet.compression")


def test_objects_that_stand_for_folders_are_no_damaged_files(monkeypatch: pytest.MonkeyPatch) -> None:
    objects = [("s3://b/day/", 0), ("s3://b/day_$folder$", 0), ("s3://b/day/broken", 0), ("s3://b/day/a", 9)]
    enumerator = FileEnumerator({"paths": ["s3://b"], "empty_is_damaged": True})
    monkeypatch.setattr(enumerator, "_files", Objects(objects))
    assert [split.id for split in [*enumerator.next_splits(0, 1), *enumerator.next_splits(0, 1)]] == [
        "s3://b/day/broken:0", "s3://b/day/a:0",
    ]  # fmt: skip


class Objects:
    def __init__(self, objects: Sequence[tuple[str, int]]) -> None:
        self.objects = objects

    def of(self, path: str) -> Objects:
        return self

    def find(self, path: str, refused: Any) -> Sequence[tuple[str, int]]:
        return self.objects
