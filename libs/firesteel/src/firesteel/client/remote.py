"""Submits programs to a cluster that runs elsewhere: other processes, other hosts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from firesteel.client import context
from firesteel.client.attached import AttachedWait
from firesteel.client.bars import bar
from firesteel.client.cell_console import CellConsole
from firesteel.client.cell_slots import check_slots
from firesteel.client.cluster_jobs import RestClusterJobs
from firesteel.client.connections import ClusterConnection, connect
from firesteel.client.console import Console
from firesteel.client.detached import DetachedJobExecutionResult
from firesteel.client.failure_watch import FailureWatch, watch_failures
from firesteel.client.graph_shipment import prepare
from firesteel.client.job_client import ClusterJobClient
from firesteel.client.planning import PlanOnly
from firesteel.client.rest_client import RestClient
from firesteel.client.results import RestResultStream
from firesteel.client.waiting import wait_for
from firesteel.common.configuration import Configuration
from firesteel.common.job_execution_result import JobExecutionResult
from firesteel.common.job_id import JobID
from firesteel.config import options
from firesteel.config.definitions import handed_on
from firesteel.config.load import load_settings
from firesteel.config.settings import Settings
from firesteel.core.clock import SystemClock
from firesteel.core.errors import JobError, JobNotFoundError, PeerUnreachableError, RpcError
from firesteel.core.notebook import kernel_shell
from firesteel.datastream.notebook_cards import cluster_of
from firesteel.graph.job_graph import JobGraph
from firesteel.graph.specs import OperatorKind

logger = logging.getLogger(__name__)
_LAST_CANCEL_SECONDS: Final = 5.0
_PRINT_NOTE: Final = "print() writes to the standard output of the TaskManagers (their .out files), not here."
_MIB: Final = 1 << 20
_MILLISECOND: Final = timedelta(milliseconds=1)


class RemoteExecutor:
    """Runs a program's jobs in the cluster at ``rest.address``; a ``firesteel.common.executor.PipelineExecutor``.

    Args:
        configuration: what the program set so far.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._told: set[str] = set()

    def default_parallelism(self) -> int:
        """``parallelism.default``, which is 1 if nobody set it: the client does not know the cluster's cores."""
        return _load(self._configuration).get(options.PARALLELISM_DEFAULT)

    def submit(self, graph: Any, configuration: Configuration) -> ClusterJobClient:
        """Submit a StreamGraph; returns when the cluster has stored the job.

        Raises:
            ProgramError: the graph is refused, here or by the cluster.
            ConfigurationError: an option is refused.
            RpcError: no cluster answers, or it refuses the client.
        """
        settings = _load(configuration)
        for warning in settings.check():
            if warning not in self._told:
                self._told.add(warning)
                logger.warning("%s", warning)
        program = context.current()
        job_graph, blobs = prepare(graph, settings, same_host=False)
        if program is not None and program.plan_only:
            raise PlanOnly(graph, job_graph)
        if program is not None:
            job_graph = replace(job_graph, job_id=next(program.job_ids, job_graph.job_id))
        connection = connect(settings)
        if program is None and kernel_shell() is not None:
            _check_slots(connection, job_graph, settings)
        try:
            was_submitted = program is not None and program.is_restarted and _is_known(connection, job_graph.job_id)
            if not was_submitted:
                _upload(connection, job_graph, blobs, None if program is None else program.console)
        except KeyboardInterrupt:
            _give_up(connection, job_graph.job_id)
            raise
        job = RemoteJobClient(job_graph, connection, settings)
        if program is not None:
            program.jobs[job_graph.job_id] = job
            program.submitted.append(job_graph.job_id)
            verb = "was submitted before, with" if was_submitted else "has been submitted with"
            program.console.say(f"Job {verb} JobID {job_graph.job_id}")
            program.console.note(f"Dashboard: {connection.rest.dashboard_url(job_graph.job_id)}")
            prints = any(node.operator.kind is OperatorKind.PRINT for node in graph.nodes.values())
            if prints and not program.told_of_print:
                program.told_of_print = True
                program.console.note(_PRINT_NOTE)
        job.start_heartbeats()
        job.watch_failures(program.console.note if program is not None else logger.warning)
        return job

    def cluster_jobs(self, configuration: Configuration) -> RestClusterJobs:
        """The jobs of the cluster at ``rest.address``.

        Raises:
            RpcError: no cluster answers, or it refuses the client.
        """
        connection = connect(_load(configuration))
        return RestClusterJobs(connection.rest, connection.loop)

    def close(self) -> None:
        """Nothing to release: connections serve the whole process."""


