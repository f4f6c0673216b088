"""Checks of what programs hand to windows; errors are raised where the program's line is in the traceback."""

from __future__ import annotations

from typing import Any

from firesteel.common.time import whole_millis


def check_span(name: str, span: Any, least: int = 1) -> int:
    """A ``Time``, ``Duration`` or ``timedelta`` in milliseconds.

    Raises:
        TypeError: it is something else.
        ValueError: it is smaller than ``least`` ms, or finer than milliseconds.
    """
    return check_whole(name + " in ms", whole_millis(name, span), least)


def check_whole(name: str, value: Any, least: int | None = None) -> int:
    """An int, not smaller than ``least``.

    Raises:
        TypeError: it is none.
        ValueError: it is smaller.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is an int, not {type(value).__name__}")
    if least is not None and value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
    return value
