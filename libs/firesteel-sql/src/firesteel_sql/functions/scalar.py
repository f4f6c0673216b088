"""Functions of numbers, texts and times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from firesteel.table.types import DataType, DataTypes, ElementsType, MapType
from firesteel_sql.functions.operators import as_double
from firesteel_sql.functions.signature import (
    OperandsRefused,
    Session,
    cast,
    coerced,
    constant_of,
    declare,
    moment,
    number,
    operation,
    text,
    whole,
)
from firesteel_sql.plan.row_expressions import RowExpression
from firesteel_sql.types import rules

_STRING, _INT, _BIGINT, _DOUBLE, _BOOLEAN = (
    DataTypes.STRING(), DataTypes.INT(), DataTypes.BIGINT(), DataTypes.DOUBLE(), DataTypes.BOOLEAN()
)  # fmt: skip
Take = Callable[[RowExpression, Session], RowExpression]


def _simple(
    name: str, kernel: str, takes: Sequence[Take], result: DataType, *, optional: int = 0, nullable: bool | None = None
) -> None:
    """Declare a function whose operands and result have fixed types; the last operands may be missing."""

    @declare(*name.split(), operands=(len(takes) - optional, len(takes)))
    def build(operands: Sequence[RowExpression], session: Session) -> RowExpression:
        parts = [take(operand, session) for take, operand in zip(takes, operands, strict=False)]
        return operation(name.split()[0], kernel, parts, result, nullable=nullable)


# -- numbers


@declare("ABS", operands=1)
def _abs(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    operand = number(operands[0], session)
    return operation("ABS", "numbers:absolute", (operand,), operand.type)


@declare("SIGN", operands=1)
def _sign(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    operand = number(operands[0], session)
    return operation("SIGN", "numbers:sign", (operand,), operand.type)


def _to_whole(name: str, kernel: str, round_to: str) -> None:
    @declare(name, operands=(1, 2))
    def build(operands: Sequence[RowExpression], session: Session) -> RowExpression:
        if len(operands) == 2:
            value = moment(operands[0], session)
            if value.type.name in ("TIME",):
                raise OperandsRefused(f"{name} of a TIME is not supported")
            unit = constant_of(operands[1], "the unit")
            return operation(name, f"times:{round_to}", (value,), value.type, unit=unit)
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


@declare("ROUND", operands=(1, 2))
def _round(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    operand = number(operands[0], session)
    digits = constant_of(operands[1], "the number of digits") if len(operands) == 2 else 0
    if not isinstance(digits, int):
        raise OperandsRefused("the number of digits has to be a whole number")
    result = rules.rounded_type(operand.type, digits) if operand.type.name == "DECIMAL" else operand.type
    return operation("ROUND", "numbers:round_", (operand,), result, digits=digits)


for _name in ("SQRT", "EXP", "LN", "LOG10", "LOG2", "SIN", "COS", "TAN", "ASIN", "ACOS", "ATAN", "SINH", "COSH", "TANH",
              "DEGREES", "RADIANS"):  # fmt: skip
    _simple(_name, f"numbers:{_name.lower()}", [as_double], _DOUBLE)
_simple("POWER", "numbers:power", [as_double, as_double], _DOUBLE)
_simple("ATAN2", "numbers:atan2", [as_double, as_double], _DOUBLE)


@declare("LOG", operands=(1, 2))
def _log(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    parts = [as_double(operand, session) for operand in operands]
    return operation("LOG", "numbers:ln" if len(parts) == 1 else "numbers:log_of_base", parts, _DOUBLE)


# -- texts


def _same_text(name: str, kernel: str) -> None:
    @declare(*name.split(), operands=1)
    def build(operands: Sequence[RowExpression], session: Session) -> RowExpression:
        operand = text(operands[0], session)
        return operation(name.split()[0], kernel, (operand,), operand.type)


_same_text("UPPER", "texts:upper")
_same_text("LOWER", "texts:lower")
_same_text("INITCAP", "texts:initcap")
_same_text("REVERSE", "texts:reverse")
_simple("CHAR_LENGTH CHARACTER_LENGTH", "texts:char_length", [text], _INT)


def _printed(operand: RowExpression, session: Session) -> RowExpression:
    return operand if rules.is_text(operand.type) else cast(operand, _STRING, session)


@declare("CONCAT", operands=(1, None))
def _concat(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    return operation("CONCAT", "texts:concat", [_printed(operand, session) for operand in operands], _STRING)


@declare("CONCAT_WS", operands=(2, None))
def _concat_ws(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    parts = [_printed(operand, session) for operand in operands]
    return operation("CONCAT_WS", "texts:concat_ws", parts, _STRING, nullable=parts[0].type.nullable)


_simple("SUBSTRING SUBSTR", "texts:substring", [text, whole, whole], _STRING, optional=1, nullable=True)
_simple("LTRIM", "texts:ltrim", [text, text], _STRING, optional=1)
_simple("RTRIM", "texts:rtrim", [text, text], _STRING, optional=1)
_simple("BTRIM", "texts:btrim", [text, text], _STRING, optional=1)
_simple("TRIM", "texts:trim", [text, text, text], _STRING)
_simple("REPLACE", "texts:replace", [text, text, text], _STRING)
_simple("POSITION LOCATE", "texts:position", [text, text, whole], _INT, optional=1)
_simple("INSTR", "texts:instr", [text, text], _INT)
_simple("LEFT", "texts:left", [text, whole], _STRING)
_simple("RIGHT", "texts:right", [text, whole], _STRING)
_simple("REPEAT", "texts:repeat", [text, whole], _STRING)
_simple("LPAD", "texts:lpad", [text, whole, text], _STRING, optional=1, nullable=True)
_simple("RPAD", "texts:rpad", [text, whole, text], _STRING, optional=1, nullable=True)
_simple("OVERLAY", "texts:overlay", [text, text, whole, whole], _STRING, optional=1)
_simple("SPLIT_INDEX", "texts:split_index", [text, text, whole], _STRING, nullable=True)
_simple("ASCII", "texts:ascii_", [text], _INT)
_simple("CHR", "texts:chr_", [whole], _STRING, nullable=True)
_simple("REGEXP SIMILAR_TO_REGEX RLIKE", "texts:regexp", [text, text], _BOOLEAN)
_simple("REGEXP_EXTRACT", "texts:regexp_extract", [text, text, whole], _STRING, optional=1, nullable=True)
_simple("REGEXP_REPLACE", "texts:regexp_replace", [text, text, text], _STRING)
for _name in ("MD5", "SHA1", "SHA224", "SHA256", "SHA384", "SHA512"):
    _simple(_name, f"texts:{_name.lower()}", [text], _STRING)


# -- times


@declare("EXTRACT", operands=2)
def _extract(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    unit, value = constant_of(operands[0], "the unit"), operands[1]
    if not (rules.is_moment(value.type) or rules.is_interval(value.type)):
        raise OperandsRefused(f"a date, time, timestamp or interval is needed, not {value.type}")
    if value.type.name == "TIME" and unit not in ("HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"):
        raise OperandsRefused(f"a TIME has no {unit}")
    return operation("EXTRACT", "times:extract", (value,), _BIGINT, unit=unit, zone=session.zone)


def _part(name: str, unit: str) -> None:
    @declare(name, operands=1)
    def build(operands: Sequence[RowExpression], session: Session) -> RowExpression:
        value = moment(operands[0], session)
        return operation(name, "times:extract", (value,), _BIGINT, unit=unit, zone=session.zone)


for _name, _unit in (
    ("YEAR", "YEAR"), ("QUARTER", "QUARTER"), ("MONTH", "MONTH"), ("WEEK", "WEEK"), ("DAYOFYEAR", "DOY"),
    ("DAYOFMONTH", "DAY"), ("DAYOFWEEK", "DOW"), ("HOUR", "HOUR"), ("MINUTE", "MINUTE"), ("SECOND", "SECOND"),
):  # fmt: skip
    _part(_name, _unit)


@declare("TIMESTAMPADD", operands=3)
def _timestamp_add(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    unit, count, value = constant_of(operands[0], "the unit"), whole(operands[1], session), moment(operands[2], session)
    result = value.type
    if result.name == "DATE" and unit in ("HOUR", "MINUTE", "SECOND", "MILLISECOND"):
        result = DataTypes.TIMESTAMP(3)
    return operation("TIMESTAMPADD", "times:timestamp_add", (count, value), result, unit=unit)


@declare("TIMESTAMPDIFF", operands=3)
def _timestamp_diff(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    unit = constant_of(operands[0], "the unit")
    parts = [moment(operand, session) for operand in operands[1:]]
    return operation("TIMESTAMPDIFF", "times:timestamp_diff", parts, _INT, unit=unit)


@declare("DATE_FORMAT", operands=2)
def _date_format(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    value = operands[0] if rules.is_text(operands[0].type) else moment(operands[0], session)
    return operation(
        "DATE_FORMAT",
        "times:date_format",
        (value, text(operands[1], session)),
        _STRING,
        nullable=True,
        zone=session.zone,
    )


_simple("TO_TIMESTAMP", "times:to_timestamp", [text, text], DataTypes.TIMESTAMP(3), optional=1, nullable=True)
_simple("TO_DATE", "times:to_date", [text, text], DataTypes.DATE(), optional=1, nullable=True)


@declare("TO_TIMESTAMP_LTZ", operands=(1, 2))
def _to_timestamp_ltz(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    value = coerced(operands[0], _BIGINT, session)
    precision = constant_of(operands[1], "the precision") if len(operands) == 2 else 3
    if precision not in (0, 3):
        raise OperandsRefused("the precision is 0 (seconds) or 3 (milliseconds)")
    return operation(
        "TO_TIMESTAMP_LTZ", "times:to_timestamp_ltz", (value,), DataTypes.TIMESTAMP_LTZ(3), precision=precision
    )


@declare("FROM_UNIXTIME", operands=(1, 2))
def _from_unixtime(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    parts = [coerced(operands[0], _BIGINT, session), *(text(operand, session) for operand in operands[1:])]
    return operation("FROM_UNIXTIME", "times:from_unixtime", parts, _STRING, zone=session.zone)


@declare("UNIX_TIMESTAMP", operands=(0, 2))
def _unix_timestamp(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    parts = [text(operand, session) for operand in operands]
    if not parts:
        return operation("UNIX_TIMESTAMP", "times:now", (), _BIGINT, nullable=False, zone=session.zone)
    return operation("UNIX_TIMESTAMP", "times:unix_timestamp", parts, _BIGINT, zone=session.zone)


def _now(names: str, result: DataType) -> None:
    @declare(*names.split(), operands=0)
    def build(operands: Sequence[RowExpression], session: Session) -> RowExpression:
        return operation(names.split()[0], "times:now", (), result, nullable=False, zone=session.zone)


_now("CURRENT_TIMESTAMP NOW CURRENT_ROW_TIMESTAMP PROCTIME", DataTypes.TIMESTAMP_LTZ(3))
_now("LOCALTIMESTAMP", DataTypes.TIMESTAMP(3))
_now("CURRENT_DATE", DataTypes.DATE())
_now("LOCALTIME CURRENT_TIME", DataTypes.TIME(0))

WITHOUT_PARENTHESES = frozenset(("CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "CURRENT_DATE", "LOCALTIME", "CURRENT_TIME"))
"""Functions that are called without parentheses."""


# -- parts of nested values


@declare("CARDINALITY", operands=1)
def _cardinality(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    if not isinstance(operands[0].type, (ElementsType, MapType)):
        raise OperandsRefused(f"an array or a map is needed, not {operands[0].type}")
    return operation("CARDINALITY", "nested:size", operands, _INT)


def element_of(value: RowExpression, index: RowExpression, session: Session) -> RowExpression:
    """``array[1]``, ``map['k']``.

    Raises:
        OperandsRefused: the value has no elements.
    """
    if isinstance(value.type, MapType):
        key: Any = coerced(index, value.type.key_type, session)
        return operation("ITEM", "nested:map_value", (value, key), value.type.value_type, nullable=True)
    if isinstance(value.type, ElementsType) and value.type.name == "ARRAY":
        return operation(
            "ITEM", "nested:array_element", (value, whole(index, session)), value.type.element_type, nullable=True
        )
    raise OperandsRefused(f"{value.type} has no elements: an array or a map is needed")
