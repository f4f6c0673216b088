"""CAST and TRY_CAST."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from itertools import accumulate
from typing import Any, Final
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from firesteel.expressions.registry import Kernel
from firesteel.table.types import DataType
from firesteel_sql.kernels import decimals
from firesteel_sql.kernels.definition import KernelCall, by_value, kernel
from firesteel_sql.texts import value_text


class CastError(ValueError):
    """A text that is no value of the type that it is cast to."""


@kernel
def cast(call: KernelCall) -> Kernel:
    """``CAST(x AS type)``; options: ``length`` and ``pads`` of texts, ``zone`` of the session."""
    return _cast(call)


@kernel
def try_cast(call: KernelCall) -> Kernel:
    """``TRY_CAST(x AS type)``: NULL where a text can't be read, also one within an array, a map or a row."""
    source, target = call.inputs[0], call.result
    if pt.is_string(source) and not pt.is_string(target):
        read = _reader(target, call.options.get("zone", "UTC"))

        def value_of(text: str) -> Any:
            try:
                return read(text)
            except CastError:
                return None

        return by_value(value_of, target)
    cast_all = _cast(call)
    if not pt.is_nested(source):
        return cast_all
    nothing = pa.scalar(None, target)

    def cast_each(value: Any) -> Any:
        try:
            return cast_all(value)
        except CastError:
            if isinstance(value, pa.Scalar):
                return nothing
            if len(value) == 1:
                return pa.nulls(1, target)
        middle = len(value) // 2  # few values are wrong: look for them by halves
        halves = [cast_each(value.slice(0, middle)), cast_each(value.slice(middle))]
        return pa.concat_arrays([_whole(half) for half in halves])

    return cast_each


def _cast(call: KernelCall) -> Kernel:
    source, target = call.inputs[0], call.result
    zone = call.options.get("zone", "UTC")
    if pt.is_string(target):
        interval = call.options.get("interval")
        text_of = _writer(source, zone) if interval is None else _interval_writer(interval)
        fitted = _fitted(call.options.get("length"), bool(call.options.get("pads")))
        return lambda value: fitted(text_of(value))
    if pt.is_string(source) and not pt.is_binary(target):
        return by_value(_reader(target, zone), target)
    if pt.is_binary(target):
        length, pads = call.options.get("length"), bool(call.options.get("pads"))
        if pt.is_binary(source) and length is None:
            return lambda value: value
        return by_value(lambda value: _fitted_bytes(value, length, pads), target)
    if source == target:
        return lambda value: value
    if pt.is_nested(target):
        return _nested(source, target, call.options)
    if pt.is_boolean(target):
        return lambda value: pc.not_equal(value, pa.scalar(0, pa.int8()).cast(source))
    if pt.is_boolean(source):
        return _from_boolean(target)
    if pt.is_decimal(target):
        return _to_decimal(source, target)
    if pt.is_decimal(source):
        if pt.is_integer(target):
            return _decimal_to_integer(source, target)
        return lambda value: pc.cast(value, target)
    if pt.is_floating(source) and pt.is_integer(target):
        return _float_to_integer(target)
    if pt.is_temporal(source) or pt.is_temporal(target):
        return _between_moments(source, target, zone)
    return lambda value: pc.cast(value, target, safe=False)  # integers wrap around


def _fitted(length: int | None, pads: bool) -> Callable[[Any], Any]:
    """Cut texts to a length, and fill them up with blanks if the type is CHAR."""
    if length is None:
        return lambda texts: texts
    if pads:
        return lambda texts: pc.utf8_rpad(pc.utf8_slice_codeunits(texts, 0, length), length)
    return lambda texts: pc.utf8_slice_codeunits(texts, 0, length)


def _fitted_bytes(value: bytes | str, length: int | None, pads: bool) -> bytes:
    """Bytes cut to a length, and filled up with zeros if the type is BINARY."""
    data = value.encode() if isinstance(value, str) else value
    if length is None:
        return data
    return data[:length].ljust(length, b"\0") if pads else data[:length]


# -- arrays, maps and rows


def _nested(source: pa.DataType, target: pa.DataType, options: Mapping[str, Any]) -> Kernel:
    """Cast the parts of arrays, maps and rows; fields of rows go by their places, not by their names."""
    pairs = list(zip(_parts(source), _parts(target), strict=True))
    casts = [_cast(KernelCall((old,), new, {"zone": options.get("zone", "UTC")})) for old, new in pairs]

    def compute(value: Any) -> Any:
        if isinstance(value, pa.Scalar):
            return compute(pa.array([value.as_py()], source))[0]
        if isinstance(value, pa.ChunkedArray):
            value = value.combine_chunks()
        mask = pc.is_null(value)
        if pt.is_struct(target):
            fields = [_whole(cast(pc.struct_field(value, [place]))) for place, cast in enumerate(casts)]
            return pa.StructArray.from_arrays(fields, fields=list(target), mask=mask)
        parts = pc.list_flatten(value) if pt.is_list(source) else None
        sizes = [0 if size is None else size for size in _sizes(value)]
        offsets = pa.array([0, *accumulate(sizes)], pa.int32())
        if parts is not None:
            return pa.ListArray.from_arrays(offsets, _whole(casts[0](parts)), mask=mask).cast(target)
        keys, items = (_whole(cast(part)) for cast, part in zip(casts, _entries(value), strict=True))
        maps = pa.MapArray.from_arrays(offsets, keys, items)
        return pc.if_else(mask, pa.scalar(None, maps.type), maps).cast(target)

    return compute


