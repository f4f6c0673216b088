"""The runs of a bounded job's stages in Spark, one at a time."""

from __future__ import annotations

from dataclasses import replace

from firesteel.protocol.stages import Stage
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.job_state import JobState

MOST_DRIVERS, STEADY_SECONDS = 5, 600.0
"""Drivers in a row that may be lost below a run that has not lasted so long: it may be what ends them."""


class SparkRuns:
    """Begins and drops runs of stages; the layout hears how they end."""

    def __init__(self, state: JobState) -> None:
        self._state = state
        self.current = ""
        """Id of the run that is under way; empty: none is."""
        self._begun = 0.0
        """When that run began, in monotonic seconds."""
        self._count = 0
        self._stage_runs = 0
        """Runs of all stages, not of the commit."""
        self._jobmasters = state.graph.restarts
        """JobMasters that were lost before this one."""
        self.drivers_lost = 0
        """Drivers lost in a row, below runs that had not lasted long."""

    def begin_all(self, stages: tuple[Stage, ...]) -> None:
        """Run all stages; their tasks count earlier runs as attempts, those below other JobMasters as well."""
        attempt = self._jobmasters + self._stage_runs
        self._stage_runs += 1
        self.begin(tuple(replace(stage, task={**stage.task, "attempt": attempt}) for stage in stages))

    def begin(self, stages: tuple[Stage, ...]) -> None:
        """Run these stages, and nothing else."""
        self.drop()
        graph = self._state.graph.job_graph
        self._count += 1
        self._begun = self._state.clock.monotonic()
        self.current = f"{graph.job_id}-{self._jobmasters}-{self._count}"
        description, cores = f"{graph.name} ({graph.job_id})", self._state.graph.slots_needed
        self._state.emit(do.StartStageRun(self.current, description, cores, stages, tuple(graph.blobs)))

    def drop(self) -> None:
        """The run that is under way, if there is one, has ended or is to end."""
        if self.current:
            self._state.emit(do.DropStages(self.current))
            self.current = ""

    def driver_lost(self) -> bool:
        """The driver was lost below the current run; returns whether the run itself may be what ends drivers."""
        is_steady = self._state.clock.monotonic() - self._begun >= STEADY_SECONDS
        self.drivers_lost = 1 if is_steady else self.drivers_lost + 1
        return self.drivers_lost > MOST_DRIVERS
