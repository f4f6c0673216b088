"""Expressions of constants are computed once, while a query is planned."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from firesteel.expressions.binding import bind
from firesteel_sql.plan.relations import ConstantRows, Filter, Relation
from firesteel_sql.plan.row_expressions import (
    AppliedFunction,
    Constant,
    RowExpression,
    conjunction_of,
    conjuncts_of,
    is_deterministic,
    to_expression,
)
from firesteel_sql.plan.stateful_relations import Join, JoinKind
from firesteel_sql.plan.traversal import with_expressions, with_inputs
from firesteel_sql.types import rules
from firesteel_sql.types.intervals import DAY_TIME, YEAR_MONTH

_FOLDED: Final = frozenset(
    ("BOOLEAN", "DECIMAL", "FLOAT", "DOUBLE", DAY_TIME.name, YEAR_MONTH.name, *rules.INTEGERS, *rules.TEXTS)
)
"""Types of values that are written as constants without a loss."""
_USERS: Final = "firesteel_sql.kernels.user:"


def with_constants(relation: Relation) -> Relation:
    """The relation with constants in place of expressions that are always the same.

    A filter or an inner join that is never true has no rows; a filter that is always true goes.
    """
    known: dict[int, Relation] = {}

    def folded_filters(part: Relation) -> Relation:
        done = known.get(id(part))
        if done is None:
            done = with_inputs(part, tuple(folded_filters(inner) for inner in part.inputs))
            if isinstance(done, Filter):
                done = _filter(done)
            elif isinstance(done, Join) and done.kind in (JoinKind.INNER, JoinKind.SEMI) and _is_never(done.condition):
                done = ConstantRows(done.columns, ())
            known[id(part)] = done
        return done

    return folded_filters(with_expressions(relation, folded))


def _filter(relation: Filter) -> Relation:
    if _is_never(relation.condition):
        return ConstantRows(relation.columns, ())
    condition = conjunction_of(conjuncts_of(relation.condition))
    return relation.input if condition is None else Filter(relation.columns, relation.input, condition)


def _is_never(condition: RowExpression | None) -> bool:
    """Whether a condition is FALSE or NULL for each row."""
    return any(isinstance(part, Constant) and not part.value for part in conjuncts_of(condition))


def folded(expression: RowExpression) -> RowExpression:
    """The expression, with its constant parts computed; what fails stays, and fails for the row that it is for."""
    if not isinstance(expression, AppliedFunction) or not expression.inputs:
        return expression
    inputs = tuple(folded(operand) for operand in expression.inputs)
    if any(new is not old for new, old in zip(inputs, expression.inputs, strict=True)):
        expression = AppliedFunction(expression.type, expression.name, expression.kernel, inputs, expression.options)
    is_constant = all(isinstance(operand, Constant) and operand.type.name != "NULL" for operand in inputs)
    if not is_constant or expression.type.name not in _FOLDED or not is_deterministic(expression):
        return expression
    if expression.kernel.startswith(_USERS):  # functions of users are called in slots only
        return expression
    try:
        value = bind(to_expression(expression, []), {}).evaluate({}, 1)[0].as_py()
    except Exception:
        return expression
    if not isinstance(value, (bool, int, float, str, Decimal)):
        return expression
    return Constant(expression.type, value)
