"""The contract of connectors of tables, and how they are found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from firesteel.common import WatermarkStrategy
from firesteel.common.typeinfo import RowTypeInfo
from firesteel.core.plugins import known_names, load
from firesteel.datastream import DataStream, StreamExecutionEnvironment
from firesteel.table.types import DataType
from firesteel_sql.catalog.catalogs import near
from firesteel_sql.catalog.tables import CatalogTable, Identifier, TableColumn
from firesteel_sql.connectors.changelog import INSERT_ONLY, ChangelogMode
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
        watermarks: the strategy of the table's WATERMARK, whose times are columns of ``read_type``; a connector that
            ``makes_watermarks`` runs it for each split. None = watermarks are none of the connector's business.
    """

    identifier: Identifier
    table: CatalogTable
    options: TableOptions
    watermarks: WatermarkStrategy | None = None

    @property
    def physical(self) -> Sequence[TableColumn]:
        """The columns that the connector's rows have besides metadata."""
        return [column for column in self.table.columns if column.is_physical]

    @property
    def metadata(self) -> Sequence[TableColumn]:
        """The columns that hold metadata of the connector."""
        return [column for column in self.table.columns if column.metadata_key is not None]

    @property
    def row_type(self) -> RowTypeInfo:
        """The type of rows of the physical columns."""
        return _row_type(self.physical)

    @property
    def read_type(self) -> RowTypeInfo:
        """The type of the rows that ``read`` gives: physical and metadata columns in the table's order."""
        return _row_type([column for column in self.table.columns if column.computed is None])

    @property
    def write_type(self) -> RowTypeInfo:
        """The type of the rows that ``write`` gets: as ``read_type``, without VIRTUAL columns."""
        return _row_type([column for column in self.table.columns if column.is_written])


def _row_type(columns: Sequence[TableColumn]) -> RowTypeInfo:
    return RowTypeInfo(
        [type_info_of(column.type) for column in columns if column.type is not None],
        [column.name for column in columns],
    )


class TableConnector:
    """Reads the rows of a table, writes them, or both.

    What it declares (modes, metadata) is looked at in planning: those methods read options and start nothing.
    """

    makes_watermarks: ClassVar[bool] = False
    """Whether ``read`` runs ``context.watermarks`` itself, for each split of the source."""

    def source_mode(self, context: TableContext) -> ChangelogMode:
        """The changes that ``read`` gives: ``INSERT_ONLY``, ``UPSERT`` by the table's primary key, ``ALL_CHANGES``.

        Raises:
            TableOptionError: an option is wrong.
        """
        return INSERT_ONLY

    def sink_mode(self, context: TableContext, changes: ChangelogMode) -> ChangelogMode:
        """The changes that ``write`` takes.

        Args:
            context: the table; its primary key is ``context.table.primary_key``.
            changes: what the query gives. A sink that takes everything returns it as it is.

        Raises:
            TableOptionError: an option is wrong.
        """
        return INSERT_ONLY

    def readable_metadata(self, context: TableContext) -> Mapping[str, DataType]:
        """Keys of the metadata that ``read`` knows, with the types of their columns."""
        return {}

    def writable_metadata(self, context: TableContext) -> Mapping[str, DataType]:
        """Keys of the metadata that ``write`` takes, with the types of their columns."""
        return {}

    def read(self, environment: StreamExecutionEnvironment, context: TableContext) -> DataStream:
        """The rows, of the type ``context.read_type``, with kinds as ``source_mode`` says.

        Raises:
            TableOptionError: the connector does not read, or an option is wrong.
        """
        raise context.options.refuse("connector", "names one that only writes")

    def write(self, stream: DataStream, context: TableContext) -> None:
        """Write the rows of a stream of the type ``context.write_type``, with kinds as ``sink_mode`` says.

        Raises:
            TableOptionError: the connector does not write, or an option is wrong.
        """
        raise context.options.refuse("connector", "names one that only reads")

    def removal(self, context: TableContext) -> Callable[[], None]:
        """What removes the rows that the table has now, for TRUNCATE and INSERT OVERWRITE.

        It is called before new rows are written, and what it returns when they are there.

        Raises:
            TableOptionError: the connector can't remove rows, or an option is wrong.
        """
        raise context.options.refuse("connector", "names one whose rows can't be removed by a statement")

    def partitions(self, context: TableContext) -> list[dict[str, str]]:
        """The partitions that the table has now: values by column.

        Raises:
            TableOptionError: the connector has no partitions, or an option is wrong.
        """
        raise context.options.refuse("connector", "names one that has no partitions")


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
