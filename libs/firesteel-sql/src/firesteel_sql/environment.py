"""The table environment: runs statements, and turns queries into tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import translate
from functools import singledispatchmethod
from re import IGNORECASE, compile
from typing import Any

from firesteel.common import Configuration
from firesteel.common.types import Row
from firesteel.core.errors import ProgramError, UnsupportedFeatureError
from firesteel.datastream import DataStream, RuntimeExecutionMode, StreamExecutionEnvironment
from firesteel.table.types import DataType, DataTypes
from firesteel_sql.bind.queries import QueryBinder
from firesteel_sql.catalog.catalogs import CatalogDatabase, CatalogError, Catalogs
from firesteel_sql.catalog.tables import CatalogTable, CatalogView, InlineView
from firesteel_sql.connectors.connector import connector_of
from firesteel_sql.execution.declarations import Declarations
from firesteel_sql.execution.inserts import insert_relation
from firesteel_sql.execution.results import TableResult
from firesteel_sql.execution.streams import StreamBuilder
from firesteel_sql.functions.signature import FUNCTIONS, Session
from firesteel_sql.parse import statement_nodes as s
from firesteel_sql.parse.errors import SqlError
from firesteel_sql.parse.statements import parse_path, parse_query, parse_statement
from firesteel_sql.plan.relations import Relation, tree_text
from firesteel_sql.show import create_table_text, create_view_text
from firesteel_sql.texts import type_text

_OK = "OK"


class EnvironmentSettings:
    """How a table environment runs jobs.

    Args:
        mode: STREAMING or BATCH.
        configuration: settings of the jobs.
    """

    def __init__(
        self, mode: RuntimeExecutionMode = RuntimeExecutionMode.STREAMING, configuration: Configuration | None = None
    ) -> None:
        self.mode, self.configuration = mode, configuration

    @staticmethod
    def in_streaming_mode() -> EnvironmentSettings:
        """Rows are worked on as they come."""
        return EnvironmentSettings()

    @staticmethod
    def in_batch_mode() -> EnvironmentSettings:
        """All rows are there before the result is given."""
        return EnvironmentSettings(RuntimeExecutionMode.BATCH)


class TableConfig:
    """Settings of a session: ``SET 'key' = 'value'`` and ``get_config().set(key, value)``."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def set(self, key: str, value: str) -> TableConfig:
        """Set an option for the statements that follow."""
        self._values[key] = str(value)
        return self

    def get(self, key: str, default: str) -> str:
        """The value of an option."""
        return self._values.get(key, default)

    def reset(self, key: str | None) -> None:
        """Forget an option, or all."""
        if key is None:
            self._values.clear()
        else:
            self._values.pop(key, None)

    def items(self) -> Iterator[tuple[str, str]]:
        """All options that are set, by their keys."""
        return iter(sorted(self._values.items()))


class Table:
    """A query that can be run, explained, or written into a table."""

    def __init__(self, environment: TableEnvironment, relation: Relation) -> None:
        self._environment, self._relation = environment, relation

    def execute(self) -> TableResult:
        """Start the query as a job; the result gives its rows."""
        return self._environment._collected(self._relation)

    def execute_insert(self, table: str) -> TableResult:
        """Run the query, and write its rows into a table."""
        insert = parse_statement(f"INSERT INTO {table} VALUES (0)")
        assert isinstance(insert, s.Insert)
        return self._environment._inserted([insert], f"INSERT INTO {table}", self._relation)

    def explain(self) -> str:
        """What the query does, step by step."""
        return self._environment._explained(self._relation)

    def print_schema(self) -> None:
        """Print names and types of the columns."""
        lines = [f"  `{column.name}` {type_text(column.type)}" for column in self._relation.columns]
        print("(\n" + ",\n".join(lines) + "\n)")


