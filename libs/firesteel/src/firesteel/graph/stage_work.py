"""What the tasks of a batch stage have read, and how fast: the time that is left is estimated from that."""

from __future__ import annotations

from typing import TypedDict

from firesteel.graph.execution_graph import Execution
from firesteel.graph.execution_states import ExecutionState

StageWorkFigures = TypedDict(
    "StageWorkFigures",
    {
        "spilled-bytes": int,
        "read-bytes": int,
        "task-ms": int,
        "running": int,
        "rate": float,
        "worked-bytes": float,
        "left-of-running-ms": float,
        "longest-left-ms": float,
    },
)
"""Figures of a stage.

* ``spilled-bytes``: what its tasks have written to local files since they did not have memory for it.
* ``read-bytes``: what tasks that are done or run have read of the stage's input.
* ``task-ms``: how long these tasks have run, summed up.
* ``running``: their number that runs.
* ``rate``: bytes of input that a task works through in a millisecond, as those that are done did; 0 = none is done.
* ``worked-bytes``: what is done, and what those that run have worked through at that rate.
* ``left-of-running-ms``, ``longest-left-ms``: time that those that run still need for what they have read, in sum and
  of the one that needs longest.
"""


class StageWork:
    """Collects the tasks of a stage; those that found nothing to read tell nothing."""

    def __init__(self) -> None:
        self._spilled = self._done_bytes = self._done_ms = 0
        self._running: list[tuple[int, int]] = []
        """Bytes that a running task has read, and how many ms it has run."""

    def add(self, execution: Execution, now: int) -> None:
        """Add the current attempt of a subtask; ``now`` is in epoch ms."""
        metrics, entered = execution.metrics, execution.machine.entered_ms
        self._spilled += int(metrics.get("numBytesSpilled", 0))
        begun, size = entered.get(ExecutionState.RUNNING), int(metrics.get("numBytesIn", 0))
        if begun is None or size <= 0:
            return
        if execution.state is ExecutionState.FINISHED:
            self._done_bytes += size
            self._done_ms += entered[ExecutionState.FINISHED] - begun
        elif execution.state is ExecutionState.RUNNING:
            self._running.append((size, now - begun))

    def figures(self) -> StageWorkFigures:
        """The figures of this moment."""
        rate = self._done_bytes / max(1, self._done_ms)
        left = [max(0.0, size / rate - age) for size, age in self._running] if rate else []
        return {
            "spilled-bytes": self._spilled,
            "read-bytes": self._done_bytes + sum(size for size, _ in self._running),
            "task-ms": self._done_ms + sum(age for _, age in self._running),
            "running": len(self._running),
            "rate": rate,
            "worked-bytes": self._done_bytes + sum(min(size, rate * age) for size, age in self._running),
            "left-of-running-ms": sum(left),
            "longest-left-ms": max(left, default=0.0),
        }
