"""Functions of texts. Positions count characters from 1."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.expressions.registry import Kernel
from firesteel_sql.kernels.definition import KernelCall, by_value, kernel


def _of_column(function: Any) -> Any:
    """A function of one column for which Arrow has a kernel."""

    @kernel
    def define(call: KernelCall) -> Kernel:
        return lambda value: pc.cast(function(value), call.result)

    return define


def _of_values(function: Any) -> Any:
    """A function that is called for each distinct row of its operands."""

    @kernel
    def define(call: KernelCall) -> Kernel:
        return by_value(function, call.result)

    return define


upper = _of_values(str.upper)
lower = _of_values(str.lower)
char_length = _of_column(pc.utf8_length)
reverse = _of_column(pc.utf8_reverse)
initcap = _of_values(lambda text: re.sub(r"[^\W_]+", lambda word: word.group().capitalize(), text.lower()))


@kernel
def concat(call: KernelCall) -> Kernel:
    """``a || b`` and CONCAT: NULL if an operand is NULL."""
    return lambda *values: pc.binary_join_element_wise(*values, "", null_handling="emit_null")


@kernel
def concat_ws(call: KernelCall) -> Kernel:
    """The texts with a separator between them; NULLs are left out."""
    return lambda separator, *values: pc.binary_join_element_wise(*values, separator, null_handling="skip")


def _substring(text: str, start: int, length: int | None = None) -> str | None:
    if length is not None and length < 0:
        return None
    begin = start - 1 if start > 0 else 0 if start == 0 else len(text) + start
    if begin < 0:
        return ""
    return text[begin:] if length is None else text[begin : begin + length]


substring = _of_values(_substring)


def _trimmed(side: str, what: str, text: str) -> str:
    if side != "TRAILING":
        text = text.lstrip(what)
    return text if side == "LEADING" else text.rstrip(what)


trim = _of_values(_trimmed)
ltrim = _of_values(lambda text, what=" ": text.lstrip(what))
rtrim = _of_values(lambda text, what=" ": text.rstrip(what))
btrim = _of_values(lambda text, what=" ": text.strip(what))
replace = _of_values(lambda text, part, by: text.replace(part, by) if part else text)
position = _of_values(lambda part, text, start=1: text.find(part, start - 1) + 1)
instr = _of_values(lambda text, part: text.find(part) + 1)
left = _of_values(lambda text, count: text[: max(count, 0)])
right = _of_values(lambda text, count: text[-count:] if count > 0 else "")
repeat = _of_values(lambda text, count: text * max(count, 0))
overlay = _of_values(
    lambda text, by, start, length=None: (
        text[: start - 1] + by + text[start - 1 + (len(by) if length is None else length) :]
    )
)


def _padded(text: str, length: int, fill: str, *, is_left: bool) -> str | None:
    if length < 0 or (not fill and length > len(text)):
        return None
    missing = max(0, length - len(text))
    padding = (fill * (missing // max(len(fill), 1) + 1))[:missing]
    return (padding + text[:length]) if is_left else (text[:length] + padding)


lpad = _of_values(lambda text, length, fill=" ": _padded(text, length, fill, is_left=True))
rpad = _of_values(lambda text, length, fill=" ": _padded(text, length, fill, is_left=False))


def _split_index(text: str, separator: str, index: int) -> str | None:
    if index < 0 or not separator:
        return None
    parts = text.split(separator)
    return parts[index] if index < len(parts) else None


split_index = _of_values(_split_index)
ascii_ = _of_values(lambda text: ord(text[0]) if text else 0)
chr_ = _of_values(lambda code: chr(code & 0xFF) if code >= 0 else None)
md5 = _of_values(lambda text: hashlib.md5(text.encode(), usedforsecurity=False).hexdigest())
sha1 = _of_values(lambda text: hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
sha224 = _of_values(lambda text: hashlib.sha224(text.encode()).hexdigest())
sha256 = _of_values(lambda text: hashlib.sha256(text.encode()).hexdigest())
sha384 = _of_values(lambda text: hashlib.sha384(text.encode()).hexdigest())
sha512 = _of_values(lambda text: hashlib.sha512(text.encode()).hexdigest())


# -- patterns


@lru_cache(512)
def like_regex(pattern: str, escape: str | None) -> re.Pattern[str]:
    """The regular expression of a pattern of LIKE.

    Raises:
        ValueError: the escape character stands before something else than ``%``, ``_`` or itself.
    """
    parts = []
    index = 0
    while index < len(pattern):
        char = pattern[index]
        if escape is not None and char == escape:
            index += 1
            if index >= len(pattern) or pattern[index] not in ("%", "_", escape):
                raise ValueError(f"'{pattern}' is no pattern: {escape} stands before %, _ or itself")
            parts.append(re.escape(pattern[index]))
        else:
            parts.append(".*" if char == "%" else "." if char == "_" else re.escape(char))
        index += 1
    return re.compile("".join(parts), re.DOTALL)


@kernel
def like(call: KernelCall) -> Kernel:
    """``x LIKE pattern ESCAPE escape``."""

    def matches(text: str, pattern: str, escape: str | None = None) -> bool:
        return like_regex(pattern, escape).fullmatch(text) is not None

    by_row = by_value(matches, call.result)

    def compute(text: Any, pattern: Any, *escape: Any) -> Any:
        if isinstance(pattern, pa.Scalar) and pattern.is_valid and not escape and "\\" not in pattern.as_py():
            return pc.match_like(text, pattern.as_py())
        return by_row(text, pattern, *escape)

    return compute


@lru_cache(512)
def regex(pattern: str) -> re.Pattern[str]:
    """A regular expression of Java's, as far as Python's are the same.

    Raises:
        ValueError: it is none.
    """
    translated = pattern.replace("(?<", "(?P<").replace("(?P<=", "(?<=").replace("(?P<!", "(?<!")
    try:
        return re.compile(translated)
    except re.error as error:
        raise ValueError(f"'{pattern}' is no regular expression: {error}") from None


regexp = _of_values(lambda text, pattern: regex(pattern).search(text) is not None)


def _extracted(text: str, pattern: str, group: int = 0) -> str | None:
    match = regex(pattern).search(text)
    if match is None or group > (match.re.groups):
        return None
    return match.group(group)


regexp_extract = _of_values(_extracted)
regexp_replace = _of_values(
    lambda text, pattern, by: regex(pattern).sub(re.sub(r"\$(\d)", r"\\\1", by.replace("\\", "\\\\")), text)
)
