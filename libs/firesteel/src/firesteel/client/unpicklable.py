"""Finds which attribute, captured variable or global makes an object unpicklable, so that the message can name it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FunctionType, MethodType
from typing import Any

from firesteel.core.errors import class_name

_MAX_DEPTH = 6


def explain(value: Any, dumps: Callable[[Any], bytes], error: BaseException) -> str:
    """Explain in one or two sentences what can't be pickled, by which path it is reached, and what to do.

    Args:
        value: the object that failed, often a user's function.
        dumps: raises for what can't be pickled.
        error: what it raised for ``value``.
    """
    path, culprit = _descend(value, dumps, _label(value), 0)
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    if culprit is value:
        return f"{path} can't be pickled ({reason})"
    return (
        f"{path} is a {class_name(type(culprit))}, which can't be pickled ({reason}); "
        "create it in open(), or inside the function, instead of carrying it along"
    )


def _descend(value: Any, dumps: Callable[[Any], bytes], path: str, depth: int) -> tuple[str, Any]:
    if depth < _MAX_DEPTH:
        for name, part in _parts(value):
            try:
                dumps(part)
            except Exception:  # whatever it raises: this part is the culprit, or contains it
                return _descend(part, dumps, f"{path}{name}", depth + 1)
    return path, value


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, MethodType):
        yield ".__self__", value.__self__
        yield ".__func__", value.__func__
    elif isinstance(value, FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            try:
                yield f" -> captured variable {name!r}", cell.cell_contents
            except ValueError:  # the cell is empty
                continue
        for name in value.__code__.co_names:
            if name in value.__globals__:
                yield f" -> global {name!r}", value.__globals__[name]
        for default in value.__defaults__ or ():
            yield " -> a default argument", default
    elif isinstance(value, dict):
        for key, item in value.items():
            yield f"[{key!r}]", item
    elif isinstance(value, list | tuple | set | frozenset):
        for index, item in enumerate(value):
            yield f"[{index}]", item
    else:
        for name, item in getattr(value, "__dict__", {}).items():
            yield f".{name}", item


def _label(value: Any) -> str:
    name = getattr(value, "__qualname__", None)
    return f"function {name}" if name else f"its {type(value).__qualname__}"
