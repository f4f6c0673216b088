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
from firesteel.ha.payloads import DirectoryPayloads
from firesteel.ha.retrieval import ConfiguredLeaders, Leader, LeaderRetrieval, Listener, of_job
from firesteel.ha.services import HighAvailabilityServices

_MEMORY: Final = "ha-storage"
"""In the cluster's directory of each host: which shared directory it has seen marked."""


class DirectoryServices(CellServices):
    """See ``HighAvailabilityServices``. All is in ``<high-availability.storageDir>/<high-availability.cluster-id>``.

    Without ``high-availability.storageDir`` only the processes of one host see the directory: services are then looked
    for where settings say.

    Args:
        settings: of the cluster.
        cluster_directory: where the directory lies by default.
        disk: how files are written.
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
        base = Path(storage).expanduser() if storage is not None else Path(cluster_directory or "") / "ha"
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
    """``high-availability.type: NONE``: services are where settings say, and no JobMaster follows one that is lost.

    Args:
        settings: of the cluster.
        cluster_directory: of a cluster that runs as processes: its Dispatcher still keeps jobs there, so that it can be
            started again while they run, and cleans up behind those whose JobMaster is lost. None: all in memory.
    """
    if cluster_directory is None:
        return MemoryServices(settings)
    return DirectoryServices(settings, cluster_directory, shared=False)
