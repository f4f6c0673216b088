"""CREATE TABLE and ALTER TABLE: declarations of tables, checked as far as they can be without their connector."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from firesteel.table.types import DataType
from firesteel_sql.bind.expressions import ExpressionBinder
from firesteel_sql.bind.scope import Scope, ScopedColumn
from firesteel_sql.catalog.catalog import CatalogError, near
from firesteel_sql.catalog.catalogs import Catalogs
from firesteel_sql.catalog.tables import CatalogTable, TableColumn, WatermarkDeclaration
from firesteel_sql.functions.signature import Session
from firesteel_sql.parse import nodes as n
from firesteel_sql.parse import statement_nodes as s
from firesteel_sql.parse.errors import SqlError, error_at, place_of
from firesteel_sql.plan.relations import Column, Relation
from firesteel_sql.plan.row_expressions import InputColumn, RowExpression
from firesteel_sql.types import rules
from firesteel_sql.types.written import data_type_of

_T = TypeVar("_T")


class Declarations:
    """Makes declarations of tables from statements.

    Args:
        catalogs: where tables named by LIKE are.
        session: what functions need to know.
        sql: the statement.
    """

    def __init__(self, catalogs: Catalogs, session: Session, sql: str) -> None:
        self._catalogs, self._session, self._sql = catalogs, session, sql

    def _error(self, at: int, problem: str, name: str | None = None) -> SqlError:
        return error_at(self._sql, at, problem, name)

    # -- CREATE TABLE

    def table(self, statement: s.CreateTable, query: Relation | None) -> CatalogTable:
        """The table of CREATE TABLE.

        Args:
            statement: the statement.
            query: behind AS, whose columns the table gets.

        Raises:
            SqlError: a column is there twice, a name is unknown, a type is wrong.
        """
        if query is not None:
            columns = self._columns_of_query(statement, query)
        else:
            columns = [self._column(column) for column in statement.columns]
        watermark = None if statement.watermark is None else self._watermark(statement.watermark)
        key = () if statement.primary_key is None else statement.primary_key.columns
        constraint = None if statement.primary_key is None else statement.primary_key.constraint
        table = CatalogTable(
            tuple(columns), dict(statement.options), watermark, key, statement.partitioned_by, statement.comment,
            constraint,
        )  # fmt: skip
        if statement.like is not None:
            table = self._merged(table, statement.like)
        return self.checked(table, statement)

    def _columns_of_query(self, statement: s.CreateTable, query: Relation) -> list[TableColumn]:
        """The columns of CREATE TABLE ... AS: those that were declared, then those of the query.

        Names without types give the order of the query's columns. A declared column of the name of one of the query
        gives it its type.
        """
        given = {column.name: TableColumn(column.name, column.type) for column in query.columns}
        if len(given) < len(query.columns):
            names = [column.name for column in query.columns]
            twice = next(name for name in names if names.count(name) > 1)
            raise self._error(statement.at, f"the query has two columns of the name {twice}: give one of them an alias")
        if any(column.type.name == "NULL" for column in query.columns):
            name = next(column.name for column in query.columns if column.type.name == "NULL")
            raise self._error(statement.at, f"the column {name} is always NULL: give it a type with CAST(NULL AS ...)")
        without_type = [column for column in statement.columns if column.type is None and column.computed is None]
        if without_type:
            if len(without_type) < len(statement.columns):
                raise self._error(without_type[0].at, f"the column {without_type[0].name} has no type")
            return self._ordered(statement, without_type, given)
        declared = [self._column(column) for column in statement.columns]
        for node, column in zip(statement.columns, declared, strict=True):
            source = given.pop(column.name, None)
            if source is None:
                continue
            if column.type is None or column.computed is not None or source.type is None:
                raise self._error(node.at, f"the column {column.name} is computed, and the query gives it as well")
            if not rules.is_implicit(source.type, column.type):
                raise self._error(
                    node.at, f"the column {column.name} is {column.type}, and the query gives {source.type}: write a "
                    "CAST in the query",
                )  # fmt: skip
        return [*declared, *given.values()]

    def _ordered(
        self, statement: s.CreateTable, nodes: Sequence[s.ColumnDefinition], given: dict[str, TableColumn]
    ) -> list[TableColumn]:
        for node in nodes:
            if node.name not in given:
                raise self._error(node.at, f"the query has no column {node.name}{near(node.name, given)}")
        missing = [name for name in given if name not in {node.name for node in nodes}]
        if missing:
            raise self._error(
                statement.at, f"the columns behind the table's name put those of the query in order: {missing[0]} is "
                "missing",
            )  # fmt: skip
        return [given[node.name] for node in nodes]

    def _column(self, column: s.ColumnDefinition) -> TableColumn:
        if column.computed is not None:
            return TableColumn(
                column.name, None, column.computed, self._sql, comment=column.comment, written=column.written
            )
        if column.type is None:
            raise self._error(column.at, f"the column {column.name} has no type")
        data_type = data_type_of(column.type, self._error)
        if column.is_primary_key:
            data_type = rules.with_null(data_type, False)
        return TableColumn(
            column.name,
            data_type,
            metadata_key=column.metadata_key,
            is_virtual=column.is_virtual,
            comment=column.comment,
        )

    def _watermark(self, spec: s.WatermarkSpec) -> WatermarkDeclaration:
        if len(spec.column) > 1:
            raise self._error(
                spec.at, "a watermark is declared for a column, not for a field: make a computed column of it"
            )
        return WatermarkDeclaration(spec.column[0], spec.expression, self._sql, spec.written)

    # -- LIKE

    def _merged(self, table: CatalogTable, like: s.LikeClause) -> CatalogTable:
        """The table with what it takes from the one behind LIKE."""
        try:
            _, source = self._catalogs.find(like.table)
        except CatalogError as error:
            raise self._error(like.at, str(error)) from None
        if not isinstance(source, CatalogTable):
            raise self._error(like.at, f"{'.'.join(like.table)} is a view: LIKE takes a table")
        verbs = self._verbs(like)
        columns = self._merged_columns(table, source, like, verbs)
        options = dict(source.options) if verbs["OPTIONS"] != "EXCLUDING" else {}
        for option, value in table.options.items():
            if option in options and verbs["OPTIONS"] == "INCLUDING":
                raise self._error(
                    like.at, f"the option '{option}' is one of {'.'.join(like.table)}, too: OVERWRITING OPTIONS, or "
                    "EXCLUDING OPTIONS",
                )  # fmt: skip
            options[option] = value
        watermark = self._one_of(
            "WATERMARKS", "watermark", table.watermark, source.watermark, like, verbs["WATERMARKS"]
        )
        key = self._one_of(
            "CONSTRAINTS", "primary key", table.primary_key or None, source.primary_key or None, like,
            verbs["CONSTRAINTS"],
        )  # fmt: skip
        partitions = self._one_of(
            "PARTITIONS", "PARTITIONED BY", table.partitioned_by or None, source.partitioned_by or None, like,
            verbs["PARTITIONS"],
        )  # fmt: skip
        constraint = table.constraint if table.primary_key else source.constraint
        return CatalogTable(
            tuple(columns), options, watermark, key or (), partitions or (), table.comment,
            constraint if key is not None else None,
        )  # fmt: skip

    def _verbs(self, like: s.LikeClause) -> dict[str, str]:
        """INCLUDING, EXCLUDING or OVERWRITING for each feature of a table."""
        chosen: dict[str, str] = {}
        for verb, feature in like.choices:
            if feature in chosen:
                raise self._error(like.at, f"LIKE says twice what becomes of {feature}")
            if verb == "OVERWRITING" and feature not in ("ALL", *_OVERWRITTEN):
                raise self._error(like.at, f"{feature} can't be overwritten: INCLUDING {feature}, or EXCLUDING")
            chosen[feature] = verb
        every = chosen.get("ALL", "INCLUDING")
        verbs = {}
        for feature in (*_OVERWRITTEN, "CONSTRAINTS", "PARTITIONS"):
            default = every if feature in _OVERWRITTEN or every != "OVERWRITING" else "INCLUDING"
            if feature == "OPTIONS" and "ALL" not in chosen:
                default = "OVERWRITING"
            verbs[feature] = chosen.get(feature, default)
        return verbs

    def _merged_columns(
        self, table: CatalogTable, source: CatalogTable, like: s.LikeClause, verbs: dict[str, str]
    ) -> list[TableColumn]:
        columns = {
            column.name: column
            for column in source.columns
            if column.is_physical or verbs[_feature_of(column)] != "EXCLUDING"
        }
        for column in table.columns:
            other = columns.get(column.name)
            is_overwritten = (
                other is not None
                and not column.is_physical
                and not other.is_physical
                and _feature_of(column) == _feature_of(other)
                and verbs[_feature_of(column)] == "OVERWRITING"
            )
            if other is not None and not is_overwritten:
                hint = "" if other.is_physical else f": OVERWRITING {_feature_of(other)}, or EXCLUDING"
                raise self._error(like.at, f"the column {column.name} is in {'.'.join(like.table)} already{hint}")
            columns[column.name] = column
        return list(columns.values())

    def _one_of(
        self, feature: str, word: str, own: _T | None, other: _T | None, like: s.LikeClause, verb: str
    ) -> _T | None:
        if verb == "EXCLUDING" or other is None:
            return own
        if own is not None and verb == "INCLUDING":
            hint = f"OVERWRITING {feature}, or EXCLUDING" if feature in _OVERWRITTEN else f"EXCLUDING {feature}"
            raise self._error(like.at, f"{'.'.join(like.table)} has a {word} as well: {hint}")
        return other if own is None else own

    # -- checks

    def checked(self, table: CatalogTable, node: n.Node) -> CatalogTable:
        """The table, if its parts go together.

        Raises:
            SqlError: they do not.
        """
        names = [column.name for column in table.columns]
        if not names:
            raise self._error(node.at, "the table has no columns: name them in parentheses, or write LIKE or AS")
        for name in names:
            if names.count(name) > 1:
                first = place_of(self._sql, node.at, name)
                raise self._error(first[1], f"the table has two columns of the name {name}", name)
        types: dict[str, DataType] = {}
        for column in table.columns:
            if column.computed is None:
                assert column.type is not None
                types[column.name] = column.type
            else:
                types[column.name] = self._computed(table, column).type
        self._check_keys("the primary key's column", table.primary_key, table, node)
        self._check_keys("the partition's column", table.partitioned_by, table, node)
        if table.watermark is not None:
            self._check_watermark(table.watermark, types, node)
        columns = tuple(
            replace(column, type=rules.with_null(column.type, False))
            if column.name in table.primary_key and column.type is not None
            else column
            for column in table.columns
        )
        return replace(table, columns=columns)

    def _check_keys(self, what: str, keys: Sequence[str], table: CatalogTable, node: n.Node) -> None:
        physical = [column.name for column in table.columns if column.is_physical]
        for key in keys:
            if key not in physical:
                if any(column.name == key for column in table.columns):
                    raise self._error(
                        node.at, f"{what} {key} is computed or metadata: it has to be a column of rows", key
                    )
                raise self._error(node.at, f"{what} {key} is not there{near(key, physical)}", key)
            if keys.count(key) > 1:
                raise self._error(node.at, f"{what} {key} is named twice", key)

    def _computed(self, table: CatalogTable, column: TableColumn) -> RowExpression:
        """The expression of a computed column, over those that are not computed."""
        assert column.computed is not None
        read = [other for other in table.columns if other.computed is None]
        binder = ExpressionBinder(
            Scope(_scoped((other.name, other.type) for other in read)), self._session, column.text
        )
        return binder.bind(column.computed)

    def _check_watermark(self, watermark: WatermarkDeclaration, types: dict[str, DataType], node: n.Node) -> None:
        found = types.get(watermark.column)
        if found is None:
            raise self._error(
                max(self._sql.upper().find("WATERMARK", node.at), node.at),
                f"the watermark's column {watermark.column} is not there{near(watermark.column, types)}",
                watermark.column,
            )
        if found.name not in ("TIMESTAMP", "TIMESTAMP_LTZ") or found.parameters[0] > 3:
            raise self._error(
                max(self._sql.upper().find("WATERMARK", node.at), node.at),
                f"the watermark's column {watermark.column} is {found}: it has to be TIMESTAMP(3) or TIMESTAMP_LTZ(3)",
                watermark.column,
            )
        binder = ExpressionBinder(Scope(_scoped(types.items())), self._session, watermark.text)
        bound = binder.bind(watermark.expression)
        if bound.type.name != found.name:
            binder.refuse(watermark.expression, f"the watermark is {bound.type}, and {watermark.column} is {found}")

    # -- ALTER TABLE

    def altered(self, table: CatalogTable, action: s.AlterAction) -> CatalogTable:
        """The table after ALTER TABLE.

        Raises:
            SqlError: there is no such column, or the parts do not go together any more.
        """
        match action:
            case s.SetTableOptions():
                if not action.options:
                    raise self._error(action.at, "no option is given: SET ('key' = 'value')")
                return replace(table, options={**table.options, **dict(action.options)})
            case s.ResetTableOptions():
                if "connector" in action.keys:
                    raise self._error(action.at, "the connector can't be reset: SET it to another one", "connector")
                for key in action.keys:
                    if key not in table.options:
                        raise self._error(action.at, f"the table has no option '{key}'{near(key, table.options)}", key)
                return replace(
                    table, options={key: value for key, value in table.options.items() if key not in action.keys}
                )
            case s.RenameColumn():
                return self.checked(self._renamed(table, action), action)
            case s.AddOrModify():
                return self.checked(self._added(table, action), action)
            case s.DropParts():
                return self.checked(self._dropped(table, action), action)
        raise AssertionError(action)

    def _place(self, table: CatalogTable, name: str, at: int) -> int:
        names = [column.name for column in table.columns]
        if name not in names:
            raise self._error(at, f"the table has no column {name}{near(name, names)}", name)
        return names.index(name)

    def _refuse_used(self, table: CatalogTable, name: str, at: int) -> None:
        """Refuse a change of a column that computed columns or the watermark are made of."""
        for column in table.columns:
            if column.computed is not None and _reads(self._computed(table, column), name):
                raise self._error(at, f"the column {column.name} is computed from {name}: DROP it before", name)
        if table.watermark is None:
            return
        types = {
            column.name: column.type if column.computed is None else self._computed(table, column).type
            for column in table.columns
        }
        binder = ExpressionBinder(Scope(_scoped(types.items())), self._session, table.watermark.text)
        if table.watermark.column == name or _reads(binder.bind(table.watermark.expression), name):
            raise self._error(at, f"the watermark is made of {name}: DROP WATERMARK before", name)

    def _renamed(self, table: CatalogTable, action: s.RenameColumn) -> CatalogTable:
        self._place(table, action.old, action.at)
        if any(column.name == action.new for column in table.columns):
            raise self._error(action.at, f"the table has a column {action.new} already", action.new)
        self._refuse_used(table, action.old, action.at)
        columns = tuple(
            replace(column, name=action.new) if column.name == action.old else column for column in table.columns
        )
        rename = {action.old: action.new}
        return replace(
            table,
            columns=columns,
            primary_key=tuple(rename.get(name, name) for name in table.primary_key),
            partitioned_by=tuple(rename.get(name, name) for name in table.partitioned_by),
        )

    def _added(self, table: CatalogTable, action: s.AddOrModify) -> CatalogTable:
        columns = list(table.columns)
        for placed in action.columns:
            column = self._column(placed.column)
            names = [other.name for other in columns]
            if action.is_modify:
                place = self._place(replace(table, columns=tuple(columns)), column.name, placed.at)
                columns.pop(place)
            elif column.name in names:
                raise self._error(placed.at, f"the table has a column {column.name} already: MODIFY it")
            else:
                place = len(columns)
            if placed.place is not None:
                rest = replace(table, columns=tuple(columns))
                place = 0 if placed.place == "" else self._place(rest, placed.place, placed.at) + 1
            columns.insert(place, column)
        watermark, key, constraint = table.watermark, table.primary_key, table.constraint
        if action.watermark is not None:
            self._refuse_unless(action, "watermark", table.watermark is not None, action.watermark.at)
            watermark = self._watermark(action.watermark)
        declared = [placed.column.name for placed in action.columns if placed.column.is_primary_key]
        if declared:
            self._refuse_unless(action, "primary key", bool(table.primary_key), action.at)
            key, constraint = tuple(declared), None
        if action.primary_key is not None:
            self._refuse_unless(action, "primary key", bool(table.primary_key), action.primary_key.at)
            key, constraint = action.primary_key.columns, action.primary_key.constraint
        return replace(table, columns=tuple(columns), watermark=watermark, primary_key=key, constraint=constraint)

    def _refuse_unless(self, action: s.AddOrModify, what: str, is_there: bool, at: int) -> None:
        if action.is_modify and not is_there:
            raise self._error(at, f"the table has no {what}: ADD it")
        if is_there and not action.is_modify:
            raise self._error(at, f"the table has a {what} already: MODIFY it")

    def _dropped(self, table: CatalogTable, action: s.DropParts) -> CatalogTable:
        if action.drops_watermark and table.watermark is None:
            raise self._error(action.at, "the table has no watermark")
        if (action.drops_primary_key or action.constraint is not None) and not table.primary_key:
            raise self._error(action.at, "the table has no primary key")
        if action.constraint is not None and action.constraint != table.constraint:
            there = "no name" if table.constraint is None else f"the name {table.constraint}"
            raise self._error(action.at, f"there is no constraint {action.constraint}: the primary key has {there}")
        for name in action.columns:
            self._place(table, name, action.at)
            if action.columns.count(name) > 1:
                raise self._error(action.at, f"the column {name} is named twice", name)
            if name in table.primary_key:
                raise self._error(
                    action.at, f"the column {name} is a part of the primary key: DROP PRIMARY KEY before", name
                )
            if name in table.partitioned_by:
                raise self._error(action.at, f"the column {name} is one of PARTITIONED BY, and stays", name)
        columns = tuple(column for column in table.columns if column.name not in action.columns)
        # Computed columns that go at the same time may be made of it.
        staying = [column for column in table.columns if column.name not in action.columns or column.computed is None]
        for name in action.columns:
            self._refuse_used(replace(table, columns=tuple(staying)), name, action.at)
        drops_key = action.drops_primary_key or action.constraint is not None
        return replace(
            table,
            columns=columns,
            watermark=None if action.drops_watermark else table.watermark,
            primary_key=() if drops_key else table.primary_key,
            constraint=None if drops_key else table.constraint,
        )


_OVERWRITTEN = ("GENERATED", "METADATA", "OPTIONS", "WATERMARKS")
"""Features of a table that OVERWRITING may name."""


def _feature_of(column: TableColumn) -> str:
    """What LIKE calls a column that is not physical."""
    return "GENERATED" if column.computed is not None else "METADATA"


def _scoped(columns: Iterable[tuple[str, DataType | None]]) -> list[ScopedColumn]:
    return [
        ScopedColumn(Column(name, data_type), place, ())
        for place, (name, data_type) in enumerate(columns)
        if data_type is not None
    ]


def _reads(expression: RowExpression, column: str) -> bool:
    return any(isinstance(part, InputColumn) and part.name == column for part in expression.walk())
