"""Finds the cluster that runs on this host, for commands that name none."""

from __future__ import annotations

import argparse
import os
import shlex
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
    {
        "run",
        "list",
        "cancel",
        "checkpoint",
        "savepoint",
        "stop",
        "restart",
        "show",
        "open",
        "wait",
        "logs",
        "loglevel",
        "top",
        "doctor",
        "token",
    }
)
"""Commands that need a cluster."""


def use_local_cluster(parsed: argparse.Namespace, console: Console) -> None:
    """Use the configuration of this user's cluster on this host, as Flink's ``bin/flink`` uses the ``conf`` beside it.

    Does nothing with ``-t local``, or where no cluster runs. If options or variables name an address, only a cluster
    with this address is used.

    Raises:
        ConfigurationError: several clusters run.
    """
    settings = load_settings(definitions=read(parsed))
    target = getattr(parsed, "target", None)
    if target is None and settings.is_set(options.EXECUTION_TARGET):
        target = settings.get(options.EXECUTION_TARGET)
    if target == "local":
        return
    try:
        clusters = [cluster for cluster in running_clusters() if (cluster.config_directory / CONFIG_FILE).is_file()]
    except (RunDirectoryError, OSError):
        return
    says_where = settings.is_set(options.REST_ADDRESS) or settings.is_set(options.REST_PORT)
    if says_where:
        configured_address = rest_address(settings)
        clusters = [cluster for cluster in clusters if _same(cluster.rest_address, configured_address)]
    if not clusters:
        return
    if len({cluster.config_directory for cluster in clusters}) > 1:
        raise ConfigurationError(f"several clusters run on this host; say which one is meant: {_choice(clusters)}")
    os.environ[CONF_DIR_VARIABLE] = str(clusters[0].config_directory)
    if not says_where and len(clusters) == 1:  # its command line may say another address than its config.yaml
        address = urlsplit(clusters[0].rest_address)
        parsed.definitions[:0] = [
            f"{options.REST_ADDRESS.key}={address.hostname}",
            f"{options.REST_PORT.key}={address.port}",
        ]
    directory = shlex.quote(str(clusters[0].config_directory))
    console.note(f"Using the cluster that runs on this host: --config-dir {directory}")


def _same(first_url: str, second_url: str) -> bool:
    first, second = urlsplit(first_url), urlsplit(second_url)
    hosts = first.hostname or "", second.hostname or ""
    return first.port == second.port and (hosts[0] == hosts[1] or all(map(is_loopback, hosts)))


def _choice(clusters: list[RunningCluster]) -> str:
    # Not its configuration directory: the command line of a cluster may say another address than its config.yaml.
    return ", or ".join(
        f"-m {urlsplit(cluster.rest_address).netloc} ({cluster.config_directory})" for cluster in clusters
    )
