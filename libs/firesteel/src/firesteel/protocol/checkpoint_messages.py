"""Payloads about checkpoints; part of ``firesteel.protocol.messages``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from firesteel.protocol.message import Message


class DeclineReason(StrEnum):
    """Why a task does not take part in a checkpoint; the names are Flink's."""

    TASK_NOT_READY = "CHECKPOINT_DECLINED_TASK_NOT_READY"
    """The task does not run yet, or not any more. Counts as no failure of the checkpoint."""
    TASK_CLOSING = "CHECKPOINT_DECLINED_TASK_CLOSING"
    """The task is ending. Counts as no failure."""
    SUBSUMED = "CHECKPOINT_DECLINED_SUBSUMED"
    """A barrier of a later checkpoint came first. Counts as no failure."""
    ASYNC_EXCEPTION = "CHECKPOINT_ASYNC_EXCEPTION"
    """State could not be serialised or written, after the barrier had gone on. Counts as a failure."""
    TASK_FAILURE = "TASK_CHECKPOINT_FAILURE"
    """Any other cause. Counts as a failure."""


@dataclass(frozen=True)
class TriggerCheckpoint(Message):
    """Tasks of one TaskManager begin a checkpoint: sources, and tasks all of whose inputs have ended.

    Attributes:
        tasks: by the allocation of their slot.
        timestamp_ms: epoch, the same for all tasks.
        options: ``mode`` (``EXACTLY_ONCE`` or ``AT_LEAST_ONCE``) and, if there is one, ``base``: the id of the
            checkpoint that this one may build on; of a savepoint ``savepoint`` (its directory), ``format`` and ``stop``
            (``firesteel.checkpoint.savepoints``); they travel with the barrier.
    """

    job_id: str
    tasks: Mapping[str, tuple[str, ...]]
    checkpoint_id: int
    timestamp_ms: int
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TriggerJobCheckpoint(Message):
    """A user wants a checkpoint of a job now; the job's archive has its outcome under ``trigger_id``.

    Attributes:
        full: with all state, even where checkpoints are incremental.
        by: who asked for it, and from which address, for people.
    """

    trigger_id: str
    full: bool = False
    by: str = ""


@dataclass(frozen=True)
class TriggerJobSavepoint(Message):
    """A user wants a savepoint of a job now; as ``TriggerJobCheckpoint``.

    Attributes:
        target_directory: parent directory of the savepoint.
        format: ``CANONICAL`` or ``NATIVE``.
        stop: how the job ends with the savepoint: ``suspend``, ``drain`` or ``cancel``; empty = it goes on.
        by: who asked for it, and from which address, for people.
    """

    trigger_id: str
    target_directory: str
    format: str = "CANONICAL"
    stop: str = ""
    by: str = ""


@dataclass(frozen=True)
class NotifyCheckpoint(Message):
    """What became of a checkpoint, for tasks of one TaskManager, by the allocation of their slot."""

    job_id: str
    tasks: Mapping[str, tuple[str, ...]]
    checkpoint_id: int


@dataclass(frozen=True)
class UnknownSlots(Message):
    """Allocations of a call that the caller does not have here, or not any more; their tasks did not get the call."""

    allocation_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class AcknowledgeCheckpoint(Message):
    """A task has written its state.

    Attributes:
        metrics: ``start_delay_ms``, ``alignment_ms``, ``sync_ms``, ``async_ms``, ``state_size``,
            ``checkpointed_size`` (bytes written for this one), ``processed_in_alignment``, ``persisted`` (bytes),
            ``unaligned`` (0 or 1), ``states`` (plain ``firesteel.checkpoint.state_figures.StateFigures``, for people).
        state: JSON text of a ``firesteel.checkpoint.subtask_state.TaskState``.
    """

    execution_id: str
    checkpoint_id: int
    metrics: Mapping[str, Any]
    state: str


@dataclass(frozen=True)
class AcknowledgeCheckpoints(Message):
    """Tasks of one TaskManager have written their state; those that the JobMaster does not know are left out."""

    acknowledgements: tuple[AcknowledgeCheckpoint, ...]


@dataclass(frozen=True)
class DeclineCheckpoint(Message):
    """A task does not take part in a checkpoint.

    Attributes:
        reason: a ``DeclineReason``; an unknown one counts as ``TASK_CHECKPOINT_FAILURE``.
        failure: plain ``firesteel.protocol.deployment.TaskFailure``, if there was an exception.
    """

    execution_id: str
    checkpoint_id: int
    reason: str
    failure: Mapping[str, Any] | None = None
