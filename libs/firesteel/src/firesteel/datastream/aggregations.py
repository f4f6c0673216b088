"""The small functions that methods of streams put into operators: behind ``sum``, ``max_by``, ``project`` and so on.

They are functions and classes of this package, so that they travel by reference.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import is_dataclass, replace
from enum import Enum
from typing import Any

from firesteel.common.typeinfo import MapTypeInfo, PickledBytesTypeInfo, RowTypeInfo, TupleTypeInfo, TypeInformation
from firesteel.common.types import Row
from firesteel.core.errors import ProgramError
from firesteel.core.short_repr import short_repr
from firesteel.functions.functions import KeySelector

__all__ = [
    "AccumulateType",
    "FieldReduce",
    "KeyAndValue",
    "OneKey",
    "PickRecord",
    "Project",
    "check_position",
    "identity",
]

Position = int | str


class AccumulateType(Enum):
    """The running aggregates of keyed streams (PyFlink's name)."""

    MIN = 1
    MAX = 2
    MIN_BY = 3
    MAX_BY = 4
    SUM = 5


def check_position(method: str, position: Any, type_info: TypeInformation) -> Position:
    """A field's position or name, checked against the record type as far as that is known.

    Raises:
        TypeError: neither an int nor a str, or a name where fields have none.
        ValueError: the type has no such field.
    """
    if not isinstance(position, (int, str)) or isinstance(position, bool):
        raise TypeError(f"{method}() takes the position or name of a field, not {type(position).__name__}")
    if isinstance(type_info, (PickledBytesTypeInfo, MapTypeInfo)):
        return position
    if isinstance(position, str):
        if not isinstance(type_info, RowTypeInfo):
            raise TypeError(f"{method}({position!r}): the records are {type_info}, whose fields have no names")
        if position not in type_info.field_names:
            raise ValueError(f"{method}({position!r}): {type_info} has the fields {list(type_info.field_names)}")
        return position
    fields = len(type_info.field_types) if isinstance(type_info, (RowTypeInfo, TupleTypeInfo)) else 1
    if not 0 <= position < fields:
        raise ValueError(f"{method}({position}): {type_info} has {fields} field{'s' * (fields != 1)}, from 0")
    return position


def identity(value: Any) -> Any:
    """Return the record itself: the function of operators that only pass records on."""
    return value


def _field(record: Any, position: Position) -> Any:
    """A field of a row, tuple, list or dict, or by name of another object; a record without fields is its only one."""
    try:
        if isinstance(record, (Row, dict)) or (isinstance(record, (tuple, list)) and not isinstance(position, str)):
            return record[position]  # type: ignore[index]
        return getattr(record, position) if isinstance(position, str) else record
    except (AttributeError, LookupError, ValueError) as error:
        raise ProgramError(
            f"a record has no field {position!r}: {short_repr(record, 200)} ({type(record).__name__}); name one that "
            "all records have, or use reduce()"
        ) from error


def _with_field(record: Any, position: Position, value: Any) -> Any:
    """A copy of the record with one field replaced; a record without fields is replaced as a whole."""
    if isinstance(record, (Row, list, dict)):
        changed = copy(record)
        changed[position] = value  # type: ignore[index]
        return changed
    if isinstance(record, tuple):
        if isinstance(position, str):
            return record._replace(**{position: value})  # type: ignore[attr-defined] # it has fields with names
        values = (*record[:position], value, *record[position + 1 :])
        return type(record)(*values) if hasattr(record, "_fields") else values
    if isinstance(position, int):
        return value
    if is_dataclass(record) and not isinstance(record, type):
        return replace(record, **{position: value})
    changed = copy(record)
    setattr(changed, position, value)
    return changed


# NaN is above all other numbers here, as in Java and in aggregates of columns; it is what does not equal itself.


def smaller(first: Any, second: Any) -> Any:
    """The smaller one, the first of equals."""
    return second if second < first or (first != first and second == second) else first


def greater(first: Any, second: Any) -> Any:
    """The greater one, the first of equals."""
    return second if second > first or (second != second and first == first) else first


class FieldReduce:
    """Combines one field of two records; all other fields are the first record's.

    ``position`` and ``combine`` say all of it, to whoever would rather do it in place.
    """

    combinable = takes_first = combines_one_field = True

    def __init__(self, position: Position, combine: Callable[[Any, Any], Any]) -> None:
        self.position, self.combine = position, combine

    def __call__(self, first: Any, second: Any) -> Any:
        """Return the first record with the combined field."""
        position: Any = self.position
        if first.__class__ is tuple and position.__class__ is int:
            fields = list(first)
            fields[position] = self.combine(first[position], second[position])
            return tuple(fields)
        return _with_field(first, position, self.combine(_field(first, position), _field(second, position)))


class PickRecord:
    """Keeps the record whose field is smaller (or greater), the first of equals."""

    combinable = takes_first = True

    def __init__(self, position: Position, smallest: bool) -> None:
        self.position = position
        self.better = smaller if smallest else greater

    def __call__(self, first: Any, second: Any) -> Any:
        """Return the better of two records; the first one if they are equal."""
        first_value, second_value = _field(first, self.position), _field(second, self.position)
        return first if self.better(first_value, second_value) is first_value else second


class Project:
    """Some fields of a tuple, in the order given."""

    def __init__(self, indexes: tuple[int, ...]) -> None:
        self.indexes = indexes

    def __call__(self, value: Any) -> tuple[Any, ...]:
        """Return a tuple of the chosen fields."""
        return tuple(value[i] for i in self.indexes)


class KeyAndValue:
    """A row of key and record."""

    def __init__(self, key_selector: Callable[[Any], Any] | KeySelector[Any, Any]) -> None:
        self.key_of = key_selector.get_key if isinstance(key_selector, KeySelector) else key_selector

    def __call__(self, value: Any) -> Row:
        """Return a row of the key and the record."""
        return Row(self.key_of(value), value)


class OneKey:
    """The key of all records where windows are over a whole stream."""

    def __call__(self, value: Any) -> int:
        """The key, which is the same for all records."""
        return 0
