"""Where the programs run, and who can be killed there."""

from __future__ import annotations

import json
import os
import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from firesteel.client.connections import close_connections
from firesteel.client.embedded import stop_embedded_cluster
from firesteel.core.process import ProcessId, identify, kill, wait_gone
from tests.integration.embedded.programs import new_environment, submitted_to
from tests.integration.processes.cluster import Cluster, running_cluster, wait_until

SLOT, EXECUTOR, TASKMANAGER, JOBMASTER = "slot", "executor", "TaskManager", "JobMaster"
PARALLELISM: Final = 2


class Place(ABC):
    """A cluster.

    Attributes:
        name: of the kind of cluster.
        victims: who may die there.
    """

    name: str
    victims: tuple[str, ...] = (SLOT,)

    @abstractmethod
    def settings(self) -> Mapping[str, str]:
        """Of programs that go there, on top of what goes to the embedded cluster."""

    def slots(self, folder: Path) -> list[ProcessId]:
        """The slot processes that run the job whose orders are in a folder."""
        processes = []
        for file in folder.glob("slot-*"):
            process = identify(int(file.name.removeprefix("slot-")))
            if process is not None and str(process.start) == file.read_text():
                processes.append(process)
        return sorted(processes, key=lambda process: process.pid)

    def find(self, victim: str, folder: Path, chance: random.Random) -> ProcessId | None:
        """One of the kind, if there is one now."""
        slots = self.slots(folder)
        return chance.choice(slots) if slots else None

    def kill(self, victim: str, folder: Path, chance: random.Random) -> ProcessId:
        """Kill one of the kind with SIGKILL; it is gone when this returns."""
        process: ProcessId = wait_until(lambda: self.find(victim, folder, chance), f"there is a {victim}")
        kill(process)
        assert not wait_gone([process], 20)
        return process

    def log(self) -> str:
        """What the last JobMaster has said, where it has a log of its own."""
        return ""

    @abstractmethod
    def bring_back(self, victim: str) -> None:
        """See to what was killed and is not replaced by the cluster itself; nobody waits for it here."""


class Embedded(Place):
    """The cluster below this process."""

    name = "embedded"

    def settings(self) -> Mapping[str, str]:
        return {}

    def bring_back(self, victim: str) -> None:
        """Slots come back by themselves."""


class Processes(Place):
    """A cluster of processes: two TaskManagers of two slots, of which a program takes two.

    Args:
        cluster: runs.
    """

    name = "processes"
    victims = (SLOT, EXECUTOR, TASKMANAGER, JOBMASTER)

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        host, _, port = cluster.rest_url.removeprefix("http://").partition(":")
        self._settings = {"execution.target": "remote", "rest.address": host, "rest.port": port}
        self._settings["firesteel.security.secret-file"] = str(cluster.config_dir / "cluster-secret")

    def settings(self) -> Mapping[str, str]:
        return self._settings

    def find(self, victim: str, folder: Path, chance: random.Random) -> ProcessId | None:
        if victim == JOBMASTER:
            return self._jobmaster()
        slot = super().find(SLOT, folder, chance)
        if victim == SLOT or slot is None:
            return slot
        pids = [service.pid for service in self.cluster.services if service.name == "taskmanager"]
        taskmanager = next((pid for pid in _above(slot.pid) if pid in pids), 0)
        if victim == TASKMANAGER:
            return identify(taskmanager) if taskmanager else None
        executors = self.cluster.executors()  # their daemons are beside them
        return next((executor for executor in executors if taskmanager in _above(executor.pid)), None)

    def log(self) -> str:
        folders = os.walk(self.cluster.folder)  # which bears that folders come and go meanwhile
        logs = [
            Path(folder, name) for folder, _, names in folders if Path(folder).name == "jobmasters" for name in names
        ]
        logs = sorted((log for log in logs if log.suffix == ".log"), key=lambda file: file.stat().st_mtime)
        return logs[-1].read_text() if logs else ""

    def _jobmaster(self) -> ProcessId | None:
        """Of the only job."""
        for record in self.cluster.cluster_directory.glob("jobmasters/*.json"):
            try:
                process = ProcessId.from_plain(json.loads(record.read_text())["process"])
            except (OSError, ValueError):
                continue
            if identify(process.pid) == process:
                return process
        return None

    def kill(self, victim: str, folder: Path, chance: random.Random) -> ProcessId:
        if victim in (TASKMANAGER, EXECUTOR):
            wait_until(lambda: len(self.cluster.executors()) >= PARALLELISM, "each TaskManager has an executor")
            self.cluster.wait_slots(2 * PARALLELISM)
        killed = super().kill(victim, folder, chance)
        for service in self.cluster.services:
            if service.pid == killed.pid:
                service.wait()
        return killed

    def bring_back(self, victim: str) -> None:
        if victim == TASKMANAGER:
            self.cluster.launch("taskmanager")


def _above(pid: int) -> Iterator[int]:
    """Parent, its parent, and so on."""
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return
        yield pid


@contextmanager
def embedded(**options: str) -> Iterator[Embedded]:
    """The embedded cluster, with these options as ``new_environment`` has them; it has run a job."""
    stop_embedded_cluster()
    try:
        _run_one(**options)
        yield Embedded()
    finally:
        stop_embedded_cluster()


@contextmanager
def processes(path: str) -> Iterator[Processes]:
    """A cluster of processes that has run a job.

    Args:
        path: PYTHONPATH of all of them.
    """
    with running_cluster(taskmanagers=2, variables={"PYTHONPATH": path}) as cluster:
        place = Processes(cluster)
        try:
            with submitted_to(place.settings()):
                _run_one()
            yield place
        finally:
            close_connections()


def _run_one(**options: str) -> None:
    results = new_environment(PARALLELISM, **options).from_sequence(1, 4).map(str).execute_and_collect()
    assert sorted(results) == ["1", "2", "3", "4"]
