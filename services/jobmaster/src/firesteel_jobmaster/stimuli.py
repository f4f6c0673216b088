"""The last events of a job, for whoever has to find out how it came to be in some state."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

KEPT = 100
"""Events that are remembered; a few kilobytes for each job."""
_LONGEST = 80
"""Characters of one argument."""
_NAMES = ("taskmanager_id", "allocation_id", "execution_id", "checkpoint_id", "trigger_id", "number", "error")
"""What says most about a message."""


class Stimuli:
    """A story in short: when, which event, about what. Messages themselves are not kept: they may be large."""

    def __init__(self) -> None:
        self._events: deque[tuple[float, str, tuple[str, ...]]] = deque(maxlen=KEPT)

    def record(self, now: float, event: str, arguments: Iterable[Any]) -> None:
        """An event comes, at so many monotonic seconds."""
        self._events.append((now, event, tuple(map(_brief, arguments))))

    def lines(self) -> list[str]:
        """The oldest first."""
        return [f"{now:12.3f}  {event}({', '.join(arguments)})" for now, event, arguments in self._events]


def _brief(argument: object) -> str:
    if isinstance(argument, str | int | float):
        return str(argument)[:_LONGEST]
    if isinstance(argument, list | tuple):
        return f"{len(argument)}: {' '.join(map(str, argument[:2]))}"[:_LONGEST]
    parts = [f"{name}={value}" for name in _NAMES if (value := getattr(argument, name, None))]
    updates = getattr(argument, "updates", ())
    parts += [f"{update.execution_id} {update.state}" for update in updates[:2]]
    if work := getattr(argument, "work", None):
        parts.insert(0, type(work).__name__)
    return f"{type(argument).__name__} {' '.join(parts)}"[: 2 * _LONGEST].rstrip()
