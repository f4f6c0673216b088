"""Arithmetic of decimal numbers: exact, then rounded half away from zero to the digits of the result.

A result with too many digits in front of the point is NULL, as in Flink.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from firesteel.expressions.registry import Kernel
from firesteel_sql.kernels.definition import KernelCall, by_value

_WIDEST: Final = 76
_NARROW: Final = 38
"""Digits of numbers of 128 bits, with which Arrow computes several times faster than with those of 256."""
_EXACT: Final = Context(prec=120, rounding=ROUND_HALF_UP)


def fit(value: Any, result: pa.DataType) -> Any:
    """Numbers as decimal numbers of this type: rounded, NULL where they have too many digits."""
    if value.type == result:
        return value
    if pt.is_integer(value.type):
        value = pc.cast(value, pa.decimal128(19, 0))
    if not pt.is_decimal(value.type):
        raise TypeError(value.type)
    if value.type.scale > result.scale:
        value = pc.cast(value, _wider(value.type, value.type.precision + 1))
        value = pc.round(value, ndigits=result.scale, round_mode="half_towards_infinity")
    whole = result.precision - result.scale
    if value.type.precision - value.type.scale > whole:
        value = _without_large(value, whole)
    if not pt.is_decimal128(value.type):
        value = pc.cast(value, pa.decimal256(_WIDEST, result.scale), safe=False)
    return pc.cast(value, result, safe=False)


def _wider(data_type: Any, precision: int) -> Any:
    """The widest type of this scale that holds so many digits: of 128 bits if that suffices."""
    if pt.is_decimal128(data_type) and precision <= _NARROW:
        return pa.decimal128(_NARROW, data_type.scale)
    return pa.decimal256(_WIDEST, data_type.scale)


def _without_large(value: Any, whole: int) -> Any:
    """NULL where a number has more digits than these in front of the point."""
    wide = _wider(value.type, max(value.type.precision, whole + 1 + value.type.scale))
    if whole + value.type.scale >= _WIDEST:
        return value
    limit = pa.scalar(Decimal(10) ** whole, wide)
    fits = pc.less(pc.abs(pc.cast(value, wide)), limit)
    return pc.if_else(fits, value, pa.scalar(None, value.type))


def _as_decimal(value: Any) -> Any:
    return pc.cast(value, pa.decimal128(19, 0)) if pt.is_integer(value.type) else value


def arithmetic(call: KernelCall, sign: str) -> Kernel:
    """The kernel of ``+``, ``-`` or ``*``, where one operand at least is a decimal number."""
    compute = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}[sign]

    def kernel(left: Any, right: Any) -> Any:
        a, b = _as_decimal(left), _as_decimal(right)
        digits = a.type.precision + b.type.precision + 1
        if digits <= _WIDEST and (sign == "*" or max(a.type.scale, b.type.scale) + 40 <= _WIDEST):
            if (digits if sign == "*" else _digits_of_sum(a.type, b.type)) > _NARROW:
                a, b = (pc.cast(one, pa.decimal256(one.type.precision, one.type.scale)) for one in (a, b))
            return fit(compute(a, b), call.result)
        return by_value(_PYTHON[sign](call.result), call.result)(a, b)

    return kernel


def _digits_of_sum(a: Any, b: Any) -> int:
    """The digits that a sum or difference may have."""
    return int(max(a.precision - a.scale, b.precision - b.scale) + max(a.scale, b.scale) + 1)


def division(call: KernelCall) -> Kernel:
    """The kernel of ``/``; a division by zero is an error."""

    def kernel(left: Any, right: Any) -> Any:
        a, b = _as_decimal(left), _as_decimal(right)
        # One digit more than the result has, so that it can be rounded: Arrow gives s1 + p2 - s2 + 1 digits.
        more = max(0, call.result.scale + 1 - (a.type.scale + b.type.precision - b.type.scale + 1))
        if a.type.precision + more + b.type.precision + b.type.scale + 2 <= _WIDEST:
            dividend = pc.cast(a, pa.decimal256(a.type.precision + more, a.type.scale + more))
            return fit(pc.divide(dividend, pc.cast(b, pa.decimal256(b.type.precision, b.type.scale))), call.result)
        return by_value(_PYTHON["/"](call.result), call.result)(a, b)

    return kernel


def remainder(call: KernelCall) -> Kernel:
    """The kernel of ``%``; it has the sign of the dividend."""
    by_row = by_value(_PYTHON["%"](call.result), call.result)
    return lambda left, right: by_row(_as_decimal(left), _as_decimal(right))


def rounded_or_none(value: Decimal, result: pa.DataType) -> Decimal | None:
    """A number with the digits of a type; None if it has too many in front of the point."""
    with localcontext(_EXACT):
        found = value.quantize(Decimal(1).scaleb(-result.scale))
    return found if len(found.as_tuple().digits) <= result.precision or found == 0 else None


def _python(sign: str) -> Any:
    def of(result: pa.DataType) -> Any:
        def compute(left: Decimal, right: Decimal) -> Decimal | None:
            with localcontext(_EXACT):
                match sign:
                    case "+":
                        found = left + right
                    case "-":
                        found = left - right
                    case "*":
                        found = left * right
                    case _ if right == 0:
                        raise ZeroDivisionError("division by zero")
                    case "/":
                        found = left / right
                    case _:
                        found = left % right
            return rounded_or_none(found, result)

        return compute

    return of


_PYTHON: Final = {sign: _python(sign) for sign in "+-*/%"}
