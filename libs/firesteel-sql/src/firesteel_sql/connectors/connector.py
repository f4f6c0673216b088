"""The contract of connectors of tables, and how they are found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from firesteel.common.typeinfo import RowTypeInfo
from firesteel.core.plugins import known_names, load
from firesteel.datastream import DataStream, StreamExecutionEnvironment
from firesteel_sql.catalog.catalogs import near
from firesteel_sql.catalog.tables import CatalogTable, Identifier, TableColumn
from firesteel_sql.connectors.options import TableOptionError, TableOptions
from firesteel_sql.types.columns import type_info_of

GROUP = "firesteel.sql_connectors"
"""Entry points of connectors, by the value of the option ``connector``."""


@dataclass(frozen=True)
class TableContext:
    """A table that is read or written.

    Attributes:
        identifier: its full name.
        table: its declaration.
        options: its options.
    """

    identifier: Identifier
    table: CatalogTable
    options: TableOptions

    @property
    def physical(self) -> Sequence[TableColumn]:
        """The columns that the connector's rows have."""
        return [column for column in self.table.columns if column.is_physical]

    @property
    def row_type(self) -> RowTypeInfo:
        """The type of the connector's rows."""
        columns = [(column.name, column.type) for column in self.physical]
        return RowTypeInfo(
            [type_info_of(data_type) for _, data_type in columns if data_type is not None],
            [name for name, _ in columns],
        )


class TableConnector:
    """Reads the rows of a table, writes them, or both."""

    def read(self, environment: StreamExecutionEnvironment, context: TableContext) -> DataStream:
        """The rows, of the type ``context.row_type``.

        Raises:
            TableOptionError: the connector does not read, or an option is wrong.
        """
        raise context.options.refuse("connector", "names one that only writes")

    def write(self, stream: DataStream, context: TableContext) -> None:
        """Write the rows of a stream of the type ``context.row_type``.

        Raises:
            TableOptionError: the connector does not write, or an option is wrong.
        """
        raise context.options.refuse("connector", "names one that only reads")


def connector_of(identifier: Identifier, table: CatalogTable) -> tuple[TableConnector, TableContext]:
    """The connector of a table.

    Raises:
        TableOptionError: the table names none, or one that is not installed.
    """
    name = ".".join(identifier)
    options = TableOptions(name, table.options)
    wanted = options.text("connector")
    if wanted is None:
        raise TableOptionError(f"table {name}: WITH ('connector' = '...') is missing; there are {', '.join(_names())}")
    if wanted not in _names():
        raise TableOptionError(f"table {name}: there is no connector '{wanted}'{near(wanted, _names())}")
    connector: TableConnector = load(GROUP, wanted)()
    return connector, TableContext(identifier, table, options)


def _names() -> list[str]:
    return sorted(known_names(GROUP))
