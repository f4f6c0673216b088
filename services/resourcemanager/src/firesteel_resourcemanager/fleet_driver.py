"""Drives the fleet from a few threads, so that its blocking calls never hold up the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeVar

from firesteel.core.call_pool import CallPool
from firesteel.core.errors import FleetError
from firesteel.protocol.fleet import Fleet, SlotLaunch, SlotOutcome
from firesteel.protocol.messages import ExecutorSpec
from firesteel.protocol.stages import Places, RunLook, StageRun

logger = logging.getLogger(__name__)
T = TypeVar("T")
_THREADS = 4
_KEPT_CAUSES = 256
LOST = "the fleet is gone: the Spark driver JVM ended"


@dataclass(frozen=True)
class Look:
    """What a look at the fleet shows.

    Attributes:
        ended: slots that ended since the last look.
        attached: executors that can take slots; None: the fleet needs none.
        alive: whether slots can be started.
    """

    ended: list[tuple[str, SlotOutcome, str]]
    attached: frozenset[str] | None
    alive: bool


class FleetDriver:
    """Calls the fleet on threads. Only ``stand_by``, ``start`` and ``stop`` exclude each other.

    The other methods do what those of the same names in ``Fleet`` do.

    Args:
        fleet: that is called.
        stand_by: see ``Provider.stand_by``.
    """

    def __init__(self, fleet: Fleet, stand_by: Callable[[], None]) -> None:
        self._fleet, self._stand_by = fleet, stand_by
        self._threads = CallPool("firesteel-fleet", _THREADS, deadline=None)
        self._life = asyncio.Lock()
        self._outstanding = 0
        self._closed = self._started = self._stood_by = False
        self._starting: asyncio.Future[None] | None = None
        self._causes: OrderedDict[str, str] = OrderedDict()

    async def stand_by(self) -> None:
        """Start what makes a later start of the fleet faster.

        Raises:
            FleetError: that did not work, or the driver was closed.
        """
        async with self._life:
            self._stood_by = True
            await self._begin(self._stand_by)

    async def start(self) -> None:
        """Start the fleet, after stopping what is left of the one before.

        Raises:
            FleetError: it can't be started, or the driver was closed.
        """
        async with self._life:
            await self._begin(self._restart)

    async def _begin(self, call: Callable[[], None]) -> None:
        if self._closed:
            raise FleetError("the ResourceManager is stopping")
        self._starting = asyncio.ensure_future(self._run(call))  # noqa: TID251 # held, and read by close
        self._starting.add_done_callback(_read_failure)
        await asyncio.shield(self._starting)

    def _restart(self) -> None:
        if self._started:
            self._fleet.stop()
        if self._closed:
            raise FleetError("the ResourceManager is stopping")
        self._started = True
        self._fleet.start()

    async def start_slot(self, launch: SlotLaunch) -> None:
        """Have the fleet start the process of a slot."""
        await self._run(lambda: self._fleet.start_slot(launch))

    async def cancel_slot(self, allocation_id: str) -> None:
        """Have the fleet give up the process of a slot."""
        await self._run(lambda: self._fleet.cancel_slot(allocation_id))

    async def start_stages(self, run: StageRun) -> None:
        """Have the fleet run stages."""
        await self._run(lambda: self._fleet.start_stages(run))

    async def look_at_stages(self, run_id: str, places: Places | None, known: Collection[str]) -> RunLook:
        """How a run of stages goes, whose tasks may be at these places; ``known`` stages are left out."""
        return await self._run(lambda: self._fleet.look_at_stages(run_id, places, known))

    async def stage_results(self, run_id: str) -> list[bytes]:
        """Results of a run that is done."""
        return await self._run(lambda: self._fleet.stage_results(run_id))

    async def drop_stages(self, run_id: str) -> None:
        """End a run, and remove what it has left."""
        await self._run(lambda: self._fleet.drop_stages(run_id))

    async def drop_stages_of(self, owner: str) -> None:
        """End all runs of a job."""
        await self._run(lambda: self._fleet.drop_stages_of(owner))

    @property
    def slots_outlive_driver(self) -> bool:
        """Whether slots go on when the fleet's driver is lost."""
        return self._fleet.slots_outlive_driver

    async def executor_for(self, taskmanager_id: str, cores: int) -> ExecutorSpec | None:
        """How a TaskManager starts an executor of the fleet; None: the fleet has none for it."""
        return await self._run(lambda: self._fleet.executor_for(taskmanager_id, cores))

    async def attached_executors(self) -> frozenset[str] | None:
        """Ids of the executors that can take slots; None: the fleet needs no executors."""
        return await self._run(self._fleet.attached_executors)

    async def look(self) -> Look:
        """Slots that have ended since the last look, and the fleet's executors."""

        def look() -> Look:
            ended, attached = self._fleet.ended_slots(), self._fleet.attached_executors()
            return Look(ended, attached, self._fleet.is_alive())

        news = await self._run(look)
        for allocation, outcome, message in news.ended:
            if outcome is SlotOutcome.LOST:
                self._causes[allocation] = message
        while len(self._causes) > _KEPT_CAUSES:
            self._causes.popitem(last=False)
        return news

    def cause(self, allocation_id: str) -> str:
        """What the fleet said about the loss of a slot; empty if it said nothing."""
        return self._causes.get(allocation_id, "")

    async def stop(self) -> None:
        """End the fleet with all its slots, and the threads."""
        await self._end(self._fleet.stop)

    async def detach(self) -> None:
        """Leave the fleet and its slots to the next ResourceManager, and end the threads."""
        await self._end(self._fleet.detach)

    async def _end(self, call: Callable[[], None]) -> None:
        """Stop or detach the fleet, which itself waits for a start that is under way; then end the threads."""
        self._closed = True
        try:
            await self._run(call)
        except Exception:  # the fleet is a plug-in; the threads have to end all the same
            logger.exception("the fleet did not end in order")
        if self._starting is not None:  # a start that was under way must not leave anything behind
            await asyncio.wait([self._starting])
            if self._stood_by or self._fleet.is_alive():
                await self._run(call)
        self._threads.shutdown(wait=self._outstanding == 0, cancel_futures=True)

    async def _run(self, call: Callable[[], T]) -> T:
        self._outstanding += 1
        future = asyncio.get_running_loop().run_in_executor(self._threads, call)
        future.add_done_callback(self._returned)
        return await asyncio.shield(future)

    def _returned(self, future: asyncio.Future[T]) -> None:
        self._outstanding -= 1
        if not future.cancelled():
            future.exception()  # read, for a caller that was cancelled meanwhile


def _read_failure(future: asyncio.Future[None]) -> None:
    """Read what a start has raised, for a caller that was cancelled meanwhile: asyncio prints what nobody reads."""
    if not future.cancelled():
        future.exception()
