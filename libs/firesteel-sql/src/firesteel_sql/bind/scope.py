"""Which column a name means."""

from __future__ import annotations

from dataclasses import dataclass

from firesteel_sql.catalog.catalogs import near
from firesteel_sql.plan.relations import Column


class NameRefused(Exception):
    """A name means no column, or several; the text says which."""


@dataclass(frozen=True)
class ScopedColumn:
    """A column that a query sees.

    Attributes:
        column: its name and type.
        index: its place in the relation.
        qualifiers: names of its table, each as long as it may be written: ``("b",)``, ``("db", "bids")``.
        is_merged: USING or NATURAL made one column of it and its partner: it needs the name of its table.
    """

    column: Column
    index: int
    qualifiers: tuple[tuple[str, ...], ...]
    is_merged: bool = False


class Scope:
    """The columns that the expressions of a query see, in the order of ``SELECT *``.

    Args:
        columns: of the query.
        outer: what the query around this one sees; None = there is none.
    """

    def __init__(self, columns: list[ScopedColumn], outer: Scope | None = None) -> None:
        self.columns = columns
        self.outer = outer

    def find(self, path: tuple[str, ...]) -> tuple[ScopedColumn, tuple[str, ...], int]:
        """The column that a name means, the names of the fields that follow it, and how many queries it is further out.

        Raises:
            NameRefused: there is none, or there are several.
        """
        for length in range(len(path) - 1, -1, -1):  # the longest name of a table first
            qualifier, name = path[:length], path[length]
            found = [
                scoped
                for scoped in self.columns
                if scoped.column.name == name
                and (qualifier in scoped.qualifiers if qualifier else not scoped.is_merged)
            ]
            if len(found) > 1:
                tables = sorted({".".join(scoped.qualifiers[0]) for scoped in found if scoped.qualifiers})
                where = f": write {' or '.join(f'{table}.{name}' for table in tables)}" if len(tables) > 1 else ""
                raise NameRefused(f"{'.'.join(path[: length + 1])} means several columns{where}")
            if found:
                return found[0], path[length + 1 :], 0
        if self.outer is not None:
            try:
                scoped, fields, depth = self.outer.find(path)
            except NameRefused:
                pass  # the columns of this query are nearer to what was meant
            else:
                return scoped, fields, depth + 1
        raise NameRefused(self._unknown(path))

    def of_table(self, qualifier: tuple[str, ...]) -> list[ScopedColumn]:
        """The columns of a table.

        Raises:
            NameRefused: there is no such table in the query.
        """
        found = [scoped for scoped in self.columns if qualifier in scoped.qualifiers]
        if not found:
            tables = {".".join(scoped.qualifiers[0]) for scoped in self.columns if scoped.qualifiers}
            raise NameRefused(f"the query has no table {'.'.join(qualifier)}{near('.'.join(qualifier), tables)}")
        return found

    @property
    def starred(self) -> list[ScopedColumn]:
        """The columns of ``SELECT *``."""
        return [scoped for scoped in self.columns if not scoped.is_merged]

    def _unknown(self, path: tuple[str, ...]) -> str:
        name = ".".join(path)
        if len(path) > 1:
            tables = {scoped.qualifiers[0][-1] for scoped in self.columns if scoped.qualifiers}
            if path[0] in tables:
                columns = [scoped.column.name for scoped in self.columns if (path[0],) in scoped.qualifiers]
                return f"{path[0]} has no column {path[1]}{near(path[1], columns)}"
        if not self.columns:
            return f"there is no column {name}: the query has no FROM"
        names = [scoped.column.name for scoped in self.columns]
        if len(path) > 1 and path[0] not in names:
            tables = {scoped.qualifiers[0][-1] for scoped in self.columns if scoped.qualifiers}
            return f"there is no column {name}: the query has no table {path[0]}{near(path[0], tables)}"
        return f"there is no column {name}{near(path[-1], [scoped.column.name for scoped in self.columns])}"
