"""``python -m firesteel.service.remains``: end the processes that services of this host have left, as the cluster ends.

Some processes outlive their services on purpose, so that the next services find them: the JobMasters of running jobs,
TaskManagers that the ResourceManager has started, and Spark's driver. Records in the cluster's directory name them.
When a cluster is stopped, no service will look for them again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from firesteel.config.load import CONF_DIR_VARIABLE, CONFIG_FILE, load_settings
from firesteel.config.options import RUN_DIRECTORY
from firesteel.core.errors import ConfigurationError, RunDirectoryError
from firesteel.core.process import ProcessId, ask_to_end, descendants, is_running, kill, wait_gone
from firesteel.core.run_directory import remove_abandoned
from firesteel.service.pid_file import read_pid_file
from firesteel.service.process import cluster_directory


def _in_record(path: Path) -> ProcessId | None:
    try:
        return ProcessId.from_plain(json.loads(path.read_text())["process"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


Read = Callable[[Path], ProcessId | None]
RECORDS: tuple[tuple[str, str, Read, float], ...] = (
    ("jobmasters/*.json", "JobMaster", _in_record, 5.0),
    ("workers/*.pid", "TaskManager of the ResourceManager", read_pid_file, 15.0),
    ("driver.json", "driver of Spark", _in_record, 5.0),
    ("early-*/driver.json", "driver of Spark of a stand-by", _in_record, 5.0),
)
"""Records in a cluster's directory: pattern of the files, kind of the process, reader, seconds for an end in order.

One kind ends after the other: JobMasters give their slots back, TaskManagers end theirs, and the driver goes last."""
_KILLED_SECONDS = 5.0
_ENDING_SECONDS = 5.0
"""Seconds for JobMasters that have no record any more, and have not quite ended."""


def end_remains(directory: Path) -> list[str]:
    """End the processes that a cluster's directory names; a sentence for each that was running.

    They get SIGTERM. Those that have not ended in time are killed with all their descendants.
    """
    sentences = []
    for pattern, description, read, seconds in RECORDS:
        processes = list(_running(directory, pattern, read))
        for process, _ in processes:
            ask_to_end(process)
        stubborn = wait_gone([process for process, _ in processes], seconds)
        stubborn += [below for process in stubborn for below in descendants(process.pid)]
        for process in stubborn:
            kill(process)
        wait_gone(stubborn, _KILLED_SECONDS)
        for process, record in processes:
            record.unlink(missing_ok=True)
            sentences.append(f"Ended the {description} (process {process.pid}), which was left alone.")
    shutil.rmtree(directory / "workers" / "conf", ignore_errors=True)  # it has the secret, for new TaskManagers
    return sentences


def has_remains(directory: Path) -> bool:
    """Whether any process runs that a cluster's directory names."""
    return any(True for pattern, _, read, _ in RECORDS for _ in _running(directory, pattern, read))


def _running(directory: Path, pattern: str, read: Read) -> Iterator[tuple[ProcessId, Path]]:
    for path in sorted(directory.glob(pattern)):
        process = read(path)
        if process is not None and process.pid > 1 and is_running(process):
            yield process, path


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
        remove_abandoned(settings.get(RUN_DIRECTORY), _ENDING_SECONDS)
    except (ConfigurationError, RunDirectoryError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