class RemoteJobClient(ClusterJobClient):
    """A job of a cluster that outlives the program.

    Args:
        graph: that was submitted.
        connection: to the cluster.
        settings: with which it was submitted.
    """

    def __init__(self, graph: JobGraph, connection: ClusterConnection, settings: Settings) -> None:
        super().__init__(graph, connection.rest, connection.loop)
        self._connection, self._settings = connection, settings
        self._attached = settings.get(options.EXECUTION_ATTACHED)
        self._ends_with_client = self._attached and settings.get(options.EXECUTION_SHUTDOWN_ON_ATTACHED_EXIT)

    def start_heartbeats(self) -> None:
        """If the job shall end with its client, tell the cluster from now on that the client lives."""
        if self._ends_with_client:
            interval = self._settings.get(options.CLIENT_HEARTBEAT_INTERVAL)
            timeout = self._settings.get(options.CLIENT_HEARTBEAT_TIMEOUT)
            self._loop.start(_beat(self._rest, self._job_id, interval.total_seconds(), timeout // _MILLISECOND))

    def watch_failures(self, tell: Callable[[str], None]) -> None:
        """Tell why the job is restarted, as long as somebody waits for it."""
        if self._attached:
            watch = FailureWatch(f"job {self._graph.name!r} ({self._job_id})", tell)
            self._loop.start(watch_failures(self._rest, self._job_id, watch))

    def wait(self) -> JobExecutionResult:
        """See ``CollectingJobClient``; a detached job is not waited for."""
        if not self._attached:
            return DetachedJobExecutionResult(JobID.from_hex_string(self._job_id))
        program = context.current()
        is_cell = program is None and kernel_shell() is not None
        console = CellConsole(self._rest.dashboard_url(self._job_id)) if is_cell else Console()
        waiting = AttachedWait(
            self,
            self._graph,
            program.console if program is not None else console,
            SystemClock(),
            show_progress=is_cell if program is None else program.shows_progress,
            cancel_on_exit=self._ends_with_client,
        )
        try:
            result = waiting.run()
        finally:
            if program is not None:  # the person knows what became of it
                program.jobs.pop(self._job_id, None)
        if program is not None:
            program.console.say(f"Job with JobID {self._job_id} has finished.")
            program.console.say(f"Job Runtime: {result.get_net_runtime()} ms")
        return result

    def collect(self, operator_id: str) -> RestResultStream:
        """See ``CollectingJobClient``; a job whose results nobody reads any more is cancelled."""
        stream = super().collect(operator_id)
        self._connection.before_close(stream.abandon)
        program = context.current()
        if program is not None:
            program.jobs.pop(self._job_id, None)
        return stream


def _load(configuration: Configuration) -> Settings:
    return load_settings(definitions=handed_on(), program=configuration.to_dict())


def _check_slots(connection: ClusterConnection, graph: JobGraph, settings: Settings) -> None:
    """Name the jobs of this notebook that have the slots which a job will wait for."""
    try:
        overview = connection.loop.run(connection.rest.get("/overview"))
    except RpcError:  # the submission will say what is wrong
        return
    check_slots(graph, cluster_of(settings), overview["slots-total"], overview["slots-available"])


def _upload(
    connection: ClusterConnection, graph: JobGraph, blobs: Mapping[str, bytes], console: Console | None
) -> None:
    """Submit a job; on a terminal a line says how much of the program has been sent, if it takes longer."""
    if console is None:
        connection.loop.run(connection.rest.submit(graph, blobs))
        return
    sent = [0, 0]

    def count(done: int, total: int) -> None:
        sent[:] = done, total

    def text() -> str:
        done, total = sent
        return f"Sending the program {bar(done, total)}  {done / _MIB:.1f} of {total / _MIB:.1f} MiB"

    wait_for(console, connection, text, connection.rest.submit(graph, blobs, count))


def _is_known(connection: ClusterConnection, job_id: str) -> bool:
    try:
        connection.loop.run(connection.rest.get(f"/jobs/{job_id}/status"))
    except JobNotFoundError:
        return False
    logger.info("job %s was submitted before: it is not submitted again", job_id)
    return True


def _give_up(connection: ClusterConnection, job_id: str) -> None:
    """The submission was interrupted: the cluster may have the job or not."""
    try:
        connection.loop.run(connection.rest.cancel(job_id), timeout=_LAST_CANCEL_SECONDS)
    except (RpcError, JobError, TimeoutError):
        pass


async def _beat(rest: RestClient, job_id: str, interval_s: float, timeout_ms: int) -> None:
    clock = SystemClock()
    while True:
        try:
            await rest.client_heartbeat(job_id, clock.epoch_ms() + timeout_ms)
        except PeerUnreachableError:
            logger.info("the heartbeat for job %s did not get through", job_id)
        except (RpcError, JobError):  # the job has ended
            return
        await asyncio.sleep(interval_s)
