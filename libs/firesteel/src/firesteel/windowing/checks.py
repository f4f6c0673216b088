"""Checks of arguments that programs pass to windows, so that the traceback of an error shows the program's line."""

from __future__ import annotations

from typing import Any

from firesteel.common.time import whole_millis


def check_span(name: str, span: Any, least: int = 1) -> int:
    """Return a ``Time``, ``Duration`` or ``timedelta`` in milliseconds.

    Raises:
        TypeError: the argument is something else.
        ValueError: it is smaller than ``least`` ms, or finer than milliseconds.
    """
    return check_whole(name + " in ms", whole_millis(name, span), least)


def check_whole(name: str, value: Any, least: int | None = None) -> int:
    """Check that a value is an int and not smaller than ``least``, and return it.

    Raises:
        TypeError: it is not an int.
        ValueError: it is smaller.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is an int, not {type(value).__name__}")
    if least is not None and value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
    return value
