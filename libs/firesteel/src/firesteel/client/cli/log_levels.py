"""``firesteel loglevel``: levels of loggers at all processes of a cluster, changed while they run."""

from __future__ import annotations

import argparse
from typing import Final

from firesteel.client.cli import exit_codes
from firesteel.client.cli.definitions import settings_of
from firesteel.client.connections import close_connections, connect
from firesteel.client.console import Console
from firesteel.client.waiting import wait_for
from firesteel.core.errors import ConfigurationError
from firesteel.core.log_levels import LEVELS

_PATH: Final = "/firesteel/loglevels"


def loglevel(parsed: argparse.Namespace, console: Console) -> int:
    """Show or change log levels of the cluster's processes (``firesteel loglevel``)."""
    level = None if parsed.level is None else parsed.level.upper()
    if level is not None and level not in LEVELS:
        raise ConfigurationError(f"{parsed.level!r} is no level: {', '.join(LEVELS)} are")
    try:
        connection = connect(settings_of(parsed))
        rest = connection.rest
        if level is None:
            answer = wait_for(console, connection, "Asking all processes", rest.get(_PATH))
        else:
            change = {"logger": parsed.logger, "level": level}
            answer = wait_for(console, connection, "Telling all processes", rest.put(_PATH, change))
    finally:
        close_connections()
    if parsed.json:
        console.say_json(answer)
    else:
        for row in answer["processes"]:
            levels = row.get("levels", {})
            shown = {name: levels[name] for name in levels if parsed.logger in (None, name)}
            text = ", ".join(f"{name} {value}" for name, value in shown.items()) or row.get("error") or "inherited"
            console.say(f"{row['process']}: {text}")
    return exit_codes.FAILED if any(row.get("error") for row in answer["processes"]) else exit_codes.DONE
