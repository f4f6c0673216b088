"""What a function of expressions is: a check of its inputs' types that gives the type of the result and a kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from firesteel.common.typeinfo import TypeInformation
from firesteel.expressions.schema import BIG_DEC, BIG_INT, TIMESTAMP, type_info_of

Kernel = Callable[..., Any]
"""Takes an array or a scalar for each input, gives an array, or a scalar if all inputs are scalars."""


class InputsRefused(Exception):
    """The inputs of a function do not fit; the text says which and why."""


@dataclass(frozen=True)
class Operand:
    """Type of an input; its value if it is a constant; its declared type if it is a column or a part of one."""

    data_type: pa.DataType
    value: pa.Scalar | None = None
    type_info: TypeInformation | None = None

    def __str__(self) -> str:
        if self.data_type == pa.null():
            return "null"
        if self.type_info is not None:
            return str(self.type_info)
        try:
            return str(type_info_of(self.data_type))
        except TypeError:
            return "a timedelta"


@dataclass(frozen=True)
class FunctionCall:
    """One use of a function.

    Attributes:
        wrap: integers that overflow wrap around.
    """

    name: str
    inputs: tuple[Operand, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    wrap: bool = False

    def refuse_unless(self, fits: Callable[[pa.DataType], bool], wanted: str) -> None:
        """Every input has to be of this kind, or null.

        Raises:
            Refused: one is not.
        """
        for one in self.inputs:
            if one.data_type != pa.null() and not fits(one.data_type):
                hint = "; cast it to DOUBLE" if wanted == "numbers" and is_big(one.data_type) else ""
                raise InputsRefused(f"{self.name} takes {wanted}, not {one}{hint}")


Definition = Callable[[FunctionCall], tuple[pa.DataType, Kernel] | tuple[pa.DataType, Kernel, TypeInformation]]
FUNCTIONS: dict[str, Definition] = {}
"""By name. A definition raises ``InputsRefused`` when the inputs do not fit."""


def function(*names: str) -> Callable[[Definition], Definition]:
    def register(definition: Definition) -> Definition:
        FUNCTIONS.update(dict.fromkeys(names, definition))
        return definition

    return register


def is_number(data_type: pa.DataType) -> bool:
    """Integer or floating point."""
    return bool(pt.is_integer(data_type) or pt.is_floating(data_type))


def is_big(data_type: pa.DataType) -> bool:
    """A number without bounds."""
    return data_type in (BIG_INT, BIG_DEC)


def to(value: Any, data_type: pa.DataType) -> Any:
    """The value as this type; only for casts that lose nothing but the precision of large integers."""
    if value.type == data_type:
        return value
    if data_type == BIG_DEC:
        return pc.cast(pc.cast(value, pa.string()), BIG_DEC)
    return pc.cast(value, data_type, safe=data_type == BIG_INT)


def common_type(call: FunctionCall, operands: Sequence[Operand] | None = None) -> pa.DataType:
    """The type that operands are brought to. Constants adapt to columns where they fit.

    Raises:
        Refused: there is none.
    """
    operands = [one for one in (call.inputs if operands is None else operands) if one.data_type != pa.null()]
    types = [one.data_type for one in operands]
    if not types:
        return pa.null()
    if all(one == types[0] for one in types):
        return types[0]
    if all(map(is_number, types)):
        return _common_number(operands)
    if all(is_big(one) or pt.is_integer(one) for one in types):
        return BIG_DEC if BIG_DEC in types else BIG_INT
    if all(one in (pa.date32(), TIMESTAMP) for one in types):
        return TIMESTAMP
    other = next(one for one in operands if one.data_type != types[0] and not _go_together(one.data_type, types[0]))
    raise InputsRefused(f"{operands[0]} and {other} do not go together")


def _go_together(one: pa.DataType, other: pa.DataType) -> bool:
    return (is_number(one) and is_number(other)) or all(is_big(x) or pt.is_integer(x) for x in (one, other))


def _common_number(operands: Sequence[Operand]) -> pa.DataType:
    found: pa.DataType | None = None
    for one in operands:
        if one.value is None:
            found = one.data_type if found is None else _wider(found, one.data_type)
    for one in sorted((one for one in operands if one.value is not None), key=lambda o: pt.is_floating(o.data_type)):
        if found is None:
            found = one.data_type
        elif pt.is_floating(one.data_type):
            found = found if pt.is_floating(found) else pa.float64()
        elif pt.is_integer(found) and one.value is not None and not _fits(one.value.as_py(), found):
            found = pa.int64()
    assert found is not None
    return found


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if pt.is_integer(one) and pt.is_integer(other):
        return one if one.bit_width >= other.bit_width else other
    small = all(pt.is_floating(t) or t.bit_width <= 16 for t in (one, other))
    return pa.float32() if small and pa.float64() not in (one, other) else pa.float64()


def _fits(value: int, data_type: pa.DataType) -> bool:
    half: int = 1 << (data_type.bit_width - 1)
    return -half <= value < half
