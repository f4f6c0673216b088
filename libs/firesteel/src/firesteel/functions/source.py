"""The source contract. Built-in sources and those of users are written against it.

A source has two halves. Its *enumerator* decides which splits there are and who reads them; a *reader* in each
subtask reads the splits it was given. What passes between them is plain data (``Split``), so that the JobMaster can
keep and log it without unpickling anything.

* An enumerator that a user writes (``Source.create_enumerator``, ``firesteel.functions.split_enumerator``) runs in a
  slot, in a task of its own. A built-in one is a name plus plain configuration (``EnumeratorSpec``) and runs in the
  JobMaster.
* A reader runs in a slot, on the task loop. ``poll`` must not block; a reader that has to block sets
  ``blocking = True`` and gets a thread of its own; a reader on asyncio derives from ``AsyncSourceReader``.
* ``poll`` gives a batch and the position behind it: a split with that position resumes right after the batch's
  last record. ``snapshot`` returns all splits that are not finished, each with its current position.
* Paused splits are not polled until they are resumed; nothing of them is lost.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from firesteel.common.typeinfo import TypeInformation
from firesteel.core.errors import ProgramError
from firesteel.functions.functions import RuntimeContext
from firesteel.functions.split_enumerator import ReaderInfo, SplitEnumerator, SplitEnumeratorContext
from firesteel.functions.splits import Plain, SimpleVersionedSerializer, Split
from firesteel.functions.subtask import SubtaskContext

if TYPE_CHECKING:  # coordinators know splits and enumerators, and should not pay for Arrow
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

__all__ = [
    "END",
    "NEED_SPLITS",
    "AsyncSourceReader",
    "Boundedness",
    "BuiltInEnumerator",
    "End",
    "EnumeratorSpec",
    "NeedSplits",
    "Plain",
    "Polled",
    "ReaderContext",
    "ReaderInfo",
    "SimpleVersionedSerializer",
    "Source",
    "SourceBatch",
    "SourceReader",
    "Split",
    "SplitEnumerator",
    "SplitEnumeratorContext",
    "Wait",
]

T = TypeVar("T")


class Boundedness(Enum):
    """Whether a source ends by itself."""

    BOUNDED = "BOUNDED"
    CONTINUOUS_UNBOUNDED = "CONTINUOUS_UNBOUNDED"


@dataclass(frozen=True)
class EnumeratorSpec:
    """A built-in enumerator: its name in ``firesteel.connectors.enumerators`` and its plain configuration."""

    name: str
    config: Mapping[str, Plain] = field(default_factory=dict)


@dataclass(frozen=True)
class SourceBatch(Generic[T]):
    """What one ``poll`` gives.

    Attributes:
        values: list of objects, or a ``pyarrow.RecordBatch``.
        split_id: the split that all values come from.
        position: position of the split behind the last value.
        timestamps: epoch milliseconds for each value, or None; beside columns an int64 array may be given.
        split_finished: the split holds nothing more.
        watermark: behind the last value, of a source with ``own_watermarks``; None = none.
        idle: the split holds back no watermark from here on, until it gives something; of such a source.
    """

    values: list[T] | pa.RecordBatch
    split_id: str
    position: Plain
    timestamps: list[int] | npt.NDArray[np.int64] | None = None
    split_finished: bool = False
    watermark: int | None = None
    idle: bool = False


@dataclass(frozen=True)
class Wait:
    """Nothing to read now.

    Attributes:
        seconds: poll again after this long (a quarter of a millisecond at least, unless it is 0), or sooner when new
            splits arrive or ``ReaderContext.wake_up`` is called; None = only then.
    """

    seconds: float | None = None


class NeedSplits:
    """The reader has no split left and asks for more; it is polled again when some arrive, or when none will."""


class End:
    """The reader will give nothing more (it was told that no more splits come, and has read all it had)."""


NEED_SPLITS: Final = NeedSplits()
END: Final = End()
Polled = SourceBatch[T] | Wait | NeedSplits | End


class ReaderContext(SubtaskContext):
    """What a reader may ask of the subtask that runs it."""

    @abstractmethod
    def monotonic(self) -> float:
        """Seconds of the injected clock."""

    @abstractmethod
    def wake_up(self) -> None:
        """Poll the reader again soon; may be called from any thread."""

    def runtime_context(self) -> RuntimeContext | None:
        """What functions are opened with: metrics, job parameters; None where there is no task, as in tests."""
        return None


class ReaderBase(ABC, Generic[T]):
    """What both kinds of readers have."""

    def open(self) -> None:
        """Called once, before anything else."""

    @abstractmethod
    def add_splits(self, splits: Sequence[Split]) -> None:
        """Read these too. A split whose ``position`` is set goes on from there.

        Raises:
            ProgramError: the version of a split is not known to this reader.
        """

    @abstractmethod
    def no_more_splits(self) -> None:
        """After what was added so far nothing will come."""

    @abstractmethod
    def pause_splits(self, split_ids: Sequence[str]) -> None:
        """Do not poll these splits until they are resumed. Unknown ids are ignored."""

    @abstractmethod
    def resume_splits(self, split_ids: Sequence[str]) -> None:
        """Poll these splits again."""

    def is_silent(self, split_id: str) -> bool:
        """Whether no record will come of a split that it was given: such a split holds back no watermark."""
        return False

    @abstractmethod
    def snapshot(self) -> list[Split]:
        """All unfinished splits with their current positions, paused ones too."""

    def positions_in_checkpoint(self, checkpoint_id: int, positions: Mapping[str, Plain]) -> None:
        """A checkpoint is being taken; if it becomes complete, a restart goes on from here.

        Called only if ``notify_checkpoint_complete`` is overridden.

        Args:
            checkpoint_id: numbers grow.
            positions: of all unfinished splits, behind the records that the task has handed on; None = untouched. A
                reader on asyncio may be ahead of them.
        """

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint is complete, and with it all before it. Calls may be missing."""

    def close(self) -> None:
        """Release everything; called exactly once, also after a failure."""


