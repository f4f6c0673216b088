"""The source contract, which built-in sources and those of users implement.

A source has two halves. Its *enumerator* decides which splits there are and which reader gets them; a *reader* in each
subtask reads the splits assigned to it. They exchange plain data (``Split``), which the JobMaster can store and log
without unpickling anything.

* An enumerator written by a user (``Source.create_enumerator``, ``firesteel.functions.split_enumerator``) runs in a
  slot, in a task of its own. A built-in one is a name plus plain configuration (``EnumeratorSpec``) and runs in the
  JobMaster.
* A reader runs in a slot, on the task loop. ``poll`` must not block; a reader that has to block sets
  ``blocking = True`` and gets a thread of its own; a reader on asyncio derives from ``AsyncSourceReader``.
* ``poll`` returns a batch and the position behind it: a split at that position resumes right after the batch's last
  record. ``snapshot`` returns all unfinished splits, each with its current position.
* Paused splits are not polled until they are resumed; none of their records are lost.
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
    """Whether a source ends by itself.

    Examples:
        ```python
        from firesteel.datastream.connectors import NumberSequenceSource

        print(NumberSequenceSource(1, 4).boundedness.name)
        ```

        ```text
        BOUNDED
        ```
    """

    BOUNDED = "BOUNDED"
    CONTINUOUS_UNBOUNDED = "CONTINUOUS_UNBOUNDED"


@dataclass(frozen=True)
class EnumeratorSpec:
    """A built-in enumerator: its name in ``firesteel.connectors.enumerators`` and its plain configuration.

    Examples:
        ```python
        from firesteel.datastream.connectors.base import EnumeratorSpec, Split

        files = [Split(name, {"path": f"/data/{name}"}) for name in ("a.txt", "b.txt")]
        # What enumerator() of a Source returns.
        spec = EnumeratorSpec("static", {"splits": [split.to_plain() for split in files]})
        ```
    """

    name: str
    config: Mapping[str, Plain] = field(default_factory=dict)


@dataclass(frozen=True)
class SourceBatch(Generic[T]):
    """Records that one ``poll`` returns.

    Attributes:
        values: list of objects, or a ``pyarrow.RecordBatch``.
        split_id: the split that all values come from.
        position: position of the split behind the last value.
        timestamps: epoch milliseconds for each value, or None; an int64 array if ``values`` are columns.
        split_finished: the split has no more records.
        watermark: sources with ``own_watermarks``: watermark behind the last value; None = none.
        idle: sources with ``own_watermarks``: the split holds back no watermark until its next batch.

    Examples:
        ```python
        from firesteel.datastream.connectors.base import SourceBatch

        batch = SourceBatch(["tea", "milk"], "orders.txt", position=9, split_finished=True)  # what poll() returns
        print(batch.values, batch.position)
        ```

        ```text
        ['tea', 'milk'] 9
        ```
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
    """The reader has no records at present.

    Attributes:
        seconds: time until the next poll (at least a quarter of a millisecond, unless it is 0); new splits and
            ``ReaderContext.wake_up`` end it early. None = wait for those only.

    Examples:
        ```python
        from firesteel.datastream.connectors import Wait

        print(Wait(0.5).seconds)  # what poll() of a reader returns if nothing comes before
        ```

        ```text
        0.5
        ```
    """

    seconds: float | None = None


class NeedSplits:
    """The reader has read all its splits and requests more; it is polled again once the enumerator has answered."""


class End:
    """The reader has ended: no more splits will come, and it has read all it had."""


NEED_SPLITS: Final = NeedSplits()
END: Final = End()
Polled = SourceBatch[T] | Wait | NeedSplits | End


