"""The TaskManager at work: carries out what its core decides, and tells it what happened."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import zlib
from collections.abc import Callable, Iterable, Mapping
from socket import gethostname
from typing import Any

from firesteel.config import Settings
from firesteel.config.memory import TaskManagerMemory
from firesteel.core.call_pool import CallPool, close_in_time
from firesteel.core.clock import Clock
from firesteel.core.errors import PeerUnreachableError, RunDirectoryError
from firesteel.core.machine import free_memory, physical_memory, usable_cores
from firesteel.core.process import ProcessId
from firesteel.core.run_directory import RunDirectory
from firesteel.ha.retrieval import LeaderRetrieval
from firesteel.protocol import messages as m
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.rpc import RpcClient
from firesteel.service.base import Service
from firesteel.service.measured import TASKMANAGER, Measured, numbers
from firesteel.service.process_logs import ProcessLogs
from firesteel.service.python_environments import PythonEnvironments
from firesteel.service.versions import own_versions
from firesteel.traces.settings import trace_reporters
from firesteel.traces.tracing import tracing_of
from firesteel_taskmanager import instructions as i
from firesteel_taskmanager.channels import ChannelServer
from firesteel_taskmanager.core import TaskManagerCore
from firesteel_taskmanager.deployments import Deployments
from firesteel_taskmanager.executors import ExecutorFactory, ExecutorSupervisor, FixedExecutor
from firesteel_taskmanager.inspection import Inspection
from firesteel_taskmanager.jobmasters import JobMasterLinks
from firesteel_taskmanager.measured import of_slots
from firesteel_taskmanager.memory import MemoryWatch, SlotUse, warn_if_too_large
from firesteel_taskmanager.process_ends import ProcessEnds
from firesteel_taskmanager.process_registrations import ProcessRegistrations
from firesteel_taskmanager.resourcemanager import TaskManagerResourceManagerLink
from firesteel_taskmanager.settings import TaskManagerSettings
from firesteel_taskmanager.slot_messages import SlotMessages

logger = logging.getLogger(__name__)

_LAST_OUTPUT = CallPool("last output of slots", deadline=None)
"""Thread that writes the last output; it waits for a reader that reads, and not for one that has stopped."""


class TaskManagerService(Service):
    """One TaskManager: slots, their processes over the control socket, executors, reports to JobMasters."""

    def __init__(
        self,
        *,
        settings: Settings,
        secret: str,
        clock: Clock,
        run_directory: RunDirectory,
        taskmanager_id: str,
        slots: int,
        leaders: LeaderRetrieval,
        stdout: Callable[[str], None] | None,
        executor_id: str,
        executors: ExecutorFactory | None,
        memory: TaskManagerMemory | None,
    ) -> None:
        super().__init__("taskmanager", drain_seconds=4.0)
        taskmanager_settings = TaskManagerSettings.from_settings(settings)
        self._settings = taskmanager_settings
        self._secret, self.clock, self._memory = secret, clock, memory
        self.taskmanager_id = taskmanager_id
        self.environment = ""
        """Fingerprint of the Python packages here, to compare TaskManagers; empty: unknown."""
        self._link = TaskManagerResourceManagerLink(self, leaders, taskmanager_settings.registration, clock)
        self.executors: ExecutorSupervisor | FixedExecutor = FixedExecutor(executor_id)
        if executors is not None:
            self.executors = ExecutorSupervisor(
                taskmanager_id, executors, clock, self.spawn, self._link.tell_executor_lost,
                self._executors_in_use,
            )  # fmt: skip
        limit = None if memory is None else memory.slot_size(slots)
        self.core = TaskManagerCore(taskmanager_id, slots, self.executors, taskmanager_settings, limit)
        socket = run_directory.socket_path(f"tm-{zlib.crc32(taskmanager_id.encode()):x}.s")
        self.channels = ChannelServer(socket, self, self.spawn)
        self._process_ends = ProcessEnds(taskmanager_id, socket, self._link, clock)
        self._tracing = tracing_of(trace_reporters(settings), "taskmanager")
        self.deployments = Deployments(
            self, settings, secret, clock, memory, run_directory.path / "tm-blobs", self._tracing
        )
        self._environments = PythonEnvironments(
            run_directory.path / "tm-python", self.deployments.fetch_blobs, f"TaskManager {taskmanager_id}"
        )
        self._jobmasters = JobMasterLinks(self, taskmanager_settings, clock)
        self.logs = ProcessLogs(lambda name: name.startswith(f"executor-{gethostname()}-"))
        register = ProcessRegistrations(self, self._environments).register
        self._messages = SlotMessages(self, register, stdout, socket.parent)
        self.inspection = Inspection(self.core, self._messages, self.logs, self.measured)
        self._alarm = asyncio.Event()
        self._idle = asyncio.Event()

    async def measured(self) -> list[Measured]:
        """Figures of this process, of its slots, and of their tasks and functions."""
        labels = {"host": self.host, "tm_id": self.taskmanager_id}
        processes = [slot.process for slot in self.core.slots if slot.process is not None]
        memory: dict[str, float] = {
            "Memory_Slots_Used": sum(process.memory for process in processes),
            "CPU_Slots_Load": sum(process.cpu_load for process in processes),
        }
        if self._memory is not None:
            memory["Flink_Memory_Managed_Total"] = self._memory.managed
            memory |= {"Memory_Slots_Max": (self.core.memory_limit or 0) * len(self.core.slots)}
        return [
            *self.process_use.measure(TASKMANAGER, labels),
            *numbers((*TASKMANAGER, "Status"), memory, labels),
            *of_slots(self.core.slots, labels),
        ]

    # -- life

    async def on_start(self) -> None:
        """Listen for slot processes, and register.

        Raises:
            RunDirectoryError: the control socket can't be made.
            ConfigurationError: a directory for local copies of state can't be used.
        """
        self.deployments.open()
        self.client = RpcClient(self.session, self._secret, self.clock)
        self._link.start()
        try:
            await self.channels.start()
        except OSError as error:
            why = error.strerror or str(error)
            raise RunDirectoryError(f"Can't make the control socket {self.channels.path}: {why}.") from error
        if self._memory is not None:
            logger.info("memory of this TaskManager:\n%s", self._memory.table(len(self.core.slots)))
            warn_if_too_large(self._memory.process_size, physical_memory(), "this machine")
        watch = MemoryWatch(self._slot_processes, lambda: self.core.memory_limit, self._processes_measured)
        self.spawn(watch.run(), "memory watch")
        self.spawn(self._link.keep(), "registration")
        self.spawn(self._watch_time(), "deadlines")
        self.spawn(self._watch_peers(), "heartbeat watch")
        self.spawn(self._ping(), "pings")

    async def on_drain(self) -> None:
        """Release all slots, and let JobMasters hear of it; processes that do not end are killed at their deadlines."""
        self.perform(self.core.stop(self.now, self.now_ms))
        while not self.core.is_idle:
            self._idle.clear()
            await self._idle.wait()
        await self._jobmasters.drain()

    async def on_stop(self) -> None:
        """Leave no process, socket or file behind, whatever has happened before."""
        self._link.close()
        for order in self.core.kill_all():
            if order.process is not None and order.process.pid != os.getpid():
                self._process_ends.kill_family(order.process)
        self._messages.close()
        await _LAST_OUTPUT.call(self._messages.drain_output)
        await self.channels.close()
        if isinstance(self.executors, ExecutorSupervisor):
            await self.executors.stop()
        await self._environments.close()
        await self.deployments.close()
        await self._link.say_goodbye(self.taskmanager_id)
        if self._tracing is not None:
            await close_in_time(self._tracing.close, "traces")

    def give_up(self, cause: str) -> None:
        """End this process, as the ResourceManager can't be reached for too long, and say why."""
        if self.failure is None:
            self.failure = PeerUnreachableError(f"TaskManager {self.taskmanager_id} {cause}")
        self.request_stop()

    def _executors_in_use(self) -> tuple[frozenset[str], bool]:
        return self.core.executors_in_use()

    @property
    def has_own_executors(self) -> bool:
        """Whether its slots run in executors that it starts; else they are processes or threads of the driver."""
        return isinstance(self.executors, ExecutorSupervisor)

    def in_use(self) -> bool:
        """Whether a job uses a slot."""
        return not self.core.is_idle

    @property
    def now(self) -> float:
        """The present time, in monotonic seconds."""
        return self.clock.monotonic()

    @property
    def now_ms(self) -> int:
        """The present time, in milliseconds of the epoch."""
        return self.clock.epoch_ms()

    # -- instructions

    def perform(self, instructions: Iterable[i.Instruction]) -> None:
        """Carry out instructions in their order; what has to wait goes on in the background."""
        for instruction in instructions:
            self._do(instruction)
        self._alarm.set()
        if self.core.is_idle:
            self._idle.set()

    def _do(self, instruction: i.Instruction) -> None:
        match instruction:
            case i.Send():
                self.channels.send(instruction.channel, instruction.message)
            case i.CloseChannel():
                self.channels.close_channel(instruction.channel)
            case (
                i.ReportTaskState()
                | i.ReportEndOfData()
                | i.ReportCheckpoint()
                | i.ReportOperatorEvents()
                | i.ReportSlotFailed()
            ):
                self._jobmasters.report(instruction)
            case i.PublishMetrics():
                self._jobmasters.publish(instruction)
            case i.Offer():
                self._jobmasters.offer(instruction)
            case i.AskForSplits():
                self.spawn(self._jobmasters.ask_for_splits(instruction), "request for splits")
            case i.AskForAlignment():
                self._jobmasters.ask_for_alignment(instruction)
            case i.SlotFreed():
                freed = m.SlotAvailable(self.taskmanager_id, instruction.slot_index, instruction.allocation_id)
                self.spawn(self._link.tell_free(freed), "free slot")
            case i.Investigate():
                self.spawn(self._investigate(instruction), "lost process")
            case i.RequestLaunchCancel():
                slot = m.SlotAvailable(self.taskmanager_id, instruction.slot_index, instruction.allocation_id)
                self.spawn(self._link.cancel_launch(slot), "cancelled launch")
            case i.KillProcess():
                self.spawn(self._process_ends.kill(instruction), "kill")
            case i.DeleteFiles():
                self.spawn(self._process_ends.delete_files(instruction), "left-over files")
            case i.ForgetJob():
                self._environments.forget(instruction.job_id)
                self.deployments.forget(instruction.job_id)
                self._jobmasters.forget(instruction.job_id)

    async def _investigate(self, lost: i.Investigate) -> None:
        cause = await self._process_ends.investigate(lost)
        self.perform(self.core.process_lost(lost.allocation_id, cause, self.now, self.now_ms))

    # -- slot processes

    def channel_message(self, channel: int, message: dict[str, Any], payload: bytes) -> None:
        """A slot process has sent a message."""
        self._messages.received(channel, message, payload)

    def channel_closed(self, channel: int, reason: str) -> None:
        """A control channel is closed; its slot process has ended, or is about to."""
        self._messages.closed(channel)
        slot = self.core.slots.at(channel)
        cause = reason
        if slot is not None and slot.process is not None:
            detail = f" ({reason})" if reason else ""
            cause = f"slot process {slot.process.pid} on {self.taskmanager_id} was killed or ended{detail}"
        self.perform(self.core.channel_closed(channel, cause, self.now))

    def _slot_processes(self) -> dict[str, ProcessId]:
        return {
            slot.allocation_id: slot.process.identity
            for slot in self.core.slots
            if slot.process is not None and slot.process.identity is not None
        }

    def _processes_measured(self, uses: Mapping[str, SlotUse]) -> None:
        for allocation, use in uses.items():
            self.core.cpu_measured(allocation, use.cpu_seconds, self.now)
            self.perform(self.core.memory_measured(allocation, use.memory, self.now, self.now_ms))

    # -- calls

    def start_executor(self, spec: m.ExecutorSpec) -> None:
        """The ResourceManager wants another executor here.

        Raises:
            RpcFault: slots here run in the driver (embedded mode).
        """
        if not isinstance(self.executors, ExecutorSupervisor):
            raise RpcFault(RpcCode.BAD_REQUEST, f"{self.taskmanager_id} has no executors of its own")
        self.executors.start(spec)

    async def collect(self, message: m.Collect) -> m.Collected:
        """Ask the slot of a collect operator for results."""
        return await self._messages.collect(message)

    def resourcemanager_heartbeat(self) -> m.SlotReport:
        """The ResourceManager is alive."""
        self._link.bond.heard()
        return m.SlotReport(self.core.report())

    def is_led_by(self, token: str) -> bool:
        """Whether a token is that of the ResourceManager that leads."""
        return token == self._link.bond.token

    async def is_soon_led_by(self, token: str) -> bool:
        """Like ``is_led_by``, after the answer to a registration that is on its way."""
        if not self.is_led_by(token):
            await self._link.answered()
        return self.is_led_by(token)

    @property
    def is_registered(self) -> bool:
        """Whether a ResourceManager knows this TaskManager; heartbeats may come before the answer that says so."""
        return self._link.bond.is_registered

    def jobmaster_heartbeat(self, message: m.HeartbeatFromJobMaster, token: str = "") -> m.ExecutionReport:
        """A JobMaster is alive, and lists its slots here; answers with the states of its tasks.

        Raises:
            RpcFault: the heartbeat is for a TaskManager whose address this one has now.
        """
        if message.taskmanager_id != self.taskmanager_id:
            text = f"TaskManager {message.taskmanager_id} is gone, {self.taskmanager_id} has its address now"
            raise RpcFault(RpcCode.NOT_FOUND, text)
        self._jobmasters.heard(message.job_id)
        self.perform(self.core.jobmaster_heartbeat(message.job_id, message.allocations, self.now, token))
        states, metrics = self.core.tasks.of_job(message.job_id)
        return m.ExecutionReport(states, metrics)

    def registration(self) -> m.RegisterTaskManager:
        """The message with which this TaskManager registers."""
        memory = self._memory
        hardware = {
            "cpuCores": usable_cores(),
            "physicalMemory": physical_memory(),
            "freeMemory": free_memory(),
            "managedMemory": 0 if memory is None else memory.managed,
            "firesteel-environment": self.environment,
            "firesteel-python": platform.python_version(),
        }
        return m.RegisterTaskManager(
            self.taskmanager_id,
            self.address,
            len(self.core.slots),
            hardware,
            {} if memory is None else memory.to_rest(),
            self.core.report(),
            own_versions(),
            (self.executors.newest or "") if isinstance(self.executors, ExecutorSupervisor) else "",
        )

    def log_level_changed(self, logger: str, level: str) -> None:
        """The level of a logger was changed: slots log with the levels of their TaskManager."""
        self.core.log_levels[logger] = level
        for slot in self.core.slots:
            if slot.process is not None:
                message = {"type": "log_levels", "levels": {logger: level}}
                self.channels.send(slot.process.channel, message)

    def is_ready(self) -> bool:
        """Whether the service runs, and is registered."""
        return super().is_ready() and self._link.bond.is_registered

    # -- watching

    async def _watch_time(self) -> None:
        while True:
            self._alarm.clear()
            deadline = self.core.next_deadline()
            try:
                async with asyncio.timeout(None if deadline is None else max(0.0, deadline - self.now) + 0.001):
                    await self._alarm.wait()
            except TimeoutError:
                self.perform(self.core.tick(self.now, self.now_ms))

    async def _watch_peers(self) -> None:
        while True:
            await asyncio.sleep(self._jobmasters.tick_seconds)
            self._jobmasters.tick()

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(self._settings.heartbeat_interval)
            self.perform(self.core.ping(self.now))
