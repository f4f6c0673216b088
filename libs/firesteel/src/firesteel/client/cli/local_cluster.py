"""Finds the cluster that runs on this host, where nobody says which one is meant."""

from __future__ import annotations

import argparse
import os
from typing import Final
from urllib.parse import urlsplit

from firesteel.client.cli.definitions import read
from firesteel.client.console import Console
from firesteel.config import options
from firesteel.config.addresses import is_loopback, rest_address
from firesteel.config.load import CONF_DIR_VARIABLE, CONFIG_FILE, load_settings
from firesteel.core.errors import ConfigurationError, RunDirectoryError
from firesteel.core.running_clusters import RunningCluster, running_clusters

VERBS: Final = frozenset(
    {"run", "list", "cancel", "checkpoint", "savepoint", "stop", "logs", "loglevel", "top", "doctor", "token"}
)
"""Those that need a cluster."""


def use_local_cluster(parsed: argparse.Namespace, console: Console) -> None:
    """Go by the configuration of the cluster of this user that runs here, as Flink's ``bin/flink`` goes by the one
    beside it.

    Where options or variables say at which address the cluster is, only one with this address is taken.

    Raises:
        ConfigurationError: there are several.
    """
    settings = load_settings(definitions=read(parsed))
    target = getattr(parsed, "target", None)
    if target is None and settings.is_set(options.EXECUTION_TARGET):
        target = settings.get(options.EXECUTION_TARGET)
    if target == "local":
        return
    try:
        known = [one for one in running_clusters() if (one.config_directory / CONFIG_FILE).is_file()]
    except (RunDirectoryError, OSError):
        return
    says_where = settings.is_set(options.REST_ADDRESS) or settings.is_set(options.REST_PORT)
    if says_where:
        wanted = rest_address(settings)
        known = [one for one in known if _same(one.rest_address, wanted)]
    if not known:
        return
    if len({one.config_directory for one in known}) > 1:
        raise ConfigurationError(f"several clusters run on this host; say which one is meant: {_choice(known)}")
    os.environ[CONF_DIR_VARIABLE] = str(known[0].config_directory)
    if not says_where and len(known) == 1:  # its command line may say another address than its config.yaml
        where = urlsplit(known[0].rest_address)
        parsed.definitions[:0] = [
            f"{options.REST_ADDRESS.key}={where.hostname}",
            f"{options.REST_PORT.key}={where.port}",
        ]
    console.note(f"Using the cluster that runs on this host: --config-dir {known[0].config_directory}")


def _same(one: str, other: str) -> bool:
    first, second = urlsplit(one), urlsplit(other)
    hosts = first.hostname or "", second.hostname or ""
    return first.port == second.port and (hosts[0] == hosts[1] or all(map(is_loopback, hosts)))


def _choice(known: list[RunningCluster]) -> str:
    return ", or ".join(f"--config-dir {one.config_directory} ({one.rest_address})" for one in known)
