"""The TaskManager's decisions: events in, instructions out; no input or output, no clock of its own.

A slot's life: the ResourceManager allocates it to a job; its process registers over the control channel; it is offered
to the JobMaster, which accepts it (ACTIVE) and sends tasks; it is released, and FREE again once its process has ended.
Every wait on this way has a deadline. An allocation never comes back once it has ended.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, Protocol

from firesteel.core.errors import FleetError, TaskManagerStoppedError, TaskMemoryExceededError
from firesteel.core.process import ProcessId
from firesteel.core.refusals import RefusalLog
from firesteel.protocol.messages import RequestSlot, SlotOffer, SlotStatus
from firesteel.protocol.python_environment import PythonEnvironment
from firesteel.protocol.slot_channel import PROTOCOL_VERSION
from firesteel_taskmanager.checkpoints import CheckpointDecisions
from firesteel_taskmanager.ending import SlotEndings
from firesteel_taskmanager.instructions import (
    CloseChannel,
    Instruction,
    Investigate,
    JobMasterRef,
    KillProcess,
    Offer,
    ReportSlotFailed,
    Send,
)
from firesteel_taskmanager.settings import TaskManagerSettings
from firesteel_taskmanager.slots import Process, TaskSlot, TaskSlotState, TaskSlotTable
from firesteel_taskmanager.tasks import TaskDecisions

logger = logging.getLogger(__name__)

INVESTIGATION_PATIENCE: Final = 5.0
"""Seconds to wait for what the ResourceManager knows about the end of a process."""
SETTLE_SECONDS: Final = 5.0
"""A slot accepted so shortly ago may be missing from a JobMaster's list that was on its way."""
_MEBIBYTE: Final = 1 << 20


class SlotTakenError(Exception):
    """The slot belongs to another allocation, the allocation has ended, or no executor can run it."""


class SlotExecutors(Protocol):
    """The executors on which slot processes may run."""

    @property
    def newest(self) -> str | None:
        """Id of the executor on which slots start; None while there is none."""

    def knows(self, executor_id: str) -> bool:
        """Whether the TaskManager has an executor of this id."""


