"""Rows of a database's table, by key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from firesteel.common.typeinfo import RowTypeInfo
from firesteel_sql.connectors.lookup import Key, LookedUpRow, TableLookup


@dataclass
class JdbcLookup(TableLookup):
    """Looks keys up in a table of a database.

    Attributes:
        select: ``SELECT`` of the table's columns, without ``WHERE``.
        key: quoted names of the key's columns.
        key_places: their places among the columns.
        row_type: of the columns.
        connection: ``JdbcConnectionOptions``.
        max_retries: attempts after an error.
    """

    select: str
    key: tuple[str, ...]
    key_places: tuple[int, ...]
    row_type: RowTypeInfo
    connection: Any
    max_retries: int

    @override
    def open(self) -> None:
        from firesteel.datastream.connectors.jdbc import JdbcRowLookup

        self._lookup = JdbcRowLookup(
            self.select, self.key, self.key_places, self.row_type, self.connection, self.max_retries
        )

    @override
    def rows(self, keys: Sequence[Key]) -> Sequence[Sequence[LookedUpRow]]:
        return self._lookup.rows(keys)

    @override
    def close(self) -> None:
        lookup = getattr(self, "_lookup", None)
        if lookup is not None:
            lookup.close()
