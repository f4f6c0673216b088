"""High-availability services as the processes of a simulated cluster see them: one election, fallible ways to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from firesteel.checkpoint.store import CompletedCheckpointStore
from firesteel.ha.cell_services import CellServices
from firesteel.ha.cells import Cells, Change, Record, UnsureError
from firesteel.ha.disk import Disk
from firesteel.ha.jobs import JobStore, RecordedEnd
from firesteel.ha.payloads import DirectoryPayloads
from firesteel.ha.retrieval import Attempts, Leader, Listener
from firesteel.ha.services import HighAvailabilityServices, Leadership
from tests.simulation.blocking import pause

if TYPE_CHECKING:
    from tests.simulation.storage import SimulatedHighAvailability
    from tests.simulation.world import Process

_TOLD_WITHIN = 0.3


class ProcessServices(HighAvailabilityServices):
    """Those of one process. What it leads is led no more when it dies; when it stands still, somebody has to depose it.

    Args:
        shared: what all see.
        process: whose they are.
        directory: of jobs, for Dispatchers.
    """

    def __init__(self, shared: SimulatedHighAvailability, process: Process, directory: Path) -> None:
        self._shared, self._process, self._directory = shared, process, directory
        self._held: list[Leadership] = []
        process.connections.append(self._let_go)

    @property
    def has_standbys(self) -> bool:  # type: ignore[override]
        return self._shared.has_standbys

    def _let_go(self) -> None:
        """The kernel does it when the process is gone."""
        for leadership in self._held:
            leadership.release()
        self._held.clear()

    def campaign(self, component: str) -> Leadership | None:
        self._shared.reach(self._process, f"campaign for {component}")
        leadership = self._shared.election.campaign(component)
        if leadership is None:
            return None
        self._held.append(leadership)
        self._shared.led(component, leadership.epoch)
        self._shared.elected[component] = self._process
        return _WatchedLeadership(leadership, self._shared, self._process)

    def depose(self, component: str) -> None:
        self._shared.reach(self._process, f"deposing of {component}")
        self._shared.election.depose(component)

    def leader(self, component: str) -> Leader | None:
        return self._shared.election.leader(component)

    def watch(self, component: str, listener: Listener) -> Callable[[], None]:
        process, world = self._process, self._process.world
        answers: list[bool] = []

        def tell(leader: Leader | None) -> None:
            if process.alive:
                process.loop.call_soon(listener, leader)

        def hear(leader: Leader | None) -> None:
            if not answers:  # at once
                answers.append(True)
                listener(leader)
            elif process.alive:
                world.after(world.rng.uniform(0.0, _TOLD_WITHIN), lambda: tell(self.leader(component)))

        stop = self._shared.election.watch(component, hear)
        process.connections.append(stop)
        return stop

    def job_store(self, leadership: Leadership) -> JobStore:
        return self._stored().job_store(leadership)

    def _stored(self) -> CellServices:
        """What is in cells, with payloads in the directory that all hosts share."""
        payloads = DirectoryPayloads(self._directory / "payloads", _Disk(self))
        return CellServices(_Cells(self._shared.election.cells, self), payloads)

    def reach(self, what: str) -> None:
        """Ask for something.

        Raises:
            OSError: it is not to be had.
        """
        self._shared.reach(self._process, what)

    def completed_checkpoints(self, job_id: str, leadership: Leadership) -> CompletedCheckpointStore:
        assert isinstance(leadership, _WatchedLeadership)
        return self._shared.checkpoints(job_id, leadership.inner)

    def record_end(self, leadership: Leadership, end: RecordedEnd) -> None:
        assert isinstance(leadership, _WatchedLeadership)
        self._shared.reach(self._process, "noting the end")
        self._stored().record_end(leadership.inner, end)
        self._shared.over.add(leadership.component.removeprefix("job-"))
        pause(0.0)

    def recorded_end(self, job_id: str) -> RecordedEnd | None:
        self._shared.reach(self._process, f"looking whether job {job_id[:6]} has ended")
        return self._stored().recorded_end(job_id)

    def forget_job(self, job_id: str) -> None:
        self._shared.reach(self._process, f"forgetting job {job_id[:6]}")
        self._shared.forget(job_id)

    def remembers_job(self, job_id: str) -> bool:
        return self._shared.election.remembers_job(job_id)

    def close(self) -> None:
        self._let_go()


class _Disk(Disk):
    """Of the jobs of a cluster, as far away as its high-availability services."""

    def __init__(self, services: ProcessServices) -> None:
        super().__init__()
        self._services = services

    def write(self, path: Path, content: bytes) -> None:
        self._services.reach(f"writing {path.name}")
        super().write(path, content)

    def rename(self, source: Path, target: Path) -> None:
        self._services.reach(f"renaming to {target.name}")
        super().rename(source, target)


class _Cells(Cells):
    """As far away; of a change that was made perhaps nobody hears."""

    def __init__(self, inner: Cells, services: ProcessServices) -> None:
        self._inner, self._services = inner, services

    def campaign(self, component: str) -> int | None:
        return self._inner.campaign(component)

    def announce(self, component: str, leader: Leader) -> None:
        self._inner.announce(component, leader)

    def check(self, component: str, epoch: int) -> None:
        self._services.reach(f"looking who leads {component}")
        self._inner.check(component, epoch)

    def release(self, component: str, epoch: int) -> None:
        self._inner.release(component, epoch)

    def depose(self, component: str) -> None:
        self._inner.depose(component)

    def leader(self, component: str) -> Leader | None:
        return self._inner.leader(component)

    def watch(self, component: str, listener: Listener) -> Callable[[], None]:
        return self._inner.watch(component, listener)

    def names(self, component: str) -> list[str]:
        return self._inner.names(component)

    def read(self, component: str, name: str) -> Record | None:
        return self._inner.read(component, name)

    def change(self, component: str, epoch: int, changes: Sequence[Change]) -> None:
        what = f"changing {', '.join(change.name for change in changes)}"
        self._services.reach(what)
        self._inner.change(component, epoch, changes)
        try:
            self._services.reach(f"{what}, and hearing of it,")
        except OSError as error:
            raise UnsureError(str(error)) from error

    def exists(self, component: str) -> bool:
        return self._inner.exists(component)

    def forget(self, component: str) -> None:
        self._inner.forget(component)

    def close(self) -> None:
        pass


class _WatchedLeadership(Leadership):
    """What can happen on the way to the services, and between their deed and their answer."""

    def __init__(self, inner: Leadership, shared: SimulatedHighAvailability, process: Process) -> None:
        self.inner, self._shared, self._process = inner, shared, process
        self.component, self.epoch, self.attempts = inner.component, inner.epoch, inner.attempts

    def announce(self, address: str, token: str) -> None:
        self._shared.reach(self._process, f"announcing {self.component}")
        self.inner.announce(address, token)
        if token and not self.component.startswith("job-"):
            self._process.world.obedience.leads(self.component, token)
        self._shared.announced[self.component] = self._process
        self._shared.announced_at[self.component] = self._process.world.now

    def note_attempts(self, attempts: Attempts) -> None:
        self._shared.reach(self._process, "noting attempts")
        self.inner.note_attempts(replace(attempts))
        pause(0.0)

    def check(self) -> None:
        self._shared.reach(self._process, f"looking who leads {self.component}")
        self.inner.check()

    def release(self) -> None:
        self.inner.release()
