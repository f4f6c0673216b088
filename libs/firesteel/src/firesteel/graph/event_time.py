"""How far event time is in the tasks of a vertex, and which of them holds it back: from what tasks report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final

__all__ = ["Progress", "VertexEventTime", "progress_in"]

Progress = Mapping[str, Any]
"""Event time at one input of a task (``firesteel.functions.metrics.WATERMARK_PROGRESS``)."""
_MOST_INPUTS: Final = 100
"""Inputs of a task whose progress is kept."""
_MOST_IDLE: Final = 20
"""Idle subtasks of a vertex that are named."""
_LONGEST_SPLIT: Final = 200
_NUMBERS: Final = ("watermark", "ahead", "edge", "subtask", "still_ms", "silent_ms")
_COUNTS: Final = ("input", "members", "idle", "ended")


def progress_in(report: Any) -> tuple[Progress, ...]:
    """The progress in a task's report, which comes from a slot, where user code runs: what does not fit is dropped."""
    if not isinstance(report, list):
        return ()
    rows: list[Progress] = []
    for entry in islice(report, _MOST_INPUTS):
        if not isinstance(entry, Mapping) or not all(_is_number(entry.get(name)) for name in _COUNTS):
            continue
        row: dict[str, Any] = {name: entry[name] for name in (*_COUNTS, *_NUMBERS) if _is_number(entry.get(name))}
        if isinstance(entry.get("split"), str):
            row["split"] = entry["split"][:_LONGEST_SPLIT]
        row |= {name: True for name in ("all_idle", "idleness") if entry.get(name) is True}
        rows.append(row)
    return tuple(rows)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_idle(progress: Sequence[Progress]) -> bool:
    """Whether a task sends no watermarks for now, and so holds nobody back: all of its inputs are idle."""
    decisive = _decisive(progress)
    return bool(decisive) and all(row.get("all_idle", False) for row in decisive)


def _decisive(progress: Sequence[Progress]) -> Sequence[Progress]:
    """The rows that its watermark follows: its own watermarks if it makes some, else those of its inputs."""
    return [row for row in progress if row["input"] == 0] or progress


class VertexEventTime:
    """Finds the subtask of a vertex whose event time is furthest behind. Idle ones hold nothing back."""

    def __init__(self) -> None:
        self._lowest = math.inf
        self._slowest: tuple[int, Sequence[Progress]] | None = None
        self._idle: list[int] = []
        self._idle_count = 0

    def add(self, subtask: int, progress: Sequence[Progress]) -> None:
        """Look at a subtask that runs."""
        if is_idle(progress):
            self._idle_count += 1
            if len(self._idle) < _MOST_IDLE:
                self._idle.append(subtask)
            return
        lowest = min((row["watermark"] for row in _decisive(progress) if "watermark" in row), default=math.inf)
        if lowest < self._lowest:
            self._lowest, self._slowest = lowest, (subtask, progress)

    def shown(self) -> dict[str, Any]:
        """The slowest subtask with its inputs, and the idle subtasks; empty if nothing was reported."""
        shown: dict[str, Any] = {}
        if self._slowest is not None:
            shown = {"subtask": self._slowest[0], "inputs": [dict(row) for row in self._slowest[1]]}
        if self._idle_count:
            shown |= {"idle": self._idle, "idle-count": self._idle_count}
        return shown
