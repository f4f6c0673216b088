"""Figures as text for people: dashboard and terminal write them alike."""

from __future__ import annotations

from typing import Final

_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def duration_text(ms: float) -> str:
    """A duration for people, as the dashboard writes it."""
    if ms < 1000:
        return f"{round(ms)} ms"
    if ms < 10_000:
        return f"{round(ms / 1000, 2):g} s"
    seconds = int(ms // 1000)
    minutes, hours, days = seconds // 60 % 60, seconds // 3600 % 24, seconds // 86_400
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    if minutes:
        return f"{minutes} min {seconds % 60} s" if seconds % 60 else f"{minutes} min"
    return f"{ms / 1000:.1f} s"


def size_text(size: float) -> str:
    """Bytes for people, as the dashboard writes them."""
    unit = 0
    while size >= 1024 and unit < len(_SIZES) - 1:
        size, unit = size / 1024, unit + 1
    digits = 0 if unit == 0 or size >= 100 else 1 if size >= 10 else 2
    return f"{size:.{digits}f} {_SIZES[unit]}"
