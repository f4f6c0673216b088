"""How slots end: release, loss, kill; each way leads to a slot that is free, and to everybody knowing it."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Final

from firesteel.core.errors import FleetError, class_name
from firesteel.protocol.deployment import TaskFailure
from firesteel.protocol.messages import TaskStateUpdate
from firesteel_taskmanager.instructions import (
    CloseChannel,
    DeleteFiles,
    ForgetJob,
    Instruction,
    KillProcess,
    ReportSlotFailed,
    ReportTaskState,
    RequestLaunchCancel,
    Send,
    SlotFreed,
)
from firesteel_taskmanager.settings import TaskManagerSettings
from firesteel_taskmanager.slots import Process, TaskSlot, TaskSlotState, TaskSlotTable

logger = logging.getLogger(__name__)

KILL_PATIENCE: Final = 5.0
"""Seconds after which a killed process counts as gone though its channel is still open."""
LINGER_GRACE: Final = 2.0
"""Seconds that a process may live on after it closed its channel."""
REMEMBERED: Final = 10_000
"""Allocations that have ended and are remembered, so that a late request does not bring one back."""


def _needless(process: Process, last_checkpoint: int | None) -> list[str]:
    """Files that only checkpoints need which are later than the last one that the job has left."""
    if last_checkpoint is None:
        return []
    return [path for path, first in process.kept_files.items() if first > last_checkpoint]


class SlotEndings:
    """Ends slots of a table; ``now`` is in monotonic seconds."""

    def __init__(self, slots: TaskSlotTable, settings: TaskManagerSettings) -> None:
        self._slots, self._settings = slots, settings
        self._lingering: list[tuple[float, KillProcess]] = []
        """Processes that closed their channel, and when to kill what is left of them."""
        self._ended: OrderedDict[str, None] = OrderedDict()

    def has_ended(self, allocation_id: str) -> bool:
        """Whether an allocation was here, and is over."""
        return allocation_id in self._ended

    def release(self, slot: TaskSlot, cause: str, now: float) -> list[Instruction]:
        """Have a slot's process end; nothing happens if the slot is free or being released."""
        if slot.state in (TaskSlotState.FREE, TaskSlotState.RELEASING):
            return []
        if slot.process is None or slot.lost is not None:
            launch = [RequestLaunchCancel(slot.index, slot.allocation_id)] if slot.process is None else []
            return [*launch, *self.ended(slot, cause, now)]
        slot.move(TaskSlotState.RELEASING, cause)
        slot.deadline, slot.cancel_deadline = now + self._settings.release_grace, None
        return [Send(slot.process.channel, {"type": "release"})]

    def ended(self, slot: TaskSlot, cause: str, now: float) -> list[Instruction]:
        """Free a slot whose process is gone, or whose channel is."""
        out: list[Instruction] = []
        process, job = slot.process, slot.job_id
        if process is not None:
            out.append(CloseChannel(process.channel))
            self._lingering.append((now + LINGER_GRACE, KillProcess(slot.index, slot.allocation_id, process.identity)))
            files = [*process.temporary_files, *_needless(process, slot.last_checkpoint)]
            if files:
                out.append(DeleteFiles(process.identity, tuple(files), process.settings))
        out.append(SlotFreed(slot.index, slot.allocation_id))
        self._ended[slot.allocation_id] = None
        while len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)
        slot.clear(cause)
        if not self._slots.of_job(job):
            out.append(ForgetJob(job))
        return out

    def fail(
        self, slot: TaskSlot, kind: str, cause: str, now_ms: int, error: type[Exception] = FleetError
    ) -> list[Instruction]:
        """End all tasks of a slot that have not ended, and tell the JobMaster that the slot is lost."""
        out: list[Instruction] = []
        for task in slot.tasks.values():
            if task.is_final:
                continue
            task.state = task.end
            plain = task.failure or (
                None if task.cancelling else TaskFailure(kind, class_name(error), cause, "").to_plain()
            )
            out.append(ReportTaskState(slot.jobmaster, TaskStateUpdate(task.execution_id, task.state, now_ms, plain)))
        slot_failed = ReportSlotFailed(slot.jobmaster, slot.allocation_id, cause)
        if all(task.state != "FAILED" for task in slot.tasks.values()):
            # First the slot: a JobMaster that waits for nothing but these ends would use the slot again.
            return [slot_failed, *out]
        return [*out, slot_failed]

    def kill(self, slot: TaskSlot, process: Process, now: float) -> KillProcess:
        """Kill the process of a slot that is being released."""
        slot.killed, slot.deadline = True, now + KILL_PATIENCE
        return KillProcess(slot.index, slot.allocation_id, process.identity)

    def fail_and_kill(
        self, slot: TaskSlot, process: Process, kind: str, cause: str, now: float, now_ms: int, error: type[Exception]
    ) -> list[Instruction]:
        """Kill the process of a slot now; its tasks end with it."""
        logger.warning("%s", cause)
        out = self.fail(slot, kind, cause, now_ms, error)
        slot.move(TaskSlotState.RELEASING, cause)
        slot.cancel_deadline = None
        return [self.kill(slot, process, now), *out]

    # -- what is left of processes whose channel is closed

    def next_deadline(self) -> float | None:
        """Time when ``kill_lingering`` has to be called next; None: there is nothing to kill."""
        return min((at for at, _ in self._lingering), default=None)

    def kill_lingering(self, now: float) -> list[KillProcess]:
        """Kill the processes that have had time enough to end."""
        due = [kill for at, kill in self._lingering if now >= at]
        self._lingering = [entry for entry in self._lingering if now < entry[0]]
        return due

    def all_lingering(self) -> list[KillProcess]:
        """Kill all processes that may still run."""
        return [kill for _, kill in self._lingering]
