"""What happens about checkpoints in the slots of a TaskManager: barriers wanted, state written, results to be shown."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from firesteel.core.errors import ProtocolError
from firesteel.protocol.checkpoint_messages import DeclineReason
from firesteel.protocol.messages import AcknowledgeCheckpoint, DeclineCheckpoint, NotifyCheckpoint, TriggerCheckpoint
from firesteel_taskmanager.instructions import Instruction, ReportCheckpoint, Send
from firesteel_taskmanager.slots import Process, TaskSlot, TaskSlotTable, UnknownAllocationError

logger = logging.getLogger(__name__)


class CheckpointDecisions:
    """Events about checkpoints in, instructions out. Nothing is remembered here: slots know what they were told."""

    def __init__(self, slots: TaskSlotTable) -> None:
        self._slots = slots

    # -- from JobMasters

    def trigger(self, message: TriggerCheckpoint, token: str = "") -> tuple[tuple[str, ...], list[Instruction]]:
        """Have tasks inject barriers; for tasks that do not run here the checkpoint is declined.

        Args:
            message: names the tasks of each slot.
            token: of the JobMaster; slots of another one are unknown to it. Empty = all slots are its own.

        Returns:
            The slots that the JobMaster does not have here, or whose process is gone; and instructions for the others.
        """
        unknown, slots = self._usable_slots(message, token)
        out: list[Instruction] = []
        for slot, process, execution_ids in slots:
            live = _live(slot, execution_ids)
            if live:
                to_slot = {
                    "type": "trigger_checkpoint",
                    "execution_ids": live,
                    "checkpoint_id": message.checkpoint_id,
                    "timestamp_ms": message.timestamp_ms,
                    "options": dict(message.options),
                }
                out.append(Send(process.channel, to_slot))
            for execution_id in execution_ids:
                if execution_id not in live:
                    task = slot.tasks.get(execution_id)
                    ended = task is not None and task.is_final
                    reason = DeclineReason.TASK_CLOSING if ended else DeclineReason.TASK_NOT_READY
                    decline = DeclineCheckpoint(execution_id, message.checkpoint_id, reason.value)
                    out.append(ReportCheckpoint(slot.jobmaster, decline))
        return unknown, out

    def completed(self, message: NotifyCheckpoint, token: str = "") -> tuple[tuple[str, ...], list[Instruction]]:
        """Tell tasks that still run that a checkpoint is complete; as ``trigger``."""
        return self._notify("checkpoint_complete", message, token)

    def aborted(self, message: NotifyCheckpoint, token: str = "") -> tuple[tuple[str, ...], list[Instruction]]:
        """Tell tasks that still run that a checkpoint will not complete; as ``trigger``."""
        return self._notify("checkpoint_aborted", message, token)

    def _notify(self, kind: str, message: NotifyCheckpoint, token: str) -> tuple[tuple[str, ...], list[Instruction]]:
        unknown, slots = self._usable_slots(message, token)
        out: list[Instruction] = []
        for slot, process, execution_ids in slots:
            if live := _live(slot, execution_ids):
                to_slot = {"type": kind, "execution_ids": live, "checkpoint_id": message.checkpoint_id}
                out.append(Send(process.channel, to_slot))
        return unknown, out

    def _usable_slots(
        self, message: TriggerCheckpoint | NotifyCheckpoint, token: str
    ) -> tuple[tuple[str, ...], list[tuple[TaskSlot, Process, tuple[str, ...]]]]:
        unknown: list[str] = []
        usable: list[tuple[TaskSlot, Process, tuple[str, ...]]] = []
        for allocation_id, execution_ids in message.tasks.items():
            try:
                slot, process = self._slots.usable(message.job_id, allocation_id)
            except UnknownAllocationError:
                unknown.append(allocation_id)
                continue
            if token in ("", slot.jobmaster.token):
                usable.append((slot, process, execution_ids))
            else:
                unknown.append(allocation_id)
        return tuple(unknown), usable

    # -- from slot processes

    def acknowledged(self, channel: int, message: Mapping[str, Any], payload: bytes) -> list[Instruction]:
        """A task has written its state.

        Raises:
            ProtocolError: the state is no text.
        """
        execution_id = str(message["execution_id"])
        slot = self._slots.at(channel)
        if slot is None or execution_id not in slot.tasks:
            logger.info("state of an execution that is not here: %s", execution_id)
            return []
        try:
            state = payload.decode()
        except UnicodeDecodeError as error:
            raise ProtocolError(f"control channel {channel}", f"the state of {execution_id} is no text") from error
        number = int(message["checkpoint_id"])
        report = AcknowledgeCheckpoint(execution_id, number, dict(message["metrics"]), state)
        return [ReportCheckpoint(slot.jobmaster, report)]

    def declined(self, channel: int, message: Mapping[str, Any]) -> list[Instruction]:
        """A task takes no part in a checkpoint."""
        execution_id = str(message["execution_id"])
        slot = self._slots.at(channel)
        if slot is None or execution_id not in slot.tasks:
            logger.info("a checkpoint declined by an execution that is not here: %s", execution_id)
            return []
        report = DeclineCheckpoint(
            execution_id, int(message["checkpoint_id"]), str(message["reason"]), message.get("failure")
        )
        return [ReportCheckpoint(slot.jobmaster, report)]


def _live(slot: TaskSlot, execution_ids: Iterable[str]) -> list[str]:
    tasks = ((e, slot.tasks.get(e)) for e in execution_ids)
    return [e for e, task in tasks if task is not None and task.sent and not task.is_final]
