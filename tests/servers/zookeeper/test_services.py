"""High availability on a real ZooKeeper: its contract, leaders that are cut off, sessions that end."""

from __future__ import annotations

import errno
import itertools
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from firesteel.checkpoint.store import StoredCheckpoint
from firesteel.config import Settings
from firesteel.core.errors import CheckpointStorageError, ConfigurationError, FencedError
from firesteel.ha.cells import Put, UnsureError
from firesteel.ha.disk import Disk
from firesteel.ha.retrieval import Leader
from firesteel.ha.services import RESOURCEMANAGER, Leadership, load_high_availability, load_retrieval, of_job
from firesteel.testing import check_cells, check_high_availability
from firesteel_zookeeper.services import ZooKeeperCells, ZooKeeperServices
from tests.checkpoint_store_kit import check_checkpoint_store
from tests.servers.zookeeper.server import TICK_MS, ZooKeeper
from tests.unit.ha.crashes import check_failing_disk, check_power_cuts
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(300)
JOB = "ab" * 16
SESSION = 3.0
_names = (f"test-{number}" for number in itertools.count())


@pytest.fixture
def settings(zookeeper: ZooKeeper, tmp_path: Path) -> Settings:
    """Of a cluster of its own."""
    return Settings(zookeeper.settings(tmp_path, **{"high-availability.cluster-id": next(_names)}))


@pytest.fixture
def services(settings: Settings) -> Iterator[ZooKeeperServices]:
    zookeeper_services = ZooKeeperServices(settings)
    yield zookeeper_services
    zookeeper_services.close()


def lead(services: ZooKeeperServices, component: str) -> Leadership:
    leadership = services.campaign(component)
    assert leadership is not None
    return leadership


def test_zookeeper_keeps_the_contracts(settings: Settings, zookeeper: ZooKeeper, tmp_path: Path) -> None:
    check_high_availability(lambda: ZooKeeperServices(settings))
    check_cells(lambda: ZooKeeperCells(Settings(zookeeper.settings(tmp_path, **{"high-availability.cluster-id": "c"}))))
    services = ZooKeeperServices(settings)
    leadership = lead(services, of_job("cd" * 16))
    check_checkpoint_store(lambda: services.completed_checkpoints("cd" * 16, leadership))
    services.close()


