"""High availability of a cluster that lives in one process: cells and services that end with it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from typing_extensions import override

from firesteel.config import Settings
from firesteel.core.errors import FencedError
from firesteel.ha.cell_services import CellServices
from firesteel.ha.cells import Cells, Change, ChangedError, Put, Record, RemoveRecord, checked
from firesteel.ha.disk import Disk
from firesteel.ha.payloads import DirectoryPayloads
from firesteel.ha.retrieval import Leader, Listener


class MemoryCells(Cells):
    """Cells of one process, which end with it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._epochs: dict[str, int] = {}
        self._leaders: dict[str, Leader] = {}
        self._records: dict[str, dict[str, Record]] = {}
        self._listeners: list[tuple[str, Listener]] = []
        self._last_version = 0

    @override
    def campaign(self, component: str) -> int | None:
        with self._lock:
            if component in self._leaders:
                return None
            epoch = self._epochs[component] = self._epochs.get(checked(component, "a component"), 0) + 1
            self._leaders[component] = Leader(epoch)
        self._tell(component)
        return epoch

    @override
    def announce(self, component: str, leader: Leader) -> None:
        with self._lock:
            self.check(component, leader.epoch)
            self._leaders[component] = leader
        self._tell(component)

    @override
    def check(self, component: str, epoch: int) -> None:
        leader = self._leaders.get(component)
        if leader is None or leader.epoch != epoch:
            raise FencedError(f"epoch {epoch} of {component} is over")

    @override
    def release(self, component: str, epoch: int) -> None:
        with self._lock:
            leader = self._leaders.get(component)
            if leader is not None and leader.epoch == epoch:
                self.depose(component)

    @override
    def depose(self, component: str) -> None:
        with self._lock:
            led = self._leaders.pop(component, None) is not None
        if led:
            self._tell(component)

    @override
    def leader(self, component: str) -> Leader | None:
        return self._leaders.get(component)

    @override
    def watch(self, component: str, listener: Listener) -> Callable[[], None]:
        entry = component, listener
        self._listeners.append(entry)
        listener(self._leaders.get(component))

        def stop() -> None:
            if entry in self._listeners:
                self._listeners.remove(entry)

        return stop

    def _tell(self, component: str) -> None:
        for watched, listener in list(self._listeners):
            if watched == component:
                listener(self._leaders.get(component))

    @override
    def names(self, component: str) -> list[str]:
        with self._lock:
            return sorted(self._records.get(component, ()))

    @override
    def read(self, component: str, name: str) -> Record | None:
        with self._lock:
            return self._records.get(component, {}).get(name)

    @override
    def change(self, component: str, epoch: int, changes: Sequence[Change]) -> None:
        with self._lock:
            self.check(component, epoch)
            records = dict(self._records.get(component, {}))
            for change in changes:
                record = records.get(change.name)
                if (None if record is None else record.version) != change.expected:
                    raise ChangedError(f"the record {change.name} of {component} has changed")
                if isinstance(change, Put):
                    self._last_version += 1
                    records[checked(change.name, "a record")] = Record(change.value, self._last_version)
                elif isinstance(change, RemoveRecord):
                    del records[change.name]
            self._records[component] = records

    @override
    def exists(self, component: str) -> bool:
        with self._lock:
            return component in self._leaders or bool(self._records.get(component))

    def forget(self, component: str) -> None:
        """Remove a cell's records. Its epochs go on."""
        with self._lock:
            self._records.pop(component, None)

    @override
    def close(self) -> None:
        self._listeners.clear()
        self._leaders.clear()


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
