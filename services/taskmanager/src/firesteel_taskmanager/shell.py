"""The TaskManager at work: carries out what its core decides, and tells it what happened."""

from __future__ import annotations

import asyncio
import base64
import itertools
import logging
import os
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from firesteel.config import Settings
from firesteel.core.clock import Clock
from firesteel.core.errors import FencedError, PeerUnreachableError, ProtocolError, RpcError
from firesteel.core.machine import usable_cores
from firesteel.core.process import identify, is_running, kill
from firesteel.core.run_directory import RunDirectory
from firesteel.protocol import messages as m
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.rpc import RpcClient
from firesteel.service.base import Service
from firesteel.service.heartbeat import HeartbeatMonitor
from firesteel_taskmanager import instructions as i
from firesteel_taskmanager.blobs import BlobCache
from firesteel_taskmanager.channels import ChannelServer
from firesteel_taskmanager.core import TaskManagerCore
from firesteel_taskmanager.outbox import Outbox, is_gone
from firesteel_taskmanager.output import SlotOutput
from firesteel_taskmanager.resourcemanager import ResourceManagerLink
from firesteel_taskmanager.settings import TaskManagerSettings, cancellation_of

logger = logging.getLogger(__name__)

_COLLECT_MARGIN = 8.0
"""Seconds that a slot may take to answer beyond the wait that it was asked for."""
_DEATH_SECONDS = 2.0
_RETRY_PAUSES = (0.02, 0.1, 0.5, 1.0)


