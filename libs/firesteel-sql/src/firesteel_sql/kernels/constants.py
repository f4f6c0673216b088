"""Constants."""

from __future__ import annotations

import pyarrow as pa

from firesteel.expressions.registry import Kernel
from firesteel_sql.kernels.definition import KernelCall, kernel


@kernel
def constant(call: KernelCall) -> Kernel:
    """The same value for all rows."""
    scalar = pa.scalar(call.options["value"], call.result)
    return lambda: scalar
