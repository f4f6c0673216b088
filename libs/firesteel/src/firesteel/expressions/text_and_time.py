"""Functions of text, dates and timestamps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from firesteel.expressions.registry import FunctionCall, InputsRefused, Kernel, function, to
from firesteel.expressions.schema import INSTANT, TIME, TIMESTAMP


def _text(call: FunctionCall) -> None:
    call.refuse_unless(pt.is_string, "text")


@function("length")
def _length(call: FunctionCall) -> tuple[pa.DataType, Kernel]:
    _text(call)
    return pa.int32(), lambda a: pc.utf8_length(to(a, pa.string()))


@function("lower", "upper", "strip")
def _changed(call: FunctionCall) -> tuple[pa.DataType, Kernel]:
    _text(call)
    kernels = {"lower": pc.utf8_lower, "upper": pc.utf8_upper, "strip": pc.utf8_trim_whitespace}
    kernel = kernels[call.name]
    return pa.string(), lambda a: kernel(to(a, pa.string()))


@function("contains", "starts_with", "ends_with", "matches")
def _found(call: FunctionCall) -> tuple[pa.DataType, Kernel]:
    _text(call)
    kernels: dict[str, Any] = {
        "contains": pc.match_substring, "starts_with": pc.starts_with, "ends_with": pc.ends_with,
        "matches": pc.match_substring_regex,
    }  # fmt: skip
    kernel, pattern = kernels[call.name], call.options["pattern"]
    try:
        kernel(pa.array([""], pa.string()), pattern=pattern)
    except pa.ArrowInvalid as error:
        raise InputsRefused(f"{pattern!r} is no regular expression of RE2: {error}") from None
    return pa.bool_(), lambda a: kernel(to(a, pa.string()), pattern=pattern)


@function("replace")
def _replace(call: FunctionCall) -> tuple[pa.DataType, Kernel]:
    _text(call)
    pattern, replacement = call.options["pattern"], call.options["replacement"]
    return pa.string(), lambda a: pc.replace_substring(to(a, pa.string()), pattern=pattern, replacement=replacement)


@function("slice")
def _slice(call: FunctionCall) -> tuple[pa.DataType, Kernel]:
    _text(call)
    start, stop = call.options["start"], call.options["stop"]
    return pa.string(), lambda a: pc.utf8_slice_codeunits(to(a, pa.string()), start=start, stop=stop)


@function("concat")
def _concat(call: FunctionCall) -> tuple[pa.DataType, Kernel]:
    _text(call)

    def kernel(*values: Any) -> Any:
        return pc.binary_join_element_wise(*[to(v, pa.string()) for v in values], "", null_handling="emit_null")

    return pa.string(), kernel


_OF_DATES: dict[str, Callable[[Any], Any]] = {
    "year": pc.year,
    "month": pc.month,
    "day": pc.day,
    "day_of_week": lambda a: pc.day_of_week(a, count_from_zero=False, week_start=1),
    "day_of_year": pc.day_of_year,
}
_OF_TIMES: dict[str, Callable[[Any], Any]] = {
    "hour": pc.hour,
    "minute": pc.minute,
    "second": pc.second,
    "microsecond": lambda a: pc.add(pc.multiply(pc.millisecond(a), 1000), pc.microsecond(a)),
}


@function("date_part")
def _date_part(call: FunctionCall) -> tuple[pa.DataType, Kernel]:
    part, data_type = call.options["part"], call.inputs[0].data_type
    allowed = (pa.date32(), TIMESTAMP, INSTANT) if part in _OF_DATES else (TIME, TIMESTAMP, INSTANT)
    if data_type not in allowed:
        accepted = "a date or a timestamp" if part in _OF_DATES else "a time or a timestamp"
        raise InputsRefused(f"dt.{part}() takes {accepted}, not {call.inputs[0]}")
    kernel = _OF_DATES.get(part) or _OF_TIMES[part]
    return pa.int32(), lambda a: pc.cast(kernel(a), pa.int32())


@function("date", "epoch_millis", "truncate")
def _of_moments(call: FunctionCall) -> tuple[pa.DataType, Kernel]:
    data_type, unit = call.inputs[0].data_type, call.options.get("unit", "day")
    if data_type not in (pa.date32(), TIMESTAMP, INSTANT):
        raise InputsRefused(f"dt.{call.name}() takes a date or a timestamp, not {call.inputs[0]}")
    if call.name == "truncate":
        if data_type == pa.date32() and unit in ("second", "minute", "hour"):
            raise InputsRefused(f"a date has no {unit}s to cut off")
        return data_type, lambda a: pc.cast(pc.floor_temporal(a, unit=unit, week_starts_monday=True), data_type)
    if call.name == "date":
        return pa.date32(), lambda a: pc.cast(pc.floor_temporal(a, unit="day"), pa.date32())
    milliseconds = pa.timestamp("ms")
    return pa.int64(), lambda a: pc.cast(
        pc.cast(pc.floor_temporal(to(a, TIMESTAMP), unit="millisecond"), milliseconds), pa.int64()
    )
