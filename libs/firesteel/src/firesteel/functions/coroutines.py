"""Refuses coroutine functions among the methods of users' classes where nothing would await them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Collection
from typing import Any, Final

from firesteel.core.errors import UnsupportedFeatureError

__all__ = ["AWAITED", "refuse_coroutines", "refuse_result"]

AWAITED: Final = frozenset({"open", "close", "timeout"})
"""Methods of classes made for asyncio (``AsyncFunction``, ``AsyncSourceReader``) that may be coroutine functions."""
_OURS: Final = ("firesteel.", "firesteel_")
"""Prefixes of the names of our modules: those of the library, and those of services and plug-ins."""
_HINT: Final = (
    "write it with def; what has to be awaited belongs into an AsyncFunction (its open() and close() may be coroutine "
    "functions) or an AsyncSourceReader, what blocks into a class with blocking = True"
)


def refuse_coroutines(role: str, instance: object, awaited: Collection[str] = ()) -> None:
    """Refuse an object whose methods are coroutine functions where Firesteel would not await them.

    Only methods that Firesteel calls are checked: those that one of its own classes among the bases declares.

    Args:
        role: names the object in messages.
        instance: an object of a user's class.
        awaited: methods that may be coroutine functions although they are declared as ordinary ones.

    Raises:
        UnsupportedFeatureError: a method is a coroutine function, or an asynchronous generator, and would never run.
    """
    kind = type(instance)
    if kind.__module__.startswith(_OURS):
        return
    for base in kind.__mro__:
        if not base.__module__.startswith(_OURS):
            continue
        for name, declared in vars(base).items():
            if name.startswith("_") or name in awaited or _is_async(declared):
                continue
            if _is_async(getattr(kind, name, None)):
                raise UnsupportedFeatureError(
                    f"{role}: {kind.__name__}.{name}() is a coroutine function (async def), which nobody would await: "
                    f"{_HINT}"
                )


def refuse_result(role: str, instance: object, method: str, result: Any) -> None:
    """Refuse an awaitable as the result of a call, for methods that do not look like coroutine functions.

    Raises:
        UnsupportedFeatureError: the result would have to be awaited.
    """
    if isinstance(result, Awaitable):
        if inspect.iscoroutine(result):
            result.close()
        raise UnsupportedFeatureError(
            f"{role}: {type(instance).__name__}.{method}() gave {type(result).__name__}, which nobody awaits: {_HINT}"
        )


def _is_async(method: Any) -> bool:
    return inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)
