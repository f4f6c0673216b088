"""JSON values and values of declared types."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from math import isfinite
from typing import Any, Final

import msgspec

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
from firesteel.common.value_texts import single
from firesteel.connectors.formats.type_texts import (
    INTEGERS,
    from_text,
    integer,
    to_float,
    to_text,
    whole_number,
)
from firesteel.expressions.schema import element_type, unwrapped
from firesteel.expressions.values import row_values

Convert = Callable[[Any], Any]
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def json_reader(declared: TypeInformation, *, fail_on_missing_field: bool = False) -> Convert:
    """What turns a parsed JSON value into one of this type; null is None. The function raises ``ValueError``.

    Raises:
        TypeError: values of this type can't be read from JSON.
    """
    declared = unwrapped(declared)
    if isinstance(declared, PickledBytesTypeInfo):
        return lambda value: value
    if isinstance(declared, BasicTypeInfo):
        return _basic_reader(declared)
    if isinstance(declared, RowTypeInfo):
        return _row_reader(declared, fail_on_missing_field)
    if isinstance(declared, TupleTypeInfo):
        return _tuple_reader(declared, fail_on_missing_field)
    if isinstance(declared, MapTypeInfo):
        return _map_reader(declared, fail_on_missing_field)
    elements = element_type(declared)
    if elements is not None:
        return _list_reader(json_reader(elements, fail_on_missing_field=fail_on_missing_field))
    parse = from_text(declared)
    if parse is None:
        raise TypeError(f"values of type {declared} can't be read from JSON")
    return _text_reader(parse)


def _text_reader(parse: Callable[[str], Any]) -> Convert:
    def read(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is not str:
            raise ValueError(f"a text is expected, not {value!r:.50}")
        return parse(value)

    return read


def _basic_reader(declared: BasicTypeInfo) -> Convert:
    basic, parse = declared.basic_type, from_text(declared)
    assert parse is not None
    if basic in INTEGERS or basic is BasicType.BIG_INT:
        return _integer_reader(INTEGERS.get(basic))
    if basic in (BasicType.FLOAT, BasicType.DOUBLE, BasicType.BIG_DEC):
        makes: dict[BasicType, Convert] = {
            BasicType.BIG_DEC: _decimal, BasicType.FLOAT: lambda value: to_float(float(value)), BasicType.DOUBLE: float,
        }  # fmt: skip
        return _number_reader(makes[basic], parse)
    if basic is BasicType.BOOLEAN:
        return lambda value: value if value is None or value is True or value is False else _expect_text(value, parse)
    if basic is BasicType.STRING:
        return _string
    return _text_reader(parse)


def _string(value: Any) -> Any:
    if value is None or type(value) is str:
        return value
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, (int, float, Decimal)):
        return str(value)
    raise ValueError(f"a text is expected, not {value!r:.50}")


def _expect_text(value: Any, parse: Callable[[str], Any]) -> Any:
    if type(value) is not str:
        raise ValueError(f"a value of another type: {value!r:.50}")
    return parse(value)


def _integer_reader(bits: int | None) -> Convert:
    def read(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is str:
            value = whole_number(value)
        if type(value) is not int:
            raise ValueError(f"an integer is expected, not {value!r:.50}")
        return value if bits is None else integer(value, bits)

    return read


class _NoDecimal(float):
    """A number of which no decimal can be made."""


def decimal_or_float(text: str) -> Decimal | float:
    """A number with a point or an exponent; one that is no decimal is refused by who wants it as one."""
    try:
        return Decimal(text)
    except ArithmeticError:
        return _NoDecimal(text)


def _decimal(value: int | float | Decimal) -> Decimal:
    if type(value) is _NoDecimal:
        raise ArithmeticError(value)
    return Decimal(value)


def _number_reader(make: Callable[[Any], Any], parse: Callable[[str], Any]) -> Convert:
    def read(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is str:
            return parse(value)
        if value is True or value is False or not isinstance(value, (int, float, Decimal)):
            raise ValueError(f"a number is expected, not {value!r:.50}")
        try:
            return make(value)
        except OverflowError:
            raise ValueError(f"{str(value)[:20]}... is too large") from None

    return read


def _row_reader(declared: RowTypeInfo, fail_on_missing: bool) -> Convert:
    names = declared.field_names
    readers = [json_reader(t, fail_on_missing_field=fail_on_missing) for t in declared.field_types]

    def read(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is not dict:
            raise ValueError(f"an object is expected, not {value!r:.50}")
        values: list[Any] = []
        try:
            for name, reader in zip(names, readers, strict=True):
                if fail_on_missing and name not in value:
                    raise ValueError("the field is missing")
                values.append(reader(value.get(name)))
        except ValueError as error:
            raise ValueError(f"field {names[len(values)]!r}: {error}") from None
        return make_row(names, values)

    return read


def _tuple_reader(declared: TupleTypeInfo, fail_on_missing: bool) -> Convert:
    readers = [json_reader(t, fail_on_missing_field=fail_on_missing) for t in declared.field_types]

    def read(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is not list or len(value) != len(readers):
            raise ValueError(f"an array of {len(readers)} values is expected, not {value!r:.50}")
        return tuple(reader(item) for reader, item in zip(readers, value, strict=True))

    return read


def _list_reader(reader: Convert) -> Convert:
    def read(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is not list:
            raise ValueError(f"an array is expected, not {value!r:.50}")
        return [reader(item) for item in value]

    return read


def _map_reader(declared: MapTypeInfo, fail_on_missing: bool) -> Convert:
    key_reader = from_text(unwrapped(declared.key_type))
    if key_reader is None:
        raise TypeError(f"keys of type {declared.key_type} can't be read from JSON")
    reader = json_reader(declared.value_type, fail_on_missing_field=fail_on_missing)

    def read(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is not dict:
            raise ValueError(f"an object is expected, not {value!r:.50}")
        return {key_reader(key): reader(item) for key, item in value.items()}

    return read


def json_writer(declared: TypeInformation) -> Convert:
    """What turns a value of this type into one that ``msgspec.json`` writes as it should.

    Raises:
        TypeError: values of this type can't be written as JSON.
    """
    declared = unwrapped(declared)
    if isinstance(declared, PickledBytesTypeInfo):
        return _as_json
    if isinstance(declared, BasicTypeInfo) and declared.basic_type in _WRITERS:
        return _WRITERS[declared.basic_type]
    if isinstance(declared, RowTypeInfo):
        names = declared.field_names
        writers = [json_writer(t) for t in declared.field_types]
        return lambda value: None if value is None else dict(zip(names, _fields(value, names, writers), strict=True))
    if isinstance(declared, TupleTypeInfo):
        parts = [json_writer(t) for t in declared.field_types]
        return lambda value: None if value is None else [w(v) for w, v in zip(parts, value, strict=True)]
    if isinstance(declared, MapTypeInfo):
        write_key, write_value = to_text(unwrapped(declared.key_type)), json_writer(declared.value_type)
        if write_key is None:
            raise TypeError(f"keys of type {declared.key_type} can't be written as JSON")
        return lambda value: (
            None if value is None else {write_key(key): write_value(item) for key, item in value.items()}
        )
    elements = element_type(declared)
    if elements is not None:
        write = json_writer(elements)
        return lambda value: None if value is None else [write(item) for item in value]
    text = to_text(declared)
    if text is None:
        raise TypeError(f"values of type {declared} can't be written as JSON")
    return lambda value: None if value is None else text(value)


def _as_json(value: Any) -> Any:
    """As Python writes it: msgspec takes more, such as bytes and NaN."""
    return None if value is None else msgspec.Raw(_encode(value).encode())


def _of(kind: type) -> Convert:
    return lambda value: value if value is None or type(value) is kind else _as_json(value)


def _float_writer(value: Any) -> Any:
    return None if value is None else _double_writer(single(value))


def _double_writer(value: Any) -> Any:
    return value if type(value) is float and isfinite(value) else _as_json(value)


def _decimal_writer(value: Any) -> Any:
    if value is None:
        return None
    if not value.is_finite():
        raise ValueError(f"{value} can't be written as JSON")
    return msgspec.Raw(str(value).encode())


_WRITERS: Final[dict[BasicType, Convert]] = {
    **dict.fromkeys((*INTEGERS, BasicType.BIG_INT), _of(int)),
    **dict.fromkeys((BasicType.STRING, BasicType.CHAR), _of(str)),
    BasicType.BOOLEAN: _of(bool),
    BasicType.FLOAT: _float_writer,
    BasicType.DOUBLE: _double_writer,
    BasicType.BIG_DEC: _decimal_writer,
}


def _fields(value: Any, names: tuple[str, ...], writers: list[Convert]) -> list[Any]:
    return [write(item) for write, item in zip(writers, row_values(value, names), strict=True)]


def has_decimals(declared: TypeInformation) -> bool:
    """Whether a decimal number is somewhere in the type."""
    declared = unwrapped(declared)
    if isinstance(declared, (RowTypeInfo, TupleTypeInfo)):
        return any(has_decimals(t) for t in declared.field_types)
    if isinstance(declared, MapTypeInfo):
        return has_decimals(declared.key_type) or has_decimals(declared.value_type)
    elements = element_type(declared)
    if elements is not None:
        return has_decimals(elements)
    return isinstance(declared, BasicTypeInfo) and declared.basic_type is BasicType.BIG_DEC
