"""Windows: the buckets that records are gathered in."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable
from operator import itemgetter
from typing import IO, Final, Generic, Self, TypeVar

from typing_extensions import override

from firesteel.common.serializer import TypeSerializer

__all__ = [
    "CountWindow",
    "CountWindowSerializer",
    "GlobalWindow",
    "GlobalWindowSerializer",
    "TimeWindow",
    "TimeWindowSerializer",
    "Window",
    "WindowMergeCallback",
]

W = TypeVar("W")

MIN_TIMESTAMP: Final = -(2**63)
"""Stands for "no timestamp", and for the watermark before the first one."""
MAX_TIMESTAMP: Final = 2**63 - 1


class Window(ABC):
    """A bucket of records. Windows are values: equal ones are one window, and they never change."""

    __slots__ = ()

    @abstractmethod
    def max_timestamp(self) -> int:
        """Returns the largest timestamp that belongs to it, in ms since 1970-01-01 UTC."""


class WindowMergeCallback(ABC, Generic[W]):
    """Takes what ``merge_windows`` found; PyFlink's ``MergingWindowAssigner.MergeCallback``."""

    @abstractmethod
    def merge(self, to_be_merged: Iterable[W], merge_result: W) -> None:
        """Says that these windows become that one."""


class TimeWindow(tuple[int, int], Window):
    """The time from ``start`` (included) to ``end`` (not included), in ms since 1970-01-01 UTC.

    It is a pair, so that looking up what a window holds costs next to nothing.
    """

    __slots__ = ()

    def __new__(cls, start: int, end: int) -> Self:
        """A window from ``start`` to ``end``."""
        return tuple.__new__(cls, (start, end))

    start: int = property(itemgetter(0), doc="The first ms that belongs to it.")  # type: ignore[assignment]
    end: int = property(itemgetter(1), doc="The first ms behind it.")  # type: ignore[assignment]

    def max_timestamp(self) -> int:
        """Returns ``end - 1``."""
        return self[1] - 1

    def intersects(self, other: TimeWindow) -> bool:
        """Returns whether the two overlap or touch."""
        return self[0] <= other[1] and self[1] >= other[0]

    def cover(self, other: TimeWindow) -> TimeWindow:
        """Returns the smallest window over both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))

    @staticmethod
    def get_window_start_with_offset(timestamp: int, offset: int, window_size: int) -> int:
        """Returns the start of the window that holds a timestamp, all in ms.

        Windows start at ``offset`` and each ``window_size`` before and after it.
        """
        return timestamp - (timestamp - offset) % window_size

    @staticmethod
    def merge_windows(windows: Iterable[TimeWindow], callback: WindowMergeCallback[TimeWindow]) -> None:
        """Tells the callback which windows overlap or touch, and so become one; groups in the order of time."""
        current: TimeWindow | None = None
        members: list[TimeWindow] = []
        for candidate in sorted(windows):
            if current is not None and current.intersects(candidate):
                current = current.cover(candidate)
                members.append(candidate)
                continue
            if current is not None and len(members) > 1:
                callback.merge(members, current)
            current, members = candidate, [candidate]
        if current is not None and len(members) > 1:
            callback.merge(members, current)

    def __repr__(self) -> str:
        return f"TimeWindow(start={self.start}, end={self.end})"

    def __reduce__(self) -> tuple[type[TimeWindow], tuple[int, int]]:
        return TimeWindow, (self[0], self[1])


class CountWindow(Window):
    """The n-th window of a key whose windows are cut by numbers of records."""

    __slots__ = ("id",)

    def __init__(self, id: int) -> None:
        self.id = id

    def max_timestamp(self) -> int:
        """Returns the largest timestamp there is."""
        return MAX_TIMESTAMP

    def __hash__(self) -> int:
        return hash((CountWindow, self.id))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CountWindow) and self.id == other.id

    def __repr__(self) -> str:
        return f"CountWindow(id={self.id})"

    def __reduce__(self) -> tuple[type[CountWindow], tuple[int]]:
        return CountWindow, (self.id,)


class GlobalWindow(Window):
    """The one window that holds everything."""

    __slots__ = ()

    @staticmethod
    def get() -> GlobalWindow:
        """Returns it."""
        return _GLOBAL

    def max_timestamp(self) -> int:
        """Returns the largest timestamp there is."""
        return MAX_TIMESTAMP

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GlobalWindow)

    def __repr__(self) -> str:
        return "GlobalWindow"

    def __reduce__(self) -> tuple[type[GlobalWindow], tuple[()]]:
        return GlobalWindow, ()


_GLOBAL: Final = GlobalWindow()


class TimeWindowSerializer(TypeSerializer[TimeWindow]):
    """Start and end as signed 64-bit integers, big-endian."""

    def serialize(self, element: TimeWindow, stream: IO[bytes]) -> None:
        """Writes 16 bytes."""
        stream.write(struct.pack(">qq", element.start, element.end))

    def deserialize(self, stream: IO[bytes]) -> TimeWindow:
        """Reads 16 bytes."""
        return TimeWindow(*struct.unpack(">qq", stream.read(16)))


class CountWindowSerializer(TypeSerializer[CountWindow]):
    """The id as a signed 64-bit integer, big-endian."""

    def serialize(self, element: CountWindow, stream: IO[bytes]) -> None:
        """Writes 8 bytes."""
        stream.write(struct.pack(">q", element.id))

    def deserialize(self, stream: IO[bytes]) -> CountWindow:
        """Reads 8 bytes."""
        return CountWindow(struct.unpack(">q", stream.read(8))[0])


class GlobalWindowSerializer(TypeSerializer[GlobalWindow]):
    """One byte: there is only one such window."""

    @override
    def serialize(self, element: GlobalWindow, stream: IO[bytes]) -> None:
        stream.write(b"\0")

    @override
    def deserialize(self, stream: IO[bytes]) -> GlobalWindow:
        stream.read(1)
        return _GLOBAL
