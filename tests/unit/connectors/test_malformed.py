"""What can't be read: an error that says where and why, a counted skip, or a record of its own. Never nothing."""

from __future__ import annotations

import csv
import gzip
import json
import logging
import pickle
import re
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firesteel.common.typeinfo import Types
from firesteel.common.types import Row
from firesteel.connectors.file_format import FileFormat, StreamFormat
from firesteel.connectors.formats.csv_files import CsvReaderFormat
from firesteel.connectors.formats.csv_schema import CsvSchema, CsvSchemaBuilder
from firesteel.connectors.formats.json_rows import JsonLinesFormat
from firesteel.connectors.formats.parquet_files import ParquetColumnarRowInputFormat
from firesteel.connectors.malformed import MalformedPolicy, MalformedRecord, MalformedRecords
from firesteel.core.errors import MalformedDataError, ProgramError
from firesteel.functions.source import Split
from firesteel.testing import check_source
from firesteel_formats.avro_files import AvroFormat
from firesteel_formats.avro_schema import AvroSchema
from tests.unit.connectors.reading import builder_of, read_file, read_split

SKIP, EMIT = MalformedPolicy.SKIP, MalformedPolicy.EMIT
JSON = JsonLinesFormat(Types.ROW_NAMED(["id", "price"], [Types.INT(), Types.DOUBLE()]), fail_on_missing_field=True)


def columns() -> CsvSchemaBuilder:
    return CsvSchema.builder().add_number_column("id", Types.INT()).add_string_column("name")


CSV = CsvReaderFormat.for_schema(columns().build())
LINES = StreamFormat.text_line_format()
COLUMN = StreamFormat.text_line_format(column="line")


def fails(file_format: FileFormat, path: Path, cuts: Any = ()) -> MalformedDataError:
    with pytest.raises(MalformedDataError) as caught:
        read_file(file_format, path, cuts)
    assert caught.value.path == str(path)
    assert str(path) in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.line, again.offset) == (str(caught.value), caught.value.line, caught.value.offset)
    return caught.value


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"id": 2, "price": ', "Expecting value"),
        ('{"id": 2}', "field 'price': the field is missing"),
        ('{"id": "x", "price": 1.0}', "field 'id': 'x' is no whole number"),
        ('{"id": 3000000000, "price": 1}', "field 'id': 3000000000 does not fit 32 bits"),
        ('{"id": 1.5, "price": 1}', "field 'id': an integer is expected, not 1.5"),
        ('{"id": 1, "price": true}', "field 'price': a number is expected, not True"),
        ('{"id": 1, "price": NaN}', "NaN is not JSON"),
        ("[1, 2.0]", "an object is expected"),
        ("null", "null is no row"),
        ("{} {}", "Extra data"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_json_lines(line: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(f'{{"id": 1, "price": 0.5}}\n\n{line}\n{{"id": 4, "price": 1}}\n')
    error = fails(JSON, path)
    assert (error.line, error.offset) == (3, 25)
    assert reason in error.reason
    good = [Row(id=1, price=0.5), Row(id=4, price=1.0)]
    assert read_file(JSON, path, policy=SKIP) == good
    first, bad, second = read_file(JSON, path, [5, 30], policy=EMIT)
    assert [first, second] == good
    assert isinstance(bad, MalformedRecord)
    assert (bad.path, bad.offset, bad.data) == (str(path), 25, line.encode()[:1000])
    assert reason in bad.reason


def test_bytes_that_are_no_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b'{"id": 1, "price": 1}\n{"id": \xff}\n')
    assert "utf-8" in fails(JSON, path).reason
    path.write_bytes(b"1,a\n2,\xff\n3,c\n")
    assert fails(CSV, path).line == 2
    assert read_file(CSV, path, policy=SKIP) == [Row(id=1, name="a"), Row(id=3, name="c")]
    assert read_file(StreamFormat.text_line_format(), path) == ["1,a", "2,\ufffd", "3,c"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("2", "1 fields for 2 columns"),
        ("2,b,c", "3 fields for 2 columns"),
        ("x,b", "column 'id': 'x' is no whole number"),
        ("9999999999,b", "column 'id': 9999999999 does not fit 32 bits"),
        ('2,"b"c', "',' expected after '\"'"),
        ('2,"b', "unexpected end of data"),
    ],
)
@pytest.mark.parametrize("one_line", [False, True])
def test_csv(line: str, reason: str, one_line: bool, tmp_path: Path) -> None:
    file_format = CSV.rows_are_lines() if one_line else CSV
    path = tmp_path / "a.csv"
    path.write_text(f"1,a\n\n{line}\n4,d\n5,e\n")
    error = fails(file_format, path)
    assert (error.line, error.offset) == (3, 5)
    assert reason in error.reason
    good = [Row(id=1, name="a"), Row(id=4, name="d"), Row(id=5, name="e")]
    for sizes in ([1], [100]):
        assert read_file(file_format, path, policy=SKIP, sizes=sizes, restarts=range(5)) == good
    cuts = [2, 6, 10] if one_line else []
    records = read_file(file_format, path, cuts, policy=EMIT, sizes=[1])
    bad = [record for record in records if isinstance(record, MalformedRecord)]
    assert [(record.offset, record.data) for record in bad] == [(5, line.encode())]
    assert [record for record in records if record not in bad] == good