class SourceReader(ReaderBase[T]):
    """Reads splits; polled from the task loop (or, if ``blocking``, from a thread of its own)."""

    blocking: bool = False

    @abstractmethod
    def poll(self, max_records: int) -> Polled[T]:
        """At most ``max_records`` records of one split, or why there are none.

        Never called again after it returned ``END``; never called by two threads at once.
        """

    def checkpointed_function(self) -> object | None:
        """The user's function whose operator state belongs to the source's, and that hears of checkpoints, if any."""
        return None

    def ready_for_checkpoint(self) -> bool:
        """A barrier waits: whether what ``poll`` has given so far is what the reader's state stands for.

        Until it is, polls go on, and it is asked again before each. From then on nothing of the state changes until
        ``checkpoint_taken``.
        """
        return True

    def checkpoint_taken(self) -> None:
        """State and position were taken. Called after each ``ready_for_checkpoint``, also if nothing came of it."""


class AsyncSourceReader(ReaderBase[T]):
    """A reader whose ``poll`` is a coroutine; it runs on an asyncio loop in a thread of its own.

    All its methods run there; ``open`` and ``close`` may be coroutine functions.
    """

    @abstractmethod
    async def poll(self, max_records: int) -> Polled[T]:
        """Like ``SourceReader.poll``, but may wait; is cancelled when the task is."""


class Source(ABC, Generic[T]):
    """A source; pickled into the chain of its vertex, so it holds configuration only, no open files or connections."""

    replayable: bool = True
    """Whether a split that is continued at a position gives all records behind it again. Where it does not, what was
    read since the last checkpoint is lost when the job restarts: at most once."""

    own_watermarks: bool = False
    """Whether batches may carry watermarks. They count unless the program's strategy makes some."""

    @property
    @abstractmethod
    def boundedness(self) -> Boundedness:
        """Whether it ends by itself."""

    def enumerator(self) -> EnumeratorSpec | None:
        """Which built-in enumerator hands out its splits; None = the one that ``create_enumerator`` makes.

        Called once at the client, when the graph is built.

        Raises:
            ProgramError: the source can't work, for instance a file is missing; refuses the graph.
        """
        return None

    def create_enumerator(self, context: SplitEnumeratorContext) -> SplitEnumerator:
        """The enumerator of a source that has no built-in one, where the job begins anew. Called in a slot.

        Args:
            context: for as long as it lives.
        """
        raise ProgramError(
            f"{type(self).__name__} hands out no splits: it needs create_enumerator(), or enumerator() if a built-in "
            "one does"
        )

    def restore_enumerator(self, context: SplitEnumeratorContext, checkpoint: Any) -> SplitEnumerator:
        """The enumerator where the job goes on from a checkpoint.

        Args:
            context: for as long as it lives.
            checkpoint: what ``SplitEnumerator.snapshot_state`` gave.
        """
        raise ProgramError(f"{type(self).__name__} can't go on from a checkpoint: it has no restore_enumerator()")

    def get_split_serializer(self) -> SimpleVersionedSerializer[Any] | None:
        """Makes bytes of ``Split.data``; None = it is plain data."""
        return None

    def get_enumerator_checkpoint_serializer(self) -> SimpleVersionedSerializer[Any] | None:
        """Makes bytes of what ``SplitEnumerator.snapshot_state`` gives; None = it is plain data."""
        return None

    @abstractmethod
    def create_reader(self, context: ReaderContext) -> SourceReader[T] | AsyncSourceReader[T]:
        """A reader for one subtask. Called in the slot."""

    def produced_type(self) -> TypeInformation | None:
        """Type of the records; None = any Python object."""
        return None

    @property
    def makes_columns(self) -> bool:
        """Whether all of its batches are ``pyarrow.RecordBatch`` objects."""
        return False

    def with_columns(self, names: Sequence[str]) -> Source[T] | None:
        """The same source with these columns only, in this order; None = it can't leave any out.

        Called when nobody reads the other columns. Splits, positions and the number of records stay the same.

        Args:
            names: at least one, of the fields of ``produced_type``.
        """
        return None


class BuiltInEnumerator(ABC):
    """Hands out splits; one of ours. It runs in the JobMaster, single-threaded, without I/O that blocks for long.

    Implementations are registered by name in ``firesteel.connectors.enumerators`` and made from plain configuration.
    To be made costs nothing; then either ``start`` or ``restore`` is called.
    """

    def start(self) -> None:  # noqa: B027 - most have nothing to look at
        """The source begins anew. Perhaps called more than once, always before ``next_splits``.

        Raises:
            ProgramError: it can't work, for instance a file is missing.
        """

    @abstractmethod
    def next_splits(self, subtask: int, parallelism: int) -> list[Split]:
        """Splits for a subtask that asked; empty = none now."""

    @property
    @abstractmethod
    def exhausted(self) -> bool:
        """No split is left and none will come: whoever asks is told so."""

    @abstractmethod
    def add_splits_back(self, splits: Sequence[Split]) -> None:
        """Splits of a reader that was lost; hand them out again."""

    def reader_reset(self, subtask: int) -> None:  # noqa: B027 - most need not know
        """A subtask begins again, alone: from the last checkpoint, whose splits it reads again."""

    @abstractmethod
    def snapshot(self) -> Plain:
        """All state as plain data; ``restore`` of a new instance with the same configuration takes it."""

    @abstractmethod
    def restore(self, state: Plain) -> None:
        """Continue from a snapshot."""
