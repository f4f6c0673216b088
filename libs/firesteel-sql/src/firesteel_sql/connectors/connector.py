"""The contract of connectors of tables, and how they are found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, TypeVar

from firesteel.common import WatermarkStrategy
from firesteel.common.typeinfo import RowTypeInfo
from firesteel.config.option import INT, Option
from firesteel.core.plugins import known_names, load
from firesteel.datastream import DataStream, DataStreamSink, StreamExecutionEnvironment
from firesteel.functions.source import EnumeratorSpec, Source
from firesteel.table.types import DataType
from firesteel_sql.catalog.catalogs import near
from firesteel_sql.catalog.tables import CatalogTable, Identifier, TableColumn
from firesteel_sql.connectors.changelog import INSERT_ONLY, ChangelogMode
from firesteel_sql.connectors.formats.format import TableFormat
from firesteel_sql.connectors.lookup import LookupCache, TableLookup
from firesteel_sql.connectors.options import TableOptionError, TableOptions
from firesteel_sql.connectors.watermark_options import WATERMARK_OPTIONS
from firesteel_sql.types.columns import type_info_of

GROUP = "firesteel.sql_connectors"
"""Entry points of connectors, by the value of the option ``connector``."""

SCAN_PARALLELISM: Final[Option[int | None]] = Option(
    "scan.parallelism", INT, None, "Parallelism of the source; that of the job if it is not set.", at_least=1
)
SINK_PARALLELISM: Final[Option[int | None]] = Option(
    "sink.parallelism", INT, None, "Parallelism of the sink; that of what is before it if it is not set.", at_least=1
)


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
        return row_type_of(self.physical)

    @property
    def read_type(self) -> RowTypeInfo:
        """The type of the rows that ``read`` gives: physical and metadata columns in the table's order."""
        return row_type_of([column for column in self.table.columns if column.computed is None])

    @property
    def write_type(self) -> RowTypeInfo:
        """The type of the rows that ``write`` gets: as ``read_type``, without VIRTUAL columns."""
        return row_type_of([column for column in self.table.columns if column.is_written])


def row_type_of(columns: Sequence[TableColumn]) -> RowTypeInfo:
    """The type of rows of columns, each of which has a type."""
    return RowTypeInfo(
        [type_info_of(column.type) for column in columns if column.type is not None],
        [column.name for column in columns],
    )


@dataclass(frozen=True)
class SparkFiles:
    """Files that Spark SQL reads itself.

    Attributes:
        format: Spark's name of their format.
        options: of Spark's reader.
        enumerator: finds them.
    """

    format: str
    options: Mapping[str, str]
    enumerator: EnumeratorSpec


