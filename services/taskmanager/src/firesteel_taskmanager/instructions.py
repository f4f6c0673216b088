"""What the TaskManager's core asks its shell to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from firesteel.core.process import ProcessId
from firesteel.protocol.alignment import ReportWatermark
from firesteel.protocol.messages import AcknowledgeCheckpoint, DeclineCheckpoint, SlotOffer, TaskStateUpdate
from firesteel.protocol.split_messages import OperatorEvents


@dataclass(frozen=True)
class JobMasterRef:
    """Where the JobMaster of a job is, its fencing token, and its epoch among those of the job."""

    job_id: str
    address: str
    token: str
    epoch: int = 0


@dataclass(frozen=True)
class Send:
    """Send a message to the slot process at the other end of a control channel."""

    channel: int
    message: Mapping[str, Any]


@dataclass(frozen=True)
class CloseChannel:
    """Close a control channel, after what was sent."""

    channel: int


@dataclass(frozen=True)
class Offer:
    """Offer slots to a JobMaster; answer by ``offer_answered``, or ``jobmaster_lost`` if it does not know us."""

    jobmaster: JobMasterRef
    slots: tuple[SlotOffer, ...]


@dataclass(frozen=True)
class ReportTaskState:
    """Tell the JobMaster that a task changed its state. Reports of a job are delivered in order."""

    jobmaster: JobMasterRef
    update: TaskStateUpdate


@dataclass(frozen=True)
class ReportEndOfData:
    """Tell the JobMaster that a task waits for its commit; in order with the states."""

    jobmaster: JobMasterRef
    execution_id: str


@dataclass(frozen=True)
class ReportCheckpoint:
    """Tell the JobMaster that a task has written its state, or does not; in order with the states."""

    jobmaster: JobMasterRef
    message: AcknowledgeCheckpoint | DeclineCheckpoint


@dataclass(frozen=True)
class ReportOperatorEvents:
    """Tell the JobMaster what a user's enumerator has decided; in order with the states, and with checkpoints."""

    jobmaster: JobMasterRef
    message: OperatorEvents


@dataclass(frozen=True)
class ReportSlotFailed:
    """Tell the JobMaster that a slot is lost, in order with the states; ``in_vain``: no other would come either."""

    jobmaster: JobMasterRef
    allocation_id: str
    cause: str
    in_vain: bool = False


@dataclass(frozen=True)
class AskForSplits:
    """Ask the JobMaster for splits; answer by ``splits_answered``. Those up to the serial ``taken`` are here."""

    jobmaster: JobMasterRef
    allocation_id: str
    execution_id: str
    number: int
    taken: int = 0


@dataclass(frozen=True)
class AskForAlignment:
    """Tell the JobMaster how far a source has come; answer by ``group_watermark``."""

    jobmaster: JobMasterRef
    allocation_id: str
    report: ReportWatermark


@dataclass(frozen=True)
class PublishMetrics:
    """Tell the JobMaster the latest totals of tasks; only the newest matter."""

    jobmaster: JobMasterRef
    tasks: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class SlotFreed:
    """Tell the ResourceManager that a slot is free."""

    slot_index: int
    allocation_id: str


@dataclass(frozen=True)
class Investigate:
    """A process ended by itself: have its launch cancelled, so that it is not started again, and ask the
    ResourceManager whether it knows why; answer by ``process_lost``."""

    slot_index: int
    allocation_id: str
    pid: int
    cause: str


@dataclass(frozen=True)
class RequestLaunchCancel:
    """Ask the ResourceManager to give up the launch of a slot."""

    slot_index: int
    allocation_id: str


@dataclass(frozen=True)
class KillProcess:
    """Have the launch cancelled, then SIGKILL the process, if it still is that one."""

    slot_index: int
    allocation_id: str
    process: ProcessId | None


@dataclass(frozen=True)
class DeleteFiles:
    """Delete what a process left behind, once it is gone.

    Attributes:
        process: that has left the files; None: it is gone.
        paths: of the files, on any file system.
        settings: of the job, for file systems that need some; they hold secrets.
    """

    process: ProcessId | None
    paths: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class ForgetJob:
    """The job has no slot here any more: delete its blobs and what is kept about its JobMaster."""

    job_id: str


Instruction = (
    Send
    | CloseChannel
    | Offer
    | ReportTaskState
    | ReportEndOfData
    | ReportCheckpoint
    | ReportOperatorEvents
    | ReportSlotFailed
    | AskForSplits
    | AskForAlignment
    | PublishMetrics
    | SlotFreed
    | Investigate
    | RequestLaunchCancel
    | KillProcess
    | DeleteFiles
    | ForgetJob
)
