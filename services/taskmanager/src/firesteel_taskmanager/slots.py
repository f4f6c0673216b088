"""The TaskManager's slots, their processes and tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from firesteel.core.errors import IllegalTransitionError
from firesteel.core.process import ProcessId
from firesteel_taskmanager.instructions import JobMasterRef
from firesteel_taskmanager.settings import Cancellation

logger = logging.getLogger(__name__)

FINAL_STATES: Final = frozenset({"FINISHED", "CANCELED", "FAILED"})
"""States that a task does not leave."""


NOBODY: Final = JobMasterRef("", "", "")


class UnknownAllocationError(Exception):
    """No slot here has this allocation."""


class UnknownExecutionError(Exception):
    """No slot here runs this execution."""


class TaskSlotState(Enum):
    """Life of one slot, as the TaskManager sees it."""

    FREE = "FREE"
    ALLOCATED = "ALLOCATED"
    """Given to a job; its process may not have registered, and the job may not have accepted it."""
    ACTIVE = "ACTIVE"
    """The job has accepted it."""
    RELEASING = "RELEASING"
    """Given back; its process has not ended yet."""


MOVES: Final[Mapping[TaskSlotState, frozenset[TaskSlotState]]] = {
    TaskSlotState.FREE: frozenset({TaskSlotState.ALLOCATED}),
    TaskSlotState.ALLOCATED: frozenset({TaskSlotState.ACTIVE, TaskSlotState.RELEASING, TaskSlotState.FREE}),
    TaskSlotState.ACTIVE: frozenset({TaskSlotState.RELEASING, TaskSlotState.FREE}),
    TaskSlotState.RELEASING: frozenset({TaskSlotState.FREE}),
}


@dataclass
class Process:
    """A slot process that has registered."""

    channel: int
    pid: int
    identity: ProcessId | None
    """Identity of the process; None where it was gone by the time it was looked at."""
    data_address: Mapping[str, Any]
    executor_id: str = ""
    """The executor whose worker the process is."""
    memory: int = 0
    """Bytes (PSS) of the process and its children at the last measurement."""
    cpu_load: float = 0.0
    """Cores that these used between the last two measurements."""
    cpu_measured: tuple[float, float] | None = None
    """Time of the last measurement, and the processor time used until then; seconds."""
    temporary_files: dict[str, None] = field(default_factory=dict)
    """Files to remove when the process has gone, in the order in which they were announced."""
    kept_files: dict[str, int] = field(default_factory=dict)
    """File that a checkpoint may need -> id of the first such checkpoint."""
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings of the job whose tasks it runs, with which its files are removed."""
    unanswered_since: float | None = None
    warned: bool = False


@dataclass
class Task:
    """One execution in a slot."""

    execution_id: str
    state: str = "DEPLOYING"
    sent: bool = False
    """The slot was told to run it."""
    cancelling: bool = False
    failure: Mapping[str, Any] | None = None
    """The failure with which a task ends that is being cancelled for it; None: it ends as CANCELED."""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    descriptor: Mapping[str, Any] = field(default_factory=dict)
    """Descriptor of the task that the slot was told to run, with the job's name."""
    requests: int = 0
    """How often the task has asked for splits."""
    taken: int = 0
    """Serial up to which all splits were handed to the slot."""
    ahead: dict[int, tuple[Sequence[Any], bool]] = field(default_factory=dict)
    """Splits, and whether none come after them, that wait for those with smaller serials."""

    @property
    def end(self) -> str:
        """The state in which the task ends when its process does, or when it is cancelled."""
        return "CANCELED" if self.cancelling and self.failure is None else "FAILED"

    @property
    def is_final(self) -> bool:
        """Whether the task has ended."""
        return self.state in FINAL_STATES

    def take(self, serial: int, splits: Sequence[Any], no_more: bool) -> list[tuple[Sequence[Any], bool, int]]:
        """Take splits; returns those that the slot can be given now, each with its serial.

        Each is given once, and in order, so that a task never ends before the last ones have come.
        """
        if serial > self.taken:
            self.ahead[serial] = splits, no_more
        deliveries = []
        while self.taken + 1 in self.ahead:
            self.taken += 1
            deliveries.append((*self.ahead.pop(self.taken), self.taken))
        return deliveries