def test_an_open_quote_costs_its_line_only(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('1,"a\n' + "".join(f"{i},{'x' * 100}\n" for i in range(2, 2000)))
    records = read_file(CSV, path, policy=EMIT, sizes=[100], restarts=[0, 3])
    assert isinstance(records[0], MalformedRecord)
    assert [record.id for record in records[1:]] == list(range(2, 2000))


def test_a_field_that_is_longer_than_python_reads_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"1,{'x' * 200_000}\n")
    assert "can raise it with csv.field_size_limit()" in fails(CSV, path).reason
    limit = csv.field_size_limit(300_000)
    try:
        assert [len(row.name) for row in read_file(CSV, path)] == [200_000]
    finally:
        csv.field_size_limit(limit)


def test_header_of_csv(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("#comment\nname, other ,id\nnot,a,row\na,,1\n#2\nb,x,2\n")
    schema = columns().set_use_header().set_skip_first_data_row().set_allow_comments()
    good = [Row(id=1, name="a"), Row(id=2, name="b")]
    for file_format in (
        CsvReaderFormat.for_schema(schema.build()),
        CsvReaderFormat.for_schema(schema.build()).rows_are_lines(),
    ):
        cuts = range(0, 60, 3) if file_format.splittable else ()
        assert read_file(file_format, path, cuts, sizes=[1], restarts=range(5)) == good
    strict = CsvReaderFormat.for_schema(schema.set_strict_headers().build())
    assert "the header names the columns name, other, id, not id, name" in fails(strict, path).reason
    path.write_text("name,number\na,1\n")
    error = fails(CsvReaderFormat.for_schema(columns().set_use_header().build()).rows_are_lines(), path, [3])
    assert "id not there, and name in another place" in error.reason
    assert error.line == 1
    lines = CsvReaderFormat.for_schema(columns().set_use_header().build()).rows_are_lines()
    assert len(read_file(lines, path, [3, 7], policy=EMIT)) == 1
    path.write_text("id,nom,more\n1,a,b\n")
    assert "more columns than in the schema" in fails(lines, path).reason


@pytest.mark.parametrize("header", ["number,name", "Id,NAME", "id,nom", "x,y", "id", '"", ""'])
@pytest.mark.parametrize("text", ["b", '"b\n"'])
def test_a_header_with_other_names_goes_by_position(header: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(f"\ufeff{header}\n1,a\n2,{text}\n".encode())
    file_format = CsvReaderFormat.for_schema(columns().set_use_header().build())
    assert read_file(file_format, path) == [Row(id=1, name="a"), Row(id=2, name=text.strip('"'))]
    strict = CsvReaderFormat.for_schema(columns().set_use_header().set_strict_headers().build())
    assert fails(strict, path).reason.startswith("the header names the columns")


@pytest.mark.parametrize("file_format", [StreamFormat.text_line_format(), CSV])
def test_a_compressed_file_that_ends_too_early(file_format: FileFormat, tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    data = gzip.compress("".join(f"{i},{i * 7919 % 10007}\n" for i in range(120_000)).encode())
    path.write_bytes(data[: len(data) // 2])
    assert "damaged or end too early" in fails(file_format, path).reason
    records = read_file(file_format, path, policy=EMIT, sizes=[1000])
    assert isinstance(records.pop(), MalformedRecord)
    ids = [int(r.split(",")[0]) if isinstance(r, str) else r.id for r in records]
    assert ids == list(range(len(ids)))
    assert len(ids) > 20_000
    assert len(read_file(file_format, path, policy=SKIP, sizes=[999], restarts=[3])) == len(ids)


SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}, {"name": "t", "type": "string"}]}


def avro_blocks(path: Path, count: int = 5) -> list[int]:
    """A file of blocks with four records each; where the blocks begin."""
    with path.open("wb") as stream:
        writer: Any = fastavro.write.Writer(stream, SCHEMA, sync_interval=10**9)
        begins = []
        for block in range(count):
            writer.flush()
            begins.append(stream.tell())
            for i in range(4):
                writer.write({"id": 4 * block + i, "t": "text"})
        writer.flush()
    return begins


@pytest.mark.parametrize("damage", ["data", "count", "marker", "end"])
@pytest.mark.parametrize("cut", [False, True])
def test_avro_blocks(damage: str, cut: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.avro"
    begins = avro_blocks(path)
    data = bytearray(path.read_bytes())
    lost = {4, 5, 6, 7}
    if damage == "data":
        data[begins[1] + 3] = 0xFF  # the length of the first text
        data[begins[1] + 4] = 0xFF
    elif damage == "count":
        data[begins[1]] = 2
    elif damage == "marker":
        data[begins[2] - 1] ^= 0xFF
        lost |= {8, 9, 10, 11}
    else:
        data = data[: begins[4] + 9]
        lost = {16, 17, 18, 19}
    path.write_bytes(data)
    cuts = range(10, len(data), 7) if cut else ()
    at = begins[4] if damage == "end" else begins[1]
    assert fails(AvroFormat(), path, cuts).offset == at
    good = [i for i in range(20) if i not in lost]
    assert [r["id"] for r in read_file(AvroFormat(), path, cuts, policy=SKIP, sizes=[3], restarts=range(20))] == good
    records = read_file(AvroFormat(), path, cuts, policy=EMIT)
    bad = [r for r in records if isinstance(r, MalformedRecord)]
    assert [r.offset for r in bad] == [at]
    assert "it is left out up to" in bad[0].reason


def test_files_that_are_not_of_the_format(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"this is text and nothing else")
    assert "no container file of Avro" in fails(AvroFormat(), path, [10, 20]).reason
    assert len(read_file(AvroFormat(), path, [10, 20], policy=EMIT)) == 1
    parquet = ParquetColumnarRowInputFormat(Types.ROW_NAMED(["a"], [Types.INT()]))
    assert "no file of Parquet" in fails(parquet, path, [10, 20]).reason
    assert len(read_file(parquet, path, [10, 20], policy=EMIT)) == 1


def test_parquet_row_groups(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"id": list(range(400)), "text": [f"text {i}" for i in range(400)]})
    pq.write_table(table, path, row_group_size=100, compression="snappy", use_dictionary=False)
    metadata = pq.ParquetFile(path).metadata
    begin = metadata.row_group(1).column(1).data_page_offset
    data = bytearray(path.read_bytes())
    data[begin : begin + 60] = b"\xff" * 60
    path.write_bytes(data)
    file_format = ParquetColumnarRowInputFormat(Types.ROW_NAMED(["id", "text"], [Types.INT(), Types.STRING()]))
    error = fails(file_format, path, [500, 2000])
    assert "row group 1: 100 of its 100 rows can't be read" in error.reason
    good = [*range(100), *range(200, 400)]
    records = read_file(file_format, path, [500, 2000], policy=SKIP, sizes=[30], restarts=range(20))
    assert [r.id for r in records] == good
    with_bad = read_file(file_format, path, policy=EMIT)
    assert len(with_bad) == 301
    split = Split("0", {"path": str(path), "start": 0, "end": path.stat().st_size})
    cursor = file_format.open_cursor(split, MalformedRecords(EMIT))
    assert cursor.read(3).values == with_bad[:3]  # type: ignore[union-attr] # rows, since the source's type is any
    cursor.close()
    only_ids = ParquetColumnarRowInputFormat(Types.ROW_NAMED(["id"], [Types.LONG()]))
    assert len(read_file(only_ids, path)) == 400, "columns that are not wanted are not read"
    wrong = ParquetColumnarRowInputFormat(Types.ROW_NAMED(["text"], [Types.INT()]))
    assert "column 'text' is string, not int32" in fails(wrong, path).reason


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: data[: len(data) // 2], "Parquet magic bytes not found in footer"),
        (lambda data: data[:3], "file size is 3 bytes"),
        (lambda data: data[:-4] + b"XXXX", "Parquet magic bytes not found in footer"),
        (lambda data: data[:-8] + b"\xff\xff\xff\x7f" + data[-4:], "smaller than the size reported by footer"),
        (lambda data: data[:-60] + b"\xff" * 40 + data[-20:], "Couldn't deserialize thrift"),
    ],
)
def test_files_of_parquet_that_can_not_be_opened(damage: Any, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": list(range(1000))}), path, row_group_size=100)
    path.write_bytes(damage(path.read_bytes()))
    file_format = ParquetColumnarRowInputFormat(Types.ROW_NAMED(["id"], [Types.INT()]))
    error = fails(file_format, path)
    assert (error.offset, reason in error.reason) == (0, True)
    assert "no file of Parquet that can be read" in error.reason
    assert read_file(file_format, path, policy=SKIP) == []
    (bad,) = read_file(file_format, path, policy=EMIT)
    assert (bad.path, bad.offset, reason in bad.reason) == (str(path), 0, True)


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (pa.array(["x"] * 5), "its columns can't be read: column 'id' is string, not int32"),
        (pa.array([[1]] * 5), "its columns can't be read: column 'id' is list<element: int64>, not int32"),
        (
            pa.array([1 << 40] * 5),
            "row group 0: 5 of its 5 rows can't be read: column 'id' is int64, not int32: Integer value 1099511627776 "
            "not in range",
        ),
        (pa.array([1.5] * 5), "its columns can't be read: column 'id' is double, not int32"),
    ],
)
def test_columns_of_parquet_of_another_type(column: Any, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": column}), path)
    file_format = ParquetColumnarRowInputFormat(Types.ROW_NAMED(["id"], [Types.INT()]))
    error = fails(file_format, path)
    assert reason in error.reason
    assert read_file(file_format, path, policy=SKIP) == []
    assert [reason in bad.reason for bad in read_file(file_format, path, policy=EMIT)] == [True]


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz", "snappy", "zstandard"])
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data, codec: data.replace(codec, b"x" * len(codec), 1), "the compression 'xx"),
        (lambda data, codec: data[:30], "no container file of Avro"),
        (lambda data, codec: b"Obj\x02" + data[4:], "it does not begin with Obj and 1"),
        (lambda data, codec: data[:-3], "the file ends inside a block"),
        (lambda data, codec: data[:-16] + b"0" * 16, "the marker behind the block is not that of the file"),
        (lambda data, codec: data.replace(b'"record"', b'"recorx"', 1), "no container file of Avro"),
    ],
)
def test_container_files_of_avro_that_are_damaged(damage: Any, reason: str, codec: str, tmp_path: Path) -> None:
    path = tmp_path / "a.avro"
    with path.open("wb") as stream:
        fastavro.writer(stream, SCHEMA, [{"id": number, "t": "text"} for number in range(100)], codec=codec)
    path.write_bytes(damage(path.read_bytes(), codec.encode()))
    assert reason in fails(AvroFormat(), path).reason
    assert read_file(AvroFormat(), path, policy=SKIP) == []
    assert [reason in bad.reason for bad in read_file(AvroFormat(), path, policy=EMIT)] == [True]


