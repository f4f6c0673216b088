"""Functions of numbers, and casts between types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from firesteel.expressions.registry import (
    FunctionCall,
    InputsRefused,
    Kernel,
    common_type,
    function,
    is_big,
    is_number,
    to,
)
from firesteel.expressions.schema import BIG_DEC, BIG_INT, INSTANT, TIMESTAMP, arrow_type, is_nested, type_info_of
from firesteel.expressions.values import fitted

_ARITHMETIC = {"+": "add", "-": "subtract", "*": "multiply"}


def _kernel(name: str, call: FunctionCall) -> Kernel:
    return getattr(pc, name if call.wrap else f"{name}_checked")  # type: ignore[no-any-return]


def _number_type(call: FunctionCall) -> pa.DataType:
    call.refuse_unless(is_number, "numbers")
    number_type = common_type(call)
    return pa.int64() if number_type == pa.null() else number_type


def _floating_type(call: FunctionCall) -> pa.DataType:
    return pa.float32() if _number_type(call) == pa.float32() else pa.float64()


@function("+", "-", "*")
def _arithmetic(call: FunctionCall) -> tuple[pa.DataType, Kernel]:
    left_type, right_type = (operand.data_type for operand in call.inputs)
    if call.name == "+" and pt.is_string(left_type) and pt.is_string(right_type):
        return pa.string(), lambda a, b: pc.binary_join_element_wise(a, b, "", null_handling="emit_null")
    if left_type in (TIMESTAMP, INSTANT) and pt.is_duration(right_type) and call.name in "+-":
        shift = pc.add_checked if call.name == "+" else pc.subtract_checked
        return left_type, lambda a, b: pc.cast(shift(a, b), left_type)
    if left_type == right_type and left_type in (TIMESTAMP, INSTANT):
        raise InputsRefused("the difference of timestamps has no type; subtract their dt.epoch_millis()")
    data_type, kernel = _number_type(call), _kernel(_ARITHMETIC[call.name], call)
    return data_type, lambda a, b: kernel(to(a, data_type), to(b, data_type))


@function("/")
def _true_division(call: FunctionCall) -> tuple[pa.DataType, Kernel]:
    data_type = _floating_type(call)
    return data_type, lambda a, b: pc.divide(to(a, data_type), to(b, data_type))


@function("//", "%")
def _python_division(call: FunctionCall) -> tuple[pa.DataType, Kernel]:
    """Rounded down, the remainder with the sign of the divisor, as Python does; numpy has kernels for it."""
    data_type = _number_type(call)
    divide = np.floor_divide if call.name == "//" else np.remainder
    integer, checked = pt.is_integer(data_type), not call.wrap

    def kernel(a: Any, b: Any) -> Any:
        count = next((len(operand) for operand in (a, b) if not isinstance(operand, pa.Scalar)), None)
        rows = 1 if count is None else count
        dividends, dividend_nulls = _numpy(to(a, data_type), rows, 0)
        divisors, divisor_nulls = _numpy(to(b, data_type), rows, 1)
        if integer:
            _check_division(dividends, divisors, dividend_nulls | divisor_nulls, checked and call.name == "//")
        with np.errstate(all="ignore"):
            result = pa.array(divide(dividends, divisors), type=data_type, mask=dividend_nulls | divisor_nulls)
        return result[0] if count is None else result

    return data_type, kernel


def _numpy(value: Any, count: int, filler: int) -> tuple[Any, Any]:
    """As an array without nulls, and where the nulls were."""
    if isinstance(value, pa.Scalar):
        value = pa.repeat(value, count)
    nulls = np.zeros(count, bool) if value.null_count == 0 else pc.is_null(value).to_numpy(zero_copy_only=False)
    filled = value if value.null_count == 0 else pc.fill_null(value, pa.scalar(filler, value.type))
    return filled.to_numpy(zero_copy_only=False), nulls


def _check_division(dividends: Any, divisors: Any, nulls: Any, overflow: bool) -> None:
    if ((divisors == 0) & ~nulls).any():
        raise ZeroDivisionError("division by zero")
    if overflow and ((dividends == np.iinfo(dividends.dtype).min) & (divisors == -1) & ~nulls).any():
        raise OverflowError("overflow")


@function("**")
def _power(call: FunctionCall) -> tuple[pa.DataType, Kernel]:
    data_type, exponent = _number_type(call), call.inputs[1].value
    whole = pt.is_integer(data_type) and exponent is not None and exponent.is_valid and exponent.as_py() >= 0
    if whole:
        kernel = _kernel("power", call)
        return data_type, lambda a, b: kernel(to(a, data_type), to(b, data_type))
    floating = pa.float32() if data_type == pa.float32() else pa.float64()
    return floating, lambda a, b: pc.power(to(a, floating), to(b, floating))


@function("negate", "abs")
def _sign(call: FunctionCall) -> tuple[pa.DataType, Kernel]:
    data_type, kernel = _number_type(call), _kernel(call.name, call)
    return data_type, lambda a: kernel(to(a, data_type))


@function("round", "floor", "ceil")
def _rounding(call: FunctionCall) -> tuple[pa.DataType, Kernel]:
    data_type = _number_type(call)
    digits = call.options.get("digits", 0)
    if pt.is_integer(data_type):
        if digits < 0:
            raise InputsRefused("whole numbers can't be rounded to tens; divide and multiply with //")
        return data_type, lambda a: to(a, data_type)
    if call.name == "round":
        return data_type, lambda a: pc.round(a, ndigits=digits, round_mode="half_to_even")
    return data_type, getattr(pc, call.name)


@function("sqrt", "exp", "ln")
def _real(call: FunctionCall) -> tuple[pa.DataType, Kernel]:
    data_type, kernel = _floating_type(call), getattr(pc, call.name)
    return data_type, lambda a: kernel(to(a, data_type))


@function("cast")
def _cast(call: FunctionCall) -> tuple[pa.DataType, Kernel]:
    source, target = call.inputs[0].data_type, arrow_type(call.options["type_info"])
    if target is None:
        raise InputsRefused(f"no column can be {call.options['type_info']}")
    safe = not call.wrap
    if source in (target, pa.null()):
        return target, lambda a: to(a, target)
    if pt.is_integer(source) and pt.is_integer(target):
        return target, lambda a: pc.cast(a, target, safe=safe)
    if pt.is_floating(source) and pt.is_integer(target):
        return target, lambda a: pc.cast(pc.trunc(a), target)
    if is_number(target) and (is_number(source) or pt.is_boolean(source)):
        return target, lambda a: pc.cast(a, target, safe=False)
    if pt.is_boolean(target) and is_number(source):
        return target, lambda a: pc.not_equal(a, pa.scalar(0, source))
    if pt.is_string(target) and (is_number(source) or pt.is_boolean(source) or pt.is_temporal(source)):
        return target, lambda a: pc.cast(a, target)
    if is_big(source) or is_big(target):
        return _cast_big(source, target, safe)
    if source == INSTANT and target in (TIMESTAMP, pa.date32()):
        return (
            target,
            lambda a: (
                pc.cast(pc.floor_temporal(pc.cast(a, TIMESTAMP), unit="day"), target)
                if (target == pa.date32())
                else pc.cast(a, target)
            ),
        )
    if source in (TIMESTAMP, pa.date32()) and target == INSTANT:
        return target, lambda a: pc.cast(pc.cast(a, TIMESTAMP), INSTANT)
    if pt.is_string(source) and not (pt.is_binary(target) or is_nested(target)):
        return target, lambda a: pc.cast(a, target)
    if source == TIMESTAMP and target == pa.date32():
        return target, lambda a: pc.cast(pc.floor_temporal(a, unit="day"), target)
    if source == pa.date32() and target == TIMESTAMP:
        return target, lambda a: pc.cast(a, target)
    hint = "; take dt.epoch_millis()" if source in (TIMESTAMP, INSTANT) and is_number(target) else ""
    raise InputsRefused(f"{call.inputs[0]} can't become {call.options['type_info']}{hint}")


def _cast_big(source: pa.DataType, target: pa.DataType, safe: bool) -> tuple[pa.DataType, Kernel]:
    """Numbers without bounds go by way of their text where Arrow has no cast."""
    if pt.is_integer(source) or (source == BIG_INT and target == BIG_DEC):
        return target, lambda a: to(a, target)
    if source == BIG_INT and pt.is_integer(target):
        return target, lambda a: pc.cast(a, target, safe=safe)
    if pt.is_string(target) or pt.is_floating(target):
        return target, lambda a: pc.cast(pc.cast(a, pa.string()), target)
    if pt.is_string(source):
        return target, lambda a: _from_text(a, target)
    raise InputsRefused(f"{type_info_of(source)} can't become {type_info_of(target)}")


def _from_text(value: Any, target: pa.DataType) -> Any:
    if isinstance(value, pa.Scalar):
        return _from_text(pa.array([value.as_py()], pa.string()), target)[0]
    return fitted(value, target)
