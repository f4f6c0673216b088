"""A TaskManager with Spark's own executors: they are started, killed, frozen and replaced while slots run."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from firesteel.config import Settings
from firesteel.config.memory import taskmanager_memory
from firesteel.core.clock import SystemClock
from firesteel.core.ids import new_allocation_id
from firesteel.core.process import ProcessId, identify, is_running
from firesteel.core.run_directory import RunDirectory
from firesteel.ha.retrieval import RESOURCEMANAGER, FixedLeaders
from firesteel.protocol import messages as m
from firesteel.protocol.fleet import SlotLaunch, SlotOutcome
from firesteel.protocol.gateways import TaskManagerGateway
from firesteel.runtime.slot.slot_main import slot_main
from firesteel.spark.hosted import HostedFleet
from firesteel_taskmanager.app import create_service
from firesteel_taskmanager.executors import ExecutorSupervisor
from firesteel_taskmanager.shell import TaskManagerService
from tests.integration.services.cluster_peers import SECRET, Peer, client_of, serving, start_slot_process
from tests.integration.services.taskmanager_world import jobmaster_peer, resourcemanager_peer
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(400)
PATIENCE = 100.0
OPTIONS = {
    "firesteel.exchange.transport": "TCP",
    "taskmanager.memory.process.size": "1728m",
    "heartbeat.timeout": "10 min",  # the peers send none
}


until = eventually


@pytest.fixture
def home() -> Iterator[RunDirectory]:
    run_directory = RunDirectory.create()
    yield run_directory
    run_directory.remove()


class Cluster:
    """A TaskManager, a fleet, and peers that take every slot. This test is the ResourceManager."""

    def __init__(
        self, directory: Path, service: TaskManagerService, fleet: HostedFleet, jobmaster: Peer, resourcemanager: Peer
    ) -> None:
        self.directory, self.service, self.fleet = directory, service, fleet
        self.jobmaster, self.resourcemanager = jobmaster, resourcemanager
        self.ended: dict[str, tuple[SlotOutcome, str]] = {}

    @property
    def tm(self) -> TaskManagerGateway:
        return TaskManagerGateway(client_of(self.service), self.service.address, "rm")

    async def executor(self) -> str:
        """Another executor, attached to the driver."""
        spec = await asyncio.to_thread(self.fleet.executor_for, "tm", 3)
        assert spec is not None
        await self.tm.start_executor(spec)
        await until(lambda: self.attached(spec.executor_id), f"executor {spec.executor_id} at the driver")
        return spec.executor_id

    def attached(self, executor_id: str) -> bool:
        known = self.fleet.attached_executors()
        assert known is not None
        return executor_id in known

    def driver(self) -> ProcessId:
        """The JVM of Spark's driver."""
        return ProcessId.from_plain(json.loads((self.directory / "driver.json").read_text())["process"])

    def jvm(self) -> ProcessId:
        """Of the newest executor."""
        assert isinstance(self.service.executors, ExecutorSupervisor)
        executor = identify(self.service.executors.pids()[-1])
        assert executor is not None
        return executor

    async def allocate(self, index: int) -> SlotLaunch:
        allocation = new_allocation_id()
        message = m.RequestSlot(index, allocation, "job", self.jobmaster.address, "jm token")
        answer = await client_of(self.service).call(self.service.address, "request_slot", message.to_plain(), "rm")
        return SlotLaunch(allocation, "tm", answer["executor_id"], answer["control_socket"])

    async def slot(self, index: int) -> tuple[str, ProcessId, dict[str, Any]]:
        """A slot that runs: its allocation, its process, and what it offered."""
        launch = await self.allocate(index)
        await asyncio.to_thread(self.fleet.start_slot, launch)
        await until(lambda: self.offers(launch.allocation_id), "offer of the slot")
        (offer,) = self.offers(launch.allocation_id)
        process = identify(offer["pid"])
        assert process is not None
        return launch.allocation_id, process, offer

    def offers(self, allocation: str) -> list[dict[str, Any]]:
        calls = self.jobmaster.of("offer_slots")
        return [dict(s) for call in calls for s in call["slots"] if s["allocation_id"] == allocation]

    def state(self, allocation: str) -> str:
        slot = self.service.core.slots.find(allocation)
        return slot.state.value if slot is not None else "gone"

    def end_of(self, allocation: str) -> tuple[SlotOutcome, str] | None:
        for ended, outcome, text in self.fleet.ended_slots():
            self.ended[ended] = (outcome, text)
        return self.ended.get(allocation)


@asynccontextmanager
async def cluster(home: RunDirectory, **fleet_settings: Any) -> AsyncIterator[Cluster]:
    directory = Path(home.subdir("c"))
    fleet = HostedFleet(slot_main=slot_main, cluster_directory=directory, secret=SECRET, **fleet_settings)
    known = {"token": "rm", "heartbeat_interval_ms": 60_000}
    jobmaster, resourcemanager = jobmaster_peer(), resourcemanager_peer(register_taskmanager=lambda _: known)
    async with serving(jobmaster, resourcemanager):
        service = create_service(
            settings=Settings(OPTIONS), secret=SECRET, clock=SystemClock(), run_directory=home, taskmanager_id="tm",
            slots=2, leaders=FixedLeaders({RESOURCEMANAGER: resourcemanager.address}), bind_host="127.0.0.1",
        )  # fmt: skip
        try:
            await asyncio.to_thread(fleet.start)
            async with serving(service):
                await resourcemanager.wait_for("register_taskmanager")
                yield Cluster(directory, service, fleet, jobmaster, resourcemanager)
        finally:
            await asyncio.to_thread(fleet.stop)


