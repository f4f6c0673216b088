"""The last events of a job, which tell how it came to be in its state."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

MOST_EVENTS = 100
"""Events that are remembered; some tens of kilobytes for each job."""
_LONGEST_TEXT = 80
"""Characters of a text that are remembered."""
_MOST_ITEMS = 2
"""Items of a list that are remembered."""
_SHORTENED: dict[str, Callable[[Any], object]] = {
    "taskmanager_id": str,
    "allocation_id": str,
    "execution_id": str,
    "checkpoint_id": int,
    "trigger_id": str,
    "updates": lambda updates: [(update.execution_id, update.state) for update in updates[:_MOST_ITEMS]],
    "work": lambda work: type(work).__name__,
    "error": lambda error: str(error or "")[:_LONGEST_TEXT],
}
"""Attributes of messages that are remembered, as they say most; and how each of them is shortened."""


class Stimuli:
    """The time, name and telling arguments of each event. Messages themselves are not kept, as they may be large."""

    def __init__(self) -> None:
        self._events: deque[tuple[float, str, list[object]]] = deque(maxlen=MOST_EVENTS)
        self._attributes: dict[type, list[str]] = {}
        """Telling attributes of each type of message that has come."""

    def record(self, now: float, event: str, arguments: Sequence[Any]) -> None:
        """Remember an event, at ``now`` monotonic seconds. It becomes text only when somebody looks, which is rare."""
        self._events.append((now, event, [self._brief(argument) for argument in arguments]))

    def lines(self) -> list[str]:
        """The events as lines of text, the oldest first."""
        return [f"{now:12.3f}  {event}({', '.join(map(_text, arguments))})" for now, event, arguments in self._events]

    def _brief(self, argument: Any) -> object:
        kind = type(argument)
        if kind is str:
            return argument[:_LONGEST_TEXT]
        if kind is int or kind is float or kind is bool:
            return argument
        if kind is list or kind is tuple:
            ids = {
                str(n): item for n, item in enumerate(argument[:_MOST_ITEMS]) if type(item) is str
            }  # others are large
            return f"{len(argument)} items", ids
        attributes = self._attributes.get(kind)
        if attributes is None:
            fields = getattr(kind, "__dataclass_fields__", ())
            attributes = self._attributes[kind] = [name for name in _SHORTENED if name in fields]
        return kind.__name__, {name: _SHORTENED[name](getattr(argument, name)) for name in attributes}


def _text(brief: object) -> str:
    if not isinstance(brief, tuple):
        return str(brief)
    kind, attributes = brief
    return " ".join((kind, *(f"{name}={value}" for name, value in attributes.items() if value)))
