"""The machines on which coordinators run, and who of them leads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from firesteel.ha.services import DISPATCHER, JOBMASTER_HOST, RESOURCEMANAGER

if TYPE_CHECKING:
    from tests.simulation.world import Process

PORTS = {DISPATCHER: 6123, RESOURCEMANAGER: 8082, JOBMASTER_HOST: 6124}
HOSTS = {DISPATCHER: "disp", RESOURCEMANAGER: "rm", JOBMASTER_HOST: "jm"}


@dataclass
class Coordinators:
    """All processes that lead a component, did so, or wait for it.

    Attributes:
        component: see ``firesteel.ha.retrieval``.
        processes: host -> the last process on it.
        retired: hosts on which nobody starts one again.
    """

    component: str
    processes: dict[str, Process] = field(default_factory=dict)
    retired: set[str] = field(default_factory=set)
    _count: int = 0

    def new_host(self) -> str:
        self._count += 1
        name = HOSTS[self.component]
        return name if self._count == 1 else f"{name}{self._count}"

    def address(self, host: str) -> str:
        """Where the process on a host listens."""
        return f"http://{host}:{PORTS[self.component]}"

    def alive(self) -> list[Process]:
        """All that live, whether they lead or not."""
        return [process for process in self.processes.values() if process.alive]
