"""What cells and payloads have to bear: a loss of power, and a disk that fails, at any single operation.

The same histories run over all cells: those of a directory lose power with the payloads, those of a service do not.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable
from itertools import count
from pathlib import Path

from firesteel.checkpoint.store import CompletedCheckpointStore, StoredCheckpoint
from firesteel.core.errors import CheckpointStorageError
from firesteel.graph.chaining import client_versions
from firesteel.graph.job_graph import JobGraph, JobVertex, OperatorInfo
from firesteel.ha.cell_services import CellServices
from firesteel.ha.cells import Cells
from firesteel.ha.disk import Disk
from firesteel.ha.jobs import JobStore, StoreContents, StoredEnd, StoredJob
from firesteel.ha.payloads import DirectoryPayloads
from firesteel.ha.retrieval import DISPATCHER, of_job
from firesteel.ha.services import HighAvailabilityServices, Leadership
from tests.unit.ha.directories import NoSyncDisk
from tests.unit.ha.power_disk import PowerCut, PowerDisk

BLOB = b"chain" * 100
SHA = hashlib.sha256(BLOB).hexdigest()
A, B = "a" * 32, "b" * 32
_LEAST_OPERATIONS = {DISPATCHER: 15, of_job(A): 3}
"""Of the disk, in a history: those of payloads alone."""
MakeCells = Callable[[Path, Disk], Cells]
"""Cells for a directory, of one process after the other; where they are files, the disk writes them."""


def job(job_id: str = A, at: int = 1) -> StoredJob:
    vertex = JobVertex("1" * 32, "v", 1, 128, "default", SHA, (OperatorInfo("1" * 32, "op", None, "map"),))
    graph = JobGraph(job_id, "words", (vertex,), (), blobs={SHA: len(BLOB)}, versions=client_versions())
    return StoredJob(graph, f"fingerprint of {job_id}", at)


def end(job_id: str = A, at: int = 9) -> StoredEnd:
    return StoredEnd(job_id, "words", f"fingerprint of {job_id}", at, {"state": "FINISHED", "jid": job_id})


def put(store: JobStore, disk: Disk, what: StoredJob) -> None:
    received = store.receive()
    try:
        part = received / "part-1"
        disk.write(part, BLOB)
        store.put(what, received, {SHA: part})
    except OSError:
        store.drop(received)
        raise


def lead(services: HighAvailabilityServices, component: str) -> Leadership:
    """Follow whoever has led a component."""
    services.depose(component)
    leadership = services.campaign(component)
    assert leadership is not None
    return leadership


def job_history(store: JobStore, disk: Disk) -> list[tuple[Callable[[], object], set[str]]]:
    """Operations of a Dispatcher, each with what has to be there when it has returned."""
    return [
        (lambda: put(store, disk, job(A, 1)), {"job a"}),
        (lambda: store.set_jobmaster(A, "http://1", "t"), {"job a", "jobmaster of a"}),
        (lambda: put(store, disk, job(B, 2)), {"job a", "jobmaster of a", "job b"}),
        (lambda: store.set_cancelled(B), {"job a", "jobmaster of a", "job b", "b cancelled"}),
        (lambda: store.end(end(A)), {"end of a", "job b", "b cancelled"}),
        (lambda: store.end(end(B)), {"end of a", "end of b"}),
        (lambda: store.forget(A), {"end of b"}),
    ]


def summary(contents: StoreContents) -> set[str]:
    assert contents.unreadable == (), "a half-written entry was seen"
    seen = {f"job {j.graph.job_id[0]}" for j in contents.jobs} | {f"end of {e.job_id[0]}" for e in contents.ends}
    seen |= {f"jobmaster of {j.graph.job_id[0]}" for j in contents.jobs if j.jobmaster}
    return seen | {f"{j.graph.job_id[0]} cancelled" for j in contents.jobs if j.cancel_wanted}


def checkpoint_history(store: CompletedCheckpointStore) -> list[tuple[Callable[[], object], set[str]]]:
    """Operations of a JobMaster, likewise; large metadata are payloads."""
    large = "m" * 20_000
    return [
        (store.next_id, {"counter 1"}),
        (lambda: store.add(StoredCheckpoint(1, "/c/chk-1")), {"counter 1", "checkpoint 1"}),
        (store.next_id, {"counter 2", "checkpoint 1"}),
        (lambda: store.add(StoredCheckpoint(2, "", large)), {"counter 2", "checkpoint 1", "checkpoint 2"}),
        (lambda: store.remove(1), {"counter 2", "checkpoint 2"}),
        (lambda: store.next_id(7), {"counter 8", "checkpoint 2"}),
        (lambda: store.remove(2), {"counter 8"}),
    ]


class Life:
    """Processes that use cells and payloads below a directory, one after the other.

    Args:
        folder: of cells and payloads.
        make_cells: cells of a process.
    """

    def __init__(self, folder: Path, make_cells: MakeCells) -> None:
        self.folder, self._make_cells = folder, make_cells

    def services(self, disk: Disk) -> CellServices:
        return CellServices(self._make_cells(self.folder, disk), DirectoryPayloads(self.folder / "payloads", disk))

    def jobs(self) -> set[str]:
        """What the next Dispatcher finds."""
        services = self.services(NoSyncDisk())
        try:
            return summary(services.job_store(lead(services, DISPATCHER)).open())
        finally:
            services.close()

    def checkpoints(self) -> set[str]:
        """What the next JobMaster finds."""
        services = self.services(NoSyncDisk())
        try:
            store = services.completed_checkpoints(A, lead(services, of_job(A)))
            entries = {f"checkpoint {entry.checkpoint_id}" for entry in store.all()}
            assert store.damaged == (), "a half-written entry was seen"
            last = store.next_id() - 1
            return entries | ({f"counter {last}"} if last else set())
        finally:
            services.close()


def check_power_cuts(folder: Path, make_cells: MakeCells, *, lose: bool, stride: int = 1) -> None:
    """What was acknowledged is there after a loss of power; what was not is there, or is not, as a whole.

    Args:
        folder: for files.
        make_cells: cells of a process.
        lose: what was not synced is gone.
        stride: operations between two cuts.

    Raises:
        AssertionError: something is lost, or half there.
    """
    for component in (DISPATCHER, of_job(A)):
        for number in count(1, stride):
            place = folder / f"{component}-{number}"
            place.mkdir()
            life, disk = Life(place, make_cells), PowerDisk(place, number)
            services = life.services(disk)
            allowed: list[set[str]] = [set()]
            try:
                leadership = lead(services, component)
                if component == DISPATCHER:
                    jobs = services.job_store(leadership)
                    jobs.open()
                    history = job_history(jobs, disk)
                else:
                    history = checkpoint_history(services.completed_checkpoints(A, leadership))
                for operation, after in history:
                    allowed = [allowed[-1], after]
                    operation()
                    allowed = [after]
            except PowerCut:
                services.close()  # the kernel lets go of locks
                if lose:
                    disk.lose()
            else:
                disk.fail_at(0, 0)
                services.close()
                assert number > _LEAST_OPERATIONS[component], "the test has lost its meaning"
                break
            state = life.jobs() if component == DISPATCHER else life.checkpoints()
            assert state in allowed, f"{component}: power cut at operation {number}: {state} instead of {allowed}"


def check_failing_disk(folder: Path, make_cells: MakeCells, error: int, *, stride: int = 1) -> None:
    """A disk that fails once costs nothing: what was refused is done again, and half of a job is never left.

    Args:
        folder: for files.
        make_cells: cells of a process.
        error: ``errno`` of the failure; after ``ENOSPC`` a part is written.
        stride: operations between two failures.

    Raises:
        AssertionError: something is lost, or left.
    """
    for number in count(1, stride):
        place = folder / f"{errno.errorcode[error]}-{number}"
        place.mkdir()
        life, disk = Life(place, make_cells), PowerDisk(place)
        services = life.services(disk)
        jobs = services.job_store(lead(services, DISPATCHER))
        jobs.open()
        checkpoints = services.completed_checkpoints(A, lead(services, of_job(A)))
        disk.fail_at(number, error)
        history = [operation for operation, _ in job_history(jobs, disk)]
        for position, operation in enumerate(history):
            before = submissions(services)
            try:
                operation()
            except OSError:
                jobs.remove_job("f" * 32)  # with the next write goes what may be left of a submission
                is_submission = position in (0, 2)
                assert not is_submission or submissions(services) == before, f"half a job is left at {number}"
                operation()
        for operation, _ in checkpoint_history(checkpoints):
            try:
                operation()
            except CheckpointStorageError:
                operation()
        is_over = disk.operations < number
        disk.fail_at(0, error)
        services.close()
        assert life.jobs() == {"end of b"}, f"failure at operation {number}"
        assert [entry for entry in life.checkpoints() if entry.startswith("checkpoint")] == []
        assert not any((place / "payloads" / ".incoming").glob("*")), "what was received is left"
        if is_over:
            assert number > _LEAST_OPERATIONS[DISPATCHER], "the test has lost its meaning"
            return


def submissions(services: CellServices) -> list[str]:
    """Records and payloads of jobs."""
    names = services.cells.names(DISPATCHER)
    store = services.cells.read(DISPATCHER, "store")
    assert store is not None
    return [
        *(name for name in names if name.startswith("job.")),
        *services.payloads.names(f"{store.value.decode()}/job"),
    ]
