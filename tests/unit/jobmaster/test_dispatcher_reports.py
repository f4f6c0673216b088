from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from firesteel.core.errors import FencedError, PeerUnreachableError, RpcError
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import DispatcherGateway
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.protocol.method import Answer, Method, Request
from firesteel.rpc import RpcClient
from firesteel.service.background import BackgroundTasks
from firesteel.testing.clock import ManualClock
from firesteel_jobmaster import dispatcher
from firesteel_jobmaster.dispatcher import DispatcherReporter

JOB = "ab" * 16


class Gateway(DispatcherGateway):
    """Of a Dispatcher that answers with these errors first, then takes everything."""

    def __init__(self, *errors: RpcError, forever: RpcError | None = None) -> None:
        super().__init__(RpcClient(None, "secret", ManualClock()), "")  # type: ignore[arg-type]
        self.errors, self.forever = list(errors), forever
        self.calls = 0
        self.heard: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def call(self, method: Method[Request, Answer], message: Request) -> Answer:
        if isinstance(message, m.JobFinished):
            await self._answer(f"end {message.archive['state']}")
        else:
            assert isinstance(message, m.JobStateChanged)
            await self._answer(message.state)
        return method.read_answer({})

    async def _answer(self, what: str) -> None:
        self.calls += 1
        await self.gate.wait()
        if self.errors or self.forever:
            raise self.errors.pop(0) if self.errors else self.forever  # type: ignore[misc]
        self.heard.append(what)


class World:
    def __init__(self, gateway: Gateway) -> None:
        self.clock, self.tasks, self.gateway = ManualClock(), BackgroundTasks("test"), gateway
        self.reporter = DispatcherReporter(gateway, JOB, "token", self.clock, self.tasks.spawn)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(dispatcher, "LONGEST_PAUSE", 0.002)


def run(test: Callable[[World], Awaitable[Any]], *errors: RpcError, forever: RpcError | None = None) -> None:
    async def main() -> None:
        w = World(Gateway(*errors, forever=forever))
        try:
            await test(w)
        finally:
            await w.tasks.close()

    asyncio.run(main())


def gone() -> PeerUnreachableError:
    return PeerUnreachableError("nobody there")


def test_states_are_told_in_order_and_overtaken_ones_are_left_out() -> None:
    async def test(w: World) -> None:
        w.gateway.gate.clear()
        for state in ("CREATED", "RUNNING", "FAILING"):
            w.reporter.state(state, {})
            await w.until(lambda: w.gateway.calls > 0)
        w.reporter.end({"state": "FAILED"})
        w.reporter.state("late", {})
        w.gateway.gate.set()
        await w.reporter.acknowledged.wait()
        assert w.gateway.heard == ["CREATED", "end FAILED"]

    run(test)


def test_what_does_not_arrive_is_repeated() -> None:
    async def test(w: World) -> None:
        w.reporter.end({"state": "FINISHED"})
        await w.reporter.acknowledged.wait()
        assert w.gateway.calls == 4

    run(test, gone(), RpcFault(RpcCode.INTERNAL, "bug"), RpcFault(RpcCode.UNAUTHORIZED, "clocks"))


@pytest.mark.parametrize(("code", "stored"), [(None, True), (RpcCode.GONE, False), (RpcCode.NOT_FOUND, False)])
def test_an_end_is_stored_only_if_the_dispatcher_took_it(code: RpcCode | None, stored: bool) -> None:
    async def test(w: World) -> None:
        w.reporter.end({"state": "FINISHED"})
        await w.reporter.acknowledged.wait()
        assert w.reporter.is_end_stored is stored
        assert w.gateway.calls == 1

    run(test, *([RpcFault(code, "another JobMaster has the job")] if code else []))


def test_an_end_is_kept_for_the_dispatcher_that_adopts_the_job() -> None:
    async def test(w: World) -> None:
        w.reporter.end({"state": "FINISHED"})
        await w.until(lambda: w.gateway.calls >= 2)
        assert not w.reporter.acknowledged.is_set()
        following = Gateway()
        w.reporter.adopt(following)
        await w.reporter.acknowledged.wait()
        assert following.heard == ["end FINISHED"]

    run(test, forever=FencedError("stale"))


def test_an_adoption_does_not_wait_for_the_next_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "FIRST_PAUSE", 3600.0)

    async def test(w: World) -> None:
        w.reporter.end({"state": "FINISHED"})
        await w.until(lambda: w.gateway.calls == 1)
        following = Gateway()
        w.reporter.adopt(following)
        async with asyncio.timeout(10):
            await w.reporter.acknowledged.wait()
        assert following.heard == ["end FINISHED"]

    run(test, forever=gone())


def test_a_deposed_dispatcher_gets_no_more_states_until_the_next_one_adopts() -> None:
    async def test(w: World) -> None:
        w.reporter.state("RUNNING", {})
        await w.until(lambda: not len(w.tasks))
        assert w.gateway.calls == 1
        following = Gateway()
        w.reporter.adopt(following)
        w.reporter.state("RUNNING", {})  # as the core has it said again
        await w.until(lambda: following.heard == ["RUNNING"])

    run(test, forever=FencedError("stale"))


def test_a_dispatcher_that_leads_may_not_want_to_know() -> None:
    async def test(w: World) -> None:
        w.reporter.end({"state": "FINISHED"})
        await w.reporter.acknowledged.wait()
        assert w.gateway.calls == 1

    run(test, forever=RpcFault(RpcCode.NOT_FOUND, "no such job"))


def test_an_end_that_nobody_takes_is_given_up_some_time() -> None:
    async def test(w: World) -> None:
        w.reporter.end({"state": "FINISHED"})
        await w.until(lambda: w.gateway.calls >= 3)
        assert not w.reporter.acknowledged.is_set()
        w.clock.advance(dispatcher.END_KEPT)
        await w.reporter.acknowledged.wait()

    run(test, forever=gone())


def test_a_host_that_stops_tries_once_more() -> None:
    async def test(w: World) -> None:
        w.reporter.end({"state": "FINISHED"})
        await w.until(lambda: w.gateway.calls >= 2)
        w.reporter.hurry()
        await w.reporter.acknowledged.wait()
        await w.until(lambda: not len(w.tasks))

    run(test, forever=gone())
