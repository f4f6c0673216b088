"""Expressions whose names are looked up and whose types are known: what is computed for each row of a relation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from firesteel.expressions import Expression, col
from firesteel.table.types import DataType, DataTypes
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

    def with_operands(self, operands: tuple[RowExpression, ...]) -> RowExpression:
        """The same of other operands."""
        return self

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
class OuterColumn(RowExpression):
    """A column of the row for which a query within an expression is computed; gone once that row's query is bound.

    Attributes:
        index: place among the columns of the outer row.
        name: for people.
        depth: 1 = the query around this one; 2 = the one around that.
    """

    index: int
    name: str
    depth: int = 1

    def __str__(self) -> str:
        return f"$cor{self.depth}.{self.name}"


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

    def with_operands(self, operands: tuple[RowExpression, ...]) -> RowExpression:
        return replace(self, inputs=operands)

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

OWN_KERNELS = frozenset(("when", "coalesce", "&", "|", "not", "is_null", "field"))
"""Functions of ``firesteel.expressions`` that mean the same in SQL."""
_RANDOM = "firesteel_sql.kernels.randoms:"
_USERS_FOR_ROWS = "firesteel_sql.kernels.user:python_function_for_rows"
"""Where the kernels are that give another value for each row."""


# -- rewriting


def replaced(expression: RowExpression, substitute: Callable[[RowExpression], RowExpression | None]) -> RowExpression:
    """An expression with some of its parts replaced.

    Args:
        expression: what is rewritten.
        substitute: gives the replacement of a part, which is not looked into any further; None keeps the part.
    """
    substitution = substitute(expression)
    if substitution is not None:
        return substitution
    operands = expression.operands
    if not operands:
        return expression
    rewritten = tuple(replaced(operand, substitute) for operand in operands)
    if all(new is old for new, old in zip(rewritten, operands, strict=True)):
        return expression
    return expression.with_operands(rewritten)


def moved(expression: RowExpression, places: Mapping[int, int] | Callable[[int], int]) -> RowExpression:
    """An expression over columns that stand at other places."""
    place_of = places if callable(places) else places.__getitem__
    return replaced(
        expression,
        lambda part: replace(part, index=place_of(part.index)) if isinstance(part, InputColumn) else None,
    )


def composed(expression: RowExpression, inputs: Sequence[RowExpression]) -> RowExpression:
    """An expression over expressions, as one over what those are made of."""
    return replaced(
        expression, lambda part: _under_type(inputs[part.index], part) if isinstance(part, InputColumn) else None
    )


def _under_type(expression: RowExpression, column: InputColumn) -> RowExpression:
    """A column may stand under a wider type of texts than the expression that it is."""
    return expression if expression.type == column.type else replace(expression, type=column.type)


def places_of(expression: RowExpression) -> frozenset[int]:
    """Places of the columns that an expression reads."""
    return frozenset(part.index for part in expression.walk() if isinstance(part, InputColumn))


def conjuncts_of(condition: RowExpression | None) -> list[RowExpression]:
    """The conditions that AND connects, also those that all alternatives of an OR have; none for TRUE."""
    match condition:
        case None | Constant(value=True):
            return []
        case AppliedFunction(name="AND", inputs=(left, right)):
            return [*conjuncts_of(left), *conjuncts_of(right)]
        case AppliedFunction(name="OR"):
            # (a AND x) OR (a AND y) is a AND (x OR y): the key of a join often stands in each alternative.
            alternatives = [conjuncts_of(alternative) for alternative in _alternatives_of(condition)]
            first, *others = alternatives
            common = [part for part in first if all(part in other for other in others)]
            if common:
                rests = [conjunction_of([part for part in parts if part not in common]) for parts in alternatives]
                return common if None in rests else [*common, *_disjunction_of(rests)]
    return [condition]


def _alternatives_of(condition: RowExpression) -> list[RowExpression]:
    match condition:
        case AppliedFunction(name="OR", inputs=(left, right)):
            return [*_alternatives_of(left), *_alternatives_of(right)]
    return [condition]


def _disjunction_of(conditions: Sequence[RowExpression | None]) -> list[RowExpression]:
    first, *others = [condition for condition in conditions if condition is not None]
    for condition in others:
        nullable = first.type.nullable or condition.type.nullable
        first = AppliedFunction(replace(first.type, nullable=nullable), "OR", "|", (first, condition))
    return [first]


def conjunction_of(conditions: Sequence[RowExpression]) -> RowExpression | None:
    """Conditions connected with AND; None if there are none."""
    if not conditions:
        return None
    connected = conditions[0]
    for condition in conditions[1:]:
        nullable = connected.type.nullable or condition.type.nullable
        connected = AppliedFunction(replace(condition.type, nullable=nullable), "AND", "&", (connected, condition))
    return connected


_VARYING = frozenset(
    ("RAND", "RAND_INTEGER", "UUID", "NOW", "CURRENT_TIMESTAMP", "CURRENT_ROW_TIMESTAMP", "LOCALTIMESTAMP", "LOCALTIME",
     "CURRENT_TIME", "CURRENT_DATE", "PROCTIME", "UNIX_TIMESTAMP", "CURRENT_WATERMARK")
)  # fmt: skip
"""Functions whose results differ from call to call; UNIX_TIMESTAMP only without operands."""


def is_deterministic(expression: RowExpression) -> bool:
    """Whether an expression gives the same for the same row whenever and wherever it is computed."""
    return not any(
        isinstance(part, AppliedFunction)
        and part.name in _VARYING
        and not (part.name == "UNIX_TIMESTAMP" and part.inputs)
        for part in expression.walk()
    )


def is_correlated(expression: RowExpression) -> bool:
    """Whether an expression reads the row of an outer query."""
    return any(isinstance(part, OuterColumn) for part in expression.walk())


# -- computation


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
            if row_expression.kernel.startswith(_RANDOM) or row_expression.kernel == _USERS_FOR_ROWS:
                # A kernel without operands gives one value for all rows: a column tells it how many there are.
                names = list(columns.values() if isinstance(columns, Mapping) else columns)
                rows = col(names[0]) if names else to_expression(Constant(DataTypes.BOOLEAN(False), True), columns)
                inputs = (rows, *inputs)
            if row_expression.kernel in OWN_KERNELS:
                return Expression(row_expression.kernel, inputs, **options)
            return Expression(
                row_expression.kernel, inputs, **options, type=type_info_of(row_expression.type),
                text=str(row_expression),
            )  # fmt: skip
    raise AssertionError(row_expression)
