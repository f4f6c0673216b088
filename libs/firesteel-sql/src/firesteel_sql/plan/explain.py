"""EXPLAIN: plans as trees of text, in Flink's sections."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from firesteel_sql.plan.relations import (
    ConstantRows,
    Filter,
    Projection,
    Relation,
    Scan,
    Union,
    WatermarkAssigner,
)
from firesteel_sql.plan.route import Route
from firesteel_sql.plan.row_expressions import AppliedFunction, Constant, InputColumn, RowExpression
from firesteel_sql.plan.stateful_relations import AggregateCall, GroupBy, Join, JoinKind
from firesteel_sql.plan.stored_state import StoredState

_ROWS: Final = 1e8
"""Rows of a table of which nothing is known, as Flink assumes."""


StatesOf = Callable[[Relation], Sequence[StoredState]]
"""Gives what the operator of a relation stores."""


@dataclass(frozen=True)
class PlannedStatement:
    """A query or an INSERT that is explained.

    Attributes:
        logical: the relation as the statement has it.
        physical: the relation that is computed.
        sink: full name of the table that the rows are written into; None = they are collected.
    """

    logical: Relation
    physical: Relation
    sink: str | None = None


@dataclass(frozen=True)
class _Node:
    """A line of a plan, and those below it."""

    text: str
    inputs: tuple[_Node, ...] = ()


def explained(
    plans: Sequence[PlannedStatement],
    details: Iterable[str],
    *,
    changelog_of: Callable[[Relation], str],
    states_of: StatesOf,
    json_plan: Callable[[], str],
    route: Route,
) -> str:
    """The text of EXPLAIN.

    Args:
        plans: one for each statement; those of a statement set are one job.
        details: ESTIMATED_COST, CHANGELOG_MODE, JSON_EXECUTION_PLAN, PLAN_ADVICE, STATE, ROUTE.
        changelog_of: the changes that a relation gives, ``[I,UB,UA]``.
        states_of: what the operator of a relation stores.
        json_plan: the operators of the job, as JSON.
        route: where the job's relations are computed.
    """
    chosen = set(details)
    operators = list({id(part): part for plan in plans for part in plan.physical.walk()}.values())
    physical = _Physical(changelog_of if "CHANGELOG_MODE" in chosen else None, "ESTIMATED_COST" in chosen)
    title = "Optimized Physical Plan" + (" With Advice" if "PLAN_ADVICE" in chosen else "")
    sections = [
        _section("Abstract Syntax Tree", [_logical(plan) for plan in plans]),
        _section(title, [physical.plan(plan) for plan in plans]),
    ]
    if "PLAN_ADVICE" in chosen:
        sections[-1] += "\n\n" + _advice(operators, states_of)
    reuse = _Execution(plans)
    sections.append(_section("Optimized Execution Plan", [reuse.plan(plan) for plan in plans]))
    if "JSON_EXECUTION_PLAN" in chosen:
        sections.append(f"== Physical Execution Plan ==\n{json_plan()}")
    if "STATE" in chosen:
        sections.append(f"== State ==\n{_state(operators, states_of)}")
    if "ROUTE" in chosen:
        sections.append(f"== Route ==\n{_route(route)}")
    return "\n\n".join(sections) + "\n"


def _section(title: str, trees: Iterable[_Node]) -> str:
    return f"== {title} ==\n" + "\n\n".join("\n".join(_lines(tree)) for tree in trees)


def _lines(node: _Node) -> Iterator[str]:
    yield node.text
    for place, part in enumerate(node.inputs):
        is_last = place == len(node.inputs) - 1
        first, rest = ("+- ", "   ") if is_last else (":- ", ":  ")
        for number, line in enumerate(_lines(part)):
            yield (rest if number else first) + line


# -- the syntax tree


def _logical(plan: PlannedStatement) -> _Node:
    node = _logical_node(plan.logical)
    if plan.sink is None:
        return node
    return _Node(f"LogicalSink(table=[{plan.sink}], fields=[{_fields(plan.logical)}])", (node,))


def _logical_node(relation: Relation) -> _Node:
    return _Node(_logical_text(relation), tuple(_logical_node(part) for part in relation.inputs))


def _logical_text(relation: Relation) -> str:
    match relation:
        case Scan():
            return f"LogicalTableScan(table=[[{', '.join(relation.identifier)}]])"
        case Projection():
            pairs = zip(relation.columns, relation.expressions, strict=True)
            return f"LogicalProject({', '.join(f'{column.name}=[{by_place(value)}]' for column, value in pairs)})"
        case Filter():
            return f"LogicalFilter(condition=[{by_place(relation.condition)}])"
        case Union():
            return "LogicalUnion(all=[true])"
        case WatermarkAssigner():
            column = relation.columns[relation.column].name
            return f"LogicalWatermarkAssigner(rowtime=[{column}], watermark=[{by_place(relation.watermark)}])"
        case ConstantRows():
            rows = ", ".join("{ " + ", ".join(map(by_place, row)) + " }" for row in relation.rows)
            return f"LogicalValues(tuples=[[{rows}]])"
        case GroupBy():
            groups = ", ".join(map(str, relation.groups))
            results = zip(relation.columns[len(relation.groups) :], relation.calls, strict=True)
            calls = "".join(f", {column.name}=[{_call_by_place(call)}]" for column, call in results)
            return f"LogicalAggregate(group=[{{{groups}}}]{calls})"
        case Join():
            return f"LogicalJoin(condition=[{_join_condition(relation)}], joinType=[{_JOIN_TYPES[relation.kind]}])"
    name, _, inside = relation.text().partition("(")
    return f"Logical{_LOGICAL.get(name, name)}({inside}"


_LOGICAL: Final = {"WindowTableFunction": "TableFunctionScan", "OverAggregate": "Window"}
"""What Flink calls relations in the syntax tree, where the physical plan has another name."""
_JOIN_TYPES: Final = {
    JoinKind.INNER: "inner", JoinKind.LEFT: "left", JoinKind.RIGHT: "right", JoinKind.FULL: "full",
    JoinKind.SEMI: "semi", JoinKind.ANTI: "anti",
}  # fmt: skip


def _call_by_place(call: AggregateCall) -> str:
    """A call of an aggregate function over places of columns: ``SUM(DISTINCT $1) FILTER $3``."""
    inside = ", ".join(f"${place}" for place in call.arguments)
    condition = "" if call.filter is None else f" FILTER ${call.filter}"
    return f"{call.function}({'DISTINCT ' if call.distinct else ''}{inside}){condition}"


def _join_condition(join: Join) -> str:
    width = len(join.left.columns)
    parts = [
        f"{'IS NOT DISTINCT FROM' if key.nulls_equal else '='}(${key.left}, ${key.right + width})" for key in join.keys
    ]
    if join.condition is not None:
        parts.append(by_place(join.condition))
    return "true" if not parts else parts[0] if len(parts) == 1 else f"AND({', '.join(parts)})"


def _fields(relation: Relation) -> str:
    return ", ".join(column.name for column in relation.columns)


def by_place(expression: RowExpression) -> str:
    """An expression in prefix form over places of columns: ``>($1, 5)``."""
    return _prefix(expression, lambda column: f"${column.index}")


def by_name(expression: RowExpression) -> str:
    """An expression in prefix form over names of columns: ``>(price, 5)``."""
    return _prefix(expression, lambda column: column.name)


def _prefix(expression: RowExpression, column: Callable[[InputColumn], str]) -> str:
    match expression:
        case InputColumn():
            return column(expression)
        case Constant():
            return str(expression)
        case AppliedFunction():
            inside = ", ".join(_prefix(operand, column) for operand in expression.inputs)
            match expression.name:
                case "CAST" | "TRY_CAST":
                    return f"{expression.name}({inside}):{expression.type}"
                case "FIELD":
                    return f"{inside}.{dict(expression.options)['field']}"
            return f"{expression.name}({inside})"
    return str(expression)


# -- the physical plan


@dataclass(frozen=True)
class _Physical:
    """The plan as operators; a filter and the projection above it are one Calc."""

    changelog_of: Callable[[Relation], str] | None
    shows_cost: bool

    def plan(self, plan: PlannedStatement) -> _Node:
        node = self._node(plan.physical)
        if plan.sink is None:
            return node
        text = f"Sink(table=[{plan.sink}], fields=[{_fields(plan.physical)}])"
        return _Node(self._with_details(text, plan.physical, is_sink=True), (node,))

    def _node(self, relation: Relation) -> _Node:
        text, inputs = calc(relation, by_name)
        return _Node(self._with_details(text, relation), tuple(self._node(part) for part in inputs))

    def _with_details(self, text: str, relation: Relation, *, is_sink: bool = False) -> str:
        if self.changelog_of is not None:
            mode = "NONE" if is_sink else self.changelog_of(relation)
            text = f"{text.removesuffix(')')}, changelogMode=[{mode.strip('[]')}])"
        if self.shows_cost:
            rows = estimated_rows(relation)
            total = sum(estimated_rows(part) for part in relation.walk()) + (rows if is_sink else 0)
            scanned = sum(
                estimated_rows(part) * 8 * len(part.columns) for part in relation.walk() if isinstance(part, Scan)
            )
            text += f": rowcount = {_number(rows)}, cumulative cost = {{{_number(total)} rows, {_number(scanned)} io}}"
        return text


def calc(relation: Relation, shown: Callable[[RowExpression], str]) -> tuple[str, tuple[Relation, ...]]:
    """The text of a relation as an operator, and the relations that the operator reads."""
    match relation:
        case Projection(input=Filter() as inner):
            return f"Calc(select=[{_selected(relation, shown)}], where=[{shown(inner.condition)}])", (inner.input,)
        case Projection():
            return f"Calc(select=[{_selected(relation, shown)}])", (relation.input,)
        case Filter():
            return f"Calc(select=[{_fields(relation)}], where=[{shown(relation.condition)}])", (relation.input,)
    return relation.text(), relation.inputs


def _selected(relation: Projection, shown: Callable[[RowExpression], str]) -> str:
    pairs = zip(relation.expressions, relation.columns, strict=True)
    return ", ".join(
        shown(expression) if shown(expression) == column.name else f"{shown(expression)} AS {column.name}"
        for expression, column in pairs
    )


def estimated_rows(relation: Relation) -> float:
    """How many rows a relation gives, guessed: nothing is known of most tables."""
    match relation:
        case Scan():
            written = relation.table.options.get("number-of-rows", "")
            return float(written) if written.isdigit() else _ROWS
        case ConstantRows():
            return float(len(relation.rows))
        case Filter():
            is_equality = isinstance(relation.condition, AppliedFunction) and relation.condition.name == "="
            return max(1.0, estimated_rows(relation.input) * (0.15 if is_equality else 0.5))
        case GroupBy() if not relation.groups:
            return 1.0
    return sum(estimated_rows(part) for part in relation.inputs)


def _number(value: float) -> str:
    """A number as Java shows a double: 1.0E8."""
    if value < 1e7:
        return str(float(value))
    mantissa, _, exponent = f"{value:.6e}".partition("e")
    digits = mantissa.rstrip("0")
    return f"{digits}{'0' if digits.endswith('.') else ''}E{int(exponent)}"


# -- advice


def _advice(operators: Sequence[Relation], states_of: StatesOf) -> str:
    growing = [relation.text() for relation in operators if any(state.grows for state in states_of(relation))]
    if not growing:
        return "No available advice..."
    texts = [
        f"advice[{number}]: [ADVICE] {text} keeps rows without an end, unless 'table.exec.state.ttl' is set or rows "
        "are grouped by a window"
        for number, text in enumerate(growing, 1)
    ]
    return "\n".join(texts)


# -- state and route


def _state(operators: Sequence[Relation], states_of: StatesOf) -> str:
    """What each operator stores: bytes are guessed from types, as nothing is known of values."""
    lines = []
    for relation in operators:
        states = states_of(relation)
        if states:
            lines += [relation.text(), *(f"   {state.text()}" for state in states)]
    return "\n".join(lines) or "No operator stores anything."


def _route(route: Route) -> str:
    reasons = "".join(f"\n   {reason}" for reason in route.reasons)
    return f"{_ROUTES.get(route.name, route.name)}{reasons}"


_ROUTES: Final = {
    "streaming": "streaming: columns through operators in slots",
    "stages": "bounded stages: the same operators on stages of Spark",
    "spark": "Spark SQL: the whole query",
}


# -- the execution plan


class _Execution:
    """The plan as it is run: a table that several queries read is read once."""

    def __init__(self, plans: Sequence[PlannedStatement]) -> None:
        self._scans: list[Scan] = []
        self._shared: list[Scan] = []
        self._told: list[Scan] = []
        for plan in plans:
            for relation in plan.physical.walk():
                if not isinstance(relation, Scan):
                    continue
                if relation in self._scans and relation not in self._shared:
                    self._shared.append(relation)
                self._scans.append(relation)

    def plan(self, plan: PlannedStatement) -> _Node:
        node = self._node(plan.physical)
        if plan.sink is None:
            return node
        return _Node(f"Sink(table=[{plan.sink}], fields=[{_fields(plan.physical)}])", (node,))

    def _node(self, relation: Relation) -> _Node:
        if isinstance(relation, Scan) and relation in self._shared:
            number = self._shared.index(relation) + 1
            if relation in self._told:
                return _Node(f"Reused(reference_id=[{number}])")
            self._told.append(relation)
            return _Node(f"{relation.text()}(reuse_id=[{number}])")
        text, inputs = calc(relation, str)
        return _Node(text, tuple(self._node(part) for part in inputs))
