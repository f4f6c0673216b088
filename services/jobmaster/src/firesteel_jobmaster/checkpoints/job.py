"""What the coordinator of checkpoints needs of the job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from firesteel.checkpoint.metadata import EnumeratorState
from firesteel.graph.execution_graph import ExecutionGraph
from firesteel_jobmaster import instructions as do


class CoordinatedJob(Protocol):
    """What the coordinator needs of the JobMaster's core."""

    graph: ExecutionGraph

    def emit(self, instruction: do.Instruction) -> None:
        """Have the shell do this."""

    def enumerator_state(self, vertex_id: str, serials: Mapping[int, int], number: int) -> EnumeratorState | None:
        """State of a source's enumerator now, and what was given out and is in no reader's state.

        None: there is none, since all splits were handed out before anything ran.

        Args:
            vertex_id: of the source.
            serials: of its readers.
            number: of what a user's enumerator had said last before its own snapshot.
        """

    def splits_are_safe(self, vertex_id: str, serials: Mapping[int, int]) -> None:
        """Splits up to these serials are in a completed checkpoint."""

    def checkpoints_fail(self, message: str) -> None:
        """Too many checkpoints have failed: so does the job, and may be restarted."""

    def cancel_job(self, cause: str) -> None:
        """The job is to be cancelled."""

    def checkpoints_settled(self) -> None:
        """The coordinator knows now from which checkpoint the job would go on."""

    def checkpoint_decided(self) -> None:
        """No checkpoint that would stay is being completed any more: the job may end; see ``may_end``."""

    def restore_failed(self, error: Exception) -> None:
        """The job can't go on from what it has to: a restart does not help."""

    def leadership_lost(self, message: str) -> None:
        """Another JobMaster leads the job."""
