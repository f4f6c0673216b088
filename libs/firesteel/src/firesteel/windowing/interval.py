"""The interval join as a pure core: finds pairs of records of two sides that are close in time, and expires records.

A record of the left side at time *l* and one of the right side at *r* are a pair if ``l + lower <= r <= l + upper``.
Each side's records of a key are stored by time, so that a record only reads its partners, however many others exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Protocol

from firesteel.core.errors import ProgramError
from firesteel.windowing.contexts import Timers
from firesteel.windowing.windows import MIN_TIMESTAMP

LEFT: Final = "CLEANUP_NAMESPACE_LEFT"
RIGHT: Final = "CLEANUP_NAMESPACE_RIGHT"
SIDES: Final = (LEFT, RIGHT)


def _buffer(records: dict[int, list[Any]]) -> dict[int, list[Any]]:
    """Named by pickles of earlier versions, which kept all records of a key together; must stay importable."""
    return records


class Records(Protocol):
    """The records of one side of a join, by key and time (epoch ms)."""

    def add(self, key: Any, time: int, record: Any) -> None:
        """Keep a record; several may have the same key and time."""

    def between(self, key: Any, first: int, last: int) -> Iterator[tuple[int, Any]]:
        """The records of a key from ``first`` to ``last``, both included, with their times; the earliest first."""

    def remove(self, key: Any, time: int) -> None:
        """Forget the records of a key and time."""


class IntervalJoiner:
    """The join of one subtask.

    Args:
        lower, upper: bounds of the right record's time, counted from the left record's; both included. ms.
        timers: the timers of the operator; they belong to the current key.
        buffers: the records of the left and of the right side.
    """

    def __init__(
        self,
        lower: int,
        upper: int,
        timers: Timers,
        buffers: tuple[Records, Records],
    ) -> None:
        self._timers, self._buffers = timers, buffers
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
        """Keep a record that is not late; returns its partners on the other side with their times, the earliest first.

        The timer is set to the time from which no partner can come any more.
        """
        lower, upper = self._bounds[side]
        self._buffers[side].add(key, timestamp, value)
        self._timers.register_event_time_timer(SIDES[side], timestamp + max(upper, 0))
        return self._buffers[1 - side].between(key, timestamp + lower, timestamp + upper)

    def on_event_time(self, side_name: str, key: Any, time: int) -> None:
        """Called when a timer fires: removes the records it was set for, for which no partner can come any more."""
        side = SIDES.index(side_name)
        self._buffers[side].remove(key, time - max(self._bounds[side][1], 0))
