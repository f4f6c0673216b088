"""Arrays, maps, rows and points in time as keys: what is equal where the values are, and back."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from firesteel.expressions.registry import Kernel
from firesteel.state.columnar.nested_bytes import bytes_of, values_of
from firesteel_sql.kernels.definition import KernelCall, kernel


@kernel
def as_key(call: KernelCall) -> Kernel:
    """What stands for each value: bytes, or what clocks in UTC show."""
    if pt.is_nested(call.inputs[0]):
        return bytes_of
    return lambda moments: moments.cast(call.result)


@kernel
def from_key(call: KernelCall) -> Kernel:
    """The values for which these stand."""
    if pt.is_nested(call.result):
        return lambda encoded: values_of(encoded, call.result)
    return lambda clocks: pc.assume_timezone(clocks, "UTC").cast(call.result)


def comparable(values: Any) -> Any:
    """Values that Arrow can compare: bytes instead of collections and rows."""
    if not pt.is_nested(values.type):
        return values
    return bytes_of(pa.repeat(values, 1))[0] if isinstance(values, pa.Scalar) else bytes_of(values)
