"""A SELECT as a relation: its clauses in the order in which they mean something.

Expressions are bound over the rows of FROM first; aggregates, calls with OVER and queries are placeholders in them.
Then the relation grows: WHERE, GROUP BY, HAVING, OVER, QUALIFY, DISTINCT. Each step replaces its placeholders, and
whatever else the step computes, by columns of its result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Final, NoReturn

from firesteel.table.types import DataType, DataTypes, ElementsType, RowType
from firesteel_sql.bind.expressions import ExpressionBinder, number_of_operands
from firesteel_sql.bind.nesting import NestedQueries
from firesteel_sql.bind.placeholders import (
    AggregateResult,
    GroupingFlags,
    OverResult,
    PendingAggregate,
    PendingOver,
    QueryResult,
    QueryUse,
)
from firesteel_sql.bind.scope import NameRefused, Scope, ScopedColumn
from firesteel_sql.bind.state_hints import check_state_hints, state_ttl_of
from firesteel_sql.bind.subqueries import QueryJoiner, outer_parameters, parametrised
from firesteel_sql.bind.windows import GroupWindow, group_window, is_group_window
from firesteel_sql.functions.aggregates import AGGREGATES, SqlAggregate, with_treatment_of_nulls
from firesteel_sql.functions.operators import chosen
from firesteel_sql.functions.signature import boolean
from firesteel_sql.parse import nodes as n
from firesteel_sql.parse.errors import SqlError
from firesteel_sql.plan.projections import column_at, extended, projected
from firesteel_sql.plan.pushdown import filtered
from firesteel_sql.plan.relations import Column, ConstantRows, Filter, Projection, Relation, Union
from firesteel_sql.plan.row_expressions import Constant, InputColumn, RowExpression, replaced
from firesteel_sql.plan.stateful_relations import AggregateCall, GroupBy, Over, OverCall, OverFrame, SortKey
from firesteel_sql.plan.windows import window_bounds
from firesteel_sql.types import rules
from firesteel_sql.types.intervals import DAY_TIME

Order = tuple[tuple[RowExpression, bool, bool], ...]
"""Expressions that rows are sorted by, whether ascending, whether NULL is first."""

_NUMBERING: Final = ("ROW_NUMBER", "RANK", "DENSE_RANK", "PERCENT_RANK", "CUME_DIST", "NTILE", "LAG", "LEAD")


@dataclass(frozen=True)
class SelectedRows:
    """The rows of a SELECT.

    Attributes:
        relation: the columns of the SELECT, and behind them those that only ORDER BY needs.
        width: number of the SELECT's own columns.
        order: by which rows are to be sorted.
    """

    relation: Relation
    width: int
    order: tuple[SortKey, ...]


@dataclass(frozen=True)
class _Item:
    """A column of a SELECT: its name, time attribute and expression."""

    column: Column
    expression: RowExpression


@dataclass(frozen=True)
class _Clause:
    """What may stand in the expressions of a clause.

    Attributes:
        select: gathers aggregates and calls with OVER.
        name: of the clause.
        has_aggregates: aggregate functions may stand in it.
        has_over: calls with OVER may stand in it.
    """

    select: SelectBinder
    name: str
    has_aggregates: bool = True
    has_over: bool = True

    def call(self, node: n.Call, binder: ExpressionBinder) -> RowExpression | None:
        """The meaning of a call of a function of several rows; None for all other functions."""
        name = ".".join(node.function).upper()
        if name in ("GROUPING", "GROUPING_ID", "GROUP_ID"):
            if (name == "GROUP_ID") == bool(node.arguments):
                takes = "no columns: it is about all keys" if node.arguments else f"columns of GROUP BY: {name}(a, b)"
                binder.refuse(node, f"{name} takes {takes}")
            inputs = tuple(binder.bind(argument) for argument in node.arguments)
            flags = GroupingFlags(DataTypes.BIGINT(False), inputs)
            if flags not in self.select.grouping_flags:
                self.select.grouping_flags.append(flags)
            return flags
        if self.select.window is not None and (column := self.select.window.auxiliary(name)) is not None:
            return column
        function = AGGREGATES.get(name)
        if function is None:
            return None
        if node.over is not None:
            if not self.has_over:
                binder.refuse(
                    node, f"{self.name} can't have a call with OVER: write QUALIFY, or filter the query around"
                )
            return self.select.over(node, function, binder, self)
        if function.needs_over:
            binder.refuse(node, f"{name} needs a window: {name}(...) OVER (PARTITION BY ... ORDER BY ...)")
        if not self.has_aggregates:
            hint = ": write HAVING" if self.name == "WHERE" else ""
            binder.refuse(node, f"{self.name} can't have the aggregate function {name}{hint}")
        return self.select.aggregate(node, function, binder)

    def query(
        self, node: n.ScalarQuery | n.CollectionQuery | n.Exists | n.InQuery | n.Quantified, binder: ExpressionBinder
    ) -> RowExpression:
        """The meaning of a query within an expression."""
        return self.select.query(node, binder)


class SelectBinder:
    """Finds the meaning of one SELECT.

    Args:
        queries: binds the queries within it.
        body: the SELECT.

    Attributes:
        window: the window of GROUP BY TUMBLE(...) and the like; None = there is none.
        grouping_flags: calls of GROUPING.
    """

    def __init__(self, queries: NestedQueries, body: n.Select) -> None:
        self._queries = queries
        self._body = body
        self._windows = dict(body.windows)
        self._aggregates: list[PendingAggregate] = []
        self._result_types: list[DataType] = []
        self._names: dict[int, str] = {}  # of results of aggregates that are columns of the SELECT as they are
        self._over_names: dict[int, str] = {}
        self._overs: list[PendingOver] = []
        self._relation: Relation = ConstantRows((), ((),))
        self._scope = Scope([], queries.outer)
        self._references: dict[int, n.Node] = {}
        self._state_ttl: int | None = None  # of its groups, by a hint
        self.window: GroupWindow | None = None
        self.grouping_flags: list[GroupingFlags] = []

    def bind(self, order_by: Sequence[n.OrderItem] = ()) -> SelectedRows:
        """The rows of the SELECT, with columns for ORDER BY.

        Raises:
            SqlError: a name is unknown, types do not fit, or a part of SQL is not supported.
        """
        body = self._body
        check_state_hints(body.source, body.hints, self._binder(None))
        if body.source is not None:
            self._relation, scoped = self._queries.source(body.source, body.hints)
            self._scope = Scope(scoped, self._queries.outer)
            self._state_ttl = state_ttl_of(body.source, body.hints)
        if body.where is not None:
            binder = self._binder(_Clause(self, "WHERE", has_aggregates=False, has_over=False))
            joiner = QueryJoiner(self._relation, binder)
            joiner.filter(binder.condition(body.where, "WHERE"))
            self._become(joiner.relation)
        self._add_group_window()
        items = self._items()
        aliases = {item.column.name: item.expression for item in items}
        for item in items:
            match item.expression:
                case AggregateResult(number=number):
                    self._names.setdefault(number, item.column.name)
                case OverResult(number=number):
                    self._over_names.setdefault(number, item.column.name)
        sets = self._grouping_sets(items, aliases)
        having = self._condition(body.having, _Clause(self, "HAVING", has_over=False), aliases)
        qualify = self._condition(body.qualify, _Clause(self, "QUALIFY"), aliases)
        order = self._order(order_by, items, aliases)
        steps = [item.expression for item in items]
        steps += [expression for expression, _, _ in order]
        if qualify is not None:
            steps.append(qualify)
        if sets is not None or self._aggregates or having is not None:
            over_groups = self._aggregate([()] if sets is None else sets)
            steps = [over_groups(step) for step in steps]
            having = None if having is None else over_groups(having)
            self._overs = [_mapped_over(pending, over_groups) for pending in self._overs]
        elif self.grouping_flags:
            self._refuse(body, "GROUPING needs a GROUP BY")
        joiner = QueryJoiner(self._relation, self._binder(None))
        if having is not None:
            joiner.filter(having)
        steps = [joiner.value(step) for step in steps]
        self._overs = [_mapped_over(pending, joiner.value) for pending in self._overs]
        self._relation = joiner.relation
        over_columns = self._over_columns()
        steps = [replaced(step, lambda part: over_columns(part)) for step in steps]
        if qualify is not None:
            self._relation = filtered(self._relation, [steps.pop()])
        return self._selected([item.column for item in items], steps, order)

    def _selected(self, columns: list[Column], steps: list[RowExpression], order: Order) -> SelectedRows:
        width = len(columns)
        shown, sorted_by = steps[:width], steps[width:]
        places: list[int] = []
        for expression in sorted_by:
            if expression in shown:
                places.append(shown.index(expression))
                continue
            if self._body.is_distinct:
                self._refuse(self._body, "ORDER BY of a SELECT DISTINCT names columns of the SELECT")
            places.append(len(shown))
            columns.append(Column(_name_of(expression, f"$sort{len(shown)}"), expression.type))
            shown.append(expression)
        relation = projected(columns, self._relation, shown)
        if self._body.is_distinct:
            relation = distinct(relation, self._state_ttl)
        keys = [SortKey(place, up, first) for place, (_, up, first) in zip(places, order, strict=True)]
        return SelectedRows(relation, width, tuple(keys))

    def _refuse(self, node: n.Node, problem: str) -> NoReturn:
        self._binder(None).refuse(node, problem)

    def _binder(self, clause: _Clause | None) -> ExpressionBinder:
        binder = self._queries.expressions(self._scope)
        binder.clause = clause
        binder.references = self._references
        return binder

    def _become(self, relation: Relation) -> None:
        """Take a relation with the same columns, or further ones, whose time attributes may be other ones."""
        self._relation = relation
        self._scope = Scope(
            [replace(scoped, column=relation.columns[scoped.index]) for scoped in self._scope.columns],
            self._scope.outer,
        )

    def _condition(
        self, node: n.ValueExpression | None, clause: _Clause, aliases: dict[str, RowExpression]
    ) -> RowExpression | None:
        if node is None:
            return None
        binder = self._binder(clause)
        binder.aliases = aliases
        return binder.condition(node, clause.name)

    # -- the columns of the SELECT

    def _items(self) -> list[_Item]:
        binder = self._binder(_Clause(self, "SELECT"))
        items: list[_Item] = []
        for item in self._body.items:
            if isinstance(item.expression, n.Star):
                fields = self._fields(item.expression, binder)
                if fields is not None:
                    items += fields
                    continue
                for scoped in self._starred(item.expression):
                    column = self._relation.columns[scoped.index]
                    # USING and FULL JOIN: the scope's name stands for a column that is computed.
                    items.append(
                        _Item(replace(column, name=scoped.column.name), column_at(self._relation, scoped.index))
                    )
                continue
            expression = binder.bind(item.expression)
            items.append(_Item(self._column(item, expression, len(items)), expression))
        return items

    def _fields(self, star: n.Star, binder: ExpressionBinder) -> list[_Item] | None:
        """The fields of the row ``t.r.*``; None if the name before the star is that of a table, or unknown."""
        if not star.qualifier:
            return None
        try:
            self._scope.of_table(star.qualifier)
            return None
        except NameRefused:
            pass
        try:
            row = binder.bind(n.ColumnReference(star.qualifier, at=star.at)).type
        except SqlError:
            return None
        if not isinstance(row, RowType):
            self._refuse(star, f"{'.'.join(star.qualifier)} is {row}, which has no fields")
        paths = [(*star.qualifier, name) for name in row.field_names()]
        parts = [binder.bind(n.ColumnReference(path, at=star.at)) for path in paths]
        return [_Item(Column(path[-1], part.type), part) for path, part in zip(paths, parts, strict=True)]

    def _starred(self, star: n.Star) -> list[ScopedColumn]:
        if not star.qualifier:
            if not self._scope.starred:
                self._refuse(star, "SELECT * needs a FROM")
            return self._scope.starred
        try:
            return self._scope.of_table(star.qualifier)
        except NameRefused as refused:
            self._refuse(star, str(refused))

    def _column(self, item: n.SelectItem, expression: RowExpression, place: int) -> Column:
        node = item.expression
        name = item.alias
        if name is None and isinstance(node, (n.ColumnReference, n.Member)):
            name = node.path[-1] if isinstance(node, n.ColumnReference) else node.name
        is_proctime = isinstance(node, n.Call) and node.function[-1].upper() == "PROCTIME"
        return Column(name or f"EXPR${place}", expression.type, "PROCTIME" if is_proctime else None)

    def _order(
        self, order_by: Sequence[n.OrderItem], items: Sequence[_Item], aliases: dict[str, RowExpression]
    ) -> Order:
        binder = self._binder(_Clause(self, "ORDER BY"))
        binder.aliases = aliases
        keys = []
        for item in order_by:
            node = item.expression
            if isinstance(node, n.NumberLiteral):
                expression = ordinal(node, [one.expression for one in items], "ORDER BY", binder)
            elif isinstance(node, n.ColumnReference) and len(node.path) == 1 and node.path[0] in aliases:
                expression = aliases[node.path[0]]
            else:
                expression = binder.bind(node)
            keys.append(sort_key(expression, item, binder))
        return tuple(keys)

    # -- GROUP BY

    def _add_group_window(self) -> None:
        elements = self._body.group_by or ()
        calls = [node for node in elements if isinstance(node, n.Call) and is_group_window(node)]
        if not calls:
            return
        if len(calls) > 1:
            self._refuse(calls[1], "GROUP BY has one window at most")
        binder = self._binder(None)
        keys = [binder.bind(node) for node in elements if node is not calls[0] and not isinstance(node, n.GroupingSets)]
        self.window = group_window(self._relation, calls[0], keys, binder)
        self._become(self.window.relation)

    def _grouping_sets(
        self, items: Sequence[_Item], aliases: dict[str, RowExpression]
    ) -> list[tuple[RowExpression, ...]] | None:
        """The expressions of each grouping set; None without GROUP BY."""
        if self._body.group_by is None:
            return None
        binder = self._binder(_Clause(self, "GROUP BY", has_aggregates=False, has_over=False))
        binder.aliases = aliases

        def key(node: n.ValueExpression) -> tuple[RowExpression, ...]:
            if self.window is not None and node is self.window.call:
                return self.window.bounds()
            if isinstance(node, n.NumberLiteral) and node.text.isdigit() and 0 < int(node.text) <= len(items):
                item = items[int(node.text) - 1].expression
                if not any(isinstance(part, AggregateResult) for part in item.walk()):
                    return (item,)
            expression = binder.bind(node)
            if any(isinstance(part, (AggregateResult, OverResult)) for part in expression.walk()):
                self._refuse(node, "GROUP BY can't have an aggregate function")
            return (expression,)

        choices: list[list[tuple[RowExpression, ...]]] = []
        for element in self._body.group_by:
            if not isinstance(element, n.GroupingSets):
                choices.append([key(element)])
                continue
            parts = [tuple(part for node in keys for part in key(node)) for keys in element.sets]
            match element.kind:
                case "GROUPING SETS":
                    choices.append(parts)
                case "ROLLUP":
                    choices.append([sum(parts[:count], ()) for count in range(len(parts), -1, -1)])
                case _:
                    chosen = [
                        sum(subset, ()) for count in range(len(parts), -1, -1) for subset in combinations(parts, count)
                    ]
                    choices.append(chosen)
        return [tuple(dict.fromkeys(sum(choice, ()))) for choice in product(*choices)]

    @property
    def _may_be_empty(self) -> bool:
        """Whether there is a group of all rows, which is there without rows, too."""
        return all(
            isinstance(element, n.GroupingSets) and (element.kind != "GROUPING SETS" or () in element.sets)
            for element in self._body.group_by or ()
        )

    def aggregate(self, node: n.Call, function: SqlAggregate, binder: ExpressionBinder) -> RowExpression:
        """The result of an aggregate function, which is known once rows are grouped."""
        inner = replace(binder, clause=_Clause(self, "an aggregate function", has_aggregates=False, has_over=False))
        pending = self._pending(node, function, inner)
        use = pending.use
        nullable = use.type.nullable or (use.is_empty_null and (self._may_be_empty or pending.filter is not None))
        if pending not in self._aggregates:
            self._aggregates.append(pending)
            self._result_types.append(rules.with_null(use.type, nullable))
        number = self._aggregates.index(pending)
        return AggregateResult(self._result_types[number], number)

    def _pending(self, node: n.Call, function: SqlAggregate, binder: ExpressionBinder) -> PendingAggregate:
        name = function.name
        is_star = len(node.arguments) == 1 and isinstance(node.arguments[0], n.Star)
        if is_star and name != "COUNT":
            binder.refuse(node, f"{name}(*) means nothing: only COUNT has a *")
        operands = [] if is_star else binder.operands(node)
        if len(operands) < function.least or (function.most is not None and len(operands) > function.most):
            takes = number_of_operands(function.least, function.most)
            binder.refuse(node, f"{name} takes {takes}, not {len(operands)}")
        if name == "COUNT" and not operands and not is_star:
            binder.refuse(node, "COUNT needs a column, or *")
        use = binder.checked(node, lambda: function.build(name, operands, binder.session), name)
        if node.ignores_nulls is not None:
            use = binder.checked(node, lambda: with_treatment_of_nulls(use, ignores=node.ignores_nulls is True), name)
        condition = None
        if node.filter is not None:
            bound = binder.condition(node.filter, "FILTER")
            condition = binder.checked(node, lambda: boolean(bound, binder.session), "FILTER")
        order = tuple(sort_key(binder.bind(item.expression), item, binder) for item in node.order_by)
        # The least and the greatest of different values are those of all values.
        is_distinct = (node.is_distinct or use.distinct) and use.function not in ("MIN", "MAX")
        return PendingAggregate(use, condition, is_distinct, order)

    def _aggregate(self, sets: Sequence[tuple[RowExpression, ...]]) -> Callable[[RowExpression], RowExpression]:
        """Group the rows; returns what an expression over them becomes over the groups."""
        groups = list(dict.fromkeys(expression for keys in sets for expression in keys))
        joiner = QueryJoiner(self._relation, self._binder(None))
        computed = [joiner.value(expression) for expression in groups]
        pending = [_mapped_aggregate(call, joiner.value) for call in self._aggregates]
        needed = [*computed, *[expression for call in pending for expression in _operands_of(call)]]
        rows, places = extended(joiner.relation, needed)
        place_of = dict(zip(needed, places, strict=True))
        calls = tuple(
            _call_of(call, place_of, data_type) for call, data_type in zip(pending, self._result_types, strict=True)
        )
        if not calls and not all(sets):  # the group of all rows has a column, too
            calls = (AggregateCall("COUNT", (), DataTypes.BIGINT(False)),)
        sources = {key: place_of[expression] for key, expression in zip(groups, computed, strict=True)}
        parts = [_grouped(rows, [sources[key] for key in keys], calls, self._names, self._state_ttl) for keys in sets]
        if len(parts) == 1:
            self._relation = parts[0]
            groups = list(sets[0])
            flags: list[RowExpression] = [Constant(DataTypes.BIGINT(False), 0) for _ in self.grouping_flags]
        else:
            self._relation = self._united(parts, sets, groups)
            first_flag = len(groups) + len(calls)
            flags = [column_at(self._relation, first_flag + number) for number in range(len(self.grouping_flags))]
        columns = {key: column_at(self._relation, place) for place, key in enumerate(groups)}

        def over_groups(part: RowExpression) -> RowExpression | None:
            if isinstance(part, AggregateResult):
                return column_at(self._relation, len(groups) + part.number)
            if isinstance(part, GroupingFlags):
                return flags[self.grouping_flags.index(part)]
            if part in columns and not isinstance(part, Constant):
                return columns[part]
            if isinstance(part, InputColumn):
                node = self._references.get(part.index, self._body)
                self._refuse(
                    node,
                    f"{part.name} is neither in GROUP BY nor within an aggregate function such as MAX({part.name})",
                )
            return None

        return lambda expression: replaced(expression, over_groups)

    def _united(
        self, parts: Sequence[Relation], sets: Sequence[tuple[RowExpression, ...]], groups: Sequence[RowExpression]
    ) -> Relation:
        """The groups of all grouping sets: NULL stands for a key that a set does not have."""
        for flags in self.grouping_flags:
            for item in flags.inputs:
                if item not in groups:
                    self._refuse(self._body, f"GROUPING names {item}, which is not in GROUP BY")
        pieces: list[Relation] = []
        columns: list[Column] = []
        for part, keys in zip(parts, sets, strict=True):
            expressions: list[RowExpression] = []
            for group in groups:
                optional = rules.with_null(group.type, group.type.nullable or any(group not in other for other in sets))
                at = keys.index(group) if group in keys else None
                expressions.append(
                    Constant(optional, None) if at is None else replace(column_at(part, at), type=optional)
                )
            expressions += [column_at(part, place) for place in range(len(keys), len(part.columns))]
            for flags in self.grouping_flags:
                flagged = flags.inputs or tuple(groups)
                bits = sum((item not in keys) << place for place, item in enumerate(reversed(flagged)))
                expressions.append(Constant(DataTypes.BIGINT(False), bits))
            if not columns:
                names = [_name_of(group, f"$group{place}") for place, group in enumerate(groups)]
                names += [column.name for column in part.columns[len(keys) :]]
                names += [f"$grouping{number}" for number in range(len(self.grouping_flags))]
                columns = [Column(name, item.type) for name, item in zip(names, expressions, strict=True)]
            pieces.append(Projection(tuple(columns), part, tuple(expressions)))
        return Union(tuple(columns), tuple(pieces))

    # -- OVER

    def over(self, node: n.Call, function: SqlAggregate, binder: ExpressionBinder, clause: _Clause) -> RowExpression:
        """The result of a call with OVER, which is known once all rows are there."""
        assert node.over is not None
        inner = replace(binder, clause=replace(clause, has_over=False))
        pending = self._pending(node, function, inner)
        window = self._window(node.over, inner)
        partition = tuple(inner.bind(item) for item in window.partition_by)
        order = tuple(sort_key(inner.bind(item.expression), item, inner) for item in window.order_by)
        frame = OverFrame(True, None, 0)
        if function.name not in _NUMBERING:
            frame = _frame(window, order, inner)
        over = PendingOver(pending, partition, order, frame)
        if over not in self._overs:
            self._overs.append(over)
        nullable = pending.use.type.nullable or (pending.use.is_empty_null and pending.filter is not None)
        return OverResult(rules.with_null(pending.use.type, nullable), self._overs.index(over))

    def _window(self, window: n.WindowSpecification, binder: ExpressionBinder) -> n.WindowSpecification:
        """The window with what it takes from the one that it names."""
        if window.base is None:
            return window
        base = self._windows.get(window.base)
        if base is None:
            binder.refuse(window, f"there is no window {window.base}: WINDOW {window.base} AS (...)")
        base = self._window(base, binder)
        if window.partition_by:
            binder.refuse(window, f"the window {window.base} says what PARTITION BY is")
        if window.order_by and base.order_by:
            binder.refuse(window, f"the window {window.base} has an ORDER BY already")
        framed = base if window.frame_unit is None else window
        return n.WindowSpecification(
            None, base.partition_by, window.order_by or base.order_by, framed.frame_unit, framed.frame_start,
            framed.frame_end, at=window.at,
        )  # fmt: skip

    def _over_columns(self) -> Callable[[RowExpression], RowExpression | None]:
        """Compute all calls with OVER; returns the columns that their results are."""
        results: dict[int, InputColumn] = {}
        remaining = dict(enumerate(self._overs))
        while remaining:
            first = next(iter(remaining.values()))
            same = {
                number: over for number, over in remaining.items() if over.partition == first.partition
                and over.order == first.order
            }  # fmt: skip
            needed = list(dict.fromkeys(item for over in same.values() for item in over.expressions()))
            rows, places = extended(self._relation, needed)
            place_of = dict(zip(needed, places, strict=True))
            calls = [
                OverCall(_call_of(over.call, place_of, self._over_type(over)), over.frame) for over in same.values()
            ]
            width = len(rows.columns)
            columns = [
                Column(self._over_names.get(number, f"$over{number}"), call.call.type)
                for number, call in zip(same, calls, strict=True)
            ]
            self._relation = Over(
                (*rows.columns, *columns), rows, tuple(dict.fromkeys(place_of[item] for item in first.partition)),
                _sort_keys(first.order, place_of), tuple(calls),
            )  # fmt: skip
            for place, number in enumerate(same):
                results[number] = column_at(self._relation, width + place)
                del remaining[number]
        return lambda part: results[part.number] if isinstance(part, OverResult) else None

    def _over_type(self, over: PendingOver) -> DataType:
        use = over.call.use
        return rules.with_null(use.type, use.type.nullable or (use.is_empty_null and over.call.filter is not None))

    # -- queries within expressions

    def query(
        self, node: n.ScalarQuery | n.CollectionQuery | n.Exists | n.InQuery | n.Quantified, binder: ExpressionBinder
    ) -> RowExpression:
        """The value of a query, which is known once it is joined."""
        query = node.query
        assert isinstance(query, n.Query)
        relation, outer = parametrised(self._queries.bind_inner(query, self._scope))
        parameters = outer_parameters(outer)
        for item in outer:
            if item.depth == 1:
                self._references[item.index] = node
        nullable_boolean = rules.BOOLEAN
        if isinstance(node, n.ScalarQuery):
            if len(relation.columns) != 1:
                binder.refuse(node, f"a query as a value has one column, not {len(relation.columns)}")
            data_type = rules.with_null(relation.columns[0].type, True)
            return QueryResult(data_type, relation, QueryUse.SCALAR, (), parameters, node)
        if isinstance(node, n.CollectionQuery):
            if len(relation.columns) != 1:
                binder.refuse(node, f"{node.kind}(SELECT ...) has one column, not {len(relation.columns)}")
            collection = ElementsType(node.kind, element_type=relation.columns[0].type)
            call = AggregateCall("ARRAY_AGG" if node.kind == "ARRAY" else "COLLECT", (0,), collection)
            values = GroupBy((Column("$values", collection),), relation, (), (call,))
            gathered = QueryResult(collection, values, QueryUse.SCALAR, (), parameters, node)
            return binder.call(node, "COALESCE", gathered, Constant(rules.with_null(collection, False), ()))
        if isinstance(node, n.Exists):
            never_null = rules.with_null(nullable_boolean, False)
            return QueryResult(never_null, relation, QueryUse.EXISTS, (), parameters, node)
        is_negated = isinstance(node, n.InQuery) and node.is_negated
        if isinstance(node, n.Quantified):
            is_negated = (node.operator, node.quantifier) == ("<>", "ALL")
            if not is_negated and (node.operator, node.quantifier) != ("=", "ANY"):
                return self._quantified(node, relation, parameters, binder)
        operand = node.operand
        items = operand.items if isinstance(operand, n.Constructor) and operand.kind == "ROW" else (operand,)
        searched = tuple(binder.bind(item) for item in items)
        if len(searched) != len(relation.columns):
            binder.refuse(
                node, f"IN looks for {len(searched)} values, and the query has {len(relation.columns)} columns"
            )
        found = QueryResult(nullable_boolean, relation, QueryUse.IN, searched, parameters, node)
        return binder.call(node, "NOT", found) if is_negated else found

    def _quantified(
        self, node: n.Quantified, relation: Relation, parameters: tuple[RowExpression, ...], binder: ExpressionBinder
    ) -> RowExpression:
        """``x > ALL (SELECT ...)``: compared with the least or the greatest value, if there are rows without NULL."""
        if len(relation.columns) != 1:
            binder.refuse(node, f"{node.quantifier} compares with one column, not {len(relation.columns)}")
        operand, column = binder.bind(node.operand), relation.columns[0]
        if rules.is_nested(column.type):
            binder.refuse(node, f"{column.type} has no order")

        def aggregate(function: str, *arguments: int) -> RowExpression:
            is_count = function == "COUNT"
            result = DataTypes.BIGINT(False) if is_count else rules.with_null(column.type, True)
            call = AggregateCall(function, arguments, result)
            values = GroupBy((Column(f"${function}", result),), relation, (), (call,))
            return QueryResult(rules.with_null(result, True), values, QueryUse.SCALAR, (), parameters, node)

        is_all = node.quantifier == "ALL"
        # ``=`` ALL and ``<>`` ANY look at both ends; of the others one decides.
        sides: tuple[str, ...] = ("MIN", "MAX")
        if node.operator not in ("=", "<>"):
            sides = ("MAX",) if (node.operator in (">", ">=")) == is_all else ("MIN",)
        tests = [binder.call(node, node.operator, operand, aggregate(side, 0)) for side in sides]
        decided = tests[0]
        for test in tests[1:]:
            decided = binder.call(node, "AND" if is_all else "OR", decided, test)
        rows, values = aggregate("COUNT"), aggregate("COUNT", 0)
        zero = Constant(DataTypes.BIGINT(False), 0)
        constants = {value: Constant(rules.BOOLEAN, value) for value in (True, False)}
        # A value that decides does so whatever the NULLs are; otherwise these leave it open.
        early = decided if not is_all else binder.call(node, "NOT", decided)
        return chosen(
            [
                binder.call(node, "=", rows, zero),
                binder.call(node, "IS TRUE", early),
                binder.call(node, "<", values, rows),
            ],
            [constants[is_all], constants[not is_all], Constant(rules.BOOLEAN, None)],
            decided,
            binder.session,
        )


# -- helpers


def ordinal(
    node: n.NumberLiteral, columns: Sequence[RowExpression], clause: str, binder: ExpressionBinder
) -> RowExpression:
    """The column of a SELECT that a number means.

    Raises:
        SqlError: there is no such column.
    """
    if not node.text.isdigit() or not 0 < int(node.text) <= len(columns):
        binder.refuse(node, f"{clause} {node.text}: the query has columns 1 to {len(columns)}")
    return columns[int(node.text) - 1]


def sort_key(
    expression: RowExpression, item: n.OrderItem, binder: ExpressionBinder
) -> tuple[RowExpression, bool, bool]:
    """What rows are sorted by, whether ascending, and whether NULL, the least value, comes first.

    Raises:
        SqlError: its values have no order.
    """
    if rules.is_nested(expression.type):
        binder.refuse(item.expression, f"{expression.type} has no order")
    return (
        expression,
        not item.is_descending,
        not item.is_descending if item.nulls_first is None else item.nulls_first,
    )


def distinct(relation: Relation, state_ttl: int | None = None) -> Relation:
    """Each different row of a relation once."""
    source = relation
    while isinstance(source, (Filter, Projection)):
        source = source.input
    if isinstance(source, GroupBy) and not source.groups:
        return relation  # there is one row at most
    return _grouped(relation, range(len(relation.columns)), (), {}, state_ttl)


def _grouped(
    rows: Relation,
    groups: Sequence[int],
    calls: Sequence[AggregateCall],
    names: Mapping[int, str],
    state_ttl: int | None = None,
) -> Relation:
    groups = tuple(dict.fromkeys(groups))
    bounds = window_bounds(rows)
    window = None if bounds is None else bounds.columns_among(groups)
    columns = []
    for place in groups:
        is_window_time = bounds is not None and window is not None and place in bounds.times
        column = rows.columns[place]
        columns.append(column if is_window_time else replace(column, time_attribute=None))
    columns += [Column(names.get(number, f"$agg{number}"), call.type) for number, call in enumerate(calls)]
    return GroupBy(tuple(columns), rows, groups, tuple(calls), window, state_ttl=state_ttl)


def _name_of(expression: RowExpression, otherwise: str) -> str:
    return expression.name if isinstance(expression, InputColumn) else otherwise


def _operands_of(call: PendingAggregate) -> list[RowExpression]:
    condition = [] if call.filter is None else [call.filter]
    return [*call.use.arguments, *condition, *[expression for expression, _, _ in call.order]]


def _sort_keys(order: Order, place_of: dict[RowExpression, int]) -> tuple[SortKey, ...]:
    return tuple(SortKey(place_of[expression], up, first) for expression, up, first in order)


def _call_of(call: PendingAggregate, place_of: dict[RowExpression, int], data_type: DataType) -> AggregateCall:
    return AggregateCall(
        call.use.function, tuple(place_of[argument] for argument in call.use.arguments), data_type, call.distinct,
        None if call.filter is None else place_of[call.filter], _sort_keys(call.order, place_of), call.use.constants,
    )  # fmt: skip


def _mapped_aggregate(call: PendingAggregate, rewrite: Callable[[RowExpression], RowExpression]) -> PendingAggregate:
    use = replace(call.use, arguments=tuple(map(rewrite, call.use.arguments)))
    order = tuple((rewrite(expression), up, first) for expression, up, first in call.order)
    return PendingAggregate(use, None if call.filter is None else rewrite(call.filter), call.distinct, order)


def _mapped_over(over: PendingOver, rewrite: Callable[[RowExpression], RowExpression]) -> PendingOver:
    order = tuple((rewrite(expression), up, first) for expression, up, first in over.order)
    return PendingOver(_mapped_aggregate(over.call, rewrite), tuple(map(rewrite, over.partition)), order, over.frame)


def _frame(window: n.WindowSpecification, order: Order, binder: ExpressionBinder) -> OverFrame:
    """The frame of a window; without one it reaches from the first row to the current one, and those equal to it."""
    if window.frame_unit is None:
        return OverFrame(False, None, 0) if order else OverFrame(True, None, None)
    by_rows = window.frame_unit == "ROWS"
    start, end = window.frame_start, window.frame_end
    assert start is not None
    if not order:
        binder.refuse(window, f"a frame of {window.frame_unit} needs an ORDER BY")
    preceding: int | None = 0
    if start.kind == "PRECEDING":
        preceding = None if start.distance is None else _distance(start, by_rows, order, binder)
    elif start.kind == "FOLLOWING":
        binder.refuse(start, "a frame begins at or before the current row: ... PRECEDING, or CURRENT ROW")
    following: int | None = 0
    if end is not None and end.kind == "FOLLOWING":
        following = None if end.distance is None else _distance(end, by_rows, order, binder)
    elif end is not None and end.kind == "PRECEDING":
        binder.refuse(end, "a frame ends at or behind the current row: CURRENT ROW, or ... FOLLOWING")
    return OverFrame(by_rows, preceding, following)


def _distance(bound: n.FrameBound, by_rows: bool, order: Order, binder: ExpressionBinder) -> int:
    assert bound.distance is not None
    distance = binder.bind(bound.distance)
    if not isinstance(distance, Constant) or distance.value is None:
        binder.refuse(bound.distance, "the distance of a frame has to be a constant")
    if by_rows:
        if not rules.is_integer(distance.type):
            binder.refuse(bound.distance, "ROWS needs a number of rows")
    else:
        if len(order) != 1:
            binder.refuse(bound, "RANGE with a distance needs one column in ORDER BY")
        key = order[0][0].type
        if rules.is_moment(key) != (distance.type.name == DAY_TIME.name):
            needs = "an INTERVAL of days to seconds" if rules.is_moment(key) else "a number"
            binder.refuse(bound.distance, f"RANGE over {key} needs {needs}")
        if not rules.is_moment(key) and not (rules.is_number(key) and rules.is_integer(distance.type)):
            binder.refuse(bound.distance, f"RANGE over {key} needs a whole number as its distance")
    value = int(distance.value)
    if value < 0:
        binder.refuse(bound.distance, "the distance of a frame can't be negative")
    return value
