"""A simulated cluster: the real services, each in a process of its own, over a simulated network, fleet and slots."""

from __future__ import annotations

import asyncio
import hashlib
import signal
import types
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import firesteel_dispatcher.app
import firesteel_resourcemanager.app
import firesteel_taskmanager.app
from firesteel.config import Settings
from firesteel.core.errors import ConfigurationError, FencedError, PeerUnreachableError
from firesteel.core.process import ProcessId
from firesteel.graph.job_graph import JobEdge, JobGraph, JobVertex, OperatorInfo, SourceInfo
from firesteel.ha.retrieval import ConfiguredLeaders
from firesteel.ha.services import DISPATCHER, JOBMASTER_HOST, RESOURCEMANAGER
from firesteel.protocol.fleet import SlotLaunch, SlotOutcome
from firesteel.protocol.provider import Provider
from firesteel.service.background import first_of
from firesteel.service.process import STOP_SECONDS
from firesteel_dispatcher.submission import Submission
from firesteel_jobmaster.host import HostService
from firesteel_jobmaster.shell import JobMaster
from tests.simulation.attempts import AttemptsSeen
from tests.simulation.checkpointed import Channel, CheckpointedTask
from tests.simulation.checkpointed_jobs import CheckpointedJob, draw_job
from tests.simulation.election import ProcessServices
from tests.simulation.hosts import Coordinators
from tests.simulation.jobmaster_processes import JobMasterProcesses
from tests.simulation.ledger import Ledger
from tests.simulation.settled import check_attempts
from tests.simulation.slots import SimulatedChannels, SimulatedExecutor, SimulatedFleet, SlotProcess, SparkDriver
from tests.simulation.storage import Disk, SimulatedHighAvailability, SimulatedStorage
from tests.simulation.world import PlantedError, Process, World

SETTINGS = {
    "heartbeat.interval": "10 s",
    "heartbeat.timeout": "50 s",
    "slot.request.timeout": "60 s",
    "task.cancellation.timeout": "20 s",
    "firesteel.resourcemanager.address": "rm:8082",
    "firesteel.jobmaster.address": "jm:6124",
    "firesteel.dispatcher.address": "disp:6123",
}
_CHAIN_BYTES = 10
_CHAIN = hashlib.sha256(bytes(_CHAIN_BYTES)).hexdigest()
_SERVICES = ("firesteel_dispatcher", "firesteel_jobmaster", "firesteel_resourcemanager", "firesteel_taskmanager")
_SECRET = "s" * 64


