"""How the shell exchanges heartbeats with TaskManagers."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from firesteel.core.errors import RpcError
from firesteel.testing.clock import ManualClock
from firesteel_jobmaster.settings import JobMasterSettings
from firesteel_jobmaster.taskmanagers import TaskManagerLinks


class NoClient:
    """Carries nothing."""

    async def call(self, *_: Any, **__: Any) -> Any:
        raise RpcError("a call in a test")


def test_a_taskmanager_that_is_watched_again_has_one_exchange_of_heartbeats() -> None:
    async def main() -> None:
        tasks: list[asyncio.Task[Any]] = []

        def spawn(coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
            tasks.append(asyncio.get_running_loop().create_task(_sleeping(coroutine), name=name))
            return tasks[-1]

        async def _sleeping(coroutine: Coroutine[Any, Any, Any]) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                coroutine.close()

        def alive() -> list[str]:
            return sorted(task.get_name() for task in tasks if not task.done() and not task.cancelling())

        lost: list[str] = []
        client: Any = NoClient()
        links = TaskManagerLinks(
            "job", JobMasterSettings(), ManualClock(), client, "token", spawn, lambda _: (),
            lambda tm, report: None, lambda tm, cause, gone_for: lost.append(cause),
        )  # fmt: skip
        for _ in range(3):
            links.watch("tm", "http://tm:1")
            await asyncio.sleep(0)
            assert alive() == ["connection to tm", "heartbeat monitor", "heartbeats to tm"]
            links.forget("tm")
            await asyncio.sleep(0)
            assert alive() == ["heartbeat monitor"]
        links.close()
        await asyncio.wait(tasks)
        assert lost == []

    asyncio.run(main())


def test_of_one_that_was_silent_it_is_known_for_how_long() -> None:
    async def main() -> None:
        lost: list[tuple[str, float]] = []
        clock = ManualClock()
        client: Any = NoClient()

        def spawn(coroutine: Coroutine[Any, Any, None], name: str) -> None:
            coroutine.close()

        links = TaskManagerLinks(
            "job", JobMasterSettings(heartbeat_interval=10.0, heartbeat_timeout=50.0), clock, client, "token",
            spawn, lambda _: (), lambda tm, report: None,
            lambda tm, cause, gone_for: lost.append((tm, gone_for)),
        )  # fmt: skip
        for name in ("silent", "killed"):
            links.watch(name, "http://tm:1")
        links._gone("killed", "the connection broke")
        for _ in range(51):
            clock.advance(1.0)
            links._find_lost()
        assert lost == [("killed", 0.0), ("silent", 40.0)]

    asyncio.run(main())
