"""In which order the results of asynchronous calls leave: as the records came, or as they are done.

Both keep watermarks in their place: no result of a record before a watermark leaves behind it, and none of a record
behind it before. In unordered mode the queue is a row of groups, with a watermark between each two.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from typing import Any

__all__ = ["OrderedResults", "QueuedElement", "ResultQueue", "UnorderedResults"]


class QueuedElement:
    """A record whose results are awaited, or a watermark.

    Attributes:
        value: the record, or the watermark itself.
        stamp: timestamp of the record, or None.
        kind: row kind of the record, or None.
        results: None while they are awaited; all have timestamp and kind of their record.
    """

    __slots__ = ("group", "is_watermark", "kind", "results", "stamp", "value")

    def __init__(
        self, value: Any, stamp: int | None = None, kind: int | None = None, *, is_watermark: bool = False
    ) -> None:
        self.value, self.stamp, self.kind, self.is_watermark = value, stamp, kind, is_watermark
        self.results: list[Any] | None = [] if is_watermark else None
        self.group: _Group | None = None

    @property
    def form(self) -> tuple[bool, bool]:
        """Whether it has a timestamp, and whether it has a row kind."""
        return self.stamp is not None, self.kind is not None

    @property
    def kept(self) -> tuple[Any, ...]:
        """The record as it stands in checkpoints: arguments to make it again."""
        return (self.value, self.stamp) if self.kind is None else (self.value, self.stamp, self.kind)


class ResultQueue(ABC):
    """Entries in, in the order of the input; ready ones out. One thread at a time."""

    @abstractmethod
    def add(self, entry: QueuedElement) -> None:
        """A record was taken, or a watermark came."""

    @abstractmethod
    def complete(self, entry: QueuedElement, results: list[Any]) -> None:
        """The results of a record are there; once for each record."""

    @abstractmethod
    def peek(self) -> QueuedElement | None:
        """The next that may leave: it is done, or a watermark; or None."""

    @abstractmethod
    def pop(self) -> None:
        """It has left; only when there is one."""

    @abstractmethod
    def entries(self) -> Iterator[QueuedElement]:
        """Those that have not left."""

    @abstractmethod
    def __len__(self) -> int:
        """How many have not left."""


class OrderedResults(ResultQueue):
    """First in, first out."""

    def __init__(self) -> None:
        self._entries: deque[QueuedElement] = deque()

    def add(self, entry: QueuedElement) -> None:
        self._entries.append(entry)

    def complete(self, entry: QueuedElement, results: list[Any]) -> None:
        """Leaves when all before it have left."""
        entry.results = results

    def peek(self) -> QueuedElement | None:
        """The first entry, if it is done."""
        if not self._entries or self._entries[0].results is None:
            return None
        return self._entries[0]

    def pop(self) -> None:
        self._entries.popleft()

    def entries(self) -> Iterator[QueuedElement]:
        """In the order of the input."""
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class _Group:
    """Records between two watermarks."""

    __slots__ = ("awaited", "done", "members", "watermark")

    def __init__(self) -> None:
        self.awaited = 0
        self.members: dict[QueuedElement, None] = {}
        self.done: deque[QueuedElement] = deque()
        self.watermark: QueuedElement | None = None
        """What comes behind them; None for the last group."""


class UnorderedResults(ResultQueue):
    """As soon as they are done, but never past a watermark."""

    def __init__(self) -> None:
        self._groups: deque[_Group] = deque([_Group()])
        self._count = 0

    def add(self, entry: QueuedElement) -> None:
        """Into the last group; a watermark closes it."""
        self._count += 1
        last = self._groups[-1]
        if entry.is_watermark:
            last.watermark = entry
            self._groups.append(_Group())
        else:
            last.awaited += 1
            last.members[entry] = None
            entry.group = last

    def complete(self, entry: QueuedElement, results: list[Any]) -> None:
        """Leaves as soon as its group is the first."""
        group = entry.group
        assert group is not None
        entry.results, entry.group = results, None
        group.awaited -= 1
        group.done.append(entry)

    def peek(self) -> QueuedElement | None:
        """One that is done of the first group, or the watermark behind it when the group is empty."""
        first = self._groups[0]
        if first.done:
            return first.done[0]
        if first.awaited or first.watermark is None:
            return None
        return first.watermark

    def pop(self) -> None:
        """As ``peek`` says."""
        self._count -= 1
        first = self._groups[0]
        if first.done:
            del first.members[first.done.popleft()]
        else:
            self._groups.popleft()

    def entries(self) -> Iterator[QueuedElement]:
        """Group by group; in each one in the order of the input."""
        for group in self._groups:
            yield from group.members
            if group.watermark is not None:
                yield group.watermark

    def __len__(self) -> int:
        return self._count
