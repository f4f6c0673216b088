"""Calls about slots: in order for each slot, and forgotten when they are done."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any
from unittest import mock

from firesteel.protocol import messages as m
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.service.retries import until_it_works
from firesteel.testing.clock import ManualClock
from firesteel_jobmaster.settings import JobMasterSettings
from firesteel_jobmaster.slot_lanes import SlotLanes
from firesteel_jobmaster.taskmanagers import TaskManagerLinks

TASKS: set[asyncio.Task[Any]] = set()


def lanes_of_a_job() -> SlotLanes:
    def spawn(coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(coroutine)
        TASKS.add(task)
        task.add_done_callback(TASKS.discard)
        return task

    links = TaskManagerLinks(
        "ab" * 16, JobMasterSettings(), ManualClock(), None, "token", spawn,  # type: ignore[arg-type]
        lambda taskmanager: (), lambda taskmanager, report: None, lambda taskmanager, cause, gone_for: None,
    )  # fmt: skip
    links._gateways["tm"] = object()  # type: ignore[assignment]
    return SlotLanes("ab" * 16, links, spawn)


def test_what_several_slots_are_told_at_once_is_one_call() -> None:
    async def main() -> None:
        lanes = lanes_of_a_job()
        sent: list[dict[str, tuple[str, ...]]] = []
        refused: list[str] = []

        async def send(_: Any, tasks: Mapping[str, tuple[str, ...]]) -> m.UnknownSlots:
            sent.append(dict(tasks))
            return m.UnknownSlots(("slot-1",))

        def tell(slot: str, order: str) -> None:
            lanes.call(
                "tm",
                slot,
                order,
                lambda gateway: lanes.together(gateway, "tm", slot, (f"task of {slot}",), order, send),
                failed=lambda: refused.append(slot),
            )

        for number in range(3):
            tell(f"slot-{number}", "checkpoint 7")
        tell("slot-0", "checkpoint 8")
        tell("slot-3", "checkpoint 8")
        while TASKS:
            await asyncio.sleep(0)
        assert sent == [
            {f"slot-{number}": (f"task of slot-{number}",) for number in range(3)},
            {"slot-3": ("task of slot-3",)},
            {"slot-0": ("task of slot-0",)},
        ], "slot-0 hears of one checkpoint after the other, and nobody waits for it"
        assert refused == ["slot-1"], "the others have heard it"
        assert not lanes._lanes

    asyncio.run(main())


def test_a_call_to_several_slots_that_fails_is_made_again_for_all() -> None:
    async def main() -> None:
        lanes = lanes_of_a_job()
        lanes._links.monitor.watch("tm")
        heard: list[str] = []
        tries = iter(range(5))

        async def send(_: Any, tasks: Mapping[str, tuple[str, ...]]) -> None:
            if next(tries) == 0:
                raise RpcFault(RpcCode.INTERNAL, "not now")
            heard.extend(tasks)

        for slot in ("a", "b"):
            lanes.call("tm", slot, "x", lambda gateway, slot=slot: lanes.together(gateway, "tm", slot, (), "x", send))  # type: ignore[misc]
        with mock.patch("firesteel_jobmaster.slot_lanes.until_it_works", partial(until_it_works, waits=(0.0, 0.0))):
            while TASKS:
                await asyncio.sleep(0)
        assert sorted(heard) == ["a", "b"]

    asyncio.run(main())


def test_calls_that_wait_are_not_made_once_the_jobmaster_has_crashed() -> None:
    async def main() -> None:
        lanes = lanes_of_a_job()
        calls: list[str] = []
        may_end = asyncio.Event()

        async def call(name: str) -> None:
            calls.append(name)
            await may_end.wait()

        for name in ("first", "second"):
            lanes.call("tm", "slot-0", name, lambda _, name=name: call(name))  # type: ignore[misc]
        await asyncio.sleep(0)
        lanes.silence()
        may_end.set()
        while TASKS:
            await asyncio.sleep(0)
        assert calls == ["first"]
        assert not lanes._lanes

    asyncio.run(main())


def test_what_is_kept_of_slots_does_not_grow_with_the_age_of_a_job() -> None:
    async def main() -> None:
        lanes = lanes_of_a_job()
        done: list[int] = []

        async def call(number: int, may_end: asyncio.Event) -> None:
            await may_end.wait()
            done.append(number)

        first, others = asyncio.Event(), asyncio.Event()
        others.set()
        lanes.call("tm", "slot-0", "a call", lambda _: call(0, first), once=True)
        for number in range(1, 50):
            lanes.call("tm", f"slot-{number}", "a call", lambda _, number=number: call(number, others), once=True)  # type: ignore[misc]
            while number not in done:
                await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert len(lanes._lanes) <= 3
        lanes.call("tm", "slot-0", "the next call", lambda _: call(100, others), once=True)
        first.set()
        while TASKS:
            await asyncio.sleep(0)
        assert done[-2:] == [0, 100], "calls about one slot keep their order"

    asyncio.run(main())
