"""How the shell speaks with the TaskManagers of a job."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping
from urllib.parse import urlsplit

from firesteel.core.clock import Clock
from firesteel.core.errors import PeerUnreachableError, ProtocolError, RpcError
from firesteel.protocol import messages as m
from firesteel.protocol.deployment import Placement
from firesteel.protocol.gateways import TaskManagerGateway
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.rpc import RpcClient
from firesteel.service.heartbeat import CHECK_PAUSE, HeartbeatMonitor, is_silence
from firesteel.service.lanes import Calls, Spawn
from firesteel.service.retries import is_gone, until_it_works
from firesteel_jobmaster.settings import JobMasterSettings

logger = logging.getLogger(__name__)
CONNECT_PAUSE = 1.0
"""Seconds until a watched connection that ended is opened again."""
LAST_TRIES = 5
"""Of a call to a TaskManager that is not watched any more: it is gone, or the job has ended."""
SlotCall = Callable[[TaskManagerGateway], Awaitable[object]]
Together = Callable[[TaskManagerGateway, Mapping[str, tuple[str, ...]]], Awaitable[m.UnknownSlots | None]]


class TaskManagerLinks:
    """Heartbeats to the TaskManagers of a job, and a lane of calls to each of its slots.

    Calls about one slot keep their order (a cancel never overtakes the submit that it is meant for); slots do not wait
    for one another.

    Args:
        job_id: of the job.
        settings: intervals and timeouts.
        clock: of the heartbeat monitor.
        rpc: carries calls.
        token: of the JobMaster; a TaskManager whose slots another one leads refuses calls with it.
        spawn: runs heartbeats.
        spawn_call: runs lanes.
        allocations: gives the slots that the job holds at a TaskManager.
        heard: called with each answer to a heartbeat.
        lost: called once when a TaskManager is gone: its id, the cause, and for how many seconds, at least.
    """

    def __init__(
        self,
        job_id: str,
        settings: JobMasterSettings,
        clock: Clock,
        rpc: RpcClient,
        token: str,
        spawn: Spawn,
        spawn_call: Spawn,
        allocations: Callable[[str], tuple[str, ...]],
        heard: Callable[[str, m.ExecutionReport], None],
        lost: Callable[[str, str, float], None],
    ) -> None:
        self._job_id, self._settings, self._rpc, self._token = job_id, settings, rpc, token
        self._spawn, self._spawn_call = spawn, spawn_call
        self._allocations, self._heard, self._lost = allocations, heard, lost
        self._tick = min(1.0, settings.heartbeat_interval, settings.heartbeat_timeout / 4)
        self._monitor = HeartbeatMonitor(clock, settings.heartbeat_timeout, self._tick, settings.heartbeat_failures)
        self._gateways: dict[str, TaskManagerGateway] = {}
        self._lanes: dict[str, Calls] = {}
        self._placements: dict[str, tuple[str, asyncio.Task[None]]] = {}
        """TaskManager -> id of the placement that it was sent last, and the call."""
        self._gathering: dict[tuple[str, Hashable], dict[str, tuple[str, ...]]] = {}
        """TaskManager and order -> the slots that it is for, and their tasks, until it is sent."""
        self._sending: dict[tuple[str, Hashable], asyncio.Task[m.UnknownSlots | None]] = {}
        self._ticking = False
        self._exchanges: dict[str, tuple[asyncio.Task[None], ...]] = {}
        """TaskManager -> tasks that exchange heartbeats with it, and hold a connection to it open."""
        self._checking: set[str] = set()
        self._reasons: dict[str, str] = {}
        self._persistent = True
        self._tasks: list[asyncio.Task[None]] = []

    def gateway(self, taskmanager_id: str) -> TaskManagerGateway | None:
        """Gateway of a TaskManager; None: it was never watched."""
        return self._gateways.get(taskmanager_id)

    def watch(self, taskmanager_id: str, address: str) -> None:
        """Exchange heartbeats with a TaskManager from now on."""
        gateway = self._gateways.get(taskmanager_id)
        if gateway is None or gateway.address != address.rstrip("/"):
            self._gateways[taskmanager_id] = TaskManagerGateway(self._rpc, address, self._token)
        if taskmanager_id not in self._monitor:
            self._leave(taskmanager_id)  # it was given up a moment ago, and is needed again
            self._reasons.pop(taskmanager_id, None)
            self._monitor.watch(taskmanager_id)
            exchanges = (
                self._spawn(self._heartbeats(taskmanager_id), f"heartbeats to {taskmanager_id}"),
                self._spawn(self._watch_connection(taskmanager_id), f"connection to {taskmanager_id}"),
            )
            self._exchanges[taskmanager_id] = tuple(task for task in exchanges if task is not None)
        if not self._ticking:
            self._ticking = True
            self._keep(self._spawn(self._look(), "heartbeat monitor"))

    def _keep(self, task: asyncio.Task[None] | None) -> None:
        self._tasks = [t for t in self._tasks if not t.done()] + ([task] if task is not None else [])

    def alive(self, taskmanager_id: str) -> None:
        """A message of a TaskManager has come: it lives."""
        self._monitor.heard(taskmanager_id)

    def hurry(self) -> None:
        """The host stops: calls that do not arrive are not repeated."""
        self._persistent = False

    def forget(self, taskmanager_id: str) -> None:
        """Exchange no more heartbeats with a TaskManager."""
        self._monitor.forget(taskmanager_id)
        self._leave(taskmanager_id)

    def _leave(self, taskmanager_id: str) -> None:
        """Cancel the tasks of a TaskManager: else there are two of each when it is watched again."""
        for task in self._exchanges.pop(taskmanager_id, ()):
            if task is not asyncio.current_task():  # the current one sees in the monitor that it has to end
                task.cancel()

    def close(self) -> None:
        """Watch no TaskManager any longer; calls that stand in the lanes are still made."""
        for peer in (*self._monitor.peers(), *self._exchanges):
            self.forget(peer)
        for task in self._tasks:
            task.cancel()

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
            lane = self._lanes[allocation_id] = Calls(f"slot {allocation_id}", self._spawn_call)
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
        gateway = self._gateways.get(taskmanager_id)
        if gateway is None:
            logger.error("%s: TaskManager %s was never seen", order, taskmanager_id)
        elif once:
            await call(gateway)
        else:
            tries = iter(range(LAST_TRIES))
            worked = await until_it_works(
                order,
                lambda: call(gateway),
                lambda: self._persistent and (taskmanager_id in self._monitor or next(tries, None) is not None),
                lambda: self.check(taskmanager_id),
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
        return self._persistent and taskmanager_id in self._monitor

    def check_all(self) -> None:
        """Ask all watched TaskManagers now whether they live."""
        for taskmanager_id in self._monitor.peers():
            self.check(taskmanager_id)

    def check(self, taskmanager_id: str) -> None:
        """Something hints that a TaskManager is gone: ask until it answers, or has failed often enough."""
        if taskmanager_id in self._monitor and taskmanager_id not in self._checking:
            self._checking.add(taskmanager_id)
            self._keep(self._spawn(self._ask_until_clear(taskmanager_id), f"check of {taskmanager_id}"))

    async def _ask_until_clear(self, taskmanager_id: str) -> None:
        try:
            while taskmanager_id in self._monitor and not await self._ask(taskmanager_id):
                self._find_lost()
                await asyncio.sleep(CHECK_PAUSE)
        finally:
            self._checking.discard(taskmanager_id)

    async def _heartbeats(self, taskmanager_id: str) -> None:
        while self._is_exchanging(taskmanager_id):
            await asyncio.sleep(self._settings.heartbeat_interval)
            if self._is_exchanging(taskmanager_id) and not await self._ask(taskmanager_id):
                self.check(taskmanager_id)

    def _is_exchanging(self, taskmanager_id: str) -> bool:
        """Whether the current task still serves a TaskManager that is watched."""
        is_current = asyncio.current_task() in self._exchanges.get(taskmanager_id, ())
        return is_current and taskmanager_id in self._monitor

    async def _ask(self, taskmanager_id: str) -> bool:
        """Send a heartbeat; returns False if the TaskManager can't be reached. Silence is judged by the monitor."""
        message = m.HeartbeatFromJobMaster(self._job_id, self._allocations(taskmanager_id), taskmanager_id)
        try:
            async with asyncio.timeout(self._settings.heartbeat_timeout):
                report = await self._gateways[taskmanager_id].heartbeat_jobmaster(message)
        except (RpcError, TimeoutError) as error:
            if isinstance(error, RpcError) and is_gone(error):
                self._gone(
                    taskmanager_id, f"TaskManager {taskmanager_id} is gone, or does not know the job any more: {error}"
                )
                return True
            logger.warning("heartbeat to %s: %s", taskmanager_id, error)
            if is_silence(error):
                return True
            self._reasons[taskmanager_id] = str(error)
            self._monitor.failed(taskmanager_id)
            return not isinstance(error, PeerUnreachableError)
        if taskmanager_id in self._monitor:
            self._monitor.heard(taskmanager_id)
            self._heard(taskmanager_id, report)
        return True

    async def _watch_connection(self, taskmanager_id: str) -> None:
        """Hold a connection open that nothing is sent on: it breaks at once when the TaskManager is killed."""
        while self._is_exchanging(taskmanager_id):
            address = urlsplit(self._gateways[taskmanager_id].address)
            try:
                async with asyncio.timeout(self._settings.heartbeat_timeout):
                    reader, writer = await asyncio.open_connection(address.hostname, address.port)
            except (OSError, TimeoutError):
                self.check(taskmanager_id)
            else:
                try:
                    await reader.read(1)
                except OSError:
                    pass
                finally:
                    writer.close()
                self.check(taskmanager_id)  # the TaskManager is gone, or has closed an idle connection
            await asyncio.sleep(CONNECT_PAUSE)

    async def _look(self) -> None:
        try:
            while self._monitor.peers():
                await asyncio.sleep(self._tick)
                self._find_lost()
        finally:
            self._ticking = False

    def _find_lost(self) -> None:
        silent = {peer: self._monitor.silence(peer) for peer in self._monitor.peers()}
        for taskmanager_id in self._monitor.tick():
            reason = self._reasons.get(taskmanager_id)
            detail = f" (last: {reason})" if reason else ""
            timeout, failures = self._settings.heartbeat_timeout, self._settings.heartbeat_failures
            self._lost(
                taskmanager_id,
                f"TaskManager {taskmanager_id} gave no sign of life for {timeout:g} s, or could not be reached "
                f"{failures} times in a row{detail}",
                max(0.0, silent[taskmanager_id] - self._settings.heartbeat_interval),
            )

    def _gone(self, taskmanager_id: str, cause: str) -> None:
        if taskmanager_id in self._monitor:
            self._monitor.forget(taskmanager_id)
            self._lost(taskmanager_id, cause, 0.0)
