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


def check_function(method: str, function: Any, function_class: type[Function]) -> None:
    """Check that the argument is an instance of a function class, or a plain callable with fitting parameters.

    Raises:
        TypeError: it is neither.
        UnsupportedFeatureError: it is a coroutine function, or one of its methods is.
    """
    if isinstance(function, function_class):
        refuse_coroutines(f"{method}()", function)
        check_methods(function, function_class)
        return
    if isinstance(function, type) and issubclass(function, Function):
        raise TypeError(f"{method}() takes an instance: write {function.__name__}(), not {function.__name__}")
    check_callable(method, function, f"{_article(function_class.__name__)} or ")
    check_parameters(f"{method}(): the function", function, function_class)


def check_callable(method: str, function: Any, alternatives: str = "") -> None:
    """Check that the argument is a plain callable.

    Args:
        method: that got it, for the error.
        function: the argument.
        alternatives: what else the method takes, for the error ("a MapFunction or ").

    Raises:
        TypeError: it can't be called.
        UnsupportedFeatureError: it is a coroutine function.
    """
    if not callable(function):
        raise TypeError(f"{method}() takes {alternatives}a callable, not {type(function).__name__}")
    if inspect.iscoroutinefunction(function):
        raise UnsupportedFeatureError(
            f"{method}(): coroutine functions (async def) are not in this version; "
            "call what waits from a function class with blocking = True"
        )


def check_class(method: str, function: Any, *function_classes: type[Function], hint: str = "") -> None:
    """Check that the argument is an instance of one of these classes.

    Raises:
        TypeError: it is not.
        UnsupportedFeatureError: one of its methods is a coroutine function, and nobody would await it.
    """
    names = " or ".join(_article(cls.__name__) for cls in function_classes)
    if isinstance(function, type) and issubclass(function, function_classes):
        raise TypeError(f"{method}() takes an instance: write {function.__name__}(), not {function.__name__}")
    if not isinstance(function, function_classes):
        raise TypeError(f"{method}() takes {names}, not {type(function).__name__}{hint}")
    if hasattr(function, "on_timer") and not any(
        isinstance(function, cls) and hasattr(cls, "on_timer") for cls in function_classes
    ):
        keyed = "KeyedCoProcessFunction" if isinstance(function, CoProcessFunction) else "KeyedProcessFunction"
        raise TypeError(
            f"{type(function).__name__}.on_timer would never be called: timers need a keyed stream; "
            f"derive from {keyed} and call key_by() before process()"
        )
    refuse_coroutines(f"{method}()", function, AWAITED if AsyncFunction in function_classes else ())
    check_methods(function, *(cls for cls in function_classes if isinstance(function, cls)))


def key_function(parameter: str, selector: Any) -> Callable[[Any], Any]:
    """Check and return a key selector unchanged: the slot opens a ``KeySelector`` and calls its ``get_key``.

    Raises:
        TypeError: neither a KeySelector nor a callable.
    """
    _check_callable(parameter, selector, KeySelector)
    return selector  # type: ignore[no-any-return]


def partition_function(parameter: str, partitioner: Any) -> Callable[[Any, int], int]:
    """Check and return a partitioner unchanged: the slot opens a ``Partitioner`` and calls its ``partition``.

    Raises:
        TypeError: neither a Partitioner nor a callable.
    """
    _check_callable(parameter, partitioner, Partitioner)
    return partitioner  # type: ignore[no-any-return]


def _check_callable(parameter: str, argument: Any, function_class: type[Function]) -> None:
    if isinstance(argument, function_class):
        refuse_coroutines(f"parameter {parameter}", argument)
        check_methods(argument, function_class)
        return
    if isinstance(argument, type) and issubclass(argument, Function):
        raise TypeError(
            f"parameter {parameter} takes an instance: write {argument.__name__}(), not {argument.__name__}"
        )
    if not callable(argument) or inspect.iscoroutinefunction(argument):
        raise TypeError(
            f"parameter {parameter} is {_article(function_class.__name__)} or a callable, not {type(argument).__name__}"
        )
    check_parameters(f"parameter {parameter}: the function", argument, function_class)


def declared_type(parameter: str, type_info: Any) -> TypeInformation:
    """The declared type; without one, the type of any Python object.

    Raises:
        TypeError: the argument is no type.
    """
    if type_info is None:
        return Types.PICKLED_BYTE_ARRAY()
    return as_type_info(type_info, lambda: parameter)


def key_type(declared: TypeInformation) -> TypeInformation:
    """Check that values of a declared type can be keys, and return the type.

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
    """Check that an argument is an int within bounds, and return it.

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
    """Check that an argument is a non-empty str, and return it.

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
    """Check that a path can stand in a list such as ``a.zip#name,b.zip``, and return it.

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
    """Check that an argument is the tag of a side output, and return it.

    Raises:
        TypeError: it is something else.
    """
    if not isinstance(tag, OutputTag):
        raise TypeError(f"{method}() takes an OutputTag, not {type(tag).__name__}")
    return tag


def broadcast_states(descriptors: Any) -> list[MapStateDescriptor]:
    """Check the descriptors of broadcast state, and return them; each has a name of its own.

    Raises:
        TypeError: one is no MapStateDescriptor.
        GraphError: no state was given, two have the same name, or a state has a time-to-live.
    """
    descriptors_by_name: dict[str, MapStateDescriptor] = {}
    for descriptor in descriptors:
        if not isinstance(descriptor, MapStateDescriptor):
            raise TypeError(f"broadcast() takes MapStateDescriptors, not {type(descriptor).__name__}: {descriptor!r}")
        if descriptor.name in descriptors_by_name:
            raise GraphError(f"broadcast() was given two states of the name {descriptor.name!r}: give each its own")
        if descriptor.ttl_config is not None:
            raise GraphError(
                f"broadcast state {descriptor.name!r} can't have a time-to-live: remove its entries instead"
            )
        descriptors_by_name[descriptor.name] = descriptor
    if not descriptors_by_name:
        raise GraphError("broadcast() without a state descriptor gives a DataStream, not a BroadcastStream")
    return list(descriptors_by_name.values())


def _article(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
