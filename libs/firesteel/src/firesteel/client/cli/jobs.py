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
from firesteel.client.connections import close_connections, connect
from firesteel.client.console import Console
from firesteel.client.rest_client import RestClient
from firesteel.core.ids import parse_job_id

_SCHEDULED: Final = frozenset({"CREATED", "INITIALIZING"})
_ENDED: Final = frozenset({"FINISHED", "CANCELED", "FAILED"})
_WIDTH: Final = 62
_POLL_SECONDS: Final = 0.2


def list_jobs(parsed: argparse.Namespace, console: Console) -> int:
    """``firesteel list``."""
    try:
        connection = connect(settings_of(parsed))
        console.note("Waiting for response...")
        jobs = connection.loop.run(connection.rest.get("/jobs/overview"))["jobs"]
    finally:
        close_connections()
    both = not parsed.running and not parsed.scheduled
    for line in job_lists(jobs, running=parsed.running or both, scheduled=parsed.scheduled or both, ended=parsed.all):
        console.say(line)
    return exit_codes.DONE


def job_lists(jobs: Iterable[Mapping[str, Any]], *, running: bool, scheduled: bool, ended: bool) -> list[str]:
    """The lists, as Flink writes them: each in the order in which its jobs started.

    Args:
        jobs: of the answer of ``GET /jobs/overview``.
        running, scheduled, ended: which ones to show.
    """
    by_start = sorted(jobs, key=lambda job: job["start-time"])
    lines: list[str] = []
    if running:
        chosen = [job for job in by_start if job["state"] not in _SCHEDULED | _ENDED]
        lines += _one_list("Running/Restarting Jobs", chosen) or ["No running jobs."]
    if scheduled:
        chosen = [job for job in by_start if job["state"] in _SCHEDULED]
        lines += _one_list("Scheduled Jobs", chosen) or ["No scheduled jobs."]
    if ended:
        chosen = [job for job in by_start if job["state"] in _ENDED]
        lines += _one_list("Terminated Jobs", chosen)
    return lines


def _one_list(title: str, jobs: list[Mapping[str, Any]]) -> list[str]:
    if not jobs:
        return []
    return [f" {title} ".center(_WIDTH, "-"), *map(_line, jobs), "-" * _WIDTH]


def _line(job: Mapping[str, Any]) -> str:
    start = datetime.fromtimestamp(job["start-time"] / 1000).strftime("%d.%m.%Y %H:%M:%S")
    return f"{start} : {job['jid']} : {job['name']} ({job['state']})"


def cancel(parsed: argparse.Namespace, console: Console) -> int:
    """``firesteel cancel``."""
    job_id = parse_job_id(parsed.job_id.lower())
    try:
        connection = connect(settings_of(parsed))
        console.note(f"Cancelling job {job_id}.")
        accepted = connection.loop.run(connection.rest.cancel(job_id))
    finally:
        close_connections()
    if not accepted:
        console.note(f"firesteel cancel: job {job_id} has already ended")
        return exit_codes.FAILED
    console.say(f"Cancelled job {job_id}.")
    return exit_codes.DONE


def checkpoint(parsed: argparse.Namespace, console: Console) -> int:
    """``firesteel checkpoint``."""
    job_id = parse_job_id(parsed.job_id.lower())
    trigger_id = uuid.uuid4().hex
    try:
        connection = connect(settings_of(parsed))
        console.note(f"Triggering checkpoint for job {job_id}.")
        connection.loop.run(connection.rest.trigger_checkpoint(job_id, trigger_id, parsed.full))
        console.note(f"Waiting for response (trigger id {trigger_id})...")
        result = connection.loop.run(_until_done(connection.rest, job_id, trigger_id))
        failure = result.get("failure-cause")
        if failure is not None:
            console.note(f"firesteel checkpoint: {failure['stack-trace']}")
            return exit_codes.FAILED
        number = result["checkpointId"]
        path = connection.loop.run(connection.rest.get(f"/jobs/{job_id}/checkpoints/details/{number}"))["external_path"]
    finally:
        close_connections()
    console.say(f"Checkpoint {number} for job {job_id} successfully completed: {path}")
    return exit_codes.DONE


async def _until_done(rest: RestClient, job_id: str, trigger_id: str) -> dict[str, Any]:
    while True:
        result = await rest.checkpoint_result(job_id, trigger_id)
        if result is not None:
            return result
        await asyncio.sleep(_POLL_SECONDS)
