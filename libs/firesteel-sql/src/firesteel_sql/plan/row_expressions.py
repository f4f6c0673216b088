"""Expressions whose names are looked up and whose types are known: what is computed for each row of a relation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from firesteel.expressions import Expression, col
from firesteel.table.types import DataType
from firesteel_sql.types.columns import type_info_of


@dataclass(frozen=True)
class RowExpression:
    """A value for each row.

    Attributes:
        type: of the values.
    """

    type: DataType

    @property
    def operands(self) -> tuple[RowExpression, ...]:
        """What it is made of."""
        return ()

    def walk(self) -> Iterator[RowExpression]:
        """This expression and all inside it."""
        yield self
        for operand in self.operands:
            yield from operand.walk()


@dataclass(frozen=True)
class InputColumn(RowExpression):
    """A column of the relation, by its place; the name is for people."""

    index: int
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Constant(RowExpression):
    """A value that is the same for all rows.

    Attributes:
        value: Decimal, int, float, str, bytes, bool, date, time, datetime (of a TIMESTAMP_LTZ in UTC), or None; an
            interval is its number of months or milliseconds.
    """

    value: Any

    def __str__(self) -> str:
        match self.value:
            case None:
                return "NULL"
            case bool():
                return str(self.value).upper()
            case str():
                return "'" + self.value.replace("'", "''") + "'"
            case bytes():
                return f"x'{self.value.hex()}'"
            case datetime():
                return f"TIMESTAMP '{self.value.isoformat(' ')}'"
            case date():
                return f"DATE '{self.value.isoformat()}'"
            case time():
                return f"TIME '{self.value.isoformat()}'"
            case Decimal():
                return format(self.value, "f")
        return str(self.value)


@dataclass(frozen=True)
class AppliedFunction(RowExpression):
    """A function of other expressions.

    Attributes:
        name: as in SQL, for people: ``+``, ``UPPER``.
        kernel: what computes it: a function of ``firesteel.expressions``, or ``module:function``.
        inputs: its operands.
        options: constants that the kernel takes.
    """

    name: str
    kernel: str
    inputs: tuple[RowExpression, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def operands(self) -> tuple[RowExpression, ...]:
        return self.inputs

    def __str__(self) -> str:
        texts = [str(operand) for operand in self.inputs]
        if self.name in _INFIX and len(texts) == 2:
            return f"({texts[0]} {self.name} {texts[1]})"
        match self.name:
            case "NOT":
                return f"NOT {texts[0]}"
            case "CAST" | "TRY_CAST":
                return f"{self.name}({texts[0]} AS {self.type})"
            case "CASE":
                *branches, otherwise = texts
                pairs = zip(branches[::2], branches[1::2], strict=True)
                return f"CASE {' '.join(f'WHEN {when} THEN {then}' for when, then in pairs)} ELSE {otherwise} END"
            case "FIELD":
                return f"{texts[0]}.{dict(self.options)['field']}"
        if self.name.startswith("IS "):
            return f"{texts[0]} {self.name}"
        return f"{self.name}({', '.join(texts)})"


_INFIX = frozenset(("+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">=", "AND", "OR", "||", "LIKE"))

_OWN = frozenset(("when", "coalesce", "&", "|", "not", "is_null", "field"))
"""Functions of ``firesteel.expressions`` that mean the same in SQL."""


def to_expression(row_expression: RowExpression, columns: Mapping[int, str] | list[str]) -> Expression:
    """What computes it in a stream of columns.

    Args:
        row_expression: over the relation.
        columns: names of the stream's columns, by their place in the relation.
    """
    match row_expression:
        case InputColumn():
            return col(columns[row_expression.index])
        case Constant():
            return Expression(
                "firesteel_sql.kernels.constants:constant", (), value=row_expression.value,
                type=type_info_of(row_expression.type), text=str(row_expression),
            )  # fmt: skip
        case AppliedFunction():
            inputs = tuple(to_expression(operand, columns) for operand in row_expression.inputs)
            options = dict(row_expression.options)
            if row_expression.kernel in _OWN:
                return Expression(row_expression.kernel, inputs, **options)
            return Expression(
                row_expression.kernel, inputs, **options, type=type_info_of(row_expression.type),
                text=str(row_expression),
            )  # fmt: skip
    raise AssertionError(row_expression)