def test_payloads_that_lose_power_and_fail_cost_nothing(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    def cells(folder: Path, disk: Disk) -> ZooKeeperCells:
        return ZooKeeperCells(Settings(zookeeper.settings(tmp_path, **{"high-availability.cluster-id": folder.name})))

    check_power_cuts(tmp_path, cells, lose=True, stride=7)
    check_failing_disk(tmp_path, cells, errno.ENOSPC, stride=9)


def test_digest_and_a_path_in_the_quorum(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    """Nodes that nobody else can read, below a path that is not there yet."""
    client = "high-availability.zookeeper.client"
    own = zookeeper.settings(tmp_path, **{f"{client}.acl": "creator", f"{client}.authorization": "digest:me:secret"})
    own["high-availability.zookeeper.quorum"] += "/apps/streams"
    services = ZooKeeperServices(Settings(own))
    lead(services, RESOURCEMANAGER).announce("http://me:1", "token")
    others = dict(own) | {f"{client}.acl": "open"}
    del others[f"{client}.authorization"]
    stranger = ZooKeeperServices(Settings(others))
    with pytest.raises(OSError, match="NoAuth"):
        stranger.campaign(RESOURCEMANAGER)
    assert stranger.leader(RESOURCEMANAGER) is None
    leader = services.leader(RESOURCEMANAGER)
    assert leader is not None
    assert leader.address == "http://me:1"
    stranger.close()
    services.close()


def test_the_next_one_leads_when_the_session_of_a_process_that_was_killed_is_over(
    settings: Settings, services: ZooKeeperServices
) -> None:
    program = (
        "import sys, time; from firesteel.config import Settings;"
        "from firesteel_zookeeper.services import ZooKeeperServices;"
        f"l = ZooKeeperServices(Settings({dict(settings.to_plain())!r})).campaign('job-x');"
        "l.announce('http://first:1', 't'); print(l.epoch, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        epoch = int(process.stdout.readline())
        heard: list[Leader | None] = []
        services.watch("job-x", heard.append)
        assert services.campaign("job-x") is None
        process.kill()
        killed = time.monotonic()
        won: list[Leadership] = []

        def leads() -> bool:
            leadership = services.campaign("job-x")
            won.extend([leadership] if leadership is not None else [])
            return leadership is not None

        wait_until(leads, "the next one leads")
        took = time.monotonic() - killed
    assert won[0].epoch == epoch + 1
    assert took <= SESSION + 1 + TICK_MS / 1000, f"the next one leads after {took:.1f} s"
    assert heard[0] == Leader(epoch, "http://first:1", "t")
    wait_until(lambda: heard[-1] is not None and heard[-1].epoch == epoch + 1, "the change is told")


def test_a_leader_that_zookeeper_does_not_hear_gives_up_before_another_one_can_lead(
    settings: Settings, services: ZooKeeperServices, zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server stands still: nobody can lead, and who leads knows in time that this may not be so any more."""
    leadership = lead(services, of_job(JOB))
    store = services.completed_checkpoints(JOB, leadership)
    store.add(StoredCheckpoint(1, "file:///a/chk-1"))
    server = zookeeper.servers[0]
    server.signal(signal.SIGSTOP)
    stopped = time.monotonic()
    try:
        wait_until(lambda: time.monotonic() >= stopped + SESSION, "another one could lead")
        with monkeypatch.context() as patch:  # it knows by itself, without a question
            patch.setattr(services.cells, "_ask", lambda *_: pytest.fail("it believes that it may still lead"))
            with pytest.raises(FencedError):
                leadership.check()
        with pytest.raises(FencedError):
            services.cells.change(of_job(JOB), leadership.epoch, [Put("x", b"", None)])
    finally:
        server.signal(signal.SIGCONT)
    with pytest.raises(FencedError):
        leadership.check()
    other = ZooKeeperServices(settings)
    following: list[Leadership] = []

    def leads() -> bool:
        epoch = services.campaign(of_job(JOB))
        following.extend([epoch] if epoch is not None else [])
        return epoch is not None

    wait_until(leads, "it can lead again")
    assert following[0].epoch > leadership.epoch
    assert services.completed_checkpoints(JOB, following[0]).all() == [StoredCheckpoint(1, "file:///a/chk-1")]
    assert other.campaign(of_job(JOB)) is None
    other.close()


def test_what_a_leader_writes_whose_session_was_ended_is_refused_by_zookeeper(
    services: ZooKeeperServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the leader itself believes that it leads."""
    leadership = lead(services, of_job(JOB))
    store = services.completed_checkpoints(JOB, leadership)
    store.next_id()
    services.depose(of_job(JOB))
    monkeypatch.setattr(services.cells, "_leads", lambda component, epoch: None)
    with pytest.raises(FencedError):
        services.cells.change(of_job(JOB), leadership.epoch, [Put("x", b"", None)])
    with pytest.raises(FencedError):
        store.next_id()


def test_a_server_that_starts_again_costs_a_leader_nothing(services: ZooKeeperServices, zookeeper: ZooKeeper) -> None:
    leadership = lead(services, of_job(JOB))
    store = services.completed_checkpoints(JOB, leadership)
    server = zookeeper.servers[0]
    server.signal(signal.SIGSTOP)
    time.sleep(0.7)
    server.signal(signal.SIGCONT)
    assert store.next_id() == 1
    leadership.check()


def test_a_zookeeper_that_is_not_there_is_said(tmp_path: Path) -> None:
    client = "high-availability.zookeeper.client"
    options = {
        "high-availability.type": "ZooKeeper", "high-availability.zookeeper.quorum": "127.0.0.1:1",
        "high-availability.storageDir": str(tmp_path), f"{client}.connection-timeout": "300 ms",
    }  # fmt: skip
    services = load_high_availability(Settings(options), tmp_path)
    with pytest.raises(OSError, match=r"ZooKeeper is not to be reached at 127\.0\.0\.1:1"):
        services.campaign(RESOURCEMANAGER)
    assert services.leader(RESOURCEMANAGER) is None
    services.close()
    for missing in ("high-availability.zookeeper.quorum", "high-availability.storageDir"):
        rest = {key: value for key, value in options.items() if key != missing}
        with pytest.raises(ConfigurationError, match=missing):
            load_retrieval(Settings(rest))


@pytest.mark.long
def test_three_servers_of_which_the_leader_is_killed(three_zookeepers: ZooKeeper, tmp_path: Path) -> None:
    """The leader of a component goes on, and writes; nobody else leads meanwhile."""
    settings = Settings(three_zookeepers.settings(tmp_path, session="6 s"))
    services, other = ZooKeeperServices(settings), ZooKeeperServices(settings)
    leadership = lead(services, of_job(JOB))
    store = services.completed_checkpoints(JOB, leadership)
    assert store.next_id() == 1
    three_zookeepers.leader().kill()
    began = time.monotonic()

    def counts() -> int:
        try:
            return store.next_id()
        except (CheckpointStorageError, UnsureError):
            return 0

    number = wait_until(counts, "writes go on")
    took = time.monotonic() - began
    assert number >= 2
    assert other.campaign(of_job(JOB)) is None
    leadership.check()
    print(f"writes went on {took:.1f} s after the leader of ZooKeeper was killed")
    services.close()
    following = lead(other, of_job(JOB))
    assert following.epoch > leadership.epoch
    assert other.completed_checkpoints(JOB, following).next_id() > number
    other.close()
