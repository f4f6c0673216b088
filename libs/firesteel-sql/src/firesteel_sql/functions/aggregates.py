"""Aggregate functions: their operands, and the types of their results by Flink's rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final

from firesteel.table.types import DataType, DataTypes, ElementsType
from firesteel_sql.functions.builtin import FUNCTIONS
from firesteel_sql.functions.json_functions import JsonOption
from firesteel_sql.functions.signature import OperandsRefused, Session, boolean, constant_of, number, text
from firesteel_sql.plan.row_expressions import AppliedFunction, Constant, RowExpression
from firesteel_sql.types import rules


@dataclass(frozen=True)
class AggregateUse:
    """A use of an aggregate function whose operands were checked.

    Attributes:
        function: the name that operators know it by: synonyms are gone.
        arguments: operands that differ from row to row.
        type: of the result, where there is a row at least.
        constants: operands that are the same for all rows.
        is_empty_null: the result without rows is NULL.
        distinct: each value counts once, whatever the query says.
    """

    function: str
    arguments: tuple[RowExpression, ...]
    type: DataType
    constants: tuple[object, ...] = ()
    is_empty_null: bool = True
    distinct: bool = False


Build = Callable[[str, Sequence[RowExpression], Session], AggregateUse]


@dataclass(frozen=True)
class SqlAggregate:
    """An aggregate function.

    Attributes:
        name: in upper case.
        least: number of operands at least.
        most: number of operands at most; None = any.
        build: checks the operands; raises ``OperandsRefused``.
        needs_over: the function stands with OVER only.
    """

    name: str
    least: int
    most: int | None
    build: Build
    needs_over: bool = False


AGGREGATES: Final[dict[str, SqlAggregate]] = {}
"""By name, in upper case."""


def _declare(*names: str, operands: int | tuple[int, int | None], needs_over: bool = False) -> Callable[[Build], Build]:
    least, most = (operands, operands) if isinstance(operands, int) else operands

    def register(build: Build) -> Build:
        for name in names:
            AGGREGATES[name] = SqlAggregate(name, least, most, build, needs_over)
        return build

    return register


def sum_type(data_type: DataType) -> DataType:
    """The type of a sum: that of the summands, with 38 digits if they are decimal numbers."""
    if data_type.name != "DECIMAL":
        return data_type
    return DataTypes.DECIMAL(38, data_type.parameters[1], data_type.nullable)


def average_type(data_type: DataType) -> DataType:
    """The type of a mean, variance or deviation: that of the numbers; of decimal ones, 38 digits and a scale of 6 at
    least.
    """
    if data_type.name != "DECIMAL":
        return data_type
    return DataTypes.DECIMAL(38, max(6, data_type.parameters[1]), data_type.nullable)


@_declare("COUNT", operands=(0, None))
def _count(name: str, operands: Sequence[RowExpression], session: Session) -> AggregateUse:
    # A constant counts as a row: COUNT(1) is COUNT(*).
    if len(operands) == 1 and isinstance(operands[0], Constant) and operands[0].value is not None:
        operands = ()
    return AggregateUse("COUNT", tuple(operands), DataTypes.BIGINT(False), is_empty_null=False)


@_declare("APPROX_COUNT_DISTINCT", operands=1)
def _count_distinct(name: str, operands: Sequence[RowExpression], session: Session) -> AggregateUse:
    return AggregateUse("COUNT", tuple(operands), DataTypes.BIGINT(False), is_empty_null=False, distinct=True)


@_declare("SUM", "SUM0", "$SUM0", operands=1)
def _sum(name: str, operands: Sequence[RowExpression], session: Session) -> AggregateUse:
    operand = number(operands[0], session)
    result = sum_type(operand.type)
    if name == "SUM":
        return AggregateUse("SUM", (operand,), result)
    return AggregateUse("$SUM0", (operand,), rules.with_null(result, False), is_empty_null=False)


@_declare("AVG", operands=1)
def _average(name: str, operands: Sequence[RowExpression], session: Session) -> AggregateUse:
    operand = number(operands[0], session)
    return AggregateUse("AVG", (operand,), average_type(operand.type))


_SYNONYMS: Final = {"STDDEV": "STDDEV_SAMP", "VARIANCE": "VAR_SAMP"}


@_declare("STDDEV_POP", "STDDEV_SAMP", "STDDEV", "VAR_POP", "VAR_SAMP", "VARIANCE", operands=1)
def _spread(name: str, operands: Sequence[RowExpression], session: Session) -> AggregateUse:
    operand = number(operands[0], session)
    function = _SYNONYMS.get(name, name)
    result = average_type(operand.type)
    if function.endswith("_SAMP"):  # of a single row there is none
        result = rules.with_null(result, True)
    return AggregateUse(function, (operand,), result)


@_declare("MIN", "MAX", operands=1)
def _extreme(name: str, operands: Sequence[RowExpression], session: Session) -> AggregateUse:
    (operand,) = operands
    if operand.type.name in ("ROW", "ARRAY", "MAP", "MULTISET"):
        raise OperandsRefused(f"{operand.type} has no order")
    return AggregateUse(name, (operand,), operand.type)


@_declare("FIRST_VALUE", "LAST_VALUE", "SINGLE_VALUE", operands=1)
def _some_value(name: str, operands: Sequence[RowExpression], session: Session) -> AggregateUse:
    return AggregateUse(name, tuple(operands), operands[0].type)


@_declare("LISTAGG", "STRING_AGG", operands=(1, 2))
def _list(name: str, operands: Sequence[RowExpression], session: Session) -> AggregateUse:
    separator = constant_of(operands[1], "the separator") if len(operands) == 2 else ","
    if not isinstance(separator, str):
        raise OperandsRefused("the separator has to be a text")
    operand = text(operands[0], session)
    return AggregateUse("LISTAGG", (operand,), rules.with_null(rules.STRING, operand.type.nullable), (separator,))


@_declare("COLLECT", operands=1)
def _collect(name: str, operands: Sequence[RowExpression], session: Session) -> AggregateUse:
    multiset = ElementsType("MULTISET", nullable=False, element_type=operands[0].type)
    return AggregateUse("COLLECT", tuple(operands), multiset, is_empty_null=False)


@_declare("ARRAY_AGG", operands=1)
def _array(name: str, operands: Sequence[RowExpression], session: Session) -> AggregateUse:
    return AggregateUse("ARRAY_AGG", tuple(operands), ElementsType("ARRAY", element_type=operands[0].type))


@_declare("PERCENTILE", operands=(2, 3))
def _percentile(name: str, operands: Sequence[RowExpression], session: Session) -> AggregateUse:
    arguments = [number(operands[0], session)]
    if len(operands) == 3:
        arguments.append(operands[2])
        if not rules.is_integer(operands[2].type):
            raise OperandsRefused("the frequency of a value is a whole number")
    is_array = isinstance(operands[1], AppliedFunction) and operands[1].name == "ARRAY"
    parts = operands[1].operands if is_array else (operands[1],)
    shares = tuple(map(_share, parts))
    if is_array:
        return AggregateUse("PERCENTILE", tuple(arguments), DataTypes.ARRAY(DataTypes.DOUBLE()), (shares,))
    return AggregateUse("PERCENTILE", tuple(arguments), DataTypes.DOUBLE(), shares)


def _share(operand: RowExpression) -> float:
    if isinstance(operand, AppliedFunction) and operand.name == "CAST":  # to the type that an array's elements share
        (operand,) = operand.inputs
    value = constant_of(operand, "the percentage")
    if not isinstance(value, (int, float, Decimal)) or not 0 <= float(value) <= 1:
        raise OperandsRefused("the percentage is from 0 to 1")
    return float(value)


@_declare("JSON_ARRAYAGG", operands=(1, 2))
def _json_array(name: str, operands: Sequence[RowExpression], session: Session) -> AggregateUse:
    element = FUNCTIONS["JSON_ARRAY"].build(operands, session)
    return AggregateUse(name, (element,), rules.with_null(rules.STRING, False), is_empty_null=False)


@_declare("JSON_OBJECTAGG", operands=(2, 3))
def _json_object(name: str, operands: Sequence[RowExpression], session: Session) -> AggregateUse:
    key, *value = operands
    if len(value) == 1:
        value.append(JsonOption("ON NULL", "NULL"))
    element = FUNCTIONS["JSON_ARRAY"].build(value, session)
    quoted_key = FUNCTIONS["JSON_STRING"].build([text(key, session)], session)
    return AggregateUse(name, (quoted_key, element), rules.with_null(rules.STRING, False), is_empty_null=False)


def with_treatment_of_nulls(use: AggregateUse, *, ignores: bool) -> AggregateUse:
    """A use with IGNORE NULLS, or with RESPECT NULLS.

    Raises:
        OperandsRefused: the function can't do that.
    """
    match use.function:
        case "LAG" | "LEAD":
            return replace(use, constants=(*use.constants, True)) if ignores else use
        case "FIRST_VALUE" | "LAST_VALUE":
            if not ignores:
                raise OperandsRefused("it skips NULLs, as in Flink: there is no RESPECT NULLS")
            return use
    raise OperandsRefused("IGNORE NULLS and RESPECT NULLS belong to LAG, LEAD, FIRST_VALUE and LAST_VALUE")


# -- functions that stand with OVER only


@_declare("ROW_NUMBER", "RANK", "DENSE_RANK", operands=0, needs_over=True)
def _numbering(name: str, operands: Sequence[RowExpression], session: Session) -> AggregateUse:
    return AggregateUse(name, (), DataTypes.BIGINT(False), is_empty_null=False)


@_declare("PERCENT_RANK", "CUME_DIST", operands=0, needs_over=True)
def _relative(name: str, operands: Sequence[RowExpression], session: Session) -> AggregateUse:
    return AggregateUse(name, (), DataTypes.DOUBLE(False), is_empty_null=False)


@_declare("NTILE", operands=1, needs_over=True)
def _tile(name: str, operands: Sequence[RowExpression], session: Session) -> AggregateUse:
    tiles = _whole_number(operands[0], "the number of tiles")
    if tiles < 1:
        raise OperandsRefused("the number of tiles is 1 at least")
    return AggregateUse(name, (), DataTypes.BIGINT(False), (tiles,), is_empty_null=False)


@_declare("LAG", "LEAD", operands=(1, 3), needs_over=True)
def _neighbour(name: str, operands: Sequence[RowExpression], session: Session) -> AggregateUse:
    value = operands[0]
    offset = _whole_number(operands[1], "the distance") if len(operands) > 1 else 1
    default: Any = None
    result = rules.with_null(value.type, True)
    if len(operands) == 3:
        default = constant_of(operands[2], "the value where there is no such row")
        common = rules.common_type([value.type, operands[2].type])
        if common is None:
            raise OperandsRefused(f"{value.type} and {operands[2].type} do not go together: write a CAST")
        if common.name != value.type.name:
            raise OperandsRefused(f"the value where there is no such row has to be {value.type}: write a CAST")
        result = rules.with_null(value.type, value.type.nullable or default is None)
    return AggregateUse(name, (value,), result, (offset, default))


@_declare("NTH_VALUE", operands=2, needs_over=True)
def _nth(name: str, operands: Sequence[RowExpression], session: Session) -> AggregateUse:
    place = _whole_number(operands[1], "the number of the row")
    if place < 1:
        raise OperandsRefused("rows are numbered from 1")
    return AggregateUse(name, (operands[0],), rules.with_null(operands[0].type, True), (place,))


def _whole_number(operand: RowExpression, what: str) -> int:
    value = constant_of(operand, what)
    if not isinstance(value, int) or isinstance(value, bool):
        raise OperandsRefused(f"{what} has to be a whole number")
    return value


def condition(operand: RowExpression, session: Session) -> RowExpression:
    """The condition of FILTER.

    Raises:
        OperandsRefused: it is none.
    """
    return boolean(operand, session)