class TableEnvironment:
    """Runs SQL on streams. Made by ``TableEnvironment.create(EnvironmentSettings.in_streaming_mode())``."""

    def __init__(self, environment: StreamExecutionEnvironment) -> None:
        self._environment = environment
        self._catalogs = Catalogs()
        self._config = TableConfig()

    @classmethod
    def create(cls, settings: EnvironmentSettings | None = None) -> TableEnvironment:
        """Make an environment with a session of its own."""
        chosen = settings or EnvironmentSettings.in_streaming_mode()
        environment = StreamExecutionEnvironment.get_execution_environment(chosen.configuration)
        environment.set_runtime_mode(chosen.mode)
        return cls(environment)

    def get_config(self) -> TableConfig:
        """Settings of the session."""
        return self._config

    # -- statements

    def execute_sql(self, statement: str) -> TableResult:
        """Run a statement.

        Raises:
            SqlError: it is wrong; says where.
            CatalogError: there is no such table, or there is one already.
        """
        try:
            return self._run(parse_statement(statement), statement)
        except RecursionError:
            raise SqlError("the statement is nested too deeply", statement, 0, 1) from None

    def sql_query(self, query: str) -> Table:
        """The table of a query, which is run later.

        Raises:
            SqlError: it is wrong; says where.
        """
        return Table(self, self._bound(parse_query(query).query, query))

    def explain_sql(self, statement: str) -> str:
        """What a statement does, step by step."""
        return "\n".join(str(row[0]) for row in self.execute_sql(f"EXPLAIN {statement}").collect())

    def from_path(self, path: str) -> Table:
        """The rows of a table or view."""
        return self.sql_query(f"SELECT * FROM {path}")

    def create_temporary_view(self, name: str, table: Table) -> None:
        """Give a table a name for other statements."""
        path = parse_path(name)
        self._catalogs.create(path, InlineView(table._relation), is_temporary=True, if_not_exists=False)

    def list_tables(self) -> list[str]:
        """Names of the tables and views of the current database."""
        return self._catalogs.names(self._catalogs.current_catalog, self._catalogs.current_database)

    @property
    def _session(self) -> Session:
        return Session(self._config.get("table.local-time-zone", "UTC"))

    def _bound(self, query: Any, sql: str) -> Relation:
        return QueryBinder(self._catalogs, self._session, sql).bind(query)

    @singledispatchmethod
    def _run(self, statement: s.Statement, sql: str) -> TableResult:
        raise UnsupportedFeatureError(f"{type(statement).__name__} is not supported yet")

    # -- queries and inserts

    @_run.register
    def _(self, statement: s.QueryStatement, sql: str) -> TableResult:
        return self._collected(self._bound(statement.query, sql))

    def _for_a_job(self) -> StreamExecutionEnvironment:
        """The environment of one statement's job: a statement that is refused leaves nothing for the next one."""
        environment = self._environment.with_same_settings()
        about_jobs = {
            key: value for key, value in self._config.items() if not key.startswith(("table.", "sql-client."))
        }
        if about_jobs:
            environment.configure(Configuration.from_dict(about_jobs))
        return environment

    def _collected(self, relation: Relation) -> TableResult:
        stream = StreamBuilder(self._for_a_job()).build(relation)
        columns = [(column.name, column.type) for column in relation.columns]
        found = stream.execute_and_collect("collect")

        def rows() -> Iterator[Row]:
            with found:
                yield from found

        return TableResult(columns, rows, shows_kinds=True)

    @_run.register
    def _(self, statement: s.Insert, sql: str) -> TableResult:
        return self._inserted([statement], sql)

    @_run.register
    def _(self, statement: s.StatementSet, sql: str) -> TableResult:
        return self._inserted(statement.inserts, sql)

    def _inserted(self, inserts: Sequence[s.Insert], sql: str, rows: Relation | None = None) -> TableResult:
        environment = self._for_a_job()
        builder = StreamBuilder(environment)
        names = []
        for insert in inserts:
            relation, identifier, table = insert_relation(self._catalogs, self._session, sql, insert, rows)
            connector, context = connector_of(identifier, table)
            stream: DataStream = builder.build(relation)
            connector.write(stream, context)
            names.append(".".join(identifier))
        client = environment.execute_async(f"insert-into_{','.join(names)}")

        def wait(timeout_ms: int | None) -> None:
            future = client.get_job_execution_result()
            future.result() if timeout_ms is None else future.result(timeout_ms / 1000)

        columns = [(name, DataTypes.BIGINT(False)) for name in names]
        return TableResult(columns, lambda: iter([Row(*[-1] * len(names))]), client, wait=wait)

    # -- EXPLAIN

    @_run.register
    def _(self, statement: s.Explain, sql: str) -> TableResult:
        inner = statement.statement
        relations: list[Relation] = []
        match inner:
            case s.QueryStatement():
                relations = [self._bound(inner.query, sql)]
            case s.Insert():
                relations = [insert_relation(self._catalogs, self._session, sql, inner)[0]]
            case s.StatementSet():
                relations = [insert_relation(self._catalogs, self._session, sql, one)[0] for one in inner.inserts]
        text = "\n\n".join(self._explained(relation) for relation in relations)
        return _rows([("result", DataTypes.STRING())], [(text,)])

    def _explained(self, relation: Relation) -> str:
        return f"== Optimized Physical Plan ==\n{tree_text(relation)}\n"

    # -- tables and views

    @_run.register
    def _(self, statement: s.CreateTable, sql: str) -> TableResult:
        query = None if statement.query is None else self._bound(statement.query, sql)
        table = Declarations(self._catalogs, self._session, sql).table(statement, query)
        added = self._catalogs.create(
            statement.table, table, is_temporary=statement.is_temporary, if_not_exists=statement.if_not_exists,
            is_replacing=statement.is_replacing,
        )  # fmt: skip
        if statement.query is None or not added:
            return _ok()
        return self._inserted([s.Insert(statement.table, statement.query, at=statement.at)], sql)

    @_run.register
    def _(self, statement: s.CreateView, sql: str) -> TableResult:
        relation = self._bound(statement.query, sql)
        if statement.columns and len(statement.columns) != len(relation.columns):
            raise ProgramError(
                f"the view names {len(statement.columns)} columns, its query has {len(relation.columns)}"
            )
        view = CatalogView(
            statement.text, statement.columns, statement.comment, self._catalogs.current_catalog,
            self._catalogs.current_database,
        )  # fmt: skip
        self._catalogs.create(
            statement.view, view, is_temporary=statement.is_temporary, if_not_exists=statement.if_not_exists,
            is_replacing=statement.is_replacing,
        )  # fmt: skip
        return _ok()

    @_run.register
    def _(self, statement: s.Drop, sql: str) -> TableResult:
        if statement.kind in ("TABLE", "VIEW"):
            kind = CatalogTable if statement.kind == "TABLE" else CatalogView
            self._catalogs.drop(
                statement.path, kind, is_temporary=statement.is_temporary, if_exists=statement.if_exists
            )
            return _ok()
        if statement.kind == "DATABASE":
            self._catalogs.drop_database(statement.path, if_exists=statement.if_exists, cascades=statement.cascades)
            return _ok()
        raise UnsupportedFeatureError(f"DROP {statement.kind} is not supported yet")

    @_run.register
    def _(self, statement: s.AlterTable, sql: str) -> TableResult:
        try:
            identifier, table = self._catalogs.find(statement.table)
        except CatalogError:
            if statement.if_exists:
                return _ok()
            raise
        if not isinstance(table, CatalogTable):
            raise CatalogError(f"{'.'.join(statement.table)} is a view: ALTER VIEW")
        if isinstance(statement.action, s.RenameTable):
            self._catalogs.create(statement.action.name, table, is_temporary=identifier in self._catalogs.temporary,
                                  if_not_exists=False)  # fmt: skip
            self._catalogs.drop(identifier, CatalogTable, is_temporary=identifier in self._catalogs.temporary,
                                if_exists=False)  # fmt: skip
            return _ok()
        changed = Declarations(self._catalogs, self._session, sql).altered(table, statement.action)
        self._catalogs.replace(identifier, changed)
        return _ok()

    @_run.register
    def _(self, statement: s.CreateDatabase, sql: str) -> TableResult:
        self._catalogs.create_database(
            statement.database, CatalogDatabase(comment=statement.comment, options=dict(statement.options)),
            if_not_exists=statement.if_not_exists,
        )  # fmt: skip
        return _ok()

    @_run.register
    def _(self, statement: s.Use, sql: str) -> TableResult:
        self._catalogs.use(statement.path, is_catalog=statement.is_catalog)
        return _ok()

    # -- the session

    @_run.register
    def _(self, statement: s.SetOption, sql: str) -> TableResult:
        if statement.key is None:
            pairs = [(key, value) for key, value in self._config.items()]
            return _rows([("key", DataTypes.STRING()), ("value", DataTypes.STRING())], pairs)
        self._config.set(statement.key, statement.value or "")
        return _ok()

    @_run.register
    def _(self, statement: s.ResetOption, sql: str) -> TableResult:
        self._config.reset(statement.key)
        return _ok()

    @_run.register
    def _(self, statement: s.Show, sql: str) -> TableResult:
        names = self._shown(statement)
        if statement.pattern is not None:
            escaped = translate(statement.pattern.replace("%", "*").replace("_", "?"))
            pattern = compile(escaped, IGNORECASE if statement.ignores_case else 0)
            names = [name for name in names if bool(pattern.fullmatch(name)) != statement.is_negated]
        title = {"CURRENT CATALOG": "current catalog name", "CURRENT DATABASE": "current database name"}.get(
            statement.what, f"{statement.what.lower().removesuffix('s').removeprefix('create ')} name"
        )
        return _rows(
            [("result" if statement.what.startswith("CREATE") else title, DataTypes.STRING())],
            [(name,) for name in names],
        )

    def _shown(self, statement: s.Show) -> list[str]:
        catalogs = self._catalogs
        match statement.what:
            case "CATALOGS":
                return sorted(catalogs.catalogs)
            case "DATABASES":
                return sorted(catalogs.catalogs[statement.path[0] if statement.path else catalogs.current_catalog])
            case "CURRENT CATALOG":
                return [catalogs.current_catalog]
            case "CURRENT DATABASE":
                return [catalogs.current_database]
            case "TABLES" | "VIEWS":
                catalog, database = catalogs.database_path(statement.path)
                names = catalogs.names(catalog, database)
                if statement.what == "TABLES":
                    return names
                return [
                    name
                    for name in names
                    if isinstance(catalogs.find((catalog, database, name))[1], CatalogView | InlineView)
                ]
            case "FUNCTIONS":
                return sorted(name.lower() for name in FUNCTIONS if name[0].isalpha() and " " not in name)
            case "CREATE TABLE" | "CREATE VIEW":
                identifier, entry = catalogs.find(statement.path)
                if isinstance(entry, InlineView):
                    raise UnsupportedFeatureError(
                        f"{'.'.join(statement.path)} was made by a program, not by a statement"
                    )
                if isinstance(entry, CatalogView) != (statement.what == "CREATE VIEW"):
                    raise CatalogError(
                        f"{'.'.join(statement.path)} is {'a view' if isinstance(entry, CatalogView) else 'a table'}"
                    )
                return [
                    create_view_text(identifier, entry)
                    if isinstance(entry, CatalogView)
                    else create_table_text(identifier, entry)
                ]
            case "COLUMNS":
                return [row[0] for row in self._described(statement.path)]
        raise UnsupportedFeatureError(f"SHOW {statement.what} is not supported yet")

    @_run.register
    def _(self, statement: s.Describe, sql: str) -> TableResult:
        if statement.kind != "TABLE":
            raise UnsupportedFeatureError(f"DESCRIBE {statement.kind} is not supported yet")
        text = DataTypes.STRING()
        columns = [
            ("name", text),
            ("type", text),
            ("null", DataTypes.BOOLEAN()),
            ("key", text),
            ("extras", text),
            ("watermark", text),
        ]
        return _rows(columns, self._described(statement.path))

    def _described(self, path: tuple[str, ...]) -> list[tuple[Any, ...]]:
        relation = self._bound(parse_query(f"SELECT * FROM {_quoted(path)}").query, f"SELECT * FROM {_quoted(path)}")
        _, entry = self._catalogs.find(path)
        rows: list[tuple[Any, ...]] = []
        declared = {column.name: column for column in entry.columns} if isinstance(entry, CatalogTable) else {}
        for column in relation.columns:
            found = declared.get(column.name)
            key = (
                f"PRI({', '.join(entry.primary_key)})"
                if isinstance(entry, CatalogTable) and column.name in entry.primary_key
                else None
            )
            extras = None
            if found is not None and found.computed is not None:
                extras = "AS ..."
            elif found is not None and found.metadata_key is not None:
                extras = f"METADATA FROM '{found.metadata_key}'" + (" VIRTUAL" if found.is_virtual else "")
            kind = f" *{column.time_attribute}*" if column.time_attribute else ""
            rows.append(
                (column.name, f"{type_text(_nullable(column.type))}{kind}", column.type.nullable, key, extras, None)
            )
        return rows


def _nullable(data_type: DataType) -> DataType:
    return data_type.nullable_()


def _quoted(path: tuple[str, ...]) -> str:
    return ".".join("`" + part.replace("`", "``") + "`" for part in path)


def _rows(columns: Sequence[tuple[str, DataType]], rows: Sequence[Sequence[Any]]) -> TableResult:
    return TableResult(columns, lambda: iter([Row(*row) for row in rows]))


def _ok() -> TableResult:
    return _rows([("result", DataTypes.STRING())], [(_OK,)])


class StreamTableEnvironment(TableEnvironment):
    """Runs SQL on streams of the DataStream API as well."""

    @classmethod
    def create(  # type: ignore[override]
        cls, stream_execution_environment: StreamExecutionEnvironment, settings: EnvironmentSettings | None = None
    ) -> StreamTableEnvironment:
        """Make a table environment for the jobs of an environment."""
        return cls(stream_execution_environment)
