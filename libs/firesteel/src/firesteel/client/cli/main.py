"""Reads the command line, does what the verb says, and says in one sentence why it could not."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from firesteel.client.cli import exit_codes, targets
from firesteel.client.cli.arguments import parser
from firesteel.client.cli.local_cluster import VERBS as CLUSTER_VERBS
from firesteel.client.cli.local_cluster import use_local_cluster
from firesteel.client.cli.refused import VERBS as REFUSED_VERBS
from firesteel.client.console import Console
from firesteel.config.load import CONF_DIR_VARIABLE, CONFIG_FILE
from firesteel.core.errors import ConfigurationError, FiresteelError
from firesteel.core.plugins import import_target, load
from firesteel.core.text_output import escape_missing_characters

COMPLETING_VARIABLE: Final = "_ARGCOMPLETE"
"""Set where a shell runs the command only to hear what may follow (``completion``)."""
VERBS: Final = {
    "run": "programs:run",
    "run-application": "targets:run_application",
    "demo": "programs:demo",
    "info": "programs:info",
    "upgrade": "state_readers:upgrade",
    "list": "jobs:list_jobs",
    "cancel": "jobs:cancel",
    "checkpoint": "jobs:checkpoint",
    "savepoint": "savepoints:savepoint",
    "savepoint-inspect": "state_readers:inspect_savepoint",
    "savepoint-compare": "state_readers:compare_savepoints",
    "stop": "savepoints:stop",
    "restart": "restart:restart",
    "show": "show:show",
    "open": "show:open_page",
    "wait": "show:wait",
    "logs": "logs:logs",
    "loglevel": "log_levels:loglevel",
    "top": "top:top",
    "doctor": "doctor:doctor",
    "completion": "completion:completion",
    "token": "host:token",
    "memory": "host:memory",
    "warm-up": "host:warm_up",
}
"""Module and function of each; what the others import costs this one no time."""
TWO_WORDS: Final = {"savepoint-inspect": "savepoint inspect", "savepoint-compare": "savepoint compare"}
"""Verbs that users write as two words."""
PLUGIN_VERBS: Final = ("kubernetes-session", "yarn-session", "yarn-logs")
"""Verbs whose functions are entry points of ``firesteel.commands``, of distributions that need not be installed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code (``exit_codes``)."""
    escape_missing_characters()
    if COMPLETING_VARIABLE in os.environ:
        import_target("firesteel.client.cli.completion:complete")(parser())
    words = list(sys.argv[1:] if arguments is None else arguments)
    console = Console()
    if words and words[0] in REFUSED_VERBS:
        console.note(f"firesteel {words[0]}: {REFUSED_VERBS[words[0]]}")
        return exit_codes.WRONG
    for verb, two_words in TWO_WORDS.items():
        if words[:2] == two_words.split():
            words[:2] = [verb]
    if words and not words[0].startswith("-") and words[0] not in (*VERBS, *PLUGIN_VERBS):
        verbs = [verb for verb in (*VERBS, *PLUGIN_VERBS) if verb not in TWO_WORDS]
        alike = difflib.get_close_matches(words[0], verbs, 1)
        meant = f" Do you mean `firesteel {alike[0]}`?" if alike else ""
        console.note(f"firesteel: there is no verb {words[0]!r}.{meant} `firesteel --help` lists them")
        return exit_codes.WRONG
    if not words:
        console.note(parser().format_help())
        return exit_codes.WRONG
    parsed = parser().parse_args(words)
    as_json = getattr(parsed, "json", False)
    name = f"firesteel {TWO_WORDS.get(parsed.verb, parsed.verb)}"
    try:
        if getattr(parsed, "config_dir", None) is not None:
            os.environ[CONF_DIR_VARIABLE] = _config_dir(parsed.config_dir)
        is_named = parsed.verb in CLUSTER_VERBS and targets.use_named_cluster(parsed, console)
        if parsed.verb in CLUSTER_VERBS and not is_named and not os.environ.get(CONF_DIR_VARIABLE):
            use_local_cluster(parsed, console)
        return _function_of(parsed.verb)(parsed, console)
    except ConfigurationError as error:
        return _failed(console, name, str(error), exit_codes.WRONG, as_json)
    except FiresteelError as error:
        return _failed(console, name, str(error), exit_codes.FAILED, as_json)
    except BrokenPipeError:  # whoever read the output has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is buffered has nowhere to go
        return exit_codes.FAILED
    except KeyboardInterrupt:
        return _failed(console, name, "interrupted", exit_codes.INTERRUPTED, as_json)


def _function_of(verb: str) -> Callable[[argparse.Namespace, Console], int]:
    """The function of a verb.

    Raises:
        ConfigurationError: it is a plug-in's, which is not installed.
    """
    function: Callable[[argparse.Namespace, Console], int]
    if verb in PLUGIN_VERBS:
        function = load("firesteel.commands", verb)
    else:
        function = import_target(f"firesteel.client.cli.{VERBS[verb]}")
    return function


def _failed(console: Console, name: str, text: str, code: int, as_json: bool) -> int:
    console.note(f"{name}: {text}")
    if as_json:
        console.say_json({"error": text, "exit-code": code})
    return code


def _config_dir(text: str) -> str:
    path = Path(text).absolute()
    if not (path / CONFIG_FILE).is_file():
        raise ConfigurationError(f"--config-dir {text}: there is no {CONFIG_FILE} in it")
    return str(path)
