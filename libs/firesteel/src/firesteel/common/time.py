"""Spans of time and points in time, with PyFlink's names."""

from __future__ import annotations

import datetime
from functools import total_ordering
from typing import TypeAlias

__all__ = ["Duration", "Instant", "Span", "Time", "duration_of", "whole_millis"]

_NANOS = 1_000_000_000


@total_ordering
class Duration:
    """A span of time with nanosecond precision; used by watermark strategies, timeouts and monitoring.

    Examples:
        ```python
        from firesteel.common import Duration

        print(Duration.of_minutes(2).to_millis())
        ```

        ```text
        120000
        ```
    """

    __slots__ = ("_nanos",)

    def __init__(self, nanos: int) -> None:
        self._nanos = int(nanos)

    @staticmethod
    def of_days(days: int) -> Duration:
        """Makes a span from a number of days."""
        return Duration(days * 86_400 * _NANOS)

    @staticmethod
    def of_hours(hours: int) -> Duration:
        """Makes a span from a number of hours."""
        return Duration(hours * 3_600 * _NANOS)

    @staticmethod
    def of_minutes(minutes: int) -> Duration:
        """Makes a span from a number of minutes."""
        return Duration(minutes * 60 * _NANOS)

    @staticmethod
    def of_seconds(seconds: int) -> Duration:
        """Makes a span from a number of seconds."""
        return Duration(seconds * _NANOS)

    @staticmethod
    def of_millis(millis: int) -> Duration:
        """Makes a span from a number of milliseconds."""
        return Duration(millis * 1_000_000)

    @staticmethod
    def of_nanos(nanos: int) -> Duration:
        """Makes a span from a number of nanoseconds."""
        return Duration(nanos)

    def to_nanos(self) -> int:
        """Returns the span in nanoseconds."""
        return self._nanos

    def to_millis(self) -> int:
        """Returns the span in whole milliseconds, rounded down."""
        return self._nanos // 1_000_000

    def to_timedelta(self) -> datetime.timedelta:
        """Returns the span as a ``timedelta``, rounded down to microseconds."""
        return datetime.timedelta(microseconds=self._nanos // 1_000)

    def __eq__(self, other: object) -> bool:
        return self._nanos == other._nanos if isinstance(other, Duration) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return self._nanos < other._nanos if isinstance(other, Duration) else NotImplemented

    def __hash__(self) -> int:
        return hash(("Duration", self._nanos))

    def __repr__(self) -> str:
        seconds, nanos = divmod(self._nanos, _NANOS)
        return f"Duration({seconds}.{nanos:09d} s)"


@total_ordering
class Instant:
    """A point in time: seconds since 1970-01-01 UTC (negative before that) and nanoseconds within the second.

    Raises:
        ValueError: ``nanos`` is not between 0 and 999,999,999.

    Examples:
        ```python
        from firesteel.common import Instant

        print(Instant.of_epoch_milli(1_500).to_epoch_milli())
        ```

        ```text
        1500
        ```
    """

    __slots__ = ("nanos", "seconds")

    def __init__(self, seconds: int, nanos: int) -> None:
        if not 0 <= nanos < _NANOS:
            raise ValueError(f"The nanoseconds of an Instant lie between 0 and 999999999, not {nanos}.")
        self.seconds = seconds
        self.nanos = nanos

    def to_epoch_milli(self) -> int:
        """Returns milliseconds since 1970-01-01 UTC, rounded down."""
        return self.seconds * 1_000 + self.nanos // 1_000_000

    @staticmethod
    def of_epoch_milli(epoch_milli: int) -> Instant:
        """Makes an instant from milliseconds since 1970-01-01 UTC."""
        seconds, millis = divmod(epoch_milli, 1_000)
        return Instant(seconds, millis * 1_000_000)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Instant):
            return NotImplemented
        return (self.seconds, self.nanos) == (other.seconds, other.nanos)

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, Instant):
            return NotImplemented
        return (self.seconds, self.nanos) < (other.seconds, other.nanos)

    def __hash__(self) -> int:
        return hash((self.seconds, self.nanos))

    def __repr__(self) -> str:
        return f"Instant<{self.seconds}, {self.nanos}>"

    def __reduce__(self) -> tuple[type[Instant], tuple[int, int]]:
        return Instant, (self.seconds, self.nanos)


class Time:
    """A span of time in milliseconds; used by windows and state time-to-live.

    Examples:
        ```python
        from firesteel.common import Time

        print(Time.seconds(90).to_milliseconds())
        ```

        ```text
        90000
        ```
    """

    __slots__ = ("_milliseconds",)

    def __init__(self, milliseconds: int) -> None:
        self._milliseconds = int(milliseconds)

    @staticmethod
    def milliseconds(milliseconds: int) -> Time:
        """Makes a span from a number of milliseconds."""
        return Time(milliseconds)

    @staticmethod
    def seconds(seconds: int) -> Time:
        """Makes a span from a number of seconds."""
        return Time(seconds * 1_000)

    @staticmethod
    def minutes(minutes: int) -> Time:
        """Makes a span from a number of minutes."""
        return Time(minutes * 60_000)

    @staticmethod
    def hours(hours: int) -> Time:
        """Makes a span from a number of hours."""
        return Time(hours * 3_600_000)

    @staticmethod
    def days(days: int) -> Time:
        """Makes a span from a number of days."""
        return Time(days * 86_400_000)

    def to_milliseconds(self) -> int:
        """Returns the span in milliseconds."""
        return self._milliseconds

    def __eq__(self, other: object) -> bool:
        return self._milliseconds == other._milliseconds if isinstance(other, Time) else NotImplemented

    def __hash__(self) -> int:
        return hash(("Time", self._milliseconds))

    def __repr__(self) -> str:
        return f"{self._milliseconds} ms"


Span: TypeAlias = Time | Duration | datetime.timedelta
"""Types of spans of time in programs. Flink takes ``Time`` in some places and ``Duration`` in others."""


def duration_of(name: str, span: object) -> Duration:
    """Return a span as a ``Duration``.

    Args:
        name: what the span is, named in the error.
        span: span of time from a program.

    Raises:
        TypeError: ``span`` is not a span of time.
    """
    if isinstance(span, Duration):
        return span
    if isinstance(span, Time):
        return Duration.of_millis(span.to_milliseconds())
    if isinstance(span, datetime.timedelta):
        return Duration(span // datetime.timedelta(microseconds=1) * 1_000)
    raise TypeError(
        f"{name} is a Time, Duration or timedelta such as Time.seconds(10), not {type(span).__name__}: {span!r:.100}"
    )


def whole_millis(name: str, span: object) -> int:
    """Return a span in milliseconds.

    Raises:
        TypeError: ``span`` is not a span of time.
        ValueError: it is not a whole number of milliseconds.
    """
    millis, sub_millis = divmod(duration_of(name, span).to_nanos(), 1_000_000)
    if sub_millis:
        raise ValueError(f"{name} is a whole number of milliseconds, not {span!r}")
    return millis
