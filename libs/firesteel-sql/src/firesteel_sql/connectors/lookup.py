"""The contract of tables whose rows are looked up by key."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

Key = tuple[Any, ...]
"""Values of the key's columns; none is NULL."""
LookedUpRow = Sequence[Any]
"""Values of the table's columns."""


class TableLookup(ABC):
    """Finds rows of a table in another system. It is pickled, then opened in a slot, where ``rows`` may wait."""

    def open(self) -> None:  # noqa: B027 # not all have to connect
        """Connect to the system that has the rows."""

    @abstractmethod
    def rows(self, keys: Sequence[Key]) -> Sequence[Sequence[LookedUpRow]]:
        """The rows of each key, as they are now.

        Args:
            keys: different ones.
        """

    def close(self) -> None:  # noqa: B027
        """Disconnect. Called once, also after a failure."""


@dataclass(frozen=True)
class LookupCache:
    """Rows that are kept for later lookups of their key.

    Attributes:
        most_rows: rows that are kept at most; those whose key was not used for the longest time go first. None = any
            number.
        after_write: how long rows count after they were looked up; None = for ever.
        after_access: how long they count after they were last used; None = for ever.
        keeps_missing: that a key has no row is kept, too.
    """

    most_rows: int | None = None
    after_write: timedelta | None = None
    after_access: timedelta | None = None
    keeps_missing: bool = True
