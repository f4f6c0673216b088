"""JobMaster hosts: one leads, and those that led before may live on, with their JobMasters.

As with services that elect leaders for a while: a host whose time is over may not know it yet, and the JobMasters on it
need not be dead when others follow them elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from firesteel.config import Settings
from firesteel.ha.directory import DirectoryServices
from firesteel.ha.memory import MemoryServices
from firesteel.ha.retrieval import Listener
from firesteel.ha.services import JOBMASTER_HOST, Leader

if TYPE_CHECKING:
    from firesteel_jobmaster.shell import JobMaster
    from tests.simulation.world import Process


class JobMasterHosts:
    """Who leads, and who did."""

    def __init__(self) -> None:
        self.services = MemoryServices()
        """Where they are elected."""
        self._number = 1
        self.process: Process | None = None
        """Of the host that leads, dead or alive."""
        self.former: list[Process] = []

    @property
    def name(self) -> str:
        """Of the host that leads."""
        return "jm" if self._number == 1 else f"jm{self._number}"

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"http://{self.name}:6124"

    def depose(self) -> None:
        """Whoever leads does so no more: its process is gone, or its time is over."""
        self.services.depose(JOBMASTER_HOST)

    def next(self) -> None:
        """The turn of another host; it has no process yet."""
        self.depose()
        if self.process is not None and self.process.alive:
            self.former.append(self.process)
        self.process = None
        self._number += 1

    def alive(self) -> list[Process]:
        """All that live, those included that lead no more."""
        return [process for process in (*self.former, self.process) if process is not None and process.alive]

    def jobmasters(self, job_id: str) -> list[JobMaster]:
        """All JobMasters of a job that live."""
        found = [process.service._jobs.get(job_id) for process in self.alive()]
        return [job for job in found if job is not None]


class ElectedHosts(DirectoryServices):
    """The high-availability services of the Dispatcher: a directory, but that JobMaster hosts are elected.

    Args:
        settings: of the cluster.
        directory: of the cluster.
        hosts: who is elected.
    """

    def __init__(self, settings: Settings, directory: Path, hosts: JobMasterHosts) -> None:
        super().__init__(settings, directory)
        self._services = hosts.services

    def leader(self, component: str) -> Leader | None:
        return self._services.leader(component) if component == JOBMASTER_HOST else super().leader(component)

    def watch(self, component: str, listener: Listener) -> Callable[[], None]:
        if component == JOBMASTER_HOST:
            return self._services.watch(component, listener)
        return super().watch(component, listener)
