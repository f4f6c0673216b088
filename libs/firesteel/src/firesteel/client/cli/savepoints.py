"""``firesteel savepoint``, ``firesteel stop``, and ``firesteel cancel -s``."""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

from firesteel.client.cli import exit_codes
from firesteel.client.cli.definitions import absolute, settings_of
from firesteel.client.cli.waiting import wait_for
from firesteel.client.connections import close_connections, connect
from firesteel.client.console import Console
from firesteel.client.rest_client import RestClient
from firesteel.core.errors import ConfigurationError
from firesteel.core.ids import parse_job_id

Trigger = Callable[[RestClient, str], Coroutine[Any, Any, None]]


def savepoint(parsed: argparse.Namespace, console: Console) -> int:
    """Take, inspect or dispose a savepoint (``firesteel savepoint``)."""
    if parsed.dispose is not None:
        return _dispose(parsed, console)
    if parsed.job_id is None:
        raise ConfigurationError("name the job, as `firesteel list` shows it; or `inspect PATH`, or --dispose PATH")
    job_id, directory = parse_job_id(parsed.job_id.lower()), parsed.directory and absolute(parsed.directory)
    return _take(
        parsed,
        console,
        job_id,
        f"Triggering savepoint for job {job_id}.",
        lambda rest, trigger_id: rest.trigger_savepoint(job_id, trigger_id, directory, parsed.format),
        detached=parsed.detached,
        note="You can resume your program from this savepoint with the run command.",
    )


def stop(parsed: argparse.Namespace, console: Console) -> int:
    """Stop a job with a savepoint (``firesteel stop``)."""
    job_id, directory = parse_job_id(parsed.job_id.lower()), parsed.directory and absolute(parsed.directory)
    how = "Draining job" if parsed.drain else "Suspending job"
    return _take(
        parsed,
        console,
        job_id,
        f'{how} "{job_id}" with a {parsed.format} savepoint.',
        lambda rest, trigger_id: rest.stop(job_id, trigger_id, directory, parsed.format, drain=parsed.drain),
    )


def cancel_with_savepoint(parsed: argparse.Namespace, console: Console, job_id: str, directory: str | None) -> int:
    """Cancel a job with a savepoint (``firesteel cancel -s``)."""
    where = directory and absolute(directory)
    return _take(
        parsed,
        console,
        job_id,
        f"Cancelling job {job_id} with a savepoint.",
        lambda rest, trigger_id: rest.trigger_savepoint(job_id, trigger_id, where, cancel=True),
        note=f"Cancelled job {job_id}.",
    )


def _take(
    parsed: argparse.Namespace,
    console: Console,
    job_id: str,
    announcement: str,
    trigger: Trigger,
    *,
    detached: bool = False,
    note: str = "",
) -> int:
    trigger_id = uuid.uuid4().hex
    tell = (lambda text: None) if parsed.json else console.note
    try:
        connection = connect(settings_of(parsed))
        rest = connection.rest
        tell(announcement)
        wait_for(console, connection, "Asking for a savepoint", trigger(rest, trigger_id))
        if detached:
            text = f"Successfully triggered manual savepoint, triggerId: {trigger_id}"
            console.say_result(parsed.json, text, {"job": job_id, "trigger": trigger_id})
            return exit_codes.DONE
        tell(f"Waiting for response (trigger id {trigger_id})...")
        location_request = rest.savepoint_location(job_id, trigger_id)
        location = wait_for(console, connection, "The savepoint is taken", location_request)
    finally:
        close_connections()
    plain = {"job": job_id, "trigger": trigger_id, "location": location}
    console.say_result(parsed.json, f"Savepoint completed. Path: {location}", plain)
    if note:
        tell(note)
    return exit_codes.DONE


def _dispose(parsed: argparse.Namespace, console: Console) -> int:
    path = absolute(parsed.dispose)
    try:
        connection = connect(settings_of(parsed))
        if not parsed.json:
            console.note(f"Disposing savepoint '{path}'.")
        wait_for(console, connection, "The savepoint is removed", connection.rest.dispose_savepoint(path))
    finally:
        close_connections()
    console.say_result(parsed.json, f"Savepoint '{path}' disposed.", {"disposed": path})
    return exit_codes.DONE
