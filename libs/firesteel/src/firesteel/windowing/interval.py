"""The interval join as a pure core: which records of two sides are near enough in time, and for how long they are kept.

A record of the left side at time *l* and one of the right side at *r* are a pair if ``l + lower <= r <= l + upper``.
Each side's records of a key are kept by time, so that a record looks at its partners only, whatever else is kept.
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
    """Where pickles of earlier versions, which kept all records of a key together, look for what makes them again."""
    return records


class Records(Protocol):
    """Records by key and time."""

    def add(self, key: Any, time: int, record: Any) -> None:
        """Keep one."""

    def between(self, key: Any, first: int, last: int) -> Iterator[tuple[int, Any]]:
        """Those of a key from the first time to the last, both included, with their times; the earliest first."""

    def remove(self, key: Any, time: int) -> None:
        """Forget those of a time."""


class IntervalJoiner:
    """The join of one subtask.

    Args:
        lower, upper: bounds of the right record's time, counted from the left record's; both included. ms.
        timers: of the operator; they belong to the current key.
        kept: records of each side, by key and time.
    """

    def __init__(
        self,
        lower: int,
        upper: int,
        timers: Timers,
        kept: tuple[Records, Records],
    ) -> None:
        self._timers, self._kept = timers, kept
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
        self._kept[side].add(key, timestamp, value)
        self._timers.register_event_time_timer(SIDES[side], timestamp + max(upper, 0))
        return self._kept[1 - side].between(key, timestamp + lower, timestamp + upper)

    def on_event_time(self, side_name: str, key: Any, time: int) -> None:
        """No partner can come any more for the records that this timer was set for."""
        side = SIDES.index(side_name)
        self._kept[side].remove(key, time - max(self._bounds[side][1], 0))
