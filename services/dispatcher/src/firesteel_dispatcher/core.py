"""The Dispatcher's decisions: events in, instructions out; no input or output, no clock of its own."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

logger = logging.getLogger(__name__)
ENDED: Final = frozenset({"FINISHED", "CANCELED", "FAILED"})
"""States that a job does not leave."""


class UnknownJobError(Exception):
    """No job has this id, or it ended too long ago."""


class JobEndedError(Exception):
    """The job has ended already."""


class JobConflictError(Exception):
    """Another job has this id."""


@dataclass(frozen=True)
class StartJob:
    """Have a JobMaster run a job; answer by ``started`` or ``failed``."""

    job_id: str


@dataclass(frozen=True)
class CancelJob:
    """Tell the JobMaster to cancel its job."""

    job_id: str
    address: str
    token: str


@dataclass(frozen=True)
class DeleteJobData:
    """The job has ended: its graph and blobs are needed no longer."""

    job_id: str


Instruction = StartJob | CancelJob | DeleteJobData


@dataclass
class Job:
    """One job, from its submission until it is forgotten.

    Attributes:
        fingerprint: of the graph.
        archive: how it looked when it was submitted, and how it ended; in between the JobMaster knows.
        jobmaster: address and token; None until it has started.
    """

    id: str
    name: str
    fingerprint: str
    archive: Mapping[str, Any]
    state: str = "INITIALIZING"
    timestamps: Mapping[str, int] = field(default_factory=dict)
    jobmaster: tuple[str, str] | None = None
    cancel_wanted: bool = False
    ended: bool = False


class DispatcherCore:
    """All jobs that run, and those that ended last.

    Args:
        kept: how many ended jobs are kept.
    """

    def __init__(self, kept: int = 100) -> None:
        self._kept = kept
        self.jobs: dict[str, Job] = {}
        """In the order of submission; ended ones are moved to the end."""

    def job(self, job_id: str) -> Job:
        """A job.

        Raises:
            UnknownJobError: there is none with this id.
        """
        job = self.jobs.get(job_id)
        if job is None:
            raise UnknownJobError(f"Job {job_id} not found")
        return job

    def is_known(self, job_id: str, fingerprint: str) -> bool:
        """Whether this very job was submitted before.

        Raises:
            JobConflictError: another one with this id was.
        """
        job = self.jobs.get(job_id)
        if job is not None and job.fingerprint != fingerprint:
            raise JobConflictError(f"Job {job_id} was submitted before with another graph: a new job needs a new id")
        return job is not None

    def submitted(self, job_id: str, name: str, fingerprint: str, archive: Mapping[str, Any]) -> list[Instruction]:
        """A job is stored; submitting it again changes nothing.

        Raises:
            JobConflictError: another job has its id.
        """
        if self.is_known(job_id, fingerprint):
            return []
        self.jobs[job_id] = Job(job_id, name, fingerprint, archive, timestamps=dict(archive.get("timestamps", {})))
        logger.info("job %s (%s) was submitted", job_id, name)
        return [StartJob(job_id)]

    def started(self, job_id: str, address: str, token: str) -> list[Instruction]:
        """A JobMaster runs the job."""
        job = self.jobs.get(job_id)
        if job is None or job.ended:
            return []
        job.jobmaster = (address, token)
        return [CancelJob(job_id, address, token)] if job.cancel_wanted else []

    def state_changed(self, job_id: str, state: str, timestamps: Mapping[str, int]) -> None:
        """The job entered another state.

        Raises:
            UnknownJobError: there is no such job.
        """
        job = self.job(job_id)
        if not job.ended:
            job.state, job.timestamps = state, dict(timestamps)

    def finished(self, job_id: str, archive: Mapping[str, Any]) -> list[Instruction]:
        """The job reached a final state; repeats change nothing.

        Raises:
            UnknownJobError: there is no such job.
        """
        job = self.job(job_id)
        if job.ended:
            return []
        job.archive, job.ended, job.state = archive, True, str(archive["state"])
        job.timestamps = dict(archive.get("timestamps", {}))
        logger.info("job %s (%s) is %s", job_id, job.name, job.state)
        self.jobs[job_id] = self.jobs.pop(job_id)
        for old in [j.id for j in self.jobs.values() if j.ended][: -self._kept]:
            del self.jobs[old]
        return [DeleteJobData(job_id)]

    def failed(self, job_id: str, error_class: str, message: str, now_ms: int) -> list[Instruction]:
        """The job failed without a JobMaster that could say so: none could be started, or it is lost."""
        job = self.jobs.get(job_id)
        if job is None or job.ended:
            return []
        cancelled = job.cancel_wanted and job.jobmaster is None
        return self.finished(job_id, _ended(job.archive, cancelled, error_class, message, now_ms))

    def cancel(self, job_id: str) -> list[Instruction]:
        """Cancel a job, also while it is being started or waits for slots.

        Raises:
            UnknownJobError: there is no such job.
            JobEndedError: it has ended.
        """
        job = self.job(job_id)
        if job.ended:
            raise JobEndedError(f"Job {job_id} has already ended as {job.state}")
        job.cancel_wanted = True
        return [] if job.jobmaster is None else [CancelJob(job_id, *job.jobmaster)]

    def counts(self) -> dict[str, int]:
        """Jobs by what /overview tells of them."""
        states = [job.state for job in self.jobs.values() if job.ended]
        return {
            "jobs-running": len(self.jobs) - len(states),
            "jobs-finished": states.count("FINISHED"),
            "jobs-cancelled": states.count("CANCELED"),
            "jobs-failed": states.count("FAILED"),
        }


def _ended(archive: Mapping[str, Any], cancelled: bool, error_class: str, message: str, now_ms: int) -> dict[str, Any]:
    """The archive of a job that ended without its JobMaster."""
    state = "CANCELED" if cancelled else "FAILED"
    failure = {
        "kind": "external", "error_class": error_class, "message": message, "traceback": f"{error_class}: {message}",
        "operator": "", "vertex_name": "", "subtask": -1, "attempt": 0, "record": None, "pickled": None,
    }  # fmt: skip
    record = {**failure, "timestamp": now_ms, "taskName": "", "endpoint": "", "taskManagerId": ""}
    start = archive.get("start-time", now_ms)
    return {
        **archive,
        "state": state,
        "end-time": now_ms,
        "now": now_ms,
        "duration": now_ms - start,
        "timestamps": {**archive.get("timestamps", {}), state: now_ms},
        "exceptions": [] if cancelled else [record],
        "failure": None if cancelled else failure,
    }
