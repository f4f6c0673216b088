"""What the core tells the shell to do. Every instruction is harmless to repeat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from firesteel.protocol.deployment import Deployment
from firesteel.protocol.messages import Splits
from firesteel.protocol.operator_events import Event
from firesteel.protocol.stages import Stage
from firesteel_jobmaster.checkpoint_work import Work


@dataclass(frozen=True)
class ConnectResourceManager:
    """Register, and again after every refusal or silence; then report ``resourcemanager_connected``."""


@dataclass(frozen=True)
class DeclareSlots:
    """Tell the ResourceManager that the job wants so many slots in all, and which ones it has given back.

    It takes up to ``most`` if nobody else wants them.
    """

    count: int
    returned: tuple[str, ...] = ()
    most: int = 0


@dataclass(frozen=True)
class DisconnectResourceManager:
    """The job needs no slots any more: give all back and say goodbye."""


@dataclass(frozen=True)
class WatchTaskManager:
    """Exchange heartbeats with it."""

    taskmanager_id: str
    address: str


@dataclass(frozen=True)
class ForgetTaskManager:
    """Exchange no more heartbeats with a TaskManager at which the job holds no slot any more."""

    taskmanager_id: str


@dataclass(frozen=True)
class CheckTaskManagers:
    """Ask all watched TaskManagers now whether they live: something hints that one of them is gone."""


@dataclass(frozen=True)
class SubmitSlot:
    """Run the tasks of a slot; report ``tasks_submitted`` or ``submit_failed``."""

    taskmanager_id: str
    allocation_id: str
    deployment: Deployment


@dataclass(frozen=True)
class CancelSlotTasks:
    """End these tasks of a slot; their states are reported later."""

    taskmanager_id: str
    allocation_id: str
    execution_ids: tuple[str, ...]


@dataclass(frozen=True)
class PushSplits:
    """Give splits to a subtask that was told to wait."""

    taskmanager_id: str
    allocation_id: str
    execution_id: str
    given: Splits


@dataclass(frozen=True)
class SendOperatorEvents:
    """Send events to the task of a user's enumerator; report ``operator_events_lost`` if its TaskManager takes none."""

    taskmanager_id: str
    allocation_id: str
    execution_id: str
    number: int
    events: tuple[Event, ...]


@dataclass(frozen=True)
class SendTriggerCheckpoint:
    """Have tasks of a slot begin a checkpoint; report ``checkpoint_not_triggered`` if its TaskManager does not."""

    taskmanager_id: str
    allocation_id: str
    execution_ids: tuple[str, ...]
    checkpoint_id: int
    timestamp_ms: int
    options: Mapping[str, str]


@dataclass(frozen=True)
class _NotifyCheckpoint:
    taskmanager_id: str
    allocation_id: str
    execution_ids: tuple[str, ...]
    checkpoint_id: int


class NotifyCheckpointComplete(_NotifyCheckpoint):
    """Tell tasks of a slot that a checkpoint is complete."""


class NotifyCheckpointAborted(_NotifyCheckpoint):
    """Tell tasks of a slot that a checkpoint will not complete."""


@dataclass(frozen=True)
class StartStageRun:
    """Have Spark run stages; report ``stages_seen``, and at the end ``stages_ended`` or ``stages_failed``."""

    run_id: str
    description: str
    cores: int
    stages: tuple[Stage, ...]
    blobs: tuple[str, ...]


@dataclass(frozen=True)
class DropStages:
    """Have Spark end a run of stages, if it goes on, and forget it."""

    run_id: str


@dataclass(frozen=True)
class WriteOutput:
    """Write what a bounded job has printed to standard output, or to standard error."""

    text: str
    is_error: bool = False


@dataclass(frozen=True)
class CheckpointWork:
    """Do a piece of work in the checkpoint storage and the store, after all earlier ones; report
    ``checkpoint_work_done``."""

    work: Work


@dataclass(frozen=True)
class NoteAttempts:
    """Note for the next JobMaster that attempts below this number may have run, at these TaskManagers."""

    first_unused: int
    taskmanagers: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReleaseSlot:
    """Free a slot.

    Attributes:
        last_checkpoint: id of the last checkpoint that the job leaves at its end, 0 = none; the slot's host removes
            files that only later ones need. None = it removes none.
    """

    taskmanager_id: str
    allocation_id: str
    cause: str
    last_checkpoint: int | None = None


@dataclass(frozen=True)
class ReportJobState:
    """Tell the Dispatcher about the job's state."""

    state: str
    timestamps: Mapping[str, int]


@dataclass(frozen=True)
class ReportEnd:
    """Tell the Dispatcher that the job has ended, until it says that it knows."""


@dataclass(frozen=True)
class GoOn:
    """Call ``go_on`` when the event loop has served others: something is left of a long decision."""


@dataclass(frozen=True)
class SetTimer:
    """Call ``timer_fired(name)`` after so many seconds; replaces a timer of the same name."""

    name: str
    seconds: float


@dataclass(frozen=True)
class ClearTimer:
    """Cancel the timer of this name."""

    name: str


Instruction = (
    ConnectResourceManager
    | DeclareSlots
    | DisconnectResourceManager
    | WatchTaskManager
    | ForgetTaskManager
    | CheckTaskManagers
    | SubmitSlot
    | CancelSlotTasks
    | PushSplits
    | SendOperatorEvents
    | SendTriggerCheckpoint
    | NotifyCheckpointComplete
    | NotifyCheckpointAborted
    | StartStageRun
    | DropStages
    | WriteOutput
    | CheckpointWork
    | NoteAttempts
    | ReleaseSlot
    | ReportJobState
    | ReportEnd
    | GoOn
    | SetTimer
    | ClearTimer
)