class ReaderContext(SubtaskContext):
    """Access of a reader to the subtask that runs it.

    Examples:
        ```python
        from firesteel.datastream.connectors.base import Chunk, ReaderContext, SplitCursor, SplitQueueReader, Wait


        class Ticks(SplitQueueReader):
            def __init__(self, context: ReaderContext):  # called by create_reader() of the source
                super().__init__()
                self.context = context

            def open_split(self, split):
                return TickCursor(self.context, split.position or 0)


        class TickCursor(SplitCursor):
            def __init__(self, context, position):
                self.context, self.position, self.due = context, position, context.monotonic()

            def read(self, max_records):
                pause = self.due - self.context.monotonic()
                if pause > 0:
                    return Wait(pause)
                self.position, self.due = self.position + 1, self.due + 1
                return Chunk([self.position], self.position)
        ```
    """

    @abstractmethod
    def monotonic(self) -> float:
        """Monotonic time in seconds, of the subtask's clock (which tests may replace)."""

    @abstractmethod
    def wake_up(self) -> None:
        """Poll the reader again soon; may be called from any thread."""

    def runtime_context(self) -> RuntimeContext | None:
        """Return the context that functions are opened with (metrics, job parameters); None if no task runs."""
        return None


class ReaderBase(ABC, Generic[T]):
    """Base of both kinds of readers."""

    def open(self) -> None:
        """Prepare for reading. Called once, before all other methods."""

    @abstractmethod
    def add_splits(self, splits: Sequence[Split]) -> None:
        """Take further splits to read. A split whose ``position`` is set is read from there.

        Raises:
            ProgramError: the version of a split is not known to this reader.
        """

    @abstractmethod
    def no_more_splits(self) -> None:
        """Take note that no further splits will be added."""

    @abstractmethod
    def pause_splits(self, split_ids: Sequence[str]) -> None:
        """Read no records of these splits until they are resumed. Unknown ids are ignored."""

    @abstractmethod
    def resume_splits(self, split_ids: Sequence[str]) -> None:
        """Read records of these paused splits again."""

    def is_silent(self, split_id: str) -> bool:
        """Whether a split assigned to the reader will never give a record; such a split holds back no watermark."""
        return False

    @abstractmethod
    def snapshot(self) -> list[Split]:
        """Return all unfinished splits with their current positions, including paused ones."""

    def positions_in_checkpoint(self, checkpoint_id: int, positions: Mapping[str, Plain]) -> None:
        """Remember the positions in a checkpoint that is being taken; a restart from it resumes there.

        Called only if ``notify_checkpoint_complete`` is overridden.

        Args:
            checkpoint_id: rises from checkpoint to checkpoint.
            positions: positions of all unfinished splits, behind the records that the task has emitted; None = the
                split was not read yet. A reader on asyncio may have read further.
        """

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Called when a checkpoint is complete, and with it all earlier ones. Some calls may be missing."""

    def close(self) -> None:
        """Release everything; called exactly once, also after a failure."""


class SourceReader(ReaderBase[T]):
    """Reads splits; polled from the task loop (or, if ``blocking``, from a thread of its own).

    Examples:
        ```python
        from firesteel.datastream.connectors.base import END, NEED_SPLITS, SourceBatch, SourceReader, Split, Wait


        class Numbers(SourceReader):
            def __init__(self):
                self.splits, self.paused, self.all_assigned = {}, set(), False

            def add_splits(self, splits):
                self.splits.update((split.id, split) for split in splits)

            def no_more_splits(self):
                self.all_assigned = True

            def pause_splits(self, split_ids):
                self.paused.update(split_ids)

            def resume_splits(self, split_ids):
                self.paused.difference_update(split_ids)

            def snapshot(self):
                return list(self.splits.values())

            def poll(self, max_records):
                for split in [split for split in self.splits.values() if split.id not in self.paused]:
                    start, end = split.position or 0, split.data["end"]
                    stop = min(end, start + max_records)
                    if stop == end:
                        del self.splits[split.id]
                    else:
                        self.splits[split.id] = split.at(stop)
                    return SourceBatch(list(range(start, stop)), split.id, stop, split_finished=stop == end)
                if self.splits:
                    return Wait(None)
                return END if self.all_assigned else NEED_SPLITS


        reader = Numbers()
        reader.add_splits([Split("0-5", {"end": 5})])
        print(reader.poll(3).values, reader.poll(3).values)
        ```

        ```text
        [0, 1, 2] [3, 4]
        ```
    """

    blocking: bool = False

    @abstractmethod
    def poll(self, max_records: int) -> Polled[T]:
        """Return at most ``max_records`` records of one split, or why there are none.

        Never called again after it returned ``END``; never called by two threads at once.
        """

    def checkpointed_function(self) -> object | None:
        """Return the user's function that has operator state and is notified of checkpoints; None = there is none."""
        return None

    def ready_for_checkpoint(self) -> bool:
        """Whether the reader's state now corresponds to the records polled so far; called while a barrier waits.

        If it returns False, the reader is polled again first, and then asked again. Once it has returned True, the
        reader must not change its state until ``checkpoint_taken``.
        """
        return True

    def checkpoint_taken(self) -> None:
        """Called after each ``ready_for_checkpoint``, once state and positions have been copied or that has failed."""