class TableConnector:
    """Reads the rows of a table, writes them, or both.

    What it declares (modes, metadata) is looked at in planning: those methods read options and start nothing.
    """

    OPTIONS: ClassVar[Sequence[Option[Any]]] = ()
    """Options besides those of formats; a ``#`` in a key stands for the name of a column."""
    PREFIXES: ClassVar[Mapping[str, str]] = {}
    """Beginnings of further keys, such as ``properties.``, and what they are for."""
    FORMATS: ClassVar[Sequence[str]] = ()
    """Names of the formats that it has."""
    makes_watermarks: ClassVar[bool] = False
    """Whether ``read`` runs ``context.watermarks`` itself, for each split of the source."""

    def formats(self, context: TableContext) -> Iterator[TableFormat]:
        """Yield the formats of a table.

        Raises:
            TableOptionError: the connector does not have one, or an option is wrong.
        """
        yield from ()

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

    def takes_fields(self, context: TableContext) -> bool:
        """Whether ``read`` finds fields of nested rows by their names, so that the type may have some of them only.

        Raises:
            TableOptionError: an option is wrong.
        """
        return False

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

    def lookup(self, context: TableContext, keys: Sequence[str]) -> tuple[TableLookup, LookupCache | None]:
        """What finds rows by key for joins (``FOR SYSTEM_TIME AS OF`` a processing time), and how long rows are kept.

        Args:
            context: the table; rows have the columns ``context.read_type``.
            keys: names of the columns that are looked up.

        Raises:
            TableOptionError: rows of the table can't be looked up, or an option is wrong.
        """
        raise context.options.refuse("connector", "names one whose rows can't be looked up: jdbc can")

    def write(self, stream: DataStream, context: TableContext) -> None:
        """Write the rows of a stream of the type ``context.write_type``, with kinds as ``sink_mode`` says.

        Raises:
            TableOptionError: the connector does not write, or an option is wrong.
        """
        raise context.options.refuse("connector", "names one that only reads")

    def spark_files(self, context: TableContext) -> SparkFiles | None:
        """What Spark SQL reads in place of ``read``, with the same rows; None = it can't."""
        return None

    def removal(self, context: TableContext, partition: Mapping[str, Any] | None = None) -> Callable[[], None]:
        """What removes rows that the table has now, for TRUNCATE and INSERT OVERWRITE.

        It is called before new rows are written, and what it returns when they are there.

        Args:
            context: the table.
            partition: of INSERT OVERWRITE: the values that PARTITION (...) gives. Rows of other partitions stay; where
                a column of the partition has no value, so do those of partitions that get no rows. None = all go.

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


Part = TypeVar("Part", bound=DataStream | DataStreamSink)


def in_parallel(part: Part, context: TableContext, option: Option[int | None]) -> Part:
    """A part of a job with the parallelism of an option, if that is set."""
    parallelism = context.options.get(option)
    if parallelism is not None:
        part.set_parallelism(parallelism)
    return part


def read_source(environment: StreamExecutionEnvironment, source: Source[Any], context: TableContext) -> DataStream:
    """The rows of a source, with the watermarks of the table for each of its splits."""
    strategy = context.watermarks or WatermarkStrategy.no_watermarks()
    return in_parallel(environment.from_source(source, strategy, context.identifier[2]), context, SCAN_PARALLELISM)


def connector_of(
    identifier: Identifier, table: CatalogTable, *, writes: bool = False
) -> tuple[TableConnector, TableContext]:
    """The connector of a table.

    Args:
        identifier: full name of the table.
        table: its declaration.
        writes: the table is written, not read.

    Returns:
        The connector, and the table with the types that the connector gives to metadata.

    Raises:
        TableOptionError: the table names none, or one that is not installed; or an option or metadata that it does not
            have.
    """
    name = ".".join(identifier)
    options = TableOptions(name, table.options)
    kind = options.raw("connector")
    if kind is None:
        raise TableOptionError(f"table {name}: WITH ('connector' = '...') is missing; there are {', '.join(_names())}")
    if kind not in _names():
        raise TableOptionError(f"table {name}: there is no connector '{kind}'{near(kind, _names())}")
    connector: TableConnector = load(GROUP, kind)()
    context = TableContext(identifier, table, options)
    formats = list(connector.formats(context))
    supported = [option.key for option in connector.OPTIONS] + [f"{prefix}*" for prefix in connector.PREFIXES]
    supported += [f"{one.options.prefix}{option.key}" for one in formats for option in one.OPTIONS]
    if connector.makes_watermarks:
        supported += [option.key for option in WATERMARK_OPTIONS]
    options.refuse_unknown(supported)
    if not context.metadata:
        return connector, context
    known = connector.writable_metadata(context) if writes else connector.readable_metadata(context)
    return connector, replace(context, table=_with_types_of_metadata(name, table, known, writes=writes))


def _with_types_of_metadata(
    name: str, table: CatalogTable, known: Mapping[str, DataType], *, writes: bool
) -> CatalogTable:
    columns = []
    for column in table.columns:
        if column.metadata_key is None or (writes and column.is_virtual):
            columns.append(column)
            continue
        if column.metadata_key not in known:
            hint = near(column.metadata_key, known) or "; it has none"
            raise TableOptionError(
                f"table {name}: the column {column.name} is METADATA FROM '{column.metadata_key}', which the connector "
                f"'{table.options['connector']}' does not {'take' if writes else 'have'}{hint}"
            )
        columns.append(replace(column, type=known[column.metadata_key]))
    return replace(table, columns=tuple(columns))


def _names() -> list[str]:
    return sorted(known_names(GROUP))
