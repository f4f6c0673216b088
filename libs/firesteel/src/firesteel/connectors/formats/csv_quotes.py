"""Quotes the fields of CSV that Jackson's generator quotes, which writes CSV in Flink.

The generator does not look for characters that need quotes, but for any that comes before the separator or the quote in
Unicode. So ``a b`` and ``2020-01-01 00:00:00`` are quoted if commas separate fields, and the text ``3.5`` if semicolons
do. Texts of more than 24 characters are always quoted; numbers, booleans and nulls never are.
"""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.connectors.formats.csv_schema import CsvDialect

__all__ = ["CsvQuotes"]

_LONGEST_UNQUOTED: Final = 24
"""``CsvGenerator``'s ``MAX_QUOTE_CHECK``, in Java's characters of 16 bits."""
_PAIRS: Final = r"[\x{10000}-\x{10FFFF}]"
"""Characters that count as two in Java."""


class CsvQuotes:
    """Quotes texts of one dialect.

    Args:
        dialect: a dialect with a quote character.

    Attributes:
        empty: what is written for an empty text that is the only field; an empty line would hold no row.
    """

    def __init__(self, dialect: CsvDialect) -> None:
        assert dialect.quote is not None
        self._quote, self._escape = dialect.quote, dialect.escape
        self.empty = dialect.quote * 2
        last = max(dialect.separator, dialect.quote, *dialect.line_separator)
        escape = "\\" if dialect.escape is None else dialect.escape
        self._unsafe = re.compile(f"[\0-{re.escape(last)}{re.escape(escape)}]")
        self._arrow_unsafe = f"[\\x{{0}}-\\x{{{ord(last):X}}}\\x{{{ord(escape):X}}}]"

    def text(self, text: str) -> str:
        """Quote a field, if Jackson would."""
        if self._unsafe.search(text) is None and len(text) <= _LONGEST_UNQUOTED:
            if len(text) * 2 <= _LONGEST_UNQUOTED or text.isascii():
                return text
            if len(text.encode("utf-16-le", "surrogatepass")) <= 2 * _LONGEST_UNQUOTED:
                return text
        if self._escape is not None:
            text = text.replace(self._escape, self._escape * 2)
        return f"{self._quote}{text.replace(self._quote, self._quote * 2)}{self._quote}"

    def column(self, column: pa.Array) -> Any:
        """Quote the fields of a column; None stays None."""
        lengths = pc.utf8_length(column)
        if not pc.all(pc.string_is_ascii(column), skip_nulls=True, min_count=0).as_py():
            lengths = pc.add(lengths, pc.count_substring_regex(column, _PAIRS))
        quoted = pc.or_(pc.greater(lengths, _LONGEST_UNQUOTED), pc.match_substring_regex(column, self._arrow_unsafe))
        if not pc.any(quoted).as_py():
            return column
        texts = column if self._escape is None else pc.replace_substring(column, self._escape, self._escape * 2)
        texts = pc.replace_substring(texts, self._quote, self._quote * 2)
        return pc.if_else(quoted, pc.binary_join_element_wise(self._quote, texts, self._quote, ""), column)
