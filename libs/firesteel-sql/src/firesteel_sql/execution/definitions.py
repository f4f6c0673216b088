"""Statements that declare, change and remove catalogs, databases, tables, views and functions."""

from __future__ import annotations

from firesteel_sql.bind.queries import QueryBinder
from firesteel_sql.catalog.catalog import CatalogError
from firesteel_sql.catalog.catalogs import Catalogs
from firesteel_sql.catalog.tables import CatalogDatabase, CatalogFunction, CatalogTable, CatalogView
from firesteel_sql.execution.declarations import Declarations
from firesteel_sql.functions.signature import Session
from firesteel_sql.parse import statement_nodes as s
from firesteel_sql.parse.errors import SqlError, error_at
from firesteel_sql.plan.relations import Relation

Definition = (
    s.CreateView
    | s.CreateFunction
    | s.CreateCatalog
    | s.CreateDatabase
    | s.AlterTable
    | s.AlterView
    | s.AlterDatabase
    | s.AlterFunction
    | s.AlterCatalog
    | s.Drop
    | s.Use
)
"""Statements that change catalogs and start no job."""


class Definitions:
    """Runs statements that declare something.

    Args:
        catalogs: which are changed.
        session: what functions need to know.
        sql: the statement, for errors.
    """

    def __init__(self, catalogs: Catalogs, session: Session, sql: str) -> None:
        self._catalogs, self._session, self._sql = catalogs, session, sql

    def run(self, statement: Definition) -> None:
        """Run a statement; it is done, or nothing has changed.

        Raises:
            SqlError: it is wrong.
        """
        try:
            self._run(statement)
        except CatalogError as error:
            raise self._error(statement.at, str(error), _name_of(statement)) from error

    def _error(self, at: int, problem: str, name: str | None = None) -> SqlError:
        return error_at(self._sql, at, problem, name)

    def _run(self, statement: Definition) -> None:
        catalogs = self._catalogs
        match statement:
            case s.CreateView():
                self._create_view(statement)
            case s.AlterView():
                self._alter_view(statement)
            case s.AlterTable():
                self._alter_table(statement)
            case s.CreateFunction():
                catalogs.create_function(
                    statement.function, self._function(statement), is_temporary=statement.is_temporary,
                    is_system=statement.is_system, if_not_exists=statement.if_not_exists,
                    is_replacing=statement.is_replacing,
                )  # fmt: skip
            case s.AlterFunction():
                catalogs.alter_function(
                    statement.function, self._function(statement), is_temporary=statement.is_temporary,
                    is_system=statement.is_system, if_exists=statement.if_exists,
                )  # fmt: skip
            case s.CreateCatalog():
                catalogs.create_catalog(
                    statement.name, dict(statement.options), statement.comment, if_not_exists=statement.if_not_exists
                )
            case s.AlterCatalog():
                catalogs.alter_catalog(statement.name, dict(statement.options), statement.reset, statement.comment)
            case s.CreateDatabase():
                database = CatalogDatabase(statement.comment, dict(statement.options))
                catalogs.create_database(statement.database, database, if_not_exists=statement.if_not_exists)
            case s.AlterDatabase():
                catalogs.alter_database(statement.database, dict(statement.options))
            case s.Drop():
                self._drop(statement)
            case s.Use():
                catalogs.use(statement.path, is_catalog=statement.is_catalog)

    # -- views

    def _bound(self, statement: s.CreateView | s.AlterView) -> Relation:
        assert statement.query is not None
        return QueryBinder(self._catalogs, self._session, self._sql).bind(statement.query)

    def _create_view(self, statement: s.CreateView) -> None:
        relation = self._bound(statement)
        names = statement.columns or tuple(column.name for column in relation.columns)
        if len(names) != len(relation.columns):
            raise self._error(
                statement.at, f"the view names {len(names)} columns, its query has {len(relation.columns)}"
            )
        for name in names:
            if names.count(name) > 1:
                raise self._error(statement.at, f"the view has two columns of the name {name}: give one an alias")
        view = CatalogView(
            statement.text, statement.columns, statement.comment, self._catalogs.current_catalog,
            self._catalogs.current_database,
        )  # fmt: skip
        old = self._present_view(statement.view) if statement.is_replacing and not statement.is_temporary else None
        self._catalogs.create(
            statement.view, view, is_temporary=statement.is_temporary, if_not_exists=statement.if_not_exists,
            is_replacing=statement.is_replacing,
        )  # fmt: skip
        if old is not None:
            self._refuse_endless(statement.view, old, view, statement.at)

    def _present_view(self, path: tuple[str, ...]) -> CatalogView | None:
        try:
            return self._catalogs.relation(path, CatalogView, if_exists=False)[1]  # type: ignore[index]
        except CatalogError:
            return None

    def _refuse_endless(self, path: tuple[str, ...], old: CatalogView, new: CatalogView, at: int) -> None:
        """Put the old view back if the new one reads itself, perhaps by way of other views."""
        identifier = self._catalogs.identifier(path)
        try:
            QueryBinder(self._catalogs, self._session, self._sql).bind_table(identifier)
        except SqlError:
            self._catalogs.replace(identifier, new, old)
            raise self._error(at, f"the view {'.'.join(path)} would read itself") from None

    def _alter_view(self, statement: s.AlterView) -> None:
        found = self._catalogs.relation(statement.view, CatalogView, if_exists=statement.if_exists)
        if found is None:
            return
        identifier, view = found
        if statement.new_name is not None:
            self._catalogs.rename(identifier, view, statement.new_name)
            return
        self._bound(statement)
        changed = CatalogView(
            statement.text, (), view.comment, self._catalogs.current_catalog, self._catalogs.current_database
        )
        self._catalogs.replace(identifier, view, changed)
        self._refuse_endless(identifier, view, changed, statement.at)

    # -- tables

    def _alter_table(self, statement: s.AlterTable) -> None:
        found = self._catalogs.relation(statement.table, CatalogTable, if_exists=statement.if_exists)
        if found is None:
            return
        identifier, table = found
        if isinstance(statement.action, s.RenameTable):
            self._catalogs.rename(identifier, table, statement.action.name)
            return
        changed = Declarations(self._catalogs, self._session, self._sql).altered(table, statement.action)
        self._catalogs.replace(identifier, table, changed)

    # -- functions

    def _function(self, statement: s.CreateFunction | s.AlterFunction) -> CatalogFunction:
        if statement.language != "PYTHON":
            raise self._error(
                statement.at, f"functions in {statement.language.title()} are not supported: write it in Python, AS "
                "'module.function' LANGUAGE PYTHON",
            )  # fmt: skip
        module, _, name = statement.target.rpartition(".")
        if not module or not all(part.isidentifier() for part in (*module.split("."), name)):
            raise self._error(
                statement.at,
                f"'{statement.target}' names no Python function: write AS 'module.function'",
                statement.target,
            )
        return CatalogFunction(statement.target)

    # -- DROP

    def _drop(self, statement: s.Drop) -> None:
        catalogs = self._catalogs
        match statement.kind:
            case "TABLE" | "VIEW":
                kind = CatalogTable if statement.kind == "TABLE" else CatalogView
                catalogs.drop(statement.path, kind, is_temporary=statement.is_temporary, if_exists=statement.if_exists)
            case "DATABASE":
                catalogs.drop_database(statement.path, if_exists=statement.if_exists, cascades=statement.cascades)
            case "CATALOG":
                if len(statement.path) > 1:
                    raise CatalogError(f"{'.'.join(statement.path)}: the name of a catalog has one part")
                catalogs.drop_catalog(statement.path[0], if_exists=statement.if_exists)
            case _:
                catalogs.drop_function(
                    statement.path, is_temporary=statement.is_temporary, is_system=statement.is_system,
                    if_exists=statement.if_exists,
                )  # fmt: skip


def _name_of(statement: Definition) -> str:
    """The name of what a statement declares, changes or removes."""
    match statement:
        case s.CreateView() | s.AlterView():
            return statement.view[-1]
        case s.AlterTable():
            is_renaming = isinstance(statement.action, s.RenameTable)
            return statement.action.name[-1] if is_renaming else statement.table[-1]  # type: ignore[attr-defined]
        case s.CreateFunction() | s.AlterFunction():
            return statement.function[-1]
        case s.CreateCatalog() | s.AlterCatalog():
            return statement.name
        case s.CreateDatabase() | s.AlterDatabase():
            return statement.database[-1]
        case _:
            return statement.path[-1]
