"""Functions of dates, times, timestamps and intervals."""

from __future__ import annotations

import calendar
import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from firesteel.expressions.registry import Kernel
from firesteel_sql.kernels.casts import EPOCH, MILLISECOND
from firesteel_sql.kernels.date_patterns import USUAL, PatternRefused, formatted, parsed, pieces_of
from firesteel_sql.kernels.definition import KernelCall, by_value, kernel, values_kernel
from firesteel_sql.kernels.zones import zone_of
from firesteel_sql.types.intervals import MILLIS, MONTHS


@kernel
def add_millis(call: KernelCall) -> Kernel:
    """A moment and an interval of milliseconds."""
    return _adding_millis(call)


@kernel
def subtract_millis(call: KernelCall) -> Kernel:
    """A moment less an interval of milliseconds."""
    added = _adding_millis(call)
    return lambda value, interval: added(value, pc.negate(interval))


def _adding_millis(call: KernelCall) -> Kernel:
    moment = call.inputs[0]
    if pt.is_date(moment):
        return by_value(lambda day, millis: day + _whole_days(millis), call.result)
    if pt.is_time(moment):
        return by_value(
            lambda at, millis: (datetime.combine(date(2000, 1, 1), at) + millis * MILLISECOND).time(), call.result
        )
    return lambda value, interval: pc.add(value, pc.multiply(interval, 1000).cast(pa.duration("us"))).cast(call.result)


