"""``firesteel restart``: stops a job with a savepoint, and runs its program from there."""

from __future__ import annotations

import argparse
import shlex

from firesteel.client.cli import exit_codes
from firesteel.client.cli.definitions import settings_of
from firesteel.client.cli.named_jobs import named_jobs
from firesteel.client.cli.programs import program_context, program_file, run_program
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
    context = program_context(parsed, console)
    try:
        code = run_program(parsed, console, context)
    finally:  # a program that argues about its arguments leaves by sys.exit()
        if not context.submitted:
            console.note(
                f"firesteel restart: job {job_id} is stopped, and no job goes on in its place; this does, with the "
                f"options of this command: {_run_again(parsed)}"
            )
    return code if context.submitted else code or exit_codes.FAILED


def _run_again(parsed: argparse.Namespace) -> str:
    """The command that runs the program from the savepoint."""
    options = ["-s", parsed.restore_path, *(["-n"] if parsed.ignore_unclaimed else [])]
    module = ["-pym"] if parsed.as_module else []
    return shlex.join(["firesteel", "run", *options, *module, parsed.program, *parsed.arguments])
