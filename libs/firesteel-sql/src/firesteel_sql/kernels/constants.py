"""Constants."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.expressions.registry import Kernel
from firesteel_sql.kernels.definition import KernelCall, kernel


@kernel
def constant(call: KernelCall) -> Kernel:
    """The same value for all rows."""
    scalar = pa.scalar(call.options["value"], call.result)
    return lambda: scalar


@kernel
def not_null(call: KernelCall) -> Kernel:
    """The values as they are; NULL fails the job, since the column of the table that gets them is NOT NULL."""
    column = call.options["column"]

    def compute(values: pa.Array | pa.ChunkedArray | pa.Scalar) -> Any:
        has_null = not values.is_valid if isinstance(values, pa.Scalar) else values.null_count > 0
        if has_null:
            raise pa.ArrowInvalid(
                f"the column {column} is NOT NULL, and a row has NULL for it (SET "
                "'table.exec.sink.not-null-enforcer' = 'DROP' leaves such rows out)"
            )
        return values

    return compute


@kernel
def is_there(call: KernelCall) -> Kernel:
    """Whether a value is not NULL."""
    return lambda values: pc.is_valid(values)
