"""Aggregates over columns: ``count()``, ``max_("price")``, ``sum_(col("price") * 2).alias("twice")``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from firesteel.common.typeinfo import TypeInformation, Types
from firesteel.core.errors import GraphError, ProgramError
from firesteel.expressions.expression import Expression, col, unaliased

if TYPE_CHECKING:
    from firesteel.expressions.binding import BoundExpression

__all__ = ["Aggregate", "avg", "count", "first", "last", "max_", "min_", "sum_"]


class Aggregate:
    """What becomes of the values of many rows. Nulls are skipped; without any other value the result is null.

    Attributes:
        function: ``count``, ``sum``, ``min``, ``max``, ``avg``, ``first`` or ``last``.
        input: value of each row; None for ``count()``, which counts the rows themselves.
        name: of the result's column; None if it has to be given with ``alias``.
    """

    __slots__ = ("function", "input", "name")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, function: str, input: Expression | None, name: str | None) -> None:
        self.function, self.input, self.name = function, input, name

    def alias(self, name: str) -> Aggregate:
        """The same aggregate, whose result has this name."""
        if not isinstance(name, str) or not name:
            raise TypeError(f"alias() takes a name, not {name!r}")
        return Aggregate(self.function, self.input, name)

    def __repr__(self) -> str:
        suffix = "_" if self.function in ("sum", "min", "max") else ""
        text = f"{self.function}{suffix}({'' if self.input is None else self.input})"
        is_default_name = self.name in (None, _name(self.function, self.input))
        return text if is_default_name else f"{text}.alias({self.name!r})"


def count(column: str | Expression | None = None) -> Aggregate:
    """The number of rows; of a column, that of its values which are not null. LONG, and never null."""
    if column is None:
        return Aggregate("count", None, "count")
    return _aggregate_of("count", column)


def sum_(column: str | Expression) -> Aggregate:
    """The sum: LONG of whole numbers, DOUBLE of FLOAT and DOUBLE, added in the order of the rows."""
    return _aggregate_of("sum", column)


def min_(column: str | Expression) -> Aggregate:
    """The smallest value, of the column's type. NaN is above all other numbers; text is compared by code points."""
    return _aggregate_of("min", column)


def max_(column: str | Expression) -> Aggregate:
    """The greatest value, of the column's type. NaN is above all other numbers; text is compared by code points."""
    return _aggregate_of("max", column)


def avg(column: str | Expression) -> Aggregate:
    """The mean, as DOUBLE; of whole numbers their sum, which has to fit LONG, by their number."""
    return _aggregate_of("avg", column)


def first(column: str | Expression) -> Aggregate:
    """The value that came first, of the column's type."""
    return _aggregate_of("first", column)


def last(column: str | Expression) -> Aggregate:
    """The value that came last, of the column's type."""
    return _aggregate_of("last", column)


def _aggregate_of(function: str, column: Any) -> Aggregate:
    if isinstance(column, str):
        column = col(column)
    if not isinstance(column, Expression):
        raise TypeError(
            f"{function}: an aggregate takes the name of a column or an expression, not {type(column).__name__}"
        )
    bare = unaliased(column)
    return Aggregate(function, bare, _name(function, bare) if column is bare else column.output_name())


def _name(function: str, input_expression: Expression | None) -> str | None:
    """The default name of a result: ``count``, ``sum_price``; None for an input that is computed."""
    if input_expression is None:
        return function
    return f"{function}_{input_expression.output_name()}" if input_expression.function == "column" else None


@dataclass(frozen=True)
class BoundAggregate:
    """An aggregate over given columns.

    Attributes:
        name: of the result's column.
        aggregate: what it was made of.
        input: gives the value of each row; None for ``count()``.
        input_type: its declared type; None for ``count()``.
        type_info: declared type of the result.
        wrap: whole numbers that overflow wrap around instead of failing.
    """

    name: str
    aggregate: Aggregate
    input: BoundExpression | None
    input_type: TypeInformation | None
    type_info: TypeInformation
    wrap: bool


def bind_aggregates(
    method: str,
    aggregates: Sequence[Any],
    columns: Mapping[str, TypeInformation],
    names_in_use: Sequence[str] = (),
    *,
    wrap: bool = False,
) -> list[BoundAggregate]:
    """Check aggregates against the columns of a stream.

    Args:
        method: for errors.
        aggregates: arguments of the method, as the user wrote them.
        columns: names and types of the stream's fields.
        names_in_use: names that the result has already.
        wrap: whole numbers that overflow wrap around instead of failing.

    Raises:
        TypeError: an argument is no aggregate.
        GraphError: there is no argument, a result has no name, or a name stands twice.
        ProgramError: an input does not fit the columns, or an aggregate its input; names near columns, and types.
    """
    if not aggregates:
        raise GraphError(f"{method}() takes at least one aggregate, such as count() or max_('price')")
    names = list(names_in_use)
    bound = []
    for aggregate in aggregates:
        if not isinstance(aggregate, Aggregate):
            hint = ""
            if isinstance(aggregate, Expression):
                hint = f"; an expression has a value for each row: say what becomes of many, as in last({aggregate})"
            raise TypeError(
                f"{method}() takes aggregates of firesteel.expressions, such as count() and max_('price'), "
                f"not {type(aggregate).__name__}{hint}"
            )
        if aggregate.name is None:
            raise GraphError(f"{method}(): {aggregate} has no name; give it one with .alias('…')")
        if aggregate.name in names:
            raise GraphError(f"{method}(): the name {aggregate.name!r} stands more than once; give the others an alias")
        names.append(aggregate.name)
        bound.append(_bind(aggregate, aggregate.name, columns, wrap))
    return bound


def _bind(aggregate: Aggregate, name: str, columns: Mapping[str, TypeInformation], wrap: bool) -> BoundAggregate:
    from pyarrow.types import is_floating

    from firesteel.expressions.binding import bind  # loads Arrow's kernels
    from firesteel.expressions.registry import is_number
    from firesteel.expressions.schema import BIG_DEC, is_nested

    if aggregate.input is None:
        return BoundAggregate(name, aggregate, None, None, Types.LONG(), wrap)
    source = bind(aggregate.input, columns, wrap=wrap)
    plain = aggregate.input.function == "column"  # its declared type: several types have the same columns
    declared = columns[aggregate.input.options["name"]] if plain else source.type_info
    result = declared
    if aggregate.function == "count":
        result = Types.LONG()
    elif aggregate.function in ("sum", "avg"):
        if not is_number(source.data_type):
            raise ProgramError(f"{aggregate}: {aggregate.function} takes numbers, not {declared}")
        whole = aggregate.function == "sum" and not is_floating(source.data_type)
        result = Types.LONG() if whole else Types.DOUBLE()
    elif aggregate.function in ("min", "max") and (is_nested(source.data_type) or source.data_type == BIG_DEC):
        raise ProgramError(
            f"{aggregate}: {aggregate.function} takes numbers, text, bytes, dates and times, not {declared}"
        )
    return BoundAggregate(name, aggregate, source, declared, result, wrap)
