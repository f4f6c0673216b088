"""Where clusters are that ``-t`` can name. What a cluster manager does is a plug-in's, by the name of the target.

An entry point of ``SESSIONS`` is a function that goes by the cluster which command line and settings name, and says
whether they name one of its kind. An entry point of ``APPLICATIONS`` runs a program in a cluster of its own.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final

from firesteel.client.cli.arguments import CLUSTER_TARGETS
from firesteel.client.cli.definitions import read
from firesteel.client.console import Console
from firesteel.config import options
from firesteel.config.load import load_settings
from firesteel.core.plugins import known_names, load

SESSIONS: Final = "firesteel.session_targets"
APPLICATIONS: Final = "firesteel.application_targets"
_Function = Callable[[argparse.Namespace, Console], int]


def use_named_cluster(parsed: argparse.Namespace, console: Console) -> bool:
    """Go by the cluster that command line or settings name at a cluster manager; False: they name none.

    Raises:
        FiresteelError: it can't be used, or its cluster manager's plug-in is not installed.
    """
    targets = sorted(known_names(SESSIONS) | _named(parsed))
    functions: dict[_Function, None] = dict.fromkeys(load(SESSIONS, target) for target in targets)
    return any(function(parsed, console) for function in functions)


def _named(parsed: argparse.Namespace) -> set[str]:
    """Targets that are named, so that a plug-in which is missing does not mean another cluster."""
    settings = load_settings(definitions=read(parsed))
    target = getattr(parsed, "target", None) or settings.get(options.EXECUTION_TARGET)
    names = {target} & {*CLUSTER_TARGETS} - {"remote"}
    if getattr(parsed, "yarn_application", None) or settings.is_set(options.YARN_APPLICATION_ID):
        names.add("yarn-session")
    return names


def run_application(parsed: argparse.Namespace, console: Console) -> int:
    """Run a program with a cluster of its own (``firesteel run-application``)."""
    function: _Function = load(APPLICATIONS, parsed.target)
    return function(parsed, console)
