"""``firesteel restart``: stops a job with a savepoint, and runs its program from there."""

from __future__ import annotations

import argparse

from firesteel.client.cli.definitions import settings_of
from firesteel.client.cli.named_jobs import named_jobs
from firesteel.client.cli.programs import program_file, run
from firesteel.client.cli.savepoints import stopped
from firesteel.client.connections import close_connections, connect
from firesteel.client.console import Console


def restart(parsed: argparse.Namespace, console: Console) -> int:
    """Stop a job and run its program, perhaps another version of it, from the savepoint (``firesteel restart``)."""
    program_file(parsed)  # before the job is stopped, so that a wrong name does not cost it
    try:
        connection = connect(settings_of(parsed))
        (job_id,) = named_jobs(console, connection, [parsed.job])
        text, plain = stopped(parsed, console, connection, job_id)
    finally:
        close_connections()
    console.note(text)
    parsed.restore_path = plain["location"]
    code = run(parsed, console)
    if code:
        console.note(
            f"firesteel restart: job {job_id} was stopped; `firesteel run -s {plain['location']} {parsed.program}` "
            "goes on from its savepoint"
        )
    return code
