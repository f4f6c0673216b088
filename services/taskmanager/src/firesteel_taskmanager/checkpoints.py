"""What happens about checkpoints in the slots of a TaskManager: barriers wanted, state written, results to be shown."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from firesteel.core.errors import ProtocolError
from firesteel.protocol.checkpoint_messages import DeclineReason
from firesteel.protocol.messages import AcknowledgeCheckpoint, DeclineCheckpoint, NotifyCheckpoint, TriggerCheckpoint
from firesteel_taskmanager.instructions import Instruction, ReportCheckpoint, Send
from firesteel_taskmanager.slots import SlotTable

logger = logging.getLogger(__name__)


class CheckpointDecisions:
    """Events about checkpoints in, instructions out. Nothing is remembered here: slots know what they were told."""

    def __init__(self, slots: SlotTable) -> None:
        self._slots = slots

    # -- from JobMasters

    def trigger(self, message: TriggerCheckpoint) -> list[Instruction]:
        """Tasks are to inject barriers; those that do not run here are declined.

        Raises:
            UnknownAllocationError: the job has no such slot here, or its process is gone.
        """
        slot, process = self._slots.usable(message.job_id, message.allocation_id)
        live = self._live(message)
        out: list[Instruction] = []
        if live:
            wanted = {
                "type": "trigger_checkpoint",
                "execution_ids": live,
                "checkpoint_id": message.checkpoint_id,
                "timestamp_ms": message.timestamp_ms,
                "options": dict(message.options),
            }
            out.append(Send(process.channel, wanted))
        for execution_id in message.execution_ids:
            if execution_id not in live:
                task = slot.tasks.get(execution_id)
                ended = task is not None and task.is_final
                reason = DeclineReason.TASK_CLOSING if ended else DeclineReason.TASK_NOT_READY
                out.append(
                    ReportCheckpoint(
                        slot.jobmaster, DeclineCheckpoint(execution_id, message.checkpoint_id, reason.value)
                    )
                )
        return out

    def completed(self, message: NotifyCheckpoint) -> list[Instruction]:
        """A checkpoint is complete; tasks that have ended do not need to know.

        Raises:
            UnknownAllocationError: the job has no such slot here, or its process is gone.
        """
        return self._notify("checkpoint_complete", message)

    def aborted(self, message: NotifyCheckpoint) -> list[Instruction]:
        """A checkpoint will not complete.

        Raises:
            UnknownAllocationError: the job has no such slot here, or its process is gone.
        """
        return self._notify("checkpoint_aborted", message)

    def _notify(self, kind: str, message: NotifyCheckpoint) -> list[Instruction]:
        _, process = self._slots.usable(message.job_id, message.allocation_id)
        live = self._live(message)
        if not live:
            return []
        told = {"type": kind, "execution_ids": live, "checkpoint_id": message.checkpoint_id}
        return [Send(process.channel, told)]

    def _live(self, message: TriggerCheckpoint | NotifyCheckpoint) -> list[str]:
        slot, _ = self._slots.usable(message.job_id, message.allocation_id)
        tasks = ((e, slot.tasks.get(e)) for e in message.execution_ids)
        return [e for e, task in tasks if task is not None and task.sent and not task.is_final]

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
