"""Turns what a user's function returned into the Python value of its declared type.

The closures are built once for each type; a value that fits already passes unchanged, and a row of basic
types costs a few hundred nanoseconds. Integers wrap as Java's narrowing does, or raise when strict.

Null is None. It is allowed as a field of a row or tuple, as an element of a list, object or boxed array and
as a value of a map; not as the record itself, a map's key or an element of a primitive array.
"""

from __future__ import annotations

import ctypes
import operator
from array import array
from collections.abc import Callable
from typing import Any

from firesteel.common.coerce_basic import Coercer, basic_coercer, misfit, temporal_coercer
from firesteel.common.typeinfo import (
    BasicArrayTypeInfo,
    BasicType,
    BasicTypeInfo,
    ExternalTypeInfo,
    ListTypeInfo,
    LocalTimeTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    SqlTimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from firesteel.common.types import Row, make_row
from firesteel.core.errors import TypeMismatchError

__all__ = ["make_coercer"]

_NULL = "null is not allowed here"
_TESTS = {
    BasicType.STRING: "type({v}) is str",
    BasicType.BOOLEAN: "type({v}) is bool",
    BasicType.BYTE: "type({v}) is int and -0x80 <= {v} <= 0x7f",
    BasicType.SHORT: "type({v}) is int and -0x8000 <= {v} <= 0x7fff",
    BasicType.INT: "type({v}) is int and -0x80000000 <= {v} <= 0x7fffffff",
    BasicType.LONG: "type({v}) is int and -0x8000000000000000 <= {v} <= 0x7fffffffffffffff",
    BasicType.FLOAT: "type({v}) is float and float32({v}).value == {v}",
    BasicType.DOUBLE: "type({v}) is float",
    BasicType.BIG_INT: "type({v}) is int",
}
_INTEGER = "the value is outside the type's range"


def make_coercer(type_info: TypeInformation, *, strict_integers: bool = False) -> Callable[[object], Any] | None:
    """Builds the function that fits values to a declared type.

    Args:
        type_info: the declared type.
        strict_integers: a number outside the declared integer type's range raises instead of wrapping.

    Returns:
        The function, or None when the type takes any object and there is nothing to do. The function returns
        the value itself if it fits as it is, never changes it in place, and raises ``TypeMismatchError`` with
        the path of the field, the declared type and the value if it can't be made to fit.

    Raises:
        TypeError: the type information is of a class unknown here.
    """
    return _build(type_info, strict_integers)


def _build(declared: TypeInformation, strict: bool) -> Coercer | None:
    if isinstance(declared, PickledBytesTypeInfo):
        return None
    if isinstance(declared, ExternalTypeInfo):
        return _build(declared.type_info, strict)
    if isinstance(declared, BasicTypeInfo):
        return basic_coercer(declared, strict)
    if isinstance(declared, (SqlTimeTypeInfo, LocalTimeTypeInfo)):
        return temporal_coercer(declared)
    if isinstance(declared, RowTypeInfo):
        return _row_coercer(declared, strict)
    if isinstance(declared, TupleTypeInfo):
        return _tuple_coercer(declared, strict)
    if isinstance(declared, PrimitiveArrayTypeInfo):
        if declared.element_type == BasicTypeInfo.BYTE_TYPE_INFO():
            return _bytes_coercer(declared, strict)
        return _list_coercer(declared, declared.element_type, strict, nulls=False)
    if isinstance(declared, (BasicArrayTypeInfo, ObjectArrayTypeInfo, ListTypeInfo)):
        return _list_coercer(declared, declared.element_type, strict, nulls=True)
    if isinstance(declared, MapTypeInfo):
        return _map_coercer(declared, strict)
    raise TypeError(f"Values can't be fitted to the type {declared} ({type(declared).__name__}).")


def _inside(error: TypeMismatchError, name: str) -> TypeMismatchError:
    """The error as it reads from one level further out."""
    inner = error.field
    path = name + inner if inner.startswith("[") or not inner else f"{name}.{inner}"
    return TypeMismatchError(path, error.declared, error.value, error.reason)


def _never(values: Any) -> bool:
    return False


def _tests(types: tuple[TypeInformation, ...]) -> str:
    """An expression that says whether ``v0``, ``v1``, ... fit as they are; empty if that takes more than one."""
    tests = []
    for i, declared in enumerate(types):
        test = _TESTS.get(declared.basic_type) if isinstance(declared, BasicTypeInfo) else None
        if test is None:
            return ""
        tests.append(f"({test.format(v=f'v{i}')} or v{i} is None)")
    return " and ".join(tests)


def _compiled(name: str, source: str, **scope: Any) -> Any:
    """A function for the types at hand, as ``namedtuple`` makes some; its text is made of literals of this module only.

    A loop over the fields takes three times as long, and each call as much as a field.
    """
    scope["float32"] = ctypes.c_float
    exec(compile(source, "<firesteel type check>", "exec"), scope)
    return scope[name]


def _unpacked(count: int) -> str:
    return "".join(f"v{i}, " for i in range(count))


def _quick_check(types: tuple[TypeInformation, ...]) -> Callable[[Any], bool]:
    """A function that says whether a sequence of the right length fits as it is; with fields of other types: never."""
    tests = _tests(types)
    if not tests:
        return _never
    source = f"def fits(values):\n    {_unpacked(len(types))} = values\n    return {tests}\n"
    fits: Callable[[Any], bool] = _compiled("fits", source)
    return fits


class _Fields:
    """Fits the fields of rows and tuples; ``fits`` is the quick way for values that need no change."""

    def __init__(self, types: tuple[TypeInformation, ...], names: tuple[str, ...], strict: bool) -> None:
        self.names = names
        self.count = len(types)
        self.coercers = [_build(t, strict) for t in types]
        self.fits = _quick_check(types)

    def coerce(self, values: Any) -> list[Any]:
        """Returns the fitted values; ``values`` has the right length."""
        fitted: list[Any] = []
        add = fitted.append
        try:
            for coercer, value in zip(self.coercers, values, strict=True):
                add(value if value is None or coercer is None else coercer(value))
        except TypeMismatchError as error:
            raise _inside(error, self.names[len(fitted)]) from None
        return fitted


def _all_same(left: Any, right: Any) -> bool:
    return all(map(operator.is_, left, right))


def _row_coercer(declared: RowTypeInfo, strict: bool) -> Coercer:
    names = declared.field_names
    fields = _Fields(declared.field_types, names, strict)
    count, fits, coerce, by_position = fields.count, fields.fits, fields.coerce, not declared.has_given_names

    def coerce_row(value: Any) -> Any:
        if type(value) is Row:
            own = value._fields
            values = value._values
            if own is names or own == names:
                if len(values) == count:
                    if fits(values):
                        return value
                    fitted = coerce(values)
                    return value if _all_same(fitted, values) else make_row(names, fitted, value._row_kind)
            elif own is not None and not (by_position and set(own) != set(names)):
                if set(own) != set(names):
                    raise misfit(declared, value, f"the row has the fields {list(own)}")
                values = value.get_fields_by_names(names)
            if len(values) == count:
                return make_row(names, list(values) if fits(values) else coerce(values), value._row_kind)
        elif isinstance(value, (tuple, list)):
            values = list(value)
            if len(values) == count:
                return make_row(names, values if fits(values) else coerce(values))
        elif isinstance(value, dict):
            unknown = [key for key in value if key not in names]
            if unknown:
                raise misfit(declared, value, f"the keys {unknown!r} are not fields")
            return make_row(names, coerce([value.get(name) for name in names]))
        elif isinstance(value, Row):
            return coerce_row(make_row(value._fields, list(value._values), value._row_kind))
        else:
            raise misfit(declared, value, _NULL if value is None else "a Row, tuple, list or dict is expected")
        raise misfit(declared, value, f"{len(values)} values for {count} fields")

    return coerce_row


def _tuple_coercer(declared: TupleTypeInfo, strict: bool) -> Coercer:
    names = tuple(f"f{i}" for i in range(len(declared.field_types)))
    fields = _Fields(declared.field_types, names, strict)
    count, coerce = fields.count, fields.coerce

    def coerce_tuple(value: Any) -> Any:
        if type(value) is tuple:
            if len(value) == count:
                fitted = coerce(value)
                return value if _all_same(fitted, value) else tuple(fitted)
        elif isinstance(value, (tuple, list, Row)):
            if len(value) == count:
                return tuple(coerce(value))
        else:
            raise misfit(declared, value, _NULL if value is None else "a tuple, list or Row is expected")
        raise misfit(declared, value, f"{len(value)} values for {count} fields")

    tests = _tests(declared.field_types)
    if not tests:
        return coerce_tuple
    source = (
        "def quick_tuple(value):\n"
        f"    if value.__class__ is tuple and len(value) == {count}:\n"
        f"        {_unpacked(count)} = value\n"
        f"        if {tests}:\n            return value\n"
        "    return coerce_tuple(value)\n"
    )
    quick: Coercer = _compiled("quick_tuple", source, coerce_tuple=coerce_tuple)
    return quick


def _elements(declared: TypeInformation, value: Any) -> list[Any] | tuple[Any, ...]:
    """The elements of what may stand for a list: list, tuple, ``array.array``, a one-dimensional numpy array."""
    if isinstance(value, (list, tuple)):
        return value
    if isinstance(value, array):
        return value.tolist()
    if type(value).__module__ == "numpy" and getattr(value, "ndim", 0) == 1:
        elements: list[Any] = value.tolist()
        return elements
    raise misfit(declared, value, _NULL if value is None else "a list, tuple or array is expected")


def _list_coercer(declared: TypeInformation, element: TypeInformation, strict: bool, *, nulls: bool) -> Coercer:
    coercer = _build(element, strict)

    def coerce_list(value: Any) -> Any:
        elements = _elements(declared, value)
        fitted: list[Any] = []
        add = fitted.append
        try:
            for item in elements:
                if item is None and not nulls:
                    raise misfit(element, None, _NULL)
                add(item if item is None or coercer is None else coercer(item))
        except TypeMismatchError as error:
            raise _inside(error, f"[{len(fitted)}]") from None
        return value if type(value) is list and _all_same(fitted, value) else fitted

    return coerce_list


def _bytes_coercer(declared: TypeInformation, strict: bool) -> Coercer:
    def coerce_bytes(value: Any) -> Any:
        if type(value) is bytes:
            return value
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        fitted = bytearray()
        for i, item in enumerate(_elements(declared, value)):
            if not isinstance(item, int):
                raise _inside(misfit(BasicTypeInfo.BYTE_TYPE_INFO(), item, "an integer is expected"), f"[{i}]")
            if strict and not -128 <= item <= 255:
                raise _inside(misfit(BasicTypeInfo.BYTE_TYPE_INFO(), item, _INTEGER), f"[{i}]")
            fitted.append(item & 0xFF)
        return bytes(fitted)

    return coerce_bytes


def _map_coercer(declared: MapTypeInfo, strict: bool) -> Coercer:
    fit_key = _build(declared.key_type, strict)
    fit_value = _build(declared.value_type, strict)

    def coerce_map(value: Any) -> Any:
        if not isinstance(value, dict):
            raise misfit(declared, value, _NULL if value is None else "a dict is expected")
        fitted: dict[Any, Any] = {}
        changed = type(value) is not dict
        for key, item in value.items():
            if key is None and fit_key is not None:
                raise _inside(misfit(declared.key_type, None, "null is not allowed as a key"), "[key]")
            try:
                new_key = key if fit_key is None else fit_key(key)
            except TypeMismatchError as error:
                raise _inside(error, "[key]") from None
            try:
                new_item = item if item is None or fit_value is None else fit_value(item)
            except TypeMismatchError as error:
                raise _inside(error, f"[{key!r:.50}]") from None
            changed = changed or new_key is not key or new_item is not item
            fitted[new_key] = new_item
        return fitted if changed else value

    return coerce_map
