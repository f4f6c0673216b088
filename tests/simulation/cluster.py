"""A simulated cluster: the real services, each in a process of its own, over a simulated network, fleet and slots."""

from __future__ import annotations

import asyncio
import sys
import types
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import firesteel_dispatcher.app
import firesteel_jobmaster.app
import firesteel_resourcemanager.app
import firesteel_taskmanager.app
import firesteel_taskmanager.executors
from firesteel.config import Settings
from firesteel.connectors import enumerators
from firesteel.core.process import ProcessId
from firesteel.graph.job_graph import JobEdge, JobGraph, JobVertex, OperatorInfo, SourceInfo
from firesteel.protocol.fleet import SlotLaunch, SlotOutcome
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.protocol.messages import StartJob
from firesteel.service.base import Service
from firesteel_dispatcher.disk import Disk
from firesteel_dispatcher.submission import Submission
from firesteel_jobmaster.app import JobMasterService
from tests.simulation.obedience import DISPATCHER, RESOURCEMANAGER
from tests.simulation.slots import SimulatedChannels, SimulatedExecutor, SimulatedFleet, SlotProcess, SparkDriver
from tests.simulation.stand_ins import SimulatedBlobs, Trickle
from tests.simulation.world import Process, SimulatedRpcClient, World

SETTINGS = {
    "heartbeat.interval": "10 s",
    "heartbeat.timeout": "50 s",
    "slot.request.timeout": "60 s",
    "task.cancellation.timeout": "20 s",
}
_CHAIN, _CHAIN_BYTES = "c" * 64, 10
_SERVICES = ("firesteel_dispatcher", "firesteel_jobmaster", "firesteel_resourcemanager", "firesteel_taskmanager")
_SECRET = "s" * 64


