"""The ResourceManager with a fleet that needs executors: TaskManagers and JobMasters that record, over real HTTP."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from firesteel.config import Settings
from firesteel.core.clock import SystemClock
from firesteel.core.errors import FencedError, FleetError
from firesteel.ha.memory import MemoryServices
from firesteel.protocol import messages as m
from firesteel.protocol.fleet import SlotLaunch, SlotOutcome, WithoutStages
from firesteel.protocol.gateways import ResourceManagerGateway
from firesteel.protocol.message import RpcFault
from firesteel.protocol.provider import Provider
from firesteel.service.versions import own_versions
from firesteel_resourcemanager import shell
from firesteel_resourcemanager.app import create_service
from firesteel_resourcemanager.shell import ResourceManagerService
from tests.integration.services.cluster_peers import SECRET, Peer, client_of, eventually, serving

PATIENCE = 100.0
MEMORY = {"taskHeap": 64 << 20, "taskOffHeap": 0, "managedMemory": 32 << 20, "networkMemory": 16 << 20}


class HostedFleet(WithoutStages):
    """Executors attach when a test says so; slots are only written down."""

    def __init__(self) -> None:
        self.starts = 0
        self.alive = False
        self.specs: list[m.ExecutorSpec] = []
        self.attached: set[str] = set()
        self.launches: list[SlotLaunch] = []
        self.ended: list[tuple[str, SlotOutcome, str]] = []
        self.cancelled: list[str] = []
        self.left: list[str] = []
        """How the ResourceManager left it."""
        self._ids = itertools.count(1)
        self._guard = threading.Lock()

    @property
    def slots_outlive_driver(self) -> bool:
        return True

    def executor_for(self, taskmanager_id: str, cores: int) -> m.ExecutorSpec | None:
        with self._guard:
            if not self.alive:
                raise FleetError("not running")
            spec = m.ExecutorSpec(str(next(self._ids)), "spark://driver", f"app-{self.starts}", "s", cores)
            self.specs.append(spec)
            return spec

    def attached_executors(self) -> frozenset[str] | None:
        return frozenset(self.attached)

    def start(self) -> None:
        self.starts += 1
        self.alive = True

    def start_slot(self, launch: SlotLaunch) -> None:
        if not self.alive:
            raise FleetError("not running")
        with self._guard:
            self.launches.append(launch)

    def ended_slots(self) -> list[tuple[str, SlotOutcome, str]]:
        with self._guard:
            ended, self.ended = self.ended, []
            return ended

    def cancel_slot(self, allocation_id: str) -> None:
        self.cancelled.append(allocation_id)

    def is_alive(self) -> bool:
        return self.alive

    def was_asked(self, count: int) -> bool:
        """Whether so many launches were wanted."""
        return len(self.launches) == count

    def die(self) -> None:
        """The driver is killed."""
        self.alive = False
        self.attached.clear()

    def detach(self) -> None:
        self.left.append("detached")
        self.alive = False

    def stop(self) -> None:
        self.left.append("stopped")
        self.alive = False


@dataclass
class TaskManagerPeer:
    """A TaskManager that does as it is told and keeps account of its slots."""

    name: str
    slots: int
    executor: str = ""
    table: dict[int, m.SlotStatus] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.table = {index: m.SlotStatus(index, "FREE") for index in range(self.slots)}
        self.peer = Peer(
            {
                "heartbeat": lambda _: m.SlotReport(tuple(self.table.values())).to_plain(),
                "start_executor": self._start_executor,
                "request_slot": self._request_slot,
                "free_slot": self._free_slot,
            }
        )

    def _start_executor(self, call: Mapping[str, Any]) -> Mapping[str, Any]:
        self.executor = call["executor_id"]
        return {}

    def _request_slot(self, call: Mapping[str, Any]) -> Mapping[str, Any]:
        index = call["slot_index"]
        self.table[index] = m.SlotStatus(index, "ALLOCATED", call["allocation_id"], call["job_id"])
        return {"executor_id": self.executor, "control_socket": f"/{self.name}"}

    def _free_slot(self, call: Mapping[str, Any]) -> Mapping[str, Any]:
        for index, status in self.table.items():
            if status.allocation_id == call["allocation_id"]:
                self.table[index] = m.SlotStatus(index, "FREE")
        return {}

    def activate(self) -> list[str]:
        """All allocated slots have their process, and their job has accepted them."""
        allocated = {n: s for n, s in self.table.items() if s.allocation_id}
        for index, status in allocated.items():
            self.table[index] = m.SlotStatus(index, "ACTIVE", status.allocation_id, status.job_id, 1000 + index)
        return [str(s.allocation_id) for s in allocated.values()]

    def registration(self, **more: Any) -> m.RegisterTaskManager:
        """How it presents itself."""
        fields = {"versions": own_versions(), "executor_id": self.executor, "slot_report": tuple(self.table.values())}
        return m.RegisterTaskManager(self.name, self.peer.address, self.slots, **{**fields, **more})


@dataclass
class World:
    """A ResourceManager, TaskManagers and one JobMaster."""

    rm: ResourceManagerService
    fleet: HostedFleet
    tms: list[TaskManagerPeer]
    job: Peer

    @property
    def gateway(self) -> ResourceManagerGateway:
        """Calls to the ResourceManager."""
        return ResourceManagerGateway(client_of(self.job), self.rm.address, self.rm.token)

    async def register(self, tm: TaskManagerPeer, **more: Any) -> None:
        await self.gateway.register_taskmanager(tm.registration(**more))

    async def want(self, slots: int, name: str = "job") -> None:
        """The job registers and asks for slots."""
        await self.gateway.register_jobmaster(m.RegisterJobMaster(name, name, self.job.address, "jm token"))
        await self.gateway.declare_requirements(m.DeclareRequirements(name, (m.Requirement("default", slots),)))

    async def attach(self, tm: TaskManagerPeer, count: int = 1) -> str:
        """The TaskManager gets its ``count``-th executor, which attaches; returns its id."""
        calls = await tm.peer.wait_for("start_executor", count)
        executor = str(calls[count - 1]["executor_id"])
        self.fleet.attached.add(executor)
        return executor


@asynccontextmanager
async def world(*slots: int, **settings: str) -> AsyncIterator[World]:
    fleet = HostedFleet()
    tms = [TaskManagerPeer(f"tm{number}", count) for number, count in enumerate(slots)]
    job = Peer({"fail_slot": lambda _: {}, "notify_no_resources": lambda _: {}})
    async with serving(job, *(tm.peer for tm in tms)):
        rm = new_resourcemanager(fleet, **settings)
        async with serving(rm):
            w = World(rm, fleet, tms, job)
            for tm in tms:
                await w.register(tm)
            yield w
        assert rm.failure is None


def new_resourcemanager(fleet: HostedFleet, **settings: str) -> ResourceManagerService:
    service_settings = Settings({key.replace("_", "."): value for key, value in settings.items()})
    return create_service(settings=service_settings, secret=SECRET, clock=SystemClock(), provider=Provider(fleet))


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(PATIENCE):
            await scenario

    asyncio.run(limited())


def test_slots_run_on_the_executors_that_taskmanagers_were_told_to_start() -> None:
    async def scenario() -> None:
        async with world(1, 1) as w:
            await w.want(2)
            executors = [await w.attach(tm) for tm in w.tms]
            await eventually(lambda: len(w.fleet.launches) == 2)
            assert {(s.taskmanager_id, s.executor_id, s.control_socket) for s in w.fleet.launches} == {
                ("tm0", executors[0], "/tm0"),
                ("tm1", executors[1], "/tm1"),
            }
            (order,) = w.tms[0].peer.of("start_executor")
            assert order["cores"] == 4  # of the slot, of one that has ended, of a stage's task, and a spare one
            assert order["spark_salt"] == "s"

    run(scenario())


@pytest.mark.smoke
def test_a_lost_executor_is_replaced_and_its_job_goes_on_waiting() -> None:
    async def scenario() -> None:
        async with world(1) as w:
            (tm,) = w.tms
            await w.want(1)
            (order,) = await tm.peer.wait_for("start_executor")
            await w.gateway.executor_lost(m.ExecutorLost("tm0", str(order["executor_id"]), "no memory"))
            executor = await w.attach(tm, 2)
            await eventually(lambda: w.fleet.launches)
            assert w.fleet.launches[0].executor_id == executor
            assert not w.job.calls
            with pytest.raises(RpcFault, match="no TaskManager 'unknown' is registered"):
                await w.gateway.executor_lost(m.ExecutorLost("unknown", "1", "no memory"))

    run(scenario())


def test_slots_go_on_when_the_driver_dies_and_new_ones_run_on_the_executors_of_the_next_driver() -> None:
    async def scenario() -> None:
        async with world(2) as w:
            (tm,) = w.tms
            first = await w.attach(tm)
            await w.want(1)
            await eventually(lambda: w.fleet.launches)
            (running,) = tm.activate()
            w.fleet.die()
            second = await w.attach(tm, 2)
            await w.want(1, "other")
            await eventually(lambda: len(w.fleet.launches) == 2)
            assert [s.executor_id for s in w.fleet.launches] == [first, second]
            assert w.fleet.starts == 2
            assert tm.table[0].allocation_id == running
            assert not tm.peer.of("free_slot")
            assert not w.job.calls

    run(scenario())


def test_a_slot_whose_process_was_lost_with_the_driver_is_launched_again() -> None:
    async def scenario() -> None:
        async with world(1) as w:
            (tm,) = w.tms
            await w.attach(tm)
            await w.want(1)
            await eventually(lambda: w.fleet.launches)
            w.fleet.die()
            second = await w.attach(tm, 2)
            await eventually(lambda: len(w.fleet.launches) == 2)
            first, second_launch = w.fleet.launches
            assert (second_launch.allocation_id, second_launch.executor_id) == (first.allocation_id, second)

    run(scenario())


def test_a_misplaced_slot_is_launched_again_until_it_is_given_up() -> None:
    async def scenario() -> None:
        async with world(1) as w:
            await w.attach(w.tms[0])
            await w.want(1)
            for count in range(1, 6):
                await eventually(partial(w.fleet.was_asked, count))
                w.fleet.ended.append((w.fleet.launches[0].allocation_id, SlotOutcome.MISPLACED, "elsewhere"))
            (failed,) = await w.job.wait_for("fail_slot")
            assert failed["cause"] == "it did not come to its executor in 5 launches"
            assert len({s.allocation_id for s in w.fleet.launches}) == 1

    run(scenario())


def test_another_resourcemanager_goes_on_with_slots_and_executors() -> None:
    async def scenario() -> None:
        async with world(2) as w:
            (tm,) = w.tms
            executor = await w.attach(tm)
            await w.want(1)
            await eventually(lambda: w.fleet.launches)
            (running,) = tm.activate()
            fleet = HostedFleet()  # attaches to the driver that runs
            fleet.attached = set(w.fleet.attached)
            second = new_resourcemanager(fleet)
            async with serving(second):
                again = World(second, fleet, w.tms, w.job)
                await again.register(tm)
                await again.want(1)
                await again.want(1, "other")
                await eventually(lambda: fleet.launches)
                assert [(s.taskmanager_id, s.executor_id) for s in fleet.launches] == [("tm0", executor)]
                assert not fleet.specs
                overview = await again.gateway.overview()
                (shown,) = overview.taskmanagers
                assert (shown["slotsNumber"], shown["freeSlots"]) == (2, 0)
                assert running in [s["allocationId"] for s in shown["allocatedSlots"]]
                assert not tm.peer.of("free_slot")

    run(scenario())


class StandBys(MemoryServices):
    """Several processes may wait for their turn."""

    has_standbys = True


class ProviderThatStandsBy(Provider):
    """Counts how often it was told to."""

    told = 0

    def stand_by(self) -> None:
        self.told += 1
        if self.told == 1:
            raise FleetError("there is no Java")


def test_a_standby_starts_what_can_be_started_before_it_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "EARLY_PAUSE", 0.05)
    monkeypatch.setattr(shell, "EARLY_RETRY", 0.1)

    async def scenario() -> None:
        services, fleets = StandBys(), [HostedFleet(), HostedFleet()]
        providers = [ProviderThatStandsBy(fleet) for fleet in fleets]
        leader, waiting = (
            create_service(settings=Settings({}), secret=SECRET, clock=SystemClock(), provider=provider, ha=services)
            for provider in providers
        )
        await leader.start()
        starting = asyncio.create_task(waiting.start())
        await eventually(lambda: providers[1].told > 3)
        assert (providers[0].told, fleets[1].starts) == (0, 0)
        await leader.stop()
        await starting
        await eventually(lambda: fleets[1].starts == 1)
        told_before = providers[1].told
        await asyncio.sleep(0.3)
        assert providers[1].told == told_before, "it leads"
        await waiting.stop()
        assert fleets[1].left[-1] == "detached"

    run(scenario())


@pytest.mark.parametrize("why", ["SIGTERM", "a failure", "another one leads", "the end of the cluster"])
def test_driver_and_slots_are_left_to_the_next_resourcemanager_unless_the_cluster_ends(why: str) -> None:
    async def scenario() -> None:
        async with world(1) as w:
            await w.attach(w.tms[0])
            await w.want(1)
            await eventually(lambda: w.fleet.launches)

            async def fails() -> None:
                raise FencedError("epoch 1 is over") if why == "another one leads" else RuntimeError("lost my way")

            if why in ("a failure", "another one leads"):
                w.rm.spawn(fails(), "wanderer")
                await w.rm.end_wanted()
            if why in ("the end of the cluster", "another one leads"):
                await w.gateway.shut_down()
                await w.rm.end_wanted()
            await w.rm.stop()
            failure, w.rm.failure = w.rm.failure, None
            assert (failure is None) == (why not in ("a failure", "another one leads"))
            assert w.fleet.left == ["stopped" if why == "the end of the cluster" else "detached"]
            assert not w.fleet.cancelled
            assert not w.tms[0].peer.of("free_slot")
            assert not w.job.calls

    run(scenario())


def test_slots_of_a_job_that_does_not_come_back_are_freed_after_the_job_timeout() -> None:
    async def scenario() -> None:
        async with world(resourcemanager_job_timeout="500 ms") as w:
            tm = TaskManagerPeer("tm", 1)
            async with serving(tm.peer):
                tm.table[0] = m.SlotStatus(0, "ACTIVE", "a", "gone", 7)
                await w.register(tm)
                (call,) = await tm.peer.wait_for("free_slot")
                assert call["allocation_id"] == "a"
                assert "resourcemanager.job.timeout" in call["cause"]

    run(scenario())


@pytest.mark.parametrize(
    ("name", "other"), [("python", "2.7"), ("pyspark", "3.5.0"), ("firesteel", "9.9.9"), ("pyspark", "")]
)
def test_a_taskmanager_with_other_versions_is_refused_by_name(name: str, other: str) -> None:
    async def scenario() -> None:
        async with world() as w:
            tm = TaskManagerPeer("tm", 1)
            async with serving(tm.peer):
                own = own_versions()
                with pytest.raises(RpcFault) as caught:
                    await w.register(tm, versions={**own, name: other})
                for text in (name, other, own[name], "TaskManager tm"):
                    assert text in str(caught.value)
                assert caught.value.code == "BAD_REQUEST"
                assert w.rm.core.table.total() == 0
                await w.register(tm, versions={**own, "python": f"{own['python']}.99"})

    run(scenario())


def test_the_overview_shows_what_taskmanagers_said_of_themselves() -> None:
    async def scenario() -> None:
        async with world() as w:
            tm = TaskManagerPeer("tm", 2)
            async with serving(tm.peer):
                tm.table[0] = m.SlotStatus(0, "ACTIVE", "a", "job", 7)
                hardware = {"cpuCores": 4, "physicalMemory": 8 << 30, "freeMemory": 4 << 30, "managedMemory": 32 << 20}
                await w.register(tm, hardware=hardware, memory_configuration=MEMORY)
                (shown,) = (await w.gateway.overview()).taskmanagers
                assert shown["hardware"] == hardware
                assert shown["memoryConfiguration"] == {**dict.fromkeys(shown["memoryConfiguration"]), **MEMORY}
                assert len(shown["memoryConfiguration"]) == 10
                whole = {"cpuCores": 4.0, "taskHeapMemory": 64, "taskOffHeapMemory": 0, "managedMemory": 32}
                assert shown["totalResource"] == {**whole, "networkMemory": 16, "extendedResources": {}}
                half = {"cpuCores": 2.0, "taskHeapMemory": 32, "taskOffHeapMemory": 0, "managedMemory": 16}
                assert shown["freeResource"] == {**half, "networkMemory": 8, "extendedResources": {}}
                assert shown["allocatedSlots"] == [
                    {"jobId": "job", "allocationId": "a", "resource": shown["freeResource"]}
                ]

    run(scenario())


def test_more_slots_than_the_cluster_may_have_are_refused() -> None:
    async def scenario() -> None:
        async with world(2, **{"slotmanager_number-of-slots_max": "3"}) as w:
            tm = TaskManagerPeer("big", 2)
            async with serving(tm.peer):
                with pytest.raises(RpcFault, match=r"slotmanager\.number-of-slots\.max is 3"):
                    await w.register(tm)

    run(scenario())


def test_jobs_wait_for_taskmanagers_until_the_start_up_time_is_over() -> None:
    async def scenario() -> None:
        async with world(1, **{"resourcemanager_standalone_start-up-time": "1 s"}) as w:
            await w.want(2)
            (notice,) = await w.job.wait_for("notify_no_resources")
            assert (notice["needed"], notice["total"]) == (2, 1)
            assert w.rm.now >= w.rm.core.registry.started + 1.0

    run(scenario())