@pytest.mark.parametrize("codec", ["deflate", "bzip2", "xz", "snappy", "zstandard"])
def test_compressed_blocks_of_avro_that_are_damaged(codec: str, tmp_path: Path) -> None:
    path = tmp_path / "a.avro"
    with path.open("wb") as stream:
        writer: Any = fastavro.write.Writer(stream, SCHEMA, codec=codec, sync_interval=10**9)
        begins = []
        for block in range(3):
            writer.flush()
            begins.append(stream.tell())
            for number in range(100):
                writer.write({"id": 100 * block + number, "t": "text"})
        writer.flush()
    data = bytearray(path.read_bytes())
    place = begins[1] + 14
    data[place] ^= 0xFF
    path.write_bytes(data)
    assert fails(AvroFormat(), path).offset == begins[1]
    records = read_file(AvroFormat(), path, range(10, len(data), 97), policy=SKIP)
    assert [record["id"] for record in records] == [*range(100), *range(200, 300)]


def test_blocks_of_snappy_have_a_checksum(tmp_path: Path) -> None:
    path = tmp_path / "a.avro"
    with path.open("wb") as stream:
        fastavro.writer(stream, SCHEMA, [{"id": 1, "t": "text"}], codec="snappy")
    path.write_bytes(path.read_bytes().replace(b"text", b"tuxt"))
    assert "the checksum of the block is wrong" in fails(AvroFormat(), path).reason