def test_slots_on_executors_that_are_killed_and_frozen_and_after_the_death_of_their_driver(home: RunDirectory) -> None:
    """The steps share a TaskManager and Spark's processes, each of which costs seconds of a core."""

    async def scenario() -> None:
        async with cluster(home, heartbeat_timeout=12.0) as c:
            executor = await a_killed_executor_takes_its_slots_along_and_is_replaced(c)
            slot = await a_frozen_executor_and_a_frozen_slot_never_make_two_copies(c, executor)
            await a_running_slot_outlives_the_driver_and_a_second_executor_takes_new_ones(c, *slot)

    asyncio.run(scenario())


async def a_killed_executor_takes_its_slots_along_and_is_replaced(c: Cluster) -> str:
    """The id of the replacement."""
    first = await c.executor()
    allocation, process, offer = await c.slot(0)
    host, port = offer["data_address"]["tcp"]
    assert host == "127.0.0.1"
    _, writer = await asyncio.open_connection(host, port)
    writer.close()
    assert "unix" not in offer["data_address"], "firesteel.exchange.transport is TCP"
    memory = c.resourcemanager.of("register_taskmanager")[0]["memory_configuration"]
    assert memory["totalProcessMemory"] == 1728 << 20
    heap = taskmanager_memory(Settings(OPTIONS)).executor_heap
    arguments = Path(f"/proc/{c.jvm().pid}/cmdline").read_text().split("\0")
    assert [word for word in arguments if word.startswith("-Xmx")] == [f"-Xmx{heap >> 20}m"]
    assert 128 << 20 <= heap < 512 << 20, "else it could be the default as well"
    assert int(Path(f"/proc/{process.pid}/oom_score_adj").read_text()) >= 500
    os.kill(c.jvm().pid, signal.SIGKILL)
    (lost,) = await c.resourcemanager.wait_for("executor_lost")
    assert (lost["executor_id"], "signal 9" in lost["cause"]) == (first, True)
    (failed,) = await c.jobmaster.wait_for("fail_slot")
    assert failed["allocation_id"] == allocation
    await until(lambda: not is_running(process), "end of the slot's process")
    second = await c.executor()
    assert second != first
    allocation, process, _ = await c.slot(1)
    await c.tm.free_slot(m.FreeSlot(allocation, "done"))
    await until(lambda: c.end_of(allocation) is not None, "end of the slot in Spark")
    assert c.end_of(allocation) == (SlotOutcome.RETURNED, "")
    return second


async def a_frozen_executor_and_a_frozen_slot_never_make_two_copies(c: Cluster, executor: str) -> tuple[str, ProcessId]:
    """A slot that runs afterwards: its allocation and its process."""
    allocation, process, _ = await c.slot(0)
    jvm = c.jvm()
    os.kill(jvm.pid, signal.SIGSTOP)
    try:
        await until(lambda: not c.attached(executor), "the driver's notice that the executor is silent")
        # Whoever believes the slot lost starts it once more, on the executor that answers.
        copy = SlotLaunch(allocation, "tm", await c.executor(), str(c.service.channels.path))
        repeated = start_slot_process(copy)
        assert await asyncio.to_thread(repeated.wait, PATIENCE) == 0, "it is told to return"
        assert is_running(process)
    finally:
        os.kill(jvm.pid, signal.SIGCONT)
    assert c.state(allocation) == "ACTIVE"
    assert len(c.offers(allocation)) == 1, "a second copy was offered"
    await c.tm.free_slot(m.FreeSlot(allocation, "done"))
    await until(lambda: not is_running(process), "end of the slot")
    await until(lambda: not is_running(jvm), "end of the thawed executor, whose place another one has")
    other, frozen, _ = await c.slot(1)
    os.kill(frozen.pid, signal.SIGSTOP)
    await c.tm.free_slot(m.FreeSlot(other, "the job goes on elsewhere"))
    await until(lambda: c.state(other) == "gone", "the slot of a frozen process")
    await until(lambda: not is_running(frozen), "end of the frozen process")
    replacement, process, _ = await c.slot(1)
    assert is_running(process)
    assert len(c.offers(other)) == 1
    return replacement, process


async def a_running_slot_outlives_the_driver_and_a_second_executor_takes_new_ones(
    c: Cluster, allocation: str, process: ProcessId
) -> None:
    reported = len(c.resourcemanager.of("executor_lost")), len(c.jobmaster.of("fail_slot"))
    old_jvm = c.jvm()
    os.kill(c.driver().pid, signal.SIGKILL)
    await until(lambda: not c.fleet.is_alive(), "the fleet's notice of its driver's end")
    await asyncio.to_thread(c.fleet.stop)
    await asyncio.to_thread(c.fleet.start)
    await c.executor()
    new_jvm = c.jvm()
    assert new_jvm != old_jvm
    new_allocation, _, _ = await c.slot(0)
    assert is_running(process)
    assert is_running(old_jvm)
    await until(lambda: c.state(new_allocation) == "ACTIVE", "the JobMaster's yes to the new slot")
    assert c.state(allocation) == "ACTIVE"
    await c.tm.free_slot(m.FreeSlot(allocation, "done"))
    await until(lambda: not is_running(process), "end of the old slot")
    await until(lambda: not is_running(old_jvm), "end of the old executor, which has no slot")
    assert is_running(new_jvm)
    assert c.state(new_allocation) == "ACTIVE"
    assert (len(c.resourcemanager.of("executor_lost")), len(c.jobmaster.of("fail_slot"))) == reported, (
        "the old executor was not the newest"
    )
