"""The progress of a job as one line, and when such a line is due."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from firesteel.graph.job_archive import WAITING
from firesteel.graph.job_graph import JobGraph

_HOLDING: Final = ("DEPLOYING", "INITIALIZING", "RUNNING", "CANCELING")
PLAIN_SECONDS: Final = 30.0
"""Without a live line, a plain one is written when the state or the missing slots change, and after this time."""


@dataclass(frozen=True)
class Progress:
    """The progress of a running job.

    Attributes:
        state: of the job.
        records_in: read from sources.
        records_out: arrived at the last tasks.
        slots: number of slots that run tasks.
        slots_needed: number that the whole job needs.
        waiting_for: why slots are missing, in words; empty = none is, or the reason is unknown.
        restarts: number of restarts so far; records are counted from the last one on.
        last_failure: why it was restarted last.
    """

    state: str
    records_in: int
    records_out: int
    slots: int
    slots_needed: int
    waiting_for: str = ""
    restarts: int = 0
    last_failure: str = ""

    @staticmethod
    def of(details: Mapping[str, Any], graph: JobGraph) -> Progress:
        """Read the answer of ``GET /jobs/:jobid``."""
        vertices = {vertex["id"]: vertex for vertex in details["vertices"]}
        ends = {vertex.id for vertex in graph.vertices} - {edge.source for edge in graph.edges}
        groups: dict[str, int] = {}
        for vertex in graph.vertices:
            tasks = vertices.get(vertex.id, {}).get("tasks", {})
            busy_slots = sum(int(tasks.get(state, 0)) for state in _HOLDING)
            groups[vertex.slot_sharing_group] = max(groups.get(vertex.slot_sharing_group, 0), busy_slots)
        return Progress(
            str(details["state"]),
            sum(_records_read(vertices, vertex.id) for vertex in graph.vertices if vertex.source is not None),
            sum(_records_read(vertices, vertex_id) for vertex_id in ends),
            sum(groups.values()),
            graph.slots_needed(),
            str(details.get(WAITING, "")),
            int(details.get("firesteel-restarts", 0)),
            str(details.get("firesteel-last-failure", "")),
        )

    def line(self, name: str, elapsed_s: float) -> str:
        times = "once" if self.restarts == 1 else f"{self.restarts} times"
        after = f" after {self.last_failure}" if self.last_failure else ""
        since_restart = " since the restart" if self.restarts else ""
        return (
            f"{name}: {self.state}  records in {self.records_in:,} out {self.records_out:,}{since_restart}  "
            f"slots {self.slots}/{self.slots_needed}  {clock_text(elapsed_s)}"
            f"{f'  waits: {self.waiting_for}' if self.waiting_for else ''}"
            f"{f'  restarted {times}{after}' if self.restarts else ''}"
        )


def _records_read(vertices: Mapping[str, Any], vertex_id: str) -> int:
    return int(vertices.get(vertex_id, {}).get("metrics", {}).get("read-records", 0))


def clock_text(seconds: float) -> str:
    """Hours, minutes and seconds: ``0:01:23``."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


class Occasion:
    """Decides when a plain line is worth writing."""

    def __init__(self) -> None:
        self._state = ("", "")
        self._at = float("-inf")

    def is_due(self, progress: Progress, now: float) -> bool:
        """Whether to write one now; notes that it is done."""
        state = (progress.state, progress.waiting_for)
        if state == self._state and now < self._at + PLAIN_SECONDS:
            return False
        self._state, self._at = state, now
        return True
