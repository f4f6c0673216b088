"""``firesteel list``, ``firesteel cancel`` and ``firesteel checkpoint``."""

from __future__ import annotations

import argparse
import asyncio
import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from firesteel.client.cli import exit_codes
from firesteel.client.cli.definitions import settings_of
from firesteel.client.cli.named_jobs import ENDED, Result, for_each_job, named_jobs
from firesteel.client.cli.top_table import rate_text
from firesteel.client.connections import close_connections, connect
from firesteel.client.console import Console
from firesteel.client.rest_client import RestClient, failure_text
from firesteel.client.waiting import wait_for
from firesteel.core.errors import CheckpointError, ConfigurationError, JobError
from firesteel.core.human_texts import duration_text
from firesteel.core.ids import JobId

SCHEDULED: Final = frozenset({"CREATED", "INITIALIZING"})
_SEVERITY: Final = {"bad": 0, "warn": 1}
_WIDTH: Final = 62
_POLL_SECONDS: Final = 0.2


def list_jobs(parsed: argparse.Namespace, console: Console) -> int:
    """Show running, scheduled or all jobs (``firesteel list``)."""
    try:
        connection = connect(settings_of(parsed))
        if not parsed.json:
            console.note("Waiting for response...")
        jobs = wait_for(console, connection, "Asking for jobs", connection.rest.get("/jobs/overview"))["jobs"]
    finally:
        close_connections()
    shows_live = not parsed.running and not parsed.scheduled  # without an option: all jobs that have not ended
    states = {"running": parsed.running or shows_live, "scheduled": parsed.scheduled or shows_live, "ended": parsed.all}
    if parsed.json:
        console.say_json({"jobs": [job for group in chosen_jobs(jobs, **states).values() for job in group]})
        return exit_codes.DONE
    for line in job_lists(jobs, **states):
        console.say_states(line)
    return exit_codes.DONE


def chosen_jobs(
    jobs: Iterable[Mapping[str, Any]], *, running: bool, scheduled: bool, ended: bool
) -> dict[str, list[Mapping[str, Any]]]:
    """Jobs by group: in each those that are ill come first, and otherwise those that started first.

    Args:
        jobs: of the answer of ``GET /jobs/overview``.
        running, scheduled, ended: which ones to show.
    """
    in_order = sorted(jobs, key=lambda job: (_SEVERITY.get(_finding(job).get("kind", ""), 2), job["start-time"]))
    groups: dict[str, list[Mapping[str, Any]]] = {}
    if running:
        groups["running"] = [job for job in in_order if job["state"] not in SCHEDULED | ENDED]
    if scheduled:
        groups["scheduled"] = [job for job in in_order if job["state"] in SCHEDULED]
    if ended:
        groups["ended"] = [job for job in in_order if job["state"] in ENDED]
    return groups


def job_lists(jobs: Iterable[Mapping[str, Any]], *, running: bool, scheduled: bool, ended: bool) -> list[str]:
    """The lists, as Flink writes them; see ``chosen_jobs``."""
    chosen = chosen_jobs(jobs, running=running, scheduled=scheduled, ended=ended)
    lines: list[str] = []
    if running:
        lines += _one_list("Running/Restarting Jobs", chosen["running"]) or ["No running jobs."]
    if scheduled:
        lines += _one_list("Scheduled Jobs", chosen["scheduled"]) or ["No scheduled jobs."]
    if ended:
        lines += _one_list("Terminated Jobs", chosen["ended"])
    return lines


def _one_list(title: str, jobs: list[Mapping[str, Any]]) -> list[str]:
    if not jobs:
        return []
    lines = [line for job in jobs for line in (_line(job), *health_lines(job))]
    return [f" {title} ".center(_WIDTH, "-"), *lines, "-" * _WIDTH]


def _line(job: Mapping[str, Any]) -> str:
    start = datetime.fromtimestamp(job["start-time"] / 1000).strftime("%d.%m.%Y %H:%M:%S")
    return f"{start} : {job['jid']} : {job['name']} ({job['state']})"


