"""The TaskManager's decisions: events in, instructions out; no input or output, no clock of its own.

A slot's life: the ResourceManager allocates it to a job; its process registers over the control channel; it is offered
to the JobMaster, which accepts it (ACTIVE) and sends tasks; it is released, and FREE again once its process has ended.
Every wait on this way has a deadline.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from firesteel.core.process import ProcessId
from firesteel.protocol.deployment import TaskFailure
from firesteel.protocol.messages import RequestSlot, SlotOffer, SlotStatus, TaskStateUpdate
from firesteel.protocol.slot_channel import PROTOCOL_VERSION
from firesteel_taskmanager.instructions import (
    AskForSplits,
    CancelLaunch,
    CloseChannel,
    DeleteFiles,
    ForgetJob,
    Instruction,
    Investigate,
    JobMasterRef,
    KillProcess,
    Offer,
    PublishMetrics,
    ReportEndOfData,
    ReportSlotFailed,
    ReportState,
    Send,
    SlotFreed,
)
from firesteel_taskmanager.settings import Cancellation, TaskManagerSettings
from firesteel_taskmanager.slots import Process, Slot, SlotState, SlotTable, Task

logger = logging.getLogger(__name__)

INVESTIGATION_PATIENCE = 5.0
"""Seconds to wait for what the ResourceManager knows about the end of a process."""
KILL_PATIENCE = 5.0
"""Seconds after which a killed process counts as gone though its channel is still open."""
LINGER_GRACE = 2.0
"""Seconds that a process may live on after it closed its channel."""
SETTLE_SECONDS = 5.0
"""A slot accepted so shortly ago may be missing from a JobMaster's list that was on its way."""


class SlotTakenError(Exception):
    """The slot belongs to another allocation."""


