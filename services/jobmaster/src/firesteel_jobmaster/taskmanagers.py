"""How the shell speaks with the TaskManagers of a job."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from urllib.parse import urlsplit

from firesteel.core.clock import Clock
from firesteel.core.errors import PeerUnreachableError, RpcError
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import TaskManagerGateway
from firesteel.rpc import RpcClient
from firesteel.service.heartbeat import CHECK_PAUSE, HeartbeatMonitor, is_silence
from firesteel.service.lanes import Spawn
from firesteel.service.retries import is_gone
from firesteel_jobmaster.settings import JobMasterSettings

logger = logging.getLogger(__name__)
CONNECT_PAUSE = 1.0
"""Seconds until a watched connection that ended is opened again."""


class TaskManagerLinks:
    """Watches the TaskManagers of a job, by heartbeats and by a connection to each of them.

    Args:
        job_id: of the job.
        settings: intervals and timeouts.
        clock: of the heartbeat monitor.
        rpc: carries calls.
        token: of the JobMaster; a TaskManager whose slots another one leads refuses calls with it.
        spawn: runs heartbeats.
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
        allocations: Callable[[str], tuple[str, ...]],
        heard: Callable[[str, m.ExecutionReport], None],
        lost: Callable[[str, str, float], None],
    ) -> None:
        self._job_id, self._settings, self._spawn = job_id, settings, spawn
        self._connect: Callable[[str], TaskManagerGateway] = lambda address: TaskManagerGateway(rpc, address, token)
        self._allocations, self._heard, self._lost = allocations, heard, lost
        tick = min(1.0, settings.heartbeat_interval, settings.heartbeat_timeout / 4)
        self.monitor = HeartbeatMonitor(clock, settings.heartbeat_timeout, tick, settings.heartbeat_failures)
        """Knows the TaskManagers that are watched, and when each of them was heard last."""
        self._gateways: dict[str, TaskManagerGateway] = {}
        self._ticking = False
        self._exchanges: dict[str, tuple[asyncio.Task[None], ...]] = {}
        """TaskManager -> tasks that exchange heartbeats with it, and hold a connection to it open."""
        self._checking: set[str] = set()
        self._reasons: dict[str, str] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def gateway(self, taskmanager_id: str) -> TaskManagerGateway | None:
        """Gateway of a TaskManager; None: it was never watched."""
        return self._gateways.get(taskmanager_id)

    def watch(self, taskmanager_id: str, address: str) -> None:
        """Exchange heartbeats with a TaskManager from now on."""
        gateway = self._gateways.get(taskmanager_id)
        if gateway is None or gateway.address != address.rstrip("/"):
            self._gateways[taskmanager_id] = self._connect(address)
        if taskmanager_id not in self.monitor:
            self._leave(taskmanager_id)  # it was given up a moment ago, and is needed again
            self._reasons.pop(taskmanager_id, None)
            self.monitor.watch(taskmanager_id)
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
        self.monitor.heard(taskmanager_id)

    def forget(self, taskmanager_id: str) -> None:
        """Exchange no more heartbeats with a TaskManager."""
        self.monitor.forget(taskmanager_id)
        self._leave(taskmanager_id)

    def _leave(self, taskmanager_id: str) -> None:
        """Cancel the tasks of a TaskManager: else there are two of each when it is watched again."""
        for task in self._exchanges.pop(taskmanager_id, ()):
            if task is not asyncio.current_task():  # the current one sees in the monitor that it has to end
                task.cancel()

    def close(self) -> None:
        """Watch no TaskManager any longer; calls about slots are still made."""
        for peer in (*self.monitor.peers(), *self._exchanges):
            self.forget(peer)
        for task in self._tasks:
            task.cancel()

    def check_all(self) -> None:
        """Ask all watched TaskManagers now whether they live."""
        for taskmanager_id in self.monitor.peers():
            self.check(taskmanager_id)

    def check(self, taskmanager_id: str) -> None:
        """Something hints that a TaskManager is gone: ask until it answers, or has failed often enough."""
        if taskmanager_id in self.monitor and taskmanager_id not in self._checking:
            self._checking.add(taskmanager_id)
            self._keep(self._spawn(self._ask_until_clear(taskmanager_id), f"check of {taskmanager_id}"))

    async def _ask_until_clear(self, taskmanager_id: str) -> None:
        try:
            while taskmanager_id in self.monitor and not await self._ask(taskmanager_id):
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
        return is_current and taskmanager_id in self.monitor

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
            self.monitor.failed(taskmanager_id)
            return not isinstance(error, PeerUnreachableError)
        if taskmanager_id in self.monitor:
            self.monitor.heard(taskmanager_id)
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
            while self.monitor.peers():
                await asyncio.sleep(self.monitor.tick_seconds)
                self._find_lost()
        finally:
            self._ticking = False

    def _find_lost(self) -> None:
        silent = {peer: self.monitor.silence(peer) for peer in self.monitor.peers()}
        for taskmanager_id in self.monitor.tick():
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
        if taskmanager_id in self.monitor:
            self.monitor.forget(taskmanager_id)
            self._lost(taskmanager_id, cause, 0.0)
