"""Expressions, checked against the columns of a stream and made ready to run over whole batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.common.typeinfo import TypeInformation
from firesteel.core.errors import ProgramError
from firesteel.core.short_repr import short_repr
from firesteel.expressions.expression import Expression, refuse_alias_inside, unaliased
from firesteel.expressions.functions import FUNCTIONS, FunctionCall, InputsRefused, Operand
from firesteel.expressions.lazy import FAILURES, LAZY, Columns, Evaluate, LazyInput, guarded
from firesteel.expressions.literals import literal
from firesteel.expressions.schema import arrow_type, is_nested, type_info_of


@dataclass(frozen=True)
class BoundExpression:
    """An expression over given columns.

    Attributes:
        expression: what it was made of, without an alias.
        type_info: type of the results.
        columns: names of the columns that it reads.
    """

    expression: Expression
    type_info: TypeInformation
    data_type: pa.DataType
    columns: frozenset[str]
    _evaluate: Evaluate

    def evaluate(self, columns: Columns, count: int) -> pa.Array:
        """The result for each of ``count`` rows.

        Raises:
            ProgramError: it can't be computed for a row, as when an integer overflows; shows the row.
        """
        try:
            result = self._evaluate(columns)
        except FAILURES as error:
            raise self._failure(columns, count, error) from None
        if isinstance(result, pa.Scalar):
            return pa.repeat(result, count)
        return result.combine_chunks() if isinstance(result, pa.ChunkedArray) else result

    def _failure(self, columns: Columns, count: int, error: Exception) -> ProgramError:
        """With the first row that can't be computed, found by halving."""
        first, size = 0, count
        while size > 1:
            half = size // 2
            if self._fails(columns, first, half):
                size = half
            else:
                first, size = first + half, size - half
        row = {name: column[first].as_py() for name, column in columns.items() if name in self.columns}
        shown = ", ".join(f"{name} = {short_repr(value, 80)}" for name, value in row.items())
        return ProgramError(f"{self.expression} can't be computed{f' for {shown}' if shown else ''}: {error}")

    def _fails(self, columns: Columns, first: int, count: int) -> bool:
        try:
            self._evaluate({name: column.slice(first, count) for name, column in columns.items()})
        except FAILURES:
            return True
        return False


def bind(expression: Expression, columns: Mapping[str, TypeInformation], *, wrap: bool = False) -> BoundExpression:
    """Check an expression and choose its kernels.

    Args:
        expression: an alias at its top is left out.
        columns: names and types of the stream's fields.
        wrap: integers that overflow wrap around instead of failing.

    Raises:
        ProgramError: a column that is not there (near ones are named), a type that does not fit (says which).
    """
    refuse_alias_inside(expression)
    bare = unaliased(expression)
    made, evaluate = _bind(bare, columns, wrap)
    data_type = pa.bool_() if made.data_type == pa.null() else made.data_type
    if data_type != made.data_type:
        inner = evaluate
        evaluate = lambda found: pc.cast(inner(found), data_type)  # noqa: E731
    type_info = type_info_of(data_type) if made.type_info is None else made.type_info
    return BoundExpression(bare, type_info, data_type, bare.columns(), evaluate)


def bind_condition(
    expression: Expression, columns: Mapping[str, TypeInformation], *, wrap: bool = False
) -> BoundExpression:
    """The same for an expression that has to be BOOLEAN.

    Raises:
        ProgramError: as ``bind``, or it is of another type.
    """
    bound = bind(expression, columns, wrap=wrap)
    if bound.data_type != pa.bool_():
        raise ProgramError(f"{bound.expression} is {bound.type_info}; a condition has to be Boolean")
    return bound


def _bind(e: Expression, columns: Mapping[str, TypeInformation], wrap: bool) -> tuple[Operand, Evaluate]:
    if e.function == "column":
        return _column(e.options["name"], columns)
    if e.function == "literal":
        scalar = literal(e.options["value"])
        return Operand(scalar.type, scalar), lambda found: scalar
    parts = [_bind(part, columns, wrap) for part in e.inputs]
    call = FunctionCall(e.function, tuple(operand for operand, _ in parts), e.options, wrap)
    try:
        data_type, kernel, *known = FUNCTIONS[e.function](call)
        type_info = known[0] if known else _inherited(call, data_type)
    except InputsRefused as refused:
        raise ProgramError(f"{e}: {refused}") from None
    result = Operand(data_type, None, type_info)
    inputs = [evaluate for _, evaluate in parts]
    if len(inputs) == 1:
        (only,) = inputs
        return result, lambda found: kernel(only(found))

    def eager(found: Columns) -> Any:
        return kernel(*[evaluate(found) for evaluate in inputs])

    if e.function not in LAZY:
        return result, eager
    lazy = [LazyInput(evaluate, part.columns()) for part, evaluate in zip(e.inputs, inputs, strict=True)]
    return result, guarded(e.function, lazy, eager, data_type)


def _inherited(call: FunctionCall, data_type: pa.DataType) -> TypeInformation | None:
    """The declared type of a nested result: that of the inputs of the same type."""
    if not is_nested(data_type):
        return None
    known = {one.type_info for one in call.inputs if one.data_type == data_type and one.type_info is not None}
    if len(known) != 1:
        raise InputsRefused(f"{' and '.join(sorted(map(str, known)))} do not go together")
    return known.pop()


def _column(name: str, columns: Mapping[str, TypeInformation]) -> tuple[Operand, Evaluate]:
    if name not in columns:
        near = get_close_matches(name, columns, n=3, cutoff=0.6)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are {', '.join(map(repr, columns))}"
        raise ProgramError(f"the stream has no column {name!r}; {hint}")
    data_type = arrow_type(columns[name])
    if data_type is None:
        raise ProgramError(
            f"column {name!r} is {columns[name]}, whose values no expression can use; use map() with a Python function"
        )
    return Operand(data_type, None, columns[name]), lambda found: found[name]