def _parts(data_type: pa.DataType) -> list[pa.DataType]:
    if pt.is_struct(data_type):
        return [field.type for field in data_type]
    return [data_type.key_type, data_type.item_type] if pt.is_map(data_type) else [data_type.value_type]


def _sizes(value: Any) -> list[int | None]:
    if pt.is_list(value.type):
        sizes: list[int | None] = pc.list_value_length(value).to_pylist()
        return sizes
    return [None if pairs is None else len(pairs) for pairs in value.to_pylist()]


def _entries(value: Any) -> tuple[Any, Any]:
    pairs = [pair for entries in value.to_pylist() if entries is not None for pair in entries]
    return (
        pa.array([key for key, _ in pairs], value.type.key_type),
        pa.array([item for _, item in pairs], value.type.item_type),
    )


def _whole(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


# -- numbers


def _from_boolean(target: pa.DataType) -> Kernel:
    if pt.is_decimal(target):
        return lambda value: decimals.fit(pc.cast(pc.cast(value, pa.int8()), pa.decimal128(3, 0)), target)
    return lambda value: pc.cast(value, target)


def _to_decimal(source: pa.DataType, target: pa.DataType) -> Kernel:
    if pt.is_floating(source):
        single = source == pa.float32()

        def of_float(number: float) -> Decimal | None:
            text = str(pa.scalar(number, source).cast(pa.string())) if single else repr(number)
            try:
                exact = Decimal(text)
            except InvalidOperation:
                return None
            return decimals.rounded_or_none(exact, target) if exact.is_finite() else None

        return by_value(of_float, target)
    return lambda value: decimals.fit(value, target)


def _decimal_to_integer(source: pa.DataType, target: pa.DataType) -> Kernel:
    wide = pa.decimal256(76, source.scale)

    def compute(value: Any) -> Any:
        whole = pc.cast(pc.trunc(pc.cast(value, wide)), pa.decimal256(76, 0), safe=False)
        half = 1 << 63
        fits = pc.and_(
            pc.greater_equal(whole, pa.scalar(Decimal(-half), whole.type)),
            pc.less(whole, pa.scalar(Decimal(half), whole.type)),
        )
        bounded = pc.if_else(fits, whole, pa.scalar(None, whole.type))
        return pc.cast(pc.cast(bounded, pa.int64(), safe=False), target, safe=False)

    return compute


def _float_to_integer(target: pa.DataType) -> Kernel:
    """As Java does: what is behind the point is cut, NaN is 0, numbers beyond the type are its ends."""
    first = pa.int32() if target.bit_width <= 32 else pa.int64()
    low, high = -(1 << (first.bit_width - 1)), (1 << (first.bit_width - 1)) - 1

    def of_number(number: float) -> int:
        if number != number:
            return 0
        whole = high if number >= high else low if number <= low else int(number)
        return int(pa.scalar(whole, first).cast(target, safe=False).as_py())

    return by_value(of_number, target)


# -- dates, times and timestamps


def _between_moments(source: pa.DataType, target: pa.DataType, zone: str) -> Kernel:
    here = ZoneInfo(zone)
    local = pa.timestamp("us")
    instant = pa.timestamp("us", "UTC")

    def as_local(value: Any) -> Any:
        if value.type == instant:
            if zone == "UTC":
                return pc.cast(value, local)
            return by_value(lambda moment: moment.astimezone(here).replace(tzinfo=None), local)(value)
        return pc.cast(value, local)

    def compute(value: Any) -> Any:
        if pt.is_time(value.type):
            return by_value(lambda moment: datetime.combine(date(1970, 1, 1), moment), local)(value)
        wall = as_local(value)
        if target == local:
            return wall
        if target == pa.date32():
            return pc.cast(pc.floor_temporal(wall, unit="day"), target)
        if pt.is_time(target):
            return pc.cast(wall, target)
        if zone == "UTC":
            return pc.cast(wall, instant)
        return by_value(lambda moment: moment.replace(tzinfo=here).astimezone(UTC), instant)(wall)

    return compute


# -- texts


def _writer(source: pa.DataType, zone: str) -> Kernel:
    if pt.is_string(source):
        return lambda value: value
    if pt.is_boolean(source):
        return lambda value: pc.if_else(value, pa.scalar("TRUE"), pa.scalar("FALSE"))
    if pt.is_integer(source):
        return lambda value: pc.cast(value, pa.string())
    if pt.is_decimal(source):
        return by_value(lambda number: format(number, "f"), pa.string())
    if pt.is_floating(source):
        from firesteel.common.value_texts import java_double_text, java_float_text

        return by_value(java_float_text if source == pa.float32() else java_double_text, pa.string())
    if pt.is_binary(source):
        return by_value(lambda data: data.decode("utf-8", "replace"), pa.string())
    if pt.is_date(source):
        return lambda value: pc.cast(value, pa.string())
    if pt.is_time(source):
        return by_value(lambda moment: moment.isoformat(), pa.string())
    if pt.is_timestamp(source):
        here = None if source.tz is None else ZoneInfo(zone)
        return by_value(lambda moment: timestamp_text(moment if here is None else moment.astimezone(here)), pa.string())
    return by_value(_nested_text, pa.string())


def _interval_writer(name: str) -> Kernel:
    interval = DataType(name)
    return by_value(lambda size: value_text(size, interval), pa.string())


def timestamp_text(moment: datetime) -> str:
    """``2026-01-31 12:00:00.5``: without zeros at the end of the fraction."""
    text = moment.replace(tzinfo=None).isoformat(" ")
    return text.rstrip("0") if "." in text else text


def _nested_text(value: Any) -> str:
    if isinstance(value, dict):
        return f"({', '.join(map(_part_text, value.values()))})"
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return "{" + ", ".join(f"{_part_text(key)}={_part_text(item)}" for key, item in value) + "}"
    return f"[{', '.join(map(_part_text, value))}]"


def _part_text(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, (dict, list)):
        return _nested_text(value)
    return timestamp_text(value) if isinstance(value, datetime) else str(value)


def _reader(target: pa.DataType, zone: str) -> Callable[[str], Any]:
    """What reads a text; raises ``CastError`` if it can't."""
    if pt.is_integer(target):
        half = 1 << (target.bit_width - 1)

        def integer(text: str) -> int:
            match = re.fullmatch(r"\s*([+-]?\d+)(?:\.\d*)?\s*", text)
            value = int(match.group(1)) if match else None
            if value is None or not -half <= value < half:
                raise CastError(f"'{text}' is no {target.bit_width}-bit integer")
            return value

        return integer
    if pt.is_floating(target):
        return _floating
    if pt.is_decimal(target):

        def decimal(text: str) -> Decimal | None:
            try:
                exact = Decimal(text.strip())
            except InvalidOperation:
                raise CastError(f"'{text}' is no number") from None
            if not exact.is_finite():
                raise CastError(f"'{text}' is no number")
            return decimals.rounded_or_none(exact, target)

        return decimal
    if pt.is_boolean(target):
        return _boolean
    if pt.is_date(target):
        return lambda text: read_timestamp(text).date()
    if pt.is_time(target):
        return _time
    if pt.is_timestamp(target):
        if target.tz is None:
            return read_timestamp
        here = ZoneInfo(zone)
        return lambda text: read_timestamp(text).replace(tzinfo=here).astimezone(UTC)
    if pt.is_binary(target):
        return lambda text: text.encode()
    raise AssertionError(target)


JAVA_DOUBLE: Final = re.compile(
    r"[\x00-\x20]*([+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))[fFdD]?[\x00-\x20]*", re.ASCII
)
"""What Java reads as a DOUBLE, but for hexadecimal ones."""


def read_text(text: str, target: pa.DataType, zone: str) -> Any:
    """The value that a text means as one of another type.

    Raises:
        CastError: it is none.
    """
    return _reader(target, zone)(text)


def _floating(text: str) -> float:
    match = JAVA_DOUBLE.fullmatch(text)
    if match is None:
        raise CastError(f"'{text}' is no number")
    return float(match.group(1))


_BOOLEANS: Final = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), True), **dict.fromkeys(("f", "false", "n", "no", "0"), False),
}  # fmt: skip


