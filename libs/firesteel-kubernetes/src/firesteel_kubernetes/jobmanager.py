"""``python -m firesteel_kubernetes.jobmanager``: the JobManager of a session cluster, in a container.

It runs Dispatcher, ResourceManager and JobMaster host as processes of their own, and restarts those that die. A signal
ends it, and its successor goes on with the jobs. When the cluster is shut down over REST, all services end, and the
cluster's Deployment, which would restart them, is removed.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from firesteel.config import Settings
from firesteel.config.load import CONFIG_FILE, load_settings
from firesteel.core.errors import ConfigurationError, RunDirectoryError
from firesteel.core.text_output import escape_missing_characters
from firesteel.service.cluster_status import StatusFile
from firesteel.service.logs import setup_logging
from firesteel.service.process import cluster_directory
from firesteel.service.supervisor import EXIT_TERMINATED, OVER, STOPPED, Supervisor, service_commands
from firesteel_kubernetes.clusters import KubernetesCluster, KubernetesClusterError

logger = logging.getLogger(__name__)
EXIT_OVER: Final = 0
EXIT_FAILED: Final = 1
EXIT_WRONG: Final = 2
_STATUS: Final = "jobmanager.json"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the JobManager; returns the exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))
    escape_missing_characters()
    parser = argparse.ArgumentParser(prog="firesteel-jobmanager", description=__doc__, allow_abbrev=False)
    parser.add_argument("-c", "--config-dir", type=Path, metavar="DIR", required=True, help="directory of config.yaml")
    parser.add_argument(
        "-D", dest="definitions", action="append", default=[], metavar="KEY=VALUE", help="set an option"
    )
    parsed = parser.parse_args(argv)
    folder = parsed.config_dir.absolute()
    try:
        settings = load_settings(config_file=folder / CONFIG_FILE, definitions=parsed.definitions)
        settings.check()
        status = StatusFile(cluster_directory(settings, folder) / _STATUS)
        status.path.unlink(missing_ok=True)  # of the container before, in the same pod
    except (ConfigurationError, RunDirectoryError, OSError) as error:
        print(f"firesteel-jobmanager: {error}", file=sys.stderr, flush=True)
        return EXIT_WRONG
    setup_logging()
    commands = service_commands(folder, [*parsed.definitions, status.definition])
    reason = Supervisor(commands, {}, lambda: status.read().ends(settings)).run()
    if reason == OVER:
        return _remove(settings)
    if reason == STOPPED:
        return EXIT_TERMINATED
    print(f"firesteel-jobmanager: gives up: {reason}", file=sys.stderr, flush=True)
    return EXIT_FAILED


def _remove(settings: Settings) -> int:
    """Remove the Deployment of a cluster that was shut down, which would restart it; this pod is removed with it."""
    try:
        cluster = KubernetesCluster(settings)
        try:
            cluster.delete()
        finally:
            cluster.api.close()
    except (ConfigurationError, KubernetesClusterError) as error:
        print(
            f"firesteel-jobmanager: the cluster is shut down, but its Deployment will start it again, since it can't "
            f"be removed: {error}",
            file=sys.stderr, flush=True,
        )  # fmt: skip
        return EXIT_FAILED
    print(f"firesteel-jobmanager: the cluster is shut down; Deployment {cluster.name} is removed", flush=True)
    return EXIT_OVER


if __name__ == "__main__":
    sys.exit(main())
