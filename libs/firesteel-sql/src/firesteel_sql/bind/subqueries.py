"""Queries within expressions, as joins.

A query that reads columns of the row around it is *decorrelated*: its conditions on those columns are pulled up to
its top, where they become the condition of a join with the outer rows. An aggregate on the way is grouped by the
query's own side of these conditions; where a condition is no equality, or an outer column is computed with, the query
is joined with all different outer values first (Neumann and Kemper, "Unnesting arbitrary queries", 2015).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from firesteel.table.types import DataTypes
from firesteel_sql.bind.expressions import ExpressionBinder
from firesteel_sql.bind.placeholders import QueryResult, QueryUse
from firesteel_sql.functions.operators import chosen
from firesteel_sql.parse import nodes as n
from firesteel_sql.plan.projections import all_columns, chosen_columns, column_at, extended, projected
from firesteel_sql.plan.pushdown import conditions_of, filtered, joined
from firesteel_sql.plan.relations import Column, ConstantRows, Filter, Projection, Relation, Union
from firesteel_sql.plan.row_expressions import (
    AppliedFunction,
    Constant,
    InputColumn,
    OuterColumn,
    RowExpression,
    composed,
    conjuncts_of,
    is_correlated,
    moved,
    places_of,
    replaced,
)
from firesteel_sql.plan.stateful_relations import AggregateCall, GroupBy, Join, JoinKind, Over, Rank
from firesteel_sql.plan.traversal import expressions_of, with_expressions
from firesteel_sql.types import rules


class DecorrelationRefused(Exception):
    """A query reads outer columns where they can't be pulled up from; the text says where."""


def parametrised(relation: Relation) -> tuple[Relation, list[OuterColumn]]:
    """A query's relation with its outer columns numbered, and these columns by their numbers."""
    parameters: list[OuterColumn] = []

    def number(part: RowExpression) -> RowExpression | None:
        if not isinstance(part, OuterColumn):
            return None
        if part not in parameters:
            parameters.append(part)
        return replace(part, index=parameters.index(part), depth=1)

    rewritten = with_expressions(relation, lambda expression: replaced(expression, number))
    return rewritten, parameters


def outer_parameters(outer: Sequence[OuterColumn]) -> tuple[RowExpression, ...]:
    """The outer columns of a query, as the query around it sees them."""
    return tuple(
        InputColumn(item.type, item.index, item.name) if item.depth == 1 else replace(item, depth=item.depth - 1)
        for item in outer
    )


def is_correlated_query(relation: Relation) -> bool:
    """Whether a relation reads the row of an outer query."""
    return any(is_correlated(expression) for part in relation.walk() for expression in expressions_of(part))


# -- decorrelation


