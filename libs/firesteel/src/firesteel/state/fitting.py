"""Fits what is written to state to the declared type; errors name state and field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from firesteel.common.coerce import make_coercer
from firesteel.common.typeinfo import BasicType, BasicTypeInfo, TypeInformation
from firesteel.core.errors import TypeMismatchError

Fit = Callable[[Any], Any]

_INTEGER_BITS: Final = {BasicType.BYTE: 8, BasicType.SHORT: 16, BasicType.INT: 32, BasicType.LONG: 64}
_EXACT: Final[dict[BasicType, type]] = {
    BasicType.STRING: str,
    BasicType.BOOLEAN: bool,
    BasicType.DOUBLE: float,
    **dict.fromkeys(_INTEGER_BITS, int),
}


def fits_as_it_is(type_info: TypeInformation) -> tuple[type | None, int, int]:
    """Class (and, of integers, range) of values that need no coercion: spares a call for each write."""
    basic = type_info.basic_type if isinstance(type_info, BasicTypeInfo) else None
    if basic is None or basic not in _EXACT:
        return None, 0, 0
    half = 1 << (_INTEGER_BITS.get(basic, 1) - 1)
    return _EXACT[basic], -half, half - 1


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