class AsyncSourceReader(ReaderBase[T]):
    """A reader whose ``poll`` is a coroutine; it runs on an asyncio loop in a thread of its own.

    All its methods run there; ``open`` and ``close`` may be coroutine functions.

    Examples:
        ```python
        import asyncio

        from firesteel.datastream.connectors.base import END, NEED_SPLITS, AsyncSourceReader, SourceBatch, Split, Wait


        class Ticks(AsyncSourceReader):
            def __init__(self):
                self.splits, self.paused, self.all_assigned = {}, set(), False

            def add_splits(self, splits):
                self.splits.update((split.id, split) for split in splits)

            def no_more_splits(self):
                self.all_assigned = True

            def pause_splits(self, split_ids):
                self.paused.update(split_ids)

            def resume_splits(self, split_ids):
                self.paused.difference_update(split_ids)

            def snapshot(self):
                return list(self.splits.values())

            async def poll(self, max_records):
                for split in [split for split in self.splits.values() if split.id not in self.paused]:
                    await asyncio.sleep(0.01)  # other coroutines run
                    tick = split.position or 0
                    self.splits[split.id] = split.at(tick + 1)
                    return SourceBatch([tick], split.id, tick + 1)
                if self.splits:
                    return Wait(None)
                return END if self.all_assigned else NEED_SPLITS


        reader = Ticks()
        reader.add_splits([Split("clock", {})])
        print([asyncio.run(reader.poll(1)).values for _ in range(3)])
        ```

        ```text
        [[0], [1], [2]]
        ```
    """

    @abstractmethod
    async def poll(self, max_records: int) -> Polled[T]:
        """Like ``SourceReader.poll``, but may wait. Cancelled when the task is cancelled."""


