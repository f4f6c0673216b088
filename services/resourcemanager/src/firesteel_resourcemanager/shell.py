"""The ResourceManager's service: carries out what its core decides, and brings the core events."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable

from firesteel.core.clock import Clock
from firesteel.core.errors import FencedError, FleetError, ProtocolError, RpcError
from firesteel.core.ids import new_allocation_id, new_fencing_token
from firesteel.ha.services import RESOURCEMANAGER, HighAvailabilityServices
from firesteel.protocol import messages as m
from firesteel.protocol.fleet import SlotLaunch
from firesteel.protocol.gateways import JobMasterGateway, TaskManagerGateway
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.protocol.provider import Provider, WorkerError, WorkerSpec
from firesteel.rpc import RpcClient
from firesteel.service.base import Service
from firesteel.service.heartbeat import CHECK_PAUSE, HeartbeatMonitor, is_refused, is_silence
from firesteel.service.leaders import Candidate
from firesteel.service.leaving import Leaving
from firesteel.service.measured import JOBMANAGER, Measured, numbers
from firesteel.service.retries import repeated, until_it_works
from firesteel.service.versions import differences, own_versions
from firesteel_resourcemanager import instructions as i
from firesteel_resourcemanager.core import ResourceManagerCore
from firesteel_resourcemanager.fleet_driver import LOST, FleetDriver
from firesteel_resourcemanager.registry import TaskManagerRefusedError
from firesteel_resourcemanager.settings import ResourceManagerSettings
from firesteel_resourcemanager.stage_runs import StageRuns
from firesteel_resourcemanager.worker_pool import WorkerPool

logger = logging.getLogger(__name__)

BUSY_POLL = 0.05
"""Seconds between looks at the fleet while something is on its way there."""
IDLE_POLL = 0.25
PERFORMED_AT_ONCE = 200
"""Instructions of the core that are begun before others have their turn."""
EARLY_PAUSE = 2.0
"""Seconds between looks at what is started before this process leads."""
EARLY_RETRY = 30.0
"""The same after a start that has failed."""
WORKER_POLL = 0.25
"""Seconds between looks at the workers."""
_RETRIES = (0.05, 0.2, 1.0, 3.0)
"""Pauses, in seconds, before a JobMaster that does not answer is told again."""
_UNKNOWN_PAUSES = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds for which a TaskManager may not know yet that this ResourceManager leads: the answer to its registration may
have got lost, and it registers again."""


