"""Fits values that are written to state to the declared type; errors name state and field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from firesteel.common.coerce import make_coercer
from firesteel.common.type_table import ScalarRow, row_of
from firesteel.common.typeinfo import TypeInformation
from firesteel.core.errors import TypeMismatchError

Fit = Callable[[Any], Any]


def fits_as_it_is(type_info: TypeInformation) -> tuple[type | None, int, int]:
    """Class (and, of integers, range) of values that need no coercion; saves a call for each write."""
    row = row_of(type_info)
    if not isinstance(row, ScalarRow):
        return None, 0, 0
    if row.bits is not None:
        half = 1 << (row.bits - 1)
        return int, -half, half - 1
    # Values that have to be checked are fitted, and integers without a range are not compared with one.
    return (None, 0, 0) if row.fits or row.python_class is int else (row.python_class, -1, 0)


def make_fit(where: str, type_info: TypeInformation, *, strict_integers: bool) -> Fit | None:
    """The function that fits a value to its type; None if any object does.

    Args:
        where: what errors name, such as ``state prices``.
    """
    coerce = make_coercer(type_info, strict_integers=strict_integers)
    if coerce is None:
        return None
    exact, lowest, highest = fits_as_it_is(type_info)

    def fit(value: Any) -> Any:
        kind = value.__class__
        if kind is exact and (kind is not int or lowest <= value <= highest):
            return value
        try:
            return coerce(value)
        except TypeMismatchError as error:
            inner = error.field
            field = where + (inner if inner.startswith("[") or not inner else f".{inner}")
            raise TypeMismatchError(field, error.declared, error.value, error.reason) from None

    return fit
