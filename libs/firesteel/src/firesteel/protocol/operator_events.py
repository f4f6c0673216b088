"""Plain events between the JobMaster and the task that runs a user's enumerator."""

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
"""``type`` is one of the constants above; the other members are the arguments of the functions below."""


# JobMaster -> task


def add_reader(subtask: int, host: str) -> Event:
    """A reader runs on a host."""
    return {"type": ADD_READER, "subtask": subtask, "host": host}


def request_split(subtask: int) -> Event:
    """A reader has read all its splits, and asks for another one."""
    return {"type": REQUEST, "subtask": subtask}


def add_splits_back(subtask: int, splits: Iterable[Mapping[str, Any]]) -> Event:
    """Plain splits come back that a reader had got, and that are in no reader's state."""
    return {"type": ADD_BACK, "subtask": subtask, "splits": list(splits)}


def finish() -> Event:
    """All readers have finished."""
    return {"type": FINISH}


# task -> JobMaster


def assign_splits(subtask: int, splits: Iterable[Mapping[str, Any]]) -> Event:
    """Assign plain splits to a reader."""
    return {"type": ASSIGN, "subtask": subtask, "splits": list(splits)}


def no_more_splits(subtask: int) -> Event:
    """No more splits will come for a reader."""
    return {"type": NO_MORE, "subtask": subtask}
