"""Functions of dates, times, timestamps and intervals."""

from __future__ import annotations

import calendar
import re
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from firesteel.expressions.registry import Kernel
from firesteel_sql.kernels.casts import EPOCH, MILLISECOND, CastError, read_timestamp
from firesteel_sql.kernels.definition import KernelCall, by_value, kernel
from firesteel_sql.types.intervals import MILLIS, MONTHS


@kernel
def add_millis(call: KernelCall) -> Kernel:
    """A moment and an interval of milliseconds."""
    (moment, _) = call.inputs
    if pt.is_date(moment):
        days = by_value(lambda day, millis: day + timedelta(milliseconds=millis), call.result)
        return lambda value, interval: days(value, interval)
    if pt.is_time(moment):
        return by_value(
            lambda at, millis: (datetime.combine(date(2000, 1, 1), at) + millis * MILLISECOND).time(), call.result
        )
    return lambda value, interval: pc.add(value, pc.multiply(interval, 1000).cast(pa.duration("us"))).cast(call.result)


@kernel
def subtract_millis(call: KernelCall) -> Kernel:
    """A moment less an interval of milliseconds."""
    inner = add_millis_kernel(call)
    return lambda value, interval: inner(value, pc.negate(interval))


def add_millis_kernel(call: KernelCall) -> Kernel:
    """The computation of ``add_millis``."""
    made = add_millis.__wrapped__(call)  # type: ignore[attr-defined]
    return made  # type: ignore[no-any-return]


def _with_months(moment: Any, months: int) -> Any:
    """A date so many months later, at the end of the month where the day is not there."""
    index = moment.year * 12 + moment.month - 1 + months
    year, month = divmod(index, 12)
    day = min(moment.day, calendar.monthrange(year, month + 1)[1])
    return moment.replace(year=year, month=month + 1, day=day)


@kernel
def add_months(call: KernelCall) -> Kernel:
    """A date or timestamp and an interval of months."""
    return by_value(_with_months, call.result)


@kernel
def subtract_months(call: KernelCall) -> Kernel:
    """A date or timestamp less an interval of months."""
    return by_value(lambda moment, months: _with_months(moment, -months), call.result)


@kernel
def millis_between(call: KernelCall) -> Kernel:
    """``(a - b)`` of two timestamps as an interval of milliseconds."""
    return by_value(lambda left, right: _difference(left, right), call.result)


