"""Queues that decide in which order results of asynchronous calls leave: in the order of the input, or when completed.

Both keep watermarks in their place: results never pass a watermark, in either direction. For that, the unordered queue
is a sequence of groups of records, separated by watermarks; within a group results leave in the order of completion. As
Flink's ``OrderedStreamElementQueue`` and ``UnorderedStreamElementQueue``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from typing import Any

from typing_extensions import override

__all__ = ["OrderedResults", "QueuedElement", "ResultQueue", "UnorderedResults"]


class QueuedElement:
    """A record whose results are awaited, or a watermark.

    Attributes:
        value: the record, or the watermark itself.
        stamp: timestamp of the record, or None.
        kind: row kind of the record, or None.
        results: None while the call is running; results have the timestamp and row kind of their record.
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
        """Whether the record has a timestamp, and whether it has a row kind. One batch needs records of one form."""
        return self.stamp is not None, self.kind is not None

    @property
    def constructor_arguments(self) -> tuple[Any, ...]:
        """The record as it is written to checkpoints: the arguments with which it is constructed again."""
        return (self.value, self.stamp) if self.kind is None else (self.value, self.stamp, self.kind)


class ResultQueue(ABC):
    """Takes entries in the order of the input and returns those that may leave. Not thread-safe."""

    @abstractmethod
    def add(self, entry: QueuedElement) -> None:
        """Append a record whose call begins, or a watermark."""

    @abstractmethod
    def complete(self, entry: QueuedElement, results: list[Any]) -> None:
        """Set the results of a record; called once for each record."""

    @abstractmethod
    def peek(self) -> QueuedElement | None:
        """The next entry that may leave: a completed record or a watermark; None if none may."""

    @abstractmethod
    def pop(self) -> None:
        """Remove the entry that ``peek`` returned."""

    @abstractmethod
    def entries(self) -> Iterator[QueuedElement]:
        """All entries that have not left, for a checkpoint."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of entries that have not left."""


class OrderedResults(ResultQueue):
    """Results leave in the order of the input: a record waits until all before it are completed."""

    def __init__(self) -> None:
        self._entries: deque[QueuedElement] = deque()

    @override
    def add(self, entry: QueuedElement) -> None:
        self._entries.append(entry)

    @override
    def complete(self, entry: QueuedElement, results: list[Any]) -> None:
        entry.results = results

    @override
    def peek(self) -> QueuedElement | None:
        if not self._entries or self._entries[0].results is None:
            return None
        return self._entries[0]

    @override
    def pop(self) -> None:
        self._entries.popleft()

    @override
    def entries(self) -> Iterator[QueuedElement]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class _Group:
    """The records between two watermarks."""

    __slots__ = ("completed", "members", "running", "watermark")

    def __init__(self) -> None:
        self.running = 0  # records of the group whose results are awaited
        self.members: dict[QueuedElement, None] = {}  # records that have not left, in the order of the input
        self.completed: deque[QueuedElement] = deque()
        self.watermark: QueuedElement | None = None  # the watermark behind the group; None for the last group


class UnorderedResults(ResultQueue):
    """Results leave as soon as they are completed, but never pass a watermark."""

    def __init__(self) -> None:
        self._groups: deque[_Group] = deque([_Group()])
        self._count = 0

    @override
    def add(self, entry: QueuedElement) -> None:
        self._count += 1
        last = self._groups[-1]
        if entry.is_watermark:
            last.watermark = entry
            self._groups.append(_Group())
        else:
            last.running += 1
            last.members[entry] = None
            entry.group = last

    @override
    def complete(self, entry: QueuedElement, results: list[Any]) -> None:
        group = entry.group
        assert group is not None
        entry.results, entry.group = results, None
        group.running -= 1
        group.completed.append(entry)

    @override
    def peek(self) -> QueuedElement | None:
        # Only the first group may give results; its watermark leaves once the group is empty.
        first = self._groups[0]
        if first.completed:
            return first.completed[0]
        if first.running or first.watermark is None:
            return None
        return first.watermark

    @override
    def pop(self) -> None:
        self._count -= 1
        first = self._groups[0]
        if first.completed:
            del first.members[first.completed.popleft()]
        else:
            self._groups.popleft()

    @override
    def entries(self) -> Iterator[QueuedElement]:
        for group in self._groups:
            yield from group.members
            if group.watermark is not None:
                yield group.watermark

    def __len__(self) -> int:
        return self._count
