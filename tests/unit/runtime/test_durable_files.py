"""File sinks sync beside the task's loop, and no checkpoint is acknowledged before."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from firesteel.common.serialization import Encoder
from firesteel.connectors.file_committer import FileCommitter
from firesteel.connectors.file_layout import RollingPolicy
from firesteel.connectors.file_sink import FileSink
from firesteel.functions.global_commit import GlobalCommitSink
from firesteel.functions.sink import Sink, SinkWriter
from firesteel.functions.two_phase import Committer, TwoPhaseCommitSink, TwoPhaseWriter
from firesteel.graph.execution_states import ExecutionState as E
from firesteel.graph.specs import OperatorKind as K
from firesteel.runtime.checkpoints.task_checkpoints import CheckpointServices
from firesteel.runtime.records.batch import END_OF_INPUT, Barrier, Batch
from tests.unit.runtime.support import spec
from tests.unit.runtime.test_checkpoints import Bench

POLICIES = {
    "parts that go on": RollingPolicy.default_rolling_policy(1 << 20),
    "parts that end": RollingPolicy.on_checkpoint_rolling_policy(),
    "small parts": RollingPolicy.default_rolling_policy(1),
}


class Disk:
    """Remembers what was synced: files, and names in folders.

    Attributes:
        broken: it says no.
    """

    def __init__(self) -> None:
        self.synced: list[bytes] = []
        self.names: list[list[str]] = []
        self.broken = False

    def fsync(self, descriptor: int) -> None:
        if self.broken:
            raise OSError(errno.EIO, "Input/output error")
        path = Path(f"/proc/self/fd/{descriptor}")
        if path.is_dir():
            self.names.append(os.listdir(path))
        else:
            self.synced.append(path.read_bytes())


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(os, "fsync", disk.fsync)
    return disk


Make = Callable[..., Bench]


@pytest.fixture
def writing(tmp_path: Path, disk: Disk) -> Iterator[Make]:
    benches: list[Bench] = []

    def make(work: list[Callable[[], None]], policy: str) -> Bench:
        encoder = Encoder(lambda record: f"{record};".encode())
        sink: Any = FileSink.for_row_format(tmp_path, encoder).with_rolling_policy(POLICIES[policy]).build()
        services = CheckpointServices(submit=work.append, final=True)
        benches.append(Bench(spec(K.SINK, sink, name="files"), services=services))
        return benches[-1]

    yield make
    for bench in benches:
        bench.task.cancel()
        bench.loop.close()


def one_by_one(bench: Bench, work: list[Callable[[], None]]) -> Iterator[None]:
    """After each piece of work of the thread that writes."""
    while work:
        work.pop(0)()
        bench.run()
        yield


@pytest.mark.parametrize("policy", POLICIES)
def test_the_acknowledgement_comes_behind_the_disk(writing: Make, disk: Disk, policy: str) -> None:
    work: list[Callable[[], None]] = []
    bench = writing(work, policy)
    bench.give(Batch([1]), Barrier(1, 0))
    assert disk.synced == []
    for _ in one_by_one(bench, work):
        assert list(bench.reports.acknowledged) == [1] * (sum(map(len, disk.synced)) >= len("1;1;") and not work)
    assert list(bench.reports.acknowledged) == [1]
    bench.give(Batch([2]), END_OF_INPUT)
    before = len(disk.synced)
    bench.task.trigger_checkpoint(Barrier(2, 0))
    bench.run()
    assert len(disk.synced) == before
    for _ in one_by_one(bench, work):
        assert 2 not in bench.reports.acknowledged or b"2;" in b"".join(disk.synced[before:])
    assert list(bench.reports.acknowledged) == [1, 2]


def test_names_are_durable_before_a_checkpoint_counts_on_them(writing: Make, disk: Disk) -> None:
    work: list[Callable[[], None]] = []
    bench = writing(work, "parts that end")
    bench.give(Batch([1]), Barrier(1, 0))
    for _ in one_by_one(bench, work):
        assert not bench.reports.acknowledged or any(".inprogress." in name for names in disk.names for name in names)
    assert len(disk.names) == 2, "the folder, and the one that it was made in"
    bench.task.checkpoint_complete(1)
    bench.give(Barrier(2, 0))
    assert len(disk.names) == 2, "not on the task's loop"
    for _ in one_by_one(bench, work):
        assert 2 not in bench.reports.acknowledged or len(disk.names) == 3
    assert list(bench.reports.acknowledged) == [1, 2]
    assert [name.startswith("part-") for name in disk.names[-1]] == [True]


@pytest.mark.parametrize("policy", POLICIES)
def test_what_a_checkpoint_that_was_given_up_has_written_is_synced_for_the_next(
    writing: Make, disk: Disk, policy: str
) -> None:
    work: list[Callable[[], None]] = []
    bench = writing(work, policy)
    bench.give(Batch([1]), Barrier(1, 0))
    bench.task.checkpoint_aborted(1)
    bench.give(Barrier(2, 0))
    for _ in one_by_one(bench, work):
        assert not bench.reports.acknowledged or sum(map(len, disk.synced)) >= len("1;1;")
    assert list(bench.reports.acknowledged) == [2]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_disk_that_says_no_fails_the_task_and_every_checkpoint(writing: Make, disk: Disk, policy: str) -> None:
    work: list[Callable[[], None]] = []
    bench = writing(work, policy)
    bench.give(Batch([1]), Barrier(1, 0))
    bench.give(Barrier(2, 0))
    disk.broken = True
    work.pop(0)()
    disk.broken = False
    for _ in one_by_one(bench, work):
        assert bench.states[-1] is E.FAILED
    assert bench.reports.acknowledged == {}
    failure = bench.reports.failure
    assert failure is not None
    assert (failure.operator, failure.kind) == ("files", "user")
    assert re.search("Input/output error: (what was written|names in it) may be lost", failure.message)


class _Half(TwoPhaseCommitSink[Any]):
    """Its writer raises once, where it is told to."""

    def __init__(self, where: str) -> None:
        self.where = where

    def create_writer(self, context: Any) -> TwoPhaseWriter[Any]:
        return _HalfWriter(self.where)

    def create_committer(self, context: Any) -> Committer:
        return FileCommitter(context)


class _HalfWriter(TwoPhaseWriter[Any]):
    def __init__(self, where: str) -> None:
        self.where = where

    def _raise(self, here: str) -> None:
        if here == self.where:
            self.where = ""
            raise OSError(errno.ENOSPC, "No space left on device")

    def write(self, values: Any, timestamps: Any) -> None: ...

    def prepare_commit(self, *, end_of_input: bool) -> list[bytes]:
        self._raise("prepare_commit")
        return []

    def snapshot_state(self) -> list[bytes]:
        self._raise("snapshot_state")
        return []


class _Flushed(Sink[Any]):
    def create_writer(self, context: Any) -> SinkWriter[Any]:
        return _FlushedWriter("flush")


class _FlushedWriter(SinkWriter[Any]):
    def __init__(self, where: str) -> None:
        self._half = _HalfWriter(where)

    def write(self, values: Any, timestamps: Any) -> None: ...

    def flush(self) -> None:
        self._half._raise("flush")


HALVES: dict[str, Callable[[], Any]] = {
    "prepare_commit": lambda: spec(K.SINK, _Half("prepare_commit"), name="files"),
    "snapshot_state": lambda: spec(K.SINK, _Half("snapshot_state"), name="files"),
    "prepare_commit in a stage": lambda: spec(
        K.SINK_STAGE, GlobalCommitSink(_Half("prepare_commit")).stages()[0], name="files"
    ),
    "snapshot_state in a stage": lambda: spec(
        K.SINK_STAGE, GlobalCommitSink(_Half("snapshot_state")).stages()[0], name="files"
    ),
    "flush": lambda: spec(K.SINK, _Flushed(), name="files"),
}


@pytest.mark.parametrize("where", HALVES)
def test_a_writer_that_fails_at_a_barrier_fails_the_task(where: str) -> None:
    bench = Bench(HALVES[where]())
    try:
        bench.give(Batch([1]), Barrier(1, 0))
        bench.give(Batch([2]), Barrier(2, 0))
        assert bench.states[-1] is E.FAILED
        assert bench.reports.acknowledged == {}, "what is half written would be in it"
        failure = bench.reports.failure
        assert failure is not None
        assert (failure.operator, "No space left" in failure.message) == ("files", True)
    finally:
        bench.loop.close()


def test_a_job_without_checkpoints_syncs_before_its_end(tmp_path: Path, disk: Disk) -> None:
    work: list[Callable[[], None]] = []
    sink: Any = FileSink.for_row_format(tmp_path, Encoder(lambda record: f"{record};".encode())).build()
    bench = Bench(
        spec(K.SINK, sink, name="files"), services=CheckpointServices(submit=work.append), checkpointing=False
    )
    try:
        bench.give(Batch([1]), END_OF_INPUT)
        assert (disk.synced, work) == ([b"1;1;"], [])
    finally:
        bench.loop.close()
