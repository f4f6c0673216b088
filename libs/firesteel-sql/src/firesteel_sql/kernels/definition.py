"""How a kernel of SQL is defined: the types are known already, so it only says what is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from firesteel.common.typeinfo import TypeInformation
from firesteel.expressions.registry import Definition, FunctionCall, Kernel
from firesteel.expressions.schema import arrow_type


@dataclass(frozen=True)
class KernelCall:
    """One use of a kernel.

    Attributes:
        inputs: Arrow types of the operands.
        result: Arrow type of the result.
        options: constants.
    """

    inputs: tuple[pa.DataType, ...]
    result: pa.DataType
    options: Mapping[str, Any]


def kernel(make: Callable[[KernelCall], Kernel]) -> Definition:
    """Make a definition of ``firesteel.expressions`` of a function that returns the computation."""

    @wraps(make)
    def define(call: FunctionCall) -> tuple[pa.DataType, Kernel, TypeInformation]:
        declared: TypeInformation = call.options["type"]
        result = arrow_type(declared)
        return result, make(KernelCall(tuple(part.data_type for part in call.inputs), result, call.options)), declared

    return define


def by_value(function: Callable[..., Any], result: pa.DataType, *, sees_null: bool = False) -> Kernel:
    """A kernel of a Python function of the operands' values; it is called once for each distinct row of them.

    Args:
        function: of the values.
        result: type of its results.
        sees_null: whether the function is called where an operand is null, with None; else the result is null there.
    """

    def compute(*columns: Any) -> Any:
        arrays = [place for place, column in enumerate(columns) if not isinstance(column, pa.Scalar)]
        if len(arrays) == 1 and not pt.is_nested(columns[arrays[0]].type):
            # Arrow tells values apart many times faster than Python, which then sees each value once.
            (place,) = arrays
            column = columns[place]
            column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
            encoded = column.dictionary_encode("encode")
            return by_row(*columns[:place], encoded.dictionary, *columns[place + 1 :]).take(encoded.indices)
        return by_row(*columns)

    def by_row(*columns: Any) -> Any:
        count = next((len(column) for column in columns if not isinstance(column, pa.Scalar)), None)
        lists = [
            [column.as_py()] * (1 if count is None else count) if isinstance(column, pa.Scalar) else column.to_pylist()
            for column in columns
        ]
        results: dict[Any, Any] = {}
        values: list[Any] = []
        for row in zip(*lists, strict=True):
            if None in row and not sees_null:
                values.append(None)
                continue
            try:
                value = results[row]
            except KeyError:
                value = results[row] = function(*row)
            except TypeError:  # an operand that is a list or a map
                value = function(*row)
            values.append(value)
        column = pa.array(values, result)
        return column[0] if count is None else column

    return compute


def values_kernel(function: Callable[..., Any], *, sees_null: bool = False) -> Definition:
    """The definition of a kernel of a Python function, which is called for each distinct row of its operands."""

    @kernel
    def define(call: KernelCall) -> Kernel:
        return by_value(function, call.result, sees_null=sees_null)

    return define
