"""Comparison, logic, nulls and choices."""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from firesteel.expressions.registry import FunctionCall, InputsRefused, Kernel, common_type, function, is_number, to
from firesteel.expressions.schema import BIG_DEC, is_nested

_COMPARISONS = {
    "==": pc.equal, "!=": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_LOGIC = {"&": pc.and_kleene, "|": pc.or_kleene, "^": pc.xor}


def _boolean(call: FunctionCall) -> None:
    call.refuse_unless(pt.is_boolean, "Booleans")


@function(*_COMPARISONS)
def _comparison(call: FunctionCall) -> tuple[pa.DataType, Kernel]:
    data_type, kernel = common_type(call), _COMPARISONS[call.name]
    data_type = pa.bool_() if data_type == pa.null() else data_type
    if is_nested(data_type):
        raise InputsRefused(f"{call.inputs[0]} has parts, which can't be compared at once")
    if data_type == BIG_DEC:
        compare = _OPERATORS[call.name]
        return pa.bool_(), lambda a, b: _of_decimals(compare, to(a, BIG_DEC), to(b, BIG_DEC))
    return pa.bool_(), lambda a, b: kernel(to(a, data_type), to(b, data_type))


def _of_decimals(compare: Callable[[Any, Any], bool], a: Any, b: Any) -> Any:
    """Compare decimal numbers in Python: their texts sort otherwise, and no type of Arrow holds them all."""
    count = next((len(operand) for operand in (a, b) if not isinstance(operand, pa.Scalar)), None)
    pairs = zip(_decimals(a, count), _decimals(b, count), strict=True)
    results = pa.array([None if x is None or y is None else compare(x, y) for x, y in pairs], pa.bool_())
    return results[0] if count is None else results


def _decimals(value: Any, count: int | None) -> list[Any]:
    texts = [value.as_py()] * (1 if count is None else count) if isinstance(value, pa.Scalar) else value.to_pylist()
    return [None if text is None else Decimal(text) for text in texts]


@function(*_LOGIC)
def _logic(call: FunctionCall) -> tuple[pa.DataType, Kernel]:
    _boolean(call)
    kernel = _LOGIC[call.name]
    return pa.bool_(), lambda a, b: kernel(to(a, pa.bool_()), to(b, pa.bool_()))


@function("not")
def _not(call: FunctionCall) -> tuple[pa.DataType, Kernel]:
    _boolean(call)
    return pa.bool_(), lambda a: pc.invert(to(a, pa.bool_()))


@function("is_null")
def _is_null(call: FunctionCall) -> tuple[pa.DataType, Kernel]:
    return pa.bool_(), lambda a: pc.is_null(a)


@function("is_nan")
def _is_nan(call: FunctionCall) -> tuple[pa.DataType, Kernel]:
    call.refuse_unless(is_number, "numbers")
    data_type = call.inputs[0].data_type
    floating = data_type if pt.is_floating(data_type) else pa.float64()
    return pa.bool_(), lambda a: pc.is_nan(to(a, floating))


@function("is_in")
def _is_in(call: FunctionCall) -> tuple[pa.DataType, Kernel]:
    subject, *values = call.inputs
    if any(constant.value is None for constant in values):
        raise InputsRefused("is_in() takes constants; compare with == and | for other values")
    if any(constant.data_type == pa.null() for constant in values):
        raise InputsRefused("is_in() takes no None; add | and is_null()")
    data_type = common_type(call, [subject, *values])
    if is_nested(data_type) or data_type == BIG_DEC:
        raise InputsRefused(f"is_in() does not take {subject}; compare with == and |")
    data_type = pa.bool_() if data_type == pa.null() else data_type
    value_set = pa.array([constant.value.as_py() for constant in values if constant.value is not None], type=data_type)

    def kernel(a: Any, *_: Any) -> Any:
        a = to(a, data_type)
        return pc.if_else(pc.is_valid(a), pc.is_in(a, value_set=value_set), pa.scalar(None, pa.bool_()))

    return pa.bool_(), kernel


@function("coalesce")
def _coalesce(call: FunctionCall) -> tuple[pa.DataType, Kernel]:
    data_type = common_type(call)
    return data_type, lambda *values: pc.coalesce(*[to(value, data_type) for value in values])


@function("when")
def _when(call: FunctionCall) -> tuple[pa.DataType, Kernel]:
    *branches, otherwise = call.inputs
    conditions, values = branches[::2], branches[1::2]
    for operand in conditions:
        if operand.data_type not in (pa.bool_(), pa.null()):
            raise InputsRefused(f"when() takes a condition that is Boolean, not {operand}")
    data_type = common_type(call, [*values, otherwise])

    def kernel(*inputs: Any) -> Any:
        *chosen, result = inputs
        result = to(result, data_type)
        for condition, value in zip(reversed(chosen[::2]), reversed(chosen[1::2]), strict=True):
            holds = pc.coalesce(to(condition, pa.bool_()), pa.scalar(False))
            result = pc.if_else(holds, to(value, data_type), result)
        return result

    return data_type, kernel