def test_a_compression_that_is_not_installed_is_no_fault_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.avro"
    avro_blocks(path)

    def missing(*args: Any) -> Any:
        raise ValueError("zstandard codec is supported but you need to install something")

    monkeypatch.setitem(fastavro.read.BLOCK_READERS, "null", missing)
    with pytest.raises(ProgramError, match="need to install something: pip install"):
        read_file(AvroFormat(), path, policy=SKIP)


def test_avro_that_does_not_fit_the_schema(tmp_path: Path) -> None:
    path = tmp_path / "a.avro"
    avro_blocks(path, 1)
    other = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "string"}]}
    error = fails(AvroFormat(AvroSchema.parse_string(json.dumps(other))), path)
    assert "record 1 of the block's 4 can't be read: SchemaResolutionError" in error.reason


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz", ".zst", ".lz4", ".deflate"])
@pytest.mark.parametrize("file_format", [StreamFormat.text_line_format(), CSV, JSON])
def test_files_that_are_not_compressed_as_they_are_called(file_format: FileFormat, ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{ending}"
    path.write_bytes(b"this is text and nothing else")
    assert "the compressed data are damaged or end too early" in fails(file_format, path).reason
    assert read_file(file_format, path, policy=SKIP) == []
    assert [type(bad) for bad in read_file(file_format, path, policy=EMIT)] == [MalformedRecord]


LINES_OF_JSON = '{"id": 1, "price": 1}\n{"id": 2, "price": 2}\n'
TEXTS = [(CSV, "1,a\n2,b\n"), (JSON, LINES_OF_JSON), (LINES, "é\nb\n"), (COLUMN, "é\nb\n")]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize(("file_format", "text"), TEXTS)
def test_files_of_other_encodings_are_named(file_format: FileFormat, text: str, encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(("\ufeff" + text).encode(encoding))
    error = fails(file_format, path)
    assert (error.reason, error.offset) == ("the file begins as UTF-16 or UTF-32: write it as UTF-8", 0)
    assert read_file(file_format, path, policy=SKIP) == []
    assert [type(bad) for bad in read_file(file_format, path, policy=EMIT)] == [MalformedRecord]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a.zip", "zip"), ("a.csv.SNAPPY", "Snappy"), ("a.tar", "tar"), ("a.tar.gz", "tar"), ("a.br", "Br")],
)
@pytest.mark.parametrize(
    "file_format", [LINES, COLUMN, CSV, CsvReaderFormat.for_schema(columns().set_use_header().build()), JSON]
)
def test_files_of_a_kind_that_holds_no_records_are_named(
    file_format: FileFormat, name: str, kind: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(b"1,a\n2,b\n")
    assert re.match(rf"files of the kind {kind}.* can't be read: .*\.zst", fails(file_format, path).reason)
    malformed = MalformedRecords(SKIP)
    assert read_split(file_format, Split("a", {"path": str(path), "start": 0, "end": 8}), malformed, [3], []) == []
    assert malformed.count == 1
    assert [type(bad) for bad in read_file(file_format, path, policy=EMIT)] == [MalformedRecord]


def test_skips_are_counted_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.json"
    path.write_text("bad\n" * 20)
    malformed = MalformedRecords(SKIP)
    split = Split("a", {"path": str(path), "start": 0, "end": 80})
    with caplog.at_level(logging.WARNING):
        assert read_split(JSON, split, malformed, [3], []) == []
    assert malformed.count == 20
    counts = [record.args[0] for record in caplog.records if isinstance(record.args, tuple)]
    assert counts == [1, 2, 4, 8, 16]
    assert f"{path}, byte 0: Expecting value" in caplog.text


def test_the_contract_holds_with_malformed_lines(tmp_path: Path) -> None:
    text = "".join(json.dumps({"id": i, "price": i / 2}) + "\nbad\n" for i in range(20))
    (tmp_path / "a").write_text(text)
    good = [Row(id=i, price=i / 2) for i in range(20)]

    def make(policy: MalformedPolicy) -> Any:
        return builder_of(JSON, tmp_path).set_split_size(100).on_malformed(policy).build()

    check_source(lambda: make(SKIP), good, parallelisms=(1, 3), batch_sizes=(1, 7))
    offsets = [i for i in range(len(text)) if text.startswith("\nbad", i)]
    bad = [MalformedRecord(str(tmp_path / "a"), i + 1, _reason(), b"bad") for i in offsets]
    check_source(lambda: make(EMIT), good + bad, parallelisms=(1, 3), batch_sizes=(1, 7))
    assert make(EMIT).produced_type() is None


def _reason() -> str:
    try:
        json.loads("bad")
    except ValueError as error:
        return str(error)
    raise AssertionError
