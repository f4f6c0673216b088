"""Decisions about the tasks in the slots of a TaskManager: deployment, cancelling, splits, reports."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from firesteel.core.errors import PeerUnreachableError, class_name
from firesteel.protocol.alignment import ReportWatermark
from firesteel.protocol.deployment import TaskFailure
from firesteel.protocol.messages import AssignSplits, Splits, TaskStateUpdate
from firesteel.protocol.split_messages import OperatorEvents
from firesteel_taskmanager.instructions import (
    AskForAlignment,
    AskForSplits,
    Instruction,
    PublishMetrics,
    ReportEndOfData,
    ReportOperatorEvents,
    ReportTaskState,
    Send,
)
from firesteel_taskmanager.settings import Cancellation
from firesteel_taskmanager.slots import Process, Task, TaskSlot, TaskSlotState, TaskSlotTable

logger = logging.getLogger(__name__)


class TaskDecisions:
    """Takes events about tasks, and returns instructions."""

    def __init__(self, slots: TaskSlotTable) -> None:
        self._slots = slots

    # -- from slot processes

    def state(self, channel: int, message: Mapping[str, Any], now_ms: int) -> list[Instruction]:
        """A task has changed its state."""
        slot, task = self._task_at(channel, message)
        if slot is None or task is None or task.is_final:
            return []
        task.state, error = str(message["state"]), message.get("error")
        if task.is_final and task.failure is not None:
            task.state, error = "FAILED", task.failure
        metrics = message.get("metrics")
        if isinstance(metrics, Mapping):
            task.metrics = metrics
        if not any(t.cancelling and not t.is_final for t in slot.tasks.values()):
            slot.cancel_deadline = None
        return [ReportTaskState(slot.jobmaster, TaskStateUpdate(task.execution_id, task.state, now_ms, error, metrics))]

    def splits_wanted(self, channel: int, message: Mapping[str, Any]) -> list[Instruction]:
        """A source asks for work."""
        slot, task = self._task_at(channel, message)
        if slot is None or task is None:
            return []
        task.requests += 1
        return [AskForSplits(slot.jobmaster, slot.allocation_id, task.execution_id, task.requests, task.taken)]

    def watermark(self, channel: int, message: Mapping[str, Any]) -> list[Instruction]:
        """A source reports its watermark, and asks for that of its alignment group."""
        slot, task = self._task_at(channel, message)
        if slot is None or task is None or task.is_final:
            return []
        report = ReportWatermark(task.execution_id, str(message["group"]), int(message["watermark"]))
        return [AskForAlignment(slot.jobmaster, slot.allocation_id, report)]

    def group_watermark(self, allocation_id: str, execution_id: str, watermark: int) -> list[Instruction]:
        """Tell a source the watermark of its alignment group; nothing happens if the source runs no more."""
        if not self.is_live(allocation_id, execution_id):
            return []
        message = {"type": "group_watermark", "execution_id": execution_id, "watermark": watermark}
        return [Send(self._slots.channel_of(execution_id, "", allocation_id), message)]

    def end_of_data(self, channel: int, message: Mapping[str, Any]) -> list[Instruction]:
        """A task waits for its commit."""
        slot, task = self._task_at(channel, message)
        return [] if slot is None or task is None else [ReportEndOfData(slot.jobmaster, task.execution_id)]

    def operator_events(self, channel: int, message: Mapping[str, Any]) -> list[Instruction]:
        """A task that runs a user's enumerator has decided something."""
        slot, task = self._task_at(channel, message)
        if slot is None or task is None:
            return []
        events = tuple(dict(event) for event in message["events"])
        return [ReportOperatorEvents(slot.jobmaster, OperatorEvents(task.execution_id, int(message["number"]), events))]

    def metrics(self, channel: int, message: Mapping[str, Any]) -> list[Instruction]:
        """Running totals of a slot's tasks."""
        slot = self._slots.at(channel)
        tasks = message.get("tasks")
        if slot is None or not isinstance(tasks, Mapping):
            return []
        own_totals = {
            name: totals for name, totals in tasks.items() if name in slot.tasks and isinstance(totals, Mapping)
        }
        for name, totals in own_totals.items():
            slot.tasks[name].metrics = totals
        return [PublishMetrics(slot.jobmaster, own_totals)] if own_totals else []

    def temporary_files(self, channel: int, message: Mapping[str, Any]) -> list[Instruction]:
        """Note the files that have to be removed if the process can't remove them itself."""
        slot = self._slots.at(channel)
        if slot is not None and slot.process is not None:
            files = slot.process.temporary_files
            files.update(dict.fromkeys(str(path) for path in message.get("add") or ()))
            kept_files = slot.process.kept_files
            for path in message.get("remove") or ():
                files.pop(str(path), None)
                kept_files.pop(str(path), None)
            kept_files.update({str(path): int(first) for path, first in (message.get("keep") or {}).items()})
        return []

    # -- from JobMasters

    def begin_deploy(
        self, job_id: str, allocation_id: str, execution_ids: Iterable[str], cancellation: Cancellation, now: float
    ) -> bool:
        """Tasks are on their way to a slot, and can be cancelled from now on.

        Returns False if they were all deployed before.

        Raises:
            UnknownAllocationError: the job has no such slot here, or its process is gone.
        """
        slot, _ = self._slots.usable(job_id, allocation_id)
        if slot.state is TaskSlotState.ALLOCATED:  # accepted, but the answer to the offer is still on its way
            slot.activate(now)
        slot.cancellation = cancellation
        new_ids = [e for e in execution_ids if e not in slot.tasks]
        subtasks = {e.rpartition("_")[0] for e in new_ids}
        for former_task in [
            t for t in slot.tasks.values() if t.is_final and t.execution_id.rpartition("_")[0] in subtasks
        ]:
            del slot.tasks[former_task.execution_id]
        slot.tasks.update({e: Task(e) for e in new_ids})
        return any(not task.sent for task in slot.tasks.values())

    def deploy(self, job_id: str, allocation_id: str, deployment: Mapping[str, Any]) -> list[Instruction]:
        """Have the slot run tasks whose blobs are here, but for those that were cancelled meanwhile.

        Raises:
            UnknownAllocationError: the slot was freed meanwhile.
        """
        slot, process = self._slots.usable(job_id, allocation_id)
        descriptors = []
        for descriptor in deployment["tasks"]:
            task = slot.tasks[descriptor["execution_id"]]
            if not task.sent and not task.is_final:
                task.sent = True
                task.descriptor = {**descriptor, "restore": None, "job_name": deployment.get("job_name", "")}
                descriptors.append(descriptor)
        if not descriptors:
            return []
        process.settings = dict(deployment.get("config") or {})
        return [Send(process.channel, {"type": "deploy", "deployment": {**deployment, "tasks": descriptors}})]

    def cancel(
        self, job_id: str, execution_ids: Collection[str] | None, now: float, now_ms: int, token: str = ""
    ) -> list[Instruction]:
        """End tasks; those that have not ended after the timeout are killed with their process.

        Args:
            job_id: of the job.
            execution_ids: of the tasks; None = all.
            now, now_ms: the moment.
            token: of the JobMaster; slots of another one are left alone. Empty = all.
        """
        out: list[Instruction] = []
        for slot in self._slots.of_job(job_id, token):
            if slot.process is None or slot.state is TaskSlotState.RELEASING:
                continue
            named = [t for t in slot.tasks.values() if execution_ids is None or t.execution_id in execution_ids]
            live = [t for t in named if not t.is_final]
            for task in live:
                task.cancelling = True
                if not task.sent:
                    task.state = task.end
                    update = TaskStateUpdate(task.execution_id, task.state, now_ms)
                    out.append(ReportTaskState(slot.jobmaster, update))
            running = [t.execution_id for t in live if t.sent]
            if not running:
                continue
            out.append(self._cancel(slot, slot.process, running, now))
        return out

    @staticmethod
    def _cancel(slot: TaskSlot, process: Process, execution_ids: list[str], now: float) -> Send:
        if slot.cancellation.timeout and slot.cancel_deadline is None:
            slot.cancel_deadline = now + slot.cancellation.timeout
        interval = int(slot.cancellation.interval * 1000)
        return Send(process.channel, {"type": "cancel", "execution_ids": execution_ids, "interval_ms": interval})

    def splits_assigned(self, message: AssignSplits) -> list[Instruction]:
        """Give splits to a source that waits for them; splits that came before change nothing.

        Raises:
            UnknownExecutionError: the source does not run here.
        """
        task, process = self._slots.running(message.execution_id, message.job_id, message.allocation_id)
        arrived = task.take(message.serial, message.splits, message.no_more)
        return [_assign(process, task, *splits) for splits in arrived]

    def splits_answered(self, ask: AskForSplits, answer: Splits) -> list[Instruction]:
        """Give a source the JobMaster's answer; a source that has ended since needs none."""
        if not self.is_live(ask.allocation_id, ask.execution_id):
            return []
        task, process = self._slots.running(ask.execution_id, ask.jobmaster.job_id, ask.allocation_id)
        if answer.serial:
            return [
                _assign(process, task, *splits) for splits in task.take(answer.serial, answer.splits, answer.no_more)
            ]
        return [_assign(process, task, (), False, 0)] if ask.number == task.requests else []

    def is_live(self, allocation_id: str, execution_id: str) -> bool:
        """Whether a slot with this allocation runs the execution, as far as is known here."""
        slot = self._slots.find(allocation_id)
        if slot is None or slot.process is None or slot.lost is not None or slot.state is TaskSlotState.RELEASING:
            return False
        task = slot.tasks.get(execution_id)
        return task is not None and not task.is_final

    def splits_lost(self, allocation_id: str, execution_id: str, cause: str, now: float) -> list[Instruction]:
        """Splits may have been given and not arrived: without them the task's results would be wrong, so it fails.

        It is told to end, and reported as failed when it has: its slot is used again then.
        """
        slot = self._slots.find(allocation_id)
        if slot is None or slot.process is None or not self.is_live(allocation_id, execution_id):
            return []
        task = slot.tasks[execution_id]
        if task.failure is not None:
            return []
        if not task.cancelling:
            task.failure = TaskFailure("external", class_name(PeerUnreachableError), cause, "").to_plain()
        task.cancelling = True
        return [self._cancel(slot, slot.process, [execution_id], now)]

    def operator_events_sent(self, message: OperatorEvents) -> list[Instruction]:
        """Pass the JobMaster's events on to a task that runs a user's enumerator.

        Raises:
            UnknownExecutionError: the task does not run here.
        """
        to_slot = {
            "type": "operator_events",
            "execution_id": message.execution_id,
            "number": message.number,
            "events": [dict(event) for event in message.events],
        }
        _, process = self._slots.running(message.execution_id, message.job_id, message.allocation_id)
        return [Send(process.channel, to_slot)]

    def of_job(self, job_id: str) -> tuple[dict[str, str], dict[str, Mapping[str, Any]]]:
        """States of a job's tasks here, and the totals of those that have ended: they travel with the final state."""
        tasks = [t for s in self._slots.of_job(job_id) for t in s.tasks.values()]
        totals = {t.execution_id: t.metrics for t in tasks if t.is_final and t.metrics}
        return {t.execution_id: t.state for t in tasks}, totals

    def _task_at(self, channel: int, message: Mapping[str, Any]) -> tuple[TaskSlot | None, Task | None]:
        slot = self._slots.at(channel)
        task = slot.tasks.get(str(message.get("execution_id"))) if slot is not None else None
        if slot is None or task is None:
            logger.info("a message about an execution that is not here: %s", message.get("execution_id"))
        return slot, task


def _assign(process: Process, task: Task, splits: Iterable[Any], no_more: bool, serial: int) -> Send:
    message = {
        "type": "assign_splits",
        "execution_id": task.execution_id,
        "splits": list(splits),
        "no_more": no_more,
        "serial": serial,
    }
    return Send(process.channel, message)
