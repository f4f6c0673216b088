"""Runs jobs in the embedded cluster: the first job starts it, later jobs use it, and it ends with the program."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from firesteel.client import context
from firesteel.client.at_exit import before_threads_end
from firesteel.client.attached import AttachedWait
from firesteel.client.cell_console import CellConsole
from firesteel.client.cell_slots import check_slots
from firesteel.client.cluster_jobs import RestClusterJobs
from firesteel.client.console import Console
from firesteel.client.graph_shipment import prepare
from firesteel.client.job_client import ClusterJobClient
from firesteel.client.planning import PlanOnly
from firesteel.common.configuration import Configuration
from firesteel.common.job_execution_result import JobExecutionResult
from firesteel.common.submitted_jobs import LOCAL
from firesteel.config import options
from firesteel.config.definitions import handed_on
from firesteel.config.load import load_settings
from firesteel.config.settings import Settings
from firesteel.core.clock import SystemClock
from firesteel.core.errors import FiresteelError, FleetError
from firesteel.core.machine import usable_cores
from firesteel.core.notebook import kernel_shell

if TYPE_CHECKING:
    from firesteel.client.embedded_cluster import EmbeddedCluster
    from firesteel.client.rest_client import RestClient
    from firesteel.graph.job_graph import JobGraph

logger = logging.getLogger(__name__)


class _Shared:
    """The cluster of this process, if one runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cluster: EmbeddedCluster | None = None
        self._hooked = False

    def get(self, settings: Settings, slots_needed: int) -> EmbeddedCluster:
        with self._lock:
            cluster = self._cluster
            if cluster is None or cluster.pid != os.getpid():
                slots = settings.get(options.TASKMANAGER_SLOTS)
                if not settings.is_set(options.TASKMANAGER_SLOTS):
                    slots = max(usable_cores(), slots_needed)
                if not self._hooked:
                    before_threads_end(self.stop)
                    self._hooked = True
                cluster = self._cluster = _start(settings, slots)
            else:
                says_slots = settings.is_set(options.TASKMANAGER_SLOTS)
                cluster.ensure_slots(settings.get(options.TASKMANAGER_SLOTS) if says_slots else slots_needed)
            return cluster

    def running(self) -> EmbeddedCluster | None:
        with self._lock:
            cluster = self._cluster
            return cluster if cluster is not None and cluster.pid == os.getpid() else None

    def stop(self) -> None:
        with self._lock:
            cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.stop()


_shared = _Shared()


def stop_embedded_cluster() -> None:
    """End the embedded cluster of this process, if one runs; the next job starts a new one."""
    _shared.stop()


def _start(settings: Settings, slots: int) -> EmbeddedCluster:
    if sys.platform == "win32":
        raise FleetError("Slots do not run on Windows: build graphs here, and run them on Linux or macOS.")
    # what a cluster needs is imported when the first job comes, not when a graph is built
    from firesteel.client.embedded_cluster import EmbeddedCluster

    return EmbeddedCluster(settings, slots)


async def _submit(rest: RestClient, job_graph: JobGraph, blobs: Mapping[str, bytes], gave_up: threading.Event) -> None:
    await rest.submit(job_graph, blobs)
    if gave_up.is_set():
        await rest.cancel(job_graph.job_id)


class EmbeddedJobClient(ClusterJobClient):
    """A job of the cluster inside this process."""

    @override
    def wait(self) -> JobExecutionResult:
        if kernel_shell() is None:
            return super().wait()
        console = CellConsole(self._rest.dashboard_url(self._job_id))
        return AttachedWait(self, self._graph, console, SystemClock(), show_progress=True).run()


class EmbeddedExecutor:
    """Runs a program's jobs in the embedded cluster; a ``firesteel.common.executor.PipelineExecutor``.

    Args:
        configuration: what the program set so far.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._told: set[str] = set()

    def default_parallelism(self) -> int:
        """What the command line, the environment or ``config.yaml`` say, else the usable cores."""
        settings = load_settings(definitions=handed_on())
        is_set = settings.is_set(options.PARALLELISM_DEFAULT)
        return settings.get(options.PARALLELISM_DEFAULT) if is_set else usable_cores()

    def submit(self, graph: Any, configuration: Configuration) -> ClusterJobClient:
        """Submit a StreamGraph; returns when the cluster has accepted the job.

        Raises:
            ProgramError: the graph is refused; nothing was deployed.
            ConfigurationError: an option is refused.
            FiresteelError: the cluster can't be started.
        """
        settings = load_settings(definitions=handed_on(), program=configuration.to_dict())
        for warning in settings.check():
            if warning not in self._told:
                self._told.add(warning)
                logger.warning("%s", warning)
        job_graph, blobs = prepare(graph, settings, same_host=True)
        program = context.current()
        if program is not None and program.plan_only:
            raise PlanOnly(graph, job_graph)
        cluster = _shared.get(settings, job_graph.slots_needed())
        if kernel_shell() is not None:
            check_slots(job_graph, LOCAL, cluster.slots)
        if cluster.rest is None:
            raise FiresteelError("the embedded cluster has been stopped")
        client = EmbeddedJobClient(job_graph, cluster.rest, cluster.loop)
        gave_up = threading.Event()
        try:
            cluster.loop.start(_submit(cluster.rest, job_graph, blobs, gave_up)).result()
        except KeyboardInterrupt:  # nobody will hold the client: the job must not run on, accepted now or in a moment
            gave_up.set()
            client.cancel()
            raise
        console = Console() if program is None else program.console
        if program is not None or console.has_live_line:  # else the output is for a log or another program
            console.note(f"Dashboard: {cluster.rest.dashboard_url(job_graph.job_id)}")
        return client

    def cluster_jobs(self, configuration: Configuration) -> RestClusterJobs | None:
        """The jobs of the cluster of this process, if one runs."""
        cluster = _shared.running()
        if cluster is None or cluster.rest is None:
            return None
        return RestClusterJobs(cluster.rest, cluster.loop)

    def close(self) -> None:
        """Nothing to release: the cluster serves the whole process."""
