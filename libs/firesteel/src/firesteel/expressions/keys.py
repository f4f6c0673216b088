"""A key that is made of columns."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any


class ColumnKey:
    """Reads the key of a row or tuple; partitioners read it from the columns.

    One column gives its value, several give a tuple.

    Attributes:
        names, indexes: of the columns.
    """

    def __init__(self, names: Sequence[str], indexes: Sequence[int]) -> None:
        self.names, self.indexes = tuple(names), tuple(indexes)
        self._get = itemgetter(*self.indexes)

    def __call__(self, record: Any) -> Any:
        return self._get(record)

    def __reduce__(self) -> tuple[Any, ...]:
        return ColumnKey, (self.names, self.indexes)

    def __repr__(self) -> str:
        return f"columns {', '.join(self.names)}"
