from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from firesteel.checkpoint.store import StoredCheckpoint
from firesteel.config import Settings
from firesteel.core.errors import CheckpointStorageError, ConfigurationError, FencedError
from firesteel.ha.cell_services import CellServices
from firesteel.ha.cells import AwayError
from firesteel.ha.directory import DirectoryServices
from firesteel.ha.directory_cells import DirectoryCells
from firesteel.ha.disk import Disk
from firesteel.ha.documents import encode
from firesteel.ha.jobs import StoreContents, StoredEnd
from firesteel.ha.memory import MemoryServices
from firesteel.ha.payloads import DirectoryPayloads
from firesteel.ha.retrieval import Attempts
from firesteel.ha.services import DISPATCHER, RESOURCEMANAGER, load_high_availability, of_job
from firesteel.testing import check_cells, check_high_availability
from tests.checkpoint_store_kit import check_checkpoint_store

JOB = "ab" * 16


def settings(directory: Path, **more: str) -> Settings:
    return Settings({"high-availability.type": "directory", "high-availability.storageDir": str(directory), **more})


def test_memory_keeps_the_contract() -> None:
    services = MemoryServices()
    check_high_availability(lambda: services, durable=False)


def test_a_directory_keeps_the_contracts(tmp_path: Path) -> None:
    check_high_availability(lambda: DirectoryServices(settings(tmp_path / "services")))
    check_cells(lambda: DirectoryCells(tmp_path / "cells", Disk(), tmp_path / "jobs"))
    services = DirectoryServices(settings(tmp_path / "store"))
    leadership = services.campaign(of_job(JOB))
    assert leadership is not None
    check_checkpoint_store(lambda: services.completed_checkpoints(JOB, leadership))


class Forgetful(DirectoryCells):
    """Takes stale leaders at their word."""

    def check(self, component: str, epoch: int) -> None:
        pass

    @contextmanager
    def _led(self, component: str, epoch: int) -> Iterator[Path]:
        drafts = self.directory / "drafts"
        drafts.mkdir(exist_ok=True)
        yield drafts


def test_services_that_do_not_fence_are_found_out(tmp_path: Path) -> None:
    def forgetful() -> Forgetful:
        return Forgetful(tmp_path, Disk(), tmp_path / "payloads")

    with pytest.raises(AssertionError, match="a leadership that was given back holds"):
        check_high_availability(lambda: CellServices(forgetful(), DirectoryPayloads(tmp_path / "payloads")))
    with pytest.raises(AssertionError, match="and nobody minds"):
        check_cells(forgetful)


