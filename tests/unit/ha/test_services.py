from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from firesteel.config import Settings
from firesteel.core.errors import ConfigurationError, FencedError
from firesteel.ha.directory import DirectoryServices
from firesteel.ha.disk import Disk
from firesteel.ha.documents import encode
from firesteel.ha.job_directory import StoredEnd
from firesteel.ha.memory import MemoryServices
from firesteel.ha.retrieval import Attempts
from firesteel.ha.services import DISPATCHER, load_high_availability, of_job
from firesteel.testing import check_high_availability

JOB = "ab" * 16


def settings(directory: Path, **more: str) -> Settings:
    return Settings({"high-availability.type": "directory", "high-availability.storageDir": str(directory), **more})


def test_memory_keeps_the_contract() -> None:
    services = MemoryServices()
    check_high_availability(lambda: services, durable=False)


def test_a_directory_keeps_the_contract(tmp_path: Path) -> None:
    check_high_availability(lambda: DirectoryServices(settings(tmp_path)))


class Forgetful(DirectoryServices):
    """Takes stale leaders at their word."""

    def check(self, component: str, epoch: int) -> None:
        pass


def test_services_that_do_not_fence_are_found_out(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"leadership that was given back holds|whose time is over"):
        check_high_availability(lambda: Forgetful(settings(tmp_path)))


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
    one = DirectoryServices(settings(tmp_path))
    other = DirectoryServices(settings(tmp_path, **{"high-availability.cluster-id": "other"}))
    leaders = one.campaign(DISPATCHER), other.campaign(DISPATCHER)
    assert None not in leaders
    one.close()
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
    services = DirectoryServices(settings(tmp_path))
    leadership = services.campaign(of_job(JOB))
    assert leadership is not None
    leadership.release()
    (record,) = tmp_path.glob("**/job-*.json")
    record.write_bytes(encode("leader", {"epoch": 4, "address": "", "token": "", "attempts": 2}))
    following = services.campaign(of_job(JOB))
    assert following is not None
    assert (following.epoch, following.attempts) == (5, Attempts(2, None))


def test_a_record_of_leaders_that_can_not_be_read_for_now_is_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = DirectoryServices(settings(tmp_path))
    leadership = services.campaign(DISPATCHER)
    assert leadership is not None

    def failing(path: Path) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    with monkeypatch.context() as broken:
        broken.setattr(Path, "read_bytes", failing)
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


def test_a_directory_that_can_not_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"high-availability\.storageDir"):
        DirectoryServices(settings(tmp_path / "file"))


def test_the_type_follows_from_the_settings(tmp_path: Path) -> None:
    assert isinstance(load_high_availability(Settings({}), None), MemoryServices)
    assert isinstance(load_high_availability(Settings({"high-availability.type": "none"}), None), MemoryServices)
    none = {"high-availability.type": "none", "high-availability.storageDir": str(tmp_path / "other")}
    made = load_high_availability(Settings(none), tmp_path)
    assert isinstance(made, DirectoryServices), "a Dispatcher that is started again finds its jobs"
    assert (made.directory, made.has_standbys) == (tmp_path / "ha" / "default", False)
    assert isinstance(load_high_availability(Settings({}), tmp_path), DirectoryServices)
    with pytest.raises(ConfigurationError, match=r"no firesteel\.high_availability plug-in is called 'zookeeper'"):
        load_high_availability(Settings({"high-availability.type": "zookeeper"}), tmp_path)


class SlowDisk(Disk):
    """Stops in the middle of a write until it may go on."""

    def __init__(self) -> None:
        super().__init__(durable=True)
        self.slow, self.entered, self.go_on = False, threading.Event(), threading.Event()

    def rename(self, source: Path, target: Path) -> None:
        if self.slow:
            self.entered.set()
            assert self.go_on.wait(20)
        super().rename(source, target)


def test_a_write_that_was_allowed_is_done_before_another_one_can_lead(tmp_path: Path) -> None:
    disk = SlowDisk()
    services, others = DirectoryServices(settings(tmp_path), disk=disk), DirectoryServices(settings(tmp_path))
    leadership = services.campaign(DISPATCHER)
    assert leadership is not None
    store = services.job_store(leadership)
    store.open(1)
    order: list[str] = []

    def write() -> None:
        store.end(StoredEnd(JOB, "job", "", 1, {"state": "FINISHED"}))
        order.append("written")

    def depose() -> None:
        others.depose(DISPATCHER)
        order.append("deposed")

    disk.slow = True
    threads = [threading.Thread(target=write), threading.Thread(target=depose)]
    threads[0].start()
    assert disk.entered.wait(20)
    threads[1].start()
    threads[1].join(0.1)
    disk.go_on.set()
    for thread in threads:
        thread.join(20)
    assert order == ["written", "deposed"]
    with pytest.raises(FencedError):
        store.end(StoredEnd(JOB, "job", "", 2, {"state": "FAILED"}))
    assert store.archive(JOB) == {"state": "FINISHED"}
    services.close()


def test_a_lock_that_is_removed_while_it_is_taken_is_taken_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services, others = DirectoryServices(settings(tmp_path)), DirectoryServices(settings(tmp_path))
    lock, taken = fcntl.flock, list[int]()

    def late(handle: int, how: int) -> None:
        lock(handle, how)
        if how & fcntl.LOCK_NB and not taken:  # that of a leader; others only guard
            taken.append(handle)
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
