"""High-availability services of a cluster that lives in one process: everything ends with it."""

from __future__ import annotations

from pathlib import Path

from firesteel.config import Settings
from firesteel.ha.cell_services import CellServices
from firesteel.ha.cells import MemoryCells
from firesteel.ha.disk import Disk
from firesteel.ha.payloads import DirectoryPayloads


class MemoryServices(CellServices):
    """Services in memory. Graphs and blobs are files in a directory that is removed at the end.

    Args:
        settings: of the cluster.
        directory: jobs are stored in it as long as they run; it remains the caller's. None = a temporary directory.
    """

    has_standbys = False

    def __init__(self, settings: Settings | None = None, directory: Path | None = None) -> None:
        jobs = None if directory is None else directory / "dispatcher"
        super().__init__(MemoryCells(), DirectoryPayloads(jobs, Disk(durable=False)))