class Cluster:
    """The processes, and what must always hold between them.

    Args:
        world: in which they live.
        directory: what the Dispatcher finds again after a restart.
        taskmanagers: how many, each on a host of its own.
        slots: of each.
        standbys: each coordinator has another one beside it, which waits for its turn.
    """

    def __init__(
        self, world: World, directory: Path, taskmanagers: int = 3, slots: int = 2, standbys: bool = False
    ) -> None:
        self.world, self.directory, self.slots = world, directory, slots
        self.settings = Settings(SETTINGS)
        self.slot_processes: dict[int, SlotProcess] = {}
        self.wanted: dict[str, SlotLaunch] = {}
        self.ended: list[tuple[str, SlotOutcome, str]] = []
        self.finished: set[tuple[str, str]] = set()
        self.commits: dict[tuple[str, str], int] = {}
        self.processed: Counter[tuple[str, str, str, int]] = Counter()
        """Splits that were read, by job, secret of its JobMaster, subtask and attempt."""
        self.shown: set[tuple[str, str]] = set()
        self.shown_by: dict[str, str] = {}
        """Job -> secret of the JobMaster under which its results came to be."""
        self.splits: dict[str, int] = {}
        self.sinks: dict[str, int] = {}
        """How many subtasks of a job have results for readers."""
        self.restarts: dict[str, int] = {}
        """How often a job may be restarted, at most."""
        self.committing: set[str] = set()
        """Jobs of which nothing but the commit was left at some time."""
        self.endless: set[str] = set()
        self.drivers: dict[str, SparkDriver] = {}
        self.executors: dict[str, SimulatedExecutor] = {}
        self.faults_go_on = True
        self.changed = False
        """Slots or commits are not what they were at the last check."""
        self.submitted: list[str] = []
        self.cancelled: set[str] = set()
        self.failures: dict[str, str] = {}
        """Why jobs have ended; nothing: in order."""
        self.archives: dict[str, Mapping[str, Any]] = {}
        """How they looked then."""
        self.ledger = Ledger(lambda: world.now, world.broken.append, world.tell)
        self.checkpointed: dict[str, CheckpointedJob] = {}
        self.graphs: dict[str, JobGraph] = {}
        """As they were submitted."""
        self.exchange: dict[tuple[Any, ...], Channel] = {}
        """Channels between tasks of jobs with checkpoints."""
        self.on_end: Callable[[str], None] = lambda _: None
        """Told when the JobMaster of a job begins to say that the job has ended."""
        self.on_step: Callable[[str, str, CheckpointedTask | None], None] = lambda *_: None
        """Told of each step of a checkpoint: its name, the job, the task that does it if there is one."""
        self.disk = Disk(world, self.ledger, self.at)
        self.ha = SimulatedHighAvailability(self.disk)
        self._pids, self._executor_ids = 1000, 0
        self.attempts = AttemptsSeen(world.broken.append)
        self.led: dict[str, list[JobMaster]] = {}
        """All JobMasters that a job ever had."""
        self.job_processes = JobMasterProcesses(self)
        self.skews: dict[str, float] = {}
        """Host -> seconds by which its clock is ahead."""
        self.ha.has_standbys = standbys
        self.coordinators = {name: Coordinators(name) for name in (RESOURCEMANAGER, JOBMASTER_HOST, DISPATCHER)}
        self.taskmanagers: dict[str, Process] = {}
        for component in self.coordinators:
            self.start_coordinator(component)
        for component in self.coordinators if standbys else ():
            self.start_coordinator(component)
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

    def _begin(self, process: Process, service: Any, again: Callable[[], object]) -> Process:
        """Run a service as its ``main`` does; somebody starts it again whatever has ended it."""
        process.service = service
        world = self.world

        async def live() -> None:
            stop = asyncio.Event()
            process.loop.add_signal_handler(signal.SIGTERM, stop.set)
            starting, stopping = asyncio.create_task(service.start()), asyncio.create_task(stop.wait())
            what = "has ended in order"
            try:
                await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if not starting.done() and service.is_standby:
                    starting.cancel()
                    await asyncio.wait({starting})
                    return
                await starting
                await first_of(stop.wait(), service.end_wanted())
                stopped_at = world.now
                await service.stop()
                took = world.now - stopped_at
                assert took < STOP_SECONDS or process.was_frozen, f"took {took:.0f} s to stop"
                if service.failure is not None:
                    what = f"has ended with {type(service.failure).__name__}: {service.failure}"
            except (FencedError, ConfigurationError, OSError) as error:
                what = f"could not start: {error}"
            except Exception as error:
                world.broken.append(f"{process}: {type(error).__name__}: {error}")
                raise
            finally:
                world.after(0.0, lambda: process.exit(what))

        def gone(what: str) -> None:
            self.tell(f"{process} {what}")
            world.after(process.away_for or world.rng.uniform(0.5, 10.0), again)

        process.gone = gone
        process.run(live)
        self.tell(f"{process} starts")
        return process

    def _directory(self) -> Any:
        return types.SimpleNamespace(path=Path("/sim"), socket_path=lambda name: Path("/sim") / name)

    def start_coordinator(self, component: str, host: str = "") -> None:
        """A process on a host, or on another one than all before; it leads, or waits for its turn."""
        these = self.coordinators[component]
        host = host or these.new_host()
        last = these.processes.get(host)
        if host in these.retired or (last is not None and last.alive):
            return
        name = component.partition("-")[0]
        with self.world.building_process(name, host, these.address(host)) as process:
            ha = ProcessServices(self.ha, process, self.directory)
            service = self._make(component, process, ha)
        process.skew = self.skews.get(host, 0.0)
        these.processes[host] = process
        self._begin(process, service, lambda: self.start_coordinator(component, host))

    def _make(self, component: str, process: Process, ha: ProcessServices) -> Any:
        common: dict[str, Any] = {"settings": self.settings, "secret": _SECRET, "clock": process, "ha": ha}
        if component == RESOURCEMANAGER:
            return firesteel_resourcemanager.app.create_service(**common, provider=Provider(SimulatedFleet(self)))
        if component == DISPATCHER:
            return firesteel_dispatcher.app.create_service(**common, lasting=True)
        own = self.directory / process.host
        own.mkdir(exist_ok=True, mode=0o700)
        return HostService(
            **common,
            run_directory=self._directory(),
            cluster_directory=own,
            bind_host="0.0.0.0",
            advertised_host=process.host,
            log_directory=own,
        )

    def leading(self, component: str) -> Process:
        """Who leads a component, or did so last, as far as it is known; else the first one that was started."""
        announced = self.ha.announced.get(component)
        return announced or next(iter(self.coordinators[component].processes.values()))

    @property
    def resourcemanager(self) -> Process:
        return self.leading(RESOURCEMANAGER)

    @property
    def dispatcher(self) -> Process:
        return self.leading(DISPATCHER)

    @property
    def jobmaster_host(self) -> Process:
        return self.leading(JOBMASTER_HOST)

    def jobmasters(self, job_id: str) -> list[JobMaster]:
        """All JobMasters of a job that live."""
        services = [process.service for process in self.job_processes.of_job(job_id)]
        return [job for service in services if service is not None and (job := service._jobs.get(job_id)) is not None]

    def depose(self, component: str) -> None:
        """Somebody else leads from now on; the process that did lives on, until it sees that."""
        process = self.leading(component)
        self.tell(f"{process} leads no more")
        self.ha.election.depose(component)
        if not self.ha.has_standbys:
            self.coordinators[component].retired.add(process.host)
            self.start_coordinator(component)

    def kill(self, process: Process, away_for: float = 0.0) -> None:
        """SIGKILL; it comes back after so many seconds."""
        process.away_for = away_for
        process.kill()

    def kill_machine(self, host: str, away_for: float = 0.0) -> None:
        """All processes of a coordinator's machine; what it had not removed yet may stay."""
        self.disk.is_fair = False
        for process in self.job_processes.on_host(host):
            process.kill()
        for these in self.coordinators.values():
            if host in these.processes and these.processes[host].alive:
                self.kill(these.processes[host], away_for)

    def start_all(self) -> None:
        for component, these in self.coordinators.items():
            for host in list(these.processes):
                self.start_coordinator(component, host)
        for name in list(self.taskmanagers):
            self.start_taskmanager(name)

    def start_taskmanager(self, name: str) -> None:
        """If it is down."""
        if name in self.taskmanagers and self.taskmanagers[name].alive:
            return
        incarnation = self.world.rng.getrandbits(24)
        port = (
            6122 if name.endswith("1") else 1 + incarnation % 60000
        )  # taskmanager.rpc.port: its next life has it, too
        with self.world.building_process(name, name, f"http://{name}:{port}") as process:
            service = firesteel_taskmanager.app.create_service(
                settings=self.settings,
                secret=_SECRET,
                clock=process,
                run_directory=self._directory(),
                taskmanager_id=f"{name}-{incarnation:06x}",
                slots=self.slots,
                leaders=ProcessServices(self.ha, process, self.directory)
                if self.ha.has_standbys
                else ConfiguredLeaders(self.settings),
                stdout=lambda text: None,
                bind_host="127.0.0.1",
                advertised_host=name,
                executors=lambda spec: SimulatedExecutor(self, process, spec),
            )
            channels = SimulatedChannels(self, service)
            channels.process = process
            replaced: Any = service
            replaced.channels = channels
            replaced.deployments._blobs.process = process
        self.taskmanagers[name] = self._begin(process, service, lambda: self.start_taskmanager(name))

    def kill_executor(self) -> None:
        running = [e for e in self.executors.values() if e.running]
        if running:
            executor = self.world.rng.choice(running)
            self.tell(f"executor {executor.spec.executor_id} of {executor.taskmanager} is killed")
            executor.end("killed")

    def kill_taskmanager(self, name: str) -> None:
        """The process and all below it."""
        process = self.taskmanagers[name]
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
        fitting = [e for e in attached if e.spec.executor_id == launch.executor_id]
        astray = self.faults_go_on and self.world.rng.random() < 0.02
        executor = fitting[0] if fitting and not astray else self.world.rng.choice(attached) if attached else None
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

    def committed(self, slot: SlotProcess, execution_id: str, name: str) -> None:
        """A sink shows what stands under a name; shown before, nothing happens."""
        if (slot.job_id, name) in self.shown:
            return
        self.shown.add((slot.job_id, name))
        self.shown_by.setdefault(slot.job_id, name.split()[1])
        key = (slot.job_id, execution_id.rpartition("_")[0])
        self.commits[key] = self.commits.get(key, 0) + 1
        self.changed = True
        self.tell(f"slot {slot.pid} commits {self.short(slot.job_id, execution_id)}")

    # -- jobs

    def is_endless(self, job_id: str) -> bool:
        return job_id in self.endless

    def submit(self, parallelism: int, vertices: int, endless: bool, restarts: int = 0) -> str:
        """A user submits a job that may be restarted so often; returns its id."""
        rng = self.world.rng
        job_id = f"{rng.getrandbits(128):032x}"
        splits = rng.randint(1, 8)
        job_vertices = []
        for number in range(1, vertices + 1):
            vertex_id = f"{number:032x}"
            source = None
            if number == 1:
                plain = [{"id": str(i), "data": {}} for i in range(splits)]
                source = SourceInfo(vertex_id, "trickle", {"splits": plain}, bounded=True)
            info = (OperatorInfo(vertex_id, f"V{number}", None, "map"),)
            last = number == vertices
            job_vertices.append(
                JobVertex(vertex_id, f"V{number}", parallelism, 128, "default", _CHAIN, info, source, last, None)
            )
        edges = tuple(
            JobEdge(i, a.id, b.id, a.operators[-1].id, 0, "REBALANCE")
            for i, (a, b) in enumerate(pairwise(job_vertices))
        )
        name, config = f"job {len(self.submitted)}", {}
        if restarts:
            config = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": str(restarts)}
        graph = JobGraph(job_id, name, tuple(job_vertices), edges, config, {_CHAIN: _CHAIN_BYTES})
        self.splits[job_id], self.restarts[job_id] = splits, restarts
        self.sinks[job_id] = parallelism
        if endless:
            self.endless.add(job_id)
        self.submitted.append(job_id)
        self.tell(f"{self.short(job_id)}: {parallelism} x {vertices}{', endless' if endless else ''} is submitted")
        self.send(graph)
        return job_id

    def submit_checkpointed(self, parallelism: int, restarts: int | None = None) -> str:
        """A user submits a job with checkpoints, which may be restarted so often; returns its id."""
        job, graph = draw_job(self.world.rng, parallelism, _CHAIN, _CHAIN_BYTES, len(self.submitted), restarts)
        self.checkpointed[graph.job_id] = job
        subtasks = [f"{v.id}_{number}" for v in graph.vertices for number in range(v.parallelism)]
        self.ledger.open(graph.job_id, job.splits, subtasks, counts=True)
        self.restarts[graph.job_id] = job.restarts
        if job.endless:
            self.endless.add(graph.job_id)
        self.submitted.append(graph.job_id)
        self.tell(f"{self.short(graph.job_id)}: {job} is submitted")
        self.send(graph)
        return graph.job_id

    def storage(self, job_id: str) -> SimulatedStorage:
        """Of a job's state."""
        job = self.checkpointed.get(job_id)
        return SimulatedStorage(self.disk, job_id, job.inline_threshold if job else 0)

    def at(self, point: str, job_id: str, task: CheckpointedTask | None = None) -> None:
        """A step of a checkpoint."""
        self.on_step(point, job_id, task)

    def pace(self) -> tuple[float, float]:
        """Seconds between two pieces of work of a task, at least and at most."""
        return (0.05, 0.5) if self.faults_go_on else (0.2, 1.5)

    def send(self, graph: JobGraph) -> None:
        """As a client does: again, with the same id, until the Dispatcher has answered."""
        self.graphs[graph.job_id] = graph
        dispatcher, answered = self.dispatcher, []

        async def do() -> None:
            if not dispatcher.service._started or dispatcher.service.stopping:
                return
            received = self.directory / f"received-{self.new_pid()}"
            received.mkdir()
            blob = received / "chain"
            blob.write_bytes(bytes(_CHAIN_BYTES))
            try:
                await dispatcher.service.jobs.admission.submit(Submission(graph, {_CHAIN: blob}), received)
            except (FencedError, OSError) as error:
                self.tell(f"{dispatcher} does not take {self.short(graph.job_id)}: {error}")
                return
            answered.append(True)

        if dispatcher.alive:
            dispatcher.run(do)
        self.world.after(10.0, lambda: None if answered else self.send(graph))

    def cancel(self, job_id: str) -> None:
        self.tell(f"{self.short(job_id)} is cancelled by its user")
        self.cancelled.add(job_id)
        dispatcher, service = self.dispatcher, self.dispatcher.service
        if not dispatcher.alive or not service._started or service.stopping:
            return

        async def do() -> None:
            if job_id in service.core.jobs and not service.core.job(job_id).ended:
                try:
                    await service.jobs.cancel(job_id)
                except (FencedError, OSError) as error:
                    self.tell(f"{dispatcher} does not cancel {self.short(job_id)}: {error}")

        dispatcher.run(do)

    def job_state(self, job_id: str) -> str:
        return str(self.dispatcher.service.core.job(job_id).state)

    # -- what must always hold

    def check(self) -> None:
        """After every event; slots are looked at when one of them has changed."""
        if not self.changed:
            return
        self.changed = False
        acting: dict[tuple[str, str], int] = {}
        owners: dict[str, int] = {}
        for slot in self.slot_processes.values():
            if slot.accepted:
                other = owners.setdefault(slot.launch.allocation_id, slot.pid)
                assert other == slot.pid, (
                    f"allocation {slot.launch.allocation_id} has the processes {other}, {slot.pid}"
                )
            for execution_id in slot.acting:
                key = (slot.job_id, f"{execution_id} {slot.run}")  # of this JobMaster; the next one begins anew
                assert key not in acting, (
                    f"{self.short(slot.job_id, execution_id)} runs in the slots {acting[key]} and {slot.pid}"
                )
                acting[key] = slot.pid
        for key, count in self.commits.items():
            assert count == 1, f"readers see the results of {self.short(*key)} {count} times"

    def check_tables(self) -> None:
        """What the services believe is consistent in itself."""
        self.resourcemanager.service.core.table.validate()
        for process in self.taskmanagers.values():
            if process.alive:
                process.service.core.slots.validate()
        for process in self.job_processes.alive.values():
            if process.service is not None:
                check_attempts(self, process.service)
        for process in self.world.processes.values():
            failure = process.service.failure if process.service is not None else None
            outside = isinstance(failure, FencedError | PeerUnreachableError | PlantedError)
            assert failure is None or outside, f"{process} has failed: {failure!r}"
            assert not process.loop.errors, f"{process}: {process.loop.errors}"
