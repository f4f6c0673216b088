"""Cells in memory, and what is built on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from firesteel.checkpoint.store import StoredCheckpoint
from firesteel.core.errors import CheckpointStorageError, FencedError
from firesteel.ha.cell_services import CellServices
from firesteel.ha.cells import Change, ChangedError, MemoryCells, Put, UnsureError
from firesteel.ha.jobs import JobsUnreadableError, StoredEnd
from firesteel.ha.payloads import DirectoryPayloads
from firesteel.ha.services import DISPATCHER, Leadership, of_job
from firesteel.testing import check_cells, check_checkpoint_store, check_high_availability

JOB = "ab" * 16


class Unsure(MemoryCells):
    """Of some changes nobody hears; ``made`` says whether they are made."""

    def __init__(self, made: bool, of: Callable[[int], bool]) -> None:
        super().__init__()
        self._made, self._of, self._count = made, of, 0

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
    made = cells()
    with pytest.raises(AssertionError, match=fault):
        check_cells(lambda: made)


@pytest.mark.parametrize("made", [True, False])
def test_services_on_cells_keep_the_contract(tmp_path: Path, made: bool) -> None:
    """Also where nobody hears of every third change."""
    cells = Unsure(made, lambda count: count % 3 == 0)
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


def test_a_checkpoint_whose_metadata_are_gone_is_named_and_hides_no_other(tmp_path: Path) -> None:
    services = Shared(MemoryCells(), tmp_path)
    store = services.completed_checkpoints(JOB, lead(services, of_job(JOB)))
    store.add(StoredCheckpoint(1, "memory:1", "m" * 100_000))
    store.add(StoredCheckpoint(2, "memory:2"))
    for name in services.payloads.names(f"checkpoints/{JOB}"):
        services.payloads.remove(name)
    assert [one.checkpoint_id for one in store.all()] == [2]
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


def test_damaged_records_and_payloads_are_set_aside_and_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
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
    again = services.job_store(lead(services, DISPATCHER))
    found = again.open()
    assert [end.job_id for end in found.ends] == ["ef" * 16]
    assert sorted(found.set_aside) == [JOB, "cd" * 16]
    assert "is damaged" in caplog.text
    assert again.archive(JOB) is None
    kept = [
        name.rpartition("/")[2].partition(".")[0] for name in services.payloads.names(f"{_store_of(services)}/ended")
    ]
    assert sorted(kept) == [JOB, "ef" * 16], "the payload of a damaged record is still there for people"
    assert again.open().set_aside == ()


def test_what_can_not_be_read_for_now_is_not_set_aside(tmp_path: Path) -> None:
    services = Shared(MemoryCells(), tmp_path)
    store = services.job_store(lead(services, DISPATCHER))
    store.open()
    store.end(StoredEnd(JOB, "a job", "fingerprint", 1, {"state": "FINISHED"}))
    (name,) = services.payloads.names(f"{_store_of(services)}/ended")
    path = tmp_path / name
    path.rename(tmp_path / "moved")
    path.mkdir()  # reading gives an error that is not "missing"
    with pytest.raises(JobsUnreadableError, match="Nothing was set aside"):
        store.open()
    path.rmdir()
    (tmp_path / "moved").rename(path)
    assert [end.job_id for end in store.open().ends] == [JOB]


def _store_of(services: CellServices) -> str:
    record = services.cells.read(DISPATCHER, "store")
    assert record is not None
    return record.value.decode()
