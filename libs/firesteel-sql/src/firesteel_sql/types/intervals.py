"""Intervals: numbers of months, or of milliseconds."""

from __future__ import annotations

import re
from typing import Final

from firesteel.table.types import DataType

YEAR_MONTH: Final = DataType("INTERVAL_YEAR_MONTH")
"""Intervals of months; columns hold their number."""
DAY_TIME: Final = DataType("INTERVAL_DAY_TIME")
"""Intervals of milliseconds; columns hold their number."""

MILLIS: Final = {
    "MILLISECOND": 1, "SECOND": 1_000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": 86_400_000, "WEEK": 604_800_000,
}  # fmt: skip
"""Milliseconds of a unit."""
MONTHS: Final = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
"""Months of a unit."""


def is_year_month(unit: str) -> bool:
    """Whether intervals of this unit are numbers of months."""
    return unit in MONTHS


def interval_value(text: str, first: str, last: str | None) -> int:
    """The months or milliseconds of an interval's text.

    Args:
        text: ``5``, ``-1.5``, ``1-6``, ``2 03:04:05.678``.
        first: the unit, or the largest one.
        last: the smallest one, if there are two.

    Raises:
        ValueError: the text is no such interval.
    """
    sign, rest = (-1, text.strip()[1:]) if text.strip().startswith("-") else (1, text.strip().removeprefix("+"))
    if last is None:
        return sign * _of_one_unit(rest, first)
    units = _RANGES[(first, last)]
    pattern = _PATTERNS[(first, last)]
    match = re.fullmatch(pattern, rest)
    if match is None:
        raise ValueError(f"'{text}' is no interval {first} TO {last}: write it as {_EXAMPLES[(first, last)]}")
    total = 0
    for place, (unit, digits) in enumerate(zip(units, match.groups(), strict=False)):
        number = int(digits)
        if place and number >= _LIMITS[unit]:
            raise ValueError(f"'{text}' is no interval {first} TO {last}: {unit} is at most {_LIMITS[unit] - 1}")
        total += number * (MONTHS if is_year_month(first) else MILLIS)[unit]
    fraction = match.groupdict().get("fraction")
    return sign * (total + (int(fraction[:3].ljust(3, "0")) if fraction else 0))


def _of_one_unit(text: str, unit: str) -> int:
    match = re.fullmatch(r"(\d+)(?:\.(\d+))?", text)
    if match is None or (match.group(2) is not None and unit != "SECOND"):
        raise ValueError(f"'{text}' is no number of {unit}S")
    if is_year_month(unit):
        return int(match.group(1)) * MONTHS[unit]
    fraction = match.group(2) or ""
    return int(match.group(1)) * MILLIS[unit] + int(fraction[:3].ljust(3, "0"))


_DAY_TIME_UNITS: Final = ("DAY", "HOUR", "MINUTE", "SECOND")
_LIMITS: Final = {"MONTH": 12, "HOUR": 24, "MINUTE": 60, "SECOND": 60}
"""The first number that a smaller unit of an interval can't have."""
_PARTS: Final = {
    "DAY": r"(\d+)",
    "HOUR": r"(\d{1,2})",
    "MINUTE": r"(\d{1,2})",
    "SECOND": r"(\d{1,2})(?:\.(?P<fraction>\d{1,9}))?",
}
_SAMPLES: Final = {"DAY": "1", "HOUR": "02", "MINUTE": "03", "SECOND": "04.567"}


def _ranges() -> dict[tuple[str, str], tuple[str, ...]]:
    ranges = {
        (first, last): _DAY_TIME_UNITS[low : high + 1]
        for low, first in enumerate(_DAY_TIME_UNITS)
        for high, last in enumerate(_DAY_TIME_UNITS)
        if low < high
    }
    return {**ranges, ("YEAR", "MONTH"): ("YEAR", "MONTH")}


def _joined(units: tuple[str, ...], parts: dict[str, str]) -> str:
    first, *others = [parts[unit] for unit in units]
    separator = " " if units[0] == "DAY" else ":"
    return first + "".join(f"{separator if place == 0 else ':'}{part}" for place, part in enumerate(others))


_RANGES: Final = _ranges()
_PATTERNS: Final = {
    units: r"(\d+)-(\d{1,2})" if units[0] == "YEAR" else _joined(_RANGES[units], {**_PARTS, units[0]: r"(\d+)"})
    for units in _RANGES
}
_EXAMPLES: Final = {
    units: "'1-06'" if units[0] == "YEAR" else f"'{_joined(_RANGES[units], _SAMPLES)}'" for units in _RANGES
}
