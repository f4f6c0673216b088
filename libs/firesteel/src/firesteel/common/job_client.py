"""``JobClient``: a running job as its program sees it. ``execute_async()`` returns one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from firesteel.common.completable_future import CompletableFuture
from firesteel.common.job_execution_result import JobExecutionResult
from firesteel.common.job_id import JobID
from firesteel.common.job_status import JobStatus

__all__ = ["JobClient"]


class JobClient(ABC):
    """A job that was submitted."""

    @abstractmethod
    def get_job_id(self) -> JobID:
        """Returns the job's id."""

    @abstractmethod
    def get_web_interface_url(self) -> str:
        """Returns the base URL of the cluster's REST API."""

    @abstractmethod
    def get_job_status(self) -> CompletableFuture[JobStatus]:
        """Asks for the job's state."""

    @abstractmethod
    def cancel(self) -> CompletableFuture[None]:
        """Asks for the job to be cancelled; done when the request was accepted."""

    @abstractmethod
    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """Returns a future of the job's result.

        Its ``result()`` raises ``JobFailedError`` or ``JobCancelledError`` when the job did not finish.
        """

    @abstractmethod
    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        """Stops the job with a savepoint: sources read no further, what came before is committed, the job finishes.

        Args:
            advance_to_end_of_event_time: drain: windows and timers of event time fire before. Not for a job that is to
                go on later.
            savepoint_directory: below which it is to be; None = ``execution.checkpointing.savepoint-dir``.

        Returns:
            where it is, when the job has finished; raises ``CheckpointError`` if there is none: the job goes on.
        """

    @abstractmethod
    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Takes a savepoint; the job goes on.

        Args:
            savepoint_directory: below which it is to be; None = ``execution.checkpointing.savepoint-dir``.

        Returns:
            where it is, when it is complete; raises ``CheckpointError`` if it could not be taken.
        """

    @abstractmethod
    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        """Asks for the accumulators of the job: the counters of its functions, summed up.

        Their names are those of the operator, the groups and the counter, with dots between.
        """

    @abstractmethod
    def get_job_details(self) -> CompletableFuture[dict[str, Any]]:
        """Asks for what the REST API tells of the job, the answer of ``GET /jobs/:jobid``; PyFlink has nothing like it.

        It brings the cluster's token along, where the cluster wants one.
        """
