"""``'connector' = 'jdbc'``: tables of databases."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar, Final

from typing_extensions import override

from firesteel.config.option import BOOL, DURATION, INT, STRING, Option, Secret, enum_of
from firesteel.config.option import SECRET as SECRET_TYPE
from firesteel.datastream import DataStream, StreamExecutionEnvironment
from firesteel_sql.catalog.tables import TableColumn
from firesteel_sql.connectors.changelog import INSERT_ONLY, UPSERT, ChangelogMode
from firesteel_sql.connectors.connector import (
    SCAN_PARALLELISM,
    SINK_PARALLELISM,
    TableConnector,
    TableContext,
    in_parallel,
    read_source,
)
from firesteel_sql.connectors.jdbc_lookup import JdbcLookup
from firesteel_sql.connectors.lookup import LookupCache, TableLookup

URL: Final[Option[str | None]] = Option(
    "url", STRING, None, "Address, as `jdbc:postgresql://host/db` or `jdbc:sqlite:/file`."
)
TABLE_NAME: Final[Option[str | None]] = Option("table-name", STRING, None, "Name of the table there.")
DRIVER: Final[Option[str | None]] = Option("driver", STRING, None, "Driver; that of the URL's database if not set.")
USERNAME: Final[Option[str | None]] = Option("username", STRING, None, "User to log in as.")
PASSWORD: Final[Option[Secret | None]] = Option("password", SECRET_TYPE, None, "Password of the user.")
PARTITION_COLUMN: Final[Option[str | None]] = Option(
    "scan.partition.column", STRING, None, "Column of whole numbers by which several subtasks read parts of the table."
)
PARTITION_NUM: Final[Option[int | None]] = Option("scan.partition.num", INT, None, "Number of parts.", at_least=1)
LOWER_BOUND: Final[Option[int | None]] = Option(
    "scan.partition.lower-bound", INT, None, "Smallest value of the column that is read."
)
UPPER_BOUND: Final[Option[int | None]] = Option(
    "scan.partition.upper-bound", INT, None, "Largest value of the column that is read."
)
FETCH_SIZE: Final = Option("scan.fetch-size", INT, 0, "Rows that are fetched at once; 0 = 4096.", at_least=0)
AUTO_COMMIT: Final = Option("scan.auto-commit", BOOL, True, "Has no effect: reading is one transaction.")
BUFFER_ROWS: Final = Option(
    "sink.buffer-flush.max-rows", INT, 100, "Changes that are written at once at most; 0 = any number.", at_least=0
)
BUFFER_INTERVAL: Final = Option(
    "sink.buffer-flush.interval", DURATION, timedelta(seconds=1), "Longest time for which changes wait; 0 = no limit."
)
MAX_RETRIES: Final = Option("sink.max-retries", INT, 3, "Attempts to write again after an error.", at_least=0)
LOOKUP_CACHE: Final = Option(
    "lookup.cache",
    enum_of("NONE", "PARTIAL", "FULL"),
    "NONE",
    "Whether lookup joins keep rows that they found: NONE or PARTIAL; FULL is refused.",
)
LOOKUP_MAX_ROWS: Final[Option[int | None]] = Option(
    "lookup.partial-cache.max-rows", INT, None, "Rows that are kept at most; any number if not set.", at_least=1
)
LOOKUP_AFTER_WRITE: Final[Option[timedelta | None]] = Option(
    "lookup.partial-cache.expire-after-write", DURATION, None, "How long a row that was found is kept."
)
LOOKUP_AFTER_ACCESS: Final[Option[timedelta | None]] = Option(
    "lookup.partial-cache.expire-after-access", DURATION, None, "How long a row is kept after it was last used."
)
LOOKUP_MISSING: Final = Option("lookup.partial-cache.cache-missing-key", BOOL, True, "Keep also that a key has no row.")
LOOKUP_RETRIES: Final = Option(
    "lookup.max-retries", INT, 3, "Attempts to look rows up again after an error.", at_least=0
)
_BOUNDS: Final = (PARTITION_COLUMN, PARTITION_NUM, LOWER_BOUND, UPPER_BOUND)
_UPSERTS: Final = ("postgresql", "postgres", "sqlite", "duckdb")
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class JdbcConnector(TableConnector):
    """Reads a table once, and writes one: appends rows, or keeps them by their primary key."""

    OPTIONS: ClassVar[Sequence[Option[Any]]] = (
        URL, TABLE_NAME, DRIVER, USERNAME, PASSWORD, PARTITION_COLUMN, PARTITION_NUM, LOWER_BOUND, UPPER_BOUND,
        FETCH_SIZE, AUTO_COMMIT, SCAN_PARALLELISM, BUFFER_ROWS, BUFFER_INTERVAL, MAX_RETRIES, SINK_PARALLELISM,
        LOOKUP_CACHE, LOOKUP_MAX_ROWS, LOOKUP_AFTER_WRITE, LOOKUP_AFTER_ACCESS, LOOKUP_MISSING, LOOKUP_RETRIES,
    )  # fmt: skip
    makes_watermarks = True

    @override
    def sink_mode(self, context: TableContext, changes: ChangelogMode) -> ChangelogMode:
        return UPSERT if context.table.primary_key else INSERT_ONLY

    # -- reading

    @override
    def read(self, environment: StreamExecutionEnvironment, context: TableContext) -> DataStream:
        from firesteel.datastream.connectors.jdbc import JdbcNumericBetweenParametersProvider, JdbcSource

        options = context.options
        names = _Names(context)
        selected = ", ".join(names.quoted(column.name) for column in context.physical)
        sql = f"SELECT {selected} FROM {names.table}"
        builder = JdbcSource.builder().set_connection_options(self._connection(context))
        parts = [option for option in _BOUNDS if options.has(option)]
        if parts and len(parts) < len(_BOUNDS):
            missing = next(option for option in _BOUNDS if option not in parts)
            raise options.refuse(missing.key, f"is missing: it belongs to '{parts[0].key}'")
        if parts:
            column = self._partition_column(context)
            low, high = options.required(LOWER_BOUND), options.required(UPPER_BOUND)
            if low > high:
                raise options.refuse(LOWER_BOUND.key, f"is {low}, which is above the upper bound, {high}")
            sql += f" WHERE {names.quoted(column.name)} BETWEEN ? AND ?"
            provider = JdbcNumericBetweenParametersProvider(low, high).of_batch_num(options.required(PARTITION_NUM))
            builder = builder.set_jdbc_parameter_values_provider(provider)
        # After a restart as many rows are skipped as were read, so their order has to be the same each time.
        order = context.table.primary_key or [column.name for column in context.physical if _is_ordered(column)]
        if order:
            sql += f" ORDER BY {', '.join(names.quoted(name) for name in order)}"
        if options.get(FETCH_SIZE):
            builder = builder.set_result_set_fetch_size(options.get(FETCH_SIZE))
        source = builder.set_sql(sql).set_type_information(context.row_type).build()
        return read_source(environment, source, context)

    def _partition_column(self, context: TableContext) -> TableColumn:
        name = context.options.required(PARTITION_COLUMN)
        column = next((column for column in context.physical if column.name == name), None)
        if column is None or column.type is None or column.type.name not in ("TINYINT", "SMALLINT", "INT", "BIGINT"):
            kind = "no column of the table" if column is None else f"{column.type}"
            raise context.options.refuse(PARTITION_COLUMN.key, f"is '{name}': {kind}; it has to hold whole numbers")
        return column

    @override
    def lookup(self, context: TableContext, keys: Sequence[str]) -> tuple[TableLookup, LookupCache | None]:
        options, names = context.options, _Names(context)
        columns = [column.name for column in context.physical]
        kind = options.get(LOOKUP_CACHE)
        if kind == "FULL":
            raise options.refuse(LOOKUP_CACHE.key, "is FULL: tables are not kept whole; PARTIAL keeps rows in use")
        cache = None
        if kind == "PARTIAL":
            cache = LookupCache(
                options.get(LOOKUP_MAX_ROWS), options.get(LOOKUP_AFTER_WRITE), options.get(LOOKUP_AFTER_ACCESS),
                options.get(LOOKUP_MISSING),
            )  # fmt: skip
        lookup = JdbcLookup(
            f"SELECT {', '.join(map(names.quoted, columns))} FROM {names.table}",
            tuple(map(names.quoted, keys)),
            tuple(map(columns.index, keys)),
            context.row_type,
            self._connection(context),
            options.get(LOOKUP_RETRIES),
        )
        return lookup, cache

    # -- writing

    @override
    def write(self, stream: DataStream, context: TableContext) -> None:
        from firesteel.datastream.connectors.jdbc import JdbcExecutionOptions, JdbcTableSink

        options, names, key = context.options, _Names(context), context.table.primary_key
        columns = [column.name for column in context.physical]
        marks = ", ".join("?" for _ in columns)
        sql = f"INSERT INTO {names.table} ({', '.join(map(names.quoted, columns))}) VALUES ({marks})"
        delete = None
        if key:
            sql += names.on_conflict(key, [name for name in columns if name not in key])
            delete = f"DELETE FROM {names.table} WHERE {' AND '.join(f'{names.quoted(name)} = ?' for name in key)}"
        execution = (
            JdbcExecutionOptions.builder()
            .with_batch_size(options.get(BUFFER_ROWS))
            .with_batch_interval_ms(options.get(BUFFER_INTERVAL) // timedelta(milliseconds=1))
            .with_max_retries(options.get(MAX_RETRIES))
            .build()
        )
        sink = JdbcTableSink(sql, delete, context.row_type, key, self._connection(context), execution)
        if key and options.has(SINK_PARALLELISM):
            stream = stream.key_by(list(key))  # changes of a row stay in their order
        in_parallel(stream.sink_to(sink), context, SINK_PARALLELISM)

    def _connection(self, context: TableContext) -> Any:
        from firesteel.datastream.connectors.jdbc import JdbcConnectionOptions

        options = context.options
        builder = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(options.required(URL))
        driver, user, secret = options.get(DRIVER), options.get(USERNAME), options.get(PASSWORD)
        if driver is not None:
            builder = builder.with_driver_name(driver)
        if user is not None:
            builder = builder.with_user_name(user)
        if secret is not None:
            builder = builder.with_password(secret.reveal())
        return builder.build()


def _is_ordered(column: TableColumn) -> bool:
    return column.type is not None and column.type.name not in ("ARRAY", "MAP", "ROW", "MULTISET")


class _Names:
    """Names and clauses in the dialect of a table's database."""

    def __init__(self, context: TableContext) -> None:
        self._options = context.options
        url = context.options.required(URL)
        self._kind = url.removeprefix("jdbc:").partition(":")[0].lower()
        self._mark = "`" if self._kind in ("mysql", "mariadb") else '"'
        self.table = ".".join(map(self.quoted, context.options.required(TABLE_NAME).split(".")))

    def quoted(self, name: str) -> str:
        """A name in quotes; one with capitals is left as it is, as in Flink: the database decides about its case."""
        if _PLAIN.fullmatch(name) and name != name.lower():
            return name
        return self._mark + name.replace(self._mark, self._mark * 2) + self._mark

    def on_conflict(self, key: Sequence[str], others: Sequence[str]) -> str:
        """What an INSERT does about a row whose key is there.

        Raises:
            TableOptionError: nobody knows how the database says it.
        """
        if self._kind in ("mysql", "mariadb"):
            chosen = others or key
            values = ", ".join(f"{self.quoted(name)} = VALUES({self.quoted(name)})" for name in chosen)
            return f" ON DUPLICATE KEY UPDATE {values}"
        if self._kind not in _UPSERTS:
            raise self._options.refuse(
                URL.key, f"is of '{self._kind}', in which rows with a PRIMARY KEY can't be written: there are "
                f"{', '.join((*_UPSERTS, 'mysql', 'mariadb'))}"
            )  # fmt: skip
        if not others:
            return f" ON CONFLICT ({', '.join(map(self.quoted, key))}) DO NOTHING"
        values = ", ".join(f"{self.quoted(name)} = EXCLUDED.{self.quoted(name)}" for name in others)
        return f" ON CONFLICT ({', '.join(map(self.quoted, key))}) DO UPDATE SET {values}"
