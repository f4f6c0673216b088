"""``firesteel savepoint`` and ``firesteel stop``."""

from __future__ import annotations

import argparse
import json
import uuid
from pathlib import Path

from firesteel.checkpoint.reader import inspect, table_of
from firesteel.client.cli import exit_codes
from firesteel.client.cli.definitions import settings_of
from firesteel.client.connections import close_connections, connect
from firesteel.client.console import Console
from firesteel.core.errors import ConfigurationError
from firesteel.core.ids import parse_job_id


def savepoint(parsed: argparse.Namespace, console: Console) -> int:
    """``firesteel savepoint``."""
    if parsed.dispose is not None:
        return _dispose(parsed, console)
    if parsed.job_id is None:
        raise ConfigurationError("name the job, as `firesteel list` shows it; or `inspect PATH`, or --dispose PATH")
    job_id, trigger_id = parse_job_id(parsed.job_id.lower()), uuid.uuid4().hex
    try:
        connection = connect(settings_of(parsed))
        rest, run = connection.rest, connection.loop.run
        console.note(f"Triggering savepoint for job {job_id}.")
        run(rest.trigger_savepoint(job_id, trigger_id, _directory(parsed.directory), parsed.format))
        if parsed.detached:
            console.say(f"Successfully triggered manual savepoint, triggerId: {trigger_id}")
            return exit_codes.DONE
        console.note(f"Waiting for response (trigger id {trigger_id})...")
        location = run(rest.savepoint_location(job_id, trigger_id))
    finally:
        close_connections()
    console.say(f"Savepoint completed. Path: {location}")
    console.note("You can resume your program from this savepoint with the run command.")
    return exit_codes.DONE


def stop(parsed: argparse.Namespace, console: Console) -> int:
    """``firesteel stop``."""
    job_id, trigger_id = parse_job_id(parsed.job_id.lower()), uuid.uuid4().hex
    try:
        connection = connect(settings_of(parsed))
        rest, run = connection.rest, connection.loop.run
        how = "Draining job" if parsed.drain else "Suspending job"
        console.note(f'{how} "{job_id}" with a {parsed.format} savepoint.')
        run(rest.stop(job_id, trigger_id, _directory(parsed.directory), parsed.format, drain=parsed.drain))
        console.note(f"Waiting for response (trigger id {trigger_id})...")
        location = run(rest.savepoint_location(job_id, trigger_id))
    finally:
        close_connections()
    console.say(f"Savepoint completed. Path: {location}")
    return exit_codes.DONE


def _dispose(parsed: argparse.Namespace, console: Console) -> int:
    path = str(_directory(parsed.dispose))
    try:
        connection = connect(settings_of(parsed))
        console.note(f"Disposing savepoint '{path}'.")
        connection.loop.run(connection.rest.dispose_savepoint(path))
    finally:
        close_connections()
    console.say(f"Savepoint '{path}' disposed.")
    return exit_codes.DONE


def inspect_savepoint(parsed: argparse.Namespace, console: Console) -> int:
    """``firesteel savepoint inspect``: in this process; no cluster is asked."""
    found = inspect(str(_directory(parsed.path)), settings_of(parsed))
    if parsed.json:
        console.say(json.dumps(found, indent=2))
    else:
        for line in table_of(found):
            console.say(line)
    return exit_codes.DONE


def _directory(text: str | None) -> str | None:
    """As services elsewhere find it."""
    return text if text is None or ":/" in text else str(Path(text).absolute())
