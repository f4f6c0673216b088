"""Calls about slots: in order for each slot, and forgotten when they are done."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from firesteel.testing.clock import ManualClock
from firesteel_jobmaster.settings import JobMasterSettings
from firesteel_jobmaster.taskmanagers import TaskManagerLinks


def test_what_is_kept_of_slots_does_not_grow_with_the_age_of_a_job() -> None:
    async def main() -> None:
        tasks: set[asyncio.Task[Any]] = set()

        def spawn(coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
            task = asyncio.ensure_future(coroutine)
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            return task

        links = TaskManagerLinks(
            "ab" * 16, JobMasterSettings(), ManualClock(), None, "token", spawn, spawn,  # type: ignore[arg-type]
            lambda taskmanager: (), lambda taskmanager, report: None, lambda taskmanager, cause: None,
        )  # fmt: skip
        done: list[int] = []

        async def call(number: int, may_end: asyncio.Event) -> None:
            await may_end.wait()
            done.append(number)

        links._gateways["tm"] = object()  # type: ignore[assignment]
        first, others = asyncio.Event(), asyncio.Event()
        others.set()
        links.call("tm", "slot-0", "a call", lambda _: call(0, first), once=True)
        for number in range(1, 50):
            links.call("tm", f"slot-{number}", "a call", lambda _, number=number: call(number, others), once=True)  # type: ignore[misc]
            while number not in done:
                await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert len(links._lanes) <= 3
        links.call("tm", "slot-0", "the next call", lambda _: call(100, others), once=True)
        first.set()
        while tasks:
            await asyncio.sleep(0)
        assert done[-2:] == [0, 100], "calls about one slot keep their order"

    asyncio.run(main())
