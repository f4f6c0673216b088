"""Patterns of dates and times: ``yyyy-MM-dd'T'HH:mm``.

Flink uses two classes of Java's, with other letters and other strictness. ``DateTimeFormatter`` (DATE_FORMAT,
TO_TIMESTAMP) reads a number of digits as the letters say, names as they are written, and the whole text.
``SimpleDateFormat`` (FROM_UNIXTIME, UNIX_TIMESTAMP, CONVERT_TZ, TO_DATE) reads as many digits as there are, takes 25
hours for a day and an hour, and leaves alone what follows.
"""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from functools import lru_cache
from typing import Final

USUAL: Final = "yyyy-MM-dd HH:mm:ss"
_LETTERS: Final = frozenset("GyuYMLwWdDFEecaHhKkmsSAnNQqZXxz")
_ORDINALS: Final = ("1st", "2nd", "3rd", "4th")


class PatternRefused(ValueError):
    """A pattern with a letter that has no meaning."""


@lru_cache(256)
def pieces_of(pattern: str) -> tuple[tuple[bool, str], ...]:
    """The pieces of a pattern: whether they are letters with a meaning, and their text; without brackets.

    Raises:
        PatternRefused: a letter has no meaning, or a quote has no end.
    """
    if pattern.count("'") % 2:
        raise PatternRefused(f"'{pattern}' is no pattern of dates: a quote in it has no end")
    pieces: list[tuple[bool, str]] = []
    for match in re.finditer(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+", pattern):
        quoted = match.group(1)
        if quoted is not None:
            pieces.append((False, quoted.replace("''", "'") or "'"))
            continue
        if match.group(2) and match.group(2) not in _LETTERS:
            raise PatternRefused(f"'{pattern}' is no pattern of dates: the letter {match.group(2)} has no meaning")
        text = match.group() if match.group(2) else match.group().replace("[", "").replace("]", "")
        if text:
            pieces.append((match.group(2) is not None, text))
    return tuple(pieces)


# -- writing


def formatted(moment: datetime, pattern: str, *, is_simple: bool = False) -> str:
    """The text of a moment.

    Args:
        moment: with a zone only for ``SimpleDateFormat``.
        pattern: its letters.
        is_simple: whether they are those of ``SimpleDateFormat``.

    Raises:
        PatternRefused: a letter has no meaning, or needs a zone that is not there.
    """
    return "".join(
        _written(text[0], len(text), moment, is_simple) if is_letters else text
        for is_letters, text in pieces_of(pattern)
    )


def _week(moment: datetime) -> tuple[int, int]:
    """Year and week as in America: weeks begin on Sunday, and that of the first of January is the first one."""
    day = moment.date()
    saturday = day.toordinal() + 6 - day.isoweekday() % 7
    first = date(date.fromordinal(saturday).year, 1, 1) if saturday <= date.max.toordinal() else date(day.year, 1, 1)
    sunday = first.toordinal() - first.isoweekday() % 7
    return first.year, (day.toordinal() - sunday) // 7 + 1


def _written(letter: str, count: int, moment: datetime, is_simple: bool) -> str:
    number: int | None = None
    match letter:
        case "G":
            return {4: "Anno Domini", 5: "A"}.get(count, "AD")
        case "y" | "u" if letter == "y" or not is_simple:
            number = moment.year % 100 if count == 2 else moment.year
        case "Y":
            year = _week(moment)[0]
            number = year % 100 if count == 2 else year
        case "M" | "L":
            if count >= 3:
                return _named(calendar.month_name, calendar.month_abbr, moment.month, count)
            number = moment.month
        case "w":
            number = _week(moment)[1]
        case "W":
            number = (moment.day + moment.replace(day=1).isoweekday() % 7 - 1) // 7 + 1
        case "d":
            number = moment.day
        case "D":
            number = moment.timetuple().tm_yday
        case "F":
            number = (moment.day - 1) // 7 + 1 if is_simple else (moment.day - 1) % 7 + 1
        case "u":
            number = moment.isoweekday()
        case "E" | "e" | "c":
            if letter == "E" or count >= 3:
                return _named(calendar.day_name, calendar.day_abbr, moment.weekday(), count)
            number = moment.isoweekday() % 7 + 1
        case "a":
            return "AM" if moment.hour < 12 else "PM"
        case "H":
            number = moment.hour
        case "h":
            number = (moment.hour + 11) % 12 + 1
        case "K":
            number = moment.hour % 12
        case "k":
            number = moment.hour or 24
        case "m":
            number = moment.minute
        case "s":
            number = moment.second
        case "S" if is_simple:
            number = moment.microsecond // 1000
        case "S":
            return f"{moment.microsecond:06d}".ljust(9, "0")[:count].ljust(count, "0")
        case "n":
            number = moment.microsecond * 1000
        case "A" | "N":
            micros = ((moment.hour * 60 + moment.minute) * 60 + moment.second) * 1_000_000 + moment.microsecond
            number = micros * 1000 if letter == "N" else micros // 1000
        case "Q" | "q":
            number = (moment.month + 2) // 3
            if count >= 3:
                return f"Q{number}" if count == 3 else f"{_ORDINALS[number - 1]} quarter"
        case "Z" | "X" | "z" if moment.tzinfo is not None:
            return _zone(letter, count, moment)
    if number is None:
        raise PatternRefused(f"the letter {letter} of a pattern of dates has no value here")
    return f"{number:0{count}d}"


def _named(full: object, short: object, place: int, count: int) -> str:
    names = full if count >= 4 else short
    text: str = names[place]  # type: ignore[index]
    return text[0] if count == 5 else text


def _zone(letter: str, count: int, moment: datetime) -> str:
    if letter == "z":
        return moment.tzname() or ""
    minutes = int((moment.utcoffset() or timedelta()).total_seconds() // 60)
    sign, size = "-" if minutes < 0 else "+", abs(minutes)
    if letter == "X" and minutes == 0:
        return "Z"
    hours = f"{sign}{size // 60:02d}"
    if letter == "X" and count == 1:
        return hours
    return f"{hours}{':' if letter == 'X' and count == 3 else ''}{size % 60:02d}"


# -- reading


@dataclass(frozen=True)
class Reading:
    """How texts are read by a pattern.

    Attributes:
        expression: with a group for each number or name.
        letters: what the groups mean.
        is_simple: whether the pattern is one of ``SimpleDateFormat``.
    """

    expression: re.Pattern[str]
    letters: tuple[tuple[str, int], ...]
    is_simple: bool


_MONTHS: Final = [name.lower() for name in calendar.month_name]
_SHORT_MONTHS: Final = [name.lower() for name in calendar.month_abbr]
_DAY_NAMES: Final = [name.lower() for name in calendar.day_abbr]
_DAYS: Final = "|".join([*calendar.day_name, *calendar.day_abbr])


@lru_cache(256)
def reading_of(pattern: str, is_simple: bool) -> Reading:
    """How texts are read by a pattern.

    Raises:
        PatternRefused: a letter has no meaning.
    """
    parts: list[str] = []
    letters: list[tuple[str, int]] = []
    pieces = pieces_of(pattern)
    for place, (is_letters, text) in enumerate(pieces):
        if not is_letters:
            parts.append(re.escape(text))
            continue
        letter, count = text[0], len(text)
        is_adjacent = place + 1 < len(pieces) and pieces[place + 1][0] and _is_number(*_kind(pieces[place + 1][1]))
        letters.append((letter, count))
        parts.append(f"({_expected(letter, count, is_adjacent, is_simple)})")
    return Reading(
        re.compile("".join(parts), re.ASCII | (re.IGNORECASE if is_simple else 0)), tuple(letters), is_simple
    )


def _kind(text: str) -> tuple[str, int]:
    return text[0], len(text)


def _is_number(letter: str, count: int) -> bool:
    return letter not in "GEaZXxz" and not (letter in "MLecQq" and count >= 3)


def _expected(letter: str, count: int, is_adjacent: bool, is_simple: bool) -> str:
    """The regular expression of what a letter reads."""
    if letter in "ML" and count >= 3:
        return "|".join(name for name in [*calendar.month_name, *calendar.month_abbr] if name)
    if letter == "E" or (letter in "ec" and count >= 3):
        return _DAYS
    if letter == "a":
        return "AM|PM"
    if letter == "G":
        return "AD|BC"
    if letter in "ZXx":
        return r"Z|[+-]\d{2}(?::?\d{2})?" if letter == "X" else r"[+-]\d{4}"
    if letter == "z":
        return r"[A-Za-z]+(?:[+-]\d{2}:\d{2})?"
    if is_adjacent:
        return rf"\d{{{count}}}"
    if is_simple:
        return r"\s*-?\d+"
    if letter == "S":
        return rf"\d{{{count}}}"
    if letter in "yuY":
        return r"\d{2}" if count == 2 else rf"\d{{{count},}}"
    return r"\d{1,2}" if count == 1 and letter != "D" else r"\d{1,3}" if letter == "D" else rf"\d{{{count}}}"


def parsed(text: str, pattern: str, *, is_simple: bool = False) -> datetime | None:
    """The moment that a text means; None if it does not fit. It has a zone if the text has one.

    Raises:
        PatternRefused: a letter of the pattern has no meaning.
    """
    reading = reading_of(pattern, is_simple)
    match = reading.expression.match(text) if is_simple else reading.expression.fullmatch(text)
    if match is None:
        return None
    values = dict[str, int]()
    offset: timezone | None = None
    for (letter, count), written in zip(reading.letters, match.groups(), strict=True):
        if letter in "ML" and count >= 3:
            name = written.lower()
            values["M"] = _MONTHS.index(name) if name in _MONTHS else _SHORT_MONTHS.index(name)
        elif letter == "E" or (letter in "ec" and count >= 3):
            values["E"] = _DAY_NAMES.index(written[:3].lower())
        elif letter == "a":
            values["a"] = written.lower() == "pm"
        elif letter in "ZXx":
            offset = _offset(written)
        elif letter == "S" and not is_simple:
            values["S"] = int(written[:6].ljust(6, "0"))
        elif _is_number(letter, count):
            number = int(written)
            if letter in "yuY" and count == 2 and len(written.strip()) == 2:
                number = _century(number, is_simple)
            values["M" if letter == "L" else letter] = number
    try:
        moment = _simple_moment(values) if is_simple else _strict_moment(values)
    except (ValueError, OverflowError):
        return None
    return moment if offset is None or moment is None else moment.replace(tzinfo=offset)


def _offset(text: str) -> timezone:
    if text in ("Z", "z"):
        return UTC
    sign = -1 if text[0] == "-" else 1
    digits = text[1:].replace(":", "").ljust(4, "0")
    return timezone(sign * timedelta(hours=int(digits[:2]), minutes=int(digits[2:])))


def _century(number: int, is_simple: bool) -> int:
    """Two digits of a year: ``SimpleDateFormat`` takes the one from 80 years ago to 20 years ahead."""
    if not is_simple:
        return 2000 + number
    this_year = datetime.now().year
    year = this_year - this_year % 100 + number
    return year - 100 if year > this_year + 20 else year + 100 if year <= this_year - 80 else year


def _hour(values: dict[str, int], is_simple: bool) -> int:
    if "H" in values:
        return values["H"]
    if "k" in values:
        return values["k"] % 24
    half = values.get("K", values.get("h", 0) % 12 if is_simple or 1 <= values.get("h", 12) <= 12 else 99)
    return half + 12 * values.get("a", 0)


def _strict_moment(values: dict[str, int]) -> datetime | None:
    year = values.get("y", values.get("u", 1970))
    if "D" in values:
        day = datetime(year, 1, 1) + timedelta(days=values["D"] - 1)
        if day.year != year:
            return None
    else:
        month, of_month = values.get("M", 1), values.get("d", 1)
        if not 1 <= of_month <= 31:
            return None
        day = datetime(year, month, min(of_month, calendar.monthrange(year, month)[1]))
    if values.get("E", day.weekday()) != day.weekday():
        return None
    hour = _hour(values, False)
    if hour == 24 and not any(values.get(letter) for letter in "msS"):
        hour = 0
    return day.replace(hour=hour, minute=values.get("m", 0), second=values.get("s", 0), microsecond=values.get("S", 0))


def _simple_moment(values: dict[str, int]) -> datetime:
    year, month = divmod(values.get("y", 1970) * 12 + values.get("M", 1) - 1, 12)
    return datetime(year, month + 1, 1) + timedelta(
        days=(values["D"] if "D" in values and "d" not in values else values.get("d", 1)) - 1,
        hours=_hour(values, True),
        minutes=values.get("m", 0),
        seconds=values.get("s", 0),
        milliseconds=values.get("S", 0),
    )
