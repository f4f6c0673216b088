"""``firesteel savepoint``, ``firesteel stop``, and ``firesteel cancel -s``."""

from __future__ import annotations

import argparse
import asyncio
import uuid
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final

from firesteel.checkpoint.places import absolute_path
from firesteel.client.bars import bar
from firesteel.client.cli import exit_codes
from firesteel.client.cli.definitions import settings_of
from firesteel.client.cli.named_jobs import Result, for_each_job, named_jobs
from firesteel.client.connections import ClusterConnection, close_connections, connect
from firesteel.client.console import Console
from firesteel.client.rest_client import RestClient
from firesteel.client.waiting import wait_for
from firesteel.core.errors import ConfigurationError, FiresteelError
from firesteel.core.ids import JobId

_LOOK_SECONDS: Final = 0.5
_MIB: Final = 1 << 20
Trigger = Callable[[RestClient, str], Coroutine[Any, Any, None]]


def savepoint(parsed: argparse.Namespace, console: Console) -> int:
    """Take, inspect or dispose a savepoint (``firesteel savepoint``)."""
    if parsed.dispose is not None:
        return _dispose(parsed, console)
    if parsed.job is None:
        raise ConfigurationError("name the job, as `firesteel list` shows it; or `inspect PATH`, or --dispose PATH")
    directory = parsed.directory and absolute_path(parsed.directory)
    try:
        connection = connect(settings_of(parsed))

        def take_savepoint(job_id: JobId) -> Result:
            return _take(
                parsed,
                console,
                connection,
                job_id,
                f"Triggering savepoint for job {job_id}.",
                lambda rest, trigger_id: rest.trigger_savepoint(job_id, trigger_id, directory, parsed.format),
                detached=parsed.detached,
                note="You can resume your program from this savepoint with the run command.",
            )

        return for_each_job(parsed, console, named_jobs(console, connection, [parsed.job]), take_savepoint)
    finally:
        close_connections()


def stop(parsed: argparse.Namespace, console: Console) -> int:
    """Stop a job with a savepoint (``firesteel stop``)."""
    try:
        connection = connect(settings_of(parsed))
        job_ids = named_jobs(console, connection, parsed.jobs)
        return for_each_job(parsed, console, job_ids, lambda job_id: stopped(parsed, console, connection, job_id))
    finally:
        close_connections()


def stopped(parsed: argparse.Namespace, console: Console, connection: ClusterConnection, job_id: JobId) -> Result:
    """Stop one job; returns where its savepoint is (``location``)."""
    directory = parsed.directory and absolute_path(parsed.directory)
    how = "Draining job" if parsed.drain else "Suspending job"
    return _take(
        parsed,
        console,
        connection,
        job_id,
        f'{how} "{job_id}" with a {parsed.format} savepoint.',
        lambda rest, trigger_id: rest.stop(job_id, trigger_id, directory, parsed.format, drain=parsed.drain),
    )


def cancel_with_savepoint(
    parsed: argparse.Namespace, console: Console, connection: ClusterConnection, job_id: JobId, directory: str | None
) -> Result:
    """Cancel a job with a savepoint (``firesteel cancel -s``)."""
    where = directory and absolute_path(directory)
    return _take(
        parsed,
        console,
        connection,
        job_id,
        f"Cancelling job {job_id} with a savepoint.",
        lambda rest, trigger_id: rest.trigger_savepoint(job_id, trigger_id, where, cancel=True),
        note=f"Cancelled job {job_id}.",
    )


def _take(
    parsed: argparse.Namespace,
    console: Console,
    connection: ClusterConnection,
    job_id: JobId,
    announcement: str,
    trigger: Trigger,
    *,
    detached: bool = False,
    note: str = "",
) -> Result:
    trigger_id = uuid.uuid4().hex
    tell = (lambda text: None) if parsed.json else console.note
    rest = connection.rest
    tell(announcement)
    wait_for(console, connection, "Asking for a savepoint", trigger(rest, trigger_id))
    if detached:
        text = f"Successfully triggered manual savepoint, triggerId: {trigger_id}"
        return text, {"job": job_id, "trigger": trigger_id}
    tell(f"Waiting for response (trigger id {trigger_id})...")
    location_request = rest.savepoint_location(job_id, trigger_id)
    progress = SavepointProgress(rest, job_id)
    if console.has_live_line:
        location_request = progress.followed(location_request)
    try:
        location = wait_for(console, connection, progress.text, location_request)
    except KeyboardInterrupt:
        console.note(f"Nobody waits any more; the cluster goes on with what it was asked to do to job {job_id}.")
        raise
    if note:
        tell(note)
    return f"Savepoint completed. Path: {location}", {"job": job_id, "trigger": trigger_id, "location": location}


class SavepointProgress:
    """How many subtasks have written their part of a savepoint.

    Args:
        rest: of the cluster.
        job_id: of its job.
    """

    def __init__(self, rest: RestClient, job_id: JobId) -> None:
        self._rest, self._job_id = rest, job_id
        self._figures: Mapping[str, Any] = {}

    def text(self) -> str:
        """What a live line says."""
        done, total = self._figures.get("num_acknowledged_subtasks", 0), self._figures.get("num_subtasks", 0)
        if not total:
            return "The savepoint is taken"
        size = self._figures["state_size"] / _MIB
        return f"Savepoint {bar(done, total)}  {done} of {total} subtasks, {size:,.1f} MiB"

    async def followed(self, location: Coroutine[Any, Any, str]) -> str:
        """Wait for the location of the savepoint, and look at the job's checkpoints meanwhile."""
        looking = asyncio.get_running_loop().create_task(self._look())
        try:
            return await location
        finally:
            looking.cancel()

    async def _look(self) -> None:
        while True:
            with suppress(FiresteelError, KeyError):  # whoever waits for the savepoint hears what is wrong
                history = (await self._rest.get(f"/jobs/{self._job_id}/checkpoints"))["history"]
                under_way = [each for each in history if each["is_savepoint"] and each["status"] == "IN_PROGRESS"]
                self._figures = max(under_way, key=lambda savepoint: savepoint["id"], default=self._figures)
            await asyncio.sleep(_LOOK_SECONDS)


def _dispose(parsed: argparse.Namespace, console: Console) -> int:
    path = absolute_path(parsed.dispose)
    try:
        connection = connect(settings_of(parsed))
        if not parsed.json:
            console.note(f"Disposing savepoint '{path}'.")
        wait_for(console, connection, "The savepoint is removed", connection.rest.dispose_savepoint(path))
    finally:
        close_connections()
    console.say_result(parsed.json, f"Savepoint '{path}' disposed.", {"disposed": path})
    return exit_codes.DONE
