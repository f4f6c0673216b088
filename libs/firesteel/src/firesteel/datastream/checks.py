"""Checks of what a program hands to the API; all raise at once, where the user's line is in the traceback."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from firesteel.common.type_table import parts_of, row_of, unwrapped
from firesteel.common.typeinfo import PickledBytesTypeInfo, TypeInformation, Types, as_type_info
from firesteel.core.errors import GraphError, UnsupportedFeatureError
from firesteel.functions.async_functions import AsyncFunction
from firesteel.functions.coroutines import AWAITED, refuse_coroutines
from firesteel.functions.functions import CoProcessFunction, Function, KeySelector, Partitioner
from firesteel.functions.output_tag import OutputTag
from firesteel.functions.signatures import check_methods, check_parameters
from firesteel.functions.state import MapStateDescriptor

MAX_PARALLELISM = 32768


def check_function(method: str, function: Any, wanted: type[Function]) -> None:
    """A function class's instance or a plain callable.

    Raises:
        TypeError: neither.
        UnsupportedFeatureError: it is a coroutine function, or one of its methods is.
    """
    if isinstance(function, wanted):
        refuse_coroutines(f"{method}()", function)
        check_methods(function, wanted)
        return
    if isinstance(function, type) and issubclass(function, Function):
        raise TypeError(f"{method}() takes an instance: write {function.__name__}(), not {function.__name__}")
    check_callable(method, function, f"{_article(wanted.__name__)} or ")
    check_parameters(f"{method}(): the function", function, wanted)


def check_callable(method: str, function: Any, other: str = "") -> None:
    """A plain callable.

    Raises:
        TypeError: it can't be called.
        UnsupportedFeatureError: it is a coroutine function.
    """
    if not callable(function):
        raise TypeError(f"{method}() takes {other}a callable, not {type(function).__name__}")
    if inspect.iscoroutinefunction(function):
        raise UnsupportedFeatureError(
            f"{method}(): coroutine functions (async def) are not in this version; "
            "call what waits from a function class with blocking = True"
        )


def check_class(method: str, function: Any, *wanted: type[Function], hint: str = "") -> None:
    """An instance of one of these classes.

    Raises:
        TypeError: it is not.
        UnsupportedFeatureError: one of its methods is a coroutine function, and nobody would await it.
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
    refuse_coroutines(f"{method}()", function, AWAITED if AsyncFunction in wanted else ())
    check_methods(function, *(cls for cls in wanted if isinstance(function, cls)))


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
        refuse_coroutines(f"parameter {parameter}", given)
        check_methods(given, wanted)
        return
    if isinstance(given, type) and issubclass(given, Function):
        raise TypeError(f"parameter {parameter} takes an instance: write {given.__name__}(), not {given.__name__}")
    if not callable(given) or inspect.iscoroutinefunction(given):
        raise TypeError(
            f"parameter {parameter} is {_article(wanted.__name__)} or a callable, not {type(given).__name__}"
        )
    check_parameters(f"parameter {parameter}: the function", given, wanted)


def declared_type(parameter: str, type_info: Any) -> TypeInformation:
    """The type given, or that of any Python object.

    Raises:
        TypeError: something else was given.
    """
    if type_info is None:
        return Types.PICKLED_BYTE_ARRAY()
    return as_type_info(type_info, lambda: parameter)


def key_type(declared: TypeInformation) -> TypeInformation:
    """A declared type of keys.

    Raises:
        GraphError: its values can change or have no stable hash, so that they are no keys.
    """
    waiting = [declared]
    while waiting:
        part = waiting.pop()
        reason = row_of(unwrapped(part)).no_key
        if reason:
            inside = "" if part is declared else f" in {declared}"
            raise GraphError(f"{part}{inside} is no type of keys{reason}")
        waiting.extend(parts_of(part))
    return declared


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


def path_in_list(name: str, path: Any) -> str:
    """A path that can stand in a list of paths with names behind them.

    Raises:
        TypeError: it is no str.
        ValueError: it is empty, or holds a character that parts the list.
    """
    text = some_text(name, path)
    for character in ",#":
        if character in text:
            raise ValueError(f"{name} can't hold {character!r}: {text!r}")
    return text


def output_tag(method: str, tag: Any) -> OutputTag[Any]:
    """A tag of a side output.

    Raises:
        TypeError: something else was given.
    """
    if not isinstance(tag, OutputTag):
        raise TypeError(f"{method}() takes an OutputTag, not {type(tag).__name__}")
    return tag


def broadcast_states(descriptors: Any) -> list[MapStateDescriptor]:
    """The descriptors, each of its own name.

    Raises:
        TypeError: something else than a MapStateDescriptor was given.
        GraphError: no state was given, two have the same name, or a state has a time-to-live.
    """
    found: dict[str, MapStateDescriptor] = {}
    for descriptor in descriptors:
        if not isinstance(descriptor, MapStateDescriptor):
            raise TypeError(f"broadcast() takes MapStateDescriptors, not {type(descriptor).__name__}: {descriptor!r}")
        if descriptor.name in found:
            raise GraphError(f"broadcast() was given two states of the name {descriptor.name!r}: give each its own")
        if descriptor.ttl_config is not None:
            raise GraphError(
                f"broadcast state {descriptor.name!r} can't have a time-to-live: remove its entries instead"
            )
        found[descriptor.name] = descriptor
    if not found:
        raise GraphError("broadcast() without a state descriptor gives a DataStream, not a BroadcastStream")
    return list(found.values())


def _article(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
