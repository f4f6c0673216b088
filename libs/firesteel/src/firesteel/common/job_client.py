"""``JobClient``: a program's access to its running job, from ``execute_async()``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from firesteel.common.completable_future import CompletableFuture
from firesteel.common.job_execution_result import JobExecutionResult
from firesteel.common.job_id import JobID
from firesteel.common.job_status import JobStatus

__all__ = ["JobClient"]


class JobClient(ABC):
    """Access to a job that was submitted.

    Examples:
        ```python
        from firesteel.datastream import StreamExecutionEnvironment

        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        env.from_collection([1]).print()
        client = env.execute_async("in the background")
        client.get_job_execution_result().result()
        print(client.get_job_status().result().name)
        ```

        ```text
        1
        FINISHED
        ```
    """

    @abstractmethod
    def get_job_id(self) -> JobID:
        """Returns the job's id."""

    @abstractmethod
    def get_web_interface_url(self) -> str:
        """Returns the base URL of the cluster's REST API."""

    @abstractmethod
    def get_job_status(self) -> CompletableFuture[JobStatus]:
        """Requests the job's state."""

    @abstractmethod
    def cancel(self) -> CompletableFuture[None]:
        """Requests the cancellation of the job; the future is done when the request was accepted."""

    @abstractmethod
    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """Returns a future of the job's result.

        Its ``result()`` raises ``JobFailedError`` or ``JobCancelledError`` when the job did not finish.
        """

    @abstractmethod
    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        """Stops the job with a savepoint: sources stop reading, all results are committed, and the job finishes.

        Args:
            advance_to_end_of_event_time: drain the job: all windows and timers of event time fire before the
                savepoint. Not for a job that is to be resumed later.
            savepoint_directory: parent directory of the savepoint; None = ``execution.checkpointing.savepoint-dir``.

        Returns:
            A future of the savepoint's path, done when the job has finished. It raises ``CheckpointError`` if the
            savepoint failed; then the job goes on.
        """

    @abstractmethod
    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Takes a savepoint; the job goes on.

        Args:
            savepoint_directory: parent directory of the savepoint; None = ``execution.checkpointing.savepoint-dir``.

        Returns:
            A future of the savepoint's path, done when it is complete. It raises ``CheckpointError`` if it failed.
        """

    @abstractmethod
    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        """Requests the accumulators of the job: the counters of its functions, summed over all subtasks.

        Their names consist of the operator's, the groups' and the counter's names, joined by dots.
        """

    @abstractmethod
    def get_job_details(self) -> CompletableFuture[dict[str, Any]]:
        """Requests the answer of the REST API's ``GET /jobs/:jobid``; PyFlink has no such method.

        The request carries the cluster's token, if the cluster needs one.
        """
