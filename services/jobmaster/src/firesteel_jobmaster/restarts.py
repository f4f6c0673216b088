"""Which parts of a job wait for their restart, since when and until when. Pure."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable

from firesteel.graph.execution_graph import Execution, ExecutionGraph, FailureEntry
from firesteel_jobmaster.restart_strategies import ExponentialDelay, RestartStrategy

SLACK = 0.01
"""Seconds by which a timer may be early."""
_FIRST_STORAGE_PAUSE, _LONGEST_STORAGE_PAUSE, _STORAGE_PEACE = 1.0, 30.0, 120.0
"""Seconds before a restart of tasks whose host could not read their state: the pause doubles, up to the longest, until
there has been peace."""


class Restarts:
    """The regions that have failed and will be restarted, each when its time has come and all its tasks have ended.

    Args:
        graph: of the job.
        strategy: decides whether there is a restart, and when.
        by_region: restart only the regions that a failure touches; else all.
    """

    def __init__(self, graph: ExecutionGraph, strategy: RestartStrategy, by_region: bool) -> None:
        self._graph, self.strategy, self._by_region = graph, strategy, by_region
        self._storage = ExponentialDelay(
            _FIRST_STORAGE_PAUSE, _LONGEST_STORAGE_PAUSE, 2.0, 0.0, _STORAGE_PEACE, sys.maxsize
        )
        self.being_renewed: set[int] = set()
        """Regions whose time has come, and whose subtasks are getting new attempts."""
        self.is_renewing = False
        """Whether some subtasks that start together still lack their new attempts: until then none is deployed."""
        self._due: dict[int, float] = {}
        self._entries: dict[int, FailureEntry] = {}

    def __contains__(self, region: int) -> bool:
        return region in self._due

    def __bool__(self) -> bool:
        return bool(self._due)

    def runs_again(self, region: int) -> bool:
        """Whether a region is to get new attempts."""
        return region in self._due or region in self.being_renewed

    def touched(self, failed: Iterable[Execution]) -> set[int]:
        """The regions to restart when these attempts have failed; without attempts: all regions."""
        regions = {self._graph.region_of(execution) for execution in failed}
        return regions if regions and self._by_region else set(range(len(self._graph.regions)))

    def entry(self, regions: Collection[int]) -> FailureEntry | None:
        """The failure after which these regions wait for a restart; None if one of them does not wait."""
        if any(region not in self._due for region in regions):
            return None
        return next((self._entries[region] for region in regions), None)

    def failed(self, now: float) -> bool:
        """Count a failure that is no consequence of another one; returns whether it is answered by a restart."""
        if self.strategy.failed(now) and self.strategy.can_restart(now):
            self._graph.count_restart()
        return self.strategy.can_restart(now)

    def storage_failed(self, now: float) -> float:
        """A host could not read the state of a task; returns the seconds until the restart, which always follows."""
        if self._storage.failed(now):
            self._graph.count_restart()
        return self._storage.delay(now)

    def begin(self, regions: Iterable[int], entry: FailureEntry, now: float, pause: float = 0.0) -> float:
        """Have these regions wait for their restart, at least for ``pause`` seconds; returns how long they wait."""
        pause = max(self.strategy.delay(now), pause)
        due = now + pause
        for region in regions:
            self._due[region] = due
            self._entries[region] = entry
        return pause

    def take_ready(self, now: float, among: Iterable[int] | None = None) -> list[int]:
        """Take the regions that can be restarted now, of all regions or of those in ``among``."""
        ready = [
            region
            for region in (self._due if among is None else among)
            if region in self._due and now >= self._due[region] - SLACK and self._graph.has_ended(region)
        ]
        for region in ready:
            del self._due[region], self._entries[region]
        return sorted(ready)

    def next_due(self, now: float) -> float | None:
        """Seconds until the next region's time has come; None if none waits for time."""
        return min((due - now for due in self._due.values() if due - SLACK > now), default=None)

    def clear(self) -> None:
        """Restart nothing any more."""
        self._due.clear()
        self._entries.clear()
        self.being_renewed.clear()
