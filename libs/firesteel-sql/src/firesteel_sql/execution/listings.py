"""SHOW and DESCRIBE: what catalogs have, as rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from firesteel.core.errors import UnsupportedFeatureError
from firesteel.core.sensitive import MASK, is_sensitive
from firesteel.table.types import DataType, DataTypes
from firesteel_sql.bind.expressions import ExpressionBinder
from firesteel_sql.bind.queries import QueryBinder
from firesteel_sql.bind.scope import Scope
from firesteel_sql.catalog.catalog import CatalogError, near
from firesteel_sql.catalog.catalogs import Catalogs
from firesteel_sql.catalog.ddl import create_text, options_text, quoted_name, quoted_text
from firesteel_sql.catalog.tables import CatalogTable, CatalogView, Entry, Identifier, InlineView, TableColumn
from firesteel_sql.connectors.connector import connector_of
from firesteel_sql.functions.aggregates import AGGREGATES
from firesteel_sql.functions.signature import FUNCTIONS, Session
from firesteel_sql.parse import statement_nodes as s
from firesteel_sql.parse.errors import SqlError, error_at
from firesteel_sql.plan.row_expressions import Constant
from firesteel_sql.texts import type_text, value_text

Listing = tuple[list[tuple[str, DataType]], list[tuple[Any, ...]]]
"""Names and types of columns, and rows."""

_TEXT = DataTypes.STRING()
_DESCRIPTION = [
    ("name", _TEXT), ("type", _TEXT), ("null", DataTypes.BOOLEAN()), ("key", _TEXT), ("extras", _TEXT),
    ("watermark", _TEXT),
]  # fmt: skip
"""Columns of DESCRIBE, as Flink has them; a column for comments is added if there is one."""


class Listings:
    """Answers SHOW and DESCRIBE.

    Args:
        catalogs: of the session.
        session: what functions need to know.
        sql: the statement, for errors.
    """

    def __init__(self, catalogs: Catalogs, session: Session, sql: str) -> None:
        self._catalogs, self._session, self._sql = catalogs, session, sql

    # -- SHOW

    def show(self, statement: s.Show) -> Listing:
        """The rows of SHOW.

        Raises:
            SqlError: there is no such table, database or catalog.
        """
        try:
            if statement.what == "COLUMNS":
                columns, rows = self._description(statement.path)
            elif statement.what == "FULL MODULES":
                columns, rows = [("module name", _TEXT), ("used", DataTypes.BOOLEAN())], [("core", True)]
            else:
                title, names = self._names(statement)
                columns, rows = [(title, _TEXT)], [(name,) for name in names]
        except CatalogError as error:
            raise self._error(statement, str(error)) from error
        if statement.pattern is not None:
            matches = like_pattern(statement.pattern, ignores_case=statement.ignores_case)
            rows = [row for row in rows if bool(matches.fullmatch(row[0])) != statement.is_negated]
        return columns, rows

    def _error(self, statement: s.Show | s.Describe, problem: str) -> SqlError:
        return error_at(self._sql, statement.at, problem, statement.path[-1] if statement.path else None)

    def _names(self, statement: s.Show) -> tuple[str, list[str]]:
        catalogs, what = self._catalogs, statement.what
        match what:
            case "CATALOGS":
                return "catalog name", catalogs.list_catalogs()
            case "DATABASES":
                if len(statement.path) > 1:
                    raise CatalogError(f"{'.'.join(statement.path)}: the name of a catalog has one part")
                catalog = statement.path[0] if statement.path else catalogs.current_catalog
                return "database name", catalogs.catalog(catalog).list_databases()
            case "CURRENT CATALOG":
                return "current catalog name", [catalogs.current_catalog]
            case "CURRENT DATABASE":
                return "current database name", [catalogs.current_database]
            case "TABLES":
                return "table name", catalogs.names(*catalogs.database_path(statement.path))
            case "VIEWS":
                catalog, database = catalogs.database_path(statement.path)
                names = catalogs.names(catalog, database)
                return "view name", [name for name in names if self._is_view((catalog, database, name))]
            case "FUNCTIONS" | "USER FUNCTIONS":
                catalog, database = catalogs.database_path(statement.path)
                if statement.path:
                    catalogs.database(catalog, database)
                users = catalogs.function_names(catalog, database)
                built_in = [] if what == "USER FUNCTIONS" else built_in_functions()
                return "function name", sorted({*users, *built_in})
            case "MODULES":
                return "module name", ["core"]
            case "JARS":
                return "jars", []
            case "PROCEDURES":
                return "procedure name", []
            case "MODELS":
                return "model name", []
            case "PARTITIONS":
                return "partition name", self._partitions(statement)
            case "CREATE CATALOG":
                return "result", [self._create_catalog(statement.path)]
            case "CREATE TABLE" | "CREATE VIEW":
                return "result", [self._create(statement)]
        raise UnsupportedFeatureError(f"SHOW {what} is not supported yet")

    def _is_view(self, identifier: Identifier) -> bool:
        try:
            return not isinstance(self._catalogs.find(identifier)[1], CatalogTable)
        except CatalogError:  # its file is damaged, or it was dropped meanwhile
            return False

    def _create(self, statement: s.Show) -> str:
        kind = statement.what.removeprefix("CREATE ").lower()
        try:
            identifier, entry = self._catalogs.find(statement.path)
        except CatalogError as error:
            raise CatalogError(str(error).replace("there is no table", f"there is no {kind}", 1)) from None
        name = ".".join(statement.path)
        if isinstance(entry, InlineView):
            raise CatalogError(f"{name} was made by a program, not by a statement")
        if isinstance(entry, CatalogView) != (kind == "view"):
            there = "a view" if isinstance(entry, CatalogView) else "a table"
            raise CatalogError(f"{name} is {there}: SHOW CREATE {there[2:].upper()} {name}")
        is_temporary = identifier in self._catalogs.temporary
        return create_text(identifier, entry, masks_secrets=True, is_temporary=is_temporary)

    def _create_catalog(self, path: tuple[str, ...]) -> str:
        description = self._catalogs.describe_catalog(path[0])
        comment = "" if description.comment is None else f"COMMENT {quoted_text(description.comment)}\n"
        return f"CREATE CATALOG {quoted_name(path[0])}\n{comment}WITH {options_text(description.options, True)}"

    def _partitions(self, statement: s.Show) -> list[str]:
        found = self._catalogs.relation(statement.path, CatalogTable, if_exists=False)
        assert found is not None
        identifier, table = found
        if not table.partitioned_by:
            raise CatalogError(f"the table {'.'.join(statement.path)} is not PARTITIONED BY anything")
        chosen = {}
        binder = ExpressionBinder(Scope([]), self._session, self._sql)
        for name, node in statement.partition:
            if name not in table.partitioned_by:
                raise CatalogError(f"the table is not partitioned by {name}{near(name, table.partitioned_by)}")
            value = binder.bind(node)
            if not isinstance(value, Constant):
                binder.refuse(node, "a partition's value has to be a constant")
            chosen[name] = value_text(value.value, value.type)
        connector, context = connector_of(identifier, table)
        partitions = connector.partitions(context)
        return [
            "/".join(f"{key}={value}" for key, value in partition.items())
            for partition in partitions
            if all(partition.get(key) == value for key, value in chosen.items())
        ]

    # -- DESCRIBE

    def describe(self, statement: s.Describe) -> Listing:
        """The rows of DESCRIBE.

        Raises:
            SqlError: there is no such table, function, database or catalog.
        """
        try:
            match statement.kind:
                case "TABLE":
                    return self._description(statement.path)
                case "CATALOG":
                    facts = self._catalog_facts(statement)
                case "DATABASE":
                    facts = self._database_facts(statement)
                case _:
                    facts = self._function_facts(statement)
        except CatalogError as error:
            raise self._error(statement, str(error)) from error
        return [("info name", _TEXT), ("info value", _TEXT)], facts

    def _catalog_facts(self, statement: s.Describe) -> list[tuple[Any, ...]]:
        description = self._catalogs.describe_catalog(statement.path[0])
        facts = [
            ("name", statement.path[0]), ("type", description.options.get("type")), ("comment", description.comment),
        ]  # fmt: skip
        return facts + (_shown_options(description.options, {"type"}) if statement.is_extended else [])

    def _database_facts(self, statement: s.Describe) -> list[tuple[Any, ...]]:
        catalog, name = self._catalogs.database_path(statement.path)
        database = self._catalogs.database(catalog, name)
        facts = [("catalog", catalog), ("name", name), ("comment", database.comment)]
        return facts + (_shown_options(database.options, set()) if statement.is_extended else [])

    def _function_facts(self, statement: s.Describe) -> list[tuple[Any, ...]]:
        path, catalogs = statement.path, self._catalogs
        name = path[-1].lower()
        system = catalogs.system_functions.get(name) if len(path) == 1 else None
        if system is None and len(path) == 1 and name in built_in_functions():
            return [("is system function", "true"), ("is temporary", "false")]
        user = system or catalogs.find_function(path)
        if user is None:
            known = [
                *built_in_functions(),
                *catalogs.function_names(catalogs.current_catalog, catalogs.current_database),
            ]
            raise CatalogError(f"there is no function {'.'.join(path)}{near(name, known)}")
        identifier = catalogs.identifier((*path[:-1], name))
        is_temporary = system is not None or identifier in catalogs.temporary_functions
        facts: list[tuple[Any, ...]] = [
            ("is system function", str(system is not None).lower()), ("is temporary", str(is_temporary).lower()),
            ("class name", user.target), ("function language", user.language),
        ]  # fmt: skip
        return facts

    def _description(self, path: tuple[str, ...]) -> Listing:
        identifier, entry = self._catalogs.find(path)
        relation = QueryBinder(self._catalogs, self._session, self._sql).bind_table(identifier)
        declared: dict[str, TableColumn] = {}
        watermark = None
        if isinstance(entry, CatalogTable):
            declared = {column.name: column for column in entry.columns}
            watermark = entry.watermark
        rows: list[tuple[Any, ...]] = []
        for column in relation.columns:
            kind = f" *{column.time_attribute}*" if column.time_attribute else ""
            here = watermark.written if watermark is not None and watermark.column == column.name else None
            comment = declared[column.name].comment if column.name in declared else None
            rows.append(
                (
                    column.name, f"{type_text(column.type.nullable_())}{kind}", column.type.nullable,
                    _key(entry, column.name), _extras(declared.get(column.name)), here, comment,
                )
            )  # fmt: skip
        if all(row[-1] is None for row in rows):
            return _DESCRIPTION, [row[:-1] for row in rows]
        return [*_DESCRIPTION, ("comment", _TEXT)], rows


def _key(entry: Entry, column: str) -> str | None:
    if isinstance(entry, CatalogTable) and column in entry.primary_key:
        return f"PRI({', '.join(entry.primary_key)})"
    return None


def _extras(column: TableColumn | None) -> str | None:
    if column is not None and column.computed is not None:
        return f"AS {column.written}"
    if column is not None and column.metadata_key is not None:
        return f"METADATA FROM '{column.metadata_key}'" + (" VIRTUAL" if column.is_virtual else "")
    return None


def _shown_options(options: dict[str, str], without: set[str]) -> list[tuple[Any, ...]]:
    return [
        (f"option:{key}", MASK if is_sensitive(key) else value)
        for key, value in sorted(options.items())
        if key not in without
    ]


def built_in_functions() -> list[str]:
    """Names of the functions that are always there."""
    return sorted({name.lower() for name in (*FUNCTIONS, *AGGREGATES) if name[0].isalpha() and " " not in name})


def like_pattern(pattern: str, *, ignores_case: bool) -> re.Pattern[str]:
    """A pattern of LIKE: ``%`` stands for any characters, ``_`` for one; a backslash takes that meaning from them."""
    parts: Sequence[str] = re.findall(r"\\[%_\\]|.", pattern, re.DOTALL)
    signs = {"%": ".*", "_": "."}
    text = "".join(signs.get(part) or re.escape(part[1] if len(part) == 2 else part) for part in parts)
    return re.compile(text, re.DOTALL | (re.IGNORECASE if ignores_case else 0))