class Source(ABC, Generic[T]):
    """A source; pickled into the chain of its vertex, so it holds configuration only, no open files or connections.

    Examples:
        ```python
        from firesteel.datastream.connectors.base import (
            Boundedness,
            Chunk,
            EnumeratorSpec,
            Source,
            SplitCursor,
            SplitQueueReader,
        )
        from firesteel.testing import check_source


        class Squares(Source):
            boundedness = Boundedness.BOUNDED

            def __init__(self, count):
                self.count = count

            def enumerator(self):
                return EnumeratorSpec("numbers", {"start": 0, "end": self.count})

            def create_reader(self, context):
                return SquaresReader()


        class SquaresReader(SplitQueueReader):
            def open_split(self, split):
                start = split.data["start"] if split.position is None else split.position
                return SquaresCursor(start, split.data["end"])


        class SquaresCursor(SplitCursor):
            def __init__(self, position, end):
                self.position, self.end = position, end

            def read(self, max_records):
                first, self.position = self.position, min(self.end, self.position + max_records)
                squares = [number * number for number in range(first, self.position)]
                return Chunk(squares, self.position, finished=self.position == self.end)


        check_source(lambda: Squares(4), [0, 1, 4, 9])
        ```
    """

    replayable: bool = True
    """Whether the source can read all records behind a split's position again. If it can't, a restart loses the records
    read since the last checkpoint: at most once."""

    own_watermarks: bool = False
    """Whether batches may carry watermarks. They are used unless the program's watermark strategy generates its own."""

    @property
    @abstractmethod
    def boundedness(self) -> Boundedness:
        """Whether the source ends by itself."""

    def enumerator(self) -> EnumeratorSpec | None:
        """Return the built-in enumerator that hands out the splits; None = ``create_enumerator`` makes one.

        Called once at the client, when the graph is built.

        Raises:
            ProgramError: the source can't work, for instance since a file is missing; the job is not submitted.
        """
        return None

    def create_enumerator(self, context: SplitEnumeratorContext) -> SplitEnumerator:
        """Make the enumerator of a source without a built-in one, for a job without a checkpoint. Called in a slot.

        Args:
            context: valid as long as the enumerator.
        """
        raise ProgramError(
            f"{type(self).__name__} hands out no splits: it needs create_enumerator(), or enumerator() if a built-in "
            "one does"
        )

    def restore_enumerator(self, context: SplitEnumeratorContext, checkpoint: Any) -> SplitEnumerator:
        """Make the enumerator of a job that resumes from a checkpoint. Called in a slot.

        Args:
            context: valid as long as the enumerator.
            checkpoint: state that ``SplitEnumerator.snapshot_state`` returned.
        """
        raise ProgramError(f"{type(self).__name__} can't go on from a checkpoint: it has no restore_enumerator()")

    def get_split_serializer(self) -> SimpleVersionedSerializer[Any] | None:
        """Return the serializer of splits; None = ``Split.data`` is plain data."""
        return None

    def get_enumerator_checkpoint_serializer(self) -> SimpleVersionedSerializer[Any] | None:
        """Return the serializer of ``SplitEnumerator.snapshot_state``'s result; None = it is plain data."""
        return None

    @abstractmethod
    def create_reader(self, context: ReaderContext) -> SourceReader[T] | AsyncSourceReader[T]:
        """Make the reader of one subtask. Called in the slot."""

    def produced_type(self) -> TypeInformation | None:
        """Return the type of the records; None = any Python object."""
        return None

    @property
    def makes_columns(self) -> bool:
        """Whether the values of all batches are ``pyarrow.RecordBatch`` objects."""
        return False

    def with_columns(self, names: Sequence[str]) -> Source[T] | None:
        """Return the same source with these columns only, in this order; None = it can't leave any out.

        Called when the program reads no other columns. Splits, positions and the number of records stay the same.

        Args:
            names: at least one of the field names of ``produced_type``.
        """
        return None


class BuiltInEnumerator(ABC):
    """An enumerator of ours. It runs in the JobMaster, in one thread, and must not do I/O that blocks for long.

    Implementations are registered by name in ``firesteel.connectors.enumerators`` and made from plain configuration.
    The constructor must be cheap; after it either ``start`` or ``restore`` is called.
    """

    def start(self) -> None:  # noqa: B027 - most have nothing to look at
        """Find the splits of a source that begins without state. Called once or more, always before ``next_splits``.

        Raises:
            ProgramError: the source can't work, for instance since a file is missing.
        """

    @abstractmethod
    def next_splits(self, subtask: int, parallelism: int) -> list[Split]:
        """Return splits for a subtask that has requested some; empty = there are none at present."""

    @property
    @abstractmethod
    def exhausted(self) -> bool:
        """Whether no split is left and none will come; then every requesting reader gets ``no_more_splits``."""

    @abstractmethod
    def add_splits_back(self, splits: Sequence[Split]) -> None:
        """Take back the splits of a reader that was lost, to hand them out again."""

    def reader_reset(self, subtask: int) -> None:  # noqa: B027 - most need not know
        """Called when one subtask restarts alone, from the last checkpoint, whose splits it reads again."""

    @abstractmethod
    def snapshot(self) -> Plain:
        """Return all state as plain data, for ``restore`` of a new instance with the same configuration."""

    @abstractmethod
    def restore(self, state: Plain) -> None:
        """Set the state of a new instance to that of a snapshot."""
