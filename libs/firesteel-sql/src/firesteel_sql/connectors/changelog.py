"""Changelog modes: the kinds of change that a source gives, and those that a sink takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from firesteel.common.types import RowKind

_NAMES: Final = {
    RowKind.INSERT: "I",
    RowKind.UPDATE_BEFORE: "UB",
    RowKind.UPDATE_AFTER: "UA",
    RowKind.DELETE: "D",
}


@dataclass(frozen=True)
class ChangelogMode:
    """A set of row kinds, as Flink's class of this name.

    Attributes:
        kinds: the kinds of change that may occur.
        deletes_by_key: a delete has the columns of the primary key only; the others are NULL.
    """

    kinds: frozenset[RowKind]
    deletes_by_key: bool = False

    @classmethod
    def of(cls, kinds: Iterable[RowKind], *, deletes_by_key: bool = False) -> ChangelogMode:
        """The mode of these kinds."""
        return cls(frozenset(kinds), deletes_by_key)

    @property
    def is_append(self) -> bool:
        """Whether rows only come: no update, no delete."""
        return self.kinds == {RowKind.INSERT}

    @property
    def is_upsert(self) -> bool:
        """Whether an update is one row, the new one: consumers find the old one by the primary key.

        Rows of an upsert *source* need a ChangelogNormalize before operators that need the old row: it keeps the last
        row of each primary key, drops rows that change nothing, and gives ``ALL``.
        """
        return RowKind.UPDATE_AFTER in self.kinds and RowKind.UPDATE_BEFORE not in self.kinds

    def missing(self, changes: ChangelogMode) -> frozenset[RowKind]:
        """The kinds among some changes that a sink of this mode does not take.

        Update-before rows are never missing where updates are taken: the planner drops them before an upsert sink.
        """
        missing = changes.kinds - self.kinds
        return missing - {RowKind.UPDATE_BEFORE} if self.is_upsert else missing

    def __str__(self) -> str:
        return f"[{','.join(name for kind, name in _NAMES.items() if kind in self.kinds)}]"


INSERT_ONLY: Final = ChangelogMode.of([RowKind.INSERT])
UPSERT: Final = ChangelogMode.of([RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE], deletes_by_key=True)
"""Updates and deletes by primary key, without update-before rows."""
ALL_CHANGES: Final = ChangelogMode.of(RowKind)
"""Each update is a pair of rows, the one before and the one after it."""
