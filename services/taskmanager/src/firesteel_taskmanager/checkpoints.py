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
        """Tasks are to inject barriers; those that do not run here are declined.

        Args:
            message: names them by slot.
            token: of the JobMaster; slots of another one are unknown to it. Empty = all are its own.

        Returns:
            The slots that it does not have here, or whose process is gone; and what to do for the others.
        """
        unknown, found = self._found(message, token)
        out: list[Instruction] = []
        for slot, process, execution_ids in found:
            live = _live(slot, execution_ids)
            if live:
                wanted = {
                    "type": "trigger_checkpoint",
                    "execution_ids": live,
                    "checkpoint_id": message.checkpoint_id,
                    "timestamp_ms": message.timestamp_ms,
                    "options": dict(message.options),
                }
                out.append(Send(process.channel, wanted))
            for execution_id in execution_ids:
                if execution_id not in live:
                    task = slot.tasks.get(execution_id)
                    ended = task is not None and task.is_final
                    reason = DeclineReason.TASK_CLOSING if ended else DeclineReason.TASK_NOT_READY
                    decline = DeclineCheckpoint(execution_id, message.checkpoint_id, reason.value)
                    out.append(ReportCheckpoint(slot.jobmaster, decline))
        return unknown, out

    def completed(self, message: NotifyCheckpoint, token: str = "") -> tuple[tuple[str, ...], list[Instruction]]:
        """A checkpoint is complete; tasks that have ended do not need to know. As ``trigger``."""
        return self._notify("checkpoint_complete", message, token)

    def aborted(self, message: NotifyCheckpoint, token: str = "") -> tuple[tuple[str, ...], list[Instruction]]:
        """A checkpoint will not complete. As ``trigger``."""
        return self._notify("checkpoint_aborted", message, token)

    def _notify(self, kind: str, message: NotifyCheckpoint, token: str) -> tuple[tuple[str, ...], list[Instruction]]:
        unknown, found = self._found(message, token)
        out: list[Instruction] = []
        for slot, process, execution_ids in found:
            if live := _live(slot, execution_ids):
                told = {"type": kind, "execution_ids": live, "checkpoint_id": message.checkpoint_id}
                out.append(Send(process.channel, told))
        return unknown, out

    def _found(
        self, message: TriggerCheckpoint | NotifyCheckpoint, token: str
    ) -> tuple[tuple[str, ...], list[tuple[TaskSlot, Process, tuple[str, ...]]]]:
        unknown: list[str] = []
        found: list[tuple[TaskSlot, Process, tuple[str, ...]]] = []
        for allocation_id, execution_ids in message.tasks.items():
            try:
                slot, process = self._slots.usable(message.job_id, allocation_id)
            except UnknownAllocationError:
                unknown.append(allocation_id)
                continue
            if token in ("", slot.jobmaster.token):
                found.append((slot, process, execution_ids))
            else:
                unknown.append(allocation_id)
        return tuple(unknown), found

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
        """A task does not take part."""
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
