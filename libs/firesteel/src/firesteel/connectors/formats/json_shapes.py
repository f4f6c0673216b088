"""JSON straight into values of declared types, by msgspec: for all that it reads as ``json_values`` does.

It is stricter than those readers, so that it can come first: numbers in quotes, infinite ones or a lone surrogate it
refuses. Such input, and what is malformed, is read again by them, and errors are theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from types import GenericAlias
from typing import Annotated, Any, Final

import msgspec
from msgspec.structs import astuple

from firesteel.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    MapTypeInfo,
    PickledBytesTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from firesteel.common.types import make_row
from firesteel.connectors.formats.json_values import has_decimals
from firesteel.connectors.formats.type_texts import INTEGERS, from_text, to_float
from firesteel.expressions.schema import element_type, unwrapped

Convert = Callable[[Any], Any]
_BASIC: Final[dict[BasicType, tuple[Any, Convert | None]]] = {
    BasicType.BIG_INT: (int, None),
    BasicType.DOUBLE: (float, None),
    BasicType.FLOAT: (float, to_float),
    BasicType.BOOLEAN: (bool, None),
    BasicType.STRING: (str, None),
}


def quick_parser(declared: TypeInformation | None, *, fail_on_missing_field: bool) -> Callable[[bytes], Any] | None:
    """Bytes -> value; raises ``ValueError``, ``ArithmeticError`` or ``RecursionError`` at whatever it does not read.

    None: msgspec does not take the name of a field.
    """
    try:
        shape, convert = (Any, None) if declared is None else _shape(declared, fail_on_missing_field)
    except ValueError:
        return None
    if declared is not None and not isinstance(unwrapped(declared), RowTypeInfo):
        shape = _or_null(shape)
    exact = declared is not None and has_decimals(declared)
    decode = msgspec.json.Decoder(shape, float_hook=Decimal if exact else None).decode

    def parse(data: bytes) -> Any:
        str(data, "utf-8")  # what is passed over is UTF-8 too
        value = decode(data)
        return value if convert is None else convert(value)

    return parse


def _or_null(shape: Any) -> Any:
    return shape if shape in (Any, msgspec.Raw) else shape | None


def _shape(declared: TypeInformation, required: bool) -> tuple[Any, Convert | None]:
    """What msgspec reads, null left aside, and what makes the value of it; None = it is the value."""
    declared = unwrapped(declared)
    if isinstance(declared, PickledBytesTypeInfo):
        return Any, None
    if isinstance(declared, BasicTypeInfo) and declared.basic_type is BasicType.BIG_DEC:
        return msgspec.Raw, _decimal
    if isinstance(declared, BasicTypeInfo) and declared.basic_type in INTEGERS:
        most = 1 << (INTEGERS[declared.basic_type] - 1)
        return Annotated[int, msgspec.Meta(ge=-most, le=most - 1)], None
    if isinstance(declared, BasicTypeInfo) and declared.basic_type in _BASIC:
        shape, convert = _BASIC[declared.basic_type]
        return shape, None if convert is None else _nullable(convert)
    if isinstance(declared, RowTypeInfo):
        return _row(declared, required)
    if isinstance(declared, TupleTypeInfo):
        parts = [_shape(one, required) for one in declared.field_types]
        place = _placed([convert for _, convert in parts])
        return GenericAlias(tuple, tuple(_or_null(one) for one, _ in parts)), _nullable(
            lambda value: tuple(place(value))
        )
    if isinstance(declared, MapTypeInfo):
        return _map(declared, required)
    elements = element_type(declared)
    if elements is not None:
        inner, of_item = _shape(elements, required)
        many = GenericAlias(list, (_or_null(inner),))
        return many, None if of_item is None else _nullable(lambda values: [of_item(value) for value in values])
    parse = from_text(declared)
    assert parse is not None
    return str, _nullable(parse)


def _row(declared: RowTypeInfo, required: bool) -> tuple[Any, Convert]:
    names = declared.field_names
    parts = [_shape(one, required) for one in declared.field_types]
    fields = [f"f{number}" for number in range(len(names))]
    kinds: list[Any] = [
        (field, _or_null(shape)) if required else (field, _or_null(shape), None)
        for field, (shape, _) in zip(fields, parts, strict=True)
    ]
    renamed = dict(zip(fields, names, strict=True))
    struct = msgspec.defstruct("Fields", kinds, rename=renamed, gc=False)
    place = _placed([convert for _, convert in parts])
    return struct, _nullable(lambda value: make_row(names, place(astuple(value))))


def _map(declared: MapTypeInfo, required: bool) -> tuple[Any, Convert | None]:
    shape, of_item = _shape(declared.value_type, required)
    of_key = from_text(unwrapped(declared.key_type))
    assert of_key is not None
    entries = GenericAlias(dict, (str, _or_null(shape)))
    item = of_item or _same
    return entries, _nullable(lambda value: {of_key(key): item(one) for key, one in value.items()})


def _placed(converts: list[Convert | None]) -> Callable[[tuple[Any, ...]], list[Any]]:
    """What converts the values that have to be."""
    wanted = [(place, convert) for place, convert in enumerate(converts) if convert is not None]

    def place(found: tuple[Any, ...]) -> list[Any]:
        values = list(found)
        for number, convert in wanted:
            values[number] = convert(values[number])
        return values

    return place


def _nullable(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _same(value: Any) -> Any:
    return value


def _decimal(raw: Any) -> Decimal | None:
    text = b"null" if raw is None else bytes(raw)
    if text == b"null":
        return None
    if text[0] not in b"-0123456789" or text == b"-0":
        raise ValueError("no number, or none as text has it")
    return Decimal(text.decode("ascii"))