def test_a_leader_that_died_is_followed_at_once_by_a_larger_epoch(tmp_path: Path) -> None:
    program = (
        "import os, sys; from firesteel.config import Settings; from firesteel.ha.directory import DirectoryServices;"
        f"s = Settings({{'high-availability.storageDir': {str(tmp_path)!r}}});"
        f"l = DirectoryServices(s).campaign({of_job(JOB)!r}); l.announce('http://dead:1', 't'); print(l.epoch);"
        "sys.stdout.flush(); os.kill(os.getpid(), 9)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, env=os.environ, check=False)
    assert ended.returncode == -9, ended.stderr
    services = DirectoryServices(settings(tmp_path))
    following = services.campaign(of_job(JOB))
    assert following is not None
    assert following.epoch > int(ended.stdout)
    services.close()


def test_clusters_share_a_directory(tmp_path: Path) -> None:
    services = DirectoryServices(settings(tmp_path))
    other = DirectoryServices(settings(tmp_path, **{"high-availability.cluster-id": "other"}))
    leaders = services.campaign(DISPATCHER), other.campaign(DISPATCHER)
    assert None not in leaders
    services.close()
    other.close()


def test_a_damaged_record_of_leaders_is_said_and_not_overwritten(tmp_path: Path) -> None:
    services = DirectoryServices(settings(tmp_path))
    leadership = services.campaign(DISPATCHER)
    assert leadership is not None
    leadership.release()
    (record,) = tmp_path.glob("**/dispatcher.json")
    record.write_bytes(record.read_bytes()[:-3])
    damaged = record.read_bytes()
    with pytest.raises(ConfigurationError, match=r"dispatcher\.json is damaged"):
        services.campaign(DISPATCHER)
    assert record.read_bytes() == damaged


def test_a_record_from_before_taskmanagers_were_noted_is_read(tmp_path: Path) -> None:
    leaders = tmp_path / "default" / "leaders"
    leaders.mkdir(parents=True)
    record = leaders / f"{of_job(JOB)}.json"
    record.write_bytes(encode("leader", {"epoch": 4, "address": "", "token": "", "attempts": 2}))
    following = DirectoryServices(settings(tmp_path)).campaign(of_job(JOB))
    assert following is not None
    assert (following.epoch, following.attempts) == (5, Attempts(2, None))


def test_a_record_of_leaders_that_can_not_be_read_for_now_is_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = DirectoryServices(settings(tmp_path))
    leadership = services.campaign(DISPATCHER)
    assert leadership is not None

    def failing(path: Path, **_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    with monkeypatch.context() as broken:
        broken.setattr(Path, "read_bytes", failing)
        broken.setattr(os, "stat", failing)
        looks: list[Callable[[], object]] = [
            leadership.check,
            lambda: services.leader(DISPATCHER),
            lambda: services.depose(DISPATCHER),
        ]
        for look in looks:
            with pytest.raises(OSError, match="Input/output error"):
                look()
    leadership.check()
    services.close()


@pytest.mark.parametrize("name", ["../up", "", "a/b", "x" * 300])
def test_names_do_not_lead_out_of_the_directory(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="is made of"):
        DirectoryServices(settings(tmp_path)).campaign(name)


@pytest.mark.parametrize("written", ["{}", "file://{}", "file:{}", "file://localhost{}"])
def test_the_directory_may_be_written_as_a_uri(written: str, tmp_path: Path) -> None:
    place = tmp_path / "with blank"
    text = written.format(str(place) if written == "{}" else str(place).replace(" ", "%20"))
    services = DirectoryServices(Settings({"high-availability.storageDir": text}))
    assert services.directory == place / "default"


@pytest.mark.parametrize("written", ["relative/path", "s3://bucket/path", "file://elsewhere/path"])
def test_a_directory_that_is_none_of_all_hosts_is_refused(written: str) -> None:
    with pytest.raises(ConfigurationError, match=r"high-availability\.storageDir = "):
        DirectoryServices(Settings({"high-availability.storageDir": written}))


def test_a_directory_that_can_not_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"high-availability\.storageDir"):
        DirectoryServices(settings(tmp_path / "file"))


def test_the_type_follows_from_the_settings(tmp_path: Path) -> None:
    assert isinstance(load_high_availability(Settings({}), None), MemoryServices)
    assert isinstance(load_high_availability(Settings({"high-availability.type": "none"}), None), MemoryServices)
    none = {"high-availability.type": "none", "high-availability.storageDir": str(tmp_path / "other")}
    services = load_high_availability(Settings(none), tmp_path)
    assert isinstance(services, DirectoryServices), "a Dispatcher that is started again finds its jobs"
    assert (services.directory, services.has_standbys) == (tmp_path / "ha" / "default", False)
    assert isinstance(load_high_availability(Settings({}), tmp_path), DirectoryServices)
    with pytest.raises(ConfigurationError, match=r"no firesteel\.high_availability plug-in is called 'consul'"):
        load_high_availability(Settings({"high-availability.type": "consul"}), tmp_path)


class StoppedDisk(Disk):
    """Stands still in front of a rename, as the disk of a process that is frozen."""

    def __init__(self) -> None:
        super().__init__(durable=True)
        self.stop, self.entered, self.go_on = False, threading.Event(), threading.Event()

    def rename(self, source: Path, target: Path) -> None:
        if self.stop and "cells" in target.parts:
            self.entered.set()
            assert self.go_on.wait(20)
        super().rename(source, target)


@pytest.mark.parametrize("write", ["end", "note", "remove"])
def test_nobody_waits_for_a_leader_that_stands_still_in_a_write_which_is_refused_then(
    write: str, tmp_path: Path
) -> None:
    disk = StoppedDisk()
    services, others = DirectoryServices(settings(tmp_path), disk=disk), DirectoryServices(settings(tmp_path))
    leadership = services.campaign(DISPATCHER)
    assert leadership is not None
    store = services.job_store(leadership)
    store.open(1)
    store.end(StoredEnd(JOB, "job", "", 1, {"state": "FINISHED"}))
    outcome: list[object] = []
    writes: dict[str, Callable[[], object]] = {
        "end": lambda: store.end(StoredEnd(JOB, "job", "", 2, {"state": "FAILED"})),
        "note": lambda: leadership.note_attempts(Attempts(7)),
        "remove": lambda: store.forget(JOB),
    }

    def late() -> None:
        try:
            outcome.append(writes[write]())
        except FencedError as error:
            outcome.append(error)

    disk.stop = True
    frozen = threading.Thread(target=late)
    frozen.start()
    assert disk.entered.wait(20)
    others.depose(DISPATCHER)  # which returns
    following = others.campaign(DISPATCHER)
    assert following is not None
    assert following.epoch > leadership.epoch
    contents = others.job_store(following).open(2)
    disk.go_on.set()
    frozen.join(20)
    assert isinstance(outcome[0], FencedError), outcome
    assert [end.archive for end in contents.ends] == [{"state": "FINISHED"}]
    assert others.job_store(following).archive(JOB) == {"state": "FINISHED"}, "the late write was taken"
    following.release()
    last = others.campaign(DISPATCHER)
    assert last is not None
    assert last.attempts == Attempts()
    services.close()
    others.close()


def test_a_leader_that_stands_still_while_it_reads_its_store_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blobs are hashed then, which takes long where they are large."""
    services, others = DirectoryServices(settings(tmp_path)), DirectoryServices(settings(tmp_path))
    leadership = services.campaign(DISPATCHER)
    assert leadership is not None
    store = services.job_store(leadership)

    def read() -> StoreContents:
        others.depose(DISPATCHER)
        following = others.campaign(DISPATCHER)
        assert following is not None
        return others.job_store(following).open(2)

    monkeypatch.setattr(store, "_read_all", lambda term: read())
    with pytest.raises(FencedError):
        store.open(1)
    services.close()
    others.close()


def test_files_of_checkpoints_are_nobody_elses(tmp_path: Path) -> None:
    """They may hold state."""
    services = DirectoryServices(settings(tmp_path))
    leadership = services.campaign(of_job(JOB))
    assert leadership is not None
    store = services.completed_checkpoints(JOB, leadership)
    store.add(StoredCheckpoint(store.next_id(), "/c/chk-1", "metadata"))
    modes = {path.name: oct(path.stat().st_mode & 0o077) for path in (tmp_path / "default").rglob("*")}
    assert set(modes.values()) == {"0o0"}, modes
    assert "records" in modes
    services.close()


@pytest.mark.parametrize("times", [1, 2])
def test_a_call_that_was_given_up_changes_nothing_when_the_store_was_renewed(
    times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = DirectoryServices(settings(tmp_path))
    leadership = services.campaign(of_job(JOB))
    assert leadership is not None
    store = services.completed_checkpoints(JOB, leadership)
    store.add(StoredCheckpoint(store.next_id(), "/c/chk-1"))
    entered, go_on = threading.Event(), threading.Event()
    late: list[threading.Thread] = []
    outcome: list[BaseException] = []

    def hung(source: Path, target: Path) -> None:
        if threading.current_thread() in late:
            entered.set()
            assert go_on.wait(20)
        rename(source, target)

    rename = os.rename
    monkeypatch.setattr(os, "rename", hung)
    monkeypatch.setattr(os, "replace", hung)

    def call(what: Callable[[], object]) -> None:
        try:
            what()
        except CheckpointStorageError as error:
            outcome.append(error)

    calls: list[Callable[[], object]] = [
        lambda: store.add(StoredCheckpoint(2, "/c/chk-2")), lambda: store.remove(1), store.next_id, store.clear,
    ]  # fmt: skip
    for what in calls:
        entered.clear()
        late.append(threading.Thread(target=call, args=(what,)))
        late[-1].start()
        assert entered.wait(20)
    renewed = store
    for _ in range(times):
        following = renewed.renewed()
        assert following is not None
        renewed = following
    again = store.renewed()  # an attempt of which nobody has heard, as one that hung
    assert again is not None
    assert renewed.next_id() == 2
    go_on.set()
    for thread in late:
        thread.join(20)
    assert len(outcome) == len(calls), "some of them have succeeded"
    assert renewed.all() == [StoredCheckpoint(1, "/c/chk-1")]
    assert renewed.next_id() == 3
    renewed.remove(1)
    renewed.clear()
    assert renewed.all() == []
    services.close()


def test_a_lock_that_is_removed_while_it_is_taken_is_taken_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services, others = DirectoryServices(settings(tmp_path)), DirectoryServices(settings(tmp_path))
    lock, handles = fcntl.flock, list[int]()

    def late(handle: int, how: int) -> None:
        lock(handle, how)
        if not handles:
            handles.append(handle)
            others.depose(DISPATCHER)

    monkeypatch.setattr(fcntl, "flock", late)
    leadership = services.campaign(DISPATCHER)
    assert leadership is not None
    assert others.campaign(DISPATCHER) is None, "it leads by the lock that others look at"
    leadership.check()
    services.close()


def test_a_store_whose_dispatcher_was_deposed_takes_nothing(tmp_path: Path) -> None:
    services = DirectoryServices(settings(tmp_path))
    leadership = services.campaign(DISPATCHER)
    assert leadership is not None
    store = services.job_store(leadership)
    store.open(1)
    assert DirectoryServices(settings(tmp_path)).campaign(DISPATCHER) is None
    services.depose(DISPATCHER)
    for write in (store.set_cancelled, store.remove_job, store.forget):
        with pytest.raises(FencedError):
            write(JOB)
    store.close()


def test_a_shared_directory_that_is_not_mounted_is_no_empty_cluster(tmp_path: Path) -> None:
    shared, own = tmp_path / "nfs", {name: tmp_path / name for name in ("first", "second", "third")}

    def services(host: str) -> DirectoryServices:
        return DirectoryServices(settings(shared), own[host])

    for host in ("first", "second"):
        leadership = services(host).campaign(DISPATCHER)
        assert leadership is not None
        leadership.release()
    shared.rename(tmp_path / "away")
    shared.mkdir()
    second = services("second")
    for component in (DISPATCHER, RESOURCEMANAGER, of_job(JOB)):
        with pytest.raises(AwayError, match=r"high-availability.storageDir mounted on this host"):
            second.campaign(component)
    assert list(shared.iterdir()) == [], "nothing is written into the mount point"
    jobmaster = services("third")  # on a host that has led nothing yet
    jobmaster.join()
    with pytest.raises(AwayError):
        jobmaster.campaign(of_job(JOB))
    shutil.rmtree(shared)
    (tmp_path / "away").rename(shared)
    leadership = second.campaign(DISPATCHER)
    assert leadership is not None
    assert leadership.epoch == 3
    other = settings(tmp_path / "other")
    assert DirectoryServices(other, own["second"]).campaign(DISPATCHER) is not None, "another place is a new cluster"


def test_coordinators_that_begin_side_by_side_mark_one_directory(tmp_path: Path) -> None:
    together, errors = threading.Barrier(8), []

    def begin(number: int) -> None:
        services = DirectoryServices(settings(tmp_path / "nfs"), tmp_path / "host")
        together.wait()
        try:
            assert services.campaign(f"component-{number}") is not None
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