class TaskManagerService(Service):
    """One TaskManager: slots, their processes over the control socket, reports to JobMasters."""

    def __init__(
        self,
        *,
        settings: Settings,
        secret: str,
        clock: Clock,
        run_directory: RunDirectory,
        taskmanager_id: str,
        slots: int,
        resourcemanager_address: str,
        stdout: Callable[[str], None] | None,
        executor_id: str,
    ) -> None:
        super().__init__("taskmanager", drain_seconds=4.0)
        own = TaskManagerSettings.from_settings(settings)
        self._all_settings, self._settings = settings, own
        self._secret, self._clock = secret, clock
        self.taskmanager_id, self.executor_id = taskmanager_id, executor_id
        self.core = TaskManagerCore(taskmanager_id, slots, executor_id, own)
        socket = run_directory.socket_path(f"tm-{zlib.crc32(taskmanager_id.encode()):x}.s")
        self.channels = ChannelServer(socket, self, self.spawn)
        self.blobs = BlobCache(run_directory.path / "tm-blobs", secret)
        self.resourcemanager_address = resourcemanager_address
        self._link = ResourceManagerLink(self, own.heartbeat_timeout, clock)
        self._output = SlotOutput(stdout)
        self._outboxes: dict[str, Outbox] = {}
        self._offers: dict[str, dict[str, m.SlotOffer]] = {}
        self._collects: dict[int, tuple[int, asyncio.Future[m.Collected]]] = {}
        self._requests = itertools.count(1)
        self._tick = min(1.0, own.heartbeat_timeout / 4)
        self._jobmasters = HeartbeatMonitor(clock, own.heartbeat_timeout, self._tick, failure_threshold=0)
        self._alarm = asyncio.Event()
        self._idle = asyncio.Event()

    # -- life

    async def on_start(self) -> None:
        """Listen for slot processes, and register."""
        self.client = RpcClient(self.session, self._secret, self._clock)
        await self.channels.start()
        self.spawn(self._link.stay_registered(), "registration")
        self.spawn(self._watch_time(), "deadlines")
        self.spawn(self._watch_peers(), "heartbeat watch")
        self.spawn(self._ping(), "pings")

    async def on_drain(self) -> None:
        """Release all slots; what does not return is killed by its deadline."""
        self.perform(self.core.stop(self.now))
        while not self.core.is_idle:
            self._idle.clear()
            await self._idle.wait()

    async def on_stop(self) -> None:
        """Whatever happened before: no process, socket or file is left."""
        rest = [x.process for x in self.core.kill_all() if isinstance(x, i.KillProcess) and x.process is not None]
        for process in rest:
            if process.pid != os.getpid():
                kill(process)
        await self.channels.close()
        await self.blobs.close()
        await self._link.say_goodbye(self.taskmanager_id)

    @property
    def now(self) -> float:
        """Monotonic seconds."""
        return self._clock.monotonic()

    @property
    def now_ms(self) -> int:
        """Epoch."""
        return self._clock.epoch_ms()

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
            case i.ReportState() | i.ReportEndOfData() | i.ReportSlotFailed():
                self._outbox(instruction.jobmaster).report(instruction)
            case i.PublishMetrics():
                self._outbox(instruction.jobmaster).publish(dict(instruction.tasks))
            case i.Offer():
                self._offer(instruction)
            case i.AskForSplits():
                self.spawn(self._ask_for_splits(instruction), "request for splits")
            case i.SlotFreed():
                freed = m.SlotAvailable(self.taskmanager_id, instruction.slot_index, instruction.allocation_id)
                self.spawn(self._link.tell_free(freed), "free slot")
            case i.Investigate():
                self.spawn(self._investigate(instruction), "lost process")
            case i.CancelLaunch():
                slot = m.SlotAvailable(self.taskmanager_id, instruction.slot_index, instruction.allocation_id)
                self.spawn(self._link.cancel_launch(slot), "cancelled launch")
            case i.KillProcess():
                self.spawn(self._kill(instruction), "kill")
            case i.DeleteFiles():
                self.spawn(self._delete(instruction), "left-over files")
            case i.ForgetJob():
                self.blobs.forget(instruction.job_id)
                self._outboxes.pop(instruction.job_id, None)
                self._offers.pop(instruction.job_id, None)
                self._jobmasters.forget(instruction.job_id)

    def _outbox(self, ref: i.JobMasterRef) -> Outbox:
        outbox = self._outboxes.get(ref.job_id)
        if outbox is None or outbox.ref != ref:
            outbox = self._outboxes[ref.job_id] = Outbox(
                ref, self.client, self._clock, self.taskmanager_id, self._settings.heartbeat_timeout,
                lambda cause: self._jobmaster_lost(ref, cause), self.spawn,
            )  # fmt: skip
        return outbox

    def _jobmaster_lost(self, ref: i.JobMasterRef, cause: str) -> None:
        logger.warning("job %s: %s; its slots here are freed", ref.job_id, cause)
        self.perform(self.core.jobmaster_lost(ref.job_id, cause, self.now))

    def _offer(self, offer: i.Offer) -> None:
        waiting = self._offers.get(offer.jobmaster.job_id)
        slots = {slot.allocation_id: slot for slot in offer.slots}
        if waiting is not None:  # goes with the next call
            waiting.update(slots)
            return
        self._offers[offer.jobmaster.job_id] = slots
        self.spawn(self._send_offers(offer.jobmaster), f"offers to job {offer.jobmaster.job_id}")

    async def _send_offers(self, ref: i.JobMasterRef) -> None:
        gateway = self._outbox(ref).gateway
        attempt = 0
        while waiting := self._offers.get(ref.job_id):
            offered = {a: s for a, s in waiting.items() if (slot := self.core.slots.find(a)) and slot.process}
            self._offers[ref.job_id] = {}
            if not offered:
                continue
            try:
                answer = await gateway.offer_slots(
                    m.OfferSlots(self.taskmanager_id, self.address, tuple(offered.values()))
                )
            except PeerUnreachableError as error:  # until the slots' deadlines end it
                logger.warning("job %s: slots could not be offered: %s", ref.job_id, error)
                self._offers[ref.job_id] = {**offered, **self._offers.get(ref.job_id, {})}
                await asyncio.sleep(_RETRY_PAUSES[min(attempt, len(_RETRY_PAUSES) - 1)])
                attempt += 1
            except RpcError as error:
                if is_gone(error):
                    self._jobmaster_lost(ref, f"its JobMaster does not want slots: {error}")
                else:
                    logger.error("job %s: offered slots were refused: %s", ref.job_id, error)
                    self.perform(self.core.offer_answered(offered, (), self.now))
            else:
                if ref.job_id not in self._jobmasters:
                    self._jobmasters.watch(ref.job_id)
                self.perform(self.core.offer_answered(offered, answer.accepted, self.now))
        self._offers.pop(ref.job_id, None)

    async def _ask_for_splits(self, ask: i.AskForSplits) -> None:
        gateway = self._outbox(ask.jobmaster).gateway
        for pause in (*_RETRY_PAUSES, None):
            try:
                answer = await gateway.request_splits(m.ExecutionRef(ask.execution_id))
            except PeerUnreachableError as error:
                if pause is None:
                    self._jobmaster_lost(ask.jobmaster, f"its JobMaster gives no splits: {error}")
                    return
                await asyncio.sleep(pause)
            except RpcError as error:
                if is_gone(error):
                    self._jobmaster_lost(ask.jobmaster, f"its JobMaster gives no splits: {error}")
                else:
                    logger.error("execution %s got no splits: %s", ask.execution_id, error)
                return
            else:
                slot = self.core.slots.find(ask.allocation_id)
                if slot is not None and slot.process is not None and ask.execution_id in slot.tasks and not slot.lost:
                    self.perform(
                        self.core.splits_assigned(
                            ask.execution_id, answer.splits, answer.no_more, allocation_id=ask.allocation_id
                        )
                    )
                return

    async def _investigate(self, lost: i.Investigate) -> None:
        slot = m.SlotAvailable(self.taskmanager_id, lost.slot_index, lost.allocation_id)
        why = await self._link.cancel_launch(slot)
        cause = f"{lost.cause}: {why}" if why else lost.cause
        self.perform(self.core.process_lost(lost.allocation_id, cause, self.now, self.now_ms))

    async def _kill(self, order: i.KillProcess) -> None:
        process = order.process
        if process is None or process.pid == os.getpid() or not is_running(process):
            return
        slot = m.SlotAvailable(self.taskmanager_id, order.slot_index, order.allocation_id)
        await self._link.cancel_launch(slot)  # first, so that it is not started again
        kill(process)

    async def _delete(self, order: i.DeleteFiles) -> None:
        deadline = self.now + _DEATH_SECONDS
        while order.process is not None and is_running(order.process) and self.now < deadline:
            await asyncio.sleep(0.01)
        for path in order.paths:
            try:
                Path(path).unlink(missing_ok=True)
            except OSError as error:
                logger.warning("%s could not be removed: %s", path, error)

    # -- slot processes (ChannelEvents)

    def channel_message(self, channel: int, message: dict[str, Any], payload: bytes) -> None:
        """See ``ChannelEvents``."""
        try:
            self._received(channel, message, payload)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            kind = message["type"]
            reason = f"malformed {kind!r}: {type(error).__name__}: {error}"
            raise ProtocolError(f"control channel {channel}", reason) from error

    def _received(self, channel: int, message: dict[str, Any], payload: bytes) -> None:
        kind = message["type"]
        if kind == "register":
            self._register(channel, message)
            return
        if not self.channels.is_registered(channel):
            raise ProtocolError(f"control channel {channel}", f"{kind!r} came before 'register'")
        match kind:
            case "task_state":
                self.perform(self.core.task_state(channel, message, self.now_ms))
            case "request_splits":
                self.perform(self.core.splits_wanted(channel, message))
            case "end_of_data":
                self.perform(self.core.end_of_data(channel, message))
            case "metrics":
                self.perform(self.core.metrics(channel, message))
            case "temporary_files":
                self.perform(self.core.temporary_files(channel, message))
            case "pong":
                self.perform(self.core.pong(channel))
            case "stdout":
                self._output.write(channel, str(message.get("stream", "stdout")), payload)
            case "log":
                self._output.log(message)
            case "collect_result":
                self._collected(message, payload)
            case _:
                raise ProtocolError(f"control channel {channel}", f"unknown message type {kind!r}")

    def channel_closed(self, channel: int, reason: str) -> None:
        """See ``ChannelEvents``."""
        self._output.forget(channel)
        for request, (where, future) in list(self._collects.items()):
            if where == channel and not future.done():
                self._collects.pop(request)
                future.set_exception(RpcFault(RpcCode.NOT_FOUND, "the slot process ended"))
        slot = self.core.slots.at(channel)
        cause = reason
        if slot is not None and slot.process is not None:
            detail = f" ({reason})" if reason else ""
            cause = f"slot process {slot.process.pid} on {self.taskmanager_id} was killed or ended{detail}"
        self.perform(self.core.channel_closed(channel, cause, self.now))

    def _register(self, channel: int, message: dict[str, Any]) -> None:
        if self.channels.is_registered(channel):
            raise ProtocolError(f"control channel {channel}", "it registered twice")
        self.channels.mark_registered(channel)
        pid, real = message.get("pid"), self.channels.peer_pid(channel)
        if real is not None and pid != real:
            raise ProtocolError(f"control channel {channel}", f"process {real} says that it is {pid!r}")
        identity = identify(pid) if isinstance(pid, int) else None
        self.perform(self.core.register(channel, message, identity, self.now))

    def _collected(self, message: Mapping[str, Any], payload: bytes) -> None:
        _, future = self._collects.pop(message["request_id"], (0, None))
        if future is None or future.done():
            return
        if message.get("error"):
            future.set_exception(RpcFault(RpcCode.INTERNAL, str(message["error"])))
            return
        data = base64.b64encode(payload).decode("ascii")
        future.set_result(m.Collected(message["offset"], message["count"], message["end"], data))

    # -- calls that wait

    async def submit_tasks(self, message: m.SubmitTasks) -> None:
        """Fetch the blobs, then have the slot run the tasks."""
        slot = self.core.slots.find(message.allocation_id)
        if slot is not None and slot.jobmaster.token != message.jobmaster_token:
            raise FencedError(f"another JobMaster leads job {message.job_id}")
        plain = message.deployment
        try:
            names = [str(task["chain"]) for task in plain["tasks"]]
            executions = [str(task["execution_id"]) for task in plain["tasks"]]
            names += [str(name) for name in plain.get("blobs") or ()]
            names += [str(plain["main_blob"])] if plain["main_blob"] else []
            config = {str(key): str(value) for key, value in plain["config"].items()}
        except (KeyError, TypeError, AttributeError) as error:
            raise ProtocolError("submit_tasks", f"malformed deployment: {type(error).__name__}: {error}") from error
        cancellation = cancellation_of(self._all_settings, config)
        if not self.core.begin_deploy(message.job_id, message.allocation_id, executions, cancellation, self.now):
            return
        blobs = await self.blobs.fetch(self.session, message.job_id, message.blob_address, names)
        self.perform(self.core.deploy(message.job_id, message.allocation_id, {**plain, "blobs": blobs}))

    async def collect(self, message: m.Collect) -> m.Collected:
        """Ask the slot for results; it waits for the first one, and so does the caller."""
        channel = self.core.slots.channel_of(message.execution_id, message.job_id, message.allocation_id)
        request = next(self._requests)
        future: asyncio.Future[m.Collected] = asyncio.get_running_loop().create_future()
        self._collects[request] = (channel, future)
        self.channels.send(channel, {"type": "collect", "request_id": request, **message.to_plain()})
        try:
            async with asyncio.timeout(message.wait_ms / 1000 + _COLLECT_MARGIN):
                return await future
        except TimeoutError as error:
            text = f"the slot of execution {message.execution_id} did not answer in time"
            raise RpcFault(RpcCode.INTERNAL, text) from error
        finally:
            self._collects.pop(request, None)

    def resourcemanager_heartbeat(self) -> m.SlotReport:
        """The ResourceManager is alive."""
        self._link.heard()
        return m.SlotReport(self.core.report())

    def jobmaster_heartbeat(self, message: m.HeartbeatFromJobMaster) -> m.ExecutionReport:
        """A JobMaster is alive, and says which slots it has."""
        self._jobmasters.heard(message.job_id)
        self.perform(self.core.jobmaster_heartbeat(message.job_id, message.allocations, self.now))
        states, metrics = self.core.executions(message.job_id)
        return m.ExecutionReport(states, metrics)

    def registration(self) -> m.RegisterTaskManager:
        """How this TaskManager presents itself."""
        page = os.sysconf("SC_PAGE_SIZE")
        free = os.sysconf("SC_AVPHYS_PAGES") * page if "SC_AVPHYS_PAGES" in os.sysconf_names else 0
        hardware = {
            "cpuCores": usable_cores(),
            "physicalMemory": os.sysconf("SC_PHYS_PAGES") * page,
            "freeMemory": free,
            "managedMemory": 0,
        }
        return m.RegisterTaskManager(self.taskmanager_id, self.address, len(self.core.slots), hardware)

    def is_ready(self) -> bool:
        """Whether the ResourceManager knows it."""
        return super().is_ready() and self._link.is_registered

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
            await asyncio.sleep(self._tick)
            self._link.tick()
            for job in self._jobmasters.tick():
                self.perform(self.core.jobmaster_lost(job, "its JobMaster sends no heartbeats", self.now))

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(self._settings.heartbeat_interval)
            self.perform(self.core.ping(self.now))
