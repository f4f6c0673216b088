"""What the JobMaster and the task that runs a user's enumerator say to each other: plain events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

ADD_READER: Final = "add_reader"
REQUEST: Final = "request_split"
ADD_BACK: Final = "add_splits_back"
FINISH: Final = "finish"
ASSIGN: Final = "assign_splits"
NO_MORE: Final = "no_more_splits"

Event = Mapping[str, Any]
"""``type`` is one of the above; the other members are those of the functions below."""


# JobMaster -> task


def add_reader(subtask: int, host: str) -> Event:
    """A reader runs, on this host."""
    return {"type": ADD_READER, "subtask": subtask, "host": host}


def request_split(subtask: int) -> Event:
    """A reader, which was added, has nothing left to read."""
    return {"type": REQUEST, "subtask": subtask}


def add_splits_back(subtask: int, splits: Iterable[Mapping[str, Any]]) -> Event:
    """Plain splits that a reader was given, and that are in no reader's state."""
    return {"type": ADD_BACK, "subtask": subtask, "splits": list(splits)}


def finish() -> Event:
    """All readers have come to their end."""
    return {"type": FINISH}


# task -> JobMaster


def assign_splits(subtask: int, splits: Iterable[Mapping[str, Any]]) -> Event:
    """Plain splits for a reader, which was added."""
    return {"type": ASSIGN, "subtask": subtask, "splits": list(splits)}


def no_more_splits(subtask: int) -> Event:
    """None will come for this reader."""
    return {"type": NO_MORE, "subtask": subtask}