class Cluster:
    """The processes, and what must always hold between them.

    Args:
        world: in which they live.
        directory: what the Dispatcher finds again after a restart.
        taskmanagers: how many, each on a host of its own.
        slots: of each.
    """

    def __init__(self, world: World, directory: Path, taskmanagers: int = 3, slots: int = 2) -> None:
        self.world, self.directory, self.slots = world, directory, slots
        self.settings = Settings(SETTINGS)
        self.slot_processes: dict[int, SlotProcess] = {}
        self.wanted: dict[str, SlotLaunch] = {}
        self.ended: list[tuple[str, SlotOutcome, str]] = []
        self.finished: set[tuple[str, str]] = set()
        self.commits: dict[tuple[str, str], int] = {}
        self.processed: Counter[tuple[str, str]] = Counter()
        """Splits that were read, by job and run of it."""
        self.splits: dict[str, int] = {}
        self.endless: set[str] = set()
        self.drivers: dict[str, SparkDriver] = {}
        self.executors: dict[str, SimulatedExecutor] = {}
        self.faults_go_on = True
        self.submitted: list[str] = []
        self._pids, self._executor_ids = 1000, 0
        self.resourcemanager = self.jobmaster = self.dispatcher = None  # type: Process | None
        self.taskmanagers: dict[str, Process] = {}
        self.start_resourcemanager()
        self.start_jobmaster()
        self.start_dispatcher()
        for index in range(taskmanagers):
            self.start_taskmanager(f"tm{index}")

    def tell(self, text: str) -> None:
        self.world.tell(text)

    def short(self, job_id: str, execution_id: str = "") -> str:
        """Names for the story."""
        number = self.submitted.index(job_id) if job_id in self.submitted else job_id
        vertex, _, rest = execution_id.partition("_")
        return f"job {number}" + (f" {vertex.lstrip('0')}_{rest}" if execution_id else "")

    # -- processes

    def _begin(self, process: Process, service: Any) -> Process:
        process.service = service
        service._session = object()
        service._address = process.address

        async def begin() -> None:
            if service.name == "dispatcher":
                service._restore(await service.on_disk(service.store.open, service.clock.epoch_ms()))
            await service.on_start()
            service._started = True

        process.run(begin)
        self.tell(f"{process} starts")
        return process

    def _directory(self) -> Any:
        return types.SimpleNamespace(path=Path("/sim"), socket_path=lambda name: Path("/sim") / name)

    def start_resourcemanager(self) -> None:
        with self.world.building_process("resourcemanager", "rm", "http://rm:8082") as process:
            service = firesteel_resourcemanager.app.create_service(
                settings=self.settings,
                secret=_SECRET,
                clock=process,
                fleet=SimulatedFleet(self),
                cluster_directory=self.directory,
            )
        self.world.obedience.leads(RESOURCEMANAGER, service.token)
        self.resourcemanager = self._begin(process, service)

    def start_jobmaster(self) -> None:
        with self.world.building_process("jobmaster", "jm", "http://jm:6124") as process:
            service = firesteel_jobmaster.app.create_service(settings=self.settings, secret=_SECRET, clock=process)
        self.jobmaster = self._begin(process, service)

    def start_dispatcher(self) -> None:
        with self.world.building_process("dispatcher", "disp", "http://disp:6123") as process:
            service = firesteel_dispatcher.app.create_service(
                settings=self.settings,
                secret=_SECRET,
                clock=process,
                run_directory=self._directory(),
                jobmaster_address="http://jm:6124",
                resourcemanager_address="http://rm:8082",
                cluster_directory=self.directory,
            )
        self.world.obedience.leads(DISPATCHER, service.token)
        self.dispatcher = self._begin(process, service)

    def start_taskmanager(self, name: str) -> None:
        incarnation = self.world.rng.getrandbits(24)
        with self.world.building_process(name, name, f"http://{name}:{1 + incarnation % 60000}") as process:
            service = firesteel_taskmanager.app.create_service(
                settings=self.settings,
                secret=_SECRET,
                clock=process,
                run_directory=self._directory(),
                taskmanager_id=f"{name}-{incarnation:06x}",
                slots=self.slots,
                resourcemanager_address="http://rm:8082",
                stdout=lambda text: None,
                bind_host="127.0.0.1",
                advertised_host=name,
                executors=lambda spec: SimulatedExecutor(self, process, spec),
            )
            channels = SimulatedChannels(self, service)
            channels.process = process
            replaced: Any = service
            replaced.channels = channels
            replaced.blobs.process = process
        self.taskmanagers[name] = self._begin(process, service)

    def kill_resourcemanager(self) -> None:
        """Its Spark driver is a process of its own."""
        assert self.resourcemanager is not None
        self.tell(f"{self.resourcemanager} is killed")
        self.resourcemanager.kill()

    def kill_jobmaster(self) -> None:
        """The host with all its JobMasters."""
        assert self.jobmaster is not None
        self.tell(f"{self.jobmaster} is killed")
        self.jobmaster.kill()

    def kill_executor(self) -> None:
        running = [e for e in self.executors.values() if e.running]
        if running:
            executor = self.world.rng.choice(running)
            self.tell(f"executor {executor.spec.executor_id} of {executor.taskmanager} is killed")
            executor.end("killed")

    def kill_dispatcher(self) -> None:
        """The files that it holds open are closed by the kernel."""
        assert self.dispatcher is not None
        self.tell(f"{self.dispatcher} is killed")
        self.dispatcher.kill()
        self.dispatcher.service.store.close()

    def kill_taskmanager(self, name: str) -> None:
        """The process and all below it."""
        process = self.taskmanagers[name]
        self.tell(f"{process} is killed")
        process.kill()
        for executor in list(self.executors.values()):
            if executor.taskmanager is process:
                executor.end("its TaskManager was killed")

    # -- slots and what they run on

    def new_pid(self) -> int:
        self._pids += 1
        return self._pids

    def new_executor_id(self) -> str:
        self._executor_ids += 1
        return str(self._executor_ids)

    def driver_url(self) -> str:
        return f"spark://driver-{len(self.drivers)}"

    def driver(self) -> SparkDriver:
        """The one that runs, or a new one."""
        last = self.drivers.get(self.driver_url())
        if last is None or not last.alive:
            last = SparkDriver()
            self.drivers[f"spark://driver-{len(self.drivers) + 1}"] = last
        return last

    def kill_driver(self) -> None:
        last = self.drivers.get(self.driver_url())
        if last is not None and last.alive:
            self.tell("the Spark driver is killed")
            last.alive = False
            self.wanted.clear()
            self.ended.clear()
            for executor in list(self.executors.values()):
                if executor.driver is last:
                    executor.driver_lost()

    def slots_of(self, executor: SimulatedExecutor) -> list[SlotProcess]:
        return [slot for slot in self.slot_processes.values() if slot.executor is executor]

    def launch(self, launch: SlotLaunch) -> None:
        """Spark starts the task of a slot; now and then on another executor than it was asked for."""
        if launch.allocation_id not in self.wanted:
            return
        attached = [e for e in self.executors.values() if e.running and e.spec.executor_id in e.driver.attached]
        wanted = [e for e in attached if e.spec.executor_id == launch.executor_id]
        astray = self.faults_go_on and self.world.rng.random() < 0.02
        executor = wanted[0] if wanted and not astray else self.world.rng.choice(attached) if attached else None
        if executor is None:
            self.world.after(1.0, lambda: self.launch(launch))
        elif self.faults_go_on and self.world.rng.random() < 0.01:
            self.wanted.pop(launch.allocation_id, None)
            self.ended.append((launch.allocation_id, SlotOutcome.UNREGISTERED, "too many open files"))
        elif executor.spec.executor_id != launch.executor_id:
            self.wanted.pop(launch.allocation_id, None)
            self.ended.append((launch.allocation_id, SlotOutcome.MISPLACED, "on another executor"))
        else:
            slot = SlotProcess(self, launch, self.new_pid(), executor, executor.taskmanager.service.channels)
            self.slot_processes[slot.pid] = slot
            slot.start()

    def slot_ended(self, slot: SlotProcess, outcome: SlotOutcome, why: str) -> None:
        self.tell(f"slot {slot.pid} ends: {outcome.name}, {why}")
        del self.slot_processes[slot.pid]
        if not slot.executor.driver.alive:
            slot.executor.driver_lost()
        elif outcome is not SlotOutcome.MISPLACED:
            self.wanted.pop(slot.launch.allocation_id, None)
            self.ended.append((slot.launch.allocation_id, outcome, why))

    def kill_slot(self, pid: int) -> None:
        slot = self.slot_processes.get(pid)
        if slot is not None:
            slot.end(SlotOutcome.LOST, "killed")

    def identify(self, pid: int) -> ProcessId | None:
        return ProcessId(pid, pid) if pid in self.slot_processes else None

    def committed(self, slot: SlotProcess, execution_id: str) -> None:
        key = (slot.job_id, execution_id)
        self.commits[key] = self.commits.get(key, 0) + 1
        self.tell(f"slot {slot.pid} commits {self.short(*key)}")

    # -- jobs

    def is_endless(self, job_id: str) -> bool:
        return job_id in self.endless

    def submit(self, parallelism: int, vertices: int, endless: bool) -> str:
        """A user submits a job; returns its id."""
        rng = self.world.rng
        job_id = f"{rng.getrandbits(128):032x}"
        splits = rng.randint(1, 8)
        made = []
        for number in range(1, vertices + 1):
            vertex_id = f"{number:032x}"
            source = None
            if number == 1:
                plain = [{"id": str(i), "data": {}} for i in range(splits)]
                source = SourceInfo(vertex_id, "trickle", {"splits": plain}, bounded=True)
            info = (OperatorInfo(vertex_id, f"V{number}", None, "map"),)
            last = number == vertices
            made.append(
                JobVertex(vertex_id, f"V{number}", parallelism, 128, "default", _CHAIN, info, source, last, None)
            )
        edges = tuple(
            JobEdge(i, a.id, b.id, a.operators[-1].id, 0, "REBALANCE") for i, (a, b) in enumerate(pairwise(made))
        )
        graph = JobGraph(job_id, f"job {len(self.submitted)}", tuple(made), edges, {}, {_CHAIN: _CHAIN_BYTES})
        self.splits[job_id] = splits
        if endless:
            self.endless.add(job_id)
        self.submitted.append(job_id)
        self.tell(f"{self.short(job_id)}: {parallelism} x {vertices}{', endless' if endless else ''} is submitted")
        self._send(graph)
        return job_id

    def _send(self, graph: JobGraph) -> None:
        """As a client does: again, with the same id, until the Dispatcher has answered."""
        dispatcher, answered = self.dispatcher, []
        assert dispatcher is not None

        async def do() -> None:
            received = self.directory / f"received-{self.new_pid()}"
            received.mkdir()
            blob = received / "chain"
            blob.write_bytes(bytes(_CHAIN_BYTES))
            await dispatcher.service.submit(Submission(graph, {_CHAIN: blob}), received)
            answered.append(True)

        if dispatcher.alive:
            dispatcher.run(do)
        self.world.after(10.0, lambda: None if answered else self._send(graph))

    def cancel(self, job_id: str) -> None:
        self.tell(f"{self.short(job_id)} is cancelled by its user")
        assert self.dispatcher is not None
        service = self.dispatcher.service
        if not self.dispatcher.alive:
            return

        async def do() -> None:
            if job_id in service.core.jobs and not service.core.job(job_id).ended:
                await service.cancel(job_id)

        self.dispatcher.run(do)

    def job_state(self, job_id: str) -> str:
        assert self.dispatcher is not None
        return str(self.dispatcher.service.core.job(job_id).state)

    def failure_of(self, job_id: str) -> str:
        """Why a job failed, or nothing."""
        assert self.dispatcher is not None
        failure = (self.dispatcher.service.core.job(job_id).archive or {}).get("failure")
        return str(failure["message"]) if failure else ""

    # -- what must always hold

    def check(self) -> None:
        """After every event."""
        acting: dict[tuple[str, str], int] = {}
        owners: dict[str, int] = {}
        for slot in self.slot_processes.values():
            if slot.accepted:
                other = owners.setdefault(slot.launch.allocation_id, slot.pid)
                assert other == slot.pid, (
                    f"allocation {slot.launch.allocation_id} has the processes {other}, {slot.pid}"
                )
            for execution_id in slot.acting:
                key = (slot.job_id, execution_id)
                assert key not in acting, f"{self.short(*key)} runs in the slots {acting[key]} and {slot.pid}"
                acting[key] = slot.pid
        for key, count in self.commits.items():
            assert count == 1, f"{self.short(*key)} was committed {count} times"

    def check_tables(self) -> None:
        """What the services believe is consistent in itself."""
        assert self.resourcemanager is not None
        self.resourcemanager.service.core.table.validate()
        for process in self.taskmanagers.values():
            if process.alive:
                process.service.core.slots.validate()
        for process in self.world.processes.values():
            failure = process.service.failure
            assert failure is None, f"{process} has failed: {failure!r}"
            assert not process.loop.errors, f"{process}: {process.loop.errors}"

    def check_settled(self) -> None:
        """Long after the last fault: every job has ended or runs, and nothing is held for nobody."""
        assert self.resourcemanager is not None
        running: set[str] = set()
        for job_id in self.submitted:
            state = self.job_state(job_id)
            if state == "RUNNING" and job_id in self.endless:
                running.add(job_id)
                acting = [e for s in self.slot_processes.values() if s.job_id == job_id for e in s.acting]
                assert acting, f"{self.short(job_id)} is RUNNING and nothing of it runs"
            else:
                assert state in ("FINISHED", "FAILED", "CANCELED"), f"{self.short(job_id)} is {state} for ever"
            if state == "FINISHED":
                read = [count for (job, _), count in self.processed.items() if job == job_id]
                assert read[-1] == self.splits[job_id], f"{self.short(job_id)}: {read} of {self.splits[job_id]} splits"
                assert any(job == job_id for job, _ in self.commits), f"{self.short(job_id)} committed nothing"
        for slot in self.resourcemanager.service.core.table:
            assert not slot.job_id or slot.job_id in running, f"ResourceManager holds {slot} for a job that has ended"
        for process in self.taskmanagers.values():
            for held in process.service.core.slots:
                assert not held.job_id or held.job_id in running, f"{process} holds {held} for a job that has ended"
        for slot_process in self.slot_processes.values():
            assert slot_process.job_id in running, f"slot process {slot_process.pid} is left over"


