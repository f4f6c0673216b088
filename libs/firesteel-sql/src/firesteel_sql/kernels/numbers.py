"""Arithmetic and functions of numbers. Integers that overflow wrap around, as in Flink."""

from __future__ import annotations

import math
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal, localcontext
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from firesteel.expressions.registry import Kernel
from firesteel_sql.kernels import decimals
from firesteel_sql.kernels.definition import KernelCall, by_value, kernel
from firesteel_sql.kernels.keys import comparable

_WIDEST: Final = 76
"""Digits of Arrow's largest decimal numbers."""


def _to(value: Any, data_type: pa.DataType) -> Any:
    """The number as one of another type, which holds it or rounds it."""
    if value.type == data_type:
        return value
    if pt.is_decimal(value.type) and pt.is_floating(data_type):
        return pc.cast(value, data_type)
    return pc.cast(value, data_type, safe=False)


def _arithmetic(sign: str, compute: Any) -> Any:
    """``+``, ``-`` and ``*``: exact for decimal numbers, wrapping for integers."""

    @kernel
    def define(call: KernelCall) -> Kernel:
        if pt.is_decimal(call.result):
            return decimals.arithmetic(call, sign)
        return lambda left, right: compute(_to(left, call.result), _to(right, call.result))

    return define


add = _arithmetic("+", pc.add)
subtract = _arithmetic("-", pc.subtract)
multiply = _arithmetic("*", pc.multiply)


@kernel
def divide(call: KernelCall) -> Kernel:
    """Integers are divided towards zero; a division of exact numbers by zero is an error."""
    if pt.is_decimal(call.result):
        return decimals.division(call)
    compute = _quotient if pt.is_integer(call.result) else pc.divide
    return lambda left, right: compute(_to(left, call.result), _to(right, call.result))


def _quotient(left: Any, right: Any) -> Any:
    """Integers divided towards zero. The least one by -1 is itself, as in Java, where Arrow has 0."""
    if isinstance(right, pa.Scalar):
        return pc.negate(left) if right.is_valid and right.as_py() == -1 else pc.divide(left, right)
    return pc.if_else(pc.equal(right, pa.scalar(-1, right.type)), pc.negate(left), pc.divide(left, right))


@kernel
def modulo(call: KernelCall) -> Kernel:
    """The remainder has the sign of the dividend."""
    if pt.is_decimal(call.result):
        return decimals.remainder(call)
    if pt.is_floating(call.result):
        return by_value(lambda left, right: math.fmod(left, right) if right else math.nan, call.result)
    wide = max(call.inputs, key=lambda data_type: data_type.bit_width)

    def compute(left: Any, right: Any) -> Any:
        a, b = _to(left, wide), _to(right, wide)
        return _to(pc.subtract(a, pc.multiply(_quotient(a, b), b)), call.result)

    return compute


@kernel
def negate(call: KernelCall) -> Kernel:
    return pc.negate  # type: ignore[no-any-return]


@kernel
def absolute(call: KernelCall) -> Kernel:
    return pc.abs  # type: ignore[no-any-return]


@kernel
def sign(call: KernelCall) -> Kernel:
    return lambda value: (
        decimals.fit(pc.cast(pc.sign(value), pa.int64()), call.result)
        if pt.is_decimal(call.result)
        else pc.cast(pc.sign(value), call.result)
    )


@kernel
def ceil(call: KernelCall) -> Kernel:
    return _whole(call, "up")


@kernel
def floor(call: KernelCall) -> Kernel:
    return _whole(call, "down")


def _whole(call: KernelCall, mode: str) -> Kernel:
    (data_type,) = call.inputs
    if pt.is_integer(data_type):
        return lambda value: value
    if pt.is_decimal(data_type):
        wide = pa.decimal256(76, data_type.scale)
        return lambda value: decimals.fit(pc.round(pc.cast(value, wide), ndigits=0, round_mode=mode), call.result)
    return lambda value: pc.round(value, ndigits=0, round_mode=mode)


def _to_digits(arrow_mode: str, python_mode: str) -> Any:
    """ROUND and TRUNCATE, with 0 digits behind the point if none are given.

    Decimal numbers go through Arrow if the digits are constant; floating-point numbers as the decimal numbers that
    they are shown as, as in Flink: ``ROUND(1.005e0, 2)`` is 1.01.
    """

    @kernel
    def define(call: KernelCall) -> Kernel:
        data_type = call.inputs[0]
        by_row = by_value(lambda value, digits=0: _cut(value, digits, python_mode, call.result), call.result)
        if not pt.is_decimal(data_type):
            if pt.is_integer(data_type):
                return lambda value, *digits: value if not digits else by_row(value, *digits)
            return by_row
        wide = pa.decimal256(_WIDEST, data_type.scale)

        def compute(value: Any, *digits: Any) -> Any:
            if digits and not (isinstance(digits[0], pa.Scalar) and digits[0].is_valid):
                return by_row(value, *digits)
            count = digits[0].as_py() if digits else 0
            if count < -38:
                return by_row(value, *digits)
            return decimals.fit(pc.round(pc.cast(value, wide), ndigits=count, round_mode=arrow_mode), call.result)

        return compute

    return define


