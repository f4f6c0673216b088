"""What a shell is offered behind Tab: verbs, options, files, ids of jobs and keys of the configuration (argcomplete).

The script of ``firesteel completion`` has the shell run ``firesteel`` itself at each Tab, with ``_ARGCOMPLETE`` in its
environment; ``complete`` then answers in place of the command.
"""

from __future__ import annotations

import argparse
import os
import threading
from collections.abc import Callable
from typing import Final, TextIO

import argcomplete
from argcomplete.completers import BaseCompleter, FilesCompleter
from argcomplete.io import debug
from argcomplete.shell_integration import shellcode
from typing_extensions import override

from firesteel.client.cli import exit_codes
from firesteel.client.cli.local_cluster import use_local_cluster
from firesteel.client.console import Console
from firesteel.config.load import CONF_DIR_VARIABLE
from firesteel.core.errors import FiresteelError

_FILES: Final = frozenset({"PATH", "DIR", "DIRECTORY", "FILE", "FILES", "PYTHON", "program.py", "args"})
"""Placeholders of values that are files or directories."""
_ANSWER_SECONDS: Final = 2.0
"""A shell waits so long for the ids of jobs: somebody holds the Tab key meanwhile."""


def completion(parsed: argparse.Namespace, console: Console) -> int:
    """Print the script that makes a shell complete words (``firesteel completion``)."""
    console.say(shellcode(["firesteel"], shell=parsed.shell).strip())
    return exit_codes.DONE


def complete(
    parser: argparse.ArgumentParser,
    output_stream: TextIO | None = None,
    exit_method: Callable[[int], object] = os._exit,
) -> None:
    """Answer the shell that has run this process to hear what may follow, and end the process.

    Args:
        parser: of the whole command.
        output_stream: for the answer; None: where the shell reads it.
        exit_method: ends the process, without a wait for threads that still ask a cluster.
    """
    argcomplete.autocomplete(
        parser,
        always_complete_options="long",
        exit_method=exit_method,
        output_stream=output_stream,
        exclude=["savepoint-inspect", "savepoint-compare"],
        default_completer=ValuesCompleter(),
    )


class ValuesCompleter(BaseCompleter):
    """What the value of an option or argument may be, as its placeholder in the help says."""

    @override
    def __call__(
        self, *, prefix: str, action: argparse.Action, parser: argparse.ArgumentParser, parsed_args: argparse.Namespace
    ) -> list[str]:
        """The words that may stand there.

        Args:
            prefix: what was typed of it.
            action: the option or argument.
            parser: of its verb.
            parsed_args: the words before it.
        """
        placeholder = action.metavar if isinstance(action.metavar, str) else ""
        if placeholder in _FILES:
            return list(FilesCompleter()(prefix))
        if placeholder == "KEY=VALUE":
            from firesteel.config.options import ALL_OPTIONS

            return [f"{option.key}=" for option in ALL_OPTIONS]
        choices = placeholder.strip("{}").split("," if placeholder.startswith("{") else "|")
        words = [choice for choice in choices if choice.islower()]
        return [*words, *_job_ids(parsed_args)] if "JOB" in choices else words


def _job_ids(parsed: argparse.Namespace) -> list[str]:
    """Ids of the jobs that have not ended in the cluster that the words before name; none if no answer comes in time.

    A connection is patient with a cluster that is just being restarted, and nobody should be who holds the Tab key. So
    a thread asks, which argcomplete ends with the process if it still waits.
    """
    ids: list[str] = []
    thread = threading.Thread(target=lambda: ids.extend(_ask_for_job_ids(parsed)), daemon=True)
    thread.start()
    thread.join(_ANSWER_SECONDS)
    return ids


def _ask_for_job_ids(parsed: argparse.Namespace) -> list[str]:
    from firesteel.client.cli.definitions import settings_of
    from firesteel.client.cli.named_jobs import ENDED
    from firesteel.client.connections import close_connections, connect

    try:
        if parsed.config_dir is not None:
            os.environ[CONF_DIR_VARIABLE] = parsed.config_dir
        elif not os.environ.get(CONF_DIR_VARIABLE):
            use_local_cluster(parsed, Console())
        connection = connect(settings_of(parsed))
        jobs = connection.loop.run(connection.rest.get("/jobs/overview"))["jobs"]
    except (FiresteelError, OSError) as error:
        debug(str(error))
        return []
    finally:
        close_connections()
    return [job["jid"] for job in jobs if job["state"] not in ENDED]
