"""How calls are made again, and how what is said to one party keeps its order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from firesteel.core.errors import FencedError, PeerUnreachableError, RpcError
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.service.lanes import Calls, Lane
from firesteel.service.retries import PeerPatience, repeated, until_it_works, until_storage_answers
from firesteel.testing.clock import ManualClock

AWAY = PeerUnreachableError("away")
BUSY = RpcFault(RpcCode.INTERNAL, "busy")


def failing(*errors: Exception) -> Callable[[], Coroutine[Any, Any, str]]:
    """A call that fails so, and then works."""
    left = list(errors)

    async def call() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return call


def test_a_call_is_made_again_after_its_pauses() -> None:
    waited: list[float] = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    async def scenario() -> None:
        assert await repeated(failing(AWAY, BUSY), lambda _: True, (0.1, 0.2, 0.4), wait) == "done"
        assert waited == [0.1, 0.2]
        with pytest.raises(PeerUnreachableError):
            await repeated(failing(AWAY, AWAY), lambda _: True, (0.1,), wait)
        with pytest.raises(FencedError):
            await repeated(failing(FencedError("no")), lambda e: isinstance(e, PeerUnreachableError), (0.1,), wait)
        with pytest.raises(KeyError):
            await repeated(failing(KeyError("a bug")), lambda _: True, (0.1,), wait)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("errors", "worked", "unreached"),
    [
        ((AWAY, BUSY, AWAY), True, 2),
        ((AWAY, FencedError("another one leads")), False, 1),
        ((RpcFault(RpcCode.REFUSED, "no"),), False, 0),
        ((AWAY,) * 6, False, 5),
    ],
)
def test_what_may_work_later_is_tried_until_it_works(
    errors: tuple[RpcError, ...], worked: bool, unreached: int
) -> None:
    heard: list[str] = []
    tries = iter(range(4))

    async def scenario() -> None:
        done = await until_it_works(
            "a call",
            failing(*errors),
            lambda: next(tries, None) is not None,
            lambda: heard.append("away"),
            iter(float, 1),
        )
        assert (done, len(heard)) == (worked, unreached)

    asyncio.run(scenario())


def test_patience_is_not_used_up_by_a_stall() -> None:
    clock = ManualClock()
    patience = PeerPatience(clock, 10.0, longest_try=4.0)
    patience.next_try()
    clock.advance(3600.0)
    patience.next_try()
    assert not patience.is_over
    clock.advance(3.0)
    patience.next_try()
    assert not patience.is_over
    clock.advance(3.0)
    patience.next_try()
    assert patience.is_over


class World:
    """A lane whose pieces are heard when the gate is open."""

    def __init__(self, join: Callable[[str, str], str | None] | None = None) -> None:
        self.heard: list[str] = []
        self.gate = asyncio.Event()
        self.running: set[asyncio.Task[Any]] = set()
        self.stops = False
        self.lane: Lane[str] = Lane("test", self.say, self.spawn, join)

    async def say(self, piece: str) -> None:
        await self.gate.wait()
        self.heard.append(self.lane.with_next(piece))

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any] | None:
        if self.stops:
            coroutine.close()
            return None
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self.running.add(task)
        task.add_done_callback(self.running.discard)
        return task

    async def settle(self) -> None:
        self.gate.set()
        while self.running:
            await asyncio.wait(self.running)


def test_a_lane_keeps_the_order() -> None:
    async def scenario() -> None:
        w = World()
        for piece in "abc":
            w.lane.add(piece)
        assert not w.lane.is_idle
        assert len(w.running) == 1
        await w.settle()
        assert w.heard == ["a", "b", "c"]
        assert w.lane.is_idle
        w.stops = True
        w.lane.add("d")
        w.stops = False
        w.lane.add("e")
        await w.settle()
        assert w.heard == ["a", "b", "c", "d", "e"]

    asyncio.run(scenario())


def test_pieces_that_wait_are_joined_and_join_one_that_was_not_heard() -> None:
    def join(earlier: str, later: str) -> str | None:
        return earlier + later if earlier[0] == later[0] else None

    async def scenario() -> None:
        w = World(join)
        for piece in ("a1", "a2", "b1", "b2", "a3"):
            w.lane.add(piece)
            await asyncio.sleep(0)
        await w.settle()
        assert w.heard == ["a1a2", "b1b2", "a3"]
        w.gate.clear()
        w.lane.add("a")
        await asyncio.sleep(0)
        w.lane.add("b")
        w.lane.clear()
        await w.settle()
        assert w.heard[3:] == ["a"]

    asyncio.run(scenario())


def test_a_call_that_raises_ends_only_itself(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        done: list[int] = []

        async def call_number(number: int) -> None:
            if number == 1:
                raise ZeroDivisionError
            done.append(number)

        calls = Calls("calls", World().spawn)
        for number in range(3):
            calls.add(lambda number=number: call_number(number))  # type: ignore[misc]
        await calls.done()
        assert done == [0, 2]
        assert "calls: a call failed" in caplog.text

    asyncio.run(scenario())


def test_work_on_storage_is_repeated_after_its_pauses_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    waited: list[float] = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    async def scenario() -> None:
        attempt = failing(OSError("disk full"), OSError("disk gone"))
        assert await until_storage_answers("the end can't be stored", attempt, (0.1, 0.2, 0.4), wait=wait) == "done"

    asyncio.run(scenario())
    assert waited == [0.1, 0.2]
    assert caplog.messages == [
        "the end can't be stored: disk full; next try in 0.1 s",
        "the end can't be stored: disk gone; next try in 0.2 s",
    ]


def test_work_on_storage_is_not_repeated_for_other_errors_nor_where_another_process_leads() -> None:
    async def scenario(error: Exception, failures: type[Exception]) -> None:
        with pytest.raises(type(error)):
            await until_storage_answers("the end can't be stored", failing(error), (0.0, 0.0), failures)

    asyncio.run(scenario(ValueError("a bug"), OSError))
    asyncio.run(scenario(FencedError("another one leads"), Exception))
