"""Errors in the text of a statement, shown with the line and a caret below the place."""

from __future__ import annotations

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
        self.problem = problem
        self.line, self.column = line_and_column(sql, start)
        super().__init__(f"line {self.line}, column {self.column}: {problem}\n{_marked(sql, start, end)}")


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