def _cut(value: Any, digits: int, mode: str, result: pa.DataType) -> Any:
    if isinstance(value, float):
        if not math.isfinite(value) or digits > 400:
            return value
        exact = Decimal(repr(value))
    else:
        exact = Decimal(value)
    if digits < -400:
        return 0 if pt.is_integer(result) else exact * 0 if pt.is_decimal(result) else 0.0
    with localcontext(Context(prec=800)):
        rounded = (
            exact.quantize(Decimal(1).scaleb(-digits), rounding=mode)
            if -int(exact.as_tuple().exponent) > digits
            else exact
        )
    if pt.is_integer(result):
        half = 1 << (result.bit_width - 1)
        return (int(rounded) + half) % (2 * half) - half
    return decimals.rounded_or_none(rounded, result) if pt.is_decimal(result) else float(rounded) + 0.0  # no -0.0


round_ = _to_digits("half_towards_infinity", ROUND_HALF_UP)
truncate = _to_digits("towards_zero", ROUND_DOWN)


def _real(function: Any) -> Any:
    @kernel
    def define(call: KernelCall) -> Kernel:
        return lambda *values: function(*[_to(value, pa.float64()) for value in values])

    return define


def _numpy(function: Any) -> Any:
    def compute(*values: Any) -> Any:
        count = next((len(value) for value in values if not isinstance(value, pa.Scalar)), None)
        columns = [
            pa.repeat(value, 1 if count is None else count) if isinstance(value, pa.Scalar) else value
            for value in values
        ]
        nulls = np.logical_or.reduce([np.asarray(pc.is_null(column)) for column in columns])
        with np.errstate(all="ignore"):
            found = function(*[np.asarray(pc.fill_null(column, 1.0)) for column in columns])
        result = pa.array(found, pa.float64(), mask=nulls)
        return result[0] if count is None else result

    return compute


power = _real(_numpy(np.power))
sqrt = _real(pc.sqrt)
exp = _real(pc.exp)
ln = _real(pc.ln)
log10 = _real(pc.log10)
log2 = _real(pc.log2)
sin = _real(pc.sin)
cos = _real(pc.cos)
tan = _real(pc.tan)
cot = _real(_numpy(lambda value: 1 / np.tan(value)))
asin = _real(pc.asin)
acos = _real(pc.acos)
atan = _real(pc.atan)
atan2 = _real(pc.atan2)
sinh = _real(_numpy(np.sinh))
cosh = _real(_numpy(np.cosh))
tanh = _real(_numpy(np.tanh))
degrees = _real(_numpy(np.degrees))
radians = _real(_numpy(np.radians))


@kernel
def log_of_base(call: KernelCall) -> Kernel:
    """``LOG(base, x)``."""
    return lambda base, value: pc.logb(_to(value, pa.float64()), _to(base, pa.float64()))


# -- comparison


def _comparison(function: Any) -> Any:
    @kernel
    def define(call: KernelCall) -> Kernel:
        if pt.is_nested(call.inputs[0]):
            return lambda left, right: function(comparable(left), comparable(right))
        return lambda left, right: function(left, right)

    return define


equal = _comparison(pc.equal)
not_equal = _comparison(pc.not_equal)
less = _comparison(pc.less)
less_equal = _comparison(pc.less_equal)
greater = _comparison(pc.greater)
greater_equal = _comparison(pc.greater_equal)


@kernel
def is_distinct(call: KernelCall) -> Kernel:
    """Whether values differ, where two NULLs are the same."""

    def compute(left: Any, right: Any) -> Any:
        left, right = comparable(left), comparable(right)
        one_null = pc.xor(pc.is_null(left), pc.is_null(right))
        return pc.or_kleene(one_null, pc.fill_null(pc.not_equal(left, right), pa.scalar(False)))

    return compute


@kernel
def in_list(call: KernelCall) -> Kernel:
    """Whether the first operand equals one of the others, which are constants; NULL if only NULL decides."""

    def compute(value: Any, *others: Any) -> Any:
        constants = pa.array([other.as_py() for other in others if other.is_valid], call.inputs[0])
        found = pc.is_in(value, value_set=constants)
        unknown = pc.is_null(value)
        if any(not other.is_valid for other in others):
            unknown = pc.or_(unknown, pc.invert(found))
        return pc.if_else(unknown, pa.scalar(None, pa.bool_()), found)

    return compute


@kernel
def greatest(call: KernelCall) -> Kernel:
    """NULL if an operand is NULL."""
    return lambda *values: pc.max_element_wise(*values, skip_nulls=False)


@kernel
def least(call: KernelCall) -> Kernel:
    """NULL if an operand is NULL."""
    return lambda *values: pc.min_element_wise(*values, skip_nulls=False)


@kernel
def is_true(call: KernelCall) -> Kernel:
    wanted = call.options["wanted"]
    return lambda value: pc.fill_null(pc.equal(value, pa.scalar(wanted)), pa.scalar(False))
