"""What requests and answers about checkpoints and savepoints are made of; see ``types``."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from firesteel.rest.types import FailureCause, Id, QueueStatus, Summary

CheckpointType = Literal["CHECKPOINT", "UNALIGNED_CHECKPOINT", "SAVEPOINT", "SYNC_SAVEPOINT"]

StateChange = Literal["new", "gone", "grown", "shrunk", "same"]


class CheckpointCounts(TypedDict):
    restored: int
    total: int
    in_progress: int
    completed: int
    failed: int


class CheckpointSummary(TypedDict):
    checkpointed_size: Summary
    state_size: Summary
    end_to_end_duration: Summary
    alignment_buffered: Summary
    processed_data: Summary
    persisted_data: Summary


class TaskCheckpoint(TypedDict):
    id: int
    status: Literal["IN_PROGRESS", "COMPLETED", "FAILED"]
    latest_ack_timestamp: int
    checkpointed_size: int
    state_size: int
    end_to_end_duration: int
    alignment_buffered: int
    processed_data: int
    persisted_data: int
    num_subtasks: int
    num_acknowledged_subtasks: int


class Checkpoint(TaskCheckpoint):
    """A checkpoint, with the figures of all its tasks together."""

    className: Literal["completed", "failed", "in_progress"]
    is_savepoint: bool
    savepointFormat: str | None
    trigger_timestamp: int
    checkpoint_type: CheckpointType
    tasks: dict[Id, TaskCheckpoint]
    external_path: NotRequired[str]
    discarded: NotRequired[bool]
    failure_timestamp: NotRequired[int]
    failure_message: NotRequired[str | None]


class RestoredCheckpoint(TypedDict):
    id: int
    restore_timestamp: int
    is_savepoint: bool
    external_path: str | None


class LatestCheckpoints(TypedDict):
    completed: Checkpoint | None
    savepoint: Checkpoint | None
    failed: Checkpoint | None
    restored: RestoredCheckpoint | None


class Checkpoints(TypedDict):
    counts: CheckpointCounts
    summary: CheckpointSummary
    latest: LatestCheckpoints
    history: list[Checkpoint]
    warning: str | None


class Externalization(TypedDict):
    enabled: bool
    delete_on_cancellation: bool


class CheckpointConfigInfo(TypedDict):
    mode: Literal["exactly_once", "at_least_once"]
    interval: int
    timeout: int
    min_pause: int
    max_concurrent: int
    externalization: Externalization
    state_backend: str
    checkpoint_storage: str
    unaligned_checkpoints: bool
    tolerable_failed_checkpoints: int
    aligned_checkpoint_timeout: int
    checkpoints_after_tasks_finish: bool
    state_changelog_enabled: bool
    changelog_periodic_materialization_interval: int
    changelog_storage: str


SubtaskDuration = TypedDict("SubtaskDuration", {"sync": int, "async": int})


class SubtaskAlignment(TypedDict):
    buffered: int
    processed: int
    persisted: int
    duration: int


class SubtaskCheckpoint(TypedDict):
    className: Literal["completed", "pending_or_failed"]
    index: int
    status: str
    ack_timestamp: NotRequired[int]
    end_to_end_duration: NotRequired[int]
    checkpointed_size: NotRequired[int]
    state_size: NotRequired[int]
    checkpoint: NotRequired[SubtaskDuration]
    alignment: NotRequired[SubtaskAlignment]
    start_delay: NotRequired[int]
    unaligned_checkpoint: NotRequired[bool]
    aborted: NotRequired[bool]


DurationSummary = TypedDict("DurationSummary", {"sync": Summary, "async": Summary})


class AlignmentSummary(TypedDict):
    buffered: Summary
    processed: Summary
    persisted: Summary
    duration: Summary


class SubtasksSummary(TypedDict):
    checkpointed_size: Summary
    state_size: Summary
    end_to_end_duration: Summary
    checkpoint_duration: DurationSummary
    alignment: AlignmentSummary
    start_delay: Summary


class CheckpointSubtasks(TaskCheckpoint):
    """A task's part of a checkpoint, with its subtasks."""

    summary: SubtasksSummary
    subtasks: list[SubtaskCheckpoint]


CheckpointOperation = TypedDict(
    "CheckpointOperation",
    {"checkpointId": NotRequired[int], "failureCause": NotRequired[None], "failure-cause": NotRequired[FailureCause]},
)


class CheckpointStatus(TypedDict):
    status: QueueStatus
    operation: CheckpointOperation | None


SavepointOperation = TypedDict(
    "SavepointOperation", {"location": NotRequired[str], "failure-cause": NotRequired[FailureCause]}
)


class SavepointStatus(TypedDict):
    status: QueueStatus
    operation: SavepointOperation | None


class CheckpointTrigger(TypedDict):
    checkpointType: NotRequired[str | None]
    triggerId: NotRequired[str | None]


SavepointTrigger = TypedDict(
    "SavepointTrigger",
    {
        "target-directory": NotRequired[str | None],
        "cancel-job": NotRequired[bool | None],
        "formatType": NotRequired[str | None],
        "triggerId": NotRequired[str | None],
    },
)


class StopRequest(TypedDict):
    targetDirectory: NotRequired[str | None]
    drain: NotRequired[bool | None]
    formatType: NotRequired[str | None]
    triggerId: NotRequired[str | None]


DisposalRequest = TypedDict("DisposalRequest", {"savepoint-path": str})


class StateCheckpoint(TypedDict):
    """A completed checkpoint whose states are known."""

    id: int
    trigger_timestamp: int
    is_savepoint: bool
    savepointFormat: str | None
    external_path: str
    discarded: bool
    size: int


ComparedState = TypedDict(
    "ComparedState",
    {
        "name": str,
        "kind": str,
        "entries": int | None,
        "size": int | None,
        "entries-about": bool,
        "size-about": bool,
        "base-entries": int | None,
        "base-size": int | None,
        "change": StateChange | None,
        "sizes": list[int | None],
    },
)
ComparedOperator = TypedDict(
    "ComparedOperator",
    {
        "id": Id,
        "uid": str | None,
        "name": str,
        "vertex-id": Id | None,
        "size": int | None,
        "base-size": int | None,
        "change": StateChange | None,
        "states": list[ComparedState],
    },
)


class StateSizes(TypedDict):
    """The states in one checkpoint, beside those in another one; ``sizes`` are those in ``checkpoints``."""

    backend: str
    checkpoint: StateCheckpoint | None
    base: StateCheckpoint | None
    checkpoints: list[StateCheckpoint]
    operators: list[ComparedOperator]
