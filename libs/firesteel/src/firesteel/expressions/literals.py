"""Python's constants as Arrow's scalars."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from firesteel.common.time import Instant
from firesteel.core.errors import ProgramError
from firesteel.expressions.schema import BIG_DEC, INSTANT, TIME, TIMESTAMP

_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1


def literal(value: Any) -> pa.Scalar:
    """A constant; integers are LONG and floats DOUBLE until a column says otherwise.

    Raises:
        ProgramError: an integer beyond LONG, an instant finer than microseconds, a decimal number that is not finite.
    """
    if value is None:
        return pa.scalar(None, pa.null())
    if isinstance(value, bool):
        return pa.scalar(value, pa.bool_())
    if isinstance(value, int):
        if not _LOWEST <= value <= _HIGHEST:
            raise ProgramError(f"the constant {value} is beyond LONG (64 bits)")
        return pa.scalar(int(value), pa.int64())
    if isinstance(value, float):
        return pa.scalar(float(value), pa.float64())
    if isinstance(value, str):
        return pa.scalar(str(value), pa.string())
    if isinstance(value, bytes):
        return pa.scalar(value, pa.binary())
    if isinstance(value, datetime.datetime):
        return pa.scalar(value, TIMESTAMP if value.tzinfo is None else INSTANT)
    if isinstance(value, datetime.date):
        return pa.scalar(value, pa.date32())
    if isinstance(value, datetime.time):
        return pa.scalar(value, TIME)
    if isinstance(value, Instant):
        if value.nanos % 1000:
            raise ProgramError(f"the constant {value!r} is finer than microseconds, which columns hold")
        return pa.scalar(value.seconds * 1_000_000 + value.nanos // 1000, pa.int64()).cast(INSTANT)
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise ProgramError(f"the constant {value!r} is no finite number")
        return pa.scalar(str(value), BIG_DEC)
    assert isinstance(value, datetime.timedelta)
    return pa.scalar(value, pa.duration("us"))
