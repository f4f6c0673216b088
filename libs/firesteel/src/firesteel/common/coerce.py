"""Converts the results of users' functions to Python values of the declared type.

For each type a closure is built once. A value that fits already is returned as it is, and a row of basic types costs a
few hundred nanoseconds. Integers wrap as Java's narrowing does, or raise if they are strict.

Null is None. It is allowed as a field of a row or tuple, as an element of a list, object or boxed array, and as a value
of a map; not as the record itself, a map's key or an element of a primitive array.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable
from typing import Any, Final

from firesteel.common.coerce_scalars import NULL_REFUSED, Coercer, elements_of, inside, misfit
from firesteel.common.type_table import SCALARS, PartsRow, ScalarRow, Shape, field_names, parts_of, resolved, row_of
from firesteel.common.typeinfo import MapTypeInfo, RowTypeInfo, TupleTypeInfo, TypeInformation
from firesteel.common.types import Row, make_row
from firesteel.core.errors import TypeMismatchError

__all__ = ["make_coercer"]


def make_coercer(type_info: TypeInformation, *, strict_integers: bool = False) -> Callable[[object], Any] | None:
    """Build the function that converts values to a declared type.

    Args:
        type_info: the declared type.
        strict_integers: a number outside the declared integer type's range raises instead of wrapping.

    Returns:
        The function; None if the type takes any object, so that nothing is to be done. The function returns the value
        itself if it fits as it is, never changes it in place, and raises ``TypeMismatchError`` with the path of the
        field, the declared type and the value if it can't be converted.

    Raises:
        TypeError: the class of the type information is not known.
    """
    return _build(type_info, strict_integers)


def _build(declared: TypeInformation, strict: bool) -> Coercer | None:
    declared, row = resolved(declared)
    if isinstance(row, ScalarRow):
        return row.coerce_strictly if strict else row.coerce
    if row.shape is Shape.ANY:
        return None
    make = _WITH_PARTS.get(row.shape)
    if make is None:
        raise TypeError(f"Values can't be fitted to the type {declared} ({type(declared).__name__}).")
    return make(declared, strict)


def _never(values: Any) -> bool:
    return False


def _tests(types: tuple[TypeInformation, ...]) -> str:
    """Return the Python expression that is true if ``v0``, ``v1``, ... fit as they are; empty if a type has parts."""
    tests = []
    for i, declared in enumerate(types):
        row = row_of(declared)
        if not isinstance(row, ScalarRow):
            return ""
        test = f"type({{v}}) is {row.python_class.__name__}" + (f" and {row.fits}" if row.fits else "")
        tests.append(f"({test.format(v=f'v{i}')} or v{i} is None)")
    return " and ".join(tests)


def _compiled(name: str, source: str, **scope: Any) -> Any:
    """Compile a function for certain types, as ``namedtuple`` does; its source has only literals from the type table.

    A loop over the fields would take three times as long, and each further call as much as a field.
    """
    scope |= {row.python_class.__name__: row.python_class for row in SCALARS}
    scope["float32"] = ctypes.c_float
    exec(compile(source, "<firesteel type check>", "exec"), scope)
    return scope[name]


def _unpacked(count: int) -> str:
    return "".join(f"v{i}, " for i in range(count))


def _quick_check(types: tuple[TypeInformation, ...]) -> Callable[[Any], bool]:
    """Make the check whether a sequence of the right length fits as it is; always False if a type has parts."""
    tests = _tests(types)
    if not tests:
        return _never
    source = f"def fits(values):\n    {_unpacked(len(types))} = values\n    return {tests}\n"
    fits: Callable[[Any], bool] = _compiled("fits", source)
    return fits


class _Fields:
    """Converts the fields of rows and tuples; ``fits`` is the quick check for values that need no change."""

    def __init__(self, types: tuple[TypeInformation, ...], names: tuple[str, ...], strict: bool) -> None:
        self.names = names
        self.count = len(types)
        self.coercers = [_build(t, strict) for t in types]
        self.fits = _quick_check(types)

    def coerce(self, values: Any) -> list[Any]:
        """Return the converted values; ``values`` has the right length."""
        fitted: list[Any] = []
        add = fitted.append
        try:
            for coercer, value in zip(self.coercers, values, strict=True):
                add(value if value is None or coercer is None else coercer(value))
        except TypeMismatchError as error:
            raise inside(error, self.names[len(fitted)]) from None
        return fitted


def _all_same(former: Any, current: Any) -> bool:
    return all(map(operator.is_, former, current))


def _row_coercer(declared: RowTypeInfo, strict: bool) -> Coercer:
    names = declared.field_names
    fields = _Fields(declared.field_types, names, strict)
    count, fits, coerce, by_position = fields.count, fields.fits, fields.coerce, not declared.has_given_names

    def coerce_row(value: Any) -> Any:
        if type(value) is Row:
            row_fields = value._fields
            values = value._values
            if row_fields is names or row_fields == names:
                # The usual case: the row has the declared names, and perhaps fits as it is.
                if len(values) == count:
                    if fits(values):
                        return value
                    fitted = coerce(values)
                    return value if _all_same(fitted, values) else make_row(names, fitted, value._row_kind)
            # Names in another order are sorted. If the program has declared no names (f0, f1, ...), positions count,
            # unless the row has just these names.
            elif row_fields is not None and not (by_position and set(row_fields) != set(names)):
                if set(row_fields) != set(names):
                    raise misfit(declared, value, f"the row has the fields {list(row_fields)}")
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
        elif isinstance(value, Row):  # of a subclass: results are plain rows
            return coerce_row(make_row(value._fields, list(value._values), value._row_kind))
        else:
            raise misfit(declared, value, NULL_REFUSED if value is None else "a Row, tuple, list or dict is expected")
        raise misfit(declared, value, f"{len(values)} values for {count} fields")

    return coerce_row


def _tuple_coercer(declared: TupleTypeInfo, strict: bool) -> Coercer:
    names = field_names(declared)
    assert names is not None
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
            raise misfit(declared, value, NULL_REFUSED if value is None else "a tuple, list or Row is expected")
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


def _list_coercer(declared: TypeInformation, strict: bool) -> Coercer:
    row, (element,) = row_of(declared), parts_of(declared)
    coercer, nulls = _build(element, strict), isinstance(row, PartsRow) and row.null_elements

    def coerce_list(value: Any) -> Any:
        elements = elements_of(declared, value)
        fitted: list[Any] = []
        add = fitted.append
        try:
            for item in elements:
                if item is None and not nulls:
                    raise misfit(element, None, NULL_REFUSED)
                add(item if item is None or coercer is None else coercer(item))
        except TypeMismatchError as error:
            raise inside(error, f"[{len(fitted)}]") from None
        return value if type(value) is list and _all_same(fitted, value) else fitted

    return coerce_list


def _map_coercer(declared: MapTypeInfo, strict: bool) -> Coercer:
    fit_key = _build(declared.key_type, strict)
    fit_value = _build(declared.value_type, strict)

    def coerce_map(value: Any) -> Any:
        if not isinstance(value, dict):
            raise misfit(declared, value, NULL_REFUSED if value is None else "a dict is expected")
        fitted: dict[Any, Any] = {}
        changed = type(value) is not dict  # results are plain dicts, and the same dict if nothing had to be converted
        for key, item in value.items():
            if key is None and fit_key is not None:
                raise inside(misfit(declared.key_type, None, "null is not allowed as a key"), "[key]")
            try:
                new_key = key if fit_key is None else fit_key(key)
            except TypeMismatchError as error:
                raise inside(error, "[key]") from None
            try:
                new_item = item if item is None or fit_value is None else fit_value(item)
            except TypeMismatchError as error:
                raise inside(error, f"[{key!r:.50}]") from None
            changed = changed or new_key is not key or new_item is not item
            fitted[new_key] = new_item
        return fitted if changed else value

    return coerce_map


_WITH_PARTS: Final[dict[Shape, Callable[[Any, bool], Coercer]]] = {
    Shape.LIST: _list_coercer,
    Shape.MAP: _map_coercer,
    Shape.ROW: _row_coercer,
    Shape.TUPLE: _tuple_coercer,
}
