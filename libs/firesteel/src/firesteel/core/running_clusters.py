"""Which clusters of this user run on this host, and where their configuration is: so that ``firesteel`` finds it.

Each Dispatcher that listens has a file for as long as it lives, beside the run directories. It holds no secret: the
configuration directory leads to that.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from firesteel.core.files import replace_file
from firesteel.core.process import ProcessId, is_running, myself
from firesteel.core.run_directory import private_directory

_NAME: Final = "running-cluster-"


@dataclass(frozen=True)
class RunningCluster:
    """A cluster whose Dispatcher runs here.

    Attributes:
        config_directory: where its ``config.yaml`` is.
        rest_address: base URL of its REST API.
    """

    config_directory: Path
    rest_address: str


@contextlib.contextmanager
def shown_as_running(cluster: RunningCluster) -> Iterator[None]:
    """Within this block ``running_clusters`` finds the cluster of this process.

    Raises:
        RunDirectoryError: the directory can't be made.
        OSError: the file can't be written.
    """
    running_clusters()  # nobody else may ever remove the files of clusters that were killed
    path = private_directory(None) / f"{_NAME}{os.getpid()}.json"
    plain = {
        "config_directory": str(cluster.config_directory),
        "rest_address": cluster.rest_address,
        "process": myself().to_plain(),
    }
    replace_file(path, json.dumps(plain).encode())
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def running_clusters() -> list[RunningCluster]:
    """Clusters of this user that run now, sorted by configuration directory; files of ended ones are removed.

    Raises:
        RunDirectoryError: the directory belongs to somebody else.
    """
    clusters = set()
    for path in private_directory(None).glob(f"{_NAME}*.json"):
        try:
            plain = json.loads(path.read_text())
            cluster = RunningCluster(Path(plain["config_directory"]), str(plain["rest_address"]))
            alive = is_running(ProcessId.from_plain(plain["process"]))
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError, TypeError):
            alive = False
        if alive:
            clusters.add(cluster)
        else:
            path.unlink(missing_ok=True)
    return sorted(clusters, key=lambda running: (str(running.config_directory), running.rest_address))


def name_of_installation(config_directory: Path) -> str:
    """A short name that another configuration directory does not have."""
    return hashlib.sha256(os.fsencode(os.path.realpath(config_directory))).hexdigest()[:12]
