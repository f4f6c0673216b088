"""Errors in the text of a statement, shown with the line and a caret below the place."""

from __future__ import annotations

import re

from firesteel.core.errors import ProgramError


class SqlError(ProgramError):
    """A statement that can't be run as it is written.

    Args:
        problem: what is wrong, in one sentence without a full stop.
        sql: the text in which it is.
        start: where, as an index into the text.
        end: first index behind it.

    Attributes:
        problem: as given.
        line: number of the line, from 1.
        column: number of the character in the line, from 1.
    """

    def __init__(self, problem: str, sql: str, start: int, end: int) -> None:
        problem = problem.replace("VARCHAR(2147483647)", "STRING").replace("VARBINARY(2147483647)", "BYTES")
        self.problem = problem
        self.line, self.column = line_and_column(sql, start)
        super().__init__(f"line {self.line}, column {self.column}: {problem}\n{_marked(sql, start, end)}")


def place_of(sql: str, at: int, name: str) -> tuple[int, int]:
    """Where a name stands in a statement, as indexes of its begin and its end.

    Args:
        sql: the text.
        at: where the statement begins; the place if the name does not stand behind it.
        name: a name, or a text in quotes.
    """
    forms = (f"`{name.replace('`', '``')}`", f"'{name.replace(chr(39), chr(39) * 2)}'")
    pattern = "|".join((rf"(?<![\w`']){re.escape(name)}(?![\w`'])", *map(re.escape, forms)))
    match = re.compile(pattern).search(sql, at)
    return (at, word_end(sql, at)) if match is None else match.span()


def error_at(sql: str, at: int, problem: str, name: str | None = None) -> SqlError:
    """The error for the word at an index, or for a name behind it."""
    start, end = (at, word_end(sql, at)) if name is None else place_of(sql, at, name)
    return SqlError(problem, sql, start, end)


def line_and_column(sql: str, index: int) -> tuple[int, int]:
    """The line and the column of a character, both from 1."""
    line = sql.count("\n", 0, index) + 1
    return line, index - (sql.rfind("\n", 0, index) + 1) + 1


def word_end(sql: str, at: int) -> int:
    """The index behind the word that begins at this one."""
    end = at
    while end < len(sql) and (sql[end].isalnum() or sql[end] in "_.`$"):
        end += 1
    return max(end, at + 1)


_WIDEST = 100
"""Characters shown of a long line."""


def _marked(sql: str, start: int, end: int) -> str:
    """The line with this place, and carets below it."""
    line, column = line_and_column(sql, start)
    begin = start - column + 1
    text = sql[begin:].split("\n", 1)[0].replace("\t", " ")
    length = max(1, min(end - start, len(text) - column + 1))
    first = max(0, column - 1 + min(length, 20) - _WIDEST)
    shown = text[first : first + _WIDEST].rstrip()
    before = "... " if first else ""
    gutter = f"{line} | "
    carets = " " * (len(before) + column - 1 - first) + "^" * min(length, _WIDEST - (column - 1 - first))
    return f"{gutter}{before}{shown}\n{' ' * (len(gutter) - 2)}| {carets}"
