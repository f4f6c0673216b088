"""Queries as relations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

from firesteel.table.types import DataType
from firesteel_sql.bind.expressions import ExpressionBinder
from firesteel_sql.bind.scope import NameRefused, Scope, ScopedColumn
from firesteel_sql.catalog.catalogs import CatalogError, Catalogs
from firesteel_sql.catalog.tables import CatalogTable, CatalogView, Identifier, InlineView
from firesteel_sql.functions.signature import Session, coerced
from firesteel_sql.parse import nodes as n
from firesteel_sql.parse.errors import SqlError
from firesteel_sql.parse.statements import parse_query
from firesteel_sql.plan.relations import (
    Column,
    ConstantRows,
    Filter,
    Projection,
    Relation,
    Scan,
    Union,
    WatermarkAssigner,
)
from firesteel_sql.plan.row_expressions import InputColumn, RowExpression
from firesteel_sql.types import rules

_DEEPEST = 50
"""Views within each other."""


@dataclass
class QueryBinder:
    """Finds the meaning of queries.

    Attributes:
        catalogs: tables and views.
        session: what functions need to know.
        sql: the statement, for errors.
        common_tables: relations behind WITH, by name.
        depth: of views within each other.
    """

    catalogs: Catalogs
    session: Session
    sql: str
    common_tables: dict[str, Relation] = field(default_factory=dict)
    depth: int = 0

    def bind(self, query: n.Query) -> Relation:
        """The relation of a query.

        Raises:
            SqlError: a name is unknown, types do not fit, or a part of SQL is not supported.
        """
        if query.is_recursive:
            self._refuse(query, "WITH RECURSIVE is not supported yet")
        inner = replace(self, common_tables=dict(self.common_tables))
        for common in query.common_tables:
            relation = inner.bind(common.query)
            inner.common_tables[common.name] = self._renamed(common, relation, common.columns)
        if query.order_by:
            self._refuse(query.order_by[0], "ORDER BY is not supported yet")
        if query.limit is not None or query.offset is not None:
            self._refuse(query.limit or query.offset or query, "LIMIT and OFFSET are not supported yet")
        return inner._body(query.body)

    def bind_table(self, identifier: Identifier) -> Relation:
        """The relation of a table or view by its full name.

        Raises:
            SqlError: there is none, or its declaration is not right any more.
        """
        return self._named(n.NamedTable(identifier))[0]

    def _refuse(self, node: n.Node, problem: str) -> NoReturn:
        raise self._expressions([]).error(node.at, problem)

    def _expressions(self, columns: list[ScopedColumn]) -> ExpressionBinder:
        return ExpressionBinder(Scope(columns), self.session, self.sql)

    def _body(self, body: n.QueryBody) -> Relation:
        match body:
            case n.Select():
                return self._select(body)
            case n.NestedQuery():
                return self.bind(body.query)
            case n.ValuesClause():
                return self._values(body)
            case n.SetOperation():
                return self._set_operation(body)
        raise AssertionError(body)

    # -- VALUES and set operations

    def _values(self, body: n.ValuesClause) -> Relation:
        binder = self._expressions([])
        width = len(body.rows[0])
        for row in body.rows:
            if len(row) != width:
                self._refuse(row[0], f"a row of VALUES has {len(row)} values, the first one has {width}")
        bound = [[binder.bind(item) for item in row] for row in body.rows]
        common: list[DataType] = []
        for place in range(width):
            found = rules.common_type([row[place].type for row in bound])
            if found is None:
                self._refuse(body.rows[1][place], f"the values of column {place + 1} have no type in common")
            common.append(found)
        columns = tuple(Column(f"EXPR${place}", data_type) for place, data_type in enumerate(common))
        return self._constant_rows(columns, bound)

    def _constant_rows(self, columns: tuple[Column, ...], rows: Sequence[Sequence[RowExpression]]) -> Relation:
        expressions = [
            tuple(coerced(item, column.type, self.session) for item, column in zip(row, columns, strict=True))
            for row in rows
        ]
        return ConstantRows(columns, tuple(expressions))

    def _set_operation(self, body: n.SetOperation) -> Relation:
        if body.operator != "UNION" or not body.keeps_duplicates:
            word = body.operator + (" ALL" if body.keeps_duplicates else "")
            hint = ": UNION ALL keeps equal rows" if body.operator == "UNION" else ""
            self._refuse(body.right, f"{word} is not supported yet{hint}")
        left, right = self._body(body.left), self._body(body.right)
        if len(left.columns) != len(right.columns):
            self._refuse(
                body.right, f"this query has {len(right.columns)} columns, the one before UNION {len(left.columns)}"
            )
        columns: list[Column] = []
        for one, other in zip(left.columns, right.columns, strict=True):
            common = rules.common_type([one.type, other.type])
            if common is None:
                self._refuse(body.right, f"column {one.name} is {one.type} before UNION and {other.type} behind it")
            same_time = one.time_attribute if one.time_attribute == other.time_attribute else None
            columns.append(Column(one.name, common, same_time))
        made = tuple(columns)
        return Union(made, tuple(self._cast_to(part, made) for part in (left, right)))

    def _cast_to(self, relation: Relation, columns: tuple[Column, ...]) -> Relation:
        items = [
            coerced(InputColumn(old.type, place, old.name), new.type, self.session)
            for place, (old, new) in enumerate(zip(relation.columns, columns, strict=True))
        ]
        if all(isinstance(item, InputColumn) for item in items) and relation.columns == columns:
            return relation
        return Projection(columns, relation, tuple(items))

    # -- SELECT

    def _select(self, body: n.Select) -> Relation:
        clauses = {
            "GROUP BY": body.group_by, "HAVING": body.having, "WINDOW": body.windows or None, "QUALIFY": body.qualify,
        }  # fmt: skip
        for clause, found in clauses.items():
            if found is not None:
                self._refuse(body, f"{clause} is not supported yet")
        if body.is_distinct:
            self._refuse(body, "SELECT DISTINCT is not supported yet")
        relation: Relation = ConstantRows((), ((),))
        scoped: list[ScopedColumn] = []
        if body.source is not None:
            relation, scoped = self._source(body.source)
        binder = self._expressions(scoped)
        if body.where is not None:
            relation = Filter(relation.columns, relation, binder.condition(body.where, "WHERE"))
        columns: list[Column] = []
        expressions: list[RowExpression] = []
        for item in body.items:
            if isinstance(item.expression, n.Star):
                for column in self._starred(item.expression, binder.scope):
                    columns.append(column.column)
                    expressions.append(InputColumn(column.column.type, column.index, column.column.name))
                continue
            bound = binder.bind(item.expression)
            columns.append(self._column(item, bound, len(columns), relation))
            expressions.append(bound)
        return Projection(tuple(columns), relation, tuple(expressions))

    def _starred(self, star: n.Star, scope: Scope) -> list[ScopedColumn]:
        if not star.qualifier:
            if not scope.columns:
                self._refuse(star, "SELECT * needs a FROM")
            return scope.columns
        try:
            return scope.of_table(star.qualifier)
        except NameRefused as refused:
            self._refuse(star, str(refused))

    def _column(self, item: n.SelectItem, bound: RowExpression, place: int, relation: Relation) -> Column:
        name = item.alias
        if name is None and isinstance(item.expression, (n.ColumnReference, n.Member)):
            name = item.expression.path[-1] if isinstance(item.expression, n.ColumnReference) else item.expression.name
        time_attribute = None
        if isinstance(bound, InputColumn):
            time_attribute = relation.columns[bound.index].time_attribute
        elif str(bound) == "CURRENT_TIMESTAMP()" and isinstance(item.expression, n.Call):
            time_attribute = "PROCTIME" if item.expression.function[-1].upper() == "PROCTIME" else None
        return Column(name or f"EXPR${place}", bound.type, time_attribute)

    # -- FROM

    def _source(self, source: n.TableReference) -> tuple[Relation, list[ScopedColumn]]:
        match source:
            case n.Aliased():
                return self._aliased(source)
            case n.Join():
                self._refuse(source.right, "joins are not supported yet")
        raise AssertionError(source)

    def _aliased(self, node: n.Aliased) -> tuple[Relation, list[ScopedColumn]]:
        if node.as_of is not None:
            self._refuse(node.as_of, "FOR SYSTEM_TIME AS OF is not supported yet")
        qualifiers: tuple[tuple[str, ...], ...] = ()
        match node.source:
            case n.NamedTable():
                relation, qualifiers = self._named(node.source)
            case n.DerivedTable() if not node.source.is_lateral:
                relation = self.bind(node.source.query)
            case n.TableFunction():
                self._refuse(
                    node.source, f"the table function {'.'.join(node.source.call.function)} is not supported yet"
                )
            case n.Unnest():
                self._refuse(node.source, "UNNEST is not supported yet")
            case _:
                self._refuse(node.source, "LATERAL is not supported yet")
        if node.alias is not None:
            qualifiers = ((node.alias,),)
        relation = self._renamed(node, relation, node.columns)
        return relation, [ScopedColumn(column, place, qualifiers) for place, column in enumerate(relation.columns)]

    def _renamed(self, node: n.Node, relation: Relation, names: Sequence[str]) -> Relation:
        """The relation with other names of its columns."""
        if not names:
            return relation
        if len(names) != len(relation.columns):
            self._refuse(node, f"{len(names)} names are given for {len(relation.columns)} columns")
        columns = tuple(replace(column, name=name) for column, name in zip(relation.columns, names, strict=True))
        items = tuple(InputColumn(column.type, place, column.name) for place, column in enumerate(relation.columns))
        return Projection(columns, relation, items)

    def _named(self, node: n.NamedTable) -> tuple[Relation, tuple[tuple[str, ...], ...]]:
        if len(node.path) == 1 and node.path[0] in self.common_tables:
            return self.common_tables[node.path[0]], ((node.path[0],),)
        try:
            identifier, entry = self.catalogs.find(node.path)
        except CatalogError as error:
            self._refuse(node, str(error))
        qualifiers = (identifier[2:], identifier[1:], identifier)
        if isinstance(entry, CatalogView):
            return self._view(node, entry), qualifiers
        if isinstance(entry, InlineView):
            inline: Relation = entry.relation
            return inline, qualifiers
        options = dict(entry.options)
        for hint in node.hints:
            if hint.name == "OPTIONS":
                options.update(hint.options)
        return self._table(identifier, replace(entry, options=options)), qualifiers

    def _view(self, node: n.Node, view: CatalogView) -> Relation:
        if self.depth >= _DEEPEST:
            self._refuse(node, f"views stand within each other more than {_DEEPEST} levels deep")
        there = self.catalogs.within(view.catalog, view.database)
        inner = QueryBinder(there, self.session.within(there), view.text, depth=self.depth + 1)
        try:
            relation = inner.bind(parse_query(view.text).query)
        except SqlError as error:
            self._refuse(node, f"the view's query is not right any more: {error.problem}")
        return self._renamed(node, relation, view.columns)

    def _table(self, identifier: Identifier, table: CatalogTable) -> Relation:
        """What a query reads of a table: its rows, with computed columns and event time."""
        read = [column for column in table.columns if column.computed is None]
        scan: Relation = Scan(
            tuple(Column(column.name, column.type) for column in read if column.type is not None), identifier, table
        )
        scoped = [ScopedColumn(column, place, ()) for place, column in enumerate(scan.columns)]
        places = {column.name: place for place, column in enumerate(scan.columns)}
        columns: list[Column] = []
        expressions: list[RowExpression] = []
        for declared in table.columns:
            if declared.computed is None:
                place = places[declared.name]
                column = scan.columns[place]
                columns.append(column)
                expressions.append(InputColumn(column.type, place, column.name))
            else:
                binder = ExpressionBinder(Scope(scoped), self.session, declared.text)
                bound = binder.bind(declared.computed)
                is_proctime = (
                    isinstance(declared.computed, n.Call) and declared.computed.function[-1].upper() == "PROCTIME"
                )
                columns.append(Column(declared.name, bound.type, "PROCTIME" if is_proctime else None))
                expressions.append(bound)
        relation: Relation = scan
        if any(declared.computed is not None for declared in table.columns):
            relation = Projection(tuple(columns), scan, tuple(expressions))
        if table.watermark is not None:
            relation = self._with_watermark(relation, table)
        return relation

    def _with_watermark(self, relation: Relation, table: CatalogTable) -> Relation:
        assert table.watermark is not None
        declared = table.watermark
        place = next(place for place, column in enumerate(relation.columns) if column.name == declared.column)
        scoped = [ScopedColumn(column, index, ()) for index, column in enumerate(relation.columns)]
        watermark = ExpressionBinder(Scope(scoped), self.session, declared.text).bind(declared.expression)
        columns = tuple(
            replace(column, time_attribute="ROWTIME") if index == place else column
            for index, column in enumerate(relation.columns)
        )
        return WatermarkAssigner(columns, relation, place, watermark)
