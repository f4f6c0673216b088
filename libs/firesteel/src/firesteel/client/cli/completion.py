"""What a shell is offered behind Tab: verbs, options, files, jobs, savepoints and settings (argcomplete).

The script of ``firesteel completion`` has the shell run ``firesteel`` itself at each Tab, with ``_ARGCOMPLETE`` in its
environment; ``complete`` then answers in place of the command.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TextIO

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

if TYPE_CHECKING:
    from firesteel.client.rest_client import RestClient

_Question = Callable[["RestClient"], Coroutine[Any, Any, dict[str, str]]]
"""Asks a cluster for words, each with what a shell may say about it."""
_FILES: Final = frozenset({"PATH", "DIR", "DIRECTORY", "FILE", "FILES", "PYTHON", "program.py", "args"})
"""Placeholders of values that are files or directories."""
_SAVEPOINTS: Final = frozenset({"restore_path", "dispose", "path"})
"""Options and arguments that name a savepoint."""
_OF_ENDED_JOBS: Final = frozenset({"show", "open", "wait", "logs"})
"""Verbs for jobs that have ended, too."""
_JOBS_WITH_SAVEPOINTS: Final = 10
_ANSWER_SECONDS: Final = 0.7
"""The cluster is given so long: with the start of this process a shell waits for a second, while somebody holds Tab."""


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
    ) -> dict[str, str]:
        """The words that may stand there, each with what a shell may say about it.

        Args:
            prefix: what was typed of it.
            action: the option or argument.
            parser: of its verb.
            parsed_args: the words before it.
        """
        placeholder = action.metavar if isinstance(action.metavar, str) else ""
        if placeholder in _FILES:
            words = dict.fromkeys(FilesCompleter()(prefix), "")
            if action.dest not in _SAVEPOINTS:
                return words
            checkpoints = action.dest != "dispose"  # those of a job that runs are its own to remove
            return words | _answer(lambda rest: _savepoints(rest, checkpoints=checkpoints), parsed_args)
        if placeholder == "KEY=VALUE":
            return _settings(prefix)
        choices = placeholder.strip("{}").split("," if placeholder.startswith("{") else "|")
        words = {choice: "" for choice in choices if choice.islower()}
        if "JOB" not in choices:
            return words
        ended = getattr(parsed_args, "verb", "") in _OF_ENDED_JOBS
        return words | _answer(lambda rest: _jobs(rest, ended=ended), parsed_args)


def _settings(prefix: str) -> dict[str, str]:
    """Keys of options; behind ``=`` the values of the option, if there are few."""
    from firesteel.config.options import ALL_OPTIONS

    key, equals, _ = prefix.partition("=")
    if not equals:
        return {f"{option.key}=": option.type.name for option in ALL_OPTIONS}
    for option in ALL_OPTIONS:
        if option.key == key:
            return {f"{key}={name}": "" for name in option.type.names}
    return {}


def _answer(ask: _Question, parsed: argparse.Namespace) -> dict[str, str]:
    """What the cluster says that the words before name; empty if no answer comes in time.

    A connection is patient with a cluster that is just being restarted, and nobody should be who holds the Tab key. So
    a thread asks, which argcomplete ends with the process if it still waits.
    """
    # The limit is for the cluster: what this process itself needs is loaded before.
    importlib.import_module("firesteel.client.connections")
    words: dict[str, str] = {}
    thread = threading.Thread(target=lambda: words.update(_ask(ask, parsed)), daemon=True)
    thread.start()
    thread.join(_ANSWER_SECONDS)
    return dict(words)


def _ask(ask: _Question, parsed: argparse.Namespace) -> dict[str, str]:
    from firesteel.client.cli.definitions import settings_of
    from firesteel.client.connections import close_connections, connect

    try:
        if parsed.config_dir is not None:
            os.environ[CONF_DIR_VARIABLE] = parsed.config_dir
        elif not os.environ.get(CONF_DIR_VARIABLE):
            use_local_cluster(parsed, Console())
        connection = connect(settings_of(parsed))
        words = connection.loop.run(ask(connection.rest))
    except (FiresteelError, OSError, KeyError, TypeError) as error:
        debug(str(error))
        return {}
    finally:
        close_connections()
    # Names and paths come from others: what commands the terminal, or would be taken for an option, is not offered.
    return {word: _printable(note) for word, note in words.items() if word == _printable(word) and word[:1] != "-"}


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)


async def _jobs(rest: RestClient, *, ended: bool) -> dict[str, str]:
    """Names and ids of jobs; a name that several have is left out, as it would be refused.

    Args:
        rest: of the cluster.
        ended: those that have ended, too.
    """
    from firesteel.client.cli.named_jobs import ENDED

    overview = (await rest.get("/jobs/overview"))["jobs"]
    jobs = [job for job in overview if ended or job["state"] not in ENDED]
    count = Counter(job["name"] for job in jobs if job["state"] not in ENDED)
    names = {job["name"]: job["jid"] for job in jobs if count[job["name"]] < 2}
    return names | {job["jid"]: f"{job['name']} ({job['state']})" for job in jobs}


async def _savepoints(rest: RestClient, *, checkpoints: bool) -> dict[str, str]:
    """Savepoints of the last jobs.

    Args:
        rest: of the cluster.
        checkpoints: what else a job can go on from, too.
    """
    overview = (await rest.get("/jobs/overview"))["jobs"]
    jobs = sorted(overview, key=lambda job: -job["start-time"])[:_JOBS_WITH_SAVEPOINTS]
    requests = (rest.get(f"/jobs/{job['jid']}/checkpoints") for job in jobs)
    answers = await asyncio.gather(*requests, return_exceptions=True)
    paths: dict[str, str] = {}
    for job, answer in zip(jobs, answers, strict=True):
        if isinstance(answer, BaseException):
            continue
        for checkpoint in answer["history"]:
            path = checkpoint.get("external_path")
            is_savepoint = checkpoint["is_savepoint"]
            is_there = checkpoint["status"] == "COMPLETED" and not checkpoint.get("discarded")
            if path and is_there and (is_savepoint or checkpoints):
                kind = "savepoint" if is_savepoint else "checkpoint"
                paths[path.removesuffix("/_metadata")] = f"{kind} of {job['name']}"
    return paths
