"""What the core decides for thousands of slots at once is begun in slices, in its order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any

from firesteel_resourcemanager.shell import PERFORMED_AT_ONCE, ResourceManagerService


class Service(ResourceManagerService):
    """One without network, whose instructions are numbers."""

    def __init__(self) -> None:
        self._waiting, self._is_performing = deque(), False
        self.begun: list[Any] = []
        self.most = self.spawned = 0
        self.tasks: list[asyncio.Task[Any]] = []
        self.closed = False

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any] | None:
        if self.closed:
            coroutine.close()
            return None
        self.spawned += 1
        self.tasks.append(asyncio.get_running_loop().create_task(coroutine))
        return self.tasks[-1]

    async def _do(self, instruction: Any) -> None:
        self.begun.append(instruction)

    async def turns(self) -> None:
        """Until all is begun: how many tasks were made from one turn of the loop to the next."""
        while len(self.begun) < self.wanted:
            before = self.spawned
            await asyncio.sleep(0)
            self.most = max(self.most, self.spawned - before)

    wanted = 0


def test_other_tasks_have_their_turn_and_the_order_stays() -> None:
    async def run() -> Service:
        service = Service()
        many = 3 * PERFORMED_AT_ONCE + 7
        service.perform(range(many))  # type: ignore[arg-type]
        service.most = service.spawned
        service.perform(["later"])  # type: ignore[list-item]
        service.wanted = many + 1
        await service.turns()
        assert service.begun == [*range(many), "later"]
        await asyncio.gather(*service.tasks)
        service.perform(["last"])  # type: ignore[list-item]
        service.wanted += 1
        await service.turns()
        assert service.begun[-1] == "last"
        return service

    assert asyncio.run(run()).most <= PERFORMED_AT_ONCE + 1


def test_a_service_that_stops_keeps_nothing_back() -> None:
    async def run() -> None:
        service = Service()
        service.closed = True
        service.perform(range(2 * PERFORMED_AT_ONCE))  # type: ignore[arg-type]
        assert not service._waiting

    asyncio.run(run())
