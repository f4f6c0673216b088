"""Each format gives each record exactly once, wherever files are cut and readers are stopped and continued."""

from __future__ import annotations

import bz2
import codecs
import gzip
import json
import lzma
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from firesteel.common.typeinfo import Types
from firesteel.common.types import Row
from firesteel.connectors.file_format import FileFormat, StreamFormat
from firesteel.connectors.formats.csv_files import CsvReaderFormat
from firesteel.connectors.formats.csv_schema import CsvSchema
from firesteel.connectors.formats.json_rows import JsonLinesFormat
from firesteel.connectors.formats.parquet_files import ParquetColumnarRowInputFormat
from firesteel.connectors.malformed import MalformedPolicy, MalformedRecords
from firesteel.core.errors import ProgramError
from firesteel.functions.source import Split, Wait
from firesteel.testing import check_source
from firesteel_formats.avro_files import AvroFormat
from firesteel_formats.avro_parquet import AvroParquetReaders
from firesteel_formats.avro_schema import AvroSchema
from tests.examples import examples
from tests.unit.connectors.reading import builder_of, read_file, read_split

ROW_TYPE = Types.ROW_NAMED(["id", "text"], [Types.LONG(), Types.STRING()])
AVRO = {
    "type": "record",
    "name": "Item",
    "fields": [{"name": "id", "type": "long"}, {"name": "text", "type": ["null", "string"]}],
}
CSV = CsvSchema.builder().add_number_column("id").add_string_column("text").set_null_value("NULL")
COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".deflate": zlib.compress,
    ".zst": lambda data: arrow_compressed(data, "zstd"),
    ".lz4": lambda data: arrow_compressed(data, "lz4"),
}


def arrow_compressed(data: bytes, codec: str) -> bytes:
    """In two parts, as when files are joined."""
    parts = []
    for part in (data[: len(data) // 2], data[len(data) // 2 :]):
        frame = pa.BufferOutputStream()
        with pa.CompressedOutputStream(frame, codec) as stream:
            stream.write(part)
        parts.append(frame.getvalue().to_pybytes())
    return b"".join(parts)


Items = list[tuple[int, str | None]]


def write_text(items: Items, path: Path, **_: Any) -> None:
    path.write_text("".join(f"{number}\t{text}\n" for number, text in items), newline="")


def write_json(items: Items, path: Path, **_: Any) -> None:
    path.write_text("".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in items))


def write_csv(items: Items, path: Path, **_: Any) -> None:
    def quoted(text: str | None) -> str:
        return "NULL" if text is None else '"' + text.replace('"', '""') + '"'

    path.write_text("id,text\n" + "".join(f"{i},{quoted(text)}\n" for i, text in items), newline="")


def write_avro(items: Items, path: Path, block: int = 3) -> None:
    with path.open("wb") as stream:
        records = [{"id": i, "text": text} for i, text in items]
        fastavro.writer(stream, AVRO, records, codec="deflate", sync_interval=block * 4)


def write_parquet(items: Items, path: Path, block: int = 3) -> None:
    columns = {"other": [0.5] * len(items), "text": [t for _, t in items], "id": [i for i, _ in items]}
    types = pa.schema([("other", pa.float64()), ("text", pa.string()), ("id", pa.int64())])
    pq.write_table(pa.table(columns, types), path, row_group_size=block)


def rows(items: Items) -> list[Any]:
    return [Row(id=i, text=text) for i, text in items]


def dicts(items: Items) -> list[Any]:
    return [{"id": i, "text": text} for i, text in items]


SCHEMA = AvroSchema(AVRO)
FORMATS: dict[str, tuple[FileFormat, Callable[..., None], Callable[[Items], list[Any]]]] = {
    "text": (StreamFormat.text_line_format(), write_text, lambda items: [f"{i}\t{text}" for i, text in items]),
    "text-column": (
        StreamFormat.text_line_format(column="line"),
        write_text,
        lambda items: [Row(line=f"{i}\t{text}") for i, text in items],
    ),
    "json": (JsonLinesFormat(ROW_TYPE), write_json, rows),
    "json-any": (JsonLinesFormat(), write_json, dicts),
    "csv": (CsvReaderFormat.for_schema(CSV.set_use_header().build()), write_csv, rows),
    "csv-lines": (CsvReaderFormat.for_schema(CSV.build()).rows_are_lines(), write_csv, rows),
    "avro": (AvroFormat(), write_avro, dicts),
    "avro-schema": (AvroFormat(SCHEMA), write_avro, dicts),
    "parquet": (ParquetColumnarRowInputFormat(ROW_TYPE, batch_size=4), write_parquet, rows),
    "parquet-avro": (AvroParquetReaders.for_generic_record(SCHEMA), write_parquet, dicts),
}
ANY_TEXT = st.none() | st.text(st.characters(codec="utf-8"))


def no_null(text: str | None) -> bool:
    """Quoted or not, the text of the null literal is null."""
    return text != "NULL"


TEXTS = {
    "text": st.text(st.characters(blacklist_characters="\n\r", codec="utf-8")),
    "text-column": st.text(st.characters(blacklist_characters="\n\r", codec="utf-8")),
    "csv": ANY_TEXT.filter(no_null),
    "csv-lines": (st.none() | st.text(st.characters(blacklist_characters="\n\r", codec="utf-8"))).filter(no_null),
}
IDS = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=examples(30), deadline=None)
@given(data=st.data())
def test_random_cuts_and_restarts_give_each_record_once(name: str, data: st.DataObject) -> None:
    file_format, write, expected = FORMATS[name]
    items = data.draw(st.lists(st.tuples(IDS, TEXTS.get(name, ANY_TEXT)), max_size=25))
    block = data.draw(st.integers(1, 10))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "items"
        write(items, path, block=block)
        if name in ("text", "text-column", "json", "csv", "csv-lines") and data.draw(st.booleans()):
            path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
        size = path.stat().st_size
        cuts = data.draw(st.lists(st.integers(0, size), max_size=6)) if file_format.splittable else []
        sizes = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
        restarts = data.draw(st.lists(st.integers(0, 20), max_size=5))
        assert read_file(file_format, path, cuts, sizes=sizes, restarts=restarts) == expected(items)


