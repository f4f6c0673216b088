"""Functions of dates, times and timestamps."""

from __future__ import annotations

from collections.abc import Sequence

from firesteel.table.types import DataType, DataTypes
from firesteel_sql.functions.signature import (
    OperandsRefused,
    Session,
    coerced,
    constant_of,
    declare,
    declare_simple,
    moment,
    operation,
    text,
    whole,
)
from firesteel_sql.plan.row_expressions import RowExpression
from firesteel_sql.types import rules

_STRING, _INT, _BIGINT = rules.STRING, rules.INT, rules.BIGINT


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


declare_simple("TO_TIMESTAMP", "times:to_timestamp", [text, text], DataTypes.TIMESTAMP(3), optional=1, nullable=True)
declare_simple("TO_DATE", "times:to_date", [text, text], DataTypes.DATE(), optional=1, nullable=True)


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

WITHOUT_PARENTHESES = frozenset(
    ("CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "CURRENT_DATE", "LOCALTIME", "CURRENT_TIME", "PI")
)
"""Functions that are called without parentheses."""