@contextmanager
def simulated(world: World) -> Iterator[None]:
    """Puts the simulated network, channels and processes in the place of the real ones, for all services."""

    def rpc_routes(handlers: Mapping[str, Any], secret: str, token_of: Any, *, prefix: str = "", **_: Any) -> list[Any]:
        world.register_handlers(handlers, token_of, prefix)
        return []

    def token_hex(count: int | None = None) -> str:
        return f"{world.rng.getrandbits(8 * (count or 32)):0{2 * (count or 32)}x}"

    async def listen(service: Service, *_: Any, **__: Any) -> str:
        return "http://rest:8081"

    replaced = {"RpcClient": SimulatedRpcClient, "rpc_routes": rpc_routes}

    async def open_connection(host: str, port: int) -> Any:
        return await world.connect(asyncio.get_running_loop().process, host, port)  # type: ignore[attr-defined]

    create = JobMasterService._create

    def create_job(service: JobMasterService, *arguments: Any) -> Any:
        job = create(service, *arguments)
        world.obedience.leads(f"job {job.job_id}", job.token)
        return job

    begin = JobMasterService.start_job
    begun: dict[str, int] = {}

    async def start_job(service: JobMasterService, message: StartJob) -> Any:
        """As a host that finds on disk which jobs a former one had begun."""
        own: Any = service._clock
        if begun.setdefault(message.job_graph["job_id"], own.incarnation) != own.incarnation:
            raise RpcFault(RpcCode.INTERNAL, "its JobMaster was lost")
        return await begin(service, message)

    def trickle(config: Mapping[str, Any]) -> Trickle:
        return Trickle(world, config)

    patches: list[Any] = [
        mock.patch.object(JobMasterService, "_create", create_job),
        mock.patch.object(JobMasterService, "start_job", start_job),
        mock.patch.dict(enumerators._BUILT_IN, {"trickle": trickle}),
        mock.patch("asyncio.open_connection", open_connection),
        mock.patch("secrets.token_hex", token_hex),
        mock.patch.object(Service, "listen", listen),
        mock.patch.object(Disk, "sync"),
    ]
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in _SERVICES:
            for attribute, replacement in replaced.items():
                if hasattr(module, attribute):
                    patches.append(mock.patch.object(module, attribute, replacement))
    for attribute, seconds in {"BUSY_POLL": 0.5, "IDLE_POLL": 1.0}.items():  # fewer events that change nothing
        patches.append(mock.patch.object(firesteel_resourcemanager.shell, attribute, seconds))
    patches.append(mock.patch.object(firesteel_taskmanager.executors, "LOOK_SECONDS", 1.0))
    patches.append(mock.patch.object(firesteel_taskmanager.shell, "BlobCache", SimulatedBlobs))
    patches.append(mock.patch.object(firesteel_taskmanager.shell, "ChannelServer", return_value=None))
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in reversed(patches):
            patch.stop()
        for process in world.everyone:
            if process.alive:
                process.kill()
            process.loop.bury()
