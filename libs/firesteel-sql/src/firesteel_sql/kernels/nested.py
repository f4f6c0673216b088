"""Parts of arrays, maps and rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.expressions.registry import Kernel
from firesteel_sql.kernels.definition import KernelCall, by_value, kernel


@kernel
def size(call: KernelCall) -> Kernel:
    """The number of elements of an array or map."""
    return by_value(len, call.result)


@kernel
def array_element(call: KernelCall) -> Kernel:
    """The element at a position from 1; NULL if there is none."""
    return by_value(lambda array, index: array[index - 1] if 0 < index <= len(array) else None, call.result)


@kernel
def map_value(call: KernelCall) -> Kernel:
    """The value of a key; NULL if there is none."""
    return by_value(lambda pairs, key: dict(pairs).get(key), call.result)


@kernel
def row(call: KernelCall) -> Kernel:
    """``ROW(a, b)``."""

    def compute(*values: Any) -> Any:
        count = next((len(value) for value in values if not isinstance(value, pa.Scalar)), None)
        columns = [
            pa.repeat(value, 1 if count is None else count) if isinstance(value, pa.Scalar) else value
            for value in values
        ]
        columns = [column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column for column in columns]
        found = pa.StructArray.from_arrays(columns, fields=list(call.result))
        return found[0] if count is None else found

    return compute


@kernel
def array(call: KernelCall) -> Kernel:
    """``ARRAY[a, b]``."""
    return by_value(lambda *values: list(values), call.result, sees_null=True)


@kernel
def map_(call: KernelCall) -> Kernel:
    """``MAP['k', v]``; of equal keys the last one counts."""
    return by_value(
        lambda *values: list(dict(zip(values[::2], values[1::2], strict=True)).items()), call.result, sees_null=True
    )


@kernel
def field(call: KernelCall) -> Kernel:
    """A field of a row; NULL where the row is NULL."""
    index = call.options["index"]
    return lambda value: pc.struct_field(value, [index])
