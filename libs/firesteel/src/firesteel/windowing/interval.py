"""The interval join as a pure core: which records of two sides are near enough in time, and for how long they are kept.

A record of the left side at time *l* and one of the right side at *r* are a pair if ``l + lower <= r <= l + upper``.
Each side's records of a key are kept in the order of time, so that a record looks at its partners only.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, MutableMapping
from typing import Any, Final

from firesteel.core.errors import ProgramError
from firesteel.windowing.contexts import Timers
from firesteel.windowing.windows import MIN_TIMESTAMP

LEFT: Final = "CLEANUP_NAMESPACE_LEFT"
RIGHT: Final = "CLEANUP_NAMESPACE_RIGHT"
SIDES: Final = (LEFT, RIGHT)


class Buffer:
    """Records of one side and key, by time.

    Attributes:
        times: in order, each once.
        records: by time, in the order of arrival.
    """

    __slots__ = ("records", "times")

    def __init__(self) -> None:
        self.times: list[int] = []
        self.records: dict[int, list[Any]] = {}

    def add(self, time: int, value: Any) -> None:
        """Keep a record."""
        held = self.records.get(time)
        if held is None:
            self.records[time] = [value]
            insort(self.times, time)
        else:
            held.append(value)

    def between(self, first: int, last: int) -> Iterator[tuple[int, Any]]:
        """Records of this time, both ends included, with their times."""
        times = self.times
        for time in times[bisect_left(times, first) : bisect_right(times, last)]:
            for value in self.records[time]:
                yield time, value

    def remove(self, time: int) -> None:
        """Forget the records of a time; none there is no error."""
        if self.records.pop(time, None) is not None:
            del self.times[bisect_left(self.times, time)]

    def __reduce__(self) -> tuple[Any, ...]:
        return _buffer, (self.records,)


def _buffer(records: dict[int, list[Any]]) -> Buffer:
    made = Buffer()
    made.times, made.records = sorted(records), records
    return made


Table = MutableMapping[Any, Buffer]


class IntervalJoin:
    """The join of one subtask.

    Args:
        lower, upper: bounds of the right record's time, counted from the left record's; both included. ms.
        timers: of the operator; they belong to the current key.
        tables: what is kept of each side, by key.
    """

    def __init__(
        self,
        lower: int,
        upper: int,
        timers: Timers,
        tables: tuple[MutableMapping[Any, Buffer], MutableMapping[Any, Buffer]],
    ) -> None:
        self._timers, self._tables = timers, tables
        self._bounds = ((lower, upper), (-upper, -lower))

    def is_late(self, timestamp: int | None) -> bool:
        """Whether a record is behind the watermark.

        Raises:
            ProgramError: it has no timestamp.
        """
        if timestamp is None or timestamp == MIN_TIMESTAMP:
            raise ProgramError(
                "a record without a timestamp came to an interval join, which needs one of both sides: declare it with "
                "assign_timestamps_and_watermarks(WatermarkStrategy....with_timestamp_assigner(...)) before key_by()"
            )
        return timestamp < self._timers.current_watermark()

    def add(self, side: int, key: Any, value: Any, timestamp: int) -> Iterator[tuple[int, Any]]:
        """Keep a record that is not late; its partners on the other side with their times, the earliest first."""
        lower, upper = self._bounds[side]
        table = self._tables[side]
        buffer = table.get(key)
        if buffer is None:
            buffer = Buffer()
        buffer.add(timestamp, value)
        table[key] = buffer
        self._timers.register_event_time_timer(SIDES[side], timestamp + max(upper, 0))
        other = self._tables[1 - side].get(key)
        if other is not None:
            yield from other.between(timestamp + lower, timestamp + upper)

    def on_event_time(self, side_name: str, key: Any, time: int) -> None:
        """No partner can come any more for the records that this timer was set for."""
        side = SIDES.index(side_name)
        table = self._tables[side]
        buffer = table.get(key)
        if buffer is None:
            return
        buffer.remove(time - max(self._bounds[side][1], 0))
        if buffer.times:
            table[key] = buffer
        else:
            del table[key]
