"""What people look at to understand a running cluster: the history of metrics, flame graphs, profiles and logs."""

from __future__ import annotations

import asyncio
import re
from typing import Final

from firesteel.core.clock import Clock
from firesteel.service.lanes import Spawn
from firesteel.service.process_logs import ProcessLogs
from firesteel_dispatcher.flame_graphs import FlameGraphs, Profiles
from firesteel_dispatcher.jobs import ClusterJobs
from firesteel_dispatcher.metric_history import MetricHistory
from firesteel_dispatcher.settings import DispatcherSettings

_COORDINATOR_LOGS: Final = re.compile(r"firesteel-.*-(dispatcher|resourcemanager|jobmaster)-\d+-.*\.(log|out)")
"""Logs of the services of a JobManager, as deploy/standalone/bin names them: they are in one directory."""


class Diagnostics:
    """Samples of jobs and processes, which are kept for a while.

    Args:
        settings: how often, how long.
        clock: dates what was seen.
        spawn: runs looks in the background.

    Attributes:
        metric_history: numbers of running jobs over the last hour.
        flame_graphs: of vertices.
        profiles: of processes.
        logs: of the JobManager's services on this host.
    """

    def __init__(self, settings: DispatcherSettings, clock: Clock, spawn: Spawn) -> None:
        self._clock = clock
        self.metric_history = MetricHistory(settings.metrics_interval, settings.metrics_size)
        self.flame_graphs = FlameGraphs(settings.flame_graphs, clock, spawn)
        self.profiles = Profiles(clock, spawn)
        self.logs = ProcessLogs(
            lambda name: _COORDINATOR_LOGS.match(name) is not None, below={"jobmasters": "jobmaster-"}
        )

    async def record_metrics(self, jobs: ClusterJobs) -> None:
        """Note the metrics of all running jobs every few seconds; ends only by being cancelled."""
        while True:
            await asyncio.sleep(self.metric_history.interval)
            for archive in await jobs.details.of_running():
                if archive.get("vertices"):
                    self.metric_history.record(archive, self._clock.epoch_ms())
            self.metric_history.keep(jobs.core.jobs)
