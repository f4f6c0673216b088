"""High-availability services in a directory: cells (``directory_cells``) and payloads beside them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from typing_extensions import override

from firesteel.config import Settings
from firesteel.config.recovery_options import HA_CLUSTER_ID, HA_STORAGE_DIRECTORY
from firesteel.core.errors import ConfigurationError
from firesteel.ha.cell_services import CellServices
from firesteel.ha.cells import checked
from firesteel.ha.directory_cells import DirectoryCells
from firesteel.ha.disk import Disk
from firesteel.ha.memory import MemoryServices
from firesteel.ha.payloads import DirectoryPayloads, storage_directory
from firesteel.ha.retrieval import ConfiguredLeaders, Leader, LeaderRetrieval, Listener, of_job
from firesteel.ha.services import HighAvailabilityServices

_MEMORY: Final = "ha-storage"
"""File in each host's cluster directory that remembers which shared directory had its marker."""


class DirectoryServices(CellServices):
    """Services in the directory ``<high-availability.storageDir>/<high-availability.cluster-id>``.

    Without ``high-availability.storageDir`` only the processes of one host see the directory, so services are then
    found at their configured addresses.

    Args:
        settings: of the cluster.
        cluster_directory: parent of the directory by default.
        disk: writes files.
        shared: take ``high-availability.storageDir`` into account.

    Raises:
        ConfigurationError: there is no directory, or it can't be used.
    """

    cells: DirectoryCells

    def __init__(
        self,
        settings: Settings,
        cluster_directory: Path | None = None,
        disk: Disk | None = None,
        *,
        shared: bool = True,
    ) -> None:
        storage = settings.get(HA_STORAGE_DIRECTORY) if shared else None
        if storage is None and cluster_directory is None:
            raise ConfigurationError("high-availability.type: directory needs high-availability.storageDir")
        cluster = checked(settings.get(HA_CLUSTER_ID).strip("/") or "default", HA_CLUSTER_ID.key)
        base = storage_directory(storage) if storage is not None else Path(cluster_directory or "") / "ha"
        self.directory, disk = base / cluster, disk or Disk()
        jobs = self.directory / "jobs" if cluster_directory is None or storage else cluster_directory / "dispatcher"
        memory = None if storage is None or cluster_directory is None else cluster_directory / _MEMORY
        super().__init__(
            DirectoryCells(self.directory, disk, jobs, shared=storage is not None, memory=memory),
            DirectoryPayloads(jobs, disk),
        )
        self.has_standbys = storage is not None
        self._configured: LeaderRetrieval | None = None if storage is not None else ConfiguredLeaders(settings)

    @override
    def join(self) -> None:
        self.cells.join()

    @override
    def leader(self, component: str) -> Leader | None:
        return self._retrieval(component).leader(component)

    @override
    def watch(self, component: str, listener: Listener) -> Callable[[], None]:
        return self._retrieval(component).watch(component, listener)

    def _retrieval(self, component: str) -> LeaderRetrieval | DirectoryCells:
        configured = self._configured
        return self.cells if configured is None or component.startswith(of_job("")) else configured


def without_high_availability(settings: Settings, cluster_directory: Path | None = None) -> HighAvailabilityServices:
    """``high-availability.type: NONE``: services have configured addresses, and a lost JobMaster has no successor.

    Args:
        settings: of the cluster.
        cluster_directory: of a cluster that runs as processes: its Dispatcher still stores jobs there, so that it can
            be restarted while they run, and cleans up after those whose JobMaster is lost. None = all in memory.
    """
    if cluster_directory is None:
        return MemoryServices(settings)
    return DirectoryServices(settings, cluster_directory, shared=False)
