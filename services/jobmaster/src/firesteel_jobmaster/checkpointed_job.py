"""What the coordinator of checkpoints needs of a job, from the parts of the JobMaster's core."""

from __future__ import annotations

from collections.abc import Mapping

from typing_extensions import override

from firesteel.checkpoint.metadata import EnumeratorState
from firesteel_jobmaster import failures
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.checkpoints.job import CoordinatedJob
from firesteel_jobmaster.parts import JobParts

_IN_SLOTS = (do.SendTriggerCheckpoint, do.NotifyCheckpointComplete, do.NotifyCheckpointAborted)
"""Instructions of the coordinator that slots carry out."""


class CheckpointedJob(CoordinatedJob):
    """The job behind a ``CheckpointCoordinator``."""

    def __init__(self, parts: JobParts) -> None:
        self.graph = parts.state.graph
        self._parts, self._state = parts, parts.state

    @override
    def emit(self, instruction: do.Instruction) -> None:
        # Where tasks run as stages in Spark, slots only stand for cores, and take no part in checkpoints.
        if self._state.layout.runs_in_slots or not isinstance(instruction, _IN_SLOTS):
            self._state.emit(instruction)

    @override
    def enumerator_state(self, vertex_id: str, serials: Mapping[int, int], number: int) -> EnumeratorState | None:
        assigner = self._parts.sources.assigner
        return None if assigner is None else assigner.snapshot(vertex_id, serials, number)

    @override
    def splits_are_safe(self, vertex_id: str, serials: Mapping[int, int]) -> None:
        if self._parts.sources.assigner is not None:
            self._parts.sources.assigner.completed(vertex_id, serials)

    @override
    def checkpoints_fail(self, message: str) -> None:
        self._parts.failover.fail(failures.checkpoints_fail(message))

    @override
    def restore_failed(self, error: Exception) -> None:
        self._parts.failover.fail(failures.of_the_user(error))

    @override
    def cancel_job(self, cause: str) -> None:
        self._parts.ending.cancel_job(cause)

    @override
    def checkpoints_settled(self) -> None:
        self._state.layout.settled()

    @override
    def checkpoint_decided(self) -> None:
        self._parts.ending.check()

    @override
    def leadership_lost(self, message: str) -> None:
        self._parts.ending.leadership_lost(message)