@dataclass
class Decorrelation:
    """Pulls the conditions on outer columns up to the top of a query.

    Attributes:
        domain: all different values of the outer columns, in the order of their numbers.
    """

    domain: Callable[[], Relation]

    def apply(self, relation: Relation) -> tuple[Relation, list[RowExpression]]:
        """The query without outer columns, with further columns behind its own, and the conditions that it needs.

        Raises:
            DecorrelationRefused: outer columns stand where they can't be pulled up from.
        """
        if not is_correlated_query(relation):
            return relation, []
        match relation:
            case Filter():
                inner, conditions = self.apply(relation.input)
                own = conjuncts_of(relation.condition)
                inner = filtered(inner, [part for part in own if not is_correlated(part)])
                return inner, conditions + [part for part in own if is_correlated(part)]
            case Projection():
                return self._projection(relation)
            case GroupBy():
                return self._aggregate(relation)
            case Join():
                return self._join(relation)
            case Rank() | Over():
                return self._numbered(relation)
            case Union():
                return self._union(relation)
            case ConstantRows():
                raise DecorrelationRefused("its VALUES have columns of the outer query")
        raise DecorrelationRefused("columns of the outer query stand within a window")

    def _projection(self, relation: Projection) -> tuple[Relation, list[RowExpression]]:
        inner, conditions = self.apply(relation.input)
        expressions = list(relation.expressions)
        if any(is_correlated(item) for item in expressions):
            width = len(inner.columns)
            inner, conditions = self._with_domain(inner, conditions)

            def from_domain(part: RowExpression) -> RowExpression | None:
                return column_at(inner, width + part.index) if isinstance(part, OuterColumn) else None

            expressions = [replaced(item, from_domain) for item in expressions]
        columns = list(relation.columns)
        places: dict[int, int] = {}
        for place in sorted(set().union(*map(places_of, conditions))):
            places[place] = len(columns)
            columns.append(inner.columns[place])
            expressions.append(column_at(inner, place))
        return projected(columns, inner, expressions), [moved(part, places) for part in conditions]

    def _aggregate(self, relation: GroupBy) -> tuple[Relation, list[RowExpression]]:
        inner, conditions = self.apply(relation.input)
        inner, conditions, extra = self._by_equal_columns(inner, conditions)
        groups = (*relation.groups, *extra)
        count = len(relation.groups)
        columns = (
            *relation.columns[:count], *[replace(inner.columns[place], time_attribute=None) for place in extra],
            *relation.columns[count:],
        )  # fmt: skip
        grouped = replace(relation, columns=columns, input=inner, groups=groups)
        layout = [*range(count), *range(len(groups), len(columns)), *range(count, len(groups))]
        return chosen_columns(grouped, layout), _at_end(conditions, extra, len(relation.columns))

    def _numbered(self, relation: Rank | Over) -> tuple[Relation, list[RowExpression]]:
        width = len(relation.input.columns)
        inner, conditions = self.apply(relation.input)
        inner, conditions, extra = self._by_equal_columns(inner, conditions)
        results = relation.columns[width:]
        partition = (*relation.partition, *[place for place in extra if place not in relation.partition])
        numbered = replace(relation, columns=(*inner.columns, *results), input=inner, partition=partition)
        shown = [*range(width), *range(len(inner.columns), len(numbered.columns)), *extra]
        return chosen_columns(numbered, shown), _at_end(conditions, extra, len(relation.columns))

    def _join(self, relation: Join) -> tuple[Relation, list[RowExpression]]:
        kind = relation.kind
        if kind is not JoinKind.INNER and is_correlated_query(relation.right):
            raise DecorrelationRefused("the right side of an outer join reads columns of the outer query")
        if kind in (JoinKind.RIGHT, JoinKind.FULL):
            raise DecorrelationRefused("columns of the outer query stand within an outer join")
        left, conditions = self.apply(relation.left)
        right, right_conditions = self.apply(relation.right)
        old, new, right_width = len(relation.left.columns), len(left.columns), len(relation.right.columns)

        def from_join(place: int) -> int:
            return place if place < old else place - old + new

        own = [moved(part, from_join) for part in conditions_of(relation)]
        if kind is not JoinKind.INNER and any(is_correlated(part) for part in own):
            raise DecorrelationRefused("the condition of an outer join reads columns of the outer query")
        pulled = [part for part in own if is_correlated(part)]
        again = joined(
            left,
            right,
            kind,
            [part for part in own if not is_correlated(part)],
            null_aware=relation.null_aware,
            state_ttl=relation.state_ttl,
        )
        pulled += conditions + [moved(part, lambda place: place + new) for part in right_conditions]
        if kind in (JoinKind.SEMI, JoinKind.ANTI):
            return again, pulled
        shown = [*range(old), *range(new, new + right_width)]
        rest = [place for place in range(len(again.columns)) if place not in shown]
        places = {place: number for number, place in enumerate([*shown, *rest])}
        return chosen_columns(again, [*shown, *rest]), [moved(part, places) for part in pulled]

    def _union(self, relation: Union) -> tuple[Relation, list[RowExpression]]:
        """Each part for all outer values: parts depend on them in different ways."""
        width = len(relation.columns)
        parts: list[Relation] = []
        conditions: list[RowExpression] = []
        for part in relation.parts:
            inner, own = self.apply(part)
            count = len(inner.columns)
            together, conditions = self._with_domain(inner, own)
            parts.append(chosen_columns(together, [*range(width), *range(count, len(together.columns))]))
            conditions = [moved(condition, lambda place: place - count + width) for condition in conditions]  # noqa: B023
        columns = (*relation.columns, *parts[0].columns[width:])
        return Union(columns, tuple(parts)), conditions

    def _by_equal_columns(
        self, inner: Relation, conditions: Sequence[RowExpression]
    ) -> tuple[Relation, list[RowExpression], list[int]]:
        """Conditions as equalities of columns with outer values, and the places of these columns."""
        sides = [_inner_side(part) for part in conditions]
        if None in sides:
            inner, conditions = self._with_domain(inner, conditions)
            sides = [_inner_side(part) for part in conditions]
        inner, places = extended(inner, [side for side in sides if side is not None])
        columns = [
            replaced(part, lambda sub, side=side, place=place: column_at(inner, place) if sub is side else None)  # type: ignore[misc]
            for part, side, place in zip(conditions, sides, places, strict=True)
        ]
        return inner, columns, list(dict.fromkeys(places))

    def _with_domain(
        self, inner: Relation, conditions: Sequence[RowExpression]
    ) -> tuple[Relation, list[RowExpression]]:
        """The query joined with all different outer values, and their equality with the outer row's."""
        domain = self.domain()
        width = len(inner.columns)

        def from_domain(part: RowExpression) -> RowExpression | None:
            if not isinstance(part, OuterColumn):
                return None
            return replace(column_at(domain, part.index), index=width + part.index)

        together = joined(inner, domain, JoinKind.INNER, [replaced(part, from_domain) for part in conditions])
        equalities = []
        for number, column in enumerate(domain.columns):
            differs = AppliedFunction(
                rules.with_null(rules.BOOLEAN, False), "IS DISTINCT FROM", "firesteel_sql.kernels.numbers:is_distinct",
                (column_at(together, width + number), OuterColumn(column.type, number, column.name)),
            )  # fmt: skip
            equalities.append(AppliedFunction(differs.type, "NOT", "not", (differs,)))
        return together, list(equalities)


