"""Executors: the interface that submits a program's graph to a cluster, for each way of running programs.

Implementations are found by name in the plug-in group ``firesteel.executors``; the object with that name is called
with the program's ``Configuration`` and returns a ``PipelineExecutor``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from firesteel.common.configuration import Configuration
from firesteel.common.job_client import JobClient
from firesteel.common.job_execution_result import JobExecutionResult

__all__ = ["ClusterJobs", "CollectingJobClient", "ExecutorFactory", "PipelineExecutor", "ResultStream"]


class ResultStream(Protocol):
    """The results of a collect operator, which the client fetches in order, each exactly once."""

    def fetch(self) -> list[Any] | None:
        """Fetch more results; waits for them for a while.

        Returns:
            The next results; an empty list if none came in that time; None when the job has finished and all results
            were fetched.

        Raises:
            JobFailedError, JobCancelledError: the job did not finish.
            UserFunctionError: a function of the program raised.
            JobError: the job has restarted without a checkpoint after results were fetched; it is cancelled.
        """
        ...

    def close(self) -> None:
        """Stop fetching: cancel the job unless it has ended. Idempotent; never raises for a lost job."""
        ...


class CollectingJobClient(JobClient):
    """A client of a job whose graph may contain a collect operator."""

    def wait(self) -> JobExecutionResult:
        """Wait for the end of the job, as ``execute()`` does. Ctrl-C cancels the job.

        Raises:
            JobError: the job did not finish.
        """
        try:
            return self.get_job_execution_result().result()
        except KeyboardInterrupt:
            self.cancel()
            raise

    @abstractmethod
    def collect(self, operator_id: str) -> ResultStream:
        """Return the results of the collect operator with this id."""


class ClusterJobs(Protocol):
    """The jobs of a cluster, whoever has submitted them."""

    def overview(self) -> list[dict[str, Any]]:
        """Return the ``jobs`` of ``GET /jobs/overview``.

        Raises:
            RpcError: the cluster does not answer.
        """
        ...

    def cancel(self, job_id: str) -> None:
        """Cancel a job.

        Raises:
            JobError: there is no such job.
            RpcError: the cluster does not answer.
        """
        ...

    def stop(self, job_id: str, *, drain: bool) -> str:
        """Stop a job with a savepoint, and wait for it; returns the savepoint's path.

        Raises:
            JobError: there is no such job.
            FiresteelError: there is no savepoint, and the job goes on; or the cluster does not answer.
        """
        ...


class PipelineExecutor(Protocol):
    """Submits graphs. Its constructor and ``default_parallelism`` do not start a cluster."""

    def default_parallelism(self) -> int:
        """Return the parallelism of programs that set none."""
        ...

    def submit(self, graph: Any, configuration: Configuration) -> CollectingJobClient:
        """Submit a ``firesteel.graph.stream_graph.StreamGraph``; returns when the cluster has accepted the job.

        Raises:
            ProgramError: the graph is refused; nothing was deployed.
            ConfigurationError: an option is refused.
            FiresteelError: the cluster can't be reached or started.
        """
        ...

    def cluster_jobs(self, configuration: Configuration) -> ClusterJobs | None:
        """Return the jobs of the cluster; None if there is no cluster yet.

        Raises:
            RpcError: no cluster answers, or it refuses the client.
        """
        ...

    def close(self) -> None:
        """Release the resources that this executor has for its program. Idempotent."""
        ...


ExecutorFactory = Callable[[Configuration], PipelineExecutor]
