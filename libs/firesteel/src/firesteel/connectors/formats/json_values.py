"""Converts JSON to values of declared types, and back, composed from the conversions in the table of types.

Two readers give the same values. ``quick_parser`` has msgspec read text straight into values. ``json_reader`` converts
what Python's ``json`` has parsed: it reads everything that Flink reads, and says what is wrong with other JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from types import GenericAlias
from typing import Any

import msgspec
from msgspec.structs import astuple

from firesteel.common.json_scalars import Convert, write_any
from firesteel.common.type_table import ScalarRow, Shape, field_names, parts_of, resolved, scalar_of
from firesteel.common.typeinfo import TypeInformation
from firesteel.common.types import make_row
from firesteel.expressions.values import row_values

# --- from what Python's json has parsed


def json_reader(
    declared: TypeInformation, *, fail_on_missing_field: bool = False, nulls_errors: bool = False
) -> Convert:
    """A function that converts a parsed JSON value to a value of a type; null is None. It raises ``ValueError``.

    Args:
        declared: the type.
        fail_on_missing_field: a row without one of the fields is an error.
        nulls_errors: a part that can't be read (a field, an element) is None; only the value as a whole is an error.

    Raises:
        TypeError: values of this type can't be read from JSON.
    """
    declared, row = resolved(declared)
    if isinstance(row, ScalarRow):
        return row.json.read
    if row.shape is Shape.ANY:
        return _same
    types = parts_of(declared)
    if row.shape is Shape.MAP and scalar_of(types[0]) is None:
        raise TypeError(f"keys of type {types[0]} can't be read from JSON")
    readers = [
        json_reader(part, fail_on_missing_field=fail_on_missing_field, nulls_errors=nulls_errors) for part in types
    ]
    if nulls_errors:
        readers = [_none_for_errors(reader) for reader in readers]
    match row.shape:
        case Shape.ROW:
            return _nullable(_row_reader(field_names(declared) or (), readers, fail_on_missing_field))
        case Shape.TUPLE:
            return _nullable(_tuple_reader(readers))
        case Shape.MAP:
            return _nullable(_map_reader(_key_of(types).parse, readers[1]))
        case Shape.LIST:
            return _nullable(_list_reader(readers[0]))
    raise TypeError(f"values of type {declared} can't be read from JSON")


def _none_for_errors(reader: Convert) -> Convert:
    def read(value: Any) -> Any:
        try:
            return reader(value)
        except (ValueError, ArithmeticError):
            return None

    return read


def _row_reader(names: tuple[str, ...], readers: list[Convert], fail_on_missing: bool) -> Convert:
    def read(value: Any) -> Any:
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


def _tuple_reader(readers: list[Convert]) -> Convert:
    def read(value: Any) -> Any:
        if type(value) is not list or len(value) != len(readers):
            raise ValueError(f"an array of {len(readers)} values is expected, not {value!r:.50}")
        return tuple(reader(item) for reader, item in zip(readers, value, strict=True))

    return read


def _list_reader(reader: Convert) -> Convert:
    def read(value: Any) -> Any:
        if type(value) is not list:
            raise ValueError(f"an array is expected, not {value!r:.50}")
        return [reader(item) for item in value]

    return read


def _map_reader(key_reader: Convert, reader: Convert) -> Convert:
    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise ValueError(f"an object is expected, not {value!r:.50}")
        return {key_reader(key): reader(item) for key, item in value.items()}

    return read


# --- from text that msgspec reads


def quick_parser(declared: TypeInformation | None, *, fail_on_missing_field: bool) -> Callable[[bytes], Any] | None:
    """A function that converts bytes to a value; None if msgspec can't have a field of such a name.

    It raises ``ValueError``, ``ArithmeticError`` or ``RecursionError`` for JSON that it does not read.
    """
    try:
        shape, convert = (Any, None) if declared is None else _shape(declared, fail_on_missing_field)
    except ValueError:
        return None
    if declared is not None and resolved(declared)[1].shape is not Shape.ROW:
        shape = _or_null(shape)
    exact = declared is not None and has_decimals(declared)
    decode = msgspec.json.Decoder(shape, float_hook=Decimal if exact else None).decode

    def parse(data: bytes) -> Any:
        str(data, "utf-8")  # msgspec does not check fields that it skips
        value = decode(data)
        return value if convert is None else convert(value)

    return parse


def _or_null(shape: Any) -> Any:
    return shape if shape in (Any, msgspec.Raw) else shape | None


def _shape(declared: TypeInformation, required: bool) -> tuple[Any, Convert | None]:
    """The type that msgspec decodes to, without null, and a function that converts it to the value; None = not needed.

    ``json_reader`` has accepted the type before.
    """
    declared, row = resolved(declared)
    if isinstance(row, ScalarRow):
        cell = row.json
        if cell.convert is None or cell.shape is msgspec.Raw:  # Raw may be null, too
            return cell.shape, cell.convert
        return cell.shape, _nullable(cell.convert)
    if row.shape is Shape.ANY:
        return Any, None
    types = parts_of(declared)
    pairs = [_shape(part, required) for part in types]
    shapes, converts = [_or_null(shape) for shape, _ in pairs], [convert for _, convert in pairs]
    match row.shape:
        case Shape.ROW:
            names, place = field_names(declared) or (), _placed(converts)
            struct = _struct(names, shapes, required)
            return struct, _nullable(lambda value: make_row(names, place(astuple(value))))
        case Shape.TUPLE:
            place = _placed(converts)
            return GenericAlias(tuple, tuple(shapes)), _nullable(lambda value: tuple(place(value)))
        case Shape.MAP:
            convert_key, convert_item = _key_of(types).parse, converts[1] or _same
            entries = GenericAlias(dict, (str, shapes[1]))
            return entries, _nullable(
                lambda value: {convert_key(key): convert_item(item) for key, item in value.items()}
            )
    (convert,) = converts
    array = GenericAlias(list, tuple(shapes))
    return array, None if convert is None else _nullable(lambda value: list(map(convert, value)))


def _struct(names: tuple[str, ...], shapes: list[Any], required: bool) -> Any:
    """The struct that msgspec decodes an object to: fields in the order of the row, None if missing unless required."""
    fields = [f"f{number}" for number in range(len(names))]
    kinds: list[Any] = [
        (field, shape) if required else (field, shape, None) for field, shape in zip(fields, shapes, strict=True)
    ]
    return msgspec.defstruct("Fields", kinds, rename=dict(zip(fields, names, strict=True)), gc=False)


def _placed(converts: Sequence[Convert | None]) -> Callable[[Sequence[Any]], list[Any]]:
    """A function that converts those values of a sequence that need a conversion."""
    converted = [(place, convert) for place, convert in enumerate(converts) if convert is not None]

    def place(items: Sequence[Any]) -> list[Any]:
        values = list(items)
        for number, convert in converted:
            values[number] = convert(values[number])
        return values

    return place


# --- to values that msgspec writes


def json_writer(declared: TypeInformation) -> Convert:
    """A function that converts a value of a type to one that ``msgspec.json`` encodes as Flink does.

    Raises:
        TypeError: values of this type can't be written as JSON.
    """
    declared, row = resolved(declared)
    if isinstance(row, ScalarRow):
        return row.json.write
    if row.shape is Shape.ANY:
        return write_any
    types = parts_of(declared)
    if row.shape is Shape.MAP and scalar_of(types[0]) is None:
        raise TypeError(f"keys of type {types[0]} can't be written as JSON")
    writers = [json_writer(part) for part in types]
    match row.shape:
        case Shape.ROW:
            names = field_names(declared) or ()

            def write_row(value: Any) -> Any:
                items = row_values(value, names)
                return {name: write(item) for name, write, item in zip(names, writers, items, strict=True)}

            return _nullable(write_row)
        case Shape.TUPLE:
            return _nullable(lambda value: [write(item) for write, item in zip(writers, value, strict=True)])
        case Shape.MAP:
            write_key, (_, write_item) = _key_of(types).text, writers
            return _nullable(lambda value: {write_key(key): write_item(item) for key, item in value.items()})
        case Shape.LIST:
            (write_element,) = writers
            return _nullable(lambda value: list(map(write_element, value)))
    raise TypeError(f"values of type {declared} can't be written as JSON")


def has_decimals(declared: TypeInformation) -> bool:
    """Whether there is a decimal number anywhere in the type."""
    row = scalar_of(declared)
    return any(map(has_decimals, parts_of(declared))) if row is None else row.name in ("BIG_DEC", "DECIMAL")


def _key_of(types: Sequence[TypeInformation]) -> ScalarRow:
    """The row of the table of types for the keys of a map, which are texts in JSON."""
    row = scalar_of(types[0])
    assert row is not None
    return row


def _nullable(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _same(value: Any) -> Any:
    return value
