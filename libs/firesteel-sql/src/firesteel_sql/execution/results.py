"""What a statement gives: rows of a query, a table of names, or OK."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from firesteel.common.types import Row
from firesteel.table.types import DataType
from firesteel_sql.texts import KINDS, value_text

_WIDEST = 30
"""Characters of a column that ``print`` shows."""


class TableResult:
    """The result of a statement.

    Args:
        columns: names and types of its columns.
        rows: gives them, one after another.
        job_client: of the job that computes them, or of an INSERT.
        shows_kinds: whether ``print`` has a column ``op``.
        wait: waits until the job has ended.
    """

    def __init__(
        self,
        columns: Sequence[tuple[str, DataType]],
        rows: Callable[[], Iterator[Row]],
        job_client: Any = None,
        *,
        shows_kinds: bool = False,
        wait: Callable[[int | None], None] | None = None,
    ) -> None:
        self._columns, self._rows, self._job_client = list(columns), rows, job_client
        self._shows_kinds, self._wait = shows_kinds, wait

    def get_job_client(self) -> Any:
        """The client of the job; None if the statement has started none."""
        return self._job_client

    def column_names(self) -> list[str]:
        """Names of the columns."""
        return [name for name, _ in self._columns]

    def column_types(self) -> list[DataType]:
        """Types of the columns."""
        return [data_type for _, data_type in self._columns]

    def collect(self) -> Iterator[Row]:
        """The rows, with their kinds; of an unbounded query without an end."""
        return self._rows()

    def wait(self, timeout_ms: int | None = None) -> None:
        """Wait until the job of an INSERT has ended.

        Raises:
            JobExecutionError: it has failed.
            TimeoutError: it has not ended in time.
        """
        if self._wait is not None:
            self._wait(timeout_ms)

    def print(self) -> None:
        """Print the rows as a table; of an unbounded query as they come."""
        names = (["op"] if self._shows_kinds else []) + self.column_names()
        widths = ([2] if self._shows_kinds else []) + [_width_of(name, data_type) for name, data_type in self._columns]
        line = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
        print(f"{line}\n{_line(names, widths)}\n{line}")
        count = 0
        for row in self.collect():
            texts = [value_text(value, data_type) for value, data_type in zip(row, self.column_types(), strict=True)]
            kind = [KINDS[row.get_row_kind().value]] if self._shows_kinds else []
            print(_line([*kind, *texts], widths))
            count += 1
        print(f"{line}\n{count} row{'' if count == 1 else 's'} in set" if count else "Empty set")


def _width_of(name: str, data_type: DataType) -> int:
    return max(_columns_of(name), min(_WIDTHS.get(data_type.name, _WIDEST), _WIDEST))


_WIDTHS = {
    "BOOLEAN": 7, "TINYINT": 7, "SMALLINT": 8, "INT": 11, "BIGINT": 20, "DATE": 10, "TIME": 12, "TIMESTAMP": 26,
    "TIMESTAMP_LTZ": 26,
}  # fmt: skip


def _columns_of(text: str) -> int:
    """How many columns of a terminal a text takes."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def _line(texts: Sequence[str], widths: Sequence[int]) -> str:
    cells = []
    for text, width in zip(texts, widths, strict=True):
        shown = text.replace("\n", "\\n").replace("\r", "\\r").replace("\x1b", "\\x1b")
        if _columns_of(shown) > width:
            while _columns_of(shown) > width - 3:
                shown = shown[:-1]
            shown += "..."
        cells.append(" " * (width - _columns_of(shown)) + shown)
    return f"| {' | '.join(cells)} |"
