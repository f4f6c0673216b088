"""Figures as text for people: dashboard and terminal write them alike."""

from __future__ import annotations


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
