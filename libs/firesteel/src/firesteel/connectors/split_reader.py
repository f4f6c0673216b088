"""A reader that reads its splits one after another. Most sources derive their reader from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from typing_extensions import override

from firesteel.core.errors import CheckpointVersionError
from firesteel.functions.source import END, NEED_SPLITS, Plain, Polled, SourceBatch, SourceReader, Split, Wait

if TYPE_CHECKING:  # programs without columns need neither of them
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

T = TypeVar("T")


@dataclass(frozen=True)
class Chunk(Generic[T]):
    """Result of one ``SplitCursor.read``.

    Attributes:
        values: list of objects, or a ``pyarrow.RecordBatch``; may be empty only if ``finished``.
        position: position of the split behind the last value.
        finished: the split holds nothing more.
        timestamps: epoch milliseconds of each value, as a list or, with columns, an int64 array; None = there are none.

    Examples:
        ```python
        from firesteel.datastream.connectors.base import Chunk

        lines = ["tea", "milk"]
        print(Chunk(lines, position=9, finished=True))  # what read() of a SplitCursor returns
        ```

        ```text
        Chunk(values=['tea', 'milk'], position=9, finished=True, timestamps=None)
        ```
    """

    values: list[T] | pa.RecordBatch
    position: Plain
    finished: bool = False
    timestamps: list[int] | npt.NDArray[np.int64] | None = None


class SplitCursor(ABC, Generic[T]):
    """Reads the records of one open split, from a position on.

    Examples:
        ```python
        from firesteel.datastream.connectors.base import Chunk, SplitCursor


        class Countdown(SplitCursor):
            def __init__(self, position):
                self.position = position

            def read(self, max_records):
                stop = max(0, self.position - max_records)
                numbers, self.position = list(range(self.position, stop, -1)), stop
                return Chunk(numbers, stop, finished=stop == 0)


        print(Countdown(5).read(2))
        ```

        ```text
        Chunk(values=[5, 4], position=3, finished=False, timestamps=None)
        ```
    """

    @abstractmethod
    def read(self, max_records: int) -> Chunk[T] | Wait:
        """Return the next records, at most so many, or how long to wait for them."""

    def close(self) -> None:
        """Release open files and connections. Called exactly once."""


class SplitQueueReader(SourceReader[T]):
    """Keeps splits in a queue, with their positions and pauses; a subclass opens them.

    Attributes:
        split_version: version of ``Split.data`` and ``Split.position`` that ``open_split`` understands.

    Examples:
        ```python
        from firesteel.datastream.connectors.base import Chunk, Split, SplitCursor, SplitQueueReader


        class Words(SplitQueueReader):
            def open_split(self, split):
                return WordCursor(split.data["words"], split.position or 0)


        class WordCursor(SplitCursor):
            def __init__(self, words, position):
                self.words, self.position = words, position

            def read(self, max_records):
                words = self.words[self.position : self.position + max_records]
                self.position += len(words)
                return Chunk(words, self.position, finished=self.position == len(self.words))


        reader = Words()
        reader.add_splits([Split("drinks", {"words": ["tea", "milk"]})])
        print(reader.poll(1).values, reader.snapshot()[0].position)
        ```

        ```text
        ['tea'] 1
        ```
    """

    split_version = 1

    def __init__(self) -> None:
        self._waiting: deque[Split] = deque()
        self._open: dict[str, tuple[Split, SplitCursor[T]]] = {}
        self._paused: set[str] = set()
        self._no_more = False

    @abstractmethod
    def open_split(self, split: Split) -> SplitCursor[T]:
        """Open a split at its position."""

    def add_splits(self, splits: Sequence[Split]) -> None:
        """Queue splits.

        Raises:
            CheckpointVersionError: a split is of another version.
        """
        for split in splits:
            if split.version != self.split_version:
                raise CheckpointVersionError(
                    type(self).__name__,
                    f"it reads splits of version {self.split_version}, but split {split.id!r} has version "
                    f"{split.version}: it was written by another version of this source; go on with that one",
                )
        self._waiting.extend(splits)

    def no_more_splits(self) -> None:
        """Note that no further splits will come."""
        self._no_more = True

    def pause_splits(self, split_ids: Sequence[str]) -> None:
        """Do not poll these splits until they are resumed."""
        self._paused.update(split_ids)

    def resume_splits(self, split_ids: Sequence[str]) -> None:
        """Poll these splits again."""
        self._paused.difference_update(split_ids)

    def snapshot(self) -> list[Split]:
        """All unfinished splits with their current positions."""
        return [split for split, _ in self._open.values()] + list(self._waiting)

    def poll(self, max_records: int) -> Polled[T]:
        """Records of the first open split that is not paused; opens the next one when there is none."""
        wait: Wait | None = None
        # Open splits come first, so that few are open at a time; one that waits does not hold up the next.
        for split, cursor in list(self._open.values()):
            if split.id in self._paused:
                continue
            answer = self._read(split, cursor, max_records)
            if not isinstance(answer, Wait):
                return answer
            wait = answer if wait is None else _sooner(wait, answer)
        if wait is not None:
            return wait
        for position, split in enumerate(self._waiting):
            if split.id not in self._paused:
                del self._waiting[position]
                cursor = self.open_split(split)
                self._open[split.id] = (split, cursor)
                return self._read(split, cursor, max_records)
        if self._open or self._waiting:
            return Wait()  # all are paused
        return END if self._no_more else NEED_SPLITS

    def _read(self, split: Split, cursor: SplitCursor[T], max_records: int) -> SourceBatch[T] | Wait:
        chunk = cursor.read(max_records)
        if isinstance(chunk, Wait):
            return chunk
        if chunk.finished:
            del self._open[split.id]
            self._paused.discard(split.id)
            cursor.close()
        else:
            self._open[split.id] = (split.at(chunk.position), cursor)
        return SourceBatch(chunk.values, split.id, chunk.position, chunk.timestamps, chunk.finished)

    @override
    def close(self) -> None:
        cursors: list[SplitCursor[Any]] = [cursor for _, cursor in self._open.values()]
        self._open.clear()
        for cursor in cursors:
            cursor.close()


def _sooner(first: Wait, second: Wait) -> Wait:
    if first.seconds is None or second.seconds is None:
        return second if first.seconds is None else first
    return first if first.seconds <= second.seconds else second
