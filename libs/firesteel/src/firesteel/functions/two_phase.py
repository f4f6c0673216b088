"""Sinks that show results exactly once, in two phases.

In each subtask of the sink a **writer** takes the records. When a barrier comes, ``prepare_commit`` makes durable what
was written since the last one, without showing it, and returns *committables*: bytes that say what has to be done to
show it. They are kept in the checkpoint. When it is complete, the subtask's **committer** gets the committables of it
and of all checkpoints before it: those of one checkpoint in each call, the oldest first, and none of a newer one while
something of an older one is open. After a failure the job goes on from its last checkpoint, and the committables in it
are committed again in the same order, beginning before the first record (``recommit``): so a committer gets the same
ones several times, and from several subtasks of different attempts, and must know those that were committed before.

At the end of a bounded input ``prepare_commit`` is called once more, and the task ends when that is committed: after a
last checkpoint. In a job without checkpoints that one is taken when all tasks have come to their end, and holds nothing
but committables.

What a writer keeps open over a barrier (a file that goes on growing) it gives to the checkpoint with
``snapshot_state``, and gets back with ``restore_state``.

``firesteel.testing.check_two_phase_sink`` holds a sink against this contract.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, NoReturn, TypeVar

from firesteel.functions.sink import Sink, SinkWriter, WriterContext
from firesteel.functions.sink_stages import StageFactory

__all__ = [
    "CommitOutcome",
    "CommitResult",
    "Committable",
    "Committer",
    "TwoPhaseCommitSink",
    "TwoPhaseWriter",
    "WriterState",
]

T = TypeVar("T")


@dataclass(frozen=True)
class Committable:
    """What has to be done to show results.

    Attributes:
        data: the sink's own.
        version: ``TwoPhaseCommitSink.version`` of the sink that wrote it, perhaps an older one.
        checkpoint_id: of the checkpoint at whose barrier it was prepared, the same after a restart. They rise within a
            job. In batch mode there is one, 1. Behind the writers of a sink that commits globally: of the barrier at
            which it reached the committer's subtask.
    """

    data: bytes
    version: int = 1
    checkpoint_id: int = 0


@dataclass(frozen=True)
class WriterState:
    """What a writer keeps over a barrier.

    Attributes:
        data: the sink's own.
        version: ``TwoPhaseCommitSink.version`` of the sink that wrote it, perhaps an older one.
    """

    data: bytes
    version: int = 1


class CommitOutcome(Enum):
    """What became of a committable."""

    COMMITTED = "committed"
    """It is visible now."""
    ALREADY_COMMITTED = "already committed"
    """It was visible before: fine."""
    RETRY = "retry"
    """It is not visible, and may be soon: it is tried again, and the task fails when it has been too often."""
    FAILED = "failed"
    """It will never be visible, for a reason that is known: the task fails with it."""
    UNKNOWN = "unknown"
    """Nobody knows (no answer came): it is committed again, as after ``RETRY``."""


@dataclass(frozen=True)
class CommitResult:
    """What a committer says about one committable.

    Attributes:
        outcome: what became of it.
        reason: of ``RETRY``, ``FAILED`` and ``UNKNOWN``, for people.
    """

    outcome: CommitOutcome
    reason: str = ""


COMMITTED = CommitResult(CommitOutcome.COMMITTED)
ALREADY_COMMITTED = CommitResult(CommitOutcome.ALREADY_COMMITTED)


class Committer(ABC):
    """Shows results. One for each subtask of the sink, on the thread of its task: its records wait meanwhile.

    That thread is the task's own, so that other tasks go on; see ``TwoPhaseCommitSink.commits_quickly``.
    """

    @abstractmethod
    def commit(self, committables: Sequence[Committable]) -> Sequence[CommitResult]:
        """Show the results of these, in their order; one answer for each.

        All are of one checkpoint, and everything of the checkpoints before it is committed. Idempotent. What it raises
        stands for ``UNKNOWN`` of all of them.
        """

    def restore_committables(self, committables: Sequence[Committable]) -> None:  # noqa: B027 - most need it not
        """Learn what the checkpoint holds which the task goes on from; called once, before the first ``recommit``.

        Those of later checkpoints may wait for earlier ones until records have been written.
        """

    def recommit(self, committables: Sequence[Committable]) -> Sequence[CommitResult]:
        """The same for those that are in the checkpoint which the task goes on from.

        Called before the first record; for what is still open then, and for later checkpoints, again after a pause.

        They may have been committed before the restart, and what they showed may be gone by now, because whoever reads
        it has taken it away: that is ``ALREADY_COMMITTED``. By default it calls ``commit``.
        """
        return self.commit(committables)

    def close(self) -> None:  # noqa: B027 - most have nothing to do
        """Release everything; called exactly once, last."""


class TwoPhaseWriter(SinkWriter[T]):
    """Writes the records of one subtask. ``abort`` and ``close`` are those of ``SinkWriter``.

    ``abort`` must leave alone what committables or states that it has given speak of: they may be in a checkpoint.
    """

    @abstractmethod
    def prepare_commit(self, *, end_of_input: bool) -> Sequence[bytes]:
        """Make all durable that was written since the last call, show nothing; the committables of it.

        What takes long may be left to ``WriterContext.make_durable``.

        Args:
            end_of_input: no record will come any more: nothing may stay open.
        """

    def snapshot_state(self) -> Sequence[bytes]:
        """What the writer keeps open, to go on from here. Called at each barrier, behind ``prepare_commit``.

        Behind the end of the input nothing is open, and ``prepare_commit`` is not called again: what it prepared there
        belongs to the next checkpoint. A job that goes on from that one, since another task has failed, comes to its
        end once more, and must not show less then.
        """
        return ()

    def restore_state(self, states: Sequence[WriterState]) -> None:
        """Go on from these, perhaps those of several former subtasks. Called before ``open``, if there are some.

        ``recommit`` has been called by then with the first of what the checkpoint has for this subtask.

        Raises:
            ProgramError: their version is not known.
        """
        if states:
            raise TypeError(f"{type(self).__name__} gives states and has no restore_state()")

    def finish(self) -> NoReturn:
        """Not called: ``prepare_commit(end_of_input=True)`` is."""
        raise TypeError("writers of two-phase sinks prepare commits")

    def commit(self, committables: Sequence[Any]) -> NoReturn:
        """Not called: the committer commits."""
        raise TypeError("writers of two-phase sinks do not commit")


class TwoPhaseCommitSink(Sink[T]):
    """A sink in two phases; pickled into the chain of its vertex, so it holds configuration only."""

    version: ClassVar[int] = 1
    """Of the layout of committables and states; those of older versions have to be understood."""

    commits_globally: ClassVar[bool] = False
    """One committer for all subtasks, in a task of parallelism 1 behind the writers: it gets the committables that all
    of them have prepared up to a checkpoint in one call. ``abort`` of a writer does not come behind its last
    ``prepare_commit``: in a job without checkpoints that fails at its very end that stays behind."""

    needs_all_states: ClassVar[bool] = False
    """``restore_state`` gets the states of all former subtasks in each; else each state goes to one of today's."""

    commits_quickly: bool = False
    """Its committer waits for nobody for long: what it does takes no longer than a write. Else the task has a thread of
    its own, and a commit that waits (for a network, a lock) holds up no other task of the slot."""

    def stages(self) -> Sequence[StageFactory]:
        """Operators in front of this one, from the stream on; the writer then takes what the last of them gives."""
        return ()

    @abstractmethod
    def create_writer(self, context: WriterContext) -> TwoPhaseWriter[T]:
        """A writer for one subtask. Called in the slot."""

    @abstractmethod
    def create_committer(self, context: WriterContext) -> Committer:
        """A committer for one subtask. Called in the slot."""
