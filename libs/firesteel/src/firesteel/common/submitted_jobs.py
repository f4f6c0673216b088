"""The jobs that this process has submitted and whose end it has not seen: of all its environments.

A notebook's cell that is run again makes a new environment, and the job of its earlier run may go on: somebody has to
know it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from firesteel.common.completable_future import CompletableFuture
from firesteel.common.executor import CollectingJobClient
from firesteel.common.job_status import JobStatus
from firesteel.core.errors import JobError, PeerUnreachableError, RpcError
from firesteel.core.notebook import Cell, current_cell

LOCAL: Final = ("local",)
"""The cluster inside this process, as a name for ``SubmittedJob.cluster``."""
_ANSWER_SECONDS: Final = 5.0
_MOST: Final = 100
"""Jobs of unknown end from which on their states are asked for: a program of many jobs must not keep them all."""


class SubmittedJob(NamedTuple):
    """A job of this process.

    Attributes:
        client: of the job.
        cluster: that it was submitted to: the target, and the address if there is one.
        cell: of the notebook that submitted it.
    """

    client: CollectingJobClient
    cluster: tuple[str, ...]
    cell: Cell | None


class SubmittedJobs:
    """See the module. Its methods may be called by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: list[SubmittedJob] = []
        self._most = _MOST

    def add(self, client: CollectingJobClient, cluster: tuple[str, ...]) -> None:
        """Note a job that a cluster has accepted."""
        with self._lock:
            self._jobs.append(SubmittedJob(client, cluster, current_cell()))
            is_long = len(self._jobs) > self._most
        if is_long:
            self._most = max(_MOST, 2 * len(self.running(lambda job: True)))

    def remove(self, client: CollectingJobClient) -> None:
        """Forget a job whose end was seen."""
        with self._lock:
            self._jobs = [job for job in self._jobs if job.client is not client]

    def running(self, matches: Callable[[SubmittedJob], bool]) -> list[tuple[SubmittedJob, JobStatus | None]]:
        """The matching jobs that have not ended, with their states; None = the cluster does not answer for now."""
        with self._lock:
            jobs = [job for job in self._jobs if matches(job)]
        deadline = time.monotonic() + _ANSWER_SECONDS
        requests = [(job, _status_of(job.client)) for job in jobs]  # all at once: a cluster may be away
        running: list[tuple[SubmittedJob, JobStatus | None]] = []
        for job, request in requests:
            status: JobStatus | None = None
            try:
                status = request.result(max(0.0, deadline - time.monotonic()))
                has_ended = status.is_globally_terminal_state()
            except JobError:  # the cluster has forgotten it
                has_ended = True
            except (RpcError, TimeoutError) as error:  # a cluster inside this process that can't be reached has ended
                has_ended = isinstance(error, PeerUnreachableError) and job.cluster == LOCAL
                request.cancel()
            if has_ended:
                self.remove(job.client)
            else:
                running.append((job, status))
        return running


def _status_of(client: CollectingJobClient) -> CompletableFuture[JobStatus]:
    try:
        return client.get_job_status()
    except PeerUnreachableError as error:  # its connection was closed
        future: CompletableFuture[JobStatus] = CompletableFuture()
        future.set_exception(error)
        return future


submitted_jobs: Final = SubmittedJobs()
"""The jobs that this process has submitted."""
