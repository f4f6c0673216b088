"""Where clusters are that ``-t`` can name: one table for all cluster managers.

A row of ``SESSIONS`` is a function that goes by the cluster which command line and settings name, and says whether they
name one of its kind. A row of ``APPLICATIONS`` runs a program in a cluster of its own.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final

from firesteel.client.console import Console
from firesteel.core.plugins import import_target

_KUBERNETES: Final = "firesteel.client.cli.kubernetes"
_YARN: Final = "firesteel.client.cli.yarn"
SESSIONS: Final = {
    "kubernetes-session": f"{_KUBERNETES}:use_cluster",
    "kubernetes-application": f"{_KUBERNETES}:use_cluster",
    "yarn-session": f"{_YARN}:use_cluster",
}
APPLICATIONS: Final = {
    "standalone": "firesteel.client.cli.applications:run_here",
    "kubernetes-application": f"{_KUBERNETES}:run_application",
    "yarn": f"{_YARN}:run_application",
    "yarn-application": f"{_YARN}:run_application",
}
SESSION_TARGETS: Final = ("local", "remote", *(name for name in SESSIONS if name.endswith("-session")))
"""Of ``firesteel run``."""
CLUSTER_TARGETS: Final = ("remote", *SESSIONS)
"""Of verbs that need a cluster."""


def use_named_cluster(parsed: argparse.Namespace, console: Console) -> bool:
    """Go by the cluster that command line or settings name at a cluster manager; False: they name none.

    Raises:
        FiresteelError: it can't be used.
    """
    return any(_load(one)(parsed, console) for one in dict.fromkeys(SESSIONS.values()))


def run_application(parsed: argparse.Namespace, console: Console) -> int:
    """``firesteel run-application``."""
    return int(_load(APPLICATIONS[parsed.target])(parsed, console))


def _load(target: str) -> Callable[[argparse.Namespace, Console], int]:
    """Imported when it is needed: each has libraries of its own."""
    found: Callable[[argparse.Namespace, Console], int] = import_target(target)
    return found
