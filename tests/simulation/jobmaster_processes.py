"""Processes of JobMasters: what forks, kills and connects them. All that runs in them and in their host is real."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from firesteel.core.process import ProcessId
from firesteel.ha.services import JOBMASTER_HOST
from firesteel_jobmaster.job_process import _JobProcess
from firesteel_jobmaster.order import JobOrder
from firesteel_jobmaster.template_process import TemplateError, describe_exit

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.world import Process, World

_LOCAL = (0.0001, 0.001)
_FORK = (0.01, 0.2)
_FIRST_PORT = 20_000
_KNOWS_AFTER = 3.0
"""Seconds after which a host has seen that another one leads, or looks before it does something."""
_EXIT_CRASHED = 70


def running_process() -> Process:
    process: Process = asyncio.get_running_loop().process  # type: ignore[attr-defined]
    return process


def process_id(process: Process) -> ProcessId:
    """As the services know it."""
    return ProcessId(process.incarnation, process.incarnation)


class PipeEnd:
    """One end of a stream between two processes of a host: reliable and in order; it ends with either process.

    Args:
        world: whose time it takes.
        process: that holds it; None: it is being forked.
    """

    def __init__(self, world: World, process: Process | None) -> None:
        self.world = world
        self.process: Process | None = None
        self.other: PipeEnd
        self._closed = self._ended = False
        self._due = 0.0
        self._waiting: list[bytes] = []
        if process is not None:
            self.attach(process)

    def attach(self, process: Process) -> None:
        """A process holds it from now on."""
        self.process = process
        self.reader = asyncio.StreamReader(loop=process.loop)
        process.connections.append(self.close)
        for data in self._waiting:
            self._feed(data)
        self._waiting.clear()

    def setblocking(self, flag: bool) -> None:
        """As of a socket."""

    # as of a StreamWriter

    def write(self, data: bytes) -> None:
        self._send(data)

    async def drain(self) -> None:
        if self._closed or self._ended:
            raise ConnectionResetError("the other end is gone")

    def is_closing(self) -> bool:
        return self._closed

    def close(self) -> None:
        if not self._closed:
            self._send(b"")
            self._closed = True

    def _send(self, data: bytes) -> None:
        if self._closed:
            return
        self._due = max(self._due, self.world.now) + self.world.rng.uniform(*_LOCAL)
        self.world.after(self._due - self.world.now, lambda: self.other._arrived(data))

    def _arrived(self, data: bytes) -> None:
        self._ended = self._ended or not data
        if self.process is None:
            self._waiting.append(data)
        elif self.process.alive:
            self._feed(data)

    def _feed(self, data: bytes) -> None:
        assert self.process is not None
        if data:
            self.process.loop.call_soon(self.reader.feed_data, data)
        else:
            self.process.loop.call_soon(self.reader.feed_eof)


class JobMasterProcesses:
    """All of a cluster, over all hosts.

    Args:
        cluster: whose they are.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._world = cluster, cluster.world
        self._port = _FIRST_PORT
        self.alive: dict[int, Process] = {}
        """By pid."""
        self._jobs: dict[int, str] = {}
        self.forks_fail = 0.0
        """How likely there is no memory for one."""

    def of_job(self, job_id: str) -> list[Process]:
        """Those that run a job; more than one where the others have not noticed yet that they are deposed."""
        return [process for pid, process in self.alive.items() if self._jobs[pid] == job_id]

    def on_host(self, host: str) -> list[Process]:
        """Those of a machine."""
        return [process for process in self.alive.values() if process.host == host]

    def fork(self, template: SimulatedTemplate, job_id: str, end: PipeEnd) -> None:
        """A process is made; where that is impossible, its connection just ends."""
        world, host = self._world, template.process.host
        if self._cluster.faults_go_on and world.rng.random() < self.forks_fail:
            world.tell(f"no memory to fork a JobMaster on {host}")
            end.close()
            return
        self._port += 1
        with world.building_process("job", host, f"http://{host}:{self._port}") as process:
            pass
        process.skew = self._cluster.skews.get(host, 0.0)
        pid = process.incarnation
        self.alive[pid], self._jobs[pid] = process, job_id
        end.attach(process)
        world.tell(f"{process} of {self._cluster.short(job_id)} is forked on {host}")

        def gone(what: str) -> None:
            if self.alive.pop(pid, None) is not None:
                del world.processes[process.address]
                world.tell(f"{process} of {self._cluster.short(job_id)} {what}")
                template.reap(job_id, pid, what)

        process.gone = gone

        async def live() -> None:
            code = _EXIT_CRASHED
            try:
                line = await end.reader.readline()
                code = 0
                if line.endswith(b"\n"):
                    code = _EXIT_CRASHED
                    code = await _JobProcess(JobOrder(**json.loads(line)), end).run()  # type: ignore[arg-type]
            except OSError as error:  # its disk
                world.tell(f"{process} crashes: {error}")
            except Exception as error:
                world.broken.append(f"{process} crashes: {type(error).__name__}: {error}")
                raise
            finally:
                if process.alive:
                    world.after(0.0, lambda: process.exit(describe_exit(code)))

        process.run(live)

    # what services ask of the system

    def ask_to_end(self, identity: ProcessId) -> None:
        process = self.alive.get(identity.pid)
        if process is not None:
            process.signal(signal.SIGTERM)

    def kill(self, killed: ProcessId) -> None:
        process = self.alive.get(killed.pid)
        if process is not None:
            self._world.after(0.0, lambda: process.exit(describe_exit(-signal.SIGKILL)))

    def is_running(self, process: ProcessId) -> bool:
        """Whether it is there, running or stopped."""
        return process.pid in self.alive


class SimulatedTemplate:
    """In place of ``TemplateProcess``; it ends with its host.

    Args:
        cluster: whose processes it forks.
        ended: see ``TemplateProcess``.
    """

    def __init__(self, cluster: Cluster, ended: Callable[[str, int, str], None]) -> None:
        assert cluster.world.building is not None
        self.process, self._cluster, self._ended = cluster.world.building, cluster, ended
        self.generation = 1
        self.pid: int | None = None

    is_ready = True

    def attach(self) -> None: ...

    async def fork(self, job_id: str, timeout: float) -> PipeEnd:
        cluster, world = self._cluster, self._cluster.world
        leads, since = cluster.ha.announced[JOBMASTER_HOST], cluster.ha.announced_at[JOBMASTER_HOST]
        elected = cluster.ha.elected[JOBMASTER_HOST] is self.process
        if leads is not self.process and not elected and world.now - since > _KNOWS_AFTER:
            world.broken.append(f"{self.process} makes a JobMaster, and {leads} has led for {world.now - since:.1f} s")
        if cluster.faults_go_on and world.rng.random() < cluster.job_processes.forks_fail / 2:
            raise TemplateError("no process to fork JobMasters from became ready")
        mine, its = PipeEnd(world, self.process), PipeEnd(world, None)
        mine.other, its.other = its, mine
        world.after(world.rng.uniform(*_FORK), lambda: cluster.job_processes.fork(self, job_id, its))
        return mine

    def reap(self, job_id: str, pid: int, what: str) -> None:
        """One that it forked has ended: the host hears of it, if both live."""
        if self.process.alive:
            self.process.loop.call_soon(self._ended, job_id, pid, what)

    def replace(self, why: str) -> None:
        """See ``TemplateProcess``: the next one has not forked what runs, and hears nothing of it."""
        self.generation += 1

    async def close(self) -> None: ...


class Session:
    """In place of ``aiohttp.ClientSession``."""

    def __init__(self, **_: Any) -> None:
        pass

    async def close(self) -> None:
        pass
