"""The file source in an object store: which objects there are, and that each record of them is read once."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from urllib3.exceptions import NewConnectionError

from firesteel.common.time import Time
from firesteel.common.typeinfo import Types
from firesteel.common.types import Row
from firesteel.config import Settings
from firesteel.connectors.file_format import StreamFormat
from firesteel.connectors.file_source import FileSource
from firesteel.connectors.filesystems.file_system import FileSystems
from firesteel.connectors.formats.csv_files import CsvReaderFormat
from firesteel.connectors.formats.csv_schema import CsvSchema
from firesteel.connectors.formats.parquet_files import ParquetColumnarRowInputFormat
from firesteel.connectors.malformed import MalformedRecords
from firesteel.core.errors import FileSystemError, ProgramError
from firesteel.functions.source import ReaderContext, Split, SplitEnumeratorContext
from firesteel.testing import check_source
from firesteel.testing.clock import ManualClock
from firesteel_s3 import client as s3_client
from tests.unit.checkpoint.fake_s3 import FakeStore, Request

SETTINGS = {"s3.endpoint": "http://store:9000", "s3.access-key": "user", "s3.secret-key": "password"}
KEYS = [
    "in/2026-01/a.csv", "in/2026-01/_SUCCESS", "in/2026-01/.hidden", "in/2026-02/deep/er/b.csv", "in/2026-02/b.txt",
    "in/_tmp/c.csv", "in/folder/", "in", "into", "other/in/2026-01/a.csv", "in/2025-12/a.csv",
]  # fmt: skip


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> FakeStore:
    store = FakeStore()
    monkeypatch.setattr(s3_client, "PoolManager", store.pool)
    client, clock = s3_client.S3Client.__init__, ManualClock()
    monkeypatch.setattr(
        s3_client.S3Client, "__init__", lambda self, settings: client(self, settings, clock, clock.advance)
    )
    for context in (ReaderContext, SplitEnumeratorContext):
        monkeypatch.setattr(context, "settings", property(lambda self: Settings(SETTINGS)))
    return store


def listed_paths(path: str) -> list[str]:
    system = FileSystems(Settings(SETTINGS)).of(path)
    return [uri.removeprefix("s3://bucket/") for uri, _ in system.find(path, lambda error: None)]


@pytest.mark.parametrize(
    ("path", "keys"),
    [
        (
            "s3://bucket/in",
            ["in", "in/2025-12/a.csv", "in/2026-01/a.csv", "in/2026-02/b.txt", "in/2026-02/deep/er/b.csv"],
        ),
        ("s3://bucket/in/2026-01/a.csv", ["in/2026-01/a.csv"]),
        ("s3://bucket/in/2026-*/*.csv", ["in/2026-01/a.csv"]),
        ("s3://bucket/in/2026-*", ["in/2026-01/a.csv", "in/2026-02/b.txt", "in/2026-02/deep/er/b.csv"]),
        ("s3://bucket/in/**/*.csv", ["in/2025-12/a.csv", "in/2026-01/a.csv", "in/2026-02/deep/er/b.csv"]),
        ("s3://bucket/in/202[56]-?[12]/a.csv", ["in/2025-12/a.csv", "in/2026-01/a.csv"]),
        ("s3://bucket/in/_*/*.csv", ["in/_tmp/c.csv"]),
        ("s3://bucket/*/in/**", ["other/in/2026-01/a.csv"]),
        ("s3://bucket/nothing", []),
    ],
)
def test_paths_mean_what_they_mean_on_a_disk(path: str, keys: list[str], store: FakeStore) -> None:
    store.page = 2
    store.objects["bucket"] = {key: b"x" for key in KEYS}
    assert listed_paths(path) == keys


def test_a_listing_asks_behind_the_first_wildcard_only(store: FakeStore) -> None:
    listed_paths("s3://bucket/in/2026-*/*.csv")
    assert [request.query["prefix"] for request in store.requests] == ["in/2026-"]


LINES = [f"line {number}" for number in range(2000)]


def plain() -> Iterator[tuple[str, bytes]]:
    data = [f"{line}\n".encode() for line in LINES]
    yield "in/a.log", b"".join(data[:1000])
    yield "in/deep/b.log", b"".join(data[1000:1500])
    yield "in/c.log.gz", gzip.compress(b"".join(data[1500:]))


def source() -> FileSource:
    builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "s3://bucket/in").set_split_size(700)
    return builder.build()


def test_the_contract_is_kept(store: FakeStore) -> None:
    store.objects["bucket"].update(plain())
    assert source().enumerator() is None, "coordinators have no credentials, and do not wait"
    check_source(source, sorted(LINES))


def test_parquet_is_read_by_the_columns_that_are_wanted(store: FakeStore) -> None:
    count = 200_000
    table = pa.table({"n": range(count), "text": [f"{number:0100d}" for number in range(count)]})
    data = io.BytesIO()
    pq.write_table(table, data, row_group_size=50_000, compression="NONE", use_dictionary=False)
    store.objects["bucket"]["in/a.parquet"] = data.getvalue()
    rows = Types.ROW_NAMED(["n", "text"], [Types.LONG(), Types.STRING()])
    source = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(rows), "s3://bucket/in").build()
    narrow = source.with_columns(["n"])
    assert narrow is not None
    seen: list[int] = []

    reads = narrow._format
    reads.files = FileSystems(Settings(SETTINGS))
    size = len(data.getvalue())
    for start, end in ((0, size // 2), (size // 2, size)):
        split = Split("s", {"path": "s3://bucket/in/a.parquet", "start": start, "end": end})
        cursor = reads.open_cursor(split, MalformedRecords())
        while True:
            chunk: Any = cursor.read(10_000)
            if len(chunk.values):
                seen += chunk.values.column("n").to_pylist()
            if chunk.finished:
                break
        cursor.close()
    assert seen == list(range(count))
    fetched = 0
    for request in store.requests:
        if request.verb == "GET" and "range" in request.headers:
            first, _, last = request.headers["range"].removeprefix("bytes=").partition("-")
            fetched += min(int(last), size) - int(first) + 1
    assert fetched < size / 3, "the texts are left where they are"


def test_csv_with_a_header(store: FakeStore) -> None:
    store.objects["bucket"]["in/a.csv"] = b"n,text\n" + b"".join(b"%d,t%d\n" % (n, n) for n in range(500))
    schema = CsvSchema.builder().add_number_column("n").add_string_column("text").set_use_header().build()
    form = CsvReaderFormat.for_schema(schema)
    check_source(
        lambda: FileSource.for_record_stream_format(form, "s3://bucket/in").build(),
        [Row(n=n, text=f"t{n}") for n in range(500)],
    )


def test_what_is_not_there_and_what_is_refused(store: FakeStore) -> None:
    files = FileSystems(Settings(SETTINGS)).of("s3://bucket/in")
    with pytest.raises(ProgramError, match="there is nothing at 's3://bucket/in' at http://store:9000"):
        files.check("s3://bucket/in", lambda error: None)
    files.check("s3://bucket/in", lambda error: None, may_match_nothing=True)
    with pytest.raises(FileNotFoundError, match="no such object"):
        files.open("s3://bucket/in")
    with pytest.raises(FileSystemError, match="there is no bucket 'nowhere'"):
        files.check("s3://nowhere/in", lambda error: None)
    with pytest.raises(ProgramError, match="the name of a bucket has no wildcards"):
        FileSource.for_record_stream_format(StreamFormat.text_line_format(), "s3://b*/in")
    store.objects["bucket"]["in"] = b"a\nb\n"
    stream = files.open("s3://bucket/in")
    store.objects["bucket"]["in"] = b"a"
    with pytest.raises(FileSystemError, match="it has become shorter"):
        stream.read()


def test_a_store_that_is_away_is_asked_again_and_files_that_come_later_are_read(
    store: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assigned: list[str] = []
    calls: list[tuple[int, Any]] = []

    class Context(SplitEnumeratorContext):
        def current_parallelism(self) -> int:
            return 1

        def registered_readers(self) -> Any:
            return {}

        def assign_split(self, split: Any, subtask_id: int) -> None:
            assigned.append(split.data["path"])

        def signal_no_more_splits(self, subtask_id: int) -> None:
            assigned.append("no more")

        def call_async(self, callable: Any, handler: Any, initial_delay_ms: int = 0, period_ms: Any = None) -> None:
            calls.append((initial_delay_ms, handler))

        def run_in_coordinator_thread(self, runnable: Any) -> None:
            raise AssertionError

    def away(request: Request) -> Any:
        raise NewConnectionError(None, "Connection refused")  # type: ignore[arg-type]

    text = StreamFormat.text_line_format()
    bounded = FileSource.for_record_stream_format(text, "s3://bucket/in").build()
    store.fault = away
    enumerator = bounded.create_enumerator(Context())
    enumerator.start()
    enumerator.handle_split_request(0, None)
    for pause in (500, 1000, 2000):
        delay, handler = calls.pop()
        assert (delay, assigned) == (pause, [])
        handler(None, None)
    store.fault = lambda request: None
    store.objects["bucket"]["in/a"] = b"a\n"
    calls.pop()[1](None, None)
    enumerator.handle_split_request(0, None)
    assert assigned == ["s3://bucket/in/a", "no more"]

    assigned.clear()
    watched = (
        FileSource.for_record_stream_format(text, "s3://bucket/in").monitor_continuously(Time.milliseconds(1)).build()
    )
    enumerator = watched.create_enumerator(Context())
    enumerator.start()
    enumerator.handle_split_request(0, None)
    state = enumerator.snapshot_state(1)
    enumerator = watched.restore_enumerator(Context(), state)
    enumerator.handle_split_request(0, None)
    store.objects["bucket"]["in/b"] = b"b\n"
    while "s3://bucket/in/b" not in assigned:
        calls.pop()[1](None, None)
    assert assigned == ["s3://bucket/in/a", "s3://bucket/in/b"]
