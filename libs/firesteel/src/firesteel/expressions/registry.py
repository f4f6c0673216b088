"""Registry of the functions of expressions: each checks its inputs' types and chooses a result type and a kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from firesteel.common.typeinfo import TypeInformation
from firesteel.core.plugins import import_target
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

    def refuse_unless(self, fits: Callable[[pa.DataType], bool], description: str) -> None:
        """Check that every input is of a kind, or null.

        Args:
            fits: whether a type is of the kind.
            description: of the kind, for the error, in the plural ("numbers").

        Raises:
            InputsRefused: an input is of another kind.
        """
        for operand in self.inputs:
            if operand.data_type != pa.null() and not fits(operand.data_type):
                hint = "; cast it to DOUBLE" if description == "numbers" and is_big(operand.data_type) else ""
                raise InputsRefused(f"{self.name} takes {description}, not {operand}{hint}")


Definition = Callable[[FunctionCall], tuple[pa.DataType, Kernel] | tuple[pa.DataType, Kernel, TypeInformation]]
FUNCTIONS: dict[str, Definition] = {}
"""Definitions of functions by name. A definition raises ``InputsRefused`` when the inputs do not fit."""


def definition_of(name: str) -> Definition:
    """The definition of a function; those of plug-ins are named by module and function, ``package.module:function``."""
    function = FUNCTIONS.get(name)
    return import_target(name) if function is None else function


def function(*names: str) -> Callable[[Definition], Definition]:
    def register(definition: Definition) -> Definition:
        FUNCTIONS.update(dict.fromkeys(names, definition))
        return definition

    return register


def is_number(data_type: pa.DataType) -> bool:
    """Whether values are integers or floating point."""
    return bool(pt.is_integer(data_type) or pt.is_floating(data_type))


def is_big(data_type: pa.DataType) -> bool:
    """Whether values are numbers without bounds: BIG_INT or BIG_DEC."""
    return data_type in (BIG_INT, BIG_DEC)


def to(value: Any, data_type: pa.DataType) -> Any:
    """Cast an array or scalar to this type; only for casts that lose nothing but the precision of large integers."""
    if value.type == data_type:
        return value
    if data_type == BIG_DEC:
        return pc.cast(pc.cast(value, pa.string()), BIG_DEC)
    return pc.cast(value, data_type, safe=data_type == BIG_INT)


def common_type(call: FunctionCall, operands: Sequence[Operand] | None = None) -> pa.DataType:
    """The type that operands are brought to before a function compares or combines them.

    A constant takes the type of the columns beside it where its value fits: ``col("byte") + 1`` stays a byte.

    Raises:
        InputsRefused: the types do not go together.
    """
    operands = [
        operand for operand in (call.inputs if operands is None else operands) if operand.data_type != pa.null()
    ]
    types = [operand.data_type for operand in operands]
    if not types:
        return pa.null()
    if all(operand == types[0] for operand in types):
        return types[0]
    if all(map(is_number, types)):
        return _common_number(operands)
    if all(is_big(operand) or pt.is_integer(operand) for operand in types):
        return BIG_DEC if BIG_DEC in types else BIG_INT
    if all(operand in (pa.date32(), TIMESTAMP) for operand in types):
        return TIMESTAMP
    misfit = next(
        operand
        for operand in operands
        if operand.data_type != types[0] and not _go_together(operand.data_type, types[0])
    )
    raise InputsRefused(f"{operands[0]} and {misfit} do not go together")


def _go_together(first: pa.DataType, second: pa.DataType) -> bool:
    return (is_number(first) and is_number(second)) or all(is_big(x) or pt.is_integer(x) for x in (first, second))


def _common_number(operands: Sequence[Operand]) -> pa.DataType:
    # the columns decide first; a constant changes their type only if its value does not fit into it
    number_type: pa.DataType | None = None
    for operand in operands:
        if operand.value is None:
            number_type = operand.data_type if number_type is None else _wider(number_type, operand.data_type)
    for operand in sorted(
        (operand for operand in operands if operand.value is not None), key=lambda o: pt.is_floating(o.data_type)
    ):
        if number_type is None:
            number_type = operand.data_type
        elif pt.is_floating(operand.data_type):
            number_type = number_type if pt.is_floating(number_type) else pa.float64()
        elif pt.is_integer(number_type) and operand.value is not None and not _fits(operand.value.as_py(), number_type):
            number_type = pa.int64()
    assert number_type is not None
    return number_type


def _wider(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    if pt.is_integer(first) and pt.is_integer(second):
        return first if first.bit_width >= second.bit_width else second
    small = all(pt.is_floating(number) or number.bit_width <= 16 for number in (first, second))
    return pa.float32() if small and pa.float64() not in (first, second) else pa.float64()


def _fits(value: int, data_type: pa.DataType) -> bool:
    half: int = 1 << (data_type.bit_width - 1)
    return -half <= value < half
