"""The file sink in an object store: what a checkpoint has is shown once, and nothing else is left, whatever happens."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow.parquet as pq
import pytest
from urllib3.exceptions import NewConnectionError

from firesteel.checkpoint import object_states
from firesteel.checkpoint.object_store import ObjectStore
from firesteel.common.serialization import BulkWriterFactory, Encoder
from firesteel.common.typeinfo import Types
from firesteel.common.types import Row
from firesteel.config import Settings
from firesteel.connectors.file_committer import FileCommitter
from firesteel.connectors.file_compaction import FileCompactor, FileCompactStrategy
from firesteel.connectors.file_layout import BucketAssigner, OutputFileConfig, RollingPolicy
from firesteel.connectors.file_sink import FileSink
from firesteel.connectors.file_writer import FileWriter
from firesteel.connectors.filesystems.file_system import FileSystems
from firesteel.connectors.formats.parquet_files import ParquetBulkWriters
from firesteel.core.errors import FileSystemError, ProgramError, StateRestoreError
from firesteel.functions.sink import WriterContext
from firesteel.functions.two_phase import CommitOutcome, CommitResult, Committable, WriterState
from firesteel.testing import check_two_phase_sink
from firesteel.testing.clock import ManualClock
from firesteel_s3 import client as s3_client
from tests.unit.checkpoint.fake_s3 import FakeStore, Request

SETTINGS = {
    "s3.endpoint": "http://store:9000", "s3.access-key": "user", "s3.secret-key": "password",
    "s3.upload.min.part.size": "5 mb",
}  # fmt: skip
PART = 80 << 10
LINES = Encoder.simple_string_encoder()
GOES_ON = RollingPolicy.default_rolling_policy()
ENDS = RollingPolicy.on_checkpoint_rolling_policy()
BASE = BucketAssigner.base_path_bucket_assigner()
C = CommitOutcome


class Subtask(WriterContext):
    job_id = operator_id = "0" * 32
    checkpointing = True

    def __init__(self, attempt: int = 0, checkpoint_id: int = 0, index: int = 0, parallelism: int = 1) -> None:
        self._attempt, self._checkpoint, self._index = attempt, checkpoint_id, index
        self._parallelism = parallelism
        self.temporary: dict[str, str] = {}

    @property
    def subtask_index(self) -> int:
        return self._index

    @property
    def parallelism(self) -> int:
        return self._parallelism

    @property
    def attempt(self) -> int:
        return self._attempt

    @property
    def checkpoint_id(self) -> int:
        return self._checkpoint

    @property
    def settings(self) -> Settings:
        return Settings(SETTINGS)

    def register_temporary_file(self, path: str) -> None:
        self.temporary[path] = "temporary"

    def keep_temporary_file(self, path: str) -> None:
        self.temporary[path] = "kept"

    def forget_temporary_file(self, path: str) -> None:
        self.temporary.pop(path, None)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> FakeStore:
    store = FakeStore()
    monkeypatch.setattr(s3_client, "PoolManager", store.pool)
    original = object_states.ObjectStates.__init__

    def with_small_parts(self: object_states.ObjectStates, client: ObjectStore) -> None:
        original(self, client)
        self.part_size //= 64

    monkeypatch.setattr(object_states.ObjectStates, "__init__", with_small_parts)
    client = s3_client.S3Client.__init__
    clock = ManualClock()
    monkeypatch.setattr(
        s3_client.S3Client, "__init__", lambda self, settings: client(self, settings, clock, clock.advance)
    )
    return store


def writer_of(
    subtask: Subtask,
    restored: Sequence[bytes] = (),
    rolling: RollingPolicy = GOES_ON,
    file_format: Encoder | BulkWriterFactory = LINES,
) -> FileWriter:
    writer = FileWriter(
        "s3://bucket/out", file_format, BASE, rolling, OutputFileConfig(), 60_000, subtask, ManualClock()
    )
    if restored:
        writer.restore_state([WriterState(state) for state in restored])
    writer.open()
    return writer


def barrier(writer: FileWriter) -> tuple[list[bytes], list[bytes]]:
    """What a checkpoint has: committables and states."""
    return list(writer.prepare_commit(end_of_input=False)), list(writer.snapshot_state())


def commit(subtask: Subtask, prepared: Sequence[bytes], again: bool = False) -> list[CommitResult]:
    committer = FileCommitter(subtask)
    committables = [Committable(data) for data in prepared]
    return list(committer.recommit(committables) if again else committer.commit(committables))


def outcomes(results: Sequence[CommitResult]) -> list[CommitOutcome]:
    return [result.outcome for result in results]


def lines(store: FakeStore) -> list[str]:
    """What a reader sees."""
    return [
        line for key in store.keys if "/_" not in key for line in store.objects["bucket"][key].decode().splitlines()
    ]


def records(store: FakeStore) -> list[str]:
    return [key for key in store.keys if "/_inprogress/" in key]


def many(name: str, size: int = PART) -> list[str]:
    """Lines that make a part."""
    return [f"{name}{number:09d}" for number in range(size // (len(name) + 10) + 1)]


def test_parts_go_up_while_they_come_and_are_shown_by_the_commit(store: FakeStore) -> None:
    subtask = Subtask()
    writer = writer_of(subtask, rolling=ENDS)
    expected = many("a") + many("b") + ["end"]
    for some in (many("a"), many("b"), ["end"]):
        writer.write(some, None)
    assert store.request_count("POST uploads") == 1, "there was enough for parts"
    prepared, states = barrier(writer)
    assert (store.request_count("PUT part"), states, lines(store)) == (3, [], [])
    assert list(subtask.temporary.values()) == ["kept"]
    assert outcomes(commit(subtask, prepared)) == [C.COMMITTED]
    assert lines(store) == expected
    assert (store.uploads, records(store), subtask.temporary) == ({}, [], {})
    assert not any(request.headers.get("x-amz-copy-source") for request in store.requests), "nothing is copied"
    assert {request.key for request in store.requests if "DELETE" in request.verb} <= {
        request.key for request in store.requests if "_inprogress" in request.key
    }, "nothing that is visible is deleted"


def test_what_is_no_part_yet_is_in_the_checkpoint_and_its_upload_is_not_gone_on_with(store: FakeStore) -> None:
    store.leaves_parts_out = True
    old = writer_of(Subtask())
    old.write(many("a"), None)
    old.write(["tail"], None)
    prepared, states = barrier(old)
    assert prepared == []
    assert states[0].endswith(b"\ntail\n")
    old.write(many("zombie"), None)  # it is alive still, and sends more

    subtask = Subtask(1, 1)
    new = writer_of(subtask, states)
    old.write(many("late"), None)
    new.write(["more"], None)
    prepared, states = barrier(new)
    assert len(prepared) == 1
    assert outcomes(commit(subtask, prepared)) == [C.COMMITTED]
    assert lines(store) == many("a")
    last = list(new.prepare_commit(end_of_input=True))
    assert outcomes(commit(subtask, last)) == [C.COMMITTED]
    assert sorted(lines(store)) == sorted([*many("a"), "tail", "more"])
    old.abort()
    assert (store.uploads, records(store)) == ({}, [])


def test_a_tail_alone_needs_no_upload_until_it_is_shown(store: FakeStore) -> None:
    writer = writer_of(Subtask())
    writer.write(["a"], None)
    _, states = barrier(writer)
    assert store.requests == []
    subtask = Subtask(1, 1)
    new = writer_of(subtask, states)
    new.write(["b"], None)
    assert outcomes(commit(subtask, list(new.prepare_commit(end_of_input=True)))) == [C.COMMITTED]
    assert lines(store) == ["a", "b"]
    assert (store.uploads, records(store)) == ({}, [])


def test_uploads_behind_the_checkpoint_are_aborted_by_the_next_attempt(store: FakeStore) -> None:
    old = writer_of(Subtask(), rolling=ENDS)
    old.write(many("kept"), None)
    prepared, _ = barrier(old)
    behind = Subtask(0, 1)
    dead = writer_of(behind, rolling=ENDS)
    dead.write(many("lost"), None)
    other = writer_of(Subtask(0, 1, 7), rolling=ENDS)
    other.write(many("of another subtask"), None)
    assert len(store.uploads) == 3
    subtask = Subtask(1, 1)
    assert outcomes(commit(subtask, prepared, again=True)) == [C.COMMITTED]
    writer_of(subtask, rolling=ENDS)
    assert len(store.uploads) == 1, "that of the other subtask may be in use"
    assert len(records(store)) == 1
    rescaled = Subtask(2, 1, parallelism=3)
    writer_of(rescaled, rolling=ENDS)
    assert (store.uploads, records(store)) == ({}, [])
    assert lines(store) == many("kept")


def test_what_a_checkpoint_has_is_left_alone_by_subtasks_that_were_not_there(store: FakeStore) -> None:
    """Uploads of parts that end with the barrier are begun there."""
    old = writer_of(Subtask(0, 3), rolling=ENDS)
    old.write(["small"], None)
    prepared, _ = barrier(old)
    writer_of(Subtask(1, 4, index=1, parallelism=2), rolling=ENDS)
    assert outcomes(commit(Subtask(1, 4, parallelism=2), prepared, again=True)) == [C.COMMITTED]
    assert (lines(store), records(store)) == (["small"], [])


def test_a_failed_attempt_removes_what_no_checkpoint_has(store: FakeStore) -> None:
    subtask = Subtask()
    writer = writer_of(subtask)
    writer.write(many("a"), None)
    barrier(writer)
    writer.abort()
    assert len(store.uploads) == len(records(store)) == 1, "a checkpoint has it"
    subtask = Subtask()
    writer = writer_of(subtask)
    writer.write(many("b"), None)
    assert len(store.uploads) == 2
    writer.abort()
    assert (len(store.uploads), len(records(store)), subtask.temporary) == (1, 1, {})


def test_a_commit_may_come_again_and_again(store: FakeStore) -> None:
    subtask = Subtask()
    writer = writer_of(subtask, rolling=ENDS)
    writer.write(["a"], None)
    prepared, _ = barrier(writer)
    store.lose_answers = ["POST upload"]
    assert outcomes(commit(subtask, prepared)) == [C.ALREADY_COMMITTED], "its answer was lost, and it was done"
    assert outcomes(commit(Subtask(), prepared)) == [C.ALREADY_COMMITTED]
    assert outcomes(commit(Subtask(1, 1), prepared, again=True)) == [C.ALREADY_COMMITTED]
    assert lines(store) == ["a"]


def test_an_upload_that_was_lost_is_no_success(store: FakeStore, caplog: pytest.LogCaptureFixture) -> None:
    writer = writer_of(Subtask(), rolling=ENDS)
    writer.write(["a"], None)
    prepared, _ = barrier(writer)
    uploads = dict(store.uploads)
    store.uploads.clear()  # a rule of the bucket
    for again in (False, True):
        (result,) = commit(Subtask(1, 1), prepared, again)
        assert (result.outcome, "What it held is lost" in result.reason) == (C.FAILED, True)
    store.uploads.update(uploads)
    assert outcomes(commit(Subtask(), prepared)) == [C.COMMITTED]
    (key,) = store.keys
    del store.objects["bucket"][key]
    assert outcomes(commit(Subtask(1, 1), prepared, again=True)) == [C.ALREADY_COMMITTED], "somebody has taken it away"
    assert f"s3://bucket/{key} is gone" in caplog.text
    assert outcomes(commit(Subtask(1, 1), prepared)) == [C.FAILED]
    store.objects["bucket"][key] = b"of somebody else"
    assert outcomes(commit(Subtask(1, 1), prepared)) == [C.FAILED]


def test_a_server_that_is_away_is_asked_again(store: FakeStore) -> None:
    subtask = Subtask()
    writer = writer_of(subtask, rolling=ENDS)
    writer.write(["a"], None)
    prepared, _ = barrier(writer)

    def away(request: Request) -> Any:
        raise NewConnectionError(None, "Connection refused")  # type: ignore[arg-type]

    store.fault = away
    (result,) = commit(subtask, prepared)
    assert (result.outcome, "takes no connections" in result.reason) == (C.UNKNOWN, True)
    with pytest.raises(FileSystemError, match=r"file sink: .* takes no connections"):
        writer.write(many("b"), None)
    writer.abort()
    assert "temporary" in subtask.temporary.values(), "whoever follows removes it"
    store.fault = lambda request: None
    assert outcomes(commit(subtask, prepared)) == [C.COMMITTED]
    writer_of(Subtask(1, 0), rolling=ENDS)
    assert (store.uploads, records(store), lines(store)) == ({}, [], ["a"])


def test_an_upload_that_was_begun_twice_leaves_nothing(store: FakeStore) -> None:
    subtask = Subtask()
    writer = writer_of(subtask, rolling=ENDS)
    store.lose_answers = ["POST uploads"]
    writer.write(["a"], None)
    prepared, _ = barrier(writer)
    assert len(store.uploads) == 2
    assert outcomes(commit(subtask, prepared)) == [C.COMMITTED]
    assert (store.uploads, records(store), lines(store)) == ({}, [], ["a"])


def test_an_older_checkpoint_does_not_show_records_twice(store: FakeStore) -> None:
    writer = writer_of(Subtask())
    writer.write(many("a"), None)
    _, older = barrier(writer)
    commit(Subtask(), list(writer.prepare_commit(end_of_input=True)))
    with pytest.raises(StateRestoreError, match="a later checkpoint has shown it"):
        writer_of(Subtask(1, 1), older)


def test_what_a_dead_process_left_is_removed_by_its_name(store: FakeStore) -> None:
    subtask = Subtask()
    writer = writer_of(subtask)
    writer.write(many("a"), None)
    (path,) = subtask.temporary
    files = FileSystems(Settings(SETTINGS))
    files.of(path).remove_temporary(path)
    files.of(path).remove_temporary(path)
    assert (store.uploads, store.keys) == ({}, [])


def test_parquet_goes_up_in_parts(store: FakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    subtask = Subtask()
    bulk = ParquetBulkWriters.for_row_type(
        Types.ROW_NAMED(["n", "text"], [Types.LONG(), Types.STRING()]), {"parquet.compression": "UNCOMPRESSED"}
    )
    writer = writer_of(subtask, rolling=ENDS, file_format=bulk)
    rows = [Row(n=number, text=f"{number:040d}") for number in range(70_000)]
    writer.write(rows, None)
    assert store.request_count("PUT part") > 0
    assert outcomes(commit(subtask, barrier(writer)[0])) == [C.COMMITTED]
    (key,) = store.keys
    import io

    assert pq.read_table(io.BytesIO(store.objects["bucket"][key])).column("n").to_pylist() == list(range(70_000))


def test_secrets_are_in_no_committable_and_no_state(store: FakeStore) -> None:
    writer = writer_of(Subtask())
    writer.write([*many("a"), "tail"], None)
    _, states = barrier(writer)
    prepared = list(writer.prepare_commit(end_of_input=True))
    assert not any(b"password" in data for data in [*states, *prepared])
    assert json.loads(prepared[0]).keys() == {"uri", "upload", "parts", "size", "record"}


def test_the_contract_is_kept(store: FakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WriterContext, "settings", property(lambda self: Settings(SETTINGS)))
    for rolling in (GOES_ON, ENDS):
        store.objects["bucket"].clear()

        def sink(rolling: RollingPolicy = rolling) -> FileSink:
            builder = FileSink.for_row_format("s3://bucket/out", LINES)
            return builder.with_rolling_policy(rolling).with_bucket_assigner(BASE).build()

        check_two_phase_sink(sink, [f"line {number}" for number in range(100)], lambda: lines(store))
        assert (store.uploads, records(store)) == ({}, [])


def test_paths_and_what_is_refused() -> None:
    sink = FileSink.for_row_format("s3a://bucket//out/", LINES).build()
    assert sink.describe() == {"path": "s3://bucket/out"}
    assert not sink.commits_quickly
    sink.check()
    with pytest.raises(ProgramError, match=r"no file system for gs://; known: .*s3://"):
        FileSink.for_row_format("gs://bucket/out", LINES)
    with pytest.raises(ProgramError, match="names no user and no secret"):
        FileSink.for_row_format("s3://user:password@bucket/out", LINES)
    strategy = FileCompactStrategy.builder().set_size_threshold(10).build()
    builder = FileSink.for_row_format("s3://bucket/out", LINES)
    with pytest.raises(ProgramError, match="there is no compaction"):
        builder.enable_compact(strategy, FileCompactor.concat_file_compactor()).build()
