"""High-availability services of a cluster that lives in one process: everything ends with it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from firesteel.checkpoint.store import CompletedCheckpointStore, MemoryCheckpointStore
from firesteel.config import Settings
from firesteel.core.errors import FencedError
from firesteel.ha.disk import Disk
from firesteel.ha.fenced import FencedCheckpointStore
from firesteel.ha.job_directory import JobStore
from firesteel.ha.retrieval import Attempts, Listener
from firesteel.ha.services import HighAvailabilityServices, Leader, Leadership, of_job


class MemoryServices(HighAvailabilityServices):
    """See ``HighAvailabilityServices``. Blobs are files of a directory that is removed in the end.

    Args:
        settings: of the cluster.
        directory: where jobs are kept as long as they run; it stays the caller's. None: one for temporary files.
    """

    has_standbys = False

    def __init__(self, settings: Settings | None = None, directory: Path | None = None) -> None:
        self._given = directory
        self._listeners: list[tuple[str, Listener]] = []
        self._epochs: dict[str, int] = {}
        self._leaders: dict[str, Leader] = {}
        self._attempts: dict[str, Attempts] = {}
        self._checkpoints: dict[str, MemoryCheckpointStore] = {}
        self._directory: Path | None = None

    def campaign(self, component: str) -> Leadership | None:
        """See ``HighAvailabilityServices``."""
        if component in self._leaders:
            return None
        epoch = self._epochs[component] = self._epochs.get(component, 0) + 1
        self._leaders[component] = Leader(epoch)
        self._tell(component)
        return _MemoryLeadership(self, component, epoch, self._attempts.get(component, Attempts()))

    def leader(self, component: str) -> Leader | None:
        """See ``HighAvailabilityServices``."""
        return self._leaders.get(component)

    def watch(self, component: str, listener: Listener) -> Callable[[], None]:
        """See ``HighAvailabilityServices``."""
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

    def depose(self, component: str) -> None:
        """See ``HighAvailabilityServices``."""
        if self._leaders.pop(component, None) is not None:
            self._tell(component)

    def check(self, component: str, epoch: int) -> None:
        """Raises:
        FencedError: another one leads, or nobody.
        """
        leader = self._leaders.get(component)
        if leader is None or leader.epoch != epoch:
            raise FencedError(f"epoch {epoch} of {component} is over")

    def set_leader(self, component: str, leader: Leader) -> None:
        """The leader says where it is.

        Raises:
            FencedError: it leads no more.
        """
        self.check(component, leader.epoch)
        self._leaders[component] = leader
        self._tell(component)

    def job_store(self, leadership: Leadership) -> JobStore:
        """See ``HighAvailabilityServices``."""
        where = self._given
        if where is None:
            self._directory = self._directory or Path(tempfile.mkdtemp(prefix="firesteel-jobs-"))
            where = self._directory
        return JobStore(where / "dispatcher", Disk(durable=False), lambda: self._led(leadership))

    @contextmanager
    def _led(self, leadership: Leadership) -> Iterator[None]:
        self.check(leadership.component, leadership.epoch)
        yield None

    def completed_checkpoints(self, job_id: str, leadership: Leadership) -> CompletedCheckpointStore:
        """See ``HighAvailabilityServices``."""
        store = self._checkpoints.setdefault(job_id, MemoryCheckpointStore())
        return FencedCheckpointStore(store, lambda: self._led(leadership))

    def remembers_job(self, job_id: str) -> bool:
        """See ``HighAvailabilityServices``."""
        return of_job(job_id) in self._leaders or job_id in self._checkpoints

    def forget_job(self, job_id: str) -> None:
        """See ``HighAvailabilityServices``."""
        self._checkpoints.pop(job_id, None)
        self._attempts.pop(of_job(job_id), None)

    def note_attempts(self, component: str, epoch: int, attempts: Attempts) -> None:
        """See ``Leadership``."""
        self.check(component, epoch)
        self._attempts[component] = attempts.behind(self._attempts.get(component, Attempts()))

    def close(self) -> None:
        """See ``HighAvailabilityServices``."""
        self._listeners.clear()
        self._leaders.clear()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None


class _MemoryLeadership(Leadership):
    def __init__(self, services: MemoryServices, component: str, epoch: int, attempts: Attempts) -> None:
        self._services, self.component, self.epoch, self.attempts = services, component, epoch, attempts

    def announce(self, address: str, token: str) -> None:
        self._services.set_leader(self.component, Leader(self.epoch, address, token))

    def note_attempts(self, attempts: Attempts) -> None:
        self._services.note_attempts(self.component, self.epoch, attempts)

    def check(self) -> None:
        self._services.check(self.component, self.epoch)

    def release(self) -> None:
        if self.holds():
            self._services.depose(self.component)
