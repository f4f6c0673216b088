"""The provider ``yarn``: TaskManagers are containers of the YARN application that the ResourceManager belongs to.

It uses YARN through the JVM of the ApplicationMaster (``firesteel.yarn``), which keeps registration and containers
while ResourceManagers come and go. The id of a worker is a number, which YARN stores with the container: so the next
attempt knows the worker of each container that it inherits.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from firesteel.config import options
from firesteel.config.memory import has_memory_options, taskmanager_memory
from firesteel.core.errors import FiresteelError
from firesteel.protocol.provider import ProviderContext, WorkerError, WorkerSpec
from firesteel.spark.hosted_provider import HostedProvider
from firesteel_yarn.gateway import YarnError, attach, hang_up, recorded_gateway, yarn_errors
from firesteel_yarn.launch import LAUNCH_FILE, Launch, fill, keytab_of

logger = logging.getLogger(__name__)
_PREFIX: Final = "worker-"
_REGISTERED_SECONDS: Final = 120.0
_POLL: Final = 0.05
_NODE_SECONDS: Final = 3.0
"""Seconds until a NodeManager notices that a container has ended, and YARN hears of it."""
_PRIORITY: Final = 1
_LONGEST_TEXT: Final = 1000
_WAITING_SECONDS: Final = 20.0
_IN_ORDER: Final = frozenset({0, -100, -105, -107})
"""Exit codes that are no failure of the node: success, released, stopped."""
_CAUSES: Final = {
    -101: "the disks of the node have failed",
    -102: "it was preempted: YARN needs its room for others",
    -103: "it has used more virtual memory than YARN allows (yarn.nodemanager.vmem-check-enabled)",
    -106: "YARN's ResourceManager has ended it",
    -108: "YARN has ended it to make room on the node",
    -109: "its logs have grown over what YARN allows",
    137: "it was killed (SIGKILL)",
    143: "it was ended (SIGTERM)",
}
"""Source of the codes: ``org.apache.hadoop.yarn.api.records.ContainerExitStatus``, Hadoop 3.5.0."""


class YarnProvider(HostedProvider):
    """Starts TaskManagers as containers of this application; may be used by any number of threads.

    Args:
        context: settings and clock of the cluster.
        folder: directory of the ApplicationMaster's container, with the description of containers; by default the
            working directory.
    """

    is_active = True

    def __init__(self, context: ProviderContext, folder: Path | None = None) -> None:
        super().__init__(context)
        settings = context.settings
        self.ends_within = settings.get(options.YARN_HEARTBEAT) + _NODE_SECONDS
        self._folder = folder or Path.cwd()
        self._guard = threading.Lock()
        """Guards the fields below."""
        self._gateway: Any = None
        self._master: Any = None
        self._keytab: Any = None
        self._launch: Launch | None = None
        self._address = ""
        self._nodes = FailingNodes(
            settings.get(options.YARN_NODE_FAILURES), settings.get(options.YARN_NODE_EXCLUSION).total_seconds()
        )
        self._waiting: dict[str, float] = {}
        """Workers that wait for their containers, and since when."""

    # -- contract

    def recover(self, resourcemanager_address: str) -> list[str]:
        """Attach to the ApplicationMaster's JVM once the attempt is registered; returns the workers of its containers.

        Raises:
            WorkerError: there is no such JVM, or YARN's largest container is too small for a TaskManager.
        """
        deadline = time.monotonic() + _REGISTERED_SECONDS
        try:
            while (address := recorded_gateway(self.context.directory)) is None:
                if time.monotonic() > deadline:
                    raise WorkerError(
                        f"the ApplicationMaster is not registered with YARN after {_REGISTERED_SECONDS:g} s"
                    )
                time.sleep(_POLL)
            launch = Launch.read(self._folder / LAUNCH_FILE)
            gateway = attach(address)
            with yarn_errors("the ApplicationMaster's JVM can't be used"):
                master = gateway.jvm.firesteel.yarn.Master.current()
                largest = [int(word) for word in str(master.maximum()).split()]
                workers = [line.split("\t") for line in str(master.workers()).splitlines()]
                keytab = keytab_of(gateway.jvm, self.context.settings, launch)
        except (FiresteelError, OSError, ValueError) as error:
            raise WorkerError(str(error)) from error
        if launch.megabytes > largest[0] or launch.cores > largest[1]:
            raise WorkerError(too_large(launch.megabytes, launch.cores, largest[0], largest[1]))
        with self._guard:
            self._gateway, self._master, self._launch, self._keytab = gateway, master, launch, keytab
            self._address = resourcemanager_address.removeprefix("http://")
            now = self.context.clock.monotonic()
            self._waiting = {_worker(number): now for number, container, _ in workers if container == "-"}
        return [_worker(number) for number, _, _ in workers]

    def start_worker(self, spec: WorkerSpec) -> None:
        """Request a container from YARN; the JVM starts the TaskManager in it once it is allocated.

        Raises:
            WorkerError: the request can't be made.
        """
        number = _number(spec.worker_id)
        with self._guard:
            if self._master is None or self._launch is None:
                raise WorkerError("the provider is not attached to the ApplicationMaster")
            launch = self._launch
            command = launch.command(
                *("-m", "firesteel_yarn.task_executor", "--log-file", "<LOG_DIR>/taskmanager.log"),
                *("-D", f"{options.TASKMANAGER_RESOURCE_ID.key}={spec.worker_id}"),
                *("-D", f"{options.TASKMANAGER_SLOTS.key}={spec.slots}"),
                *("-D", f"{options.RESOURCEMANAGER_ADDRESS.key}={self._address}"),
                *("-D", f"{options.TASKMANAGER_HOST.key}={{{{NM_HOST}}}}"),
                out="taskmanager",
            )
            try:
                with yarn_errors(f"no container can be asked for ({spec.worker_id})"):
                    container = fill(self._gateway.jvm, launch, (), launch.taskmanager_environment, command)
                    container.ownCredentials()
                    self._renew(container)
                    self._master.request(
                        number, launch.megabytes, launch.cores, launch.label, _PRIORITY, container.make()
                    )
            except YarnError as error:
                raise WorkerError(str(error)) from error
            self._waiting.setdefault(spec.worker_id, self.context.clock.monotonic())

    def _renew(self, container: Any) -> None:
        """Give a container new delegation tokens, if there is a keytab: the application's own tokens expire."""
        if self._keytab is None:
            return
        try:
            with yarn_errors(
                "no new delegation tokens can be had, so the container gets those of its ApplicationMaster"
            ):
                container.credentials(self._keytab.tokens())
        except YarnError as error:
            logger.warning("%s", error)

    def stop_worker(self, worker_id: str) -> None:
        """End a worker's container, or withdraw the request for it."""
        with self._guard:
            if self._master is None:
                return
            try:
                with yarn_errors(f"the container of {worker_id} can't be stopped"):
                    self._master.stop(_number(worker_id))
            except (WorkerError, YarnError) as error:  # a WorkerError: no container can have this id
                logger.warning("%s", error)

    def ended_workers(self) -> list[tuple[str, str]]:
        """Workers whose containers YARN has ended since the last call, with the causes."""
        with self._guard:
            if self._master is None:
                return []
            try:
                with yarn_errors("YARN's news can't be taken"):
                    lines = str(self._master.takeEvents()).splitlines()
                    ended = [end for line in lines if (end := self._take_event(line.split("\t"))) is not None]
                    self._exclude()
            except YarnError as error:  # the JVM is gone: the ApplicationMaster ends, and this process with it
                logger.error("%s", error)
                return []
            return ended

    def waiting_workers(self) -> dict[str, str]:
        """Reasons why workers have no containers yet, such as a full queue, for people."""
        with self._guard:
            now = self.context.clock.monotonic()
            late = [worker for worker, since in self._waiting.items() if now - since >= _WAITING_SECONDS]
            if not late or self._master is None or self._launch is None:
                return {}
            try:
                with yarn_errors("the free room of the queue is unknown"):
                    free = str(self._master.available()).split() or ["?", "?"]
            except YarnError as error:
                logger.warning("%s", error)
                free = ["?", "?"]
            queue = self.context.settings.get(options.YARN_QUEUE) or "default"
            size = f"{self._launch.megabytes} MiB and {self._launch.cores} cores"
            reason = (
                f"YARN has given no container of {size} yet: the queue {queue} has room for {free[0]} MiB and "
                f"{free[1]} cores more, or no node has so much in one piece"
            )
            return dict.fromkeys(late, reason)

    def terminate(self) -> None:
        """Stop all containers; YARN also does so when the ApplicationMaster reports the end of the application."""
        with self._guard:
            if self._master is None:
                return
            try:
                with yarn_errors("containers can't be stopped"):
                    for line in str(self._master.workers()).splitlines():
                        self._master.stop(int(line.split("\t")[0]))
            except YarnError as error:
                logger.warning("%s", error)
            self._detach()

    def close(self) -> None:
        """Detach; the containers are left to the next ResourceManager."""
        with self._guard:
            self._detach()

    def _detach(self) -> None:
        self._master = self._keytab = None
        if self._gateway is not None:
            hang_up(self._gateway)
            self._gateway = None

    # -- events of YARN

    def _take_event(self, words: list[str]) -> tuple[str, str] | None:
        """Take an event of the ApplicationMaster; returns worker and cause if it is the end of a container."""
        kind, now = words[0], self.context.clock.monotonic()
        if kind == "allocated":
            worker = _worker(words[1])
            self._waiting.pop(worker, None)
            logger.info("worker %s is %s on %s", worker, words[2], words[3])
        elif kind == "recovered":
            logger.info("worker %s of a former attempt is %s on %s", _worker(words[1]), words[2], words[3])
        elif kind == "node":
            logger.warning("YARN says that node %s is %s", words[1], words[2])
        elif kind == "ended":
            _, number, container, node, status, diagnostics = words
            worker = _worker(number)
            self._waiting.pop(worker, None)
            code = int(status)
            if container and code not in _IN_ORDER:
                self._nodes.failed(node, now)
            return worker, self._cause(container, node, code, diagnostics)
        return None

    def _cause(self, container: str, node: str, code: int, diagnostics: str) -> str:
        if not container:
            return diagnostics
        assert self._launch is not None
        if code == -104:
            settings = self.context.settings
            configured = f"taskmanager.memory.process.size is {self._launch.megabytes} MiB" + (
                "" if settings.is_set(options.MEMORY_PROCESS_SIZE) or not has_memory_options(settings) else " in all"
            )
            overhead = taskmanager_memory(settings).overhead >> 20 if has_memory_options(settings) else 0
            return (
                f"container {container} on {node} has used more memory than it has ({configured}): raise it, or, if it "
                "is no slot that needs more (a slot over its share is named by its own error), "
                f"taskmanager.memory.jvm-overhead.min ({overhead} MiB)." + _without_dump(diagnostics)
            )
        explanation = _CAUSES.get(code, "")
        return f"container {container} on {node} has ended with {code}" + "".join(
            f": {text}" for text in (explanation, diagnostics) if text
        )

    def _exclude(self) -> None:
        excluded, readmitted = self._nodes.changes(self.context.clock.monotonic())
        for node in excluded:
            logger.warning(
                "node %s gets no TaskManagers for %g s: %d of them have failed there (firesteel.yarn.node-failures)",
                node, self._nodes.seconds, self._nodes.most,
            )  # fmt: skip
        if excluded or readmitted:
            self._master.exclude(excluded, readmitted)


