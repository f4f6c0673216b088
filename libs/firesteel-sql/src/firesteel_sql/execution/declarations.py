"""CREATE TABLE and ALTER TABLE: declarations of tables, checked as far as they can be without their connector."""

from __future__ import annotations

from dataclasses import replace

from firesteel.table.types import DataType
from firesteel_sql.bind.expressions import ExpressionBinder
from firesteel_sql.bind.scope import Scope, ScopedColumn
from firesteel_sql.catalog.catalogs import CatalogError, Catalogs, near
from firesteel_sql.catalog.tables import CatalogTable, TableColumn, WatermarkDeclaration
from firesteel_sql.functions.signature import Session
from firesteel_sql.parse import nodes as n
from firesteel_sql.parse import statement_nodes as s
from firesteel_sql.parse.errors import SqlError
from firesteel_sql.plan.relations import Column, Relation
from firesteel_sql.types.rules import with_null
from firesteel_sql.types.written import data_type_of


class Declarations:
    """Makes declarations of tables from statements.

    Args:
        catalogs: where tables named by LIKE are.
        session: what functions need to know.
        sql: the statement.
    """

    def __init__(self, catalogs: Catalogs, session: Session, sql: str) -> None:
        self._catalogs, self._session, self._sql = catalogs, session, sql

    def _error(self, at: int, problem: str) -> SqlError:
        return ExpressionBinder(Scope([]), self._session, self._sql).error(at, problem)

    def table(self, statement: s.CreateTable, query: Relation | None) -> CatalogTable:
        """The table of CREATE TABLE.

        Args:
            statement: the statement.
            query: behind AS, whose columns the table gets.

        Raises:
            SqlError: a column is there twice, a name is unknown, a type is wrong.
        """
        columns = [self._column(column) for column in statement.columns]
        if query is not None:
            if columns:
                self._refuse_types(statement)
            columns = [TableColumn(column.name, column.type) for column in query.columns]
        watermark = None if statement.watermark is None else self._watermark(statement.watermark)
        key = () if statement.primary_key is None else statement.primary_key.columns
        table = CatalogTable(
            tuple(columns), dict(statement.options), watermark, key, statement.partitioned_by, statement.comment
        )
        if statement.like is not None:
            table = self._merged(table, statement.like)
        return self.checked(table, statement)

    def _refuse_types(self, statement: s.CreateTable) -> None:
        raise self._error(statement.columns[0].at, "CREATE TABLE ... AS takes its columns from the query")

    def _column(self, column: s.ColumnDefinition) -> TableColumn:
        if column.computed is not None:
            return TableColumn(column.name, None, column.computed, self._sql, comment=column.comment)
        if column.type is None:
            raise self._error(column.at, f"the column {column.name} has no type")
        data_type = data_type_of(column.type, self._error)
        if column.is_primary_key:
            data_type = with_null(data_type, False)
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
        return WatermarkDeclaration(spec.column[0], spec.expression, self._sql)

    def _merged(self, table: CatalogTable, like: s.LikeClause) -> CatalogTable:
        try:
            _, source = self._catalogs.find(like.table)
        except CatalogError as error:
            raise self._error(like.at, str(error)) from None
        if not isinstance(source, CatalogTable):
            raise self._error(like.at, f"{'.'.join(like.table)} is a view: LIKE takes a table")
        choices = {feature: verb for verb, feature in like.choices}
        every = choices.get("ALL", "INCLUDING")

        def takes(feature: str) -> bool:
            return choices.get(feature, every) != "EXCLUDING"

        columns = [
            column
            for column in source.columns
            if (column.is_physical or takes("GENERATED" if column.computed is not None else "METADATA"))
        ]
        for column in table.columns:
            if any(column.name == other.name for other in columns):
                raise self._error(like.at, f"the column {column.name} is in the table of LIKE already")
        return CatalogTable(
            (*columns, *table.columns),
            {**(source.options if takes("OPTIONS") else {}), **table.options},
            table.watermark or (source.watermark if takes("WATERMARKS") else None),
            table.primary_key or (source.primary_key if takes("CONSTRAINTS") else ()),
            table.partitioned_by or (source.partitioned_by if takes("PARTITIONS") else ()),
            table.comment or source.comment,
        )

    def checked(self, table: CatalogTable, node: n.Node) -> CatalogTable:
        """The table, if its parts go together.

        Raises:
            SqlError: they do not.
        """
        names = [column.name for column in table.columns]
        for name in names:
            if names.count(name) > 1:
                raise self._error(node.at, f"the table has two columns of the name {name}")
        scoped = [
            ScopedColumn(Column(column.name, column.type), place, ())
            for place, column in enumerate(column for column in table.columns if column.type is not None)
            if column.type is not None
        ]
        binder = ExpressionBinder(Scope(scoped), self._session, self._sql)
        types: dict[str, DataType] = {}
        for column in table.columns:
            types[column.name] = column.type if column.computed is None else binder.bind(column.computed).type  # type: ignore[assignment]
        for key in table.primary_key:
            if key not in names:
                raise self._error(node.at, f"the primary key's column {key} is not there{near(key, names)}")
        for key in table.partitioned_by:
            if key not in names:
                raise self._error(node.at, f"the partition's column {key} is not there{near(key, names)}")
        if table.watermark is not None:
            self._check_watermark(table.watermark, types, node)
        columns = tuple(
            replace(column, type=with_null(column.type, False))
            if column.name in table.primary_key and column.type is not None
            else column
            for column in table.columns
        )
        return replace(table, columns=columns)

    def _check_watermark(self, watermark: WatermarkDeclaration, types: dict[str, DataType], node: n.Node) -> None:
        found = types.get(watermark.column)
        if found is None:
            raise self._error(
                node.at, f"the watermark's column {watermark.column} is not there{near(watermark.column, types)}"
            )
        if found.name not in ("TIMESTAMP", "TIMESTAMP_LTZ") or found.parameters[0] > 3:
            raise self._error(
                node.at,
                f"the watermark's column {watermark.column} is {found}: it has to be TIMESTAMP(3) or TIMESTAMP_LTZ(3)",
            )
        scoped = [
            ScopedColumn(Column(name, data_type), place, ()) for place, (name, data_type) in enumerate(types.items())
        ]
        bound = ExpressionBinder(Scope(scoped), self._session, self._sql).bind(watermark.expression)
        if bound.type.name != found.name:
            raise self._error(
                watermark.expression.at, f"the watermark is {bound.type}, and {watermark.column} is {found}"
            )

    def altered(self, table: CatalogTable, action: s.AlterAction) -> CatalogTable:
        """The table after ALTER TABLE.

        Raises:
            SqlError: there is no such column, or the parts do not go together any more.
        """
        match action:
            case s.SetTableOptions():
                return replace(table, options={**table.options, **dict(action.options)})
            case s.ResetTableOptions():
                if "connector" in action.keys:
                    raise self._error(action.at, "the connector can't be reset: SET it to another one")
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
            raise self._error(at, f"the table has no column {name}{near(name, names)}")
        return names.index(name)

    def _renamed(self, table: CatalogTable, action: s.RenameColumn) -> CatalogTable:
        self._place(table, action.old, action.at)
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
            names = [one.name for one in columns]
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
        watermark = table.watermark if action.watermark is None else self._watermark(action.watermark)
        key = table.primary_key if action.primary_key is None else action.primary_key.columns
        return replace(table, columns=tuple(columns), watermark=watermark, primary_key=key)

    def _dropped(self, table: CatalogTable, action: s.DropParts) -> CatalogTable:
        for name in action.columns:
            self._place(table, name, action.at)
            if name in table.primary_key:
                raise self._error(action.at, f"the column {name} is a part of the primary key: DROP PRIMARY KEY before")
        columns = tuple(column for column in table.columns if column.name not in action.columns)
        return replace(
            table,
            columns=columns,
            watermark=None if action.drops_watermark else table.watermark,
            primary_key=() if action.drops_primary_key or action.constraint else table.primary_key,
        )
