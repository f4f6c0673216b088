"""Reads plain data strictly: errors name the path of a field that is missing or has a wrong type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from firesteel.core.errors import CheckpointError

T = TypeVar("T")
Plain = Any
"""Data that JSON can represent."""
_NAMES = {str: "text", int: "an integer", bool: "true or false", dict: "an object", list: "a list"}


class CheckpointFormatError(CheckpointError):
    """Plain data of a checkpoint is malformed.

    Attributes:
        where: path of the field.
        reason: what is wrong.
    """

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.where, self.reason = where, reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.where, self.reason)


def member(value: Plain, kind: type[T], where: str) -> T:
    """Check that a value is of a type (tuples count as lists), and return it.

    Raises:
        CheckpointFormatError: it is not.
    """
    if type(value) is kind:
        return value
    if kind is list and type(value) is tuple:
        return list(value)  # type: ignore[return-value] # T is list here
    if kind is dict and isinstance(value, Mapping):
        return dict(value)  # type: ignore[return-value] # T is dict here
    actual = "nothing" if value is None else f"{type(value).__name__} {value!r:.60}"
    raise CheckpointFormatError(where, f"{_NAMES[kind]} is expected, not {actual}")


def whole_number(value: Plain, where: str) -> int:
    """Check that a value is an integer and not negative, and return it.

    Raises:
        CheckpointFormatError: it is not.
    """
    number = member(value, int, where)
    if number < 0:
        raise CheckpointFormatError(where, f"{number} is negative")
    return number


def each(value: Plain, read: Callable[[Plain, str], T], where: str) -> tuple[T, ...]:
    """Read the items of a list one by one; None counts as an empty list.

    Raises:
        CheckpointFormatError: the value is no list, or an item is malformed.
    """
    items: list[Plain] = member([] if value is None else value, list, where)
    return tuple(read(item, f"{where}[{position}]") for position, item in enumerate(items))


def named(value: Plain, read: Callable[[Plain, str], T], where: str) -> dict[str, T]:
    """Read the values of an object one by one; None counts as an empty object.

    Raises:
        CheckpointFormatError: the value is no object, a name is no text, or a value in it is malformed.
    """
    items: dict[Any, Plain] = member({} if value is None else value, dict, where)
    return {member(name, str, where): read(item, f"{where}[{name!r}]") for name, item in items.items()}
