"""What version 1 of high availability in a directory has written (``tests/fixtures/high_availability``) is read."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from firesteel.checkpoint.store import StoredCheckpoint
from firesteel.config import Settings
from firesteel.core.errors import CheckpointStorageError, ConfigurationError
from firesteel.ha.directory import DirectoryServices
from firesteel.ha.documents import DamagedEntryError, UnknownFormatError, encode, read_document
from firesteel.ha.jobs import RecordedEnd
from firesteel.ha.retrieval import DISPATCHER, Attempts, of_job
from tests.unit.ha.crashes import SHA, A, B, end, job, lead
from tests.unit.ha.directories import NoSyncDisk

FIXTURE = Path(__file__).parents[2] / "fixtures" / "high_availability" / "directory-1"
C, D = "c" * 32, "d" * 32


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A copy, of the cluster ``default``."""
    return Path(shutil.copytree(FIXTURE, tmp_path / "default"))


def services(directory: Path) -> DirectoryServices:
    settings = Settings({"high-availability.storageDir": str(directory.parent)})
    return DirectoryServices(settings, disk=NoSyncDisk())


def test_jobs_are_found_in_their_state_and_go_on(directory: Path) -> None:
    for attempt in range(2):
        process = services(directory)
        leadership = lead(process, DISPATCHER)
        assert leadership.epoch == 2 + attempt
        store = process.job_store(leadership)
        contents = store.open(7)
        assert contents.term == 1001 + attempt
        assert contents.application == {"id": "a", "state": "FINISHED"}
        jobs = [(stored.graph.job_id, stored.jobmaster, stored.cancel_wanted) for stored in contents.jobs]
        assert jobs == [(A, ("http://jm:1", "token-1"), False), (C, None, True)]
        assert (contents.jobs[0].fingerprint, contents.jobs[0].submitted_ms) == (job(A).fingerprint, 1)
        assert contents.ends == (end(B),)
        assert [waiting.job_id for waiting in contents.unreadable] == [D]
        assert store.blob(SHA) is not None
    assert store.archive(B) == end(B).archive
    folder = directory / "jobs" / "jobs" / D
    shutil.copy(directory / "jobs" / "jobs" / C / "job.json", folder / "job.json")
    with pytest.raises(DamagedEntryError, match=f"it holds the job {C}"):
        store.read_again(D)
    store.set_jobmaster(C, "http://jm:2", "token-2")
    store.end(end(A))
    store.forget(B)
    store.remove_job(D)
    process = services(directory)
    contents = process.job_store(lead(process, DISPATCHER)).open()
    jobs = [(stored.graph.job_id, stored.jobmaster, stored.cancel_wanted) for stored in contents.jobs]
    assert jobs == [(C, ("http://jm:2", "token-2"), True)]
    assert contents.ends == (end(A),)
    assert {path.parent.name for path in directory.rglob("job.json")} == {C}, "payloads go with their jobs"
    assert not list((directory / "jobs" / "ended").iterdir())


def test_a_job_goes_on_from_its_checkpoints_and_attempts(directory: Path) -> None:
    component = of_job(A)
    process = services(directory)
    assert process.remembers_job(A)
    assert process.recorded_end(A) == RecordedEnd(7, {"state": "FINISHED"}), "also before anybody leads the job"
    for attempt in range(2):
        process = services(directory)
        leadership = lead(process, component)
        assert (leadership.epoch, leadership.attempts) == (2 + attempt, Attempts(3, ("tm-1", "tm-2")))
        store = process.completed_checkpoints(A, leadership)
        entries = [
            StoredCheckpoint(2, "file:///c/chk-2", "metadata"),
            StoredCheckpoint(3, "file:///c/chk-3", None, savepoint=True),
        ]
        assert store.all() == entries
        assert [reason.partition(":")[0] for reason in store.damaged] == ["checkpoint.1"]
        assert store.next_id() == 5 + attempt
    store.remove(1)
    store.remove(2)
    assert (store.all(), store.damaged) == (entries[1:], ())
    leadership.note_attempts(Attempts(5))
    leadership.release()
    assert lead(process, component).attempts == Attempts(5)
    assert process.recorded_end(A) == RecordedEnd(7, {"state": "FINISHED"})
    process.forget_job(A)
    assert not process.remembers_job(A)
    assert not [path for path in directory.rglob("*") if A in path.name and "jobs" not in path.parts]
    again = lead(process, component)
    assert again.attempts == Attempts()
    assert process.completed_checkpoints(A, again).all() == []


def test_the_version_that_has_written_it_does_not_lead_any_more(directory: Path) -> None:
    """It would find an empty cluster."""
    lead(services(directory), DISPATCHER)
    with pytest.raises(UnknownFormatError, match="format 2; this version reads format 1"):
        read_document(directory / "leaders" / "dispatcher.json", "leader")


@pytest.mark.parametrize("name", [f"ended/{B}.json", f"jobs/{A}/job.json", "application.json"])
def test_what_a_later_version_has_written_keeps_a_dispatcher_from_leading(directory: Path, name: str) -> None:
    path = directory / "jobs" / name
    whole = path.read_bytes()
    path.write_bytes(re.sub(rb" 1 ", b" 2 ", whole, count=1))
    process = services(directory)
    with pytest.raises(ConfigurationError, match=r"another version of Firesteel"):
        process.job_store(lead(process, DISPATCHER)).open()
    assert path.exists()


def test_no_number_of_a_checkpoint_is_used_again_where_the_counter_is_damaged(directory: Path) -> None:
    (directory / "checkpoints" / A / "counter").write_text("x")
    process = services(directory)
    store = process.completed_checkpoints(A, lead(process, of_job(A)))
    with pytest.raises(CheckpointStorageError, match="the counter of checkpoints is damaged"):
        store.next_id()


def test_no_job_goes_on_from_an_older_checkpoint_than_it_has(directory: Path) -> None:
    """The newest one may be that of a later version."""
    path = directory / "checkpoints" / A / "chk-3.json"
    path.write_bytes(path.read_bytes().replace(b"S 1 ", b"S 2 "))
    process = services(directory)
    store = process.completed_checkpoints(A, lead(process, of_job(A)))
    with pytest.raises(CheckpointStorageError, match="another version of Firesteel has stored the checkpoints"):
        store.all()


def test_a_counter_may_have_been_written_by_hand(directory: Path) -> None:
    (directory / "checkpoints" / A / "counter").write_text("41\n")
    process = services(directory)
    assert process.completed_checkpoints(A, lead(process, of_job(A))).next_id() == 42


def test_a_leader_that_dies_while_it_takes_over_loses_nothing(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are written before the file of the leader, which held some of them."""
    process = services(directory)
    with monkeypatch.context() as broken:
        broken.setattr(process.cells, "_write_leader", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            process.campaign(of_job(A))
    with monkeypatch.context() as broken:
        broken.setattr(process.cells, "_write", lambda *_: 1 / 0)
        process = services(directory)
        assert lead(process, of_job(A)).attempts == Attempts(3, ("tm-1", "tm-2"))


def test_an_application_of_an_earlier_version_that_is_damaged_is_not_run_again(directory: Path) -> None:
    (directory / "jobs" / "application.json").write_bytes(encode("application", {"id": "a"})[:-1])
    process = services(directory)
    with pytest.raises(ConfigurationError, match="is not run again"):
        process.job_store(lead(process, DISPATCHER)).open()
