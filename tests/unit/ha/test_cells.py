"""Cells in memory, and what is built on them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from firesteel.checkpoint.store import StoredCheckpoint
from firesteel.core.errors import CheckpointStorageError, ConfigurationError, FencedError
from firesteel.graph.job_graph import JobGraph, JobVertex, OperatorInfo
from firesteel.ha.cell_services import CellServices
from firesteel.ha.cells import Change, ChangedError, Put, RemoveRecord, UnsureError
from firesteel.ha.documents import DamagedEntryError, decode, encode
from firesteel.ha.jobs import JobStore, JobsUnreadableError, RecordedEnd, StoredEnd, StoredJob
from firesteel.ha.memory import MemoryCells
from firesteel.ha.payloads import DirectoryPayloads
from firesteel.ha.services import DISPATCHER, Leadership, of_job
from firesteel.testing import check_cells, check_high_availability
from tests.checkpoint_store_kit import check_checkpoint_store

JOB = "ab" * 16


class Unsure(MemoryCells):
    """Of some changes nobody hears; ``made`` says whether they are made."""

    def __init__(self, happened: bool, of: Callable[[int], bool]) -> None:
        super().__init__()
        self._made, self._of, self._count = happened, of, 0

    def change(self, component: str, epoch: int, changes: Sequence[Change]) -> None:
        self._count += 1
        silent = self._of(self._count)
        if self._made or not silent:
            super().change(component, epoch, changes)
        if silent:
            raise UnsureError("the connection broke")


class Shared(CellServices):
    """What processes see of the same cells."""

    def __init__(self, cells: MemoryCells, directory: Path) -> None:
        super().__init__(cells, DirectoryPayloads(directory))

    def close(self) -> None:
        pass


def lead(services: CellServices, component: str) -> Leadership:
    leadership = services.campaign(component)
    assert leadership is not None
    return leadership


def test_memory_keeps_the_contract_of_cells() -> None:
    cells = MemoryCells()
    check_cells(lambda: cells)


class Unfenced(MemoryCells):
    def check(self, component: str, epoch: int) -> None:
        pass


class Halfway(MemoryCells):
    def change(self, component: str, epoch: int, changes: Sequence[Change]) -> None:
        for change in changes:
            super().change(component, epoch, [change])


class Blind(MemoryCells):
    """Compares no versions."""

    def change(self, component: str, epoch: int, changes: Sequence[Change]) -> None:
        try:
            super().change(component, epoch, changes)
        except ChangedError:
            there = {name: self.read(component, name) for name in self.names(component)}
            known = [c for c in changes if isinstance(c, Put)]
            for change in known:
                old = there.get(change.name)
                super().change(component, epoch, [Put(change.name, change.value, old.version if old else None)])


@pytest.mark.parametrize(
    ("cells", "fault"),
    [(Unfenced, "leads, and nobody minds"), (Halfway, "something has changed"), (Blind, "nobody minds")],
)
def test_cells_that_break_the_contract_are_found_out(cells: type[MemoryCells], fault: str) -> None:
    shared_cells = cells()
    with pytest.raises(AssertionError, match=fault):
        check_cells(lambda: shared_cells)


@pytest.mark.parametrize("happened", [True, False])
def test_services_on_cells_keep_the_contract(tmp_path: Path, happened: bool) -> None:
    """Also where nobody hears of every third change."""
    cells = Unsure(happened, lambda count: count % 3 == 0)
    check_high_availability(lambda: Shared(cells, tmp_path))


def test_completed_checkpoints_in_a_cell_keep_the_contract(tmp_path: Path) -> None:
    services = Shared(MemoryCells(), tmp_path)
    leadership = lead(services, of_job(JOB))
    check_checkpoint_store(lambda: services.completed_checkpoints(JOB, leadership))


def test_large_metadata_are_payloads_and_go_with_their_checkpoint(tmp_path: Path) -> None:
    services = Shared(MemoryCells(), tmp_path)
    leadership = lead(services, of_job(JOB))
    store = services.completed_checkpoints(JOB, leadership)
    large = StoredCheckpoint(store.next_id(), "memory:1", "m" * 100_000)
    small = StoredCheckpoint(store.next_id(), "memory:2", "m" * 10)
    store.add(large)
    store.add(small)
    store.add(large)
    assert services.completed_checkpoints(JOB, leadership).all() == [large, small]
    for name in services.cells.names(of_job(JOB)):
        record = services.cells.read(of_job(JOB), name)
        assert record is not None
        assert len(record.value) < 1000, f"{name} is too large for a record"
    assert len(services.payloads.names(f"checkpoints/{JOB}")) == 2, "one of the two that were written is in use"
    store.remove(large.checkpoint_id)
    assert store.all() == [small]
    services.forget_job(JOB)
    assert services.payloads.names(f"checkpoints/{JOB}") == []
    assert not [path for path in tmp_path.rglob("*") if JOB in path.name], "no empty folder of it stays"


def test_a_checkpoint_whose_metadata_are_gone_is_named_and_hides_no_other(tmp_path: Path) -> None:
    services = Shared(MemoryCells(), tmp_path)
    store = services.completed_checkpoints(JOB, lead(services, of_job(JOB)))
    store.add(StoredCheckpoint(1, "memory:1", "m" * 100_000))
    store.add(StoredCheckpoint(2, "memory:2"))
    for name in services.payloads.names(f"checkpoints/{JOB}"):
        services.payloads.remove(name)
    assert [entry.checkpoint_id for entry in store.all()] == [2]
    assert [line.partition(":")[0] for line in store.damaged] == ["checkpoint.1"]


def test_what_nobody_hears_of_in_all_tries_is_told(tmp_path: Path) -> None:
    services = Shared(Unsure(False, lambda count: count > 1), tmp_path)
    leadership = lead(services, of_job(JOB))
    store = services.completed_checkpoints(JOB, leadership)
    store.next_id()
    with pytest.raises(CheckpointStorageError, match="the connection broke"):
        store.add(StoredCheckpoint(1, "file:///a"))


def test_payloads_of_leaders_whose_time_is_over_are_removed_if_no_record_names_them(tmp_path: Path) -> None:
    services = Shared(MemoryCells(), tmp_path)
    first = lead(services, DISPATCHER)
    store = services.job_store(first)
    store.open()
    store.end(StoredEnd(JOB, "a job", "fingerprint", 1, {"state": "FINISHED"}))
    (used,) = services.payloads.names(f"{_store_of(services)}/ended")
    cluster = _store_of(services)
    services.payloads.write(f"{cluster}/ended/{'cd' * 16}.1.0123", b"an archive that no record names")
    services.payloads.write(f"{cluster}/job/{'cd' * 16}.9.0123", b"of a leader that is to come")
    services.payloads.write(f"another/job/{'cd' * 16}.1.0123", b"of a store whose cells are lost")
    first.release()
    services.job_store(lead(services, DISPATCHER)).open()
    assert services.payloads.names(f"{cluster}/ended") == [used]
    assert services.payloads.names(f"{cluster}/job") == [f"{cluster}/job/{'cd' * 16}.9.0123"]
    assert services.payloads.names("another/job") == [f"another/job/{'cd' * 16}.1.0123"]


def test_a_stale_dispatcher_leaves_no_payload(tmp_path: Path) -> None:
    services = Shared(MemoryCells(), tmp_path)
    store = services.job_store(lead(services, DISPATCHER))
    store.open()
    services.depose(DISPATCHER)
    with pytest.raises(FencedError):
        store.end(StoredEnd(JOB, "a job", "fingerprint", 1, {"state": "FINISHED"}))
    assert services.payloads.names(f"{_store_of(services)}/ended") == []


class DeposedInAChange(MemoryCells):
    """A change is made, nobody hears of it, and then somebody else leads."""

    armed = False

    def change(self, component: str, epoch: int, changes: Sequence[Change]) -> None:
        super().change(component, epoch, changes)
        if self.armed:
            self.armed = False
            self.depose(component)
            raise UnsureError("the connection broke")


def test_what_a_deposed_dispatcher_has_stored_and_not_heard_of_is_whole(tmp_path: Path) -> None:
    cells = DeposedInAChange()
    services = Shared(cells, tmp_path)
    for write in (
        lambda store: _submit(store, JOB),
        lambda store: store.end(StoredEnd(JOB, "a job", "fingerprint", 1, {"state": "FINISHED"})),
    ):
        leadership = lead(services, DISPATCHER)
        store = services.job_store(leadership)
        store.open()
        cells.armed = True
        with pytest.raises(FencedError):
            write(store)
        following = lead(services, DISPATCHER)
        contents = services.job_store(following).open()
        assert contents.unreadable == ()
        assert [*(job.graph.job_id for job in contents.jobs), *(end.job_id for end in contents.ends)] == [JOB]
        following.release()


def test_damaged_ends_stay_where_they_are(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    services = Shared(MemoryCells(), tmp_path)
    leadership = lead(services, DISPATCHER)
    store = services.job_store(leadership)
    store.open()
    for number, job_id in enumerate((JOB, "cd" * 16, "ef" * 16)):
        store.end(StoredEnd(job_id, "a job", "fingerprint", number, {"state": "FINISHED"}))
    record = services.cells.read(DISPATCHER, f"ended.{JOB}")
    assert record is not None
    services.cells.change(DISPATCHER, leadership.epoch, [Put(f"ended.{JOB}", record.value + b"?", record.version)])
    (gone,) = [name for name in services.payloads.names(f"{_store_of(services)}/ended") if "cd" * 16 in name]
    services.payloads.remove(gone)
    leadership.release()
    for _ in range(2):
        again = lead(services, DISPATCHER)
        contents = services.job_store(again).open()
        assert [end.job_id for end in contents.ends] == ["ef" * 16]
        assert "is damaged" in caplog.text
        names = services.payloads.names(f"{_store_of(services)}/ended")
        payload_names = [name.rpartition("/")[2].partition(".")[0] for name in names]
        assert sorted(payload_names) == [JOB, "ef" * 16], "the payload of a damaged record is still there for people"
        again.release()


def _submit(store: JobStore, job_id: str) -> None:
    received = store.receive()
    blob = b"a blob"
    name = hashlib.sha256(blob).hexdigest()
    (received / "part").write_bytes(blob)
    vertex = JobVertex("1" * 32, "v", 1, 128, "default", name, (OperatorInfo("1" * 32, "op", None, "map"),))
    graph = JobGraph(job_id, "orders", (vertex,), (), blobs={name: len(blob)})
    store.put(StoredJob(graph, "fingerprint", 1), received, {name: received / "part"})


def _with_a_job(cells: MemoryCells, place: Path) -> str:
    """A Dispatcher that has stored a job, and is gone; returns the id of its store."""
    services = Shared(cells, place)
    leadership = lead(services, DISPATCHER)
    store = services.job_store(leadership)
    store.open(1)
    _submit(store, JOB)
    leadership.release()
    return _store_of(services)


@pytest.mark.parametrize("former", [False, True], ids=["", "stored-by-a-version-without-markers"])
def test_a_missing_mount_is_waited_for_and_no_job_is_lost(tmp_path: Path, former: bool) -> None:
    cells, mount, mount_point = MemoryCells(), tmp_path / "nfs", tmp_path / "empty"
    mount_point.mkdir()
    store_id = _with_a_job(cells, mount)
    if former:
        (mount / store_id / "marker").unlink()
        epoch = cells.campaign(DISPATCHER)
        marked = cells.read(DISPATCHER, "marked")
        assert epoch is not None
        assert marked is not None
        cells.change(DISPATCHER, epoch, [RemoveRecord("marked", marked.version)])
        cells.release(DISPATCHER, epoch)
    before = {name: cells.read(DISPATCHER, name) for name in cells.names(DISPATCHER)}
    leadership = lead(Shared(cells, mount_point), DISPATCHER)
    with pytest.raises(JobsUnreadableError, match=r"is the file system .* mounted on this host"):
        Shared(cells, mount_point).job_store(leadership).open(2)
    assert {name: cells.read(DISPATCHER, name) for name in cells.names(DISPATCHER)} == before
    assert list(mount_point.iterdir()) == [], "nothing is written into the mount point"
    leadership.release()
    contents = Shared(cells, mount).job_store(lead(Shared(cells, mount), DISPATCHER)).open(3)
    assert [job.graph.job_id for job in contents.jobs] == [JOB]
    assert (mount / store_id / "marker").exists()


def test_a_mount_that_goes_away_takes_nothing_and_damages_nothing(tmp_path: Path) -> None:
    cells, mount = MemoryCells(), tmp_path / "nfs"
    _with_a_job(cells, mount)
    services = Shared(cells, mount)
    store = services.job_store(lead(services, DISPATCHER))
    store.open(2)
    store.end(StoredEnd("cd" * 16, "a job", "fingerprint", 1, {"state": "FINISHED"}))
    leadership = lead(services, of_job(JOB))
    checkpoints = services.completed_checkpoints(JOB, leadership)
    large = StoredCheckpoint(checkpoints.next_id(), "memory:1", "m" * 100_000)
    checkpoints.add(large)
    received = store.receive()
    mount.rename(tmp_path / "away")
    mount.mkdir()
    with pytest.raises(OSError, match="mounted"):
        store.archive("cd" * 16)
    with pytest.raises(OSError, match="mounted"):
        store.read_again(JOB)
    with pytest.raises(OSError, match="mounted"):
        store.receive()
    with pytest.raises(OSError, match="mounted"):
        store.put(StoredJob(JobGraph("cd" * 16, "orders", (), ()), "fingerprint", 1), received, {})
    with pytest.raises(OSError, match="mounted"):
        store.end(StoredEnd("ef" * 16, "a job", "fingerprint", 1, {"state": "FINISHED"}))
    with pytest.raises(OSError, match="mounted"):
        services.record_end(leadership, RecordedEnd(1, {"state": "FINISHED", "large": "x" * 100_000}))
    with pytest.raises(CheckpointStorageError, match="mounted"):
        checkpoints.add(StoredCheckpoint(checkpoints.next_id(), "memory:2", "m" * 100_000))
    with pytest.raises(CheckpointStorageError, match="mounted"):
        checkpoints.all()
    assert list(mount.iterdir()) == []
    mount.rmdir()
    (tmp_path / "away").rename(mount)
    assert checkpoints.all() == [large]
    assert store.read_again(JOB).graph.name == "orders"


class UnmountedDuringRead(DirectoryPayloads):
    """Their file system goes away just before an archive is read."""

    def read(self, name: str) -> bytes:
        if "/ended/" in name:
            self.directory.rename(self.directory.with_name("away"))
            self.directory.mkdir()
        return super().read(name)


def test_a_mount_that_goes_away_while_ends_are_read_hides_none_of_them(tmp_path: Path) -> None:
    cells, mount = MemoryCells(), tmp_path / "nfs"
    services = Shared(cells, mount)
    leadership = lead(services, DISPATCHER)
    store = services.job_store(leadership)
    store.open(1)
    store.end(StoredEnd(JOB, "a job", "fingerprint", 1, {"state": "FINISHED"}))
    leadership.release()
    unmounted = CellServices(cells, UnmountedDuringRead(mount))
    leadership = lead(unmounted, DISPATCHER)
    with pytest.raises(JobsUnreadableError, match="mounted"):
        unmounted.job_store(leadership).open(2)
    assert list(mount.iterdir()) == []
    mount.rmdir()
    (tmp_path / "away").rename(mount)
    assert [end.job_id for end in services.job_store(leadership).open(3).ends] == [JOB]


def test_a_job_whose_payload_is_damaged_waits_and_is_read_again(tmp_path: Path) -> None:
    cells = MemoryCells()
    store_id = _with_a_job(cells, tmp_path)
    (payload,) = (tmp_path / store_id / "job").iterdir()
    graph = payload / "graph.json"
    whole = graph.read_bytes()
    graph.write_bytes(whole[:-1])
    services = Shared(cells, tmp_path)
    store = services.job_store(lead(services, DISPATCHER))
    store.set_jobmaster(JOB, "http://jobmaster", "token")
    store.set_cancelled(JOB)
    contents = store.open(2)
    assert [(job.job_id, "checksum" in job.reason) for job in contents.unreadable] == [(JOB, True)]
    assert (contents.unreadable[0].jobmaster, contents.unreadable[0].cancel_wanted) == (
        ("http://jobmaster", "token"),
        True,
    )
    with pytest.raises(DamagedEntryError, match="checksum"):
        store.read_again(JOB)
    graph.write_bytes(whole)
    assert store.read_again(JOB).graph.name == "orders"


def test_a_job_whose_blob_has_another_content_waits(tmp_path: Path) -> None:
    cells = MemoryCells()
    store_id = _with_a_job(cells, tmp_path)
    (blob,) = (tmp_path / store_id / "job").glob("*/blobs/*")
    blob.write_bytes(b"x" * blob.stat().st_size)
    services = Shared(cells, tmp_path)
    contents = services.job_store(lead(services, DISPATCHER)).open(2)
    assert [(job.job_id, "the content of the blob" in job.reason) for job in contents.unreadable] == [(JOB, True)]


def test_jobs_of_another_version_keep_a_dispatcher_from_leading(tmp_path: Path) -> None:
    cells = MemoryCells()
    store_id = _with_a_job(cells, tmp_path)
    (payload,) = (tmp_path / store_id / "job").iterdir()
    plain = decode("job", (payload / "graph.json").read_bytes())
    plain["graph"]["format_version"] = 2
    (payload / "graph.json").write_bytes(encode("job", plain))
    services = Shared(cells, tmp_path)
    with pytest.raises(
        ConfigurationError, match=r"another version of Firesteel .*format 2; this version reads format 1"
    ):
        services.job_store(lead(services, DISPATCHER)).open(2)


def test_what_can_not_be_read_for_now_is_said(tmp_path: Path) -> None:
    services = Shared(MemoryCells(), tmp_path)
    store = services.job_store(lead(services, DISPATCHER))
    store.open()
    store.end(StoredEnd(JOB, "a job", "fingerprint", 1, {"state": "FINISHED"}))
    (name,) = services.payloads.names(f"{_store_of(services)}/ended")
    path = tmp_path / name
    path.rename(tmp_path / "moved")
    path.mkdir()  # reading gives an error that is not "missing"
    with pytest.raises(JobsUnreadableError, match="for now: Is a directory"):
        store.open()
    path.rmdir()
    (tmp_path / "moved").rename(path)
    assert [end.job_id for end in store.open().ends] == [JOB]


def _store_of(services: CellServices) -> str:
    record = services.cells.read(DISPATCHER, "store")
    assert record is not None
    return record.value.decode()
