"""Sinks that publish their results exactly once, by a two-phase commit.

In each subtask of the sink a **writer** writes the records. At each barrier ``prepare_commit`` makes the records since
the last barrier durable, but not yet visible, and returns *committables*: bytes that describe how to make them visible.
The checkpoint stores the committables. When it is complete, the subtask's **committer** gets the committables of this
checkpoint and of all earlier ones: those of one checkpoint in each call, the oldest first, and none of a checkpoint
while some of an earlier one are uncommitted. After a failure the job resumes from its last checkpoint, and the
committables in it are committed again in the same order, beginning before the first record (``recommit``). So a
committer gets the same committables several times, and from several subtasks of different attempts, and must recognize
those that have been committed before.

At the end of a bounded input ``prepare_commit`` is called once more, and the task ends once that is committed, after a
final checkpoint. A job without checkpoints takes only this one, when all tasks have read their inputs; it contains
nothing but committables.

A writer may keep something open over a barrier, such as a file that goes on growing: ``snapshot_state`` describes it
for the checkpoint, and ``restore_state`` takes that after a restart.

``firesteel.testing.check_two_phase_sink`` tests a sink against this contract.
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
    """Describes how to make results visible.

    Attributes:
        data: bytes in the sink's own format.
        version: ``TwoPhaseCommitSink.version`` of the sink that wrote it, perhaps an older one.
        checkpoint_id: id of the checkpoint at whose barrier it was prepared; ids rise within a job, and stay the same
            after a restart. Batch mode has one, 1. If the sink commits globally, the id belongs to the barrier at which
            the committable reached the committer's subtask.

    Examples:
        ```python
        from firesteel.datastream.connectors import Committable

        print(Committable(b"transaction 7").data)
        ```

        ```text
        b'transaction 7'
        ```
    """

    data: bytes
    version: int = 1
    checkpoint_id: int = 0


@dataclass(frozen=True)
class WriterState:
    r"""State of a writer in a checkpoint.

    Attributes:
        data: bytes in the sink's own format.
        version: ``TwoPhaseCommitSink.version`` of the sink that wrote it, perhaps an older one.

    Examples:
        ```python
        from firesteel.datastream.connectors.base import TwoPhaseWriter


        class Lines(TwoPhaseWriter):
            def __init__(self):
                self.lines = []

            def write(self, values, timestamps):
                self.lines += values

            def prepare_commit(self, end_of_input):
                lines, self.lines = (self.lines, []) if end_of_input else ([], self.lines)
                return ["\n".join(lines).encode()] if lines else []

            def snapshot_state(self):
                return ["\n".join(self.lines).encode()] if self.lines else []

            def restore_state(self, states):  # of type WriterState
                self.lines = [line for state in states for line in state.data.decode().split("\n")]
        ```
    """

    data: bytes
    version: int = 1


class CommitOutcome(Enum):
    """Outcome of a commit.

    Examples:
        ```python
        from firesteel.datastream.connectors import CommitOutcome

        print([outcome.name for outcome in CommitOutcome])
        ```

        ```text
        ['COMMITTED', 'ALREADY_COMMITTED', 'RETRY', 'FAILED', 'UNKNOWN']
        ```
    """

    COMMITTED = "committed"
    """The results are visible now."""
    ALREADY_COMMITTED = "already committed"
    """The results were visible before; that is no error."""
    RETRY = "retry"
    """The commit failed, and may succeed soon: it is retried, and the task fails after too many retries."""
    FAILED = "failed"
    """The commit can never succeed, for a known reason, with which the task fails."""
    UNKNOWN = "unknown"
    """The outcome is not known, for instance since no answer came: the commit is retried, as after ``RETRY``."""


@dataclass(frozen=True)
class CommitResult:
    """A committer's answer for one committable.

    Attributes:
        outcome: outcome of the commit.
        reason: cause of ``RETRY``, ``FAILED`` or ``UNKNOWN``, as shown to users.

    Examples:
        ```python
        from firesteel.datastream.connectors import CommitOutcome, CommitResult

        print(CommitResult(CommitOutcome.RETRY, "the database is away").reason)
        ```

        ```text
        the database is away
        ```
    """

    outcome: CommitOutcome
    reason: str = ""


COMMITTED = CommitResult(CommitOutcome.COMMITTED)
ALREADY_COMMITTED = CommitResult(CommitOutcome.ALREADY_COMMITTED)


class Committer(ABC):
    """Makes results visible. Each subtask of the sink has one, on its task's thread: records wait during a commit.

    Unless ``TwoPhaseCommitSink.commits_quickly``, the task has a thread of its own, so that other tasks go on.

    Examples:
        ```python
        from firesteel.datastream.connectors import COMMITTED, Committer


        class Publish(Committer):
            def __init__(self):
                self.shown = []

            def commit(self, committables):
                for committable in committables:
                    if committable.data not in self.shown:  # a commit may come twice
                        self.shown.append(committable.data)
                return [COMMITTED for _ in committables]
        ```
    """

    @abstractmethod
    def commit(self, committables: Sequence[Committable]) -> Sequence[CommitResult]:
        """Make the results of committables visible, in their order, and return one answer for each.

        All belong to one checkpoint, and everything of earlier checkpoints is committed. Must be idempotent. If it
        raises, the outcome of all of them is ``UNKNOWN``.
        """

    def restore_committables(self, committables: Sequence[Committable]) -> None:  # noqa: B027 - most do not need it
        """Take note of all committables in the checkpoint that the task resumes from.

        Called once, before the first ``recommit``. Committables of later checkpoints wait for those of earlier ones,
        perhaps until after the first records.
        """

    def recommit(self, committables: Sequence[Committable]) -> Sequence[CommitResult]:
        """Commit committables of the checkpoint that the task resumes from.

        Called before the first record; and again after a pause for those that are uncommitted then, and for later
        checkpoints.

        They may have been committed before the restart, and a reader of the results may have consumed and removed them
        since: the outcome is then ``ALREADY_COMMITTED``. The default calls ``commit``.
        """
        return self.commit(committables)

    def close(self) -> None:  # noqa: B027 - most have nothing to do
        """Release everything; called exactly once, last."""


class TwoPhaseWriter(SinkWriter[T]):
    """Writes the records of one subtask. ``abort`` and ``close`` are those of ``SinkWriter``.

    ``abort`` must not remove anything that returned committables or states refer to: they may be in a checkpoint.

    Examples:
        ```python
        from firesteel.datastream.connectors import TwoPhaseWriter


        class Lines(TwoPhaseWriter):
            def __init__(self):
                self.lines = []

            def write(self, values, timestamps):
                self.lines += values

            def prepare_commit(self, end_of_input):
                lines, self.lines = self.lines, []
                return ["|".join(lines).encode()] if lines else []
        ```
    """

    @abstractmethod
    def prepare_commit(self, *, end_of_input: bool) -> Sequence[bytes]:
        """Make all records since the last call durable, but not visible, and return their committables.

        Work that takes long may be left to ``WriterContext.make_durable``.

        Args:
            end_of_input: no record will follow, so nothing may stay open.
        """

    def snapshot_state(self) -> Sequence[bytes]:
        """Describe what the writer keeps open, to resume from there. Called at each barrier, after ``prepare_commit``.

        After the end of the input nothing is open, and ``prepare_commit`` is not called again: its last committables
        belong to the next checkpoint. If another task fails, the job may resume from that checkpoint and reach the end
        of the input once more; the sink must not publish less then.
        """
        return ()

    def restore_state(self, states: Sequence[WriterState]) -> None:
        """Resume from states, perhaps of several former subtasks. Called before ``open``, if there are any.

        By then ``recommit`` has been called with the first committables that the checkpoint has for this subtask.

        Raises:
            ProgramError: the version of a state is not known.
        """
        if states:
            raise TypeError(
                f"{type(self).__name__} has no restore_state(), though its snapshot_state() returned states"
            )

    def finish(self) -> NoReturn:
        """Not used: ``prepare_commit(end_of_input=True)`` is called instead."""
        raise TypeError("writers of two-phase sinks prepare commits")

    def commit(self, committables: Sequence[Any]) -> NoReturn:
        """Not used: the committer commits."""
        raise TypeError("writers of two-phase sinks do not commit")


class TwoPhaseCommitSink(Sink[T]):
    """A sink with a two-phase commit; pickled into the chain of its vertex, so it holds configuration only.

    Examples:
        ```python
        import pathlib

        from firesteel.datastream import StreamExecutionEnvironment
        from firesteel.datastream.connectors import COMMITTED, Committer, TwoPhaseCommitSink, TwoPhaseWriter


        class Writer(TwoPhaseWriter):
            def __init__(self):
                self.lines = []

            def write(self, values, timestamps):
                self.lines += values

            def prepare_commit(self, end_of_input):
                lines, self.lines = self.lines, []
                return ["|".join(lines).encode()] if lines else []


        class Shown(Committer):
            def __init__(self, folder):
                self.folder = folder

            def commit(self, committables):  # may be called again for the same ones: has to change nothing then
                for committable in committables:
                    (self.folder / "lines.txt").write_bytes(committable.data)
                return [COMMITTED for _ in committables]


        class Lines(TwoPhaseCommitSink):
            def __init__(self, folder):
                self.folder = folder

            def create_writer(self, context):
                return Writer()

            def create_committer(self, context):
                return Shown(self.folder)


        folder = pathlib.Path.cwd()
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        env.from_collection(["tea", "milk"]).sink_to(Lines(folder))
        env.execute()
        print((folder / "lines.txt").read_text())
        ```

        ```text
        tea|milk
        ```
    """

    version: ClassVar[int] = 1
    """Version of the format of committables and states; the sink must also understand all older versions."""

    commits_globally: ClassVar[bool] = False
    """Whether one committer serves all subtasks, in a task of parallelism 1 behind the writers: in one call it gets all
    writers' committables up to a checkpoint. Such a writer is not aborted after its last ``prepare_commit``: if a job
    without checkpoints fails at its very end, what was prepared there is left behind."""

    needs_all_states: ClassVar[bool] = False
    """Whether each subtask restores the states of all former subtasks; else each state goes to one subtask."""

    commits_quickly: bool = False
    """Whether a commit takes no longer than a write. Else the task has a thread of its own, so that a commit that waits
    (for a network, a lock) delays no other task of the slot."""

    def stages(self) -> Sequence[StageFactory]:
        """Return the operators in front of this one, the first first; the writer takes the results of the last one."""
        return ()

    @abstractmethod
    def create_writer(self, context: WriterContext) -> TwoPhaseWriter[T]:
        """Make the writer of one subtask. Called in the slot."""

    @abstractmethod
    def create_committer(self, context: WriterContext) -> Committer:
        """Make the committer of one subtask. Called in the slot."""
