"""``firesteel savepoint inspect``, ``firesteel savepoint compare`` and ``firesteel upgrade``.

Apart from the other verbs, as they read state: they import what slots do.
"""

from __future__ import annotations

import argparse
import json

from firesteel.checkpoint.comparison import compare, comparison_lines
from firesteel.checkpoint.places import absolute_path
from firesteel.checkpoint.reader import inspect, inspection_lines
from firesteel.checkpoint.savepoints import read_savepoint_metadata
from firesteel.client.cli import exit_codes
from firesteel.client.cli.definitions import settings_of, settings_of_upgrade
from firesteel.client.cli.programs import planned
from firesteel.client.console import Console
from firesteel.client.upgrade import check_upgrade
from firesteel.config import options


def upgrade(parsed: argparse.Namespace, console: Console) -> int:
    """Show what a program would do to the state of a savepoint (``firesteel upgrade --dry-run``)."""
    settings = settings_of_upgrade(parsed)
    path = settings.get(options.STATE_RECOVERY_PATH) or ""
    metadata = read_savepoint_metadata(path, settings)
    plan = planned(parsed, console, settings)
    if plan is None:
        return exit_codes.FAILED
    upgrade = check_upgrade(plan.stream_graph, plan.job_graph.config, metadata, path)
    if parsed.json:
        console.say(json.dumps(upgrade.to_plain(), indent=2))
    else:
        for line in upgrade.to_lines():
            console.say(line)
    return exit_codes.DONE if upgrade.works else exit_codes.FAILED


def inspect_savepoint(parsed: argparse.Namespace, console: Console) -> int:
    """``firesteel savepoint inspect``: in this process; no cluster is asked."""
    description = inspect(absolute_path(parsed.path), settings_of(parsed), parsed.keys)
    if parsed.json:
        console.say(json.dumps(description, indent=2))
    else:
        for line in inspection_lines(description):
            console.say(line)
    return exit_codes.DONE


def compare_savepoints(parsed: argparse.Namespace, console: Console) -> int:
    """``firesteel savepoint compare``: in this process; no cluster is asked."""
    comparison = compare(absolute_path(parsed.before), absolute_path(parsed.after), settings_of(parsed))
    if parsed.json:
        console.say(json.dumps(comparison, indent=2))
    else:
        for line in comparison_lines(comparison):
            console.say(line)
    return exit_codes.DONE