@dataclass
class TaskSlot:
    """One slot of this TaskManager: its job, its process, its state."""

    index: int
    state: TaskSlotState = TaskSlotState.FREE
    allocation_id: str = ""
    jobmaster: JobMasterRef = NOBODY
    python: Mapping[str, Any] = field(default_factory=dict)
    """The Python environment that its process needs; empty: that of the TaskManager."""
    process: Process | None = None
    had_process: int = 0
    """Pid of the process that has registered, kept after its end; 0 = none has."""
    active_since: float = 0.0
    deadline: float | None = None
    """When the state has lasted too long: start or acceptance (ALLOCATED), end of the process (RELEASING)."""
    killed: bool = False
    last_checkpoint: int | None = None
    """Id of the last checkpoint that the job has left, 0 = none; None: the job may need all checkpoints."""
    lost: str | None = None
    """The process has ended by itself, and the reason is being looked for; the cause as far as it is known here."""
    tasks: dict[str, Task] = field(default_factory=dict)
    cancellation: Cancellation = field(default_factory=Cancellation)
    cancel_deadline: float | None = None

    @property
    def job_id(self) -> str:
        """The job that has the slot; empty when it is free."""
        return self.jobmaster.job_id

    def move(self, to: TaskSlotState, cause: str) -> None:
        """Go to a state.

        Raises:
            IllegalTransitionError: there is no such move.
        """
        if to not in MOVES[self.state]:
            raise IllegalTransitionError(f"slot {self.index}: no move {self.state.name} -> {to.name} ({cause})")
        logger.info(
            "slot %d (allocation %s, job %s): %s -> %s (%s)",
            self.index, self.allocation_id, self.job_id, self.state.name, to.name, cause,
        )  # fmt: skip
        self.state = to

    def activate(self, now: float) -> None:
        """The JobMaster has accepted the slot."""
        self.move(TaskSlotState.ACTIVE, "accepted by the JobMaster")
        self.active_since = now
        if self.lost is None:  # else the deadline is that of the search for a cause
            self.deadline = None

    def clear(self, cause: str) -> None:
        """Become FREE and forget everything."""
        self.move(TaskSlotState.FREE, cause)
        fresh = TaskSlot(self.index)
        self.__dict__.update(fresh.__dict__)

    def validate(self) -> None:
        """Check what must always hold (tests call it)."""
        free = self.state is TaskSlotState.FREE
        assert free == (not self.allocation_id) == (not self.job_id), self
        if free:
            assert self.process is None, self
            assert not self.tasks, self
            assert self.deadline is None, self
        if self.state in (TaskSlotState.ALLOCATED, TaskSlotState.RELEASING) or self.lost is not None:
            assert self.deadline is not None, f"nothing ends this wait: {self}"
        if self.state is TaskSlotState.RELEASING:
            assert self.process is not None, self


class TaskSlotTable:
    """All slots of a TaskManager."""

    def __init__(self, taskmanager_id: str, count: int) -> None:
        self._id = taskmanager_id
        self._slots: dict[int, TaskSlot] = {}
        self.grow(count)

    def __iter__(self) -> Iterator[TaskSlot]:
        return iter(self._slots.values())

    def __len__(self) -> int:
        return len(self._slots)

    def grow(self, count: int) -> None:
        """Have at least ``count`` slots."""
        for index in range(count):
            self._slots.setdefault(index, TaskSlot(index))

    def get(self, index: int) -> TaskSlot | None:
        """The slot of this index."""
        return self._slots.get(index)

    def find(self, allocation_id: str) -> TaskSlot | None:
        """The slot of an allocation."""
        return next((s for s in self if allocation_id and s.allocation_id == allocation_id), None)

    def at(self, channel: int) -> TaskSlot | None:
        """The slot whose process is at the other end of a control channel."""
        return next((s for s in self if s.process is not None and s.process.channel == channel), None)

    def of_job(self, job_id: str, token: str = "") -> list[TaskSlot]:
        """All slots of a job, or those that the JobMaster with this token leads."""
        return [s for s in self if job_id and s.job_id == job_id and token in ("", s.jobmaster.token)]

    def usable(self, job_id: str, allocation_id: str) -> tuple[TaskSlot, Process]:
        """A slot that can run tasks, and its process.

        Raises:
            UnknownAllocationError: the job has no such slot here, or its process is gone.
        """
        slot = self.find(allocation_id)
        in_use = (
            slot is not None and slot.lost is None and slot.state in (TaskSlotState.ALLOCATED, TaskSlotState.ACTIVE)
        )
        if slot is not None and in_use and slot.job_id == job_id and slot.process is not None:
            return slot, slot.process
        raise UnknownAllocationError(f"job {job_id} has no slot with allocation {allocation_id} on {self._id}")

    def channel_of(self, execution_id: str, job_id: str = "", allocation_id: str = "") -> int:
        """The control channel of the slot that runs an execution; raises as ``running`` does."""
        return self.running(execution_id, job_id, allocation_id)[1].channel

    def running(self, execution_id: str, job_id: str = "", allocation_id: str = "") -> tuple[Task, Process]:
        """An execution, and the process that runs it.

        Two jobs that run the same program have tasks of the same ids: the job or the allocation tells them apart.

        Raises:
            UnknownExecutionError: the execution does not run here, or the job has to be named.
        """
        executions = [
            (slot.tasks[execution_id], slot.process)
            for slot in self
            if execution_id in slot.tasks and slot.process is not None and slot.lost is None
            and (not job_id or slot.job_id == job_id)
            and (not allocation_id or slot.allocation_id == allocation_id)
        ]  # fmt: skip
        if len(executions) > 1:
            raise UnknownExecutionError(f"execution {execution_id} runs here for several jobs: the job must be named")
        if not executions:
            raise UnknownExecutionError(f"execution {execution_id} does not run on {self._id}")
        return executions[0]

    def validate(self) -> None:
        """Check what must hold after every event (tests call it)."""
        for slot in self:
            slot.validate()
        allocations = [s.allocation_id for s in self if s.allocation_id]
        assert len(set(allocations)) == len(allocations), "an allocation has two slots"