def _boolean(text: str) -> bool:
    try:
        return _BOOLEANS[text.strip().lower()]
    except KeyError:
        raise CastError(f"'{text}' is neither true nor false") from None


_TIMESTAMP: Final = re.compile(
    r"\s*(\d{1,4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?)?\s*"
)


def read_timestamp(text: str) -> datetime:
    """``2026-01-31``, ``2026-01-31 12:00:00.5``, with T instead of the blank as well.

    Raises:
        CastError: it is something else.
    """
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise CastError(f"'{text}' is no timestamp: write it as '2026-01-31 12:00:00'")
    year, month, day, hour, minute, second, fraction = match.groups()
    try:
        return datetime(
            int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0),
            int((fraction or "0")[:6].ljust(6, "0")),
        )  # fmt: skip
    except ValueError as error:
        raise CastError(f"'{text}' is no timestamp: {error}") from None


def _time(text: str) -> time:
    match = re.fullmatch(r"\s*(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?\s*", text)
    if match is None:
        return read_timestamp(text).time()
    hour, minute, second, fraction = match.groups()
    try:
        return time(int(hour), int(minute), int(second or 0), int((fraction or "0")[:6].ljust(6, "0")))
    except ValueError as error:
        raise CastError(f"'{text}' is no time of day: {error}") from None


EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND: Final = timedelta(milliseconds=1)
