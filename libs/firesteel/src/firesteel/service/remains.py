"""``python -m firesteel.service.remains``: end what services of this host left when they were killed.

Some processes outlive their services on purpose, to be found again by the next ones: Spark's driver, and the JobMasters
of running jobs. Records in the cluster's directory say which they are. When a cluster is stopped, nobody will come back
for them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from firesteel.config.load import CONF_DIR_VARIABLE, CONFIG_FILE, load_settings
from firesteel.config.options import RUN_DIRECTORY
from firesteel.core.errors import ConfigurationError, RunDirectoryError
from firesteel.core.process import ProcessId, ask_to_end, is_running, kill, wait_gone
from firesteel.core.run_directory import RunDirectory
from firesteel.service.process import cluster_directory

RECORDS = {"driver.json": "driver of Spark", "jobmasters/*.json": "JobMaster"}
"""Files in a cluster's directory, and what they stand for."""
_GRACE_SECONDS = 5.0


def end_remains(directory: Path) -> list[str]:
    """End the processes that a cluster's directory names; a sentence for each that was running.

    They get SIGTERM, and SIGKILL if that does not help.
    """
    found = list(_remains(directory))
    for process, _, _ in found:
        ask_to_end(process)
    stubborn = wait_gone([process for process, _, _ in found], _GRACE_SECONDS)
    for process in stubborn:
        kill(process)
    wait_gone(stubborn, _GRACE_SECONDS)
    for _, _, record in found:
        record.unlink(missing_ok=True)
    return [f"Ended the {what} (process {process.pid}), which was left alone." for process, what, _ in found]


def _remains(directory: Path) -> Iterator[tuple[ProcessId, str, Path]]:
    for pattern, what in RECORDS.items():
        for path in sorted(directory.glob(pattern)):
            try:
                process = ProcessId.from_plain(json.loads(path.read_text())["process"])
            except (OSError, ValueError, KeyError, TypeError):
                continue
            if process.pid > 1 and is_running(process):
                yield process, what, path


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m firesteel.service.remains", description=__doc__.splitlines()[0])
    parser.add_argument("--config-dir", type=Path, default=os.environ.get(CONF_DIR_VARIABLE))
    parser.add_argument("-D", dest="definitions", action="append", default=[], metavar="KEY=VALUE")
    parsed = parser.parse_args()
    try:
        folder = Path(parsed.config_dir) if parsed.config_dir else None
        file = folder / CONFIG_FILE if folder else None
        settings = load_settings(config_file=file, definitions=parsed.definitions)
        for sentence in end_remains(cluster_directory(settings, folder)):
            print(sentence)
        RunDirectory.create(settings.get(RUN_DIRECTORY)).remove()  # making one removes those of the dead
    except (ConfigurationError, RunDirectoryError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