class ResourceManagerService(Service):
    """One ResourceManager with its fleet and its workers, which outlive it unless the cluster ends."""

    def __init__(
        self,
        *,
        settings: ResourceManagerSettings,
        secret: str,
        clock: Clock,
        provider: Provider,
        ha: HighAvailabilityServices,
    ) -> None:
        super().__init__("resourcemanager", drain_seconds=1.0)
        self._settings, self._secret, self._clock = settings, secret, clock
        self.token = str(new_fencing_token())
        self._candidate = Candidate(ha, RESOURCEMANAGER)
        self._fleet = FleetDriver(provider.fleet, provider.stand_by)
        self._workers, self._versions = WorkerPool(provider), own_versions()
        self.core = ResourceManagerCore(
            settings,
            clock.monotonic(),
            worker_ids=_new_worker_id,
            active=self._workers.is_active,
            slots_outlive_driver=self._fleet.slots_outlive_driver,
        )
        self._waiting: deque[i.Instruction] = deque()
        """Instructions that are to be begun."""
        self._is_performing = False
        """A task begins them."""
        self.stages = StageRuns(self._fleet, self.core.stage_places, lambda: self.session, secret, clock)
        """Runs of bounded stages."""
        self._looking = asyncio.Lock()
        self._launch_details: dict[str, m.SlotGranted] = {}
        """TaskManager -> its last answer that granted a slot, with what the fleet needs to start processes."""
        timeout, threshold = settings.heartbeat_timeout, settings.failure_threshold
        self._taskmanagers = HeartbeatMonitor(clock, timeout, failure_threshold=threshold)
        self._checking: set[str] = set()
        """TaskManagers whose port was closed, and that are asked again soon."""
        self._jobmasters = HeartbeatMonitor(clock, timeout, failure_threshold=0)

    # -- life

    async def start(self, host: str = "127.0.0.1", port: int = 0, advertised_host: str = "") -> str:
        """Start the service; where another ResourceManager leads and others may wait, this one waits for its turn.

        Raises:
            OSError: the port is taken.
            ConfigurationError: an advertised host is missing, or another ResourceManager leads and stays.
        """
        try:
            await self._candidate.lead(self._stand_by)
        except BaseException:
            await self.stop()
            raise
        return await super().start(host, port, advertised_host)

    @property
    def is_standby(self) -> bool:
        """Whether it waits while another ResourceManager leads."""
        return self._candidate.is_standby

    async def _stand_by(self) -> None:
        self.spawn(self._start_early(), "early start")

    async def _start_early(self) -> None:
        """Keep up what makes the fleet start sooner, while another ResourceManager leads."""
        last_error = ""
        while self.is_standby:
            pause = EARLY_PAUSE
            try:
                await self._fleet.stand_by()
            except Exception as error:  # the fleet is a plug-in; once this process leads, it starts without
                if self.stopping:
                    return
                if last_error != (last_error := str(error)):
                    logger.warning("nothing is started before this process leads: %s", error)
                pause = EARLY_RETRY
            await asyncio.sleep(pause)

    async def on_start(self) -> None:
        """The fleet starts in the background; TaskManagers and JobMasters may register meanwhile."""
        self._client = RpcClient(self.session, self._secret, self._clock)  # whoever knows the port may call already
        await self._candidate.announce(self.address, self.token)
        self.spawn(self._candidate.hold(), "leadership")
        self.perform(self.core.start(self.now))
        if self._workers.is_active:
            self.perform(self.core.workers_recovered(await self._workers.recover(self.address), self.now))
            self.spawn(self._watch_workers(), "worker watch")
        self.spawn(self._watch_fleet(), "fleet watch")
        self.spawn(self._watch_peers(), "heartbeat watch")
        self.spawn(self._send_heartbeats(), "heartbeats")

    async def on_stop(self) -> None:
        """Leave workers, driver, executors and slots to the next ResourceManager; or end them, with the cluster."""
        if self.leaving is Leaving.END_ALL:
            logger.info("the cluster ends: workers and the fleet are stopped")
            await self._workers.terminate()
            await self._fleet.stop()
        else:
            await self._workers.close()
            await self._fleet.detach()

    async def on_stopped(self) -> None:
        """Another ResourceManager may lead."""
        await self._candidate.give_up()

    # -- events

    def perform(self, instructions: Iterable[i.Instruction]) -> None:
        """Carry out instructions, side by side: the core orders what needs an order by waiting for answers."""
        self._waiting.extend(instructions)
        if not self._is_performing:
            self._perform_some()
            if self._waiting:
                self._is_performing = self.spawn(self._perform_others(), "instructions") is not None
            while self._waiting and not self._is_performing:  # the service stops
                self._perform_some()

    def _perform_some(self) -> None:
        """Begin with the instructions that stand first."""
        for _ in range(min(len(self._waiting), PERFORMED_AT_ONCE)):
            instruction = self._waiting.popleft()
            logger.debug("%s", instruction)
            self.spawn(self._do(instruction), type(instruction).__name__)

    async def _perform_others(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(0)
                self._perform_some()
        finally:
            self._is_performing = False

    async def measured(self) -> list[Measured]:
        """Figures of the service, and numbers of TaskManagers and slots."""
        table = self.core.table.taskmanagers.values()
        total = sum(len(taskmanager.slots) for taskmanager in table)
        slots = {
            "numRegisteredTaskManagers": len(table),
            "taskSlotsTotal": total,
            "taskSlotsAvailable": total - sum(taskmanager.held for taskmanager in table),
        }
        return [*await super().measured(), *numbers(JOBMANAGER, slots, {"host": self.host})]

    @property
    def now(self) -> float:
        """The present time, in monotonic seconds."""
        return self._clock.monotonic()

    def register_taskmanager(self, message: m.RegisterTaskManager) -> m.TaskManagerRegistered:
        """A TaskManager registers, perhaps again.

        Raises:
            RpcFault: it has other versions than this process, or is not wanted.
        """
        version_differences = differences(self._versions, message.versions)
        if version_differences:
            versions = ", ".join(version_differences)
            text = f"TaskManager {message.taskmanager_id} has {versions}: all nodes need the same versions"
            logger.error("%s; it is refused", text)
            raise RpcFault(RpcCode.BAD_REQUEST, text)
        try:
            instructions = self.core.register_taskmanager(message, self.now, self._clock.epoch_ms())
        except TaskManagerRefusedError as error:
            logger.warning("a registration is refused: %s", error)
            raise RpcFault(RpcCode.BAD_REQUEST, str(error)) from error
        self._taskmanagers.watch(message.taskmanager_id)
        self.perform(instructions)
        self.spawn(self._heartbeat(message.taskmanager_id), "first heartbeat")
        return m.TaskManagerRegistered(self.token, int(self._settings.heartbeat_interval * 1000))

    def register_jobmaster(self, message: m.RegisterJobMaster) -> m.JobMasterRegistered:
        """A JobMaster registers, perhaps again.

        Raises:
            FormerJobMasterError: a later JobMaster of the job has registered.
        """
        instructions = self.core.register_jobmaster(
            message.job_id,
            message.job_name,
            message.address,
            message.jobmaster_token,
            self.now,
            message.python,
            message.epoch,
            message.former_taskmanagers,
        )
        self._jobmasters.watch(message.job_id)
        self.perform(instructions)
        return m.JobMasterRegistered(self.token, ends_within=self._workers.ends_within)

    def jobmaster_heartbeat(self, message: m.JobMasterHeartbeat) -> None:
        """A JobMaster is alive.

        Raises:
            UnregisteredJobError: it has to register.
            FormerJobMasterError: another one of the job is registered.
        """
        self.core.check_sender(message.job_id, message.sender)
        self._jobmasters.heard(message.job_id)

    def disconnect_taskmanager(self, taskmanager_id: str, cause: str) -> None:
        self._taskmanagers.forget(taskmanager_id)
        self.perform(self.core.taskmanager_gone(taskmanager_id, cause, self.now, orderly=True))

    def disconnect_jobmaster(self, job_id: str, jobmaster_token: str, cause: str) -> None:
        """A job has ended, or its JobMaster was lost; nothing happens if another JobMaster follows that one."""
        if not self.core.is_followed(job_id, jobmaster_token):
            self._jobmasters.forget(job_id)
            self.perform(self.core.jobmaster_gone(job_id, cause or "the job ended", self.now))
            self.spawn(self.stages.job_left(job_id), f"end of stages of job {job_id}")

    async def set_slots(self, taskmanager_id: str, slots: int) -> None:
        """Give a TaskManager more slots. It is told first, as it has to know a slot before the slot is requested."""
        taskmanager = self.core.table.taskmanagers.get(taskmanager_id)
        if taskmanager is None:
            raise RpcFault(RpcCode.NOT_FOUND, f"no TaskManager {taskmanager_id!r} is registered")
        await TaskManagerGateway(self._client, taskmanager.address, self.token).set_slots(m.SlotCount(slots))
        self.perform(self.core.set_slots(taskmanager_id, slots, self.now))

    async def cancel_slot(self, allocation_id: str) -> str:
        """Give up the process of a slot, as its TaskManager asks; returns what the fleet knows about its end."""
        await self._look()
        cause = self._fleet.cause(allocation_id)
        if not cause:
            await self._cancel(allocation_id)
        return cause

    # -- instructions

    async def _do(self, instruction: i.Instruction) -> None:
        match instruction:
            case i.SendRequestSlot():
                await self._request(instruction)
            case i.LaunchSlot():
                await self._launch(instruction)
            case i.CancelLaunch():
                await self._cancel(instruction.allocation_id)
            case i.SendFreeSlot():
                taskmanager = TaskManagerGateway(self._client, instruction.taskmanager_address, self.token)
                try:
                    await taskmanager.free_slot(m.FreeSlot(instruction.allocation_id, instruction.cause))
                except RpcError as error:
                    logger.warning("slot %s: %s", instruction.allocation_id, error)
                await self._heartbeat(instruction.taskmanager_id)
            case i.SendFailSlot():
                failed = m.FailSlot(instruction.taskmanager_id, instruction.allocation_id, instruction.cause)
                jobmaster = self._jobmaster(instruction)
                await until_it_works("lost slot", lambda: jobmaster.fail_slot(failed), waits=_RETRIES)
            case i.TellTaskManagerEnded():
                ended = m.TaskManagerEnded(instruction.taskmanager_id, instruction.cause)
                jobmaster = self._jobmaster(instruction)
                await until_it_works("end of a TaskManager", lambda: jobmaster.taskmanager_ended(ended), waits=_RETRIES)
            case i.SendNoResources():
                notice = m.NotifyNoResources(instruction.needed, instruction.total, instruction.message)
                jobmaster = self._jobmaster(instruction)
                await until_it_works("lack of slots", lambda: jobmaster.notify_no_resources(notice), waits=_RETRIES)
            case i.SendWaiting():
                reason = m.NotifyWaiting(instruction.reason)
                jobmaster = self._jobmaster(instruction)
                await until_it_works("what slots wait for", lambda: jobmaster.notify_waiting(reason), waits=_RETRIES)
            case i.AskForReport():
                await self._heartbeat(instruction.taskmanager_id)
            case i.StartFleet():
                await self._start_fleet()
            case i.StartExecutor():
                await self._start_executor(instruction)
            case i.StartWorker():
                await self._start_worker(instruction)
            case i.StopWorker():
                self._taskmanagers.forget(instruction.worker_id)
                await self._stop_worker(instruction.worker_id)

    def _jobmaster(
        self, instruction: i.SendFailSlot | i.TellTaskManagerEnded | i.SendNoResources | i.SendWaiting
    ) -> JobMasterGateway:
        return JobMasterGateway(self._client, instruction.jobmaster_address, instruction.jobmaster_token)

    async def _request(self, request: i.SendRequestSlot) -> None:
        message = m.RequestSlot(
            request.slot_index,
            request.allocation_id,
            request.job_id,
            request.jobmaster_address,
            request.jobmaster_token,
            request.python,
            request.jobmaster_epoch,
        )
        taskmanager = TaskManagerGateway(self._client, request.taskmanager_address, self.token)
        try:
            granted = await repeated(
                lambda: taskmanager.request_slot(message),
                lambda error: isinstance(error, FencedError),
                _UNKNOWN_PAUSES,
            )
        except (RpcError, ProtocolError) as error:
            self.perform(self.core.slot_refused(request.allocation_id, str(error), self.now))
        else:
            self._launch_details[request.taskmanager_id] = granted
            self.perform(self.core.slot_granted(request.allocation_id, self.now))

    async def _launch(self, launch: i.LaunchSlot) -> None:
        granted = self._launch_details[launch.taskmanager_id]
        executor, socket = launch.executor_id or granted.executor_id, granted.control_socket
        try:
            await self._fleet.start_slot(SlotLaunch(launch.allocation_id, launch.taskmanager_id, executor, socket))
        except FleetError as error:
            if self.stopping:
                return
            if await self._look():
                self.perform(self.core.launch_failed(launch.allocation_id, str(error), self.now))
            else:
                self.perform(self.core.launch_postponed(launch.allocation_id))
            return
        slot = self.core.table.find(launch.allocation_id)
        if slot is None or not slot.launched:  # given back meanwhile
            await self._cancel(launch.allocation_id)

    async def _cancel(self, allocation_id: str) -> None:
        try:
            await self._fleet.cancel_slot(allocation_id)
        except Exception as error:  # the fleet is a plug-in; its next report tells what became of the slot
            logger.warning("slot %s was not cancelled: %s", allocation_id, error)

    async def _start_fleet(self) -> None:
        started = self.now
        try:
            await self._fleet.start()
            attached = await self._fleet.attached_executors()
        except Exception as error:  # the fleet is a plug-in
            if self.stopping:
                return
            self.perform(self.core.fleet_failed(str(error) or type(error).__name__))
        else:
            logger.info("the fleet is up after %.1f s", self.now - started)
            self.perform(self.core.fleet_started(attached, self.now))

    async def _start_executor(self, order: i.StartExecutor) -> None:
        cause = "the fleet has none for it"
        try:
            spec = await self._fleet.executor_for(order.taskmanager_id, order.cores)
            if spec is not None:
                if not self.core.executor_named(order.taskmanager_id, order.attempt, spec.executor_id):
                    return
                taskmanager = TaskManagerGateway(self._client, order.taskmanager_address, self.token)
                await taskmanager.start_executor(spec)
                self.perform(self.core.executor_started(order.taskmanager_id, order.attempt, self.now))
                return
        except (FleetError, RpcError) as error:
            cause = str(error)
        if not self.stopping:
            self.perform(self.core.executor_failed(order.taskmanager_id, order.attempt, cause, self.now))

    async def _start_worker(self, order: i.StartWorker) -> None:
        try:
            await self._workers.start_worker(WorkerSpec(order.worker_id, order.slots))
        except WorkerError as error:
            if not self.stopping:
                self.perform(self.core.worker_failed(order.worker_id, str(error), self.now))

    async def _stop_worker(self, worker_id: str) -> None:
        try:
            await self._workers.stop_worker(worker_id)
        except Exception:  # the driver is a plug-in; the core asks again while the worker is there
            logger.exception("worker %s could not be stopped; it is tried again", worker_id)

    # -- watching

    async def _look(self) -> bool:
        """Look at the fleet, and tell the core what is new; returns whether the fleet lives."""
        async with self._looking:
            ready = self.core.fleet_is_ready
            news = await self._fleet.look()
            if self.stopping:
                return news.alive
            if ready and not news.alive:
                lost = next((text for _, outcome, text in news.ended if outcome.name == "LOST" and text), LOST)
                self.perform(self.core.fleet_lost(lost, self.now))
            for allocation, outcome, text in news.ended:
                self.perform(self.core.slot_ended(allocation, outcome, text, self.now))
            if ready and news.alive and news.attached is not None:
                self.perform(self.core.executors_attached(news.attached, self.now))
            return news.alive

    async def _watch_fleet(self) -> None:
        while True:
            await asyncio.sleep(BUSY_POLL if self.core.is_watching else IDLE_POLL)
            try:
                await self._look()
            except Exception:  # the fleet is a plug-in; it is asked again at the next turn
                logger.exception("the fleet could not be asked")
            self.perform(self.core.tick(self.now))

    async def _watch_workers(self) -> None:
        while True:
            await asyncio.sleep(WORKER_POLL)
            try:
                ended = await self._workers.ended_workers()
                waiting = await self._workers.waiting_workers()
            except Exception:  # the driver is a plug-in; it is asked again at the next turn
                logger.exception("the driver could not be asked for workers that have ended")
                continue
            for worker, cause in ended:
                self._taskmanagers.forget(worker)
                self.perform(self.core.worker_ended(worker, cause, self.now))
            if waiting != self.core.workers.waiting:
                self.perform(self.core.workers_wait(waiting, self.now))

    async def _watch_peers(self) -> None:
        while True:
            await asyncio.sleep(self._taskmanagers.tick_seconds)
            for taskmanager in self._taskmanagers.tick():
                self.perform(self.core.taskmanager_gone(taskmanager, "it does not answer heartbeats", self.now))
            for job in self._jobmasters.tick():
                self.perform(self.core.jobmaster_lost(job, "it sends no heartbeats", self.now))

    async def _send_heartbeats(self) -> None:
        while True:
            await asyncio.sleep(self._settings.heartbeat_interval)
            for taskmanager in self._taskmanagers.peers():
                self.spawn(self._heartbeat(taskmanager), "heartbeat")

    def _check(self, taskmanager_id: str) -> None:
        """Ask a TaskManager whose port is closed until it answers, or has failed often enough."""
        if taskmanager_id in self._taskmanagers and taskmanager_id not in self._checking:
            self._checking.add(taskmanager_id)
            self.spawn(self._ask_until_clear(taskmanager_id), f"check of {taskmanager_id}")

    async def _ask_until_clear(self, taskmanager_id: str) -> None:
        try:
            await asyncio.sleep(CHECK_PAUSE)
            while taskmanager_id in self._taskmanagers and not await self._heartbeat(taskmanager_id):
                await asyncio.sleep(CHECK_PAUSE)
        finally:
            self._checking.discard(taskmanager_id)

    async def _heartbeat(self, taskmanager_id: str) -> bool:
        """Ask for a report; returns False if the TaskManager's port is closed. Silence is judged by the monitor."""
        taskmanager = self.core.table.taskmanagers.get(taskmanager_id)
        if taskmanager is None:
            return True
        as_of = self.core.table.revision
        limit = max(1.0, self._settings.heartbeat_interval)
        try:
            report = await TaskManagerGateway(self._client, taskmanager.address, self.token, limit).heartbeat()
        except RpcError as error:
            if self.stopping or taskmanager_id not in self.core.table.taskmanagers:
                return True
            logger.warning("no heartbeat from TaskManager %s: %s", taskmanager_id, error)
            if is_silence(error):
                return True
            self._taskmanagers.failed(taskmanager_id)
            if not is_refused(error):
                return True
            self._check(taskmanager_id)
            return False
        self._taskmanagers.heard(taskmanager_id)
        now_ms = self._clock.epoch_ms()
        self.perform(self.core.slot_report(taskmanager_id, report.slot_report, as_of, self.now, now_ms))
        return True


def _new_worker_id() -> str:
    return f"worker-{new_allocation_id()[:12]}"
