"""The channel to the ResourceManager: find it, register there, and say things under the registration."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from firesteel.core.clock import SystemClock
from firesteel.core.errors import FencedError, PeerUnreachableError
from firesteel.ha.retrieval import RESOURCEMANAGER, Leader, LeaderRetrieval, Listener
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import ResourceManagerGateway
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.service.leader_link import LeaderChannel, LeaderLink
from firesteel.service.registration import RegistrationSettings

SETTINGS = RegistrationSettings(0.001, 0.002, 0.001, 0.001)
FREED = m.SlotAvailable("tm", 0, "a")


class Leaders(LeaderRetrieval):
    """Says who leads, as the test wants it."""

    def __init__(self, leader: Leader | None) -> None:
        self.now = leader
        self.listeners: list[Listener] = []

    def leader(self, component: str) -> Leader | None:
        return self.now

    def watch(self, component: str, listener: Listener) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def change(self, leader: Leader) -> None:
        self.now = leader
        for listener in self.listeners:
            listener(leader)

    def close(self) -> None: ...


class World:
    """ResourceManagers at any address, and a link to them."""

    def __init__(self, leader: Leader | None, address: str = "") -> None:
        self.leaders = Leaders(leader)
        self.errors: list[Exception] = []
        """How the next calls fail."""
        self.silent: set[str] = set()
        """Addresses where nobody ever answers."""
        self.calls: list[tuple[str, str, str]] = []
        """Address, method and token of each call."""
        self.reports: list[str] = []
        self.needed = True
        self.link = LeaderLink(
            self.leaders, lambda: self, self.register, SETTINGS, SystemClock(), lambda: self.needed,
            lambda: self.reports.append("registered"), lambda cause: self.reports.append(f"lost: {cause}"),
            lambda cause: self.reports.append(f"ended: {cause}"), address,
        )  # fmt: skip

    async def call(
        self, base_url: str, method: str, payload: Mapping[str, Any], token: str = "", timeout: float = 0.0
    ) -> dict[str, Any]:
        self.calls.append((base_url, method, token))
        if base_url in self.silent:
            await asyncio.Event().wait()
        if self.errors:
            raise self.errors.pop(0)
        return {"token": f"of {base_url}"}

    async def register(self, gateway: ResourceManagerGateway) -> tuple[str, float]:
        return (await gateway.register_jobmaster(m.RegisterJobMaster("job", "name", "http://jm", "t"))).token, 0.0

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0)

    async def registered(self, times: int = 1) -> None:
        await self.until(lambda: self.reports.count("registered") == times)


def run(test: Callable[[World], Awaitable[None]], leader: Leader | None, address: str = "") -> None:
    async def scenario() -> None:
        w = World(leader, address)
        w.link.start()
        keeping = asyncio.get_running_loop().create_task(w.link.keep())
        try:
            await test(w)
        finally:
            w.link.close()
            await keeping
            assert not w.leaders.listeners

    asyncio.run(scenario())


ELECTED = Leader(3, "http://rm1", "of http://rm1")


def test_a_link_registers_until_it_is_known_and_calls_under_that_registration() -> None:
    async def test(w: World) -> None:
        w.errors += [PeerUnreachableError("away"), RpcFault(RpcCode.INTERNAL, "busy"), FencedError("not yet")]
        await w.registered()
        await w.link.tell("a slot", lambda gateway: gateway.slot_available(FREED), ())
        assert w.calls == [("http://rm1", "register_jobmaster", "of http://rm1")] * 4 + [
            ("http://rm1", "slot_available", "of http://rm1")
        ]
        assert w.reports == ["registered"]

    run(test, ELECTED)


def test_a_leader_that_is_configured_says_its_token_in_the_answer() -> None:
    async def test(w: World) -> None:
        await w.registered()
        assert w.calls == [("http://job says", "register_jobmaster", "")]
        assert w.link.gateway().token == "of http://job says"

    run(test, Leader(0, "http://configured"), "http://job says")


def test_what_is_said_reaches_the_next_leader_if_this_one_leads_no_more() -> None:
    async def test(w: World) -> None:
        await w.registered()
        w.errors += [FencedError("another one leads")]
        w.leaders.now = Leader(4, "http://rm2", "of http://rm2")
        telling = asyncio.ensure_future(w.link.tell("a slot", lambda g: g.slot_available(FREED), (0.001,)))
        await w.until(lambda: "lost: another ResourceManager leads" in w.reports)
        w.leaders.change(Leader(4, "http://rm2", "of http://rm2"))
        await telling
        assert w.calls[-1] == ("http://rm2", "slot_available", "of http://rm2")

    run(test, ELECTED)


def test_a_registration_with_one_who_led_before_is_not_waited_for() -> None:
    async def test(w: World) -> None:
        w.silent.add("http://rm1")
        await w.until(lambda: len(w.calls) == 1)
        w.leaders.change(Leader(4, "http://rm2", "of http://rm2"))
        await w.registered()
        assert [call[0] for call in w.calls] == ["http://rm1", "http://rm2"]
        assert w.link.bond.token == "of http://rm2"

    run(test, ELECTED)


def test_another_leader_breaks_the_bond_and_the_same_one_does_not() -> None:
    async def test(w: World) -> None:
        await w.registered()
        w.leaders.change(Leader(5, "http://rm1", "of http://rm1"))
        assert w.reports == ["registered"]
        w.leaders.change(Leader(6, "http://rm2", "of http://rm2"))
        await w.registered(2)
        assert w.reports == ["registered", "lost: the ResourceManager at http://rm2 leads", "registered"]

    run(test, ELECTED)


def test_a_jobmaster_that_is_followed_by_another_one_registers_no_more() -> None:
    async def test(w: World) -> None:
        w.errors += [RpcFault(RpcCode.GONE, "another JobMaster leads the job")]
        await w.until(lambda: bool(w.reports))
        assert w.reports == ["ended: another JobMaster leads the job"]
        assert w.link.is_closed

    run(test, ELECTED)


def test_a_link_ends_when_nobody_is_there_and_nothing_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(w: World) -> None:
        w.needed = False
        w.errors += [PeerUnreachableError("away")]
        await w.until(lambda: bool(w.reports))
        assert w.reports[0].startswith("ended: could not register at the ResourceManager for 0 s")

    monkeypatch.setattr("tests.unit.service.test_leader_link.SETTINGS", RegistrationSettings(timeout=0.0))
    run(test, ELECTED)


def test_a_bond_that_breaks_again_and_again_is_renewed_more_slowly() -> None:
    async def test(w: World) -> None:
        for times in range(1, 6):
            await w.registered(times)
            w.link.lost("unknown here")
        await w.registered(6)
        w.link.bond.heard()
        assert w.reports.count("lost: unknown here") == 5

    run(test, ELECTED)


def test_neither_the_answer_of_a_former_leader_nor_the_next_repeat_is_waited_for() -> None:
    async def scenario() -> None:
        w = World(ELECTED)
        w.silent.add("http://rm1")
        channel = LeaderChannel(w.leaders, RESOURCEMANAGER, ResourceManagerGateway, lambda: w)
        failures: list[str] = []

        def goes_on(error: Exception) -> bool:
            failures.append(str(error))
            return True

        async def lists() -> asyncio.Task[Any]:
            calls_expected = len(w.calls) + 1
            task = asyncio.get_running_loop().create_task(
                channel.ask(lambda g: g.slot_available(FREED), goes_on, [3600.0] * 9)
            )
            await w.until(lambda: len(w.calls) == calls_expected)
            return task

        channel.start()
        asking = await lists()
        w.leaders.change(Leader(4, "http://rm2", "of http://rm2"))
        async with asyncio.timeout(30):
            await asking
        assert failures == ["another resourcemanager leads now"]
        w.errors += [PeerUnreachableError("away"), PeerUnreachableError("here, too")]
        asking = await lists()
        await w.until(lambda: failures[-1] == "away")
        w.leaders.change(Leader(5, "http://rm3", "of http://rm3"))
        await w.until(lambda: failures[-1] == "here, too")
        assert not asking.done(), "nobody else leads: the pause is kept"
        asking.cancel()
        channel.close()
        assert [call[0] for call in w.calls] == [f"http://rm{number}" for number in (1, 2, 2, 3)]

    asyncio.run(scenario())


def test_a_call_that_is_given_up_ends() -> None:
    async def scenario() -> None:
        w = World(ELECTED)
        ended: list[str] = []

        async def never(gateway: ResourceManagerGateway) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(gateway.address)

        channel = LeaderChannel(w.leaders, RESOURCEMANAGER, ResourceManagerGateway, lambda: w)
        channel.start()
        asking = asyncio.get_running_loop().create_task(channel.ask(never, lambda error: True, [0.0] * 9))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait({asking})
        await w.until(lambda: ended == ["http://rm1"])
        channel.close()

    asyncio.run(scenario())
