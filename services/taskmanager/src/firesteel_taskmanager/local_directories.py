"""Directories on local disks for copies of jobs' state (``execution.checkpointing.local-backup.dirs``).

In each of the configured ones a TaskManager has a directory of its own, named by its process, and in that one for each
job. They go with the job's last slot here, and all of them with the TaskManager; those of TaskManagers of this host
that were killed are removed by the next one that starts.
"""

from __future__ import annotations

import os
import shutil
import uuid

from firesteel.config import Settings
from firesteel.config.options import CHECKPOINTING_LOCAL_BACKUP_DIRECTORIES
from firesteel.core.errors import ConfigurationError
from firesteel.state.attempt_directories import attempt_name, remove_abandoned


class LocalDirectories:
    """The directories of one TaskManager for local copies of state.

    Args:
        settings: of the cluster.
    """

    def __init__(self, settings: Settings) -> None:
        configured = settings.get(CHECKPOINTING_LOCAL_BACKUP_DIRECTORIES) or ""
        self._parents = [parent for parent in map(str.strip, configured.split(",")) if parent]
        self._own: list[str] = []

    def open(self) -> None:
        """Make a directory of this TaskManager in each of them, and remove what killed TaskManagers have left.

        Raises:
            ConfigurationError: a directory can't be made; the message says which.
        """
        for parent in self._parents:
            directory = os.path.join(parent, attempt_name(uuid.uuid4().hex[:12]))
            try:
                os.makedirs(parent, exist_ok=True)
                remove_abandoned(parent)
                os.mkdir(directory, 0o700)
            except OSError as error:
                self.close()
                raise ConfigurationError(
                    f"{CHECKPOINTING_LOCAL_BACKUP_DIRECTORIES.key}: {parent} can't be used: {error.strerror or error}"
                ) from error
            self._own.append(directory)

    def of(self, job_id: str) -> list[str]:
        """Directories of a job; empty = none is configured."""
        return [os.path.join(directory, job_id) for directory in self._own]

    def forget(self, job_id: str) -> None:
        """Remove the directories of a job."""
        for directory in self.of(job_id):
            shutil.rmtree(directory, ignore_errors=True)

    def close(self) -> None:
        """Remove all directories of this TaskManager."""
        for directory in self._own:
            shutil.rmtree(directory, ignore_errors=True)
        self._own = []