class TaskManagerCore:
    """Slot table and slot processes; ``tasks`` decides about the tasks in them.

    Events take ``now`` (monotonic seconds) where time matters, and return what has to be done, in order.

    Args:
        taskmanager_id: of this TaskManager.
        slots: number of its slots.
        executors: on which slot processes have to run.
        settings: timeouts.
        memory_limit: bytes that a slot's process and its children may use; None = no limit.
    """

    def __init__(
        self,
        taskmanager_id: str,
        slots: int,
        executors: SlotExecutors,
        settings: TaskManagerSettings,
        memory_limit: int | None = None,
    ) -> None:
        self._id, self._executors, self._settings = taskmanager_id, executors, settings
        self.memory_limit = memory_limit
        self.log_levels: dict[str, str] = {}
        """Logger -> level, for loggers of slots whose level was changed."""
        self.slots = TaskSlotTable(taskmanager_id, slots)
        self.tasks = TaskDecisions(self.slots)
        self.checkpoints = CheckpointDecisions(self.slots)
        self._endings = SlotEndings(self.slots, settings)
        self._refusals = RefusalLog(logger, taskmanager_id)

    # -- from the ResourceManager

    def set_slots(self, count: int) -> None:
        """Have at least so many slots."""
        self.slots.grow(count)

    def request_slot(self, request: RequestSlot, now: float) -> str:
        """Allocate a slot to a job; returns the executor on which its process has to start.

        Raises:
            SlotTakenError: the slot is not free, there is no such slot or no executor, or the allocation has ended.
        """
        slot, executor = self.slots.get(request.slot_index), self._executors.newest
        if slot is None:
            raise SlotTakenError(f"there is no slot {request.slot_index}: {self._id} has {len(self.slots)}")
        if self._endings.has_ended(request.allocation_id):
            raise SlotTakenError(f"allocation {request.allocation_id} has ended")
        if executor is None:
            raise SlotTakenError(f"no Spark executor runs on {self._id}: it waits for one from the ResourceManager")
        if slot.allocation_id == request.allocation_id and slot.state is not TaskSlotState.RELEASING:
            return executor
        if slot.state is not TaskSlotState.FREE:
            raise SlotTakenError(
                f"slot {slot.index} is {slot.state.value} for allocation {slot.allocation_id} of job {slot.job_id}"
            )
        if taken_slot := self.slots.find(request.allocation_id):
            raise SlotTakenError(f"allocation {request.allocation_id} has slot {taken_slot.index}")
        slot.allocation_id = request.allocation_id
        slot.jobmaster = JobMasterRef(
            request.job_id, request.jobmaster_address, request.jobmaster_token, request.jobmaster_epoch
        )
        slot.python = dict(request.python)
        slot.deadline = now + self._settings.start_timeout
        slot.cancellation = self._settings.cancellation
        slot.move(TaskSlotState.ALLOCATED, "requested by the ResourceManager")
        return executor

    def needs_environment(self, allocation_id: str, environment: str) -> TaskSlot | None:
        """The slot of an allocation, if its process has to go on in another Python environment; else None."""
        slot = self.slots.find(allocation_id)
        if slot is None or not slot.python or slot.state is not TaskSlotState.ALLOCATED or slot.had_process:
            return None
        return None if PythonEnvironment.from_plain(slot.python).id == environment else slot

    def environment_takes(self, allocation_id: str, seconds: float, now: float) -> None:
        """Wait ``seconds`` longer than usual for a slot's process, whose Python environment is being made."""
        slot = self.slots.find(allocation_id)
        if slot is not None and slot.state is TaskSlotState.ALLOCATED and slot.process is None:
            slot.deadline = now + self._settings.start_timeout + seconds

    def environment_failed(self, allocation_id: str, cause: str, now: float) -> list[Instruction]:
        """The Python environment can't be made: no process will come."""
        slot = self.slots.find(allocation_id)
        if slot is None or slot.state is not TaskSlotState.ALLOCATED or slot.process is not None:
            return []
        failed = ReportSlotFailed(slot.jobmaster, slot.allocation_id, cause, in_vain=True)
        return [failed, *self._endings.release(slot, cause.splitlines()[0], now)]

    def report(self) -> tuple[SlotStatus, ...]:
        """The state of all slots."""
        return tuple(
            SlotStatus(
                s.index,
                s.state.value,
                s.allocation_id or None,
                s.job_id or None,
                s.process.pid if s.process else None,
                s.jobmaster.epoch,
            )
            for s in self.slots
        )

    # -- from slot processes

    def register(
        self, channel: int, message: Mapping[str, Any], identity: ProcessId | None, now: float
    ) -> list[Instruction]:
        """A process registers for a slot. A copy of it that must not run is told to return."""
        allocation, pid = str(message.get("allocation_id")), message.get("pid")
        executor = str(message.get("executor_id"))
        slot = self.slots.find(allocation)
        reason, expected = "", False
        if message.get("version") != PROTOCOL_VERSION:
            reason = f"protocol version {message.get('version')!r} is not spoken here, only {PROTOCOL_VERSION}"
        elif not isinstance(pid, int) or not isinstance(message.get("data_address"), Mapping):
            reason = "the registration is malformed: pid and data_address are missing"
        elif not self._executors.knows(executor):
            reason = f"it runs on executor {executor!r}, and {self._id} has {self._executors.newest!r}"
        elif slot is not None and slot.had_process:
            reason = f"process {slot.had_process} was registered for allocation {allocation} before"
            expected = True  # Spark starts the task again whose process was killed
        elif slot is None and self._endings.has_ended(allocation):
            reason, expected = f"allocation {allocation} has ended", True
        elif slot is None or slot.state is not TaskSlotState.ALLOCATED:
            reason = f"allocation {allocation} is not expected"
        if reason or slot is None or not isinstance(pid, int):
            if expected:
                logger.info("slot process %s is not needed: %s", pid, reason)
            else:
                self._refusals.refused(f"slot process {pid}", reason, now=now)
            return [Send(channel, {"type": "rejected", "reason": reason}), CloseChannel(channel)]
        slot.process = Process(channel, pid, identity, dict(message["data_address"]), executor)
        slot.had_process = pid
        slot.deadline = now + self._settings.slot_timeout
        offer = SlotOffer(slot.index, slot.allocation_id, slot.process.data_address, pid)
        return [
            Send(channel, self._accepted(slot.index)),
            Offer(slot.jobmaster, (offer,)),
        ]

    def _accepted(self, index: int) -> dict[str, Any]:
        levels = {"log_levels": dict(self.log_levels)} if self.log_levels else {}
        return {"type": "accepted", "slot_index": index, "taskmanager_id": self._id, **levels}

    def channel_closed(self, channel: int, cause: str, now: float) -> list[Instruction]:
        """A control channel broke; for a slot that is not being released that means that its process is lost."""
        slot = self.slots.at(channel)
        if slot is None or slot.process is None:
            return []
        if slot.state is TaskSlotState.RELEASING:
            return self._endings.ended(slot, "its process ended", now)
        if slot.lost is not None:
            return []
        slot.lost, slot.deadline = cause, now + INVESTIGATION_PATIENCE
        return [Investigate(slot.index, slot.allocation_id, slot.process.pid, cause)]

    def process_lost(self, allocation_id: str, cause: str, now: float, now_ms: int) -> list[Instruction]:
        """Fail the tasks and the slot of a process that has ended; the cause is known by now, as far as it can be."""
        slot = self.slots.find(allocation_id)
        if slot is None or slot.lost is None:
            return []
        return [*self._endings.fail(slot, "external", cause, now_ms), *self._endings.ended(slot, cause, now)]

    def pong(self, channel: int) -> list[Instruction]:
        slot = self.slots.at(channel)
        if slot is not None and slot.process is not None:
            slot.process.unanswered_since, slot.process.warned = None, False
        return []

    def cpu_measured(self, allocation_id: str, cpu_seconds: float, now: float) -> None:
        """Processor time that a slot's process and its children have used since their start."""
        slot = self.slots.find(allocation_id)
        if slot is None or slot.process is None:
            return
        process, former = slot.process, slot.process.cpu_measured
        if former is not None and now > former[0]:
            process.cpu_load = max(0.0, cpu_seconds - former[1]) / (now - former[0])
        process.cpu_measured = now, cpu_seconds

    def memory_measured(self, allocation_id: str, pss: int, now: float, now_ms: int) -> list[Instruction]:
        """Take the memory, in bytes, that a slot's process and its children use; more than the limit ends them."""
        slot = self.slots.find(allocation_id)
        if slot is None or slot.process is None or slot.lost is not None or slot.state is TaskSlotState.RELEASING:
            return []
        slot.process.memory = pss
        if self.memory_limit is None or pss <= self.memory_limit:
            return []
        cause = (
            f"slot {slot.index} on {self._id} used {pss / _MEBIBYTE:,.0f} MiB of memory (PSS of process "
            f"{slot.process.pid} and its children), and its share is {self.memory_limit / _MEBIBYTE:,.0f} MiB: keep "
            "less in the functions of the job, use a higher parallelism, or give the TaskManager more memory "
            "(taskmanager.memory.process.size) or fewer slots (taskmanager.numberOfTaskSlots)"
        )
        return self._endings.fail_and_kill(slot, slot.process, "external", cause, now, now_ms, TaskMemoryExceededError)

    # -- from JobMasters

    def leads(self, job_id: str, allocation_id: str, token: str) -> bool:
        """Whether a JobMaster with this token leads a job, or has an allocation, as far as slots here know."""
        slot = self.slots.find(allocation_id)
        slots = self.slots.of_job(job_id) if slot is None else [slot]
        return not slots or any(s.jobmaster.token == token for s in slots)

    def offer_answered(self, offered: Iterable[str], accepted: Collection[str], now: float) -> list[Instruction]:
        """The JobMaster has accepted some of the slots that it was offered; the others are freed."""
        out: list[Instruction] = []
        for allocation in offered:
            slot = self.slots.find(allocation)
            if slot is None or slot.state is not TaskSlotState.ALLOCATED:
                continue
            if allocation in accepted:
                slot.activate(now)
            else:
                out += self._endings.release(slot, "the JobMaster did not accept it", now)
        return out

    def free_slot(
        self, allocation_id: str, cause: str, now: float, last_checkpoint: int | None = None
    ) -> list[Instruction]:
        """Release a slot; nothing happens if it is free or being released.

        Args:
            allocation_id: of the slot.
            cause: why.
            now: monotonic seconds.
            last_checkpoint: id of the last checkpoint that the job has left; files that were kept for later ones go.
                None = no file goes.
        """
        slot = self.slots.find(allocation_id)
        if slot is None:
            return []
        slot.last_checkpoint = last_checkpoint
        return self._endings.release(slot, cause, now)

    def jobmaster_lost(self, job_id: str, cause: str, now: float, token: str | None = None) -> list[Instruction]:
        """A JobMaster is lost: its slots are freed.

        Args:
            job_id: of the job.
            cause: why.
            now: monotonic seconds.
            token: of the JobMaster that is lost; slots of another one stay. None = all slots of the job are freed. The
                JobMaster is silent then, but may live, and is told why its tasks end.
        """
        out: list[Instruction] = []
        for slot in self.slots.of_job(job_id):
            if token is None or slot.jobmaster.token == token:
                released = self._endings.release(slot, cause, now)
                if released and token is None:
                    out.append(ReportSlotFailed(slot.jobmaster, slot.allocation_id, cause))
                out += released
        return out

    def jobmaster_heartbeat(
        self, job_id: str, allocations: Collection[str], now: float, token: str = ""
    ) -> list[Instruction]:
        """Free slots that the JobMaster does not list; activate those whose acceptance did not arrive here.

        Args:
            job_id: of the job.
            allocations: the slots that the JobMaster has here.
            now: monotonic seconds.
            token: of the JobMaster; slots of another one stay. Empty = all.
        """
        out: list[Instruction] = []
        for slot in self.slots.of_job(job_id, token):
            listed = slot.allocation_id in allocations
            if slot.state is TaskSlotState.ALLOCATED and listed and slot.process is not None:
                slot.activate(now)
            elif slot.state is TaskSlotState.ACTIVE and not listed and now - slot.active_since >= SETTLE_SECONDS:
                out += self._endings.release(slot, "the JobMaster does not know it", now)
        return out

    # -- time

    def next_deadline(self) -> float | None:
        """Time when ``tick`` has to be called next; None: not before another event."""
        times = [t for s in self.slots for t in (s.deadline, s.cancel_deadline)]
        return min([t for t in (*times, self._endings.next_deadline()) if t is not None], default=None)

    def tick(self, now: float, now_ms: int) -> list[Instruction]:
        out: list[Instruction] = []
        for slot in self.slots:
            if slot.cancel_deadline is not None and now >= slot.cancel_deadline:
                out += self._kill_cancelled(slot, now, now_ms)
            elif slot.deadline is not None and now >= slot.deadline:
                out += self._overdue(slot, now, now_ms)
        return [*out, *self._endings.kill_lingering(now)]

    def ping(self, now: float) -> list[Instruction]:
        """Ping all slot processes. Silence is only logged, as user code may hold the interpreter."""
        out: list[Instruction] = []
        for slot in self.slots:
            process = slot.process
            if process is None:
                continue
            silent = now - process.unanswered_since if process.unanswered_since is not None else 0.0
            if silent >= self._settings.heartbeat_timeout and not process.warned:
                process.warned = True
                logger.warning(
                    "slot %d: process %d has not answered for %.0f s; a function of the job may hold the interpreter",
                    slot.index, process.pid, silent,
                )  # fmt: skip
            if process.unanswered_since is None:
                process.unanswered_since = now
            out.append(Send(process.channel, {"type": "ping", "nonce": int(now * 1000)}))
        return out

    def stop(self, now: float, now_ms: int) -> list[Instruction]:
        """Release all slots; tasks that run fail."""
        out: list[Instruction] = []
        for slot in self.slots:
            if slot.state is TaskSlotState.ACTIVE:
                cause = f"TaskManager {self._id} was stopped"
                out += self._endings.fail(slot, "external", cause, now_ms, TaskManagerStoppedError)
            out += self._endings.release(slot, "the TaskManager stops", now)
        return out

    def kill_all(self) -> list[KillProcess]:
        """Kill all slot processes that still run: they have had their time."""
        processes = [
            KillProcess(s.index, s.allocation_id, s.process.identity) for s in self.slots if s.process is not None
        ]
        return [*processes, *self._endings.all_lingering()]

    @property
    def is_idle(self) -> bool:
        """Whether all slots are free."""
        return all(s.state is TaskSlotState.FREE for s in self.slots)

    def executors_in_use(self) -> tuple[frozenset[str], bool]:
        """Executors on which slot processes run, and whether a process is on its way, whose executor is not known."""
        used = frozenset(s.process.executor_id for s in self.slots if s.process is not None)
        return used, any(s.state is TaskSlotState.ALLOCATED and s.process is None for s in self.slots)

    # -- inside

    def _kill_cancelled(self, slot: TaskSlot, now: float, now_ms: int) -> list[Instruction]:
        process = slot.process
        slot.cancel_deadline = None
        if process is None or slot.state is not TaskSlotState.ACTIVE or slot.lost is not None:
            return []
        cause = (
            f"slot process {process.pid} was killed: its tasks did not end within {slot.cancellation.timeout:g} s "
            "after they were cancelled (task.cancellation.timeout)"
        )
        return self._endings.fail_and_kill(slot, process, "cancel", cause, now, now_ms, FleetError)

    def _overdue(self, slot: TaskSlot, now: float, now_ms: int) -> list[Instruction]:
        process = slot.process
        if slot.lost is not None:
            return self.process_lost(slot.allocation_id, slot.lost, now, now_ms)
        if slot.state is TaskSlotState.RELEASING and process is not None:
            if slot.killed:
                logger.error("process %d of slot %d was killed and is still there", process.pid, slot.index)
                return self._endings.ended(slot, "its process does not die", now)
            return [self._endings.kill(slot, process, now)]
        if process is None:
            cause = f"no process came for slot {slot.index} within {self._settings.start_timeout:g} s"
        else:
            cause = f"the job did not accept slot {slot.index} within {self._settings.slot_timeout:g} s"
        failed = ReportSlotFailed(slot.jobmaster, slot.allocation_id, cause)
        return [failed, *self._endings.release(slot, cause, now)]
