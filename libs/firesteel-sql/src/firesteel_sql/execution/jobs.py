"""SHOW JOBS, DESCRIBE JOB and STOP JOB: the jobs of the cluster that statements are submitted to."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from firesteel.common.executor import ClusterJobs
from firesteel.core.errors import CheckpointError, JobError
from firesteel.table.types import DataTypes
from firesteel_sql.catalog.catalog import near
from firesteel_sql.execution.listings import Listing
from firesteel_sql.parse import statement_nodes as s
from firesteel_sql.parse.errors import SqlError

_COLUMNS = [
    ("job id", DataTypes.STRING()),
    ("job name", DataTypes.STRING()),
    ("status", DataTypes.STRING()),
    ("start time", DataTypes.TIMESTAMP_LTZ(3)),
]
"""Flink's."""


def _row(job: dict[str, Any]) -> tuple[Any, ...]:
    started = datetime.fromtimestamp(job["start-time"] / 1000, UTC)
    return job["jid"], job["name"], job["state"], started


def show_jobs(jobs: ClusterJobs | None) -> Listing:
    """A row for each job of the cluster.

    Raises:
        RpcError: the cluster does not answer.
    """
    return _COLUMNS, [] if jobs is None else [_row(job) for job in jobs.overview()]


def describe_job(jobs: ClusterJobs | None, statement: s.Describe, sql: str) -> Listing:
    """The row of one job.

    Raises:
        SqlError: there is no such job.
        RpcError: the cluster does not answer.
    """
    (job_id,) = statement.path
    return _COLUMNS, [_row(_found(jobs, job_id, sql))]


def _found(jobs: ClusterJobs | None, job_id: str, sql: str) -> dict[str, Any]:
    known = {} if jobs is None else {str(job["jid"]): job for job in jobs.overview()}
    if job_id not in known:
        raise _error(sql, f"there is no job '{job_id}'{near(job_id, known)}")
    return known[job_id]


def _error(sql: str, problem: str) -> SqlError:
    """The error at the id of the job, the first text in the statement."""
    start = sql.index("'")
    return SqlError(problem, sql, start, sql.index("'", start + 1) + 1)


def stop_job(jobs: ClusterJobs | None, statement: s.StopJob, sql: str) -> str | None:
    """Stop a job; returns the path of the savepoint if it is to have one.

    Raises:
        SqlError: there is no such job, it has ended, or there is no savepoint and the job goes on.
        RpcError: the cluster does not answer.
    """
    if statement.with_drain and not statement.with_savepoint:
        raise _error(sql, "a job is drained for its savepoint: STOP JOB '...' WITH SAVEPOINT WITH DRAIN")
    job = _found(jobs, statement.job, sql)
    assert jobs is not None
    if job["end-time"] > 0:
        raise _error(sql, f"the job '{statement.job}' has ended: it is {job['state']}")
    try:
        if statement.with_savepoint:
            return jobs.stop(statement.job, drain=statement.with_drain)
        jobs.cancel(statement.job)
    except (CheckpointError, JobError) as error:
        raise _error(sql, f"the job '{statement.job}' was not stopped: {error}") from error
    return None
