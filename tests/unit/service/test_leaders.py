"""Following the leader of a peer, and becoming one."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from firesteel.config import Settings
from firesteel.core.errors import ConfigurationError, FencedError
from firesteel.ha.cells import AwayError
from firesteel.ha.directory import DirectoryServices
from firesteel.ha.memory import MemoryCells, MemoryServices
from firesteel.ha.retrieval import FixedLeaders, Leader
from firesteel.ha.services import RESOURCEMANAGER, Leadership
from firesteel.service import leaders
from firesteel.service.leaders import Candidate, PeerLeader


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaders, "CAMPAIGN_SECONDS", 0.0)
    monkeypatch.setattr(leaders, "CHECK_SECONDS", 0.0)
    monkeypatch.setattr(leaders, "TAKEOVER_SECONDS", -1.0)


def lead(services: MemoryServices, address: str) -> Leadership:
    leadership = services.campaign(RESOURCEMANAGER)
    assert leadership is not None
    leadership.announce(address, "token")
    return leadership


def test_a_peer_is_followed_until_that_is_ended() -> None:
    async def scenario() -> None:
        services, seen = MemoryServices(), list[str]()
        peer = PeerLeader(services, RESOURCEMANAGER, lambda: seen.append(peer.address))
        peer.start()
        assert (peer.address, peer.elected) == ("", None)
        first = lead(services, "http://a")
        assert peer.elected == services.leader(RESOURCEMANAGER)
        first.release()
        assert peer.address == "http://a", "it is asked until another one says where it is"
        await asyncio.to_thread(lead, services, "http://b")  # told on another thread
        await asyncio.sleep(0)
        assert (peer.address, seen) == ("http://b", ["http://a", "http://b"])
        services.depose(RESOURCEMANAGER)
        peer.stop()
        peer.stop()
        lead(services, "http://c")
        assert seen == ["http://a", "http://b"]

    asyncio.run(scenario())


def test_a_peer_that_is_configured_is_not_elected() -> None:
    async def scenario() -> None:
        peer = PeerLeader(FixedLeaders({RESOURCEMANAGER: "http://a"}), RESOURCEMANAGER, lambda: pytest.fail("changed"))
        peer.start()
        assert (peer.address, peer.elected) == ("http://a", None)

    asyncio.run(scenario())


class Standby(MemoryServices):
    """Several processes may wait for their turn."""

    has_standbys = True


def test_a_standby_leads_when_the_leader_has_gone() -> None:
    async def scenario() -> None:
        services = Standby()
        leader, follower = Candidate(services, RESOURCEMANAGER), Candidate(services, RESOURCEMANAGER)
        first = await leader.lead()
        await leader.announce("http://one", "1")
        waiting = asyncio.ensure_future(follower.lead())
        await until(lambda: follower.is_standby)
        assert not waiting.done()
        holding = asyncio.ensure_future(leader.hold())
        await leader.give_up()
        second = await waiting
        await holding
        assert (follower.is_standby, second.epoch > first.epoch) == (False, True)
        await follower.announce("http://other", "2")
        services.depose(RESOURCEMANAGER)
        with pytest.raises(FencedError, match="leads the resourcemanager no more"):
            await follower.hold()
        with pytest.raises(FencedError):
            await follower.announce("http://stale", "2")

    asyncio.run(scenario())


def test_a_standby_campaigns_seldom_where_it_is_told_that_nobody_leads() -> None:
    class Told(Standby):
        campaigns = 0

        def campaign(self, component: str) -> Leadership | None:
            self.campaigns += 1
            return super().campaign(component)

    async def scenario() -> None:
        services = Told()
        services.campaign_seconds = 1000.0
        leader, follower = Candidate(services, RESOURCEMANAGER), Candidate(services, RESOURCEMANAGER)
        await leader.lead()
        await leader.announce("http://one", "1")
        waiting = asyncio.ensure_future(follower.lead())
        await until(lambda: follower._unwatch is not None)
        services.campaigns = 0
        for _ in range(100):
            await asyncio.sleep(0)
        assert services.campaigns == 0
        async with asyncio.timeout(20):
            await leader.give_up()
            await waiting  # long before its next campaign is due
        assert follower._unwatch is None

    asyncio.run(scenario())


def test_where_no_standby_is_expected_a_second_process_is_a_mistake(tmp_path: Path) -> None:
    async def scenario() -> None:
        leading, other = (DirectoryServices(Settings({}), tmp_path) for _ in range(2))
        await Candidate(leading, RESOURCEMANAGER).lead()
        with pytest.raises(ConfigurationError, match=r"Another process leads the resourcemanager .*cluster.directory"):
            await Candidate(other, RESOURCEMANAGER).lead()
        leading.close()
        other.close()

    asyncio.run(scenario())


class Unreadable(MemoryCells):
    """Reading fails for a while."""

    failing = 0

    def check(self, component: str, epoch: int) -> None:
        self._look()
        super().check(component, epoch)

    def campaign(self, component: str) -> int | None:
        self._look()
        return super().campaign(component)

    def _look(self) -> None:
        if self.failing:
            self.failing -= 1
            raise OSError(5, "Input/output error")


class Away(MemoryCells):
    """A coordination service that does not answer at first."""

    def __init__(self, error: Callable[[str], OSError]) -> None:
        super().__init__()
        self.error, self.left = error, 3

    def campaign(self, component: str) -> int | None:
        self.left -= 1
        if self.left >= 0:
            raise self.error("it does not answer")
        return super().campaign(component)


def test_a_process_that_is_to_lead_waits_for_a_coordination_service_that_is_away() -> None:
    async def scenario() -> None:
        services = Standby()
        services.cells = Away(AwayError)
        await Candidate(services, RESOURCEMANAGER).lead()
        assert services.leader(RESOURCEMANAGER) is not None
        services.cells = Away(OSError)
        with pytest.raises(OSError, match="does not answer"):
            await Candidate(services, RESOURCEMANAGER).lead()
        services.cells = Away(OSError)
        waiting = Candidate(services, RESOURCEMANAGER)
        waiting.is_standby = True  # another process has led, so what it reads was in order
        await waiting.lead()
        assert services.leader(RESOURCEMANAGER) is not None

    asyncio.run(scenario())


def test_an_error_of_the_disk_that_passes_ends_neither_a_leader_nor_a_standby() -> None:
    async def scenario() -> None:
        services = Standby()
        services.cells = cells = Unreadable()
        leader, follower = Candidate(services, RESOURCEMANAGER), Candidate(services, RESOURCEMANAGER)
        await leader.lead()
        waiting, holding = asyncio.ensure_future(follower.lead()), asyncio.ensure_future(leader.hold())
        await until(lambda: follower.is_standby)
        cells.failing = 6
        await until(lambda: not cells.failing)
        assert not waiting.done()
        assert not holding.done()
        await leader.give_up()
        await waiting
        await holding

    asyncio.run(scenario())


def test_a_full_disk_is_waited_for_by_who_is_to_lead_and_by_who_says_where_it_is() -> None:
    class Full(Away):
        def announce(self, component: str, leader: Leader) -> None:
            self.left -= 1
            if self.left >= 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            super().announce(component, leader)

    async def scenario() -> None:
        services = Standby()
        services.cells = cells = Full(lambda text: OSError(errno.EROFS, text))
        candidate = Candidate(services, RESOURCEMANAGER)
        await candidate.lead()
        cells.left = 2
        await candidate.announce("http://here", "token")
        leader = services.leader(RESOURCEMANAGER)
        assert leader is not None
        assert leader.address == "http://here"

    asyncio.run(scenario())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0)
