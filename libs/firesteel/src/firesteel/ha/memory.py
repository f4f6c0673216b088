"""High-availability services of a cluster that lives in one process: everything ends with it."""

from __future__ import annotations

from pathlib import Path

from firesteel.config import Settings
from firesteel.ha.cell_services import CellServices
from firesteel.ha.cells import MemoryCells
from firesteel.ha.disk import Disk
from firesteel.ha.payloads import DirectoryPayloads


class MemoryServices(CellServices):
    """See ``HighAvailabilityServices``. Graphs and blobs are files of a directory that is removed in the end.

    Args:
        settings: of the cluster.
        directory: where jobs are kept as long as they run; it stays the caller's. None: one for temporary files.
    """

    has_standbys = False

    def __init__(self, settings: Settings | None = None, directory: Path | None = None) -> None:
        where = None if directory is None else directory / "dispatcher"
        super().__init__(MemoryCells(), DirectoryPayloads(where, Disk(durable=False)))
