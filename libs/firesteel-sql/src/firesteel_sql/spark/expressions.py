"""Expressions over rows in Spark's SQL.

Spark runs without ANSI mode: integers wrap around and decimal numbers that are too large are NULL, as in Flink. Each
kernel has its own writer here; a kernel without one has no equal. Results are cast wherever Spark would give them
another type, and only where Spark's own result is still exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from firesteel.expressions.binding import bind
from firesteel.table.types import DataType
from firesteel_sql.plan.row_expressions import (
    AppliedFunction,
    Constant,
    InputColumn,
    RowExpression,
    is_deterministic,
    to_expression,
)
from firesteel_sql.spark.values import (
    FLOATING,
    INTEGER_DIGITS,
    TEXTS,
    TIMESTAMPS,
    NoEqual,
    literal,
    spark_type,
    text_literal,
)
from firesteel_sql.types.rules import STRING

Columns = Mapping[int, str] | Sequence[str]
"""Texts of the columns of the input, by their places."""
_KERNELS: Final = "firesteel_sql.kernels."
_USERS: Final = "firesteel_sql.kernels.user:"
_DIGITS: Final = 38
"""The most digits of a decimal number."""
_SMALLEST_SCALE: Final = 6
"""Digits behind the point that Spark leaves a result with too many digits."""


def written(expression: RowExpression, columns: Columns) -> str:
    """An expression as text of Spark's SQL, of Spark's type for the expression's type.

    Raises:
        NoEqual: a part of it has no equal.
    """
    match expression:
        case InputColumn():
            spark_type(expression.type)
            return columns[expression.index]
        case Constant():
            return literal(expression)
        case AppliedFunction():
            constant = _constant(expression)
            if constant is not None:
                return literal(constant)
            write = _WRITERS.get(expression.kernel.removeprefix(_KERNELS))
            if write is None:
                raise NoEqual(f"the function {expression.name}")
            spark_type(expression.type)
            return write(expression, [written(operand, columns) for operand in expression.inputs])
    raise NoEqual(str(expression))


def _constant(expression: AppliedFunction) -> Constant | None:
    """The value of an expression that reads no column; None = it does, it varies, or it fails."""
    parts = list(expression.walk())
    is_computed = any(
        isinstance(part, InputColumn) or (isinstance(part, AppliedFunction) and part.kernel.startswith(_USERS))
        for part in parts
    )
    if is_computed or not is_deterministic(expression):
        return None
    try:
        return Constant(expression.type, bind(to_expression(expression, []), {}).evaluate({}, 1)[0].as_py())
    except Exception:  # kernels raise what they like; the query fails where it is computed
        return None


def error(message: str, data_type: DataType) -> str:
    """An expression that fails the job."""
    return f"CAST(raise_error({text_literal(message)}) AS {spark_type(data_type)})"


# -- numbers


def decimal_digits(data_type: DataType) -> tuple[int, int] | None:
    """Precision and scale of a number as a decimal one; None of a floating one."""
    if data_type.name == "DECIMAL":
        precision, scale = data_type.parameters
        return precision, scale
    return (INTEGER_DIGITS[data_type.name], 0) if data_type.name in INTEGER_DIGITS else None


def _cut(precision: int, scale: int) -> tuple[int, int]:
    """The digits that Spark leaves a result that would have more than 38."""
    if precision <= _DIGITS:
        return precision, scale
    whole = precision - scale
    return _DIGITS, max(_DIGITS - whole, min(scale, _SMALLEST_SCALE))


def _as_decimal(text: str, data_type: DataType) -> str:
    digits = INTEGER_DIGITS.get(data_type.name)
    return text if digits is None else f"CAST({text} AS DECIMAL({digits}, 0))"


def _arithmetic(expression: AppliedFunction, operands: Sequence[str]) -> str:
    sign, result = expression.name, expression.type
    name = spark_type(result)
    left, right = (operand.type for operand in expression.inputs)
    if result.name != "DECIMAL":
        if result.name not in INTEGER_DIGITS and result.name not in FLOATING:
            raise NoEqual(f"{left} {sign} {right}")
        return f"(CAST({operands[0]} AS {name}) {sign} CAST({operands[1]} AS {name}))"
    a, b = decimal_digits(left), decimal_digits(right)
    if a is None or b is None:
        raise NoEqual(f"{left} {sign} {right}")
    if sign == "*":
        scale = a[1] + b[1]
        precision = a[0] + b[0] + 1
    else:
        scale = max(a[1], b[1])
        precision = max(a[0] - a[1], b[0] - b[1]) + scale + 1
    cut = _cut(precision, scale)[1]
    # Spark rounds a product to 38 digits, then to its scale: only with one digit more than that is it rounded once.
    if cut != scale and (cut != result.parameters[1] or (sign == "*" and scale > cut + 1)):
        raise NoEqual(f"{left} {sign} {right}, which has more than {_DIGITS} digits")
    return f"CAST({_as_decimal(operands[0], left)} {sign} {_as_decimal(operands[1], right)} AS {name})"


def _division(expression: AppliedFunction, operands: Sequence[str]) -> str:
    result = expression.type
    name = spark_type(result)
    left, right = (operand.type for operand in expression.inputs)
    divisor = expression.inputs[1]
    checked = operands[1]
    if not isinstance(divisor, Constant) or not divisor.value:
        if result.name in FLOATING:  # Spark has NULL for a division by zero, Flink infinity
            raise NoEqual(f"a division by {right}, which may be zero")
        checked = f"CASE WHEN {checked} = 0 THEN {error('Division by zero', right)} ELSE {checked} END"
    if result.name in INTEGER_DIGITS:
        return f"CAST(CAST({operands[0]} AS BIGINT) div {checked} AS {name})"
    if result.name in FLOATING:
        if result.name == "FLOAT":
            raise NoEqual("a division of FLOAT")
        return f"(CAST({operands[0]} AS DOUBLE) / CAST({checked} AS DOUBLE))"
    a, b = decimal_digits(left), decimal_digits(right)
    if a is None or b is None:
        raise NoEqual(f"{left} / {right}")
    scale = max(_SMALLEST_SCALE, a[1] + b[0] + 1)
    if _cut(a[0] - a[1] + b[1] + scale, scale)[1] != result.parameters[1]:
        raise NoEqual(f"{left} / {right}, which is rounded otherwise")
    return f"CAST({_as_decimal(operands[0], left)} / {_as_decimal(checked, right)} AS {name})"


def _negation(expression: AppliedFunction, operands: Sequence[str]) -> str:
    if expression.type.name not in (*INTEGER_DIGITS, *FLOATING, "DECIMAL"):
        raise NoEqual(f"- {expression.type}")
    return f"(- {operands[0]})"


def _casted(expression: AppliedFunction, operands: Sequence[str]) -> str:
    (source,), target = (operand.type for operand in expression.inputs), expression.type
    name = spark_type(target)
    if source.nullable_() == target.nullable_() or (source.name in TEXTS and target.nullable_() == STRING):
        return operands[0]
    is_equal = source.name == target.name in TIMESTAMPS and source.parameters <= target.parameters
    if source.name in INTEGER_DIGITS:
        is_equal = target.name in (*INTEGER_DIGITS, *FLOATING, "DECIMAL") or target.nullable_() == STRING
    elif source.name == "DECIMAL":
        precision, scale = source.parameters
        is_equal = target.name == "DECIMAL" or target.name == "DOUBLE"
        is_equal |= precision - scale < INTEGER_DIGITS.get(target.name, 0)
    elif source.name == "FLOAT":
        is_equal = target.name == "DOUBLE"
    elif source.name == "DATE":
        is_equal = target.nullable_() == STRING
    if not is_equal:
        raise NoEqual(f"{expression.name}({source} AS {target})")
    return f"CAST({operands[0]} AS {name})"


# -- comparison and logic


def comparable(left: DataType, right: DataType) -> str | None:
    """The type in which Spark compares two values as Flink does; None = as they are.

    Raises:
        NoEqual: there is none.
    """
    if left.nullable_() == right.nullable_() or (left.name in TEXTS and right.name in TEXTS):
        return None
    if left.name == right.name in TIMESTAMPS:
        return None
    a, b = decimal_digits(left), decimal_digits(right)
    if a is not None and b is not None:
        if left.name in INTEGER_DIGITS and right.name in INTEGER_DIGITS:
            return "BIGINT"
        scale = max(a[1], b[1])
        if max(a[0] - a[1], b[0] - b[1]) + scale <= _DIGITS:
            return f"DECIMAL({max(a[0] - a[1], b[0] - b[1]) + scale}, {scale})"
    are_numbers = (a is not None or left.name in FLOATING) and (b is not None or right.name in FLOATING)
    if are_numbers and (a is None or b is None):
        return "DOUBLE"
    raise NoEqual(f"a comparison of {left.nullable_()} with {right.nullable_()}")


def compared(sign: str, left: str, right: str, types: tuple[DataType, DataType]) -> str:
    """A comparison. NaN is equal to nothing, where Spark has it equal to itself and above all numbers.

    Raises:
        NoEqual: Spark can't compare the two.
    """
    common = comparable(*types)
    if common is not None:
        left, right = f"CAST({left} AS {common})", f"CAST({right} AS {common})"
    plain = f"{left} {sign} {right}"
    if not any(data_type.name in FLOATING for data_type in types):
        return f"({plain})"
    is_one_nan = f"{left} IS NOT NULL AND {right} IS NOT NULL AND (isnan({left}) OR isnan({right}))"
    return f"(CASE WHEN {is_one_nan} THEN {'TRUE' if sign == '<>' else 'FALSE'} ELSE {plain} END)"


def _comparison(expression: AppliedFunction, operands: Sequence[str]) -> str:
    left, right = expression.inputs
    return compared(expression.name, operands[0], operands[1], (left.type, right.type))


def _in_list(expression: AppliedFunction, operands: Sequence[str]) -> str:
    value, *others = expression.inputs
    if value.type.name in FLOATING or any(comparable(value.type, other.type) for other in others):
        raise NoEqual(f"IN of {value.type}")
    return f"({operands[0]} IN ({', '.join(operands[1:])}))"


def _logic(expression: AppliedFunction, operands: Sequence[str]) -> str:
    return f"({f' {expression.name} '.join(operands)})"


def _is_true(expression: AppliedFunction, operands: Sequence[str]) -> str:
    return f"({operands[0]} IS {'TRUE' if dict(expression.options)['wanted'] else 'FALSE'})"


def _branches(expression: AppliedFunction, operands: Sequence[str]) -> str:
    name = spark_type(expression.type)
    *pairs, otherwise = operands
    branches = [f"WHEN {when} THEN CAST({then} AS {name})" for when, then in zip(pairs[::2], pairs[1::2], strict=True)]
    return f"(CASE {' '.join(branches)} ELSE CAST({otherwise} AS {name}) END)"


def _first_value(expression: AppliedFunction, operands: Sequence[str]) -> str:
    name = spark_type(expression.type)
    return f"COALESCE({', '.join(f'CAST({operand} AS {name})' for operand in operands)})"


def _required(expression: AppliedFunction, operands: Sequence[str]) -> str:
    column = dict(expression.options)["column"]
    message = (
        f"the column {column} is NOT NULL, and a row has NULL for it (SET 'table.exec.sink.not-null-enforcer' = 'DROP' "
        "leaves such rows out)"
    )
    return f"(CASE WHEN {operands[0]} IS NULL THEN {error(message, expression.type)} ELSE {operands[0]} END)"


# -- texts and times


def _like(expression: AppliedFunction, operands: Sequence[str]) -> str:
    pattern = expression.inputs[1]
    if len(operands) != 2 or not isinstance(pattern, Constant) or not pattern.value or "\\" in pattern.value:
        raise NoEqual("LIKE with ESCAPE, with \\ or with a pattern that is no constant")
    return f"({operands[0]} LIKE {operands[1]})"


def _substring(expression: AppliedFunction, operands: Sequence[str]) -> str:
    least = (1, 0)
    for number, limit in zip(expression.inputs[1:], least, strict=False):
        if not isinstance(number, Constant) or number.value is None or number.value < limit:
            raise NoEqual("SUBSTRING from a place or with a length that is no constant, or negative")
    return f"substring({', '.join(operands)})"


def _call(name: str) -> _Writer:
    return lambda expression, operands: f"{name}({', '.join(operands)})"


def _concatenation(expression: AppliedFunction, operands: Sequence[str]) -> str:
    return f"({' || '.join(operands)})"


_PARTS: Final = ("YEAR", "QUARTER", "MONTH", "DAY")


def _extract(expression: AppliedFunction, operands: Sequence[str]) -> str:
    unit, (value,) = dict(expression.options)["unit"], expression.inputs
    if unit not in _PARTS or value.type.name != "DATE":
        raise NoEqual(f"EXTRACT({unit} FROM {value.type})")
    return f"CAST({unit.lower()}({operands[0]}) AS {spark_type(expression.type)})"


_Writer = Callable[[AppliedFunction, Sequence[str]], str]

_WRITERS: Final[dict[str, _Writer]] = {
    "numbers:add": _arithmetic,
    "numbers:subtract": _arithmetic,
    "numbers:multiply": _arithmetic,
    "numbers:divide": _division,
    "numbers:negate": _negation,
    "casts:cast": _casted,
    "numbers:equal": _comparison,
    "numbers:not_equal": _comparison,
    "numbers:less": _comparison,
    "numbers:less_equal": _comparison,
    "numbers:greater": _comparison,
    "numbers:greater_equal": _comparison,
    "numbers:in_list": _in_list,
    "numbers:is_true": _is_true,
    "&": _logic,
    "|": _logic,
    "not": lambda expression, operands: f"(NOT {operands[0]})",
    "is_null": lambda expression, operands: f"({operands[0]} IS NULL)",
    "constants:is_there": lambda expression, operands: f"({operands[0]} IS NOT NULL)",
    "constants:not_null": _required,
    "when": _branches,
    "coalesce": _first_value,
    "patterns:like": _like,
    "texts:substring": _substring,
    "texts:upper": _call("upper"),
    "texts:lower": _call("lower"),
    "texts:char_length": _call("char_length"),
    "texts:concat": _concatenation,
    "times:extract": _extract,
}
"""What writes the calls of a kernel."""
