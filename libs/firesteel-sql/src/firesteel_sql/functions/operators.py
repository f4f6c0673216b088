"""Operators: arithmetic, comparison, logic, choices."""

from __future__ import annotations

from collections.abc import Sequence

from firesteel.table.types import DataTypes
from firesteel_sql.functions.signature import (
    OperandsRefused,
    Session,
    boolean,
    coerced,
    declare,
    number,
    operation,
    retyped,
    text,
    unified,
)
from firesteel_sql.plan.row_expressions import Constant, RowExpression
from firesteel_sql.types import rules
from firesteel_sql.types.intervals import YEAR_MONTH

_ARITHMETIC = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "%": "modulo"}


def _numbers(sign: str, left: RowExpression, right: RowExpression, session: Session) -> RowExpression:
    a, b = number(left, session), number(right, session)
    result = rules.arithmetic_type(sign, a.type, b.type)
    return operation(sign, f"numbers:{_ARITHMETIC[sign]}", (a, b), result)


@declare("+", operands=2)
def _plus(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    left, right = operands
    if rules.is_moment(left.type) and rules.is_interval(right.type):
        return _shifted("+", left, right)
    if rules.is_interval(left.type) and rules.is_moment(right.type):
        return _shifted("+", right, left)
    if rules.is_interval(left.type) and left.type.name == right.type.name:
        return operation("+", "numbers:add", operands, left.type)
    if rules.is_text(left.type) and rules.is_text(right.type):
        raise OperandsRefused("texts are joined with ||, not with +")
    return _numbers("+", left, right, session)


@declare("-", operands=2)
def _minus(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    left, right = operands
    if rules.is_moment(left.type) and rules.is_interval(right.type):
        return _shifted("-", left, right)
    if rules.is_interval(left.type) and left.type.name == right.type.name:
        return operation("-", "numbers:subtract", operands, left.type)
    if rules.is_moment(left.type) and rules.is_moment(right.type):
        raise OperandsRefused("two moments are compared with TIMESTAMPDIFF(SECOND, a, b)")
    return _numbers("-", left, right, session)


def _shifted(sign: str, value: RowExpression, interval: RowExpression) -> RowExpression:
    months = interval.type.name == YEAR_MONTH.name
    if months and value.type.name == "TIME":
        raise OperandsRefused("a time of day and an interval of months do not go together")
    verb = "add" if sign == "+" else "subtract"
    return operation(sign, f"times:{verb}_{'months' if months else 'millis'}", (value, interval), value.type)


@declare("*", operands=2)
def _times(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    left, right = operands
    if rules.is_interval(right.type):
        left, right = right, left
    if rules.is_interval(left.type) and rules.is_integer(right.type):
        return operation("*", "numbers:multiply", (left, right), left.type)
    return _numbers("*", operands[0], operands[1], session)


@declare("/", operands=2)
def _divided(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    return _numbers("/", operands[0], operands[1], session)


@declare("%", "MOD", operands=2)
def _modulo(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    return _numbers("%", operands[0], operands[1], session)


@declare("negate", operands=1)
def _negated(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    (operand,) = operands
    if not rules.is_interval(operand.type):
        operand = number(operand, session)
    return operation("-", "numbers:negate", (operand,), operand.type)


@declare("||", operands=2)
def _joined(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    left, right = (text(operand, session) for operand in operands)
    return operation("||", "texts:concat", (left, right), rules.concatenated_type(left.type, right.type))


# -- comparison

_COMPARISONS = {
    "=": "equal", "<>": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal",
}  # fmt: skip


def compared(sign: str, left: RowExpression, right: RowExpression, session: Session) -> RowExpression:
    """``left sign right``.

    Raises:
        OperandsRefused: the two can't be compared.
    """
    a, b = unified((left, right), session)
    if a.type.name == "NULL":
        return Constant(rules.BOOLEAN, None)
    if sign not in ("=", "<>") and rules.is_nested(a.type):
        raise OperandsRefused(f"{a.type} has no order")
    return operation(sign, f"numbers:{_COMPARISONS[sign]}", (a, b), rules.BOOLEAN)


def _comparison(sign: str) -> None:
    @declare(sign, operands=2)
    def build(operands: Sequence[RowExpression], session: Session) -> RowExpression:
        return compared(sign, operands[0], operands[1], session)


for _sign in _COMPARISONS:
    _comparison(_sign)


@declare("IS DISTINCT FROM", operands=2)
def _is_distinct(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    return operation(
        "IS DISTINCT FROM", "numbers:is_distinct", unified(operands, session), rules.BOOLEAN, nullable=False
    )


@declare("IN", operands=(2, None))
def _in(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    value, *others = unified(operands, session)
    if all(isinstance(other, Constant) for other in others) and not rules.is_nested(value.type):
        nullable = value.type.nullable or any(other.type.nullable for other in others)
        return operation("IN", "numbers:in_list", (value, *others), rules.BOOLEAN, nullable=nullable)
    found = compared("=", value, others[0], session)
    for other in others[1:]:
        found = connected("OR", found, compared("=", value, other, session), session)
    return found


# -- logic


def connected(word: str, left: RowExpression, right: RowExpression, session: Session) -> RowExpression:
    """``left AND right``, ``left OR right``.

    Raises:
        OperandsRefused: one of them is no condition.
    """
    a, b = boolean(left, session), boolean(right, session)
    return operation(word, "&" if word == "AND" else "|", (a, b), rules.BOOLEAN)


@declare("AND", operands=2)
def _and(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    return connected("AND", operands[0], operands[1], session)


@declare("OR", operands=2)
def _or(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    return connected("OR", operands[0], operands[1], session)


@declare("NOT", operands=1)
def negation(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    """``NOT condition``.

    Raises:
        OperandsRefused: it is no condition.
    """
    return operation("NOT", "not", [boolean(operands[0], session)], rules.BOOLEAN)


@declare("IS NULL", operands=1)
def is_null(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    """``x IS NULL``."""
    return operation("IS NULL", "is_null", operands, rules.BOOLEAN, nullable=False)


@declare("IS TRUE", operands=1)
def _is_true(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    return operation(
        "IS TRUE", "numbers:is_true", [boolean(operands[0], session)], rules.BOOLEAN, nullable=False, wanted=True
    )


@declare("IS FALSE", operands=1)
def _is_false(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    return operation(
        "IS FALSE", "numbers:is_true", [boolean(operands[0], session)], rules.BOOLEAN, nullable=False, wanted=False
    )


# -- choices


def chosen(
    conditions: Sequence[RowExpression], values: Sequence[RowExpression], otherwise: RowExpression, session: Session
) -> RowExpression:
    """``CASE WHEN condition THEN value ... ELSE otherwise END``.

    Raises:
        OperandsRefused: a condition is none, or the values have no type in common.
    """
    *results, last = unified([*values, otherwise], session)
    tests = [boolean(condition, session) for condition in conditions]
    if last.type.name == "NULL":
        raise OperandsRefused("all results are NULL: give one of them a type with CAST(NULL AS ...)")
    pairs = [part for pair in zip(tests, results, strict=True) for part in pair]
    nullable = rules.is_nullable([one.type for one in (*results, last)])
    return operation("CASE", "when", (*pairs, last), last.type, nullable=nullable)


@declare("COALESCE", operands=(1, None))
def _coalesce(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    parts = unified(operands, session)
    if parts[0].type.name == "NULL":
        raise OperandsRefused("all operands are NULL: give one of them a type with CAST(NULL AS ...)")
    return operation("COALESCE", "coalesce", parts, parts[0].type, nullable=all(part.type.nullable for part in parts))


@declare("IFNULL", operands=2)
def _if_null(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    return _coalesce(operands, session)


@declare("NULLIF", operands=2)
def _null_if(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    value, other = operands
    nothing = Constant(rules.with_null(value.type, True), None)
    return chosen([compared("=", value, other, session)], [nothing], value, session)


@declare("IF", operands=3)
def _if(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    condition, value, otherwise = operands
    choice = chosen([condition], [value], otherwise, session)
    # In Flink the result takes NULL as the condition does, though a condition of NULL means ``otherwise``.
    return retyped(choice, rules.with_null(choice.type, choice.type.nullable or condition.type.nullable))


def _extremes(name: str) -> None:
    @declare(name, operands=(1, None))
    def build(operands: Sequence[RowExpression], session: Session) -> RowExpression:
        parts = unified(operands, session)
        return operation(name, f"numbers:{name.lower()}", parts, parts[0].type)


for _name in ("GREATEST", "LEAST"):
    _extremes(_name)


def as_double(operand: RowExpression, session: Session) -> RowExpression:
    """A number as DOUBLE.

    Raises:
        OperandsRefused: it is no number.
    """
    return coerced(number(operand, session), DataTypes.DOUBLE(), session)
