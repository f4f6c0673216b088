"""Queries as relations."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NoReturn

from firesteel.table.types import DataType, DataTypes
from firesteel_sql.bind.expressions import ExpressionBinder
from firesteel_sql.bind.nesting import Source
from firesteel_sql.bind.scope import Scope, ScopedColumn
from firesteel_sql.bind.select import SelectBinder, SelectedRows, distinct, ordinal, sort_key
from firesteel_sql.bind.sources import SourceBinder, renamed
from firesteel_sql.catalog.catalogs import Catalogs
from firesteel_sql.catalog.tables import CatalogView, Identifier
from firesteel_sql.functions.signature import Session, coerced
from firesteel_sql.parse import nodes as n
from firesteel_sql.parse.statements import parse_query
from firesteel_sql.plan.projections import all_columns, chosen_columns, column_at, extended, projected
from firesteel_sql.plan.pushdown import filtered, joined
from firesteel_sql.plan.recursion import Recursion, WorkingTable
from firesteel_sql.plan.relations import Column, ConstantRows, Projection, Relation, Union
from firesteel_sql.plan.row_expressions import AppliedFunction, Constant, InputColumn, RowExpression
from firesteel_sql.plan.stateful_relations import (
    AggregateCall,
    GroupBy,
    JoinKind,
    Rank,
    RankFunction,
    Replicate,
    SortedRows,
    SortKey,
)
from firesteel_sql.types import rules


@dataclass
class QueryBinder:
    """Finds the meaning of queries.

    Attributes:
        catalogs: tables and views.
        session: what functions need to know.
        sql: the statement, for errors.
        common_tables: relations behind WITH, by name.
        depth: of views within each other.
        outer: what the query around this one sees; None = there is none.
    """

    catalogs: Catalogs
    session: Session
    sql: str
    common_tables: dict[str, Relation] = field(default_factory=dict)
    depth: int = 0
    outer: Scope | None = None

    def bind(self, query: n.Query) -> Relation:
        """The relation of a query.

        Raises:
            SqlError: a name is unknown, types do not fit, or a part of SQL is not supported.
        """
        return self._bind(query, is_nested=False)

    def bind_nested(self, query: n.Query) -> Relation:
        """The relation of a query whose rows another one reads: ORDER BY means nothing without LIMIT.

        Raises:
            SqlError: as ``bind``.
        """
        return self._bind(query, is_nested=True)

    def bind_inner(self, query: n.Query, outer: Scope) -> Relation:
        """The relation of a query for each row of another one.

        Raises:
            SqlError: as ``bind``.
        """
        return replace(self, outer=outer)._bind(query, is_nested=True)

    def bind_view(self, view: CatalogView) -> Relation:
        """The relation of a view's query.

        Raises:
            SqlError: the view's query is not right any more.
        """
        there = self.catalogs.within(view.catalog, view.database)
        inner = QueryBinder(there, self.session.within(there), view.text, depth=self.depth + 1)
        return inner.bind_nested(parse_query(view.text).query)

    def bind_table(self, identifier: Identifier) -> Relation:
        """The relation of a table or view by its full name.

        Raises:
            SqlError: there is none, or its declaration is not right any more.
        """
        return SourceBinder(self).named(n.NamedTable(identifier))[0]

    def source(self, node: n.TableReference, hints: Sequence[n.Hint]) -> Source:
        """The rows behind FROM.

        Raises:
            SqlError: as ``bind``.
        """
        return SourceBinder(self, hints).bind(node)

    def expressions(self, scope: Scope) -> ExpressionBinder:
        """What binds expressions over the columns of a scope."""
        return ExpressionBinder(scope, self.session, self.sql)

    def _refuse(self, node: n.Node, problem: str) -> NoReturn:
        self.expressions(Scope([])).refuse(node, problem)

    def _bind(self, query: n.Query, *, is_nested: bool) -> Relation:
        if query.is_recursive and not self.session.is_batch:
            self._refuse(
                query, "WITH RECURSIVE needs all rows of its tables, so it is there in batch mode: SET "
                "'execution.runtime-mode' = 'batch'",
            )  # fmt: skip
        inner = replace(self, common_tables=dict(self.common_tables))
        for common in query.common_tables:
            body = common.query.body
            if query.is_recursive and isinstance(body, n.SetOperation) and body.operator == "UNION":
                inner.common_tables[common.name] = inner._recursion(common, body)
                continue
            relation = inner.bind_nested(common.query)
            binder = self.expressions(Scope([]))
            inner.common_tables[common.name] = renamed(binder, common, relation, common.columns)
        is_limited = query.limit is not None or query.offset is not None
        order_by = query.order_by if is_limited or not is_nested else ()
        rows = inner._rows(query.body, order_by)
        if is_limited:
            limited = inner._limited(query, rows)
        elif order_by:
            limited = inner._sorted(query, rows)
        else:
            limited = rows.relation
        return chosen_columns(limited, range(rows.width)) if len(limited.columns) > rows.width else limited

    def _recursion(self, common: n.CommonTable, body: n.SetOperation) -> Relation:
        """A table of WITH RECURSIVE: its first query, and the one behind UNION, which may read the table itself."""
        binder = self.expressions(Scope([]))
        first = renamed(binder, common, self._body(body.left), common.columns)
        columns = tuple(Column(column.name, _widest(column.type)) for column in first.columns)
        working = WorkingTable(columns, common.name, next(_NUMBERS))
        step = replace(self, common_tables={**self.common_tables, common.name: working})._body(body.right)
        if working not in step.walk():
            return renamed(binder, common, self._set_operation(body), common.columns)
        if common.query.order_by or common.query.limit is not None or common.query.common_tables:
            self._refuse(common, "a recursive table has no WITH, ORDER BY or LIMIT of its own: put them around it")
        if len(step.columns) != len(columns):
            self._refuse(body.right, f"this query has {len(step.columns)} columns, the one before UNION {len(columns)}")
        for column, other in zip(columns, step.columns, strict=True):
            common_type = rules.common_type([column.type, other.type])
            if common_type is None or common_type.nullable_() != column.type:
                self._refuse(
                    body.right, f"the column {column.name} is {column.type} before UNION and {other.type} behind it: "
                    "CAST one of them, since all steps have the types of the first query",
                )  # fmt: skip
        first, step = (self._cast_to(part, columns) for part in (first, step))
        return Recursion(columns, first, step, working, body.keeps_duplicates)

    def _rows(self, body: n.QueryBody, order_by: Sequence[n.OrderItem]) -> SelectedRows:
        if isinstance(body, n.Select):
            return SelectBinder(self, body).bind(order_by)
        relation = self._body(body)
        width = len(relation.columns)
        scope = Scope([ScopedColumn(column, place, ()) for place, column in enumerate(relation.columns)], self.outer)
        binder = self.expressions(scope)
        expressions = [
            ordinal(item.expression, all_columns(relation), "ORDER BY", binder)
            if isinstance(item.expression, n.NumberLiteral)
            else binder.bind(item.expression)
            for item in order_by
        ]
        keys = [sort_key(expression, item, binder) for expression, item in zip(expressions, order_by, strict=True)]
        relation, places = extended(relation, expressions)
        order = [SortKey(place, up, first) for place, (_, up, first) in zip(places, keys, strict=True)]
        return SelectedRows(relation, width, tuple(order))

    def _body(self, body: n.QueryBody) -> Relation:
        match body:
            case n.Select():
                return SelectBinder(self, body).bind().relation
            case n.NestedQuery():
                return self.bind_nested(body.query)
            case n.ValuesClause():
                return self._values(body)
            case n.SetOperation():
                return self._set_operation(body)
        raise AssertionError(body)

    # -- ORDER BY and LIMIT

    def _sorted(self, query: n.Query, rows: SelectedRows) -> Relation:
        if self.session.is_batch:
            return SortedRows(rows.relation.columns, rows.relation, rows.order, at_end=True)
        first = rows.order[0]
        if rows.relation.columns[first.place].time_attribute is None or not first.ascending:
            self._refuse(
                query.order_by[0], "Sort on a non-time-attribute field is not supported. Rows of a stream can be "
                "sorted by their time attribute, ascending, or with a LIMIT",
            )  # fmt: skip
        return SortedRows(rows.relation.columns, rows.relation, rows.order)

    def _limited(self, query: n.Query, rows: SelectedRows) -> Relation:
        offset = 0 if query.offset is None else self._row_count(query.offset, "OFFSET")
        limit = None if query.limit is None else self._row_count(query.limit, "LIMIT")
        relation = rows.relation
        if limit == 0:
            return ConstantRows(relation.columns, ())
        if limit is None and not offset:
            return relation
        last = None if limit is None else offset + limit
        limited = Rank(relation.columns, relation, RankFunction.ROW_NUMBER, (), rows.order, offset + 1, last, False)
        if self.session.is_batch and rows.order:
            return SortedRows(relation.columns, limited, rows.order, at_end=True)
        return limited

    def _row_count(self, node: n.ValueExpression, clause: str) -> int:
        count = self.expressions(Scope([])).bind(node)
        if not isinstance(count, Constant) or not isinstance(count.value, int) or isinstance(count.value, bool):
            self._refuse(node, f"{clause} needs a whole number")
        if count.value < 0:
            self._refuse(node, f"{clause} can't be negative")
        return count.value

    # -- VALUES and set operations

    def _values(self, body: n.ValuesClause) -> Relation:
        binder = self.expressions(Scope([], self.outer))
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
        left, right = self._body(body.left), self._body(body.right)
        if len(left.columns) != len(right.columns):
            self._refuse(
                body.right,
                f"this query has {len(right.columns)} columns, the one before {body.operator} {len(left.columns)}",
            )
        columns: list[Column] = []
        for one, other in zip(left.columns, right.columns, strict=True):
            common = rules.common_type([one.type, other.type])
            if common is None:
                self._refuse(
                    body.right,
                    f"column {one.name} is {one.type} before {body.operator} and {other.type} behind it",
                )
            same_time = one.time_attribute if one.time_attribute == other.time_attribute else None
            columns.append(Column(one.name, common, same_time))
        common_columns = tuple(columns)
        left, right = (self._cast_to(part, common_columns) for part in (left, right))
        if body.operator == "UNION":
            union = Union(common_columns, (left, right))
            return union if body.keeps_duplicates else distinct(union)
        if body.keeps_duplicates:
            return self._with_counts(body, left, right)
        width = len(columns)
        conditions = [
            _same(column_at(left, place), replace(column_at(right, place), index=place + width))
            for place in range(width)
        ]
        kind = JoinKind.SEMI if body.operator == "INTERSECT" else JoinKind.ANTI
        return joined(distinct(left), right, kind, conditions)

    def _with_counts(self, body: n.SetOperation, left: Relation, right: Relation) -> Relation:
        """INTERSECT ALL, EXCEPT ALL: how often each row is on both sides, and so how often it is in the result."""
        one, none = (Constant(DataTypes.BIGINT(False), value) for value in (1, 0))
        counts = (Column("$left", one.type), Column("$right", one.type))
        marked = tuple(
            Projection((*part.columns, *counts), part, (*all_columns(part), *flags))
            for part, flags in ((left, (one, none)), (right, (none, one)))
        )
        width = len(left.columns)
        union = Union(marked[0].columns, marked)
        calls = tuple(AggregateCall("$SUM0", (width + place,), one.type) for place in range(2))
        grouped_columns = (*[replace(column, time_attribute=None) for column in left.columns], *counts)
        grouped = GroupBy(grouped_columns, union, tuple(range(width)), calls)
        binder = self.expressions(Scope([]))
        ours, theirs = column_at(grouped, width), column_at(grouped, width + 1)
        if body.operator == "INTERSECT":
            count = binder.call(body, "LEAST", ours, theirs)
        else:
            count = binder.call(body, "-", ours, theirs)
        counted = projected(
            [*grouped.columns[:width], Column("$count", count.type)], grouped,
            [*all_columns(grouped)[:width], count],
        )  # fmt: skip
        some = filtered(counted, [binder.call(body, ">", column_at(counted, width), none)])
        return Replicate(some.columns[:width], some, width)

    def _cast_to(self, relation: Relation, columns: tuple[Column, ...]) -> Relation:
        items = [
            coerced(InputColumn(old.type, place, old.name), new.type, self.session)
            for place, (old, new) in enumerate(zip(relation.columns, columns, strict=True))
        ]
        if all(isinstance(item, InputColumn) for item in items) and relation.columns == columns:
            return relation
        return Projection(columns, relation, tuple(items))


_NUMBERS: Final = itertools.count()


def _widest(data_type: DataType) -> DataType:
    """The type of a column of a recursion: texts may become longer with each step."""
    return rules.STRING if rules.is_text(data_type) else data_type.nullable_()


def _same(left: RowExpression, right: RowExpression) -> RowExpression:
    """``left IS NOT DISTINCT FROM right``."""
    never_null = rules.with_null(rules.BOOLEAN, False)
    differs = AppliedFunction(
        never_null, "IS DISTINCT FROM", "firesteel_sql.kernels.numbers:is_distinct", (left, right)
    )
    return AppliedFunction(never_null, "NOT", "not", (differs,))