def _difference(left: Any, right: Any) -> int:
    if isinstance(left, time):
        left, right = (datetime.combine(date(2000, 1, 1), one) for one in (left, right))
    return int((left - right) // MILLISECOND)


# -- parts


def _part(unit: str, moment: Any) -> int:
    match unit:
        case "YEAR":
            return int(moment.year)
        case "QUARTER":
            return int((moment.month + 2) // 3)
        case "MONTH":
            return int(moment.month)
        case "WEEK":
            return int(moment.isocalendar().week)
        case "DAY":
            return int(moment.day)
        case "DOY":
            return int(moment.timetuple().tm_yday)
        case "DOW":
            return int(moment.isoweekday() % 7 + 1)
        case "ISODOW":
            return int(moment.isoweekday())
        case "ISOYEAR":
            return int(moment.isocalendar().year)
        case "HOUR":
            return int(getattr(moment, "hour", 0))
        case "MINUTE":
            return int(getattr(moment, "minute", 0))
        case "SECOND":
            return int(getattr(moment, "second", 0))
        case "MILLISECOND":
            return int(getattr(moment, "microsecond", 0) // 1000)
        case "MICROSECOND":
            return int(getattr(moment, "microsecond", 0))
        case "DECADE":
            return int(moment.year // 10)
        case "CENTURY":
            return int((moment.year + 99) // 100)
        case "MILLENNIUM":
            return int((moment.year + 999) // 1000)
    raise ValueError(f"{unit} can't be extracted")


_ARROW_PARTS: Final = {
    "YEAR": pc.year,
    "MONTH": pc.month,
    "DAY": pc.day,
    "HOUR": pc.hour,
    "MINUTE": pc.minute,
    "SECOND": pc.second,
}


@kernel
def extract(call: KernelCall) -> Kernel:
    """``EXTRACT(unit FROM x)``; the unit and the session's zone are options."""
    unit, zone = call.options["unit"], call.options.get("zone", "UTC")
    (moment,) = call.inputs
    quick = _ARROW_PARTS.get(unit)
    if quick is not None and pt.is_timestamp(moment) and moment.tz is None:
        return lambda value: pc.cast(quick(value), call.result)
    if pt.is_integer(moment):
        return by_value(lambda number: _interval_part(unit, number), call.result)
    here = ZoneInfo(zone) if pt.is_timestamp(moment) and moment.tz is not None else None
    if unit == "EPOCH":
        return by_value(_epoch_seconds, call.result)
    return by_value(lambda value: _part(unit, value if here is None else value.astimezone(here)), call.result)


def _epoch_seconds(moment: Any) -> int:
    if isinstance(moment, datetime):
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() // 1)
    return int((moment - date(1970, 1, 1)).days * 86_400)


def _interval_part(unit: str, number: int) -> int:
    sign, size = (1, number) if number >= 0 else (-1, -number)
    if unit in MONTHS:
        return sign * (size // 12 if unit == "YEAR" else size % 12)
    whole = size // MILLIS[unit]
    return sign * (whole if unit == "DAY" else whole % _IN_THE_NEXT[unit])


_IN_THE_NEXT: Final = {"HOUR": 24, "MINUTE": 60, "SECOND": 60, "MILLISECOND": 1000}
"""How many of a unit the next larger one has."""


@kernel
def round_down(call: KernelCall) -> Kernel:
    """``FLOOR(x TO unit)``."""
    unit = call.options["unit"].lower()
    return lambda value: pc.floor_temporal(value, unit=unit, week_starts_monday=False).cast(call.result)


@kernel
def round_up(call: KernelCall) -> Kernel:
    """``CEIL(x TO unit)``."""
    unit = call.options["unit"].lower()
    return lambda value: pc.ceil_temporal(value, unit=unit, week_starts_monday=False).cast(call.result)


@kernel
def timestamp_add(call: KernelCall) -> Kernel:
    """``TIMESTAMPADD(unit, count, x)``."""
    unit = call.options["unit"]
    if unit in MONTHS:
        return by_value(lambda count, moment: _with_months(moment, count * MONTHS[unit]), call.result)
    return by_value(lambda count, moment: _later(moment, count * MILLIS[unit]), call.result)


def _later(moment: Any, millis: int) -> Any:
    if type(moment) is date:
        moment = datetime.combine(moment, time())
    return moment + timedelta(milliseconds=millis)


@kernel
def timestamp_diff(call: KernelCall) -> Kernel:
    """``TIMESTAMPDIFF(unit, a, b)``: whole units from a to b, cut towards zero."""
    unit = call.options["unit"]

    def between(start: Any, end: Any) -> int:
        if type(start) is date:
            start = datetime.combine(start, time(), getattr(end, "tzinfo", None))
        if type(end) is date:
            end = datetime.combine(end, time(), getattr(start, "tzinfo", None))
        if unit not in MONTHS:
            millis = (end - start) // timedelta(microseconds=1)
            size = MILLIS[unit] * 1000
            return int(abs(millis) // size * (1 if millis >= 0 else -1))
        forward = end >= start
        early, late = (start, end) if forward else (end, start)
        months = (late.year - early.year) * 12 + late.month - early.month
        if _with_months(early, months) > late:
            months -= 1
        return int(months // MONTHS[unit] * (1 if forward else -1))

    return by_value(between, call.result)


# -- texts of moments


@lru_cache(256)
def _pieces(pattern: str) -> tuple[tuple[bool, str], ...]:
    """A pattern of Java's DateTimeFormatter as letters and text: ``yyyy-MM-dd'T'HH``."""
    pieces: list[tuple[bool, str]] = []
    for match in re.finditer(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+", pattern):
        quoted = match.group(1)
        if quoted is not None:
            pieces.append((False, quoted.replace("''", "'") or "'"))
        else:
            pieces.append((match.group(2) is not None, match.group()))
    return tuple(pieces)


def _letters(letters: str, moment: datetime) -> str:
    kind, count = letters[0], len(letters)
    match kind:
        case "y" | "u":
            return f"{moment.year % 100:02d}" if count == 2 else f"{moment.year:0{count}d}"
        case "M" | "L":
            if count >= 3:
                return calendar.month_name[moment.month] if count == 4 else calendar.month_abbr[moment.month]
            return f"{moment.month:0{count}d}"
        case "d":
            return f"{moment.day:0{count}d}"
        case "D":
            return f"{moment.timetuple().tm_yday:0{count}d}"
        case "H":
            return f"{moment.hour:0{count}d}"
        case "h":
            return f"{(moment.hour + 11) % 12 + 1:0{count}d}"
        case "m":
            return f"{moment.minute:0{count}d}"
        case "s":
            return f"{moment.second:0{count}d}"
        case "S":
            return f"{moment.microsecond:06d}".ljust(9, "0")[:count]
        case "E":
            return calendar.day_name[moment.weekday()] if count == 4 else calendar.day_abbr[moment.weekday()]
        case "e":
            return f"{moment.isoweekday() % 7 + 1:0{count}d}"
        case "a":
            return "AM" if moment.hour < 12 else "PM"
        case "Q" | "q":
            return f"{(moment.month + 2) // 3:0{count}d}"
    raise ValueError(f"the letter {kind} of a pattern of dates is not supported")


def formatted(moment: datetime, pattern: str) -> str:
    """The text of a moment by a pattern of Java's.

    Raises:
        ValueError: the pattern has a letter without a meaning here.
    """
    return "".join(_letters(text, moment) if is_letters else text for is_letters, text in _pieces(pattern))


@kernel
def date_format(call: KernelCall) -> Kernel:
    """``DATE_FORMAT(ts, 'yyyy-MM-dd')``."""
    moment = call.inputs[0]
    here = ZoneInfo(call.options.get("zone", "UTC")) if pt.is_timestamp(moment) and moment.tz is not None else None

    def text_of(value: Any, pattern: str) -> str:
        if isinstance(value, str):
            value = read_timestamp(value)
        return formatted(value if here is None else value.astimezone(here), pattern)

    by_row = by_value(text_of, call.result)
    if not pt.is_timestamp(moment) or here is not None:
        return by_row

    def compute(value: Any, pattern: Any) -> Any:
        """Texts of days or hours are made once for each of them."""
        unit = None
        if isinstance(pattern, pa.Scalar) and pattern.is_valid:
            letters = {text[0] for is_letters, text in _pieces(pattern.as_py()) if is_letters}
            unit = None if "S" in letters else "second" if "s" in letters else "minute" if "m" in letters else None
            if unit is None and "S" not in letters:
                unit = "hour" if letters & {"H", "h", "a"} else "day"
        return by_row(value if unit is None else pc.floor_temporal(value, unit=unit), pattern)

    return compute


_READ: Final = {
    "y": r"(?P<year>\d{4})", "M": r"(?P<month>\d{1,2})", "d": r"(?P<day>\d{1,2})", "H": r"(?P<hour>\d{1,2})",
    "m": r"(?P<minute>\d{1,2})", "s": r"(?P<second>\d{1,2})", "S": r"(?P<fraction>\d{1,9})",
}  # fmt: skip


@lru_cache(256)
def _reading(pattern: str) -> re.Pattern[str]:
    parts = []
    for is_letters, text in _pieces(pattern):
        if is_letters and text[0] not in _READ:
            raise ValueError(f"the letter {text[0]} of a pattern of dates is not supported for reading")
        parts.append(_READ[text[0]] if is_letters else re.escape(text))
    return re.compile("".join(parts))


def parsed(text: str, pattern: str) -> datetime | None:
    """The moment that a text means by a pattern of Java's; None if it does not fit."""
    if pattern == _USUAL:
        try:
            return read_timestamp(text)
        except CastError:
            return None
    match = _reading(pattern).fullmatch(text)
    if match is None:
        return None
    found = match.groupdict()
    try:
        return datetime(
            int(found.get("year") or 1970), int(found.get("month") or 1), int(found.get("day") or 1),
            int(found.get("hour") or 0), int(found.get("minute") or 0), int(found.get("second") or 0),
            int((found.get("fraction") or "0")[:6].ljust(6, "0")),
        )  # fmt: skip
    except ValueError:
        return None


_USUAL: Final = "yyyy-MM-dd HH:mm:ss"


@kernel
def to_timestamp(call: KernelCall) -> Kernel:
    """``TO_TIMESTAMP(text, pattern)``; NULL where the text does not fit."""
    return by_value(lambda text, pattern=_USUAL: parsed(text, pattern), call.result)


@kernel
def to_date(call: KernelCall) -> Kernel:
    """``TO_DATE(text, pattern)``; NULL where the text does not fit."""

    def day_of(text: str, pattern: str = "yyyy-MM-dd") -> date | None:
        moment = parsed(text, pattern)
        return None if moment is None else moment.date()

    return by_value(day_of, call.result)


@kernel
def to_timestamp_ltz(call: KernelCall) -> Kernel:
    """``TO_TIMESTAMP_LTZ(number, precision)``: seconds (0) or milliseconds (3) since 1970."""
    factor = {0: 1_000_000, 3: 1_000}[call.options["precision"]]
    return lambda value: pc.multiply(pc.cast(value, pa.int64()), factor).cast(call.result)


@kernel
def from_unixtime(call: KernelCall) -> Kernel:
    """``FROM_UNIXTIME(seconds, pattern)`` in the session's zone."""
    here = ZoneInfo(call.options.get("zone", "UTC"))
    return by_value(
        lambda seconds, pattern=_USUAL: formatted(datetime.fromtimestamp(seconds, here), pattern), call.result
    )


@kernel
def unix_timestamp(call: KernelCall) -> Kernel:
    """``UNIX_TIMESTAMP(text, pattern)`` in the session's zone."""
    here = ZoneInfo(call.options.get("zone", "UTC"))

    def seconds_of(text: str, pattern: str = _USUAL) -> int:
        moment = parsed(text, pattern)
        return -(1 << 63) if moment is None else int(moment.replace(tzinfo=here).timestamp() // 1)

    return by_value(seconds_of, call.result)


@kernel
def now(call: KernelCall) -> Kernel:
    """The time at which a batch is worked on: CURRENT_TIMESTAMP, NOW, PROCTIME, CURRENT_DATE and others."""
    here = ZoneInfo(call.options.get("zone", "UTC"))

    def compute() -> Any:
        moment = datetime.now(UTC).replace(microsecond=datetime.now(UTC).microsecond // 1000 * 1000)
        wall = moment.astimezone(here).replace(tzinfo=None)
        if pt.is_date(call.result):
            return pa.scalar(wall.date(), call.result)
        if pt.is_time(call.result):
            return pa.scalar(wall.time(), call.result)
        if pt.is_integer(call.result):
            return pa.scalar((moment - EPOCH) // timedelta(seconds=1), call.result)
        return pa.scalar(wall if call.result.tz is None else moment, call.result)

    return compute