def health_lines(job: Mapping[str, Any]) -> list[str]:
    """What a row of ``/jobs/overview`` says of the health of its job, below the line that Flink has.

    Returns:
        The worst finding, unless all is well, and the figures; nothing of an older cluster.
    """
    health = job.get("firesteel-health", {})
    finding, texts = _finding(job), []
    if "records-in-per-second" in health:
        texts.append(f"in {rate_text(health['records-in-per-second'])}/s")
    if "records-out-per-second" in health:
        texts.append(f"out {rate_text(health['records-out-per-second'])}/s")
    if "pending-records" in health:
        texts.append(f"lag {health['pending-records']:,} records")
    if "last-checkpoint-timestamp" in health:
        age = job["start-time"] + job["duration"] - health["last-checkpoint-timestamp"]
        texts.append(f"last checkpoint {duration_text(max(0, age))} ago")
    if restarts := health.get("restarts-in-last-hour"):
        texts.append(f"{restarts} {'restart' if restarts == 1 else 'restarts'} in the last hour")
    shows_finding = finding and (finding["kind"] != "good" or job.get("jobType") == "BATCH")
    return [*([f"    {finding['text']}"] if shows_finding else []), *([f"    {', '.join(texts)}"] if texts else [])]


def _finding(job: Mapping[str, Any]) -> Mapping[str, Any]:
    finding: Mapping[str, Any] | None = job.get("firesteel-health", {}).get("finding")
    return finding or {}


def cancel(parsed: argparse.Namespace, console: Console) -> int:
    """Cancel a job, with a savepoint if asked to (``firesteel cancel``)."""
    directory = parsed.savepoint
    if not parsed.jobs and directory:  # `cancel -s JOB`, as Flink reads it
        parsed.jobs, directory = [directory], ""
    if not parsed.jobs:
        raise ConfigurationError("name the job, as `firesteel list` shows it")
    try:
        connection = connect(settings_of(parsed))

        def cancelled(job_id: JobId) -> Result:
            if directory is not None:
                from firesteel.client.cli.savepoints import cancel_with_savepoint

                return cancel_with_savepoint(parsed, console, connection, job_id, directory or None)
            if not parsed.json:
                console.note(f"Cancelling job {job_id}.")
            if not wait_for(console, connection, f"Cancelling job {job_id}", connection.rest.cancel(job_id)):
                raise JobError(f"job {job_id} has already ended", job_id)
            return f"Cancelled job {job_id}.", {"job": job_id}

        return for_each_job(parsed, console, named_jobs(console, connection, parsed.jobs), cancelled)
    finally:
        close_connections()


def checkpoint(parsed: argparse.Namespace, console: Console) -> int:
    """Trigger a checkpoint and wait for its end (``firesteel checkpoint``)."""
    trigger_id = uuid.uuid4().hex
    try:
        connection = connect(settings_of(parsed))
        rest = connection.rest
        (job_id,) = named_jobs(console, connection, [parsed.job])
        if not parsed.json:
            console.note(f"Triggering checkpoint for job {job_id}.")
        connection.loop.run(rest.trigger_checkpoint(job_id, trigger_id, parsed.full))
        if not parsed.json:
            console.note(f"Waiting for response (trigger id {trigger_id})...")
        result = wait_for(console, connection, "The checkpoint is taken", _until_done(rest, job_id, trigger_id))
        failure = result.get("failure-cause")
        if failure is not None:
            raise CheckpointError(failure_text(failure))
        number = result["checkpointId"]
        path = connection.loop.run(rest.get(f"/jobs/{job_id}/checkpoints/details/{number}"))["external_path"]
    finally:
        close_connections()
    console.say_result(
        parsed.json,
        f"Checkpoint {number} for job {job_id} successfully completed: {path}",
        {"job": job_id, "checkpoint": number, "path": path},
    )
    return exit_codes.DONE


async def _until_done(rest: RestClient, job_id: str, trigger_id: str) -> dict[str, Any]:
    while True:
        result = await rest.checkpoint_result(job_id, trigger_id)
        if result is not None:
            return result
        await asyncio.sleep(_POLL_SECONDS)
