"""How a program's graph gets to a cluster: the interface that every way of running it implements.

Implementations are found by name in the plug-in group ``firesteel.executors``; the object of that name is called
with the program's ``Configuration`` and gives a ``PipelineExecutor``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from firesteel.common.configuration import Configuration
from firesteel.common.job_client import JobClient
from firesteel.common.job_execution_result import JobExecutionResult

__all__ = ["CollectingJobClient", "ExecutorFactory", "PipelineExecutor", "ResultStream"]


class ResultStream(Protocol):
    """Results of a collect operator, pulled by the client in order, each exactly once."""

    def fetch(self) -> list[Any] | None:
        """Wait for a while for more results.

        Returns:
            The next results; an empty list if none came in that time; None when the job has finished and all results
            were fetched.

        Raises:
            JobFailedError, JobCancelledError: the job did not finish.
            UserFunctionError: a function of the program raised.
            JobError: the job began anew, without a checkpoint, after it had given results; it is cancelled.
        """
        ...

    def close(self) -> None:
        """No more results are wanted: cancel the job unless it has ended. Idempotent; never raises for a lost job."""
        ...


class CollectingJobClient(JobClient):
    """A client of a job whose graph may hold a collect operator."""

    def wait(self) -> JobExecutionResult:
        """What ``execute()`` does once the job was accepted: it waits for the end. Ctrl-C cancels the job.

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
        """The results of the collect operator with this id."""


class PipelineExecutor(Protocol):
    """Submits graphs. Making one and asking it for its default parallelism start nothing."""

    def default_parallelism(self) -> int:
        """Parallelism of programs that set none."""
        ...

    def submit(self, graph: Any, configuration: Configuration) -> CollectingJobClient:
        """Submit a ``firesteel.graph.stream_graph.StreamGraph``; returns when the cluster has accepted the job.

        Raises:
            ProgramError: the graph is refused; nothing was deployed.
            ConfigurationError: an option is refused.
            FiresteelError: the cluster can't be reached or started.
        """
        ...

    def close(self) -> None:
        """Release what this executor holds on behalf of its program. Idempotent."""
        ...


ExecutorFactory = Callable[[Configuration], PipelineExecutor]