def _at_end(conditions: Sequence[RowExpression], extra: Sequence[int], width: int) -> list[RowExpression]:
    places = {place: width + number for number, place in enumerate(extra)}
    return [moved(part, places) for part in conditions]


def _inner_side(condition: RowExpression) -> RowExpression | None:
    """The query's own side of an equality with outer columns; None if the condition is no such equality."""
    match condition:
        case AppliedFunction(name="=", inputs=(one, other)):
            pass
        case AppliedFunction(name="NOT", inputs=(AppliedFunction(name="IS DISTINCT FROM", inputs=(one, other)),)):
            pass
        case _:
            return None
    for own, outer in ((one, other), (other, one)):
        if places_of(own) and not is_correlated(own) and is_correlated(outer) and not places_of(outer):
            return own
    return None


# -- joins of outer rows with queries


class QueryJoiner:
    """Joins rows with the queries that expressions over them have.

    Args:
        relation: the rows.
        binder: for errors and comparisons.

    Attributes:
        relation: the rows; further columns may follow their own.
    """

    def __init__(self, relation: Relation, binder: ExpressionBinder) -> None:
        self.relation = relation
        self._binder = binder

    def filter(self, condition: RowExpression) -> None:
        """Keep the rows for which a condition is true.

        Raises:
            SqlError: a query in it can't be joined.
        """
        parts = conjuncts_of(condition)
        with_queries = [part for part in parts if any(isinstance(inner, QueryResult) for inner in part.walk())]
        self.relation = filtered(
            self.relation, [part for part in parts if all(part is not one for one in with_queries)]
        )
        for part in with_queries:
            query, is_negated = _membership(part)
            if query is None or _aggregate_below(query.query) is not None:
                self._filter_by_value(part)
                continue
            before = self.relation
            self._semi_join(query, is_negated=is_negated)
            if _has_null_aware_condition(self.relation):
                # The operator of NOT IN knows correlations by equal columns only.
                self.relation = before
                self._filter_by_value(part)

    def _filter_by_value(self, condition: RowExpression) -> None:
        value = self.value(condition)
        self.relation = filtered(self.relation, [value])

    def value(self, expression: RowExpression) -> RowExpression:
        """An expression without queries: their values are columns now.

        Raises:
            SqlError: a query in it can't be joined.
        """

        def value_of(part: RowExpression) -> RowExpression | None:
            if not isinstance(part, QueryResult):
                return None
            query = part.with_operands(tuple(self.value(operand) for operand in part.operands))
            assert isinstance(query, QueryResult)
            match query.use:
                case QueryUse.EXISTS | QueryUse.IN if _aggregate_below(query.query) is not None:
                    return self._of_single_row(query)
                case QueryUse.EXISTS:
                    return self._is_positive(query.node, self._scalar(query, _counted(query.query)))
                case QueryUse.IN:
                    return self._contained(query)
            return self._scalar(query, query.query)

        return replaced(expression, value_of)

    def join(self, query: QueryResult, kind: JoinKind) -> None:
        """Put the rows of a query behind each row; the query's columns are the last ones.

        Raises:
            SqlError: the query can't be joined.
        """
        if not is_correlated_query(query.query):
            self.relation = joined(self.relation, query.query, kind, [])
            return
        width, count = len(self.relation.columns), len(query.query.columns)
        if _aggregate_below(query.query) is not None:
            values, having = self._single_row(query, query.query)
            if kind is JoinKind.INNER:
                self.relation = filtered(self.relation, having)
            else:
                values = [self._where(value, having) for value in values]
        else:
            inner, conditions = self._decorrelated(query, query.query)
            self.relation = joined(self.relation, inner, kind, conditions)
            values = [column_at(self.relation, width + place) for place in range(count)]
        names = [column.name for column in query.query.columns]
        columns = [
            *self.relation.columns[:width],
            *[Column(name, value.type) for name, value in zip(names, values, strict=True)],
        ]
        self.relation = projected(columns, self.relation, [*all_columns(self.relation)[:width], *values])

    def _is_positive(self, node: n.Node, count: RowExpression) -> RowExpression:
        return self._binder.call(node, ">", count, Constant(DataTypes.BIGINT(False), 0))

    def _decorrelated(self, query: QueryResult, relation: Relation) -> tuple[Relation, list[RowExpression]]:
        """The query's rows, and its conditions over the outer columns, then its own."""

        def domain() -> Relation:
            columns = [Column(f"$outer{number}", item.type) for number, item in enumerate(query.parameters)]
            values = Projection(tuple(columns), self.relation, query.parameters)
            return GroupBy(values.columns, values, tuple(range(len(columns))), ())

        try:
            inner, conditions = Decorrelation(domain).apply(relation)
        except DecorrelationRefused as refused:
            self._binder.refuse(query.node, f"this query depends on the one around it, and {refused}")
        width = len(self.relation.columns)
        shifted = [moved(part, lambda place: place + width) for part in conditions]
        return inner, [self._with_parameters(query, part) for part in shifted]

    def _with_parameters(self, query: QueryResult, expression: RowExpression) -> RowExpression:
        return replaced(
            expression, lambda part: query.parameters[part.index] if isinstance(part, OuterColumn) else None
        )

    def _semi_join(self, query: QueryResult, *, is_negated: bool) -> None:
        searched = [self.value(item) for item in query.searched]
        parameters = tuple(self.value(item) for item in query.parameters)
        query = replace(query, searched=tuple(searched), parameters=parameters)
        is_null_aware = is_negated and any(
            item.type.nullable or column.type.nullable
            for item, column in zip(searched, query.query.columns, strict=False)
        )
        may_be_equal = is_null_aware and len(searched) > 1
        if is_null_aware and not may_be_equal:
            self.relation, (place,) = extended(self.relation, searched)
            searched = [column_at(self.relation, place)]
        inner, conditions = self._decorrelated(query, query.query)
        width = len(self.relation.columns)
        for place, item in enumerate(searched):
            found = replace(column_at(inner, place), index=width + place)
            condition = self._binder.call(query.node, "=", item, found)
            # Of several columns NULL leaves it open only where the other ones are equal, or open, too.
            conditions.append(self._is_open(query.node, condition) if may_be_equal else condition)
        kind = JoinKind.ANTI if is_negated else JoinKind.SEMI
        self.relation = joined(self.relation, inner, kind, conditions, null_aware=is_null_aware and not may_be_equal)

    def _is_open(self, node: n.Node, condition: RowExpression) -> RowExpression:
        """Whether a condition is true or NULL; the condition itself if it is never NULL."""
        if not condition.type.nullable:
            return condition
        return self._binder.call(node, "NOT", self._binder.call(node, "IS FALSE", condition))

    def _scalar(self, query: QueryResult, relation: Relation) -> RowExpression:
        """The only value of a query, as a column of the outer rows; NULL if it has no row."""
        if _aggregate_below(relation) is None and not _has_one_row(relation):
            call = AggregateCall("SINGLE_VALUE", (0,), rules.with_null(relation.columns[0].type, True))
            relation = GroupBy((Column(relation.columns[0].name, call.type),), relation, (), (call,))
        if _aggregate_below(relation) is not None:
            values, having = self._single_row(query, relation)
            return self._where(values[0], having)
        width = len(self.relation.columns)
        inner, conditions = self._decorrelated(query, relation)
        self.relation = joined(self.relation, inner, JoinKind.LEFT, conditions)
        return column_at(self.relation, width)

    def _where(self, value: RowExpression, conditions: Sequence[RowExpression]) -> RowExpression:
        """A value under conditions, else NULL."""
        nothing = Constant(rules.with_null(value.type, True), None)
        for condition in conditions:
            value = chosen([condition], [value], nothing, self._binder.session)
        return value

    def _single_row(self, query: QueryResult, relation: Relation) -> tuple[list[RowExpression], list[RowExpression]]:
        """The columns of a query that is an aggregate of all its rows, and the conditions of its HAVING.

        The aggregate is there for outer rows without a partner, and while there is no row at all, where a join has
        none: COUNT is 0 then. So what stands above the aggregate is computed behind the join.
        """
        width = len(self.relation.columns)
        steps: list[Filter | Projection] = []
        while isinstance(relation, (Filter, Projection)):
            steps.append(relation)
            relation = relation.input
        assert isinstance(relation, GroupBy)
        inner, conditions = self._decorrelated(query, relation)
        self.relation = joined(self.relation, inner, JoinKind.LEFT, conditions)
        row: list[RowExpression] = []
        for place, call in enumerate(relation.calls):
            column: RowExpression = column_at(self.relation, width + place)
            if call.function in ("COUNT", "$SUM0"):
                column = self._binder.call(query.node, "COALESCE", column, Constant(call.type, 0))
            row.append(column)
        having: list[RowExpression] = []
        for step in reversed(steps):
            if isinstance(step, Filter):
                having.append(self._with_parameters(query, composed(step.condition, row)))
            else:
                row = [self._with_parameters(query, composed(item, row)) for item in step.expressions]
        return row, having

    def _of_single_row(self, query: QueryResult) -> RowExpression:
        """EXISTS and IN of a query that is an aggregate of all its rows."""
        node, binder = query.node, self._binder
        values, having = self._single_row(query, query.query)
        found: RowExpression = Constant(rules.with_null(rules.BOOLEAN, False), True)
        for item, value in zip(query.searched, values, strict=False):
            found = binder.call(node, "AND", found, binder.call(node, "=", item, value))
        no = Constant(rules.with_null(rules.BOOLEAN, False), False)
        for condition in having:
            found = chosen([condition], [found], no, binder.session)
        return found

    def _contained(self, query: QueryResult) -> RowExpression:
        """Whether a query has some values: NULL if only a NULL decides."""
        node, binder = query.node, self._binder
        own = len(query.parameters)
        inner = query.query
        equalities = []
        for number, item in enumerate(query.searched):
            outer = OuterColumn(item.type, own + number, f"$searched{number}")
            equalities.append(binder.call(node, "=", outer, column_at(inner, number)))
        extended_query = replace(query, parameters=(*query.parameters, *query.searched))

        def has_row(conditions: Sequence[RowExpression]) -> RowExpression:
            rows: Relation = inner
            for condition in conditions:
                rows = Filter(rows.columns, rows, condition)
            return self._is_positive(node, self._scalar(extended_query, _counted(rows)))

        is_found = has_row(equalities)
        nullable = any(item.type.nullable for item in query.searched) or any(
            column.type.nullable for column in inner.columns[: len(query.searched)]
        )
        if not nullable:
            return is_found
        yes, no = (Constant(rules.with_null(rules.BOOLEAN, False), value) for value in (True, False))
        if len(query.searched) > 1:
            unknown = has_row([self._is_open(node, equality) for equality in equalities])
            return chosen([is_found, unknown], [yes, Constant(rules.BOOLEAN, None)], no, binder.session)
        (searched,) = query.searched
        rows = self._scalar(query, _counted(inner))
        values = self._scalar(query, _counted(inner, argument=0))
        unknown = binder.call(
            node, "OR",
            binder.call(node, "AND", binder.call(node, "IS NULL", searched), self._is_positive(node, rows)),
            binder.call(node, "<", values, rows),
        )  # fmt: skip
        return chosen([is_found, unknown], [yes, Constant(rules.BOOLEAN, None)], no, binder.session)


