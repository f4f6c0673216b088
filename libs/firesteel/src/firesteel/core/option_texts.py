"""Values of options as text, in the forms that Flink reads: ``firesteel.config.values`` reads them back."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import timedelta
from typing import Any


def show(value: Any) -> str:
    """The text form of any value; of bytes it is Base64."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, timedelta):
        return show_duration(value)
    if isinstance(value, (list, tuple)):
        return ";".join(map(show, value))
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {show(item)}" for key, item in value.items()) + "}"
    return str(value)


def show_duration(value: timedelta) -> str:
    """The largest unit that divides the duration: ``100 ms``, ``1 min``."""
    micros = value // timedelta(microseconds=1)
    for unit, size in (
        ("d", 86_400_000_000),
        ("h", 3_600_000_000),
        ("min", 60_000_000),
        ("s", 1_000_000),
        ("ms", 1000),
    ):
        if micros and micros % size == 0:
            return f"{micros // size} {unit}"
    return f"{micros} us" if micros else "0 ms"