def _whole_days(millis: int) -> timedelta:
    """The days of an interval, cut towards zero as in Flink: a date less an hour is the same date."""
    days = abs(millis) // MILLIS["DAY"]
    return timedelta(days=days if millis >= 0 else -days)


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
        case "NANOSECOND":
            return int(getattr(moment, "microsecond", 0)) * 1000
        case "DECADE":
            return int(moment.year // 10)
        case "CENTURY":
            return int((moment.year + 99) // 100)
        case "MILLENNIUM":
            return int((moment.year + 999) // 1000)
    raise ValueError(f"{unit} can't be extracted")


_ARROW_PARTS: Final = {
    "YEAR": pc.year,
    "QUARTER": pc.quarter,
    "MONTH": pc.month,
    "WEEK": pc.iso_week,
    "DAY": pc.day,
    "DOY": pc.day_of_year,
    "HOUR": pc.hour,
    "MINUTE": pc.minute,
    "SECOND": pc.second,
}
_OF_DATES: Final = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DOY")


@kernel
def extract(call: KernelCall) -> Kernel:
    """``EXTRACT(unit FROM x)``; the unit and the session's zone are options."""
    unit, zone = call.options["unit"], call.options.get("zone", "UTC")
    (moment,) = call.inputs
    quick = _ARROW_PARTS.get(unit)
    if quick is not None and pt.is_timestamp(moment):
        if moment.tz is None:
            return lambda value: pc.cast(quick(value), call.result)
        local = pa.timestamp("us", zone)
        return lambda value: pc.cast(quick(pc.cast(value, local)), call.result)
    if unit in _OF_DATES and pt.is_date(moment):
        return lambda value: pc.cast(_ARROW_PARTS[unit](value), call.result)
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
    if unit == "QUARTER":
        return sign * (max(size % 12 - 1, 0) // 3 + 1)
    if unit in MONTHS:
        return sign * (size // 12 if unit == "YEAR" else size % 12)
    whole = size // MILLIS[unit]
    return sign * (whole if unit == "DAY" else whole % _IN_THE_NEXT[unit])


_IN_THE_NEXT: Final = {"HOUR": 24, "MINUTE": 60, "SECOND": 60, "MILLISECOND": 1000}
"""How many of a unit the next larger one has."""


# -- rounding

_MICROS: Final = {
    "MICROSECOND": 1, "MILLISECOND": 1_000, "SECOND": 1_000_000, "MINUTE": 60_000_000, "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
}  # fmt: skip
"""Microseconds of the units that have a fixed length."""


def _rounded(up: bool) -> Any:
    """``FLOOR(x TO unit)`` and ``CEIL(x TO unit)``; timestamps of a zone are rounded in that of the session."""

    @kernel
    def define(call: KernelCall) -> Kernel:
        unit, zone = call.options["unit"], call.options.get("zone", "UTC")
        (moment,) = call.inputs
        if pt.is_date(moment):
            if unit in _MICROS:
                return lambda value: value
            return by_value(lambda day: _calendar(unit, day, up), call.result)
        if pt.is_time(moment):
            size = _MICROS[unit]
            return lambda value: _within_day(_multiple(pc.cast(value, pa.int64()), size, up), call.result)
        local = pa.timestamp("us")

        def of_wall(wall: Any) -> Any:
            if unit in _MICROS:
                return pc.cast(_multiple(pc.cast(wall, pa.int64()), _MICROS[unit], up), local)
            return by_value(lambda day: datetime.combine(_calendar(unit, day, up), time()), local)(
                pc.cast(pc.floor_temporal(wall, unit="day"), pa.date32())
            )

        def compute(value: Any) -> Any:
            if moment.tz is None:
                return of_wall(value)
            # As in Flink: the zone's offset at the moment itself is taken for the rounded one, too.
            wall = pc.local_timestamp(pc.cast(value, pa.timestamp("us", zone)))
            return pc.add(value, pc.subtract(of_wall(wall), wall))

        return compute

    return define


def _multiple(micros: Any, size: int, up: bool) -> Any:
    """The multiple of a size below a number, or the one that is not below it."""
    remainder = pc.subtract(micros, pc.multiply(pc.divide(micros, size), size))
    below = pc.if_else(pc.less(remainder, 0), pc.add(remainder, size), remainder)
    floor = pc.subtract(micros, below)
    return pc.if_else(pc.equal(below, 0), floor, pc.add(floor, size)) if up else floor


def _within_day(micros: Any, result: pa.DataType) -> Any:
    wrapped = pc.if_else(pc.greater_equal(micros, _MICROS["DAY"]), pc.subtract(micros, _MICROS["DAY"]), micros)
    return pc.cast(pc.cast(wrapped, pa.time64("us")), result)


def _calendar(unit: str, day: date, up: bool) -> date:
    """The first day of the unit in which a day lies, or of the next one if it is not that day."""
    match unit:
        case "WEEK":
            first = day - timedelta(days=day.isoweekday() % 7)
            return first + timedelta(days=7) if up and first != day else first
        case "MONTH" | "QUARTER" | "YEAR":
            months = MONTHS[unit]
            first = day.replace(month=(day.month - 1) // months * months + 1, day=1)
            # Flink looks at the month of the year: CEIL of the first of April TO QUARTER is the first of July.
            is_first = day == (day.replace(month=1, day=1) if unit == "QUARTER" else first)
            return _with_months(first, months) if up and not is_first else first
        case "DECADE":
            return date((day.year // 10 + up) * 10, 1, 1)
        case "CENTURY" | "MILLENNIUM":
            years = 100 if unit == "CENTURY" else 1000
            return date(((day.year + years - 1) // years - 1 + up) * years + 1, 1, 1)
    raise ValueError(f"a moment can't be rounded to {unit}")


round_down = _rounded(up=False)
round_up = _rounded(up=True)


# -- sums and differences


@kernel
def timestamp_add(call: KernelCall) -> Kernel:
    """``TIMESTAMPADD(unit, count, x)``."""
    unit = call.options["unit"]
    if unit in MONTHS:
        return by_value(lambda count, moment: _with_months(moment, count * MONTHS[unit]), call.result)
    return by_value(lambda count, moment: _later(moment, count * MILLIS[unit], call.result), call.result)


def _later(moment: Any, millis: int, result: pa.DataType) -> Any:
    shift = timedelta(milliseconds=millis)
    if isinstance(moment, time):
        return (datetime.combine(date(2000, 1, 1), moment) + shift).time()
    if type(moment) is date:
        later = datetime.combine(moment, time()) + shift
        return later.date() if pt.is_date(result) else later
    return moment + shift


@kernel
def timestamp_diff(call: KernelCall) -> Kernel:
    """``TIMESTAMPDIFF(unit, a, b)``: whole units from a to b, cut towards zero; it wraps around as INTs do."""
    unit, zone = call.options["unit"], call.options.get("zone", "UTC")
    are_local = any((pt.is_timestamp(moment) and moment.tz is None) or pt.is_date(moment) for moment in call.inputs)

    def wall(value: Any) -> Any:
        if pt.is_time(value.type):
            return pc.cast(value, pa.int64())
        if pt.is_timestamp(value.type) and value.type.tz is not None and are_local:
            return pc.local_timestamp(pc.cast(value, pa.timestamp("us", zone)))
        return pc.cast(value, pa.timestamp("us", None if are_local else "UTC"))

    if unit in MONTHS:
        months = by_value(lambda start, end: _months_between(start, end) // MONTHS[unit], pa.int64())
        negative = by_value(lambda start, end: -(_months_between(end, start) // MONTHS[unit]), pa.int64())

        def compute_months(start: Any, end: Any) -> Any:
            first, last = wall(start), wall(end)
            units = pc.if_else(pc.less_equal(first, last), months(first, last), negative(first, last))
            return pc.cast(units, call.result, safe=False)

        return compute_months

    def compute(start: Any, end: Any) -> Any:
        micros = pc.cast(pc.subtract(wall(end), wall(start)), pa.int64())
        size = 1 if unit == "MICROSECOND" else MILLIS[unit] * 1000
        return pc.cast(pc.divide(micros, size), call.result, safe=False)

    return compute


def _months_between(early: datetime, late: datetime) -> int:
    """Whole months from a moment to a later one; 0 if it is not later."""
    if late < early:
        return 0
    months = (late.year - early.year) * 12 + late.month - early.month
    return months - 1 if _with_months(early, months) > late else months


# -- texts of moments


@kernel
def date_format(call: KernelCall) -> Kernel:
    """``DATE_FORMAT(ts, 'yyyy-MM-dd')``; NULL for a text that is no timestamp."""
    moment = call.inputs[0]
    here = ZoneInfo(call.options.get("zone", "UTC")) if pt.is_timestamp(moment) and moment.tz is not None else None

    def text_of(value: Any, pattern: str) -> str | None:
        if isinstance(value, str):
            value = parsed(value, USUAL, is_simple=True)
            if value is None:
                return None
        elif type(value) is date:
            value = datetime.combine(value, time())
        return formatted(value if here is None else value.astimezone(here).replace(tzinfo=None), pattern)

    by_row = by_value(text_of, call.result)
    if not pt.is_timestamp(moment) or here is not None:
        return by_row

    def compute(value: Any, pattern: Any) -> Any:
        # ``by_row`` formats each distinct value once: moments are cut to the smallest unit that the pattern shows.
        unit = None
        if isinstance(pattern, pa.Scalar) and pattern.is_valid:
            letters = {text[0] for is_letters, text in pieces_of(pattern.as_py()) if is_letters}
            if not letters & {"S", "n", "N", "A"}:
                unit = "second" if "s" in letters else "minute" if "m" in letters else None
                unit = unit or ("hour" if letters & {"H", "h", "a", "K", "k"} else "day")
        return by_row(value if unit is None else pc.floor_temporal(value, unit=unit), pattern)

    return compute


_STRICT: Final = re.compile(
    r"(\d{1,4})-(\d{1,2})-(\d{1,2})(?: (\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{0,9}))?)?", re.ASCII
)


def _usual(text: str) -> datetime | None:
    """``2026-01-31 12:00:00.123``, or the day alone; the last day of a month stands for days that it has not."""
    match = _STRICT.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    fraction = int((match.group(7) or "0")[:6].ljust(6, "0"))
    try:
        last = calendar.monthrange(year, month)[1]
        return datetime(year, month, min(day, last) if day <= 31 else day, hour, minute, second, fraction)
    except (ValueError, calendar.IllegalMonthError):
        return None


def _read(text: str, pattern: str) -> datetime | None:
    """A moment by a pattern of ``DateTimeFormatter``, or, as in Flink, by the usual one if it does not fit.

    The zone that stands in a text does not count.
    """
    try:
        moment = None if pattern == USUAL else parsed(text, pattern)
    except PatternRefused:
        moment = None
    return _usual(text) if moment is None else moment.replace(tzinfo=None)


def _milliseconds(moment: datetime) -> datetime:
    """A moment without its microseconds: Flink reads texts and clocks to the millisecond."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


@kernel
def to_timestamp(call: KernelCall) -> Kernel:
    """``TO_TIMESTAMP(text, pattern)``; NULL where the text does not fit."""

    def moment_of(text: str, pattern: str = USUAL) -> datetime | None:
        moment = _read(text, pattern)
        return None if moment is None else _milliseconds(moment)

    return by_value(moment_of, call.result)


@kernel
def to_date(call: KernelCall) -> Kernel:
    """``TO_DATE(text, pattern)``; NULL where the text does not fit."""

    def day_of(text: str, pattern: str | None = None) -> date | None:
        if pattern is None:
            return _day(text)
        moment = parsed(text, pattern, is_simple=True)
        return None if moment is None else moment.date()

    return by_value(day_of, call.result)


def _day(text: str) -> date | None:
    """``2026-01-31``, ``2026-01`` or ``2026``; a time behind it does not matter."""
    match = re.fullmatch(r"(\d{1,4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?", text.strip().partition(" ")[0], re.ASCII)
    try:
        return None if match is None else date(*(int(part or 1) for part in match.groups()))
    except ValueError:
        return None


@kernel
def to_timestamp_ltz(call: KernelCall) -> Kernel:
    """``TO_TIMESTAMP_LTZ(number, precision)``: seconds (0), milliseconds (3) or microseconds (6) since 1970."""
    factor = 10 ** (6 - call.options["precision"])
    if not pt.is_integer(call.inputs[0]):
        return by_value(lambda value: EPOCH + timedelta(microseconds=int(value) * factor), call.result)
    return lambda value: pc.multiply_checked(pc.cast(value, pa.int64()), factor).cast(call.result)


@kernel
def text_to_timestamp_ltz(call: KernelCall) -> Kernel:
    """``TO_TIMESTAMP_LTZ(text, pattern, zone)``; a text that does not fit is an error, a moment is one of UTC."""

    def moment_of(text: str, pattern: str = USUAL, zone: str = "UTC") -> datetime | None:
        moment = _read(text, pattern)
        if moment is None:
            raise ValueError(f"'{text}' does not fit the pattern '{pattern}'")
        return _milliseconds(moment).replace(tzinfo=zone_of(zone)).astimezone(UTC)

    return by_value(moment_of, call.result)


@kernel
def from_unixtime(call: KernelCall) -> Kernel:
    """``FROM_UNIXTIME(seconds, pattern)`` in the session's zone."""
    here = ZoneInfo(call.options.get("zone", "UTC"))
    return by_value(
        lambda seconds, pattern=USUAL: formatted(
            (EPOCH + timedelta(seconds=seconds)).astimezone(here), pattern, is_simple=True
        ),
        call.result,
    )


@kernel
def unix_timestamp(call: KernelCall) -> Kernel:
    """``UNIX_TIMESTAMP(text, pattern)`` in the session's zone."""
    here = ZoneInfo(call.options.get("zone", "UTC"))

    def seconds_of(text: str, pattern: str = USUAL) -> int:
        moment = parsed(text, pattern, is_simple=True)
        if moment is None:
            return -(1 << 63)
        return ((moment if moment.tzinfo else moment.replace(tzinfo=here)) - EPOCH) // timedelta(seconds=1)

    return by_value(seconds_of, call.result)


def _converted(text: str, source: str, target: str) -> str | None:
    moment = parsed(text, USUAL, is_simple=True)
    if moment is None:
        return None
    return formatted(moment.replace(tzinfo=_zone_or_utc(source)).astimezone(_zone_or_utc(target)), USUAL)


def _zone_or_utc(name: str) -> tzinfo:
    """The zone; UTC for a name that is none, as in Java."""
    try:
        return zone_of(name)
    except ValueError:
        return UTC


convert_tz = values_kernel(_converted)


@kernel
def now(call: KernelCall) -> Kernel:
    """The time at which a batch is worked on: CURRENT_TIMESTAMP, NOW, PROCTIME, CURRENT_DATE and others."""
    here = ZoneInfo(call.options.get("zone", "UTC"))

    def compute() -> Any:
        moment = _milliseconds(datetime.now(UTC))
        wall = moment.astimezone(here).replace(tzinfo=None)
        if pt.is_date(call.result):
            return pa.scalar(wall.date(), call.result)
        if pt.is_time(call.result):
            return pa.scalar(wall.time(), call.result)
        if pt.is_integer(call.result):
            return pa.scalar((moment - EPOCH) // timedelta(seconds=1), call.result)
        return pa.scalar(wall if call.result.tz is None else moment, call.result)

    return compute
