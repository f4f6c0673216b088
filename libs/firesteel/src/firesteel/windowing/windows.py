"""Windows: the buckets in which records are collected. PyFlink's names."""

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
"""Timestamp of a record without one, and the watermark before the first one."""
MAX_TIMESTAMP: Final = 2**63 - 1


class Window(ABC):
    """A bucket of records. Windows are values: equal objects stand for one window, and they never change.

    Examples:
        ```python
        from firesteel.datastream import TimeWindow, Window

        window = TimeWindow(0, 60_000)
        print(isinstance(window, Window), window.max_timestamp())
        ```

        ```text
        True 59999
        ```
    """

    __slots__ = ()

    @abstractmethod
    def max_timestamp(self) -> int:
        """Returns the largest timestamp that belongs to the window, in ms since 1970-01-01 UTC."""


class WindowMergeCallback(ABC, Generic[W]):
    """Receives the merges that ``merge_windows`` decides; PyFlink's ``MergingWindowAssigner.MergeCallback``."""

    @abstractmethod
    def merge(self, to_be_merged: Iterable[W], merge_result: W) -> None:
        """Merges windows into ``merge_result``."""


class TimeWindow(tuple[int, int], Window):
    """The time from ``start`` (included) to ``end`` (not included), in ms since 1970-01-01 UTC.

    It is a pair, so that hashing it, to look up the contents of a window, is fast.

    Examples:
        ```python
        from firesteel.datastream import TimeWindow

        window, later = TimeWindow(0, 10_000), TimeWindow(9_000, 12_000)
        print(window.max_timestamp(), window.intersects(later), window.cover(later).end)
        ```

        ```text
        9999 True 12000
        ```
    """

    __slots__ = ()

    def __new__(cls, start: int, end: int) -> Self:
        """Make a window from ``start`` to ``end``."""
        return tuple.__new__(cls, (start, end))

    start: int = property(itemgetter(0), doc="The first ms that belongs to the window.")  # type: ignore[assignment]
    end: int = property(itemgetter(1), doc="The first ms after the window.")  # type: ignore[assignment]

    def max_timestamp(self) -> int:
        """Returns ``end - 1``."""
        return self[1] - 1

    def intersects(self, other: TimeWindow) -> bool:
        """Returns whether the two overlap or touch."""
        return self[0] <= other[1] and self[1] >= other[0]

    def cover(self, other: TimeWindow) -> TimeWindow:
        """Returns the smallest window that covers both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))

    @staticmethod
    def get_window_start_with_offset(timestamp: int, offset: int, window_size: int) -> int:
        """Returns the start of the window that contains a timestamp, all in ms.

        Windows start at ``offset`` and each ``window_size`` before and after it.
        """
        return timestamp - (timestamp - offset) % window_size

    @staticmethod
    def merge_windows(windows: Iterable[TimeWindow], callback: WindowMergeCallback[TimeWindow]) -> None:
        """Passes each group of windows that overlap or touch to the callback, in the order of time."""
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
    """A window of a number of records of a key; ``id`` counts the key's windows.

    Examples:
        ```python
        from firesteel.datastream import CountWindow

        print(CountWindow(3).id)
        ```

        ```text
        3
        ```
    """

    __slots__ = ("id",)

    def __init__(self, id: int) -> None:
        self.id = id

    def max_timestamp(self) -> int:
        """Returns 2**63 - 1: the window has no end in time."""
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
    """The one window that contains all records.

    Examples:
        ```python
        from firesteel.datastream import GlobalWindow

        print(GlobalWindow.get() == GlobalWindow.get())
        ```

        ```text
        True
        ```
    """

    __slots__ = ()

    @staticmethod
    def get() -> GlobalWindow:
        """Returns the only global window."""
        return _GLOBAL

    def max_timestamp(self) -> int:
        """Returns 2**63 - 1: the window has no end in time."""
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
    """Serializes start and end as signed 64-bit integers, big-endian.

    Examples:
        ```python
        import io

        from firesteel.datastream.window import TimeWindow, TimeWindowSerializer

        serializer, stream = TimeWindowSerializer(), io.BytesIO()
        serializer.serialize(TimeWindow(0, 60_000), stream)
        stream.seek(0)
        print(serializer.deserialize(stream))
        ```

        ```text
        TimeWindow(start=0, end=60000)
        ```
    """

    def serialize(self, element: TimeWindow, stream: IO[bytes]) -> None:
        """Writes start and end, 16 bytes."""
        stream.write(struct.pack(">qq", element.start, element.end))

    def deserialize(self, stream: IO[bytes]) -> TimeWindow:
        """Reads a window from 16 bytes."""
        return TimeWindow(*struct.unpack(">qq", stream.read(16)))


class CountWindowSerializer(TypeSerializer[CountWindow]):
    """Serializes the id as a signed 64-bit integer, big-endian.

    Examples:
        ```python
        import io

        from firesteel.datastream.window import CountWindow, CountWindowSerializer

        stream = io.BytesIO()
        CountWindowSerializer().serialize(CountWindow(3), stream)
        print(stream.getvalue().hex())
        ```

        ```text
        0000000000000003
        ```
    """

    def serialize(self, element: CountWindow, stream: IO[bytes]) -> None:
        """Writes the id, 8 bytes."""
        stream.write(struct.pack(">q", element.id))

    def deserialize(self, stream: IO[bytes]) -> CountWindow:
        """Reads a window from 8 bytes."""
        return CountWindow(struct.unpack(">q", stream.read(8))[0])


class GlobalWindowSerializer(TypeSerializer[GlobalWindow]):
    r"""Serializes the global window as one byte, since there is only one.

    Examples:
        ```python
        import io

        from firesteel.datastream.window import GlobalWindow, GlobalWindowSerializer

        stream = io.BytesIO()
        GlobalWindowSerializer().serialize(GlobalWindow.get(), stream)
        print(stream.getvalue())
        ```

        ```text
        b'\x00'
        ```
    """

    @override
    def serialize(self, element: GlobalWindow, stream: IO[bytes]) -> None:
        stream.write(b"\0")

    @override
    def deserialize(self, stream: IO[bytes]) -> GlobalWindow:
        stream.read(1)
        return _GLOBAL
