"""The TaskManager at work: carries out what its core decides, and tells it what happened."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from socket import gethostname
from typing import Any

from firesteel.config import Settings
from firesteel.config.memory import TaskManagerMemory
from firesteel.core.call_pool import CallPool, close_in_time
from firesteel.core.clock import Clock
from firesteel.core.errors import FencedError, FiresteelError, PeerUnreachableError, ProtocolError, RunDirectoryError
from firesteel.core.machine import free_memory, physical_memory, usable_cores
from firesteel.core.process import ProcessId, family_of, identify, is_running, kill
from firesteel.core.run_directory import RunDirectory
from firesteel.core.secret import job_secret
from firesteel.core.text_output import ESCAPED
from firesteel.ha.retrieval import LeaderRetrieval
from firesteel.protocol import messages as m
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.protocol.slot_ends import LARGEST_CRASH, crash_path, describe_status, status_path
from firesteel.rpc import RpcClient
from firesteel.service.base import Service
from firesteel.service.measured import TASKMANAGER, Measured, numbers
from firesteel.service.process_logs import ProcessLogs
from firesteel.service.python_environments import PythonEnvironments
from firesteel.service.versions import own_versions
from firesteel.traces.settings import trace_reporters
from firesteel.traces.tracing import tracing_of
from firesteel_taskmanager import instructions as i
from firesteel_taskmanager.blobs import BlobCache
from firesteel_taskmanager.channels import ChannelServer
from firesteel_taskmanager.core import TaskManagerCore
from firesteel_taskmanager.executors import ExecutorFactory, ExecutorSupervisor, FixedExecutor
from firesteel_taskmanager.inspection import Inspection
from firesteel_taskmanager.jobmasters import JobMasterLinks
from firesteel_taskmanager.local_directories import LocalDirectories
from firesteel_taskmanager.measured import of_slots
from firesteel_taskmanager.memory import MemoryWatch, SlotUse, offer_to_oom_killer, warn_if_too_large
from firesteel_taskmanager.resourcemanager import TaskManagerResourceManagerLink
from firesteel_taskmanager.settings import TaskManagerSettings, cancellation_of
from firesteel_taskmanager.slot_messages import SlotMessages
from firesteel_taskmanager.traces import deployed

logger = logging.getLogger(__name__)

_DEATH_SECONDS = 2.0
_STATUS_SECONDS = 0.5
"""How long the exit status of a process is waited for that has closed its control channel."""
_LOOK_SECONDS = 0.02
_KEPT_PLACEMENTS = 4
"""Placements of each job that are kept: submits with earlier ones may still be on their way."""
_BLOB_PAUSES = (0.1, 0.5, 1.0, 3.0, 5.0)
"""Seconds between attempts to fetch blobs: as many as Flink's ``blob.fetch.retries``."""
_LEFT_OVER = CallPool("left-over files", deadline=300.0)
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
        self._all_settings, self._settings = settings, taskmanager_settings
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
        self.blobs = BlobCache(run_directory.path / "tm-blobs", secret, clock)
        self._local = LocalDirectories(settings)
        self.environments = PythonEnvironments(
            run_directory.path / "tm-python", self._fetch_blobs, f"TaskManager {taskmanager_id}"
        )
        self._jobmasters = JobMasterLinks(self, taskmanager_settings, clock)
        self.logs = ProcessLogs(lambda name: name.startswith(f"executor-{gethostname()}-"))
        self._messages = SlotMessages(self, stdout, socket.parent)
        self.inspection = Inspection(self.core, self._messages, self.logs, self.measured)
        self._placements: dict[str, OrderedDict[str, str]] = {}
        """Job -> id -> packed placement, for the placements that were shared last."""
        self._tracing = tracing_of(trace_reporters(settings), "taskmanager")
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
        self._local.open()
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
        watch = MemoryWatch(self._slot_processes, lambda: self.core.memory_limit, self._measured)
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
                self._kill_family(order.process)
        self._messages.close()
        await _LAST_OUTPUT.call(self._messages.drain_output)
        await self.channels.close()
        if isinstance(self.executors, ExecutorSupervisor):
            await self.executors.stop()
        await self.environments.close()
        await self.blobs.close()
        self._local.close()
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
                self.spawn(self._kill(instruction), "kill")
            case i.DeleteFiles():
                self.spawn(self._delete(instruction), "left-over files")
            case i.ForgetJob():
                self.environments.forget(instruction.job_id)
                self.blobs.forget(instruction.job_id)
                self._local.forget(instruction.job_id)
                self._placements.pop(instruction.job_id, None)
                self._jobmasters.forget(instruction.job_id)

    async def _investigate(self, lost: i.Investigate) -> None:
        slot = m.SlotAvailable(self.taskmanager_id, lost.slot_index, lost.allocation_id)
        pid = lost.pid
        why, death = await asyncio.gather(self._link.cancel_launch(slot), self._death_of(pid))
        cause = f"{lost.cause}: {why}" if why else lost.cause
        if death:  # it says more than Spark's "crashed unexpectedly"
            cause = f"slot process {pid} on {self.taskmanager_id} {death}"
        self.perform(self.core.process_lost(lost.allocation_id, cause, self.now, self.now_ms))

    async def _death_of(self, pid: int) -> str:
        """How a process of a slot has died, in words, with the stacks of a crash; empty: nobody knows it in time."""
        status = status_path(self.channels.path, pid)
        deadline = self.now + _STATUS_SECONDS
        while not status.exists() and self.now < deadline:
            await asyncio.sleep(_LOOK_SECONDS)
        try:
            death = describe_status(int(status.read_text(encoding="ascii")))
        except (OSError, ValueError):
            return ""
        try:
            crash = crash_path(self.channels.path, pid).read_text(encoding="utf-8", errors=ESCAPED)
        except OSError:
            crash = ""
        return f"{death}\n{crash[:LARGEST_CRASH].rstrip()}" if crash else death

    async def _kill(self, order: i.KillProcess) -> None:
        """Kill a slot's process, if it still runs, and all processes that it has started."""
        process = order.process
        if process is None or process.pid == os.getpid():
            return
        if is_running(process):
            slot = m.SlotAvailable(self.taskmanager_id, order.slot_index, order.allocation_id)
            await self._link.cancel_launch(slot)  # first, so that Spark does not start the process again
        self._kill_family(process)

    def _kill_family(self, process: ProcessId) -> None:
        family = family_of(process)
        kill(process)
        for member in family:
            kill(member)
        if family:
            logger.info(
                "process %d of a slot has left %d processes behind, which were killed", process.pid, len(family)
            )
        for path in (status_path(self.channels.path, process.pid), crash_path(self.channels.path, process.pid)):
            path.unlink(missing_ok=True)

    async def _delete(self, order: i.DeleteFiles) -> None:
        deadline = self.now + _DEATH_SECONDS
        while order.process is not None and is_running(order.process) and self.now < deadline:
            await asyncio.sleep(0.01)
        elsewhere = [path for path in order.paths if "://" in path]
        for path in order.paths:
            if path in elsewhere:
                continue
            try:
                Path(path).unlink(missing_ok=True)
            except OSError as error:
                logger.warning("%s could not be removed: %s", path, error)
        if elsewhere:
            await _LEFT_OVER.call(_delete_elsewhere, elsewhere, Settings(dict(order.settings), "job"))

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

    def register_process(self, channel: int, message: Mapping[str, Any]) -> None:
        """A process registers for a slot.

        Raises:
            ProtocolError: the process has registered before, or has another process id than it says.
        """
        if self.channels.is_registered(channel):
            raise ProtocolError(f"control channel {channel}", "it registered twice")
        self.channels.mark_registered(channel)
        pid, real = message.get("pid"), self.channels.peer_pid(channel)
        if real is not None and pid != real:
            raise ProtocolError(f"control channel {channel}", f"process {real} says that it is {pid!r}")
        slot = self.core.needs_environment(str(message.get("allocation_id")), str(message.get("environment", "")))
        if slot is not None:
            self.spawn(self._start_elsewhere(channel, slot.allocation_id, slot.job_id, slot.python), "environment")
            return
        identity = identify(pid) if isinstance(pid, int) else None
        if identity is not None and isinstance(self.executors, ExecutorSupervisor):
            offer_to_oom_killer(identity)
        self.perform(self.core.register(channel, message, identity, self.now))

    async def _start_elsewhere(self, channel: int, allocation_id: str, job_id: str, python: Mapping[str, Any]) -> None:
        """Have a slot's process go on in the job's own Python environment, once that is made."""
        seconds = float(python["timeout_seconds"])
        self.core.environment_takes(allocation_id, seconds, self.now)
        self.channels.send(channel, {"type": "wait", "seconds": seconds})
        try:
            prepared = await self.environments.prepare(job_id, python)
        except (FiresteelError, asyncio.CancelledError) as error:
            self.channels.send(channel, {"type": "rejected", "reason": str(error)})
            self.channels.close_channel(channel)
            if isinstance(error, asyncio.CancelledError):
                raise
            logger.warning("%s", error)
            self.perform(self.core.environment_failed(allocation_id, str(error), self.now))
            return
        self.core.environment_takes(allocation_id, 0.0, self.now)
        self.perform(())
        self.channels.send(channel, prepared.order())
        self.channels.close_channel(channel)

    async def _fetch_blobs(self, job_id: str, address: str, names: list[str]) -> Mapping[str, str]:
        return await self.blobs.fetch(self.session, job_id, address, names)

    def _slot_processes(self) -> dict[str, ProcessId]:
        return {
            slot.allocation_id: slot.process.identity
            for slot in self.core.slots
            if slot.process is not None and slot.process.identity is not None
        }

    def _measured(self, uses: Mapping[str, SlotUse]) -> None:
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

    def share_placement(self, message: m.SharePlacement) -> None:
        """Keep a placement, which says where the subtasks of a job run, for the submits that follow."""
        of_job = self._placements.setdefault(message.job_id, OrderedDict())
        of_job[message.placement_id] = message.placement
        of_job.move_to_end(message.placement_id)
        while len(of_job) > _KEPT_PLACEMENTS:
            of_job.popitem(last=False)

    async def submit_tasks(self, message: m.SubmitTasks) -> None:
        """Fetch the blobs, then have the slot run the tasks."""
        if not self.core.leads(message.job_id, message.allocation_id, message.jobmaster_token):
            raise FencedError(f"another JobMaster leads job {message.job_id}")
        plain = message.deployment
        try:
            names = [str(task["chain"]) for task in plain["tasks"]]
            executions = [str(task["execution_id"]) for task in plain["tasks"]]
            names += [str(name) for name in plain.get("blobs") or ()]
            names += [str(plain["main_blob"])] if plain["main_blob"] else []
            config = {str(key): str(value) for key, value in plain["config"].items()}
            secret = job_secret(self._secret, str(plain["salt"]))
            placement = self._placements.get(message.job_id, OrderedDict()).get(str(plain["placement"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise ProtocolError("submit_tasks", f"malformed deployment: {type(error).__name__}: {error}") from error
        if placement is None:
            text = f"where the tasks of job {message.job_id} run is not known to {self.taskmanager_id}"
            raise RpcFault(RpcCode.UNKNOWN_PLACEMENT, text)
        tasks, slot_key = self.core.tasks, (message.job_id, message.allocation_id)
        if not tasks.begin_deploy(*slot_key, executions, cancellation_of(self._all_settings, config), self.now):
            return
        received_ms = self.clock.epoch_ms()
        blobs = await self._fetch(message, names)
        managed = 0 if self._memory is None else self._memory.managed // len(self.core.slots)
        additions = {
            "blobs": blobs,
            "secret": secret,
            "placement": placement,
            "managed_memory": managed,
            "local_directories": self._local.of(message.job_id),
        }
        instructions = tasks.deploy(*slot_key, {**plain, **additions})
        self.perform(instructions)
        if instructions and self._tracing is not None:
            self._tracing.export(deployed(plain, self.taskmanager_id, received_ms, self.clock.epoch_ms()))

    async def _fetch(self, message: m.SubmitTasks, names: list[str]) -> dict[str, str]:
        for pause in (*_BLOB_PAUSES, None):
            try:
                return await self.blobs.fetch(self.session, message.job_id, message.blob_address, names)
            except PeerUnreachableError as error:
                if pause is None:
                    text = f"the job's code can't be fetched by TaskManager {self.taskmanager_id}: {error}"
                    raise RpcFault(RpcCode.INTERNAL, text) from error
                logger.warning("job %s: %s; next try in %g s", message.job_id, error, pause)
                await asyncio.sleep(pause)
        raise AssertionError

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
        """As ``is_led_by``, after the answer to a registration that is on its way."""
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


def _delete_elsewhere(paths: Sequence[str], settings: Settings) -> None:
    """Remove files that a process has left on remote file systems, which may take long."""
    from firesteel.connectors.filesystems.file_system import FileSystems  # most jobs leave nothing there

    files = FileSystems(settings)
    for path in paths:
        try:
            files.of(path).remove_temporary(path)
        except (FiresteelError, OSError) as error:
            logger.warning("%s could not be removed: %s", path, error)
