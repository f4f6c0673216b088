"""The source contract. Built-in sources and those of users are written against it.

A source has two halves. Its *enumerator* decides which splits there are and who reads them; a *reader* in each
subtask reads the splits it was given. What passes between them is plain data (``Split``), so that the JobMaster can
keep and log it without unpickling anything.

* A built-in enumerator is a name plus plain configuration (``EnumeratorSpec``) and runs in the JobMaster.
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
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

from firesteel.common.typeinfo import TypeInformation
from firesteel.functions.functions import RuntimeContext
from firesteel.functions.subtask import SubtaskContext

if TYPE_CHECKING:  # coordinators know splits and enumerators, and should not pay for Arrow
    import pyarrow as pa

T = TypeVar("T")
Plain = None | bool | int | float | str | list[Any] | dict[str, Any]
"""What JSON can carry."""


class Boundedness(Enum):
    """Whether a source ends by itself."""

    BOUNDED = "BOUNDED"
    CONTINUOUS_UNBOUNDED = "CONTINUOUS_UNBOUNDED"


@dataclass(frozen=True)
class Split:
    """A part of a source that one reader reads: versioned plain data.

    Attributes:
        id: unique within the source.
        data: what to read; JSON-able; only the source's own code looks inside.
        position: where to go on; None = from the start.
        version: of the layout of ``data`` and ``position``.
    """

    id: str
    data: Mapping[str, Plain]
    position: Plain = None
    version: int = 1

    def to_plain(self) -> dict[str, Any]:
        """As JSON-able data."""
        return {"id": self.id, "data": dict(self.data), "position": self.position, "version": self.version}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Split:
        """The inverse of ``to_plain``."""
        return cls(plain["id"], plain["data"], plain.get("position"), plain.get("version", 1))

    def at(self, position: Plain) -> Split:
        """The same split at another position."""
        return Split(self.id, self.data, position, self.version)


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
        timestamps: epoch milliseconds for each value, or None.
        split_finished: the split holds nothing more.
    """

    values: list[T] | pa.RecordBatch
    split_id: str
    position: Plain
    timestamps: list[int] | None = None
    split_finished: bool = False


@dataclass(frozen=True)
class Wait:
    """Nothing to read now.

    Attributes:
        seconds: poll again after this long, or sooner when new splits arrive or ``ReaderContext.wake_up`` is called;
            None = only then.
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


class _ReaderBase(ABC, Generic[T]):
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

    @abstractmethod
    def snapshot(self) -> list[Split]:
        """All unfinished splits with their current positions, paused ones too."""

    def close(self) -> None:
        """Release everything; called exactly once, also after a failure."""


class SourceReader(_ReaderBase[T]):
    """Reads splits; polled from the task loop (or, if ``blocking``, from a thread of its own)."""

    blocking: ClassVar[bool] = False

    @abstractmethod
    def poll(self, max_records: int) -> Polled[T]:
        """At most ``max_records`` records of one split, or why there are none.

        Never called again after it returned ``END``; never called by two threads at once.
        """


class AsyncSourceReader(_ReaderBase[T]):
    """A reader whose ``poll`` is a coroutine; it runs on an asyncio loop in a thread of its own."""

    @abstractmethod
    async def poll(self, max_records: int) -> Polled[T]:
        """Like ``SourceReader.poll``, but may wait; is cancelled when the task is."""


class Source(ABC, Generic[T]):
    """A source; pickled into the chain of its vertex, so it holds configuration only, no open files or connections."""

    replayable: bool = True
    """Whether a split that is continued at a position gives all records behind it again. Where it does not, what was
    read since the last checkpoint is lost when the job restarts: at most once."""

    @property
    @abstractmethod
    def boundedness(self) -> Boundedness:
        """Whether it ends by itself."""

    @abstractmethod
    def enumerator(self) -> EnumeratorSpec:
        """Which enumerator hands out its splits. Called once at the client, when the graph is built.

        Raises:
            ProgramError: the source can't work, for instance a file is missing; refuses the graph.
        """

    @abstractmethod
    def create_reader(self, context: ReaderContext) -> SourceReader[T] | AsyncSourceReader[T]:
        """A reader for one subtask. Called in the slot."""

    def produced_type(self) -> TypeInformation | None:
        """Type of the records; None = any Python object."""
        return None


class SplitEnumerator(ABC):
    """Hands out splits; runs in the JobMaster, single-threaded, without I/O that blocks for long.

    Implementations are registered by name in ``firesteel.connectors.enumerators`` and made from plain configuration.
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

    @abstractmethod
    def snapshot(self) -> Plain:
        """All state as plain data; ``restore`` of a new instance with the same configuration takes it."""

    @abstractmethod
    def restore(self, state: Plain) -> None:
        """Continue from a snapshot."""
