"""Rows of a table, looked up by key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from firesteel.common.typeinfo import RowTypeInfo
from firesteel_jdbc.options import JdbcConnectionOptions, JdbcExecutionOptions
from firesteel_jdbc.sink import StatementRunner
from firesteel_jdbc.values import DeclaredColumns

__all__ = ["JdbcRowLookup"]

_TOGETHER: Final = 200
"""Keys of one query."""


class JdbcRowLookup:
    """Finds the rows of keys in a table as they are now, many keys with one query.

    Args:
        select: ``SELECT`` of the columns, without ``WHERE``.
        key: names of the key's columns, as the database writes them (quoted).
        key_places: their places among the columns.
        row_type: names and types of the columns.
        connection: database to connect to.
        max_retries: attempts after an error, each with a new connection.

    Examples:
        ```python
        import sqlite3

        from firesteel.common import Types
        from firesteel.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcRowLookup

        with sqlite3.connect("goods.db") as database:
            database.execute("CREATE TABLE goods (id INTEGER, name TEXT)")
            database.execute("INSERT INTO goods VALUES (1, 'tea'), (2, 'milk')")
        database.close()
        row = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])
        connection = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url("jdbc:sqlite:goods.db").build()
        lookup = JdbcRowLookup("SELECT id, name FROM goods", ["id"], [0], row, connection)
        print(lookup.rows([(2,), (3,)]))
        lookup.close()
        ```

        ```text
        [[[2, 'milk']], []]
        ```
    """

    def __init__(
        self,
        select: str,
        key: Sequence[str],
        key_places: Sequence[int],
        row_type: RowTypeInfo,
        connection: JdbcConnectionOptions,
        max_retries: int = 3,
    ) -> None:
        self._select, self._key, self._key_places = select, tuple(key), tuple(key_places)
        self._declared, self._database = DeclaredColumns(row_type), connection.database()
        execution = JdbcExecutionOptions.builder().with_max_retries(max_retries).build()
        self._run = StatementRunner(select, row_type, self._database, execution)

    def rows(self, keys: Sequence[Sequence[Any]]) -> list[list[list[Any]]]:
        """The rows of each key, with values of the declared types.

        Args:
            keys: different ones, without None.

        Raises:
            FiresteelError: all attempts have failed.
            ProgramError: a value is not of its type.
        """
        rows_by_key: dict[tuple[Any, ...], list[list[Any]]] = {tuple(key): [] for key in keys}
        for start in range(0, len(keys), _TOGETHER):
            for row in self._fetch(keys[start : start + _TOGETHER]):
                own = rows_by_key.get(tuple(row[place] for place in self._key_places))
                if own is not None:  # None: the database's equality is wider, as that of texts without case
                    own.append(row)
        return list(rows_by_key.values())

    def _fetch(self, keys: Sequence[Sequence[Any]]) -> list[list[Any]]:
        if len(self._key) == 1:
            condition = f"{self._key[0]} IN ({', '.join('?' * len(keys))})"
        else:
            pair = " AND ".join(f"{name} = ?" for name in self._key)
            condition = " OR ".join([f"({pair})"] * len(keys))
        convert = self._database.value_of
        parameters = [convert(value) for key in keys for value in key]
        fetched = self._run.in_transaction(
            lambda connection: connection.run(f"{self._select} WHERE {condition}", parameters)
        )
        return self._declared.rows(fetched)

    def close(self) -> None:
        """Close the connection to the database."""
        self._run.close()