class TaskManagerCore:
    """Slot table, slot processes and their tasks.

    Events take ``now`` (monotonic seconds) where time matters, and return what has to be done, in order.

    Args:
        taskmanager_id: its own.
        slots: how many.
        executor_id: the executor on which its slot processes have to run.
        settings: timeouts.
    """

    def __init__(self, taskmanager_id: str, slots: int, executor_id: str, settings: TaskManagerSettings) -> None:
        self._id, self._executor, self._settings = taskmanager_id, executor_id, settings
        self.slots = SlotTable(taskmanager_id, slots)
        self._lingering: list[tuple[float, KillProcess]] = []
        """Processes that closed their channel, and when to kill what is left of them."""

    # -- from the ResourceManager

    def set_slots(self, count: int) -> None:
        """Have at least so many slots."""
        self.slots.grow(count)

    def request_slot(self, request: RequestSlot, now: float) -> None:
        """Allocate a slot to a job.

        Raises:
            SlotTakenError: it is not free, or there is no such slot.
        """
        slot = self.slots.get(request.slot_index)
        if slot is None:
            raise SlotTakenError(f"there is no slot {request.slot_index}: {self._id} has {len(self.slots)}")
        if slot.allocation_id == request.allocation_id and slot.state is not SlotState.RELEASING:
            return
        if slot.state is not SlotState.FREE:
            raise SlotTakenError(
                f"slot {slot.index} is {slot.state.value} for allocation {slot.allocation_id} of job {slot.job_id}"
            )
        slot.allocation_id = request.allocation_id
        slot.jobmaster = JobMasterRef(request.job_id, request.jobmaster_address, request.jobmaster_token)
        slot.deadline = now + self._settings.start_timeout
        slot.cancellation = self._settings.cancellation
        slot.move(SlotState.ALLOCATED, "requested by the ResourceManager")

    def report(self) -> tuple[SlotStatus, ...]:
        """The state of all slots."""
        return tuple(
            SlotStatus(
                s.index, s.state.value, s.allocation_id or None, s.job_id or None, s.process.pid if s.process else None
            )
            for s in self.slots
        )

    # -- from slot processes

    def register(
        self, channel: int, message: Mapping[str, Any], identity: ProcessId | None, now: float
    ) -> list[Instruction]:
        """A process presents itself as that of a slot. A copy that must not run is told to return."""
        allocation, pid = str(message.get("allocation_id")), message.get("pid")
        slot = self.slots.find(allocation)
        reason = ""
        if message.get("version") != PROTOCOL_VERSION:
            reason = f"protocol version {message.get('version')!r} is not spoken here, only {PROTOCOL_VERSION}"
        elif not isinstance(pid, int) or not isinstance(message.get("data_address"), Mapping):
            reason = "the registration is malformed: pid and data_address are missing"
        elif message.get("executor_id") != self._executor:
            reason = f"it runs on executor {message.get('executor_id')!r} instead of {self._executor!r}"
        elif slot is None or slot.state is not SlotState.ALLOCATED:
            reason = f"allocation {allocation} is not expected"
        elif slot.had_process:
            reason = f"process {slot.had_process} was registered for allocation {allocation} before"
        if reason or slot is None or not isinstance(pid, int):
            logger.warning("slot process %s was turned away: %s", pid, reason)
            return [Send(channel, {"type": "rejected", "reason": reason}), CloseChannel(channel)]
        slot.process = Process(channel, pid, identity, dict(message["data_address"]))
        slot.had_process = pid
        slot.deadline = now + self._settings.slot_timeout
        offer = SlotOffer(slot.index, slot.allocation_id, slot.process.data_address, pid)
        return [
            Send(channel, {"type": "accepted", "slot_index": slot.index, "taskmanager_id": self._id}),
            Offer(slot.jobmaster, (offer,)),
        ]

    def channel_closed(self, channel: int, cause: str, now: float) -> list[Instruction]:
        """A control channel broke; for a slot that is not being released that means that its process is lost."""
        slot = self.slots.at(channel)
        if slot is None or slot.process is None:
            return []
        if slot.state is SlotState.RELEASING:
            return self._ended(slot, "its process ended", now)
        if slot.lost is not None:
            return []
        slot.lost, slot.deadline = cause, now + INVESTIGATION_PATIENCE
        return [Investigate(slot.index, slot.allocation_id, cause)]

    def process_lost(self, allocation_id: str, cause: str, now: float, now_ms: int) -> list[Instruction]:
        """It is known now, as well as it can be, why a process ended: its tasks and its slot fail."""
        slot = self.slots.find(allocation_id)
        if slot is None or slot.lost is None:
            return []
        return [*self._fail(slot, "external", cause, now_ms), *self._ended(slot, cause, now)]

    def task_state(self, channel: int, message: Mapping[str, Any], now_ms: int) -> list[Instruction]:
        """A task changed its state."""
        slot, task = self._task_at(channel, message)
        if slot is None or task is None or task.is_final:
            return []
        task.state = str(message["state"])
        metrics = message.get("metrics")
        if isinstance(metrics, Mapping):
            task.metrics = metrics
        if not any(t.cancelling and not t.is_final for t in slot.tasks.values()):
            slot.cancel_deadline = None
        error = message.get("error")
        return [ReportState(slot.jobmaster, TaskStateUpdate(task.execution_id, task.state, now_ms, error, metrics))]

    def splits_wanted(self, channel: int, message: Mapping[str, Any]) -> list[Instruction]:
        """A source asks for work."""
        slot, task = self._task_at(channel, message)
        if slot is None or task is None:
            return []
        return [AskForSplits(slot.jobmaster, slot.allocation_id, task.execution_id)]

    def end_of_data(self, channel: int, message: Mapping[str, Any]) -> list[Instruction]:
        """A task waits for its commit."""
        slot, task = self._task_at(channel, message)
        return [] if slot is None or task is None else [ReportEndOfData(slot.jobmaster, task.execution_id)]

    def metrics(self, channel: int, message: Mapping[str, Any]) -> list[Instruction]:
        """Running totals of a slot's tasks."""
        slot = self.slots.at(channel)
        tasks = message.get("tasks")
        if slot is None or not isinstance(tasks, Mapping):
            return []
        known = {name: totals for name, totals in tasks.items() if name in slot.tasks and isinstance(totals, Mapping)}
        for name, totals in known.items():
            slot.tasks[name].metrics = totals
        return [PublishMetrics(slot.jobmaster, known)] if known else []

    def temporary_files(self, channel: int, message: Mapping[str, Any]) -> list[Instruction]:
        """Files that have to go if the process can't remove them itself."""
        slot = self.slots.at(channel)
        if slot is not None and slot.process is not None:
            files = slot.process.temporary_files
            files.update(dict.fromkeys(str(path) for path in message.get("add") or ()))
            for path in message.get("remove") or ():
                files.pop(str(path), None)
        return []

    def pong(self, channel: int) -> list[Instruction]:
        """A process answered."""
        slot = self.slots.at(channel)
        if slot is not None and slot.process is not None:
            slot.process.unanswered_since, slot.process.warned = None, False
        return []

    # -- from JobMasters

    def offer_answered(self, offered: Iterable[str], accepted: Collection[str], now: float) -> list[Instruction]:
        """The JobMaster took some of the slots that it was offered; the others are freed."""
        out: list[Instruction] = []
        for allocation in offered:
            slot = self.slots.find(allocation)
            if slot is None or slot.state is not SlotState.ALLOCATED:
                continue
            if allocation in accepted:
                self._activate(slot, now)
            else:
                out += self._release(slot, "the JobMaster did not accept it", now)
        return out

    def begin_deploy(
        self, job_id: str, allocation_id: str, execution_ids: Iterable[str], cancellation: Cancellation, now: float
    ) -> bool:
        """Tasks are on their way to a slot; from now on they can be cancelled. False: they were deployed before.

        Raises:
            UnknownAllocationError: the job has no such slot here, or its process is gone.
        """
        slot, _ = self.slots.usable(job_id, allocation_id)
        if slot.state is SlotState.ALLOCATED:  # accepted, but the answer to the offer is still on its way
            self._activate(slot, now)
        slot.cancellation = cancellation
        new = [e for e in execution_ids if e not in slot.tasks]
        slot.tasks.update({e: Task(e) for e in new})
        return any(not task.sent for task in slot.tasks.values())

    def deploy(self, job_id: str, allocation_id: str, deployment: Mapping[str, Any]) -> list[Instruction]:
        """The blobs are here: the slot can run the tasks, but for those that were cancelled meanwhile.

        Raises:
            UnknownAllocationError: the slot was freed meanwhile.
        """
        slot, process = self.slots.usable(job_id, allocation_id)
        wanted = []
        for descriptor in deployment["tasks"]:
            task = slot.tasks[descriptor["execution_id"]]
            if not task.sent and not task.is_final:
                task.sent = True
                wanted.append(descriptor)
        if not wanted:
            return []
        return [Send(process.channel, {"type": "deploy", "deployment": {**deployment, "tasks": wanted}})]

    def cancel_tasks(
        self, job_id: str, execution_ids: Collection[str] | None, now: float, now_ms: int
    ) -> list[Instruction]:
        """End tasks; those that have not ended after the timeout are killed with their process."""
        out: list[Instruction] = []
        for slot in self.slots.of_job(job_id):
            if slot.process is None or slot.state is SlotState.RELEASING:
                continue
            named = [t for t in slot.tasks.values() if execution_ids is None or t.execution_id in execution_ids]
            live = [t for t in named if not t.is_final]
            for task in live:
                task.cancelling = True
                if not task.sent:
                    task.state = "CANCELED"
                    update = TaskStateUpdate(task.execution_id, task.state, now_ms)
                    out.append(ReportState(slot.jobmaster, update))
            running = [t.execution_id for t in live if t.sent]
            if not running:
                continue
            if slot.cancellation.timeout and slot.cancel_deadline is None:
                slot.cancel_deadline = now + slot.cancellation.timeout
            interval = int(slot.cancellation.interval * 1000)
            out.append(
                Send(slot.process.channel, {"type": "cancel", "execution_ids": running, "interval_ms": interval})
            )
        return out

    def splits_assigned(
        self, execution_id: str, splits: Iterable[Any], no_more: bool, job: str = "", allocation_id: str = ""
    ) -> list[Instruction]:
        """Splits for a source.

        Raises:
            UnknownExecutionError: it does not run here.
        """
        message = {"type": "assign_splits", "execution_id": execution_id, "splits": list(splits), "no_more": no_more}
        return [Send(self.slots.channel_of(execution_id, job, allocation_id), message)]

    def commit(self, execution_id: str, job: str = "", allocation_id: str = "") -> list[Instruction]:
        """Results may become visible.

        Raises:
            UnknownExecutionError: it does not run here.
        """
        message = {"type": "commit", "execution_id": execution_id}
        return [Send(self.slots.channel_of(execution_id, job, allocation_id), message)]

    def free_slot(self, allocation_id: str, cause: str, now: float) -> list[Instruction]:
        """Release a slot; nothing happens if it is free or being released."""
        slot = self.slots.find(allocation_id)
        return [] if slot is None else self._release(slot, cause, now)

    def jobmaster_lost(self, job_id: str, cause: str, now: float) -> list[Instruction]:
        """Nobody leads the job any more: its slots are freed."""
        out: list[Instruction] = []
        for slot in self.slots.of_job(job_id):
            out += self._release(slot, cause, now)
        return out

    def jobmaster_heartbeat(self, job_id: str, allocations: Collection[str], now: float) -> list[Instruction]:
        """Free slots that the JobMaster does not know; accept those whose acceptance did not arrive here."""
        out: list[Instruction] = []
        for slot in self.slots.of_job(job_id):
            listed = slot.allocation_id in allocations
            if slot.state is SlotState.ALLOCATED and listed and slot.process is not None:
                self._activate(slot, now)
            elif slot.state is SlotState.ACTIVE and not listed and now - slot.active_since >= SETTLE_SECONDS:
                out += self._release(slot, "the JobMaster does not know it", now)
        return out

    def executions(self, job_id: str) -> tuple[dict[str, str], dict[str, Mapping[str, Any]]]:
        """States and totals of a job's tasks here."""
        tasks = [t for s in self.slots.of_job(job_id) for t in s.tasks.values()]
        return {t.execution_id: t.state for t in tasks}, {t.execution_id: t.metrics for t in tasks if t.metrics}

    # -- time

    def next_deadline(self) -> float | None:
        """When ``tick`` has something to do."""
        times = [t for s in self.slots for t in (s.deadline, s.cancel_deadline) if t is not None]
        return min([*times, *(at for at, _ in self._lingering)], default=None)

    def tick(self, now: float, now_ms: int) -> list[Instruction]:
        """Time has passed."""
        out: list[Instruction] = []
        for slot in self.slots:
            if slot.cancel_deadline is not None and now >= slot.cancel_deadline:
                out += self._kill_cancelled(slot, now, now_ms)
            elif slot.deadline is not None and now >= slot.deadline:
                out += self._overdue(slot, now, now_ms)
        due = [entry for entry in self._lingering if now >= entry[0]]
        self._lingering = [entry for entry in self._lingering if now < entry[0]]
        return [*out, *(kill for _, kill in due)]

    def ping(self, now: float) -> list[Instruction]:
        """Ask all processes whether they are there. Silence is only logged: user code may hold the interpreter."""
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

    def stop(self, now: float) -> list[Instruction]:
        """Release everything."""
        out: list[Instruction] = []
        for slot in self.slots:
            out += self._release(slot, "the TaskManager stops", now)
        return out

    def kill_all(self) -> list[Instruction]:
        """No more waiting: kill what still runs."""
        held = [KillProcess(s.index, s.allocation_id, s.process.identity) for s in self.slots if s.process is not None]
        return [*held, *(kill for _, kill in self._lingering)]

    @property
    def is_idle(self) -> bool:
        """Whether all slots are free."""
        return all(s.state is SlotState.FREE for s in self.slots)

    # -- inside

    def _activate(self, slot: Slot, now: float) -> None:
        slot.move(SlotState.ACTIVE, "accepted by the JobMaster")
        slot.active_since = now
        if slot.lost is None:  # else the deadline is that of the search for a cause
            slot.deadline = None

    def _release(self, slot: Slot, cause: str, now: float) -> list[Instruction]:
        if slot.state in (SlotState.FREE, SlotState.RELEASING):
            return []
        if slot.process is None or slot.lost is not None:
            launch = [CancelLaunch(slot.index, slot.allocation_id)] if slot.process is None else []
            return [*launch, *self._ended(slot, cause, now)]
        slot.move(SlotState.RELEASING, cause)
        slot.deadline, slot.cancel_deadline = now + self._settings.release_grace, None
        return [Send(slot.process.channel, {"type": "release"})]

    def _ended(self, slot: Slot, cause: str, now: float) -> list[Instruction]:
        """The slot's process is gone, or its channel is: the slot is free."""
        out: list[Instruction] = []
        process, job = slot.process, slot.job_id
        if process is not None:
            out.append(CloseChannel(process.channel))
            self._lingering.append((now + LINGER_GRACE, KillProcess(slot.index, slot.allocation_id, process.identity)))
            if process.temporary_files:
                out.append(DeleteFiles(process.identity, tuple(process.temporary_files)))
        out.append(SlotFreed(slot.index, slot.allocation_id))
        slot.clear(cause)
        if not self.slots.of_job(job):
            out.append(ForgetJob(job))
        return out

    def _fail(self, slot: Slot, kind: str, cause: str, now_ms: int) -> list[Instruction]:
        """All tasks that have not ended do so now, and the JobMaster hears that the slot is lost."""
        out: list[Instruction] = []
        for task in slot.tasks.values():
            if task.is_final:
                continue
            task.state = "CANCELED" if task.cancelling else "FAILED"
            error = None if task.cancelling else TaskFailure(kind, "firesteel.core.errors.FleetError", cause, "")
            plain = error.to_plain() if error is not None else None
            update = TaskStateUpdate(task.execution_id, task.state, now_ms, plain)
            out.append(ReportState(slot.jobmaster, update))
        return [*out, ReportSlotFailed(slot.jobmaster, slot.allocation_id, cause)]

    def _kill_cancelled(self, slot: Slot, now: float, now_ms: int) -> list[Instruction]:
        process = slot.process
        slot.cancel_deadline = None
        if process is None or slot.state is not SlotState.ACTIVE or slot.lost is not None:
            return []
        cause = (
            f"slot process {process.pid} was killed: its tasks did not end within {slot.cancellation.timeout:g} s "
            "after they were cancelled (task.cancellation.timeout)"
        )
        logger.warning("%s", cause)
        out = self._fail(slot, "cancel", cause, now_ms)
        slot.move(SlotState.RELEASING, cause)
        return [self._kill(slot, process, now), *out]

    def _kill(self, slot: Slot, process: Process, now: float) -> KillProcess:
        slot.killed, slot.deadline = True, now + KILL_PATIENCE
        return KillProcess(slot.index, slot.allocation_id, process.identity)

    def _overdue(self, slot: Slot, now: float, now_ms: int) -> list[Instruction]:
        process = slot.process
        if slot.lost is not None:
            return self.process_lost(slot.allocation_id, slot.lost, now, now_ms)
        if slot.state is SlotState.RELEASING and process is not None:
            if slot.killed:
                logger.error("process %d of slot %d was killed and is still there", process.pid, slot.index)
                return self._ended(slot, "its process does not die", now)
            return [self._kill(slot, process, now)]
        if process is None:
            cause = f"no process came for slot {slot.index} within {self._settings.start_timeout:g} s"
        else:
            cause = f"the job did not accept slot {slot.index} within {self._settings.slot_timeout:g} s"
        failed = ReportSlotFailed(slot.jobmaster, slot.allocation_id, cause)
        return [failed, *self._release(slot, cause, now)]

    def _task_at(self, channel: int, message: Mapping[str, Any]) -> tuple[Slot | None, Task | None]:
        slot = self.slots.at(channel)
        task = slot.tasks.get(str(message.get("execution_id"))) if slot is not None else None
        if slot is None or task is None:
            logger.info("a message about an execution that is not here: %s", message.get("execution_id"))
        return slot, task
