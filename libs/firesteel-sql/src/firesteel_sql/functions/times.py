"""Functions of dates, times and timestamps."""

from __future__ import annotations

from collections.abc import Sequence

from firesteel.table.types import DataType, DataTypes
from firesteel_sql.functions.operators import compared, connected
from firesteel_sql.functions.signature import (
    FUNCTIONS,
    OperandsRefused,
    Session,
    big,
    constant_of,
    declare,
    declare_simple,
    moment,
    number,
    operation,
    text,
)
from firesteel_sql.kernels.date_patterns import PatternRefused, pieces_of
from firesteel_sql.plan.row_expressions import Constant, RowExpression
from firesteel_sql.types import rules
from firesteel_sql.types.intervals import MILLIS, MONTHS

_STRING, _INT, _BIGINT = rules.STRING, rules.INT, rules.BIGINT


_OF_TIME = ("HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND", "NANOSECOND")
"""Units that a time of day has."""


@declare("EXTRACT", operands=2)
def _extract(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    unit, value = constant_of(operands[0], "the unit"), operands[1]
    if not (rules.is_moment(value.type) or rules.is_interval(value.type)):
        raise OperandsRefused(f"a date, time, timestamp or interval is needed, not {value.type}")
    if value.type.name == "TIME" and unit not in _OF_TIME:
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
    unit, count, value = constant_of(operands[0], "the unit"), big(operands[1], session), moment(operands[2], session)
    if unit not in MONTHS and unit not in MILLIS:
        raise OperandsRefused(f"TIMESTAMPADD has no {unit}")
    result = value.type
    if result.name == "DATE" and unit in ("HOUR", "MINUTE", "SECOND", "MILLISECOND"):
        result = DataTypes.TIMESTAMP(6)
    elif unit == "MILLISECOND" and result.name in rules.TIMESTAMPS:
        result = DataType(result.name, (max(3, *result.parameters),))
    if result.name == "TIME" and unit in MONTHS:
        raise OperandsRefused("a time of day and an interval of months do not go together")
    return operation("TIMESTAMPADD", "times:timestamp_add", (count, value), result, unit=unit)


@declare("TIMESTAMPDIFF", operands=3)
def _timestamp_diff(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    unit = constant_of(operands[0], "the unit")
    if unit not in MONTHS and unit not in MILLIS and unit != "MICROSECOND":
        raise OperandsRefused(f"TIMESTAMPDIFF has no {unit}")
    parts = [moment(operand, session) for operand in operands[1:]]
    if (parts[0].type.name == "TIME") != (parts[1].type.name == "TIME"):
        raise OperandsRefused(f"{parts[0].type} and {parts[1].type} have no difference")
    if parts[0].type.name == "TIME" and unit in MONTHS:
        raise OperandsRefused(f"times of day have no difference in {unit}S")
    return operation("TIMESTAMPDIFF", "times:timestamp_diff", parts, _INT, unit=unit, zone=session.zone)


@declare("OVERLAPS", operands=4)
def _overlaps(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    """``(start, end) OVERLAPS (start, end)``, where an end may be an interval, and the ends may be exchanged."""
    bounds: list[RowExpression] = []
    for start, end in (operands[:2], operands[2:]):
        begin = moment(start, session)
        finish = FUNCTIONS["+"].build((begin, end), session) if rules.is_interval(end.type) else moment(end, session)
        bounds += [FUNCTIONS[name].build((begin, finish), session) for name in ("LEAST", "GREATEST")]
    begin, finish, other_begin, other_finish = bounds
    tests = (compared("<=", begin, other_finish, session), compared("<=", other_begin, finish, session))
    return connected("AND", *tests, session)


@declare("DATE_FORMAT", operands=2)
def _date_format(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    value = operands[0] if rules.is_text(operands[0].type) else moment(operands[0], session)
    pattern = _pattern(operands[1], session)
    return operation("DATE_FORMAT", "times:date_format", (value, pattern), _STRING, nullable=True, zone=session.zone)


def _pattern(operand: RowExpression, session: Session) -> RowExpression:
    """A pattern of dates; a constant one with a letter that has no meaning is refused here."""
    pattern = text(operand, session)
    if isinstance(pattern, Constant) and pattern.value is not None:
        try:
            pieces_of(pattern.value)
        except PatternRefused as refused:
            raise OperandsRefused(str(refused)) from None
    return pattern


declare_simple("TO_TIMESTAMP", "times:to_timestamp", [text, text], DataTypes.TIMESTAMP(3), optional=1, nullable=True)
declare_simple("TO_DATE", "times:to_date", [text, _pattern], DataTypes.DATE(), optional=1, nullable=True)
declare_simple("CONVERT_TZ", "times:convert_tz", [text, text, text], _STRING, nullable=True)


@declare("TO_TIMESTAMP_LTZ", operands=(1, 3))
def _to_timestamp_ltz(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    first = operands[0]
    if rules.is_text(first.type):
        parts = [text(operand, session) for operand in operands]
        kernel = "times:text_to_timestamp_ltz"
        return operation("TO_TIMESTAMP_LTZ", kernel, parts, DataTypes.TIMESTAMP_LTZ(3), nullable=True)
    if len(operands) == 3:
        raise OperandsRefused("a pattern and a zone go with a text only")
    precision = constant_of(operands[1], "the precision") if len(operands) == 2 else 3
    if precision not in (0, 3, 6):
        raise OperandsRefused("the precision is 0 (seconds), 3 (milliseconds) or 6 (microseconds)")
    return operation(
        "TO_TIMESTAMP_LTZ",
        "times:to_timestamp_ltz",
        (number(first, session),),
        DataTypes.TIMESTAMP_LTZ(max(precision, 3)),
        nullable=True,
        precision=precision,
    )


@declare("FROM_UNIXTIME", operands=(1, 2))
def _from_unixtime(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    parts = [big(operands[0], session), *(_pattern(operand, session) for operand in operands[1:])]
    return operation("FROM_UNIXTIME", "times:from_unixtime", parts, _STRING, nullable=True, zone=session.zone)


@declare("UNIX_TIMESTAMP", operands=(0, 2))
def _unix_timestamp(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    if not operands:
        return operation("UNIX_TIMESTAMP", "times:now", (), _BIGINT, nullable=False, zone=session.zone)
    parts = [text(operands[0], session), *(_pattern(operand, session) for operand in operands[1:])]
    return operation("UNIX_TIMESTAMP", "times:unix_timestamp", parts, _BIGINT, zone=session.zone)


def _now(names: str, result: DataType) -> None:
    @declare(*names.split(), operands=0)
    def build(operands: Sequence[RowExpression], session: Session) -> RowExpression:
        return operation(names.split()[0], "times:now", (), result, nullable=False, zone=session.zone)


@declare("PROCTIME", operands=0)
def _processing_time(operands: Sequence[RowExpression], session: Session) -> RowExpression:
    return operation("PROCTIME", "times:now", (), DataTypes.TIMESTAMP_LTZ(3), nullable=False, zone=session.zone)


_now("CURRENT_TIMESTAMP NOW CURRENT_ROW_TIMESTAMP", DataTypes.TIMESTAMP_LTZ(3))
_now("LOCALTIMESTAMP", DataTypes.TIMESTAMP(3))
_now("CURRENT_DATE", DataTypes.DATE())
_now("LOCALTIME CURRENT_TIME", DataTypes.TIME(0))

WITHOUT_PARENTHESES = frozenset(
    ("CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "CURRENT_DATE", "LOCALTIME", "CURRENT_TIME", "PI")
)
"""Functions that are called without parentheses."""
