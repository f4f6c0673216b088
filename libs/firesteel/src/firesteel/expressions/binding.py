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
from firesteel.expressions.functions import FunctionCall, InputsRefused, Operand, definition_of
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
        """The error for the first row that can't be computed.

        A kernel does not say which row it failed in, so the batch is halved until one row is left: log2(rows) more
        evaluations, on the error path only.
        """
        if count == 0:
            return ProgramError(f"{self.expression} can't be computed: {error}")
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
    operand, evaluate = _bind(bare, columns, wrap)
    data_type = pa.bool_() if operand.data_type == pa.null() else operand.data_type
    if data_type != operand.data_type:
        inner = evaluate
        evaluate = lambda batch_columns: pc.cast(inner(batch_columns), data_type)  # noqa: E731
    type_info = type_info_of(data_type) if operand.type_info is None else operand.type_info
    return BoundExpression(bare, type_info, data_type, bare.columns(), evaluate)


def bind_condition(
    expression: Expression, columns: Mapping[str, TypeInformation], *, wrap: bool = False
) -> BoundExpression:
    """Check a condition, which has to be BOOLEAN, and choose its kernels.

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
        return Operand(scalar.type, scalar), lambda batch_columns: scalar
    parts = [_bind(part, columns, wrap) for part in e.inputs]
    call = FunctionCall(e.function, tuple(operand for operand, _ in parts), e.options, wrap)
    try:
        data_type, kernel, *declared_result = definition_of(e.function)(call)
        type_info = declared_result[0] if declared_result else _inherited(call, data_type)
    except InputsRefused as refused:
        raise ProgramError(f"{e}: {refused}") from None
    result = Operand(data_type, None, type_info)
    inputs = [evaluate for _, evaluate in parts]
    if len(inputs) == 1:
        (only,) = inputs
        return result, lambda batch_columns: kernel(only(batch_columns))

    def eager(batch_columns: Columns) -> Any:
        return kernel(*[evaluate(batch_columns) for evaluate in inputs])

    if e.function not in LAZY:
        return result, eager
    lazy = [LazyInput(evaluate, part.columns()) for part, evaluate in zip(e.inputs, inputs, strict=True)]
    return result, guarded(e.function, lazy, eager, data_type)


def _inherited(call: FunctionCall, data_type: pa.DataType) -> TypeInformation | None:
    """The declared type of a nested result: that of the inputs of the same type."""
    if not is_nested(data_type):
        return None
    declared_types = {
        operand.type_info for operand in call.inputs if operand.data_type == data_type and operand.type_info is not None
    }
    if len(declared_types) != 1:
        raise InputsRefused(f"{' and '.join(sorted(map(str, declared_types)))} do not go together")
    return declared_types.pop()


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
    return Operand(data_type, None, columns[name]), lambda batch_columns: batch_columns[name]
