"""LIKE, SIMILAR TO and regular expressions.

Regular expressions are Java's. One without parts that Arrow's (RE2) lack runs on whole columns, another one on distinct
values. A pattern that is none gives NULL (REGEXP: FALSE), as in Flink; one that is constant is refused when it is
planned.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.expressions.registry import Kernel
from firesteel_sql.kernels.definition import KernelCall, by_value, kernel
from firesteel_sql.kernels.java_regex import JavaRegex, RegexRefused, java_regex


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


# -- SIMILAR TO

_CLASSES = {
    "ALPHA": r"\p{Alpha}", "UPPER": r"\p{Upper}", "LOWER": r"\p{Lower}", "DIGIT": r"\d", "SPACE": " ",
    "WHITESPACE": r"\s", "ALNUM": r"\p{Alnum}",
}  # fmt: skip
_SIMILAR_SPECIAL = "_%^|*+?()[]{}-"


@lru_cache(512)
def similar_regex(pattern: str, escape: str | None) -> re.Pattern[str]:
    """The regular expression of a pattern of SIMILAR TO: ``%`` and ``_`` as in LIKE, the rest as it is.

    Raises:
        ValueError: it is none.
    """
    parts: list[str] = []
    index = 0
    while index < len(pattern):
        char = pattern[index]
        index += 1
        if escape is not None and char == escape:
            if index >= len(pattern) or pattern[index] not in _SIMILAR_SPECIAL + escape:
                raise ValueError(f"'{pattern}' is no pattern: {escape} stands before {_SIMILAR_SPECIAL} or itself")
            parts.append(re.escape(pattern[index]))
            index += 1
        elif char == "%":
            parts.append("(?s:.*)")
        elif char == "_":
            parts.append(".")
        elif char == "[":
            end = _end_of_class(pattern, index)
            named = re.sub(
                r"\[:(\w+):\]", lambda match: _CLASSES.get(match.group(1).upper(), match.group()), pattern[index:end]
            )
            parts.append(f"[{named}]")
            index = end + 1
        else:
            parts.append(char)
    return java_regex("".join(parts)).python


def _end_of_class(pattern: str, index: int) -> int:
    while index < len(pattern) and pattern[index] != "]":
        index = pattern.find(":]", index) + 2 if pattern.startswith("[:", index) else index + 1
    if index >= len(pattern):
        raise ValueError(f"'{pattern}' is no pattern: a [ is not closed")
    return index


@kernel
def similar(call: KernelCall) -> Kernel:
    """``x SIMILAR TO pattern ESCAPE escape``."""
    return by_value(
        lambda text, pattern, escape=None: similar_regex(pattern, escape).fullmatch(text) is not None, call.result
    )


# -- regular expressions


def _compiled(pattern: str) -> JavaRegex | None:
    """The regular expression; None if it is none."""
    try:
        return java_regex(pattern)
    except RegexRefused:
        return None


def _for_arrow(pattern: Any, texts: Any) -> str | None:
    """A constant pattern for Arrow's kernels over a column; None if they have no equal."""
    if not isinstance(pattern, pa.Scalar) or not pattern.is_valid or isinstance(texts, pa.Scalar):
        return None
    compiled = _compiled(pattern.as_py())
    return None if compiled is None else compiled.for_arrow


def _searching(function: Callable[..., Any], in_arrow: Callable[..., Any] | None = None) -> Any:
    """A kernel of a function of a text, a regular expression, and more operands.

    Args:
        function: gets the compiled expression, or None if it is none.
        in_arrow: the same by Arrow: gets the column, the pattern and the other operands; None for what it has not.
    """

    @kernel
    def define(call: KernelCall) -> Kernel:
        by_row = by_value(
            lambda text, pattern, *others: function(
                text, None if (compiled := _compiled(pattern)) is None else compiled.python, *others
            ),
            call.result,
        )

        def compute(texts: Any, pattern: Any, *others: Any) -> Any:
            plain = None if in_arrow is None else _for_arrow(pattern, texts)
            column = None if plain is None or in_arrow is None else in_arrow(texts, plain, *others)
            return by_row(texts, pattern, *others) if column is None else pc.cast(column, call.result)

        return compute

    return define


regexp = _searching(
    lambda text, regex: regex is not None and regex.pattern != "" and regex.search(text) is not None,
    lambda texts, pattern: pc.match_substring_regex(texts, pattern),
)


def _extracted(text: str, regex: re.Pattern[str] | None, group: int = 0) -> str | None:
    match = None if regex is None else regex.search(text)
    if match is None or not 0 <= group <= match.re.groups:
        return None
    return match.group(group)


def _extracted_all(text: str, regex: re.Pattern[str] | None, group: int = 1) -> list[str] | None:
    if regex is None or not 0 <= group <= regex.groups:
        return None
    return [match.group(group) for match in regex.finditer(text)]


def _replaced_in_arrow(texts: Any, pattern: str, by: Any) -> Any:
    if not isinstance(by, pa.Scalar) or not by.is_valid:
        return None
    return pc.replace_substring_regex(texts, pattern, by.as_py().replace("\\", "\\\\"))


def _position(text: str, regex: re.Pattern[str] | None) -> int | None:
    """From 1, in units of UTF-16, as Java counts."""
    if regex is None:
        return None
    match = regex.search(text)
    return 0 if match is None else len(text[: match.start()].encode("utf-16-le")) // 2 + 1


regexp_extract = _searching(_extracted)
regexp_extract_all = _searching(_extracted_all)
regexp_replace = _searching(
    lambda text, regex, by: None if regex is None else regex.sub(lambda match: by, text), _replaced_in_arrow
)
regexp_count = _searching(
    lambda text, regex: None if regex is None else sum(1 for _ in regex.finditer(text)),
    lambda texts, pattern: pc.count_substring_regex(texts, pattern),
)
regexp_instr = _searching(_position)
regexp_substr = _searching(_extracted)
