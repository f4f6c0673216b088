"""Checks of what a program hands to the API; all raise at once, where the user's line is in the traceback."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from firesteel.common.typeinfo import PickledBytesTypeInfo, TypeInformation, Types
from firesteel.core.errors import UnsupportedFeatureError
from firesteel.functions.functions import CoProcessFunction, Function, KeySelector, Partitioner

MAX_PARALLELISM = 32768


def check_function(method: str, function: Any, wanted: type[Function]) -> None:
    """A function class's instance or a plain callable.

    Raises:
        TypeError: neither.
        UnsupportedFeatureError: it is a coroutine function.
    """
    if isinstance(function, wanted):
        return
    if isinstance(function, type) and issubclass(function, Function):
        raise TypeError(f"{method}() takes an instance: write {function.__name__}(), not {function.__name__}")
    if not callable(function):
        raise TypeError(f"{method}() takes {_article(wanted.__name__)} or a callable, not {type(function).__name__}")
    if inspect.iscoroutinefunction(function):
        raise UnsupportedFeatureError(
            f"{method}(): coroutine functions (async def) are not in this version; "
            "call what waits from a function class with blocking = True"
        )


def check_class(method: str, function: Any, *wanted: type[Function], hint: str = "") -> None:
    """An instance of one of these classes.

    Raises:
        TypeError: it is not.
    """
    names = " or ".join(_article(cls.__name__) for cls in wanted)
    if isinstance(function, type) and issubclass(function, wanted):
        raise TypeError(f"{method}() takes an instance: write {function.__name__}(), not {function.__name__}")
    if not isinstance(function, wanted):
        raise TypeError(f"{method}() takes {names}, not {type(function).__name__}{hint}")
    if hasattr(function, "on_timer") and not any(
        isinstance(function, cls) and hasattr(cls, "on_timer") for cls in wanted
    ):
        keyed = "KeyedCoProcessFunction" if isinstance(function, CoProcessFunction) else "KeyedProcessFunction"
        raise TypeError(
            f"{type(function).__name__}.on_timer would never be called: timers need a keyed stream; "
            f"derive from {keyed} and call key_by() before process()"
        )


def key_function(parameter: str, selector: Any) -> Callable[[Any], Any]:
    """What reads the key, as it was given: the slot opens a ``KeySelector`` and calls its ``get_key``.

    Raises:
        TypeError: neither a KeySelector nor a callable.
    """
    _check_callable(parameter, selector, KeySelector)
    return selector  # type: ignore[no-any-return]


def partition_function(parameter: str, partitioner: Any) -> Callable[[Any, int], int]:
    """What chooses the channel, as it was given: the slot opens a ``Partitioner`` and calls its ``partition``.

    Raises:
        TypeError: neither a Partitioner nor a callable.
    """
    _check_callable(parameter, partitioner, Partitioner)
    return partitioner  # type: ignore[no-any-return]


def _check_callable(parameter: str, given: Any, wanted: type[Function]) -> None:
    if isinstance(given, wanted):
        return
    if isinstance(given, type) and issubclass(given, Function):
        raise TypeError(f"parameter {parameter} takes an instance: write {given.__name__}(), not {given.__name__}")
    if not callable(given) or inspect.iscoroutinefunction(given):
        raise TypeError(
            f"parameter {parameter} is {_article(wanted.__name__)} or a callable, not {type(given).__name__}"
        )


def declared_type(parameter: str, type_info: Any) -> TypeInformation:
    """The type given, or that of any Python object.

    Raises:
        TypeError: something else was given.
    """
    if type_info is None:
        return Types.PICKLED_BYTE_ARRAY()
    if not isinstance(type_info, TypeInformation):
        hint = "; did you leave out the parentheses?" if callable(type_info) else ""
        raise TypeError(f"{parameter} is {type_info!r}, not a TypeInformation such as Types.STRING(){hint}")
    return type_info


def coerced(type_info: TypeInformation) -> TypeInformation | None:
    """The type that results are brought to; None for any Python object."""
    return None if isinstance(type_info, PickledBytesTypeInfo) else type_info


def whole_number(name: str, value: Any, least: int, most: int | None = None) -> int:
    """A checked int.

    Raises:
        TypeError: it is no int.
        ValueError: it is out of bounds.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is an int, not {type(value).__name__}")
    if value < least or (most is not None and value > most):
        bounds = f"at least {least}" if most is None else f"between {least} and {most}"
        raise ValueError(f"{name} must be {bounds}, not {value}")
    return value


def some_text(name: str, value: Any) -> str:
    """A checked, non-empty str.

    Raises:
        TypeError: it is no str.
        ValueError: it is empty.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} is a str, not {type(value).__name__}")
    if not value:
        raise ValueError(f"{name} is empty")
    return value


def _article(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
