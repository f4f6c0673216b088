"""Checks of what programs hand to windows; errors are raised where the program's line is in the traceback."""

from __future__ import annotations

from typing import Any

from firesteel.common.time import Time


def check_span(name: str, span: Any, least: int = 1) -> int:
    """A ``Time`` in milliseconds.

    Raises:
        TypeError: it is something else.
        ValueError: it is smaller than ``least`` ms.
    """
    if not isinstance(span, Time):
        hint = "; windows take Time, watermark strategies take Duration" if type(span).__name__ == "Duration" else ""
        raise TypeError(f"{name} is a Time such as Time.seconds(10), not {type(span).__name__}{hint}")
    return check_whole(name + " in ms", span.to_milliseconds(), least)


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