@pytest.mark.parametrize("name", ["text", "text-column", "json", "csv", "csv-lines"])
@pytest.mark.parametrize("ending", COMPRESSIONS)
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_compressed_files_of_lines(name: str, ending: str, data: st.DataObject) -> None:
    file_format, write, expected = FORMATS[name]
    items = data.draw(st.lists(st.tuples(IDS, TEXTS.get(name, ANY_TEXT)), max_size=25))
    restarts = data.draw(st.lists(st.integers(0, 20), max_size=5))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"items{ending}"
        write(items, path)
        mark = data.draw(st.sampled_from([b"", codecs.BOM_UTF8]))
        path.write_bytes(COMPRESSIONS[ending](mark + path.read_bytes()))
        assert read_file(file_format, path, sizes=[3], restarts=restarts) == expected(items)


@pytest.mark.parametrize("name", FORMATS)
def test_the_source_contract(name: str, tmp_path: Path) -> None:
    file_format, write, expected = FORMATS[name]
    all_items: Items = []
    for number, count in enumerate((7, 0, 20)):
        items: Items = [
            (100 * number + i, None if i % 3 == 0 and not name.startswith("text") else "x" * i) for i in range(count)
        ]
        write(items, tmp_path / f"{number}")
        all_items += items

    def make() -> Any:
        return builder_of(file_format, tmp_path).set_split_size(60).build()

    check_source(make, expected(all_items), parallelisms=(1, 3), batch_sizes=(1, 1000))


