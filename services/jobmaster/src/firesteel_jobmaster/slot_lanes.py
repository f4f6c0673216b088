"""The order of calls about the slots of a job."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping

from firesteel.core.errors import ProtocolError, RpcError
from firesteel.protocol import messages as m
from firesteel.protocol.deployment import Placement
from firesteel.protocol.gateways import TaskManagerGateway
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.service.lanes import Calls, Spawn
from firesteel.service.retries import until_it_works
from firesteel_jobmaster.taskmanagers import TaskManagerLinks

logger = logging.getLogger(__name__)
LAST_TRIES = 5
"""Tries of a call to a TaskManager that is not watched any more: it is gone, or the job has ended."""
SlotCall = Callable[[TaskManagerGateway], Awaitable[object]]
Together = Callable[[TaskManagerGateway, Mapping[str, tuple[str, ...]]], Awaitable[m.UnknownSlots | None]]


class SlotLanes:
    """A lane of calls for each slot, and calls that several slots of a TaskManager share.

    Calls about one slot keep their order (a cancel never overtakes the submit that it is meant for); slots do not wait
    for one another.

    Args:
        job_id: of the job.
        links: to the TaskManagers.
        spawn: runs lanes.
    """

    def __init__(self, job_id: str, links: TaskManagerLinks, spawn: Spawn) -> None:
        self._job_id, self._links, self._spawn = job_id, links, spawn
        self._lanes: dict[str, Calls] = {}
        self._placements: dict[str, tuple[str, asyncio.Task[None]]] = {}
        """TaskManager -> id of the placement that it was sent last, and the call."""
        self._gathering: dict[tuple[str, Hashable], dict[str, tuple[str, ...]]] = {}
        """TaskManager and order -> the slots that it is for, and their tasks, until it is sent."""
        self._sending: dict[tuple[str, Hashable], asyncio.Task[m.UnknownSlots | None]] = {}
        self._persistent = True

    def hurry(self) -> None:
        """The host stops: calls that do not arrive are not repeated."""
        self._persistent = False

    def silence(self) -> None:
        """The JobMaster has crashed: calls that wait are not made, and those under way are not repeated."""
        self.hurry()
        for lane in self._lanes.values():
            lane.clear()

    def call(
        self,
        taskmanager_id: str,
        allocation_id: str,
        order: str,
        call: SlotCall,
        *,
        once: bool = False,
        failed: Callable[[], None] | None = None,
    ) -> None:
        """Call a TaskManager about a slot, after all earlier calls about it.

        Args:
            taskmanager_id: of the TaskManager.
            allocation_id: of the slot.
            order: what the call is about, for logs.
            call: harmless to repeat.
            once: the call is not repeated; ``call`` deals with errors itself.
            failed: called when the call was refused, or given up.
        """
        lane = self._lanes.get(allocation_id)
        if lane is None:
            lane = self._lanes[allocation_id] = Calls(f"slot {allocation_id}", self._spawn)
        lane.add(lambda: self._in_lane(lane, allocation_id, self._perform(taskmanager_id, order, call, once, failed)))

    async def _in_lane(self, lane: Calls, allocation_id: str, work: Awaitable[None]) -> None:
        try:
            await work
        finally:
            if lane.is_last:  # an empty lane has no order to keep
                del self._lanes[allocation_id]

    async def _perform(
        self, taskmanager_id: str, order: str, call: SlotCall, once: bool, failed: Callable[[], None] | None
    ) -> None:
        gateway = self._links.gateway(taskmanager_id)
        if gateway is None:
            logger.error("%s: TaskManager %s was never seen", order, taskmanager_id)
        elif once:
            await call(gateway)
        else:
            tries = iter(range(LAST_TRIES))
            worked = await until_it_works(
                order,
                lambda: call(gateway),
                lambda: self._persistent and (taskmanager_id in self._links.monitor or next(tries, None) is not None),
                lambda: self._links.check(taskmanager_id),
            )
            if not worked and failed is not None:
                failed()

    async def together(
        self,
        gateway: TaskManagerGateway,
        taskmanager_id: str,
        allocation_id: str,
        execution_ids: tuple[str, ...],
        order: Hashable,
        send: Together,
    ) -> None:
        """Give an order to tasks of a slot, in one call with tasks in other slots that get the same order now.

        Args:
            gateway: of the TaskManager.
            taskmanager_id: of the TaskManager.
            allocation_id: of the slot.
            execution_ids: of the tasks.
            order: equal orders to one TaskManager travel together.
            send: makes the call, with the tasks of each slot.

        Raises:
            RpcError, ProtocolError: the order did not arrive, or the TaskManager does not know the slot.
        """
        key = taskmanager_id, order
        gathering = self._gathering.get(key)
        if gathering is None:
            gathering = self._gathering[key] = {}

            async def send_gathered() -> m.UnknownSlots | None:
                del self._gathering[key], self._sending[key]  # slots that come now wait for the next call
                return await send(gateway, gathering)

            self._sending[key] = asyncio.get_running_loop().create_task(send_gathered())
        gathering[allocation_id] = execution_ids
        answer = await asyncio.shield(self._sending[key])
        if answer is not None and allocation_id in answer.allocation_ids:
            text = f"TaskManager {taskmanager_id} has no slot {allocation_id} of this JobMaster"
            raise RpcFault(RpcCode.NOT_FOUND, text)

    async def share_placement(self, taskmanager_id: str, gateway: TaskManagerGateway, placement: Placement) -> None:
        """See to it that a TaskManager has a placement, which is sent once however many slots need it.

        Raises:
            RpcError, ProtocolError: the placement could not be sent.
        """
        latest = self._placements.get(taskmanager_id)
        if latest is None or latest[0] != placement.id:
            message = m.SharePlacement(self._job_id, placement.id, placement.packed)
            task = asyncio.get_running_loop().create_task(gateway.share_placement(message))
            latest = self._placements[taskmanager_id] = placement.id, task
        try:
            await asyncio.shield(latest[1])
        except (RpcError, ProtocolError):
            if self._placements.get(taskmanager_id) is latest:
                del self._placements[taskmanager_id]
            raise

    def placement_forgotten(self, taskmanager_id: str) -> None:
        """A TaskManager does not know a placement that it was sent: it was started anew, or had no slot of the job."""
        self._placements.pop(taskmanager_id, None)

    def is_watched(self, taskmanager_id: str) -> bool:
        """Whether a TaskManager is still expected to live, so that calls to it are worth a repeat."""
        return self._persistent and taskmanager_id in self._links.monitor
