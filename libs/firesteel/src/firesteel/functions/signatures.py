"""Checks that the functions of a program accept the arguments that they will be called with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final

from firesteel.functions.functions import Function

__all__ = ["check_methods", "check_parameters"]

_COLLECTORS: Final = frozenset({"out", "collector", "output"})
"""Names of a last parameter that is meant as a collector, as in Flink's Java API."""


def check_methods(function: Function, *classes: type[Function]) -> None:
    """Refuses a function whose methods can't be called as those of its class are.

    Raises:
        TypeError: names the method, its parameters, and those that it will be called with.
    """
    for cls in classes:
        for name, declared in inspect.getmembers(cls, inspect.isfunction):
            method = getattr(type(function), name, None)
            if name.startswith("_") or method is declared or not inspect.isfunction(method):
                continue
            _check(f"{type(function).__name__}.{name}", getattr(function, name), _parameters(declared)[1:])


def check_parameters(description: str, function: Callable[..., Any], cls: type[Function]) -> None:
    """Refuses a plain callable that can't be called as the only abstract method of a function class is.

    Raises:
        TypeError: says what it will be called with.
    """
    (name,) = cls.__abstractmethods__
    _check(description, function, _parameters(getattr(cls, name))[1:])


def _parameters(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


def _check(description: str, function: Callable[..., Any], expected: Sequence[str]) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # functions written in C may have no signature
        return
    try:
        signature.bind(*expected)
    except TypeError as error:
        names = list(signature.parameters)
        hint = ""
        if len(names) == len(expected) + 1 and names[-1] in _COLLECTORS:
            hint = f"; there is no collector as in Java: yield the results in place of {names[-1]}.collect(...)"
        raise TypeError(
            f"{description} takes ({', '.join(names)}), but is called with ({', '.join(expected)}): {error}{hint}"
        ) from None