@pytest.mark.parametrize(
    ("charset", "mark"),
    [
        ("UTF-8", b"\xef\xbb\xbf"),
        ("utf-8-sig", b"\xef\xbb\xbf"),
        ("gb18030", b"\x84\x31\x95\x33"),
        ("latin-1", b""),
        ("ascii", b""),
    ],
)
def test_a_byte_order_mark_is_part_of_no_line(charset: str, mark: bytes, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(mark + b"one\ntwo\n")
    (tmp_path / "c").write_bytes(mark)
    file_format = StreamFormat.text_line_format(charset)
    for name in ("a", "b"):
        for cuts in ([], [1], [2, 3], [len(mark) + 4]):
            assert read_file(file_format, tmp_path / name, cuts) == ["one", "two"]
    assert not mark or read_file(file_format, tmp_path / "c") == []


def test_other_charsets_keep_what_is_no_mark_of_theirs(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"\xef\xbb\xbfone\n\xff\xfe\n")
    assert read_file(StreamFormat.text_line_format("latin-1"), path) == ["ï»¿one", "ÿþ"]


ODD = [b"a", b"\r", b"\n", b"\r\n", b"\xc3\xbc", b"\xff", b"\xc3", b"\xed\xa0\x80"]


@pytest.mark.parametrize("charset", ["UTF-8", "latin-1", "ascii", "gb18030", "utf-7"])
@settings(max_examples=examples(40), deadline=None)
@given(parts=st.lists(st.sampled_from(ODD)), data=st.data())
@example(parts=[b"\r"], data=None)
@example(parts=[b"a", b"\r", b"\r\n", b"b\r"], data=None)
@example(parts=[b"+2AA-", b"\n", b"a"], data=None)
def test_lines_in_a_column_are_the_lines_whatever_bytes_they_are(charset: str, parts: list[bytes], data: Any) -> None:
    content = b"".join(parts)
    cuts = [] if data is None else data.draw(st.lists(st.integers(0, len(content)), max_size=3))
    as_column = StreamFormat.text_line_format(charset, column="line")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "items"
        path.write_bytes(content)
        lines = read_file(StreamFormat.text_line_format(charset), path, cuts)
        expected = [Row(line=line.encode("utf-8", "replace").decode()) for line in lines]
        assert read_file(as_column, path, cuts, sizes=[1, 3]) == expected
        assert read_file(as_column, path, cuts, policy=MalformedPolicy.EMIT, sizes=[2]) == [Row(line=x) for x in lines]


def test_a_position_among_lines_holds_for_lines_in_a_column(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"".join(b"%d %s\r\n" % (number, b"x" * (number % 90)) for number in range(30_000)))
    split = Split("a", {"path": str(path), "start": 0, "end": path.stat().st_size})
    plain, column = StreamFormat.text_line_format(), StreamFormat.text_line_format(column="line")
    every = read_file(plain, path)
    for first, other in ((plain, column), (column, plain)):
        for reads in (1, 20, 29):
            cursor = first.open_cursor(split, MalformedRecords())
            count, position = 0, split.position
            for _ in range(reads):
                chunk = cursor.read(1000)
                assert not isinstance(chunk, Wait)
                count, position = count + len(chunk.values), chunk.position
            cursor.close()
            rest = read_split(other, split.at(position), MalformedRecords(), [999], [3])
            assert [row if other is plain else row[0] for row in rest] == every[count:]


@pytest.mark.parametrize("column", ["", 1, b"line"])
def test_the_name_of_a_column_of_lines_is_text(column: Any) -> None:
    with pytest.raises(ProgramError, match="the name of a column is a str that is not empty"):
        StreamFormat.text_line_format(column=column)


def test_lines_in_a_column_make_no_object_for_a_line(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\ntwo\n")
    split = Split("a", {"path": str(tmp_path / "a"), "start": 0, "end": 8})
    cursor = StreamFormat.text_line_format(column="line").open_cursor(split, MalformedRecords())
    chunk = cursor.read(10)
    assert not isinstance(chunk, Wait)
    assert isinstance(chunk.values, pa.RecordBatch)
    assert chunk.values.to_pydict() == {"line": ["one", "two"]}
    cursor.close()


def test_blocks_larger_than_what_is_read_at_once(tmp_path: Path) -> None:
    lines = [json.dumps({"id": i, "text": str(i) * 20_000}) for i in range(40)]
    path = tmp_path / "large"
    path.write_text("\n".join(lines))
    records = read_file(JsonLinesFormat(ROW_TYPE), path, [99_999, 100_000, 700_000], sizes=[2], restarts=range(50))
    assert [record.id for record in records] == list(range(40))


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
def test_compressed_avro(codec: str, tmp_path: Path) -> None:
    items: Items = [(i, "x" * 100) for i in range(50)]
    path = tmp_path / "a.avro"
    with path.open("wb") as stream:
        fastavro.writer(stream, AVRO, dicts(items), codec=codec, sync_interval=500)
    assert read_file(AvroFormat(), path, range(0, 5000, 100)) == dicts(items)


@pytest.mark.parametrize("codec", ["snappy", "zstandard"])
def test_avro_blocks_of_other_programs(codec: str, tmp_path: Path) -> None:
    """The blocks are made by hand, as the format's description says."""
    path = tmp_path / "a.avro"
    with path.open("wb") as stream:
        fastavro.writer(stream, AVRO, dicts([(1, "one"), (2, None)]), codec="null")
    data = path.read_bytes()
    marker = data[-16:]
    head = data[: data.index(marker) + 16]
    block = data[len(head) : -16]
    count, size, body = block[:1], block[1] // 2, block[2:]
    assert len(body) == size
    if codec == "snappy":
        packed = pa.compress(body, codec="snappy", asbytes=True) + zlib.crc32(body).to_bytes(4, "big")
    else:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(body)
        packed = sink.getvalue().to_pybytes()
    name = bytes([len(codec) * 2]) + codec.encode()
    head = head.replace(b"\x14avro.codec\x08null", b"\x14avro.codec" + name)
    assert codec.encode() in head
    path.write_bytes(head + count + bytes([len(packed) * 2]) + packed + marker)
    assert read_file(AvroFormat(), path) == dicts([(1, "one"), (2, None)])