def _membership(part: RowExpression) -> tuple[QueryResult | None, bool]:
    """The query of EXISTS or IN, and whether NOT stands before it; None = the condition is no such test."""
    is_negated = isinstance(part, AppliedFunction) and part.name == "NOT"
    test = part.operands[0] if is_negated else part
    if isinstance(test, QueryResult) and test.use in (QueryUse.EXISTS, QueryUse.IN):
        return test, is_negated
    return None, False


def _has_null_aware_condition(relation: Relation) -> bool:
    while isinstance(relation, Projection):
        relation = relation.input
    return isinstance(relation, Join) and relation.null_aware and relation.condition is not None


def _counted(relation: Relation, argument: int | None = None) -> Relation:
    """How many rows a query has, or how many values in a column."""
    call = AggregateCall("COUNT", () if argument is None else (argument,), DataTypes.BIGINT(False))
    return GroupBy((Column("$count", call.type),), relation, (), (call,))


def _aggregate_below(relation: Relation) -> GroupBy | None:
    """The aggregate of all rows that a query is made of; None if it is no such query."""
    while isinstance(relation, (Filter, Projection)):
        relation = relation.input
    return relation if isinstance(relation, GroupBy) and not relation.groups else None


def _has_one_row(relation: Relation) -> bool:
    """Whether a query has one row at most."""
    match relation:
        case Projection() | Filter():
            return _has_one_row(relation.input)
        case Rank(partition=()):
            return relation.last is not None and relation.last <= relation.first
        case ConstantRows():
            return len(relation.rows) <= 1
    return False
