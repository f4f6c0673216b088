"""Arrays, maps and rows as keys: bytes that are equal where the values are, and back."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from firesteel.expressions.registry import Kernel
from firesteel.state.columnar.nested_bytes import bytes_of, values_of
from firesteel_sql.kernels.definition import KernelCall, kernel


@kernel
def key_bytes(call: KernelCall) -> Kernel:
    """The bytes of each value."""
    return comparable


@kernel
def key_values(call: KernelCall) -> Kernel:
    """The values whose bytes these are."""
    return lambda encoded: values_of(encoded, call.result)


def comparable(values: Any) -> Any:
    """Values that Arrow can compare: bytes instead of collections and rows."""
    if not pt.is_nested(values.type):
        return values
    return bytes_of(pa.repeat(values, 1))[0] if isinstance(values, pa.Scalar) else bytes_of(values)
