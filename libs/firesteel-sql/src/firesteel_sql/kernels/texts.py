"""Functions of texts. Positions count characters from 1."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.expressions.registry import Kernel
from firesteel_sql.kernels.casts import JAVA_DOUBLE
from firesteel_sql.kernels.definition import KernelCall, by_value, kernel, values_kernel
from firesteel_sql.kernels.printf import FormatRefused, java_format


def _of_column(function: Any) -> Any:
    """A function of one column for which Arrow has a kernel."""

    @kernel
    def define(call: KernelCall) -> Kernel:
        return lambda value: pc.cast(function(value), call.result)

    return define


def _is_constant(value: Any) -> bool:
    return isinstance(value, pa.Scalar) and value.is_valid


def _by_column(function: Any, in_arrow: Any) -> Any:
    """A function that Arrow has a kernel for under conditions.

    Args:
        function: of the values.
        in_arrow: of the columns; None for operands that Arrow's kernel does not fit.
    """

    @kernel
    def define(call: KernelCall) -> Kernel:
        by_row = by_value(function, call.result)

        def compute(value: Any, *others: Any) -> Any:
            column = None if isinstance(value, pa.Scalar) else in_arrow(value, *others)
            return by_row(value, *others) if column is None else column

        return compute

    return define


def _of_ascii(function: Any, in_arrow: Any) -> Any:
    """A function that Arrow has a kernel for where all characters are those of ASCII."""
    return _by_column(
        function,
        lambda texts: in_arrow(texts) if pc.all(pc.string_is_ascii(texts), min_count=0).as_py() is not False else None,
    )


upper = _of_ascii(str.upper, pc.ascii_upper)
lower = _of_ascii(str.lower, pc.ascii_lower)
char_length = _of_column(pc.utf8_length)
reverse = _of_column(pc.utf8_reverse)
initcap = values_kernel(lambda text: re.sub("[A-Za-z0-9]+", lambda word: word.group().capitalize(), text))


@kernel
def concat(call: KernelCall) -> Kernel:
    """``a || b`` and CONCAT: NULL if an operand is NULL."""
    return lambda *values: pc.binary_join_element_wise(*values, "", null_handling="emit_null")


@kernel
def concat_ws(call: KernelCall) -> Kernel:
    """The texts with a separator between them; NULLs are left out."""

    def compute(separator: Any, *values: Any) -> Any:
        if not values:
            return pc.if_else(pc.is_valid(separator), pa.scalar(""), pa.scalar(None, pa.string()))
        return pc.binary_join_element_wise(*values, separator, null_handling="skip")

    return compute


def _substring(text: str, start: int, length: int | None = None) -> str | None:
    if length is not None and length < 0:
        return None
    begin = start - 1 if start > 0 else 0 if start == 0 else len(text) + start
    if begin < 0:
        return ""
    return text[begin:] if length is None else text[begin : begin + length]


def _sliced(texts: Any, start: Any, length: Any = None) -> Any:
    """The part from a constant position on, which is no negative one, with a constant length."""
    if not _is_constant(start) or start.as_py() < 0 or (length is not None and not _is_constant(length)):
        return None
    begin = max(start.as_py() - 1, 0)
    if length is None:
        return pc.utf8_slice_codeunits(texts, begin)
    return None if length.as_py() < 0 else pc.utf8_slice_codeunits(texts, begin, begin + length.as_py())


substring = _by_column(_substring, _sliced)


def _trimmed(side: str, what: str, text: str) -> str:
    if side != "TRAILING":
        text = text.lstrip(what)
    return text if side == "LEADING" else text.rstrip(what)


def _trimming(in_arrow: Any) -> Any:

    def trimmed(texts: Any, what: Any = None) -> Any:
        if what is None:
            return in_arrow(texts, " ")
        return in_arrow(texts, what.as_py()) if _is_constant(what) else None

    return trimmed


_TRIMS = {"BOTH": pc.utf8_trim, "LEADING": pc.utf8_ltrim, "TRAILING": pc.utf8_rtrim}


@kernel
def trim(call: KernelCall) -> Kernel:
    """``TRIM(side characters FROM text)``."""
    by_row = by_value(_trimmed, call.result)

    def compute(side: Any, what: Any, texts: Any) -> Any:
        if isinstance(texts, pa.Scalar) or not _is_constant(side) or not _is_constant(what):
            return by_row(side, what, texts)
        return _TRIMS[side.as_py()](texts, what.as_py())

    return compute


ltrim = _by_column(lambda text, what=" ": text.lstrip(what), _trimming(pc.utf8_ltrim))
rtrim = _by_column(lambda text, what=" ": text.rstrip(what), _trimming(pc.utf8_rtrim))
btrim = _by_column(lambda text, what=" ": text.strip(what), _trimming(pc.utf8_trim))
replace = _by_column(
    str.replace,
    lambda texts, old, new: (
        pc.replace_substring(texts, old.as_py(), new.as_py())
        if _is_constant(old) and _is_constant(new) and old.as_py()
        else None
    ),
)
position = values_kernel(lambda part, text, start=1: text.find(part, max(start - 1, 0)) + 1 if part else 1)


def _position_of(text: str, part: str, start: int = 1, occurrence: int = 1) -> int:
    """The position of an occurrence; from the end, if the start is negative."""
    if occurrence < 1:
        raise ValueError(f"INSTR looks for an occurrence from 1 on, not for {occurrence}")
    if not part:
        return 1
    if start == 0:
        return 0
    if start > 0:
        place = start - 2
        for _ in range(occurrence):
            place = text.find(part, place + 1)
            if place < 0:
                return 0
        return place + 1
    end = len(text) + start + len(part)
    place = len(text)
    for _ in range(occurrence):
        place = text.rfind(part, 0, end)
        if place < 0:
            return 0
        end = place + len(part) - 1
    return place + 1


instr = values_kernel(_position_of)
left = _by_column(
    lambda text, count: text[: max(count, 0)],
    lambda texts, count: pc.utf8_slice_codeunits(texts, 0, max(count.as_py(), 0)) if _is_constant(count) else None,
)
right = values_kernel(lambda text, count: text[-count:] if count > 0 else "")
repeat = values_kernel(lambda text, count: text * max(count, 0))


def _overlaid(text: str, by: str, start: int, length: int | None = None) -> str:
    if not 0 < start <= len(text):
        return text
    size = len(by) if length is None else length
    # Flink leaves the rest out where nothing is replaced.
    rest = text[start - 1 + size :] if size > 0 and start + size <= len(text) else ""
    return text[: start - 1] + by + rest


overlay = values_kernel(_overlaid)


def _padded(text: str, length: int, fill: str, *, is_left: bool) -> str | None:
    if length < 0 or not fill:
        return None
    missing = max(0, length - len(text))
    padding = (fill * (missing // max(len(fill), 1) + 1))[:missing]
    return (padding + text[:length]) if is_left else (text[:length] + padding)


lpad = values_kernel(lambda text, length, fill=" ": _padded(text, length, fill, is_left=True))
rpad = values_kernel(lambda text, length, fill=" ": _padded(text, length, fill, is_left=False))


def _split_index(text: str, separator: str | int, index: int) -> str | None:
    if index < 0 or not text:
        return None
    if isinstance(separator, int):
        separator = chr(separator)
    parts = text.split(separator) if separator else re.split(r"\s", text)
    return parts[index] if index < len(parts) else None


split_index = values_kernel(_split_index)


def _first_byte(text: str) -> int:
    byte = text[0].encode()[0] if text else 0
    return byte - 256 if byte > 127 else byte


ascii_ = values_kernel(_first_byte)
chr_ = values_kernel(lambda code: chr(code & 0xFF) if code >= 0 else "")


def _testing(in_arrow: Any) -> Any:
    return lambda values, part: in_arrow(values, part.as_py()) if _is_constant(part) else None


starts_with = _by_column(lambda value, begin: value.startswith(begin), _testing(pc.starts_with))
ends_with = _by_column(lambda value, end: value.endswith(end), _testing(pc.ends_with))


def _split(text: str, separator: str) -> list[str]:
    return text.split(separator) if separator and text else list(text)


split = values_kernel(_split)


def _translated(text: str | None, old: str | None, new: str | None) -> str | None:
    if text is None or not old:
        return text
    table: dict[int, str | None] = {}
    for place, char in enumerate(old):
        table.setdefault(ord(char), new[place] if new is not None and place < len(new) else None)
    return text.translate(table)


translate = values_kernel(_translated, sees_null=True)


def _chosen(index: int | None, *values: Any) -> Any:
    return values[index - 1] if index is not None and 0 < index <= len(values) else None


elt = values_kernel(_chosen, sees_null=True)


def _printed(pattern: str | None, *values: Any) -> str | None:
    if pattern is None:
        return None
    try:
        return java_format(pattern, values)
    except FormatRefused:
        return None


printf = values_kernel(_printed, sees_null=True)


# -- what a text is


is_alpha = values_kernel(lambda text: bool(text) and all(map(str.isalpha, text)), sees_null=True)
is_digit = values_kernel(
    lambda text: bool(text) and all(unicodedata.category(char) == "Nd" for char in text), sees_null=True
)
is_decimal = values_kernel(lambda text: text is not None and JAVA_DOUBLE.fullmatch(text) is not None, sees_null=True)
