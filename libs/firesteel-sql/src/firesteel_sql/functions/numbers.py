"""Functions of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from firesteel.table.types import DataType, DataTypes
from firesteel_sql.functions.operators import as_double
from firesteel_sql.functions.signature import (
    OperandsRefused,
    Session,
    big,
    coerced,
    constant_of,
    declare,
    declare_simple,
    moment,
    number,
    operation,
    text,
    whole,
)
from firesteel_sql.plan.row_expressions import Constant, RowExpression
from firesteel_sql.types import rules


@declare("ABS", operands=1)
def _abs(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    operand = number(operands[0], session)
    return operation("ABS", "numbers:absolute", (operand,), operand.type)


@declare("SIGN", operands=1)
def _sign(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    operand = number(operands[0], session)
    return operation("SIGN", "numbers:sign", (operand,), operand.type)


_OF_TIME = ("HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")


def _to_whole(name: str, kernel: str, round_to: str) -> None:
    @declare(name, operands=(1, 2))
    def build(operands: Sequence[RowExpression], session: Session) -> RowExpression:
        if len(operands) == 2:
            value = moment(operands[0], session)
            unit = constant_of(operands[1], "the unit")
            if value.type.name == "TIME" and unit not in _OF_TIME:
                raise OperandsRefused(f"a TIME can't be rounded to {unit}")
            return operation(name, f"times:{round_to}", (value,), value.type, unit=unit, zone=session.zone)
        operand = number(operands[0], session)
        result = operand.type
        if result.name == "DECIMAL":
            precision, scale = result.parameters
            result = DataTypes.DECIMAL(min(38, precision - scale + 1), 0) if scale else result
        return operation(name, f"numbers:{kernel}", (operand,), result)


for _name, _kernel, _temporal in (
    ("CEIL", "ceil", "round_up"),
    ("CEILING", "ceil", "round_up"),
    ("FLOOR", "floor", "round_down"),
):
    _to_whole(_name, _kernel, _temporal)


def _digits_type(data_type: DataType, digits: RowExpression | None) -> DataType:
    """The type of a number that is cut to these digits behind the point; unknown ones leave the type as it is."""
    if data_type.name != "DECIMAL":
        return data_type
    if digits is None:
        return rules.rounded_type(data_type, 0)
    if isinstance(digits, Constant) and digits.value is not None:
        return rules.rounded_type(data_type, digits.value)
    return data_type


def _to_digits(name: str, kernel: str) -> None:
    @declare(name, operands=(1, 2))
    def build(operands: Sequence[RowExpression], session: Session) -> RowExpression:
        operand = number(operands[0], session)
        digits = whole(operands[1], session) if len(operands) == 2 else None
        result = _digits_type(operand.type, digits)
        return operation(name, kernel, (operand,) if digits is None else (operand, digits), result)


_to_digits("ROUND", "numbers:round_")
_to_digits("TRUNCATE", "numbers:truncate")

for _name in ("SQRT", "EXP", "LN", "LOG10", "LOG2", "SIN", "COS", "TAN", "COT", "ASIN", "ACOS", "ATAN", "SINH", "COSH",
              "TANH", "DEGREES", "RADIANS"):  # fmt: skip
    declare_simple(_name, f"numbers:{_name.lower()}", [as_double], rules.DOUBLE)
declare_simple("POWER", "numbers:power", [as_double, as_double], rules.DOUBLE)
declare_simple("ATAN2", "numbers:atan2", [as_double, as_double], rules.DOUBLE)


@declare("LOG", operands=(1, 2))
def _log(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    parts = [as_double(operand, session) for operand in operands]
    return operation("LOG", "numbers:ln" if len(parts) == 1 else "numbers:log_of_base", parts, rules.DOUBLE)


def _constant(name: str, value: float) -> None:
    @declare(name, operands=0)
    def build(operands: Sequence[RowExpression], session: Session) -> RowExpression:
        return Constant(DataTypes.DOUBLE(False), value)


_constant("PI", math.pi)
_constant("E", math.e)


# -- numbers that differ from row to row


@declare("RAND", operands=(0, 1))
def _rand(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    seed = [whole(operand, session) for operand in operands]
    for operand in seed:
        constant_of(operand, "the seed")
    return operation("RAND", "randoms:rand", seed, rules.DOUBLE, nullable=False)


@declare("RAND_INTEGER", operands=(1, 2))
def _rand_integer(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    *seed, bound = (whole(operand, session) for operand in operands)
    for operand in seed:
        constant_of(operand, "the seed")
    return operation("RAND_INTEGER", "randoms:rand_integer", [*seed, bound], rules.INT)


@declare("UUID", operands=0)
def _uuid(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    return operation("UUID", "randoms:uuid", (), DataTypes.CHAR(36), nullable=False)


# -- numbers in other forms

declare_simple("BIN", "encodings:bin_", [big], rules.STRING)


@declare("HEX", operands=1)
def _hex(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    (operand,) = operands
    if rules.is_text(operand.type):
        return operation("HEX", "encodings:hex_of_text", (operand,), rules.STRING)
    if operand.type.name != "NULL" and not rules.is_integer(operand.type):
        raise OperandsRefused(f"a whole number or a text is needed, not {operand.type}")
    return operation("HEX", "encodings:hex_of_number", (coerced(operand, rules.BIGINT, session),), rules.STRING)


declare_simple("UNHEX", "encodings:unhex", [text], DataTypes.BYTES(), nullable=True)
declare_simple("INET_ATON", "encodings:inet_aton", [text], rules.BIGINT, nullable=True)
declare_simple("INET_NTOA", "encodings:inet_ntoa", [big], rules.STRING, nullable=True)