def _without_dump(diagnostics: str) -> str:
    """Diagnostics of YARN without the list of processes, which is all that is left of long texts."""
    text = diagnostics.partition("Dump of the process-tree")[0]
    return f" YARN says: {text}" if 0 < len(text) < _LONGEST_TEXT else ""


def too_large(megabytes: int, cores: int, most_megabytes: int, most_cores: int) -> str:
    """Message about a TaskManager for which YARN's containers are too small."""
    return (
        f"a TaskManager needs {megabytes} MiB and {cores} cores, and YARN's largest container has {most_megabytes} MiB "
        f"and {most_cores} cores: lower taskmanager.memory.process.size and taskmanager.numberOfTaskSlots (or "
        "yarn.containers.vcores), or raise yarn.scheduler.maximum-allocation-mb and -vcores of the cluster"
    )


@dataclass
class FailingNodes:
    """Decides which nodes get no more TaskManagers. Pure.

    Args:
        most: failures on a node within ``seconds`` that exclude it; 0 = no node is excluded.
        seconds: for which failures count, and for which a node is excluded.
    """

    most: int
    seconds: float
    _failures: dict[str, deque[float]] = field(default_factory=dict)
    _excluded: dict[str, float] = field(default_factory=dict)
    _announced: set[str] = field(default_factory=set)
    """Hosts that were excluded at the last call of ``changes``."""

    def failed(self, node: str, now: float) -> None:
        """Count a failed container on a node (``host:port``)."""
        if self.most == 0:
            return
        host = node.rpartition(":")[0]
        failures = self._failures.setdefault(host, deque())
        failures.append(now)
        while now - failures[0] > self.seconds:
            failures.popleft()
        if len(failures) >= self.most:
            self._excluded[host] = now + self.seconds
            del self._failures[host]

    def changes(self, now: float) -> tuple[list[str], list[str]]:
        """Hosts newly excluded, and hosts no longer excluded, since the last call."""
        self._excluded = {host: end for host, end in self._excluded.items() if end > now}
        excluded_now = set(self._excluded)
        added, removed = sorted(excluded_now - self._announced), sorted(self._announced - excluded_now)
        self._announced = excluded_now
        return added, removed


def _number(worker_id: str) -> int:
    text = worker_id.removeprefix(_PREFIX)
    try:
        if worker_id == text or not 0 < len(text) <= 15:
            raise ValueError
        return int(text, 16) + (1 << 60)  # positive, and the digits can be recovered
    except ValueError:
        raise WorkerError(f"{worker_id!r} is not an id of a worker: worker- and up to 15 hex digits") from None


def _worker(number: int | str) -> str:
    return f"{_PREFIX}{int(number) - (1 << 60):012x}"
