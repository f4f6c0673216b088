"""The table environment: runs statements, and turns queries into tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import singledispatchmethod
from typing import Any

from firesteel.client.upgrade import upgrade_of
from firesteel.common import Configuration
from firesteel.common.types import Row
from firesteel.config.values import parse_bool, parse_duration
from firesteel.core.sensitive import MASK, is_sensitive
from firesteel.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from firesteel.table.types import DataType, DataTypes
from firesteel_sql.bind.queries import QueryBinder
from firesteel_sql.catalog.catalog import Catalog, CatalogError
from firesteel_sql.catalog.catalogs import Catalogs
from firesteel_sql.catalog.tables import CatalogTable, Entry, InlineView
from firesteel_sql.connectors.connector import connector_of
from firesteel_sql.execution.compiled_plans import PlanFile
from firesteel_sql.execution.consistency import in_epochs, prepare_epochs
from firesteel_sql.execution.declarations import Declarations
from firesteel_sql.execution.definitions import Definition, Definitions
from firesteel_sql.execution.inserts import insert_relation, removal_of, static_partition
from firesteel_sql.execution.jobs import describe_job, show_jobs, stop_job
from firesteel_sql.execution.listings import Listings
from firesteel_sql.execution.results import TableResult
from firesteel_sql.execution.spark_streams import SparkOptions, SparkStreamBuilder
from firesteel_sql.execution.streams import BuiltOperator, StreamBuilder
from firesteel_sql.execution.table_modes import table_mode, table_takes_fields
from firesteel_sql.execution.upgrades import explained_upgrade
from firesteel_sql.functions.signature import Session
from firesteel_sql.functions.user import DeclaredFunctions
from firesteel_sql.parse import statement_nodes as s
from firesteel_sql.parse.errors import SqlError, error_at
from firesteel_sql.parse.statements import parse_explained, parse_path, parse_query, parse_statement
from firesteel_sql.plan.changes import changelog_mode, refusal_of_changes
from firesteel_sql.plan.explain import PlannedStatement, explained
from firesteel_sql.plan.meanings import OperatorIdentities
from firesteel_sql.plan.optimizer import optimised
from firesteel_sql.plan.plan_files import CompiledPlan, Identities, PlannedInsert
from firesteel_sql.plan.relations import Relation
from firesteel_sql.plan.route import Route
from firesteel_sql.plan.sink_keys import materialized, places_of
from firesteel_sql.plan.state_ttl import with_state_ttl
from firesteel_sql.plan.stateful_relations import ConflictRule, SinkMaterializer, SortedRows
from firesteel_sql.plan.stored_state import StoredState, stored_states
from firesteel_sql.session_options import (
    BATCH_ROUTE,
    CONSISTENCY,
    DML_SYNC,
    MAX_ITERATIONS,
    NOT_NULL_ENFORCER,
    REQUIRE_ON_CONFLICT,
    SOURCE_IDLE_TIMEOUT,
    STATE_TTL,
    TIME_ZONE,
    UPSERT_MATERIALIZE,
    OptionRefused,
    check_key,
    check_option,
)
from firesteel_sql.spark.routes import SPARK, route_of
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
        """Set an option for the statements that follow.

        Raises:
            OptionRefused: there is no such option, or the value does not fit.
        """
        check_option(key, str(value))
        self._values[key] = str(value)
        return self

    def get(self, key: str, default: str) -> str:
        """The value of an option."""
        return self._values.get(key, default)

    def reset(self, key: str | None) -> None:
        """Forget an option, or all.

        Raises:
            OptionRefused: there is no such option.
        """
        if key is None:
            self._values.clear()
            return
        check_key(key)
        self._values.pop(key, None)

    def items(self) -> list[tuple[str, str]]:
        """All options that are set, by their keys."""
        return sorted(dict(self._values).items())


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
        return self._environment._inserted([(insert, f"INSERT INTO {table}")], self._relation)

    def explain(self, *extra_details: str) -> str:
        """What the query does, step by step.

        Args:
            extra_details: ESTIMATED_COST, CHANGELOG_MODE, JSON_EXECUTION_PLAN, PLAN_ADVICE, STATE, ROUTE.
        """
        return self._environment._explained([self._relation], extra_details)

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
        self._statement_set: list[tuple[s.Insert, str]] | None = None

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

    def explain_sql(self, statement: str, *extra_details: str) -> str:
        """What a statement does, step by step.

        Args:
            statement: a query, INSERT or a statement set.
            extra_details: ESTIMATED_COST, CHANGELOG_MODE, JSON_EXECUTION_PLAN, PLAN_ADVICE, STATE, ROUTE.

        Raises:
            SqlError: it is wrong; says where.
        """
        parsed = parse_explained(statement)
        return "\n".join(str(row[0]) for row in self._run(replace(parsed, details=extra_details), statement).collect())

    def from_path(self, path: str) -> Table:
        """The rows of a table or view."""
        return self.sql_query(f"SELECT * FROM {path}")

    def create_temporary_view(self, name: str, table: Table) -> None:
        """Give a table a name for other statements."""
        self._catalogs.create(parse_path(name), InlineView(table._relation), is_temporary=True, if_not_exists=False)

    def list_tables(self) -> list[str]:
        """Names of the tables and views of the current database."""
        return self._catalogs.names(self._catalogs.current_catalog, self._catalogs.current_database)

    def register_catalog(self, name: str, catalog: Catalog) -> None:
        """Add a catalog that a program has made.

        Raises:
            CatalogError: there is one of this name.
        """
        self._catalogs.register(name, catalog)

    def use_catalog(self, name: str) -> None:
        """Use a catalog where a name does not say, and its default database.

        Raises:
            CatalogError: there is none.
        """
        self._catalogs.use((name,), is_catalog=True)

    def use_database(self, name: str) -> None:
        """Use a database of the current catalog where a name does not say.

        Raises:
            CatalogError: there is none.
        """
        self._catalogs.use((name,), is_catalog=False)

    @property
    def _session(self) -> Session:
        zone = self._config.get(TIME_ZONE, "UTC")
        return Session(
            "UTC" if zone == "default" else zone,
            DeclaredFunctions(self._catalogs),
            self._catalogs.current_database,
            self._is_batch,
        )

    @property
    def _is_batch(self) -> bool:
        return self._for_a_job().get_runtime_mode() is RuntimeExecutionMode.BATCH

    def _optimised(self, relations: Sequence[Relation]) -> list[Relation]:
        """What is computed; in batch mode the rows that are left at the end, without the changes on the way."""
        computed = optimised(relations, table_mode, table_takes_fields)
        if not self._is_batch:
            return with_state_ttl(computed, self._state_ttl)
        return [
            relation
            if changelog_mode(relation, table_mode).is_append
            else SortedRows(relation.columns, relation, (), at_end=True)
            for relation in computed
        ]

    @property
    def _state_ttl(self) -> int:
        """How long state is remembered that is not written, ms; 0 = for ever."""
        return int(parse_duration(self._config.get(STATE_TTL, "0")).total_seconds() * 1000)

    def _route(self, computed: Sequence[Relation]) -> Route:
        """Where the relations of a statement are computed."""
        choice = self._config.get(BATCH_ROUTE, "auto").lower()
        return route_of(computed, is_batch=self._is_batch, choice=choice, zone=self._session.zone)

    def _stream_builder(
        self,
        environment: StreamExecutionEnvironment,
        computed: Sequence[Relation],
        identities: Identities | None = None,
    ) -> StreamBuilder:
        """What builds the streams of a job that computes some relations."""
        if self._route(computed).name == SPARK:
            max_iterations = int(self._config.get(MAX_ITERATIONS, "1000"))
            return SparkStreamBuilder(environment, SparkOptions(self._session.zone, max_iterations))
        return StreamBuilder(environment, self._idle_timeout, identities)

    @property
    def _idle_timeout(self) -> timedelta:
        return parse_duration(self._config.get(SOURCE_IDLE_TIMEOUT, "0"))

    def _bound(self, query: Any, sql: str) -> Relation:
        return QueryBinder(self._catalogs, self._session, sql).bind(query)

    @singledispatchmethod
    def _run(self, statement: s.Statement, sql: str) -> TableResult:
        what = " ".join(sql[statement.at :].split()[:2]).upper()
        raise error_at(sql, statement.at, f"{what} is not supported yet")

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

    @property
    def _has_epochs(self) -> bool:
        return self._config.get(CONSISTENCY, "EVENTUAL").upper() == "EPOCH" and not self._is_batch

    def _collected(self, relation: Relation) -> TableResult:
        (relation,) = self._optimised([relation])
        environment = self._for_a_job()
        stream = self._stream_builder(environment, [relation]).build(relation)
        if self._has_epochs:
            prepare_epochs(environment)
            stream = in_epochs(stream, relation, ())
        columns = [(column.name, column.type) for column in relation.columns]
        found = stream.execute_and_collect("collect")

        def rows() -> Iterator[Row]:
            with found:
                yield from found

        return TableResult(columns, rows, shows_kinds=True)

    @_run.register
    def _(self, statement: s.Insert, sql: str) -> TableResult:
        if self._statement_set is None:
            return self._inserted([(statement, sql)])
        insert_relation(self._catalogs, self._session, sql, statement)  # what is wrong is said at once
        self._statement_set.append((statement, sql))
        return _ok()

    @_run.register
    def _(self, statement: s.StatementSet, sql: str) -> TableResult:
        return self._inserted([(insert, sql) for insert in statement.inserts])

    @_run.register
    def _(self, statement: s.BeginStatementSet, sql: str) -> TableResult:
        if self._statement_set is not None:
            raise error_at(sql, statement.at, "a statement set has begun already: END runs its INSERTs")
        self._statement_set = []
        return _ok()

    @_run.register
    def _(self, statement: s.EndStatementSet, sql: str) -> TableResult:
        inserts, self._statement_set = self._statement_set, None
        if inserts is None:
            raise error_at(sql, statement.at, "no statement set has begun: BEGIN STATEMENT SET")
        if not inserts:
            raise error_at(sql, statement.at, "the statement set has no INSERT")
        return self._inserted(inserts)

    def _inserted(self, inserts: Sequence[tuple[s.Insert, str]], rows: Relation | None = None) -> TableResult:
        """Start the job of some INSERTs, each with the text in which it stands."""
        for insert, sql in inserts:
            if insert.is_overwrite:
                self._refuse_unless_batch("INSERT OVERWRITE", insert, sql)
        planned = [part for _, part in self._planned(inserts, rows)]
        removals: list[Callable[[], None]] = []
        for (insert, sql), part in zip(inserts, planned, strict=True):
            if insert.is_overwrite:
                connector, context = connector_of(part.identifier, part.table, writes=True)
                partition = static_partition(self._catalogs, self._session, sql, insert)
                removals.append(connector.removal(context, partition))
        return self._started(CompiledPlan(tuple(planned), OperatorIdentities(table_mode)), removals)

    def _planned(
        self, inserts: Sequence[tuple[s.Insert, str]], rows: Relation | None = None
    ) -> list[tuple[Relation, PlannedInsert]]:
        """What INSERTs mean, and what is computed for them.

        Args:
            inserts: each with the text in which it stands.
            rows: those to write in place of the queries.
        """
        drops_nulls = self._config.get(NOT_NULL_ENFORCER, "ERROR").upper() == "DROP"
        written = [
            insert_relation(self._catalogs, self._session, sql, insert, rows, drops_nulls=drops_nulls)
            for insert, sql in inserts
        ]
        planned = []
        optimised_relations = self._optimised([relation for relation, _, _ in written])
        for (insert, sql), result, (logical, identifier, table) in zip(
            inserts, optimised_relations, written, strict=True
        ):
            relation = self._by_primary_key(result, table, insert, sql)
            connector, context = connector_of(identifier, table, writes=True)
            takes = connector.sink_mode(context, changelog_mode(relation, table_mode))
            refusal = refusal_of_changes(identifier, takes, relation, table_mode)
            if refusal is not None:
                raise error_at(sql, insert.at, refusal)
            planned.append((logical, PlannedInsert(identifier, table, relation)))
        return planned

    def _started(self, plan: CompiledPlan, removals: Sequence[Callable[[], None]] = ()) -> TableResult:
        """Start the job of a plan.

        Args:
            plan: what is written.
            removals: remove what was there before, once the job has ended.
        """
        environment = self._for_a_job()
        self._add_operators(environment, plan)
        names = [".".join(insert.identifier) for insert in plan.inserts]
        client = environment.execute_async(f"insert-into_{','.join(names)}")

        def wait(timeout_ms: int | None) -> None:
            future = client.get_job_execution_result()
            future.result() if timeout_ms is None else future.result(timeout_ms / 1000)

        if removals:  # the former rows go once the new ones are there
            wait(None)
            for remove in removals:
                remove()
        elif self._config.get(DML_SYNC, "false").lower() == "true":
            wait(None)
        columns = [(name, DataTypes.BIGINT(False)) for name in names]
        return TableResult(columns, lambda: iter([Row(*[-1] * len(names))]), client, wait=wait)

    def _by_primary_key(self, relation: Relation, table: CatalogTable, insert: s.Insert, sql: str) -> Relation:
        """What is written of the result of a query: one row for each primary key, whose changes come in order.

        Raises:
            SqlError: the session wants ``ON CONFLICT`` to be said.
        """
        places = places_of(table.primary_key, relation)
        rule = None if insert.on_conflict is None else ConflictRule(insert.on_conflict)
        strategy = self._config.get(UPSERT_MATERIALIZE, "AUTO").upper()
        written = materialized(relation, places, rule, table_mode, strategy)
        if isinstance(written, SinkMaterializer) and not self._is_batch:
            written = replace(written, state_ttl=self._state_ttl or None)
        if written is not relation and rule is None and parse_bool(self._config.get(REQUIRE_ON_CONFLICT, "false")):
            raise error_at(
                sql, insert.at, f"the query may have several rows for a primary key ({', '.join(table.primary_key)}): "
                "say which is written by ON CONFLICT DO DEDUPLICATE, NOTHING or ERROR at the end of the statement",
            )  # fmt: skip
        return written

    def _add_operators(self, environment: StreamExecutionEnvironment, plan: CompiledPlan) -> list[BuiltOperator]:
        """Add the operators of a plan to a job; returns those with an identity."""
        if self._has_epochs:
            prepare_epochs(environment)
        builder = self._stream_builder(environment, [insert.relation for insert in plan.inserts], plan.identities)
        for insert in plan.inserts:
            builder.write(insert.relation, insert.identifier, insert.table, has_epochs=self._has_epochs)
        return builder.operators

    # -- compiled plans

    @_run.register
    def _(self, statement: s.CompilePlan, sql: str) -> TableResult:
        place = PlanFile(statement.file)
        if place.exists() and not statement.if_not_exists:
            raise error_at(
                sql, statement.at, f"there is a file {statement.file} already: remove it, or write IF NOT EXISTS"
            )
        if not place.exists():
            planned = self._planned([(insert, sql) for insert in _inserts_of(statement.statement)])
            place.write([part for _, part in planned])
        return self._started(place.read(self._catalogs)) if statement.is_executed else _ok()

    @_run.register
    def _(self, statement: s.ExecutePlan, sql: str) -> TableResult:
        return self._started(PlanFile(statement.file).read(self._catalogs))

    # -- EXPLAIN

    @_run.register
    def _(self, statement: s.Explain, sql: str) -> TableResult:
        match statement.statement:
            case s.QueryStatement() as query:
                relation = self._bound(query.query, sql)
                if statement.savepoint is not None:
                    text = self._explained_upgrade(self._optimised([relation]), (), statement.savepoint)
                else:
                    text = self._explained([relation], statement.details)
            case s.Insert() | s.StatementSet():
                planned = self._planned([(insert, sql) for insert in _inserts_of(statement.statement)])
                if statement.savepoint is not None:
                    text = self._explained_upgrade((), [insert for _, insert in planned], statement.savepoint)
                else:
                    logical = [relation for relation, _ in planned]
                    text = self._explained(logical, statement.details, [insert for _, insert in planned])
        return _rows([("result", DataTypes.STRING())], [(text,)])

    def _explained_upgrade(self, queries: Sequence[Relation], inserts: Sequence[PlannedInsert], path: str) -> str:
        """What would become of the state of a savepoint; only descriptions of its state are read."""
        environment = self._for_a_job()
        operators = self._add_operators(environment, CompiledPlan(tuple(inserts), OperatorIdentities(table_mode)))
        for query in queries:
            builder = self._stream_builder(environment, [query])
            builder.build(query).print()
            operators += builder.operators
        return explained_upgrade(upgrade_of(environment, path), operators)

    def _explained(
        self, relations: Sequence[Relation], details: Sequence[str] = (), inserts: Sequence[PlannedInsert] = ()
    ) -> str:
        """What is computed for some relations.

        Args:
            relations: of the statements.
            details: further parts of the text.
            inserts: what is computed and written, one for each relation; none for a query.
        """
        computed = [insert.relation for insert in inserts] or self._optimised(relations)

        def json_plan() -> str:
            environment = self._for_a_job()
            self._add_operators(environment, CompiledPlan(tuple(inserts), OperatorIdentities(table_mode)))
            if not inserts:
                builder = self._stream_builder(environment, computed)
                for relation in computed:
                    builder.build(relation).print()
            return environment.get_execution_plan()

        plans = [
            PlannedStatement(logical, physical, ".".join(inserts[place].identifier) if inserts else None)
            for place, (logical, physical) in enumerate(zip(relations, computed, strict=True))
        ]
        return explained(
            plans,
            details,
            changelog_of=_mode_text,
            states_of=_states_of,
            json_plan=json_plan,
            route=self._route(computed),
        )

    # -- catalogs

    @_run.register(s.CreateView)
    @_run.register(s.CreateFunction)
    @_run.register(s.CreateCatalog)
    @_run.register(s.CreateDatabase)
    @_run.register(s.AlterTable)
    @_run.register(s.AlterView)
    @_run.register(s.AlterDatabase)
    @_run.register(s.AlterFunction)
    @_run.register(s.AlterCatalog)
    @_run.register(s.Drop)
    @_run.register(s.Use)
    def _(self, statement: Definition, sql: str) -> TableResult:
        Definitions(self._catalogs, self._session, sql).run(statement)
        return _ok()

    @_run.register
    def _(self, statement: s.CreateTable, sql: str) -> TableResult:
        query = None if statement.query is None else self._bound(statement.query, sql)
        table = Declarations(self._catalogs, self._session, sql).table(statement, query)
        try:
            old = self._present(statement.table, is_temporary=statement.is_temporary)
            is_added = self._catalogs.create(
                statement.table, table, is_temporary=statement.is_temporary, if_not_exists=statement.if_not_exists,
                is_replacing=statement.is_replacing,
            )  # fmt: skip
        except CatalogError as error:
            raise error_at(sql, statement.at, str(error), statement.table[-1]) from error
        if statement.query is None or not is_added:
            return _ok()
        columns = tuple(column.name for column in query.columns) if query is not None else ()
        insert = s.Insert(statement.table, statement.query, columns, at=statement.at)
        try:
            return self._inserted([(insert, sql)])
        except BaseException:  # no job was started: all is as it was before
            identifier = self._catalogs.identifier(statement.table)
            if old is None:
                self._catalogs.drop(identifier, CatalogTable, is_temporary=statement.is_temporary, if_exists=True)
            else:
                self._catalogs.replace(identifier, table, old)
            raise

    def _present(self, path: tuple[str, ...], *, is_temporary: bool) -> Entry | None:
        """The table that CREATE OR REPLACE is about to replace."""
        try:
            identifier, entry = self._catalogs.find(path)
        except CatalogError:
            return None
        return entry if (identifier in self._catalogs.temporary) == is_temporary else None

    @_run.register
    def _(self, statement: s.Truncate, sql: str) -> TableResult:
        self._refuse_unless_batch("TRUNCATE TABLE", statement, sql)
        removal_of(self._catalogs, sql, statement)()
        return _ok()

    def _refuse_unless_batch(self, what: str, statement: s.Statement, sql: str) -> None:
        if not self._is_batch:
            raise error_at(sql, statement.at, f"{what} needs batch mode: SET 'execution.runtime-mode' = 'BATCH'")

    # -- jobs

    @_run.register
    def _(self, statement: s.StopJob, sql: str) -> TableResult:
        path = stop_job(self._for_a_job().cluster_jobs(), statement, sql)
        return _ok() if path is None else _rows([("savepoint path", DataTypes.STRING())], [(path,)])

    @_run.register
    def _(self, statement: s.Show, sql: str) -> TableResult:
        if statement.what == "JOBS":
            return _rows(*show_jobs(self._for_a_job().cluster_jobs()))
        return _rows(*Listings(self._catalogs, self._session, sql).show(statement))

    @_run.register
    def _(self, statement: s.Describe, sql: str) -> TableResult:
        if statement.kind == "JOB":
            return _rows(*describe_job(self._for_a_job().cluster_jobs(), statement, sql))
        return _rows(*Listings(self._catalogs, self._session, sql).describe(statement))

    # -- the session

    @_run.register
    def _(self, statement: s.SetOption, sql: str) -> TableResult:
        if statement.key is None:
            pairs = [(key, MASK if is_sensitive(key) else value) for key, value in self._config.items()]
            return _rows([("key", DataTypes.STRING()), ("value", DataTypes.STRING())], pairs)
        try:
            self._config.set(statement.key, statement.value or "")
        except OptionRefused as refused:
            raise error_at(sql, statement.at, str(refused), statement.key) from None
        return _ok()

    @_run.register
    def _(self, statement: s.ResetOption, sql: str) -> TableResult:
        try:
            self._config.reset(statement.key)
        except OptionRefused as refused:
            raise error_at(sql, statement.at, str(refused), statement.key) from None
        return _ok()

    @_run.register
    def _(self, statement: s.LoadModule, sql: str) -> TableResult:
        problem = (
            f"there is no module {statement.name}: all functions are in the module core, and others are declared by "
            "CREATE FUNCTION ... LANGUAGE PYTHON"
        )
        if statement.name == "core":
            problem = "a module with the name core exists already"
        raise error_at(sql, statement.at, problem, statement.name)

    @_run.register
    def _(self, statement: s.UnloadModule, sql: str) -> TableResult:
        problem = f"there is no module {statement.name}"
        if statement.name == "core":
            problem = "the module core has the functions that are always there, and stays"
        raise error_at(sql, statement.at, problem, statement.name)

    @_run.register
    def _(self, statement: s.UseModules, sql: str) -> TableResult:
        for name in statement.names:
            if name != "core":
                raise error_at(sql, statement.at, f"there is no module {name}: there is core", name)
        if len(statement.names) > 1:
            raise error_at(sql, statement.at, "the module core is named twice", "core")
        return _ok()


def _rows(columns: Sequence[tuple[str, DataType]], rows: Sequence[Sequence[Any]]) -> TableResult:
    return TableResult(columns, lambda: iter([Row(*row) for row in rows]))


def _inserts_of(statement: s.Insert | s.StatementSet) -> Sequence[s.Insert]:
    return [statement] if isinstance(statement, s.Insert) else statement.inserts


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


def _states_of(relation: Relation) -> list[StoredState]:
    return stored_states(relation, table_mode)


def _mode_text(relation: Relation) -> str:
    """The changes that a relation gives, as EXPLAIN shows them."""
    return str(changelog_mode(relation, table_mode)).strip("[]")
