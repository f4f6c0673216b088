"""Aggregates in Spark's SQL."""

from __future__ import annotations

from collections.abc import Sequence

from firesteel_sql.plan.relations import Column
from firesteel_sql.plan.stateful_relations import AggregateCall
from firesteel_sql.spark.values import INTEGER_DIGITS, TEXTS, TIMESTAMPS, NoEqual, spark_type

_MORE_DIGITS = 10
"""Digits by which Spark's sum of decimal numbers is longer than they are."""
_DIGITS = 38


def aggregate(call: AggregateCall, inside: Sequence[Column], columns: Sequence[str], suffix: str = "") -> str:
    """The result of a call.

    Args:
        call: the call.
        inside: columns of the input.
        columns: their texts.
        suffix: FILTER or OVER, which is put behind each of Spark's functions.

    Raises:
        NoEqual: there is none.
    """
    if call.order or call.constants or len(call.arguments) > 1:
        raise NoEqual(f"the aggregate {call.text(inside)}")
    if not call.arguments:
        if call.function != "COUNT":
            raise NoEqual(f"the aggregate {call.function}")
        return f"COUNT(*){suffix}"
    (place,) = call.arguments
    argument, text = inside[place], columns[place]
    distinct = "DISTINCT " if call.distinct else ""
    spark_type(argument.type)
    match call.function:
        case "COUNT":
            if call.distinct:
                check_key(argument)
            return f"COUNT({distinct}{text}){suffix}"
        case "MIN" | "MAX":
            if argument.type.name not in (*INTEGER_DIGITS, *TEXTS, *TIMESTAMPS, "DECIMAL", "DATE"):
                raise NoEqual(f"{call.function} of {argument.type.nullable_()}")
            return f"{call.function}({text}){suffix}"
        case "SUM":
            return f"CAST({_sum(argument, text, distinct, suffix)} AS {spark_type(call.type)})"
        case "AVG":
            total = _sum(argument, text, distinct, suffix)
            count = f"COUNT({distinct}{text}){suffix}"
            if argument.type.name in INTEGER_DIGITS:
                return f"CAST({total} div {count} AS {spark_type(call.type)})"
            if argument.type.name == "DOUBLE":
                return f"({total} / {count})"
            scale = argument.type.parameters[1]
            if call.type.parameters != (_DIGITS, max(6, scale)):
                raise NoEqual(f"AVG of {argument.type.nullable_()}")
            quotient = f"CAST({total} AS DECIMAL(38, {scale})) / CAST({count} AS DECIMAL(20, 0))"
            return f"CAST({quotient} AS {spark_type(call.type)})"
    raise NoEqual(f"the aggregate {call.function}")


def _sum(argument: Column, text: str, distinct: str, suffix: str) -> str:
    name = argument.type.name
    if name in INTEGER_DIGITS:
        return f"SUM({distinct}CAST({text} AS BIGINT)){suffix}"
    if name == "DOUBLE":
        if distinct:
            raise NoEqual("different values of DOUBLE")
        return f"SUM({text}){suffix}"
    if name != "DECIMAL":
        raise NoEqual(f"SUM of {argument.type.nullable_()}")
    precision, scale = argument.type.parameters
    wide = text if precision + _MORE_DIGITS <= _DIGITS else f"CAST({text} AS DECIMAL({_DIGITS}, {scale}))"
    return f"SUM({distinct}{wide}){suffix}"


def check_key(column: Column) -> None:
    """Check that Spark finds values of a column equal where Flink does.

    Raises:
        NoEqual: it has another NaN, or other zeros.
    """
    spark_type(column.type)
    if column.type.name in ("FLOAT", "DOUBLE"):
        raise NoEqual(f"groups, partitions or joins by {column.type.nullable_()}")
