"""A ResourceManager with a TaskManager, JobMasters that record, and a fleet of plain processes."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from firesteel.config import Settings
from firesteel.core.clock import SystemClock
from firesteel.core.errors import FencedError
from firesteel.core.run_directory import RunDirectory
from firesteel.ha.memory import MemoryServices
from firesteel.ha.retrieval import RESOURCEMANAGER, FixedLeaders
from firesteel.ha.services import Leadership
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import ResourceManagerGateway, TaskManagerGateway
from firesteel.protocol.message import RpcFault
from firesteel.protocol.provider import Provider
from firesteel.service.versions import own_versions
from firesteel_resourcemanager.app import create_service as create_resourcemanager
from firesteel_resourcemanager.shell import ResourceManagerService
from firesteel_taskmanager.app import create_service as create_taskmanager
from firesteel_taskmanager.shell import TaskManagerService
from tests.integration.services.cluster_peers import (
    PATIENCE,
    SECRET,
    Peer,
    ProcessFleet,
    client_of,
    eventually,
    serving,
)
from tests.ports import free_ports


def jobmaster() -> Peer:
    return Peer(
        {
            "offer_slots": lambda call: {"accepted": [s["allocation_id"] for s in call["slots"]]},
            "fail_slot": lambda _: {},
            "notify_no_resources": lambda _: {},
            "update_task_states": lambda _: {},
        }
    )


@dataclass
class World:
    """A cluster without a Dispatcher."""

    rm: ResourceManagerService
    tm: TaskManagerService
    fleet: ProcessFleet
    jobs: dict[str, Peer]

    def gateway(self, token: str | None = None) -> ResourceManagerGateway:
        """Calls to the ResourceManager."""
        return ResourceManagerGateway(client_of(self.tm), self.rm.address, self.rm.token if token is None else token)

    async def job(self, name: str, slots: int) -> None:
        """A job registers and asks for slots."""
        register = m.RegisterJobMaster(name, name, self.jobs[name].address, "jm token")
        assert (await self.gateway("").register_jobmaster(register)).token == self.rm.token
        await self.want(name, slots)

    async def want(self, name: str, slots: int) -> None:
        """Change a job's requirements."""
        await self.gateway().declare_requirements(m.DeclareRequirements(name, (m.Requirement("default", slots),)))

    async def offered(self, name: str, count: int) -> list[str]:
        """Wait until a job was offered so many slots."""
        peer = self.jobs[name]
        await peer.wait(lambda: sum(len(c["slots"]) for c in peer.of("offer_slots")) >= count)
        return [s["allocation_id"] for c in peer.of("offer_slots") for s in c["slots"]]

    async def end(self, name: str) -> None:
        """A job ends as a JobMaster ends it."""
        tm = TaskManagerGateway(client_of(self.rm), self.tm.address, self.rm.token)
        for allocation in {s["allocation_id"] for c in self.jobs[name].of("offer_slots") for s in c["slots"]}:
            await tm.free_slot(m.FreeSlot(allocation, "job ended"))
        await self.gateway().disconnect_jobmaster(m.DisconnectJobMaster(name))

    async def all_free(self) -> None:
        """Wait until every slot can be given away again, and nothing runs."""
        await eventually(lambda: all(s.state.name == "FREE" for s in self.rm.core.table) and not self.fleet.running)
        assert self.tm.core.is_idle


@asynccontextmanager
async def world(fleet: ProcessFleet | None = None, slots: int = 2, **settings: str) -> AsyncIterator[World]:
    fleet = fleet or ProcessFleet()
    common: dict[str, Any] = {
        "settings": Settings({key.replace("_", "."): value for key, value in settings.items()}),
        "secret": SECRET,
        "clock": SystemClock(),
    }
    directory = RunDirectory.create()
    jobs = {name: jobmaster() for name in ("one", "two", "three")}
    try:
        rm = create_resourcemanager(**common, provider=Provider(fleet, is_embedded=True))
        async with serving(rm, *jobs.values()):
            tm = create_taskmanager(
                **common,
                run_directory=directory,
                taskmanager_id="tm",
                slots=slots,
                leaders=FixedLeaders({RESOURCEMANAGER: rm.address}),
            )
            async with serving(tm):
                await eventually(lambda: rm.core.table.total() == slots)
                yield World(rm, tm, fleet, jobs)
        assert not fleet.running
        assert rm.failure is None
        assert tm.failure is None
    finally:
        fleet.stop()
        directory.remove()


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(2 * PATIENCE):
            await scenario

    asyncio.run(limited())


def test_jobs_queue_for_slots_and_all_come_back() -> None:
    async def scenario() -> None:
        async with world() as w:
            await asyncio.gather(w.job("one", 2), w.job("two", 2), w.job("three", 1))
            sizes = {"one": 2, "two": 2, "three": 1}

            def served() -> set[str]:
                return {name for name in sizes if w.jobs[name].of("offer_slots") and name in w.rm.core.jobs}

            while sizes:
                await eventually(served)
                (name,) = served()  # no two of these fit at once
                await w.offered(name, sizes.pop(name))
                await w.end(name)
            await w.all_free()
            overview = await w.gateway("").overview()
            assert (overview.slots_total, overview.slots_available) == (2, 2)
            assert {"id", "path", "dataPort", "slotsNumber", "freeSlots", "hardware"} <= overview.taskmanagers[0].keys()

    run(scenario())


def test_a_job_that_is_too_big_is_told_at_once_and_served_when_the_cluster_grows() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.job("one", 3)
            (notice,) = await w.jobs["one"].wait_for("notify_no_resources")
            assert (notice["needed"], notice["total"]) == (3, 2)
            assert "taskmanager.numberOfTaskSlots" in notice["message"]
            await w.gateway("").set_slots(m.SetSlots("tm", 4))
            await w.offered("one", 3)
            await w.end("one")
            await w.all_free()

    run(scenario())


def test_slots_given_back_before_they_came_are_freed() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.job("one", 2)
            await w.want("one", 0)
            await w.job("two", 2)
            await w.offered("two", 2)
            await w.end("two")
            await w.all_free()

    run(scenario())


def test_a_slot_whose_process_is_killed_fails_and_the_next_job_runs() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.job("one", 2)
            allocations = await w.offered("one", 2)
            os.kill(w.fleet.running[allocations[0]].pid, signal.SIGKILL)
            (failed,) = await w.jobs["one"].wait_for("fail_slot")
            assert failed["allocation_id"] == allocations[0]
            await w.end("one")
            await w.job("two", 2)
            await w.offered("two", 2)
            await w.end("two")

    run(scenario())


def test_a_slot_whose_process_gives_up_before_it_registers_fails() -> None:
    async def scenario() -> None:
        fleet = ProcessFleet("mute")
        async with world(fleet, slots=1) as w:
            await w.job("one", 1)
            await eventually(lambda: fleet.running)
            next(iter(fleet.running.values())).kill()
            (failed,) = await w.jobs["one"].wait_for("fail_slot")
            assert "the slot's Spark task was lost" in failed["cause"]
            await w.gateway().disconnect_jobmaster(m.DisconnectJobMaster("one"))

    run(scenario())


def test_a_dead_fleet_is_said_to_be_dead_and_started_anew() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.job("one", 1)
            await w.offered("one", 1)
            await asyncio.to_thread(w.fleet.die)
            (failed, *_) = await w.jobs["one"].wait_for("fail_slot")
            assert "Spark driver JVM ended" in failed["cause"]
            await w.end("one")
            await w.job("two", 2)
            await w.offered("two", 2)
            assert w.fleet.starts == 2
            await w.end("two")
            await w.all_free()

    run(scenario())


def test_a_fleet_that_can_not_start_fails_waiting_jobs_and_is_tried_again() -> None:
    async def scenario() -> None:
        fleet = ProcessFleet(fail_start="no Java was found")
        async with world(fleet) as w:
            await w.job("one", 1)
            (failed,) = await w.jobs["one"].wait_for("fail_slot")
            assert failed["cause"] == "slots can't be started: no Java was found"
            assert failed["taskmanager_id"]
            await w.gateway().disconnect_jobmaster(m.DisconnectJobMaster("one"))
            fleet.fail_start = ""
            await w.job("two", 1)
            await w.offered("two", 1)
            await w.end("two")

    run(scenario())


def test_the_slots_of_a_lost_jobmaster_go_back_when_its_host_says_so() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.job("one", 2)
            await w.offered("one", 2)
            host = w.gateway("")  # which never registered
            await host.forget_jobmaster(m.JobMasterLost("one", "killed", "the token of an earlier one"))
            assert "one" in w.rm.core.jobs
            with pytest.raises(FencedError):
                await host.disconnect_jobmaster(m.DisconnectJobMaster("one"))
            with pytest.raises(RpcFault, match="which JobMaster of job one was lost is not said"):
                await host.forget_jobmaster(m.JobMasterLost("one", "killed"))
            await host.forget_jobmaster(m.JobMasterLost("one", "killed", "jm token"))
            await w.all_free()
            assert "one" not in w.rm.core.jobs

    run(scenario())


def test_a_silent_jobmaster_loses_its_slots() -> None:
    async def scenario() -> None:
        async with world(heartbeat_timeout="500 ms") as w:
            await w.job("one", 2)
            await w.offered("one", 2)
            await eventually(lambda: "one" not in w.rm.core.jobs)
            await w.all_free()
            with pytest.raises(RpcFault, match="no JobMaster is registered"):
                await w.gateway().jobmaster_heartbeat(m.JobMasterHeartbeat("one"))

    run(scenario())


def test_a_taskmanager_that_goes_is_missed() -> None:
    async def scenario() -> None:
        async with world(heartbeat_interval="100 ms", heartbeat_timeout="500 ms") as w:
            await w.tm.stop()
            await eventually(lambda: w.rm.core.table.total() == 0)

    run(scenario())


def test_calls_with_a_stale_token_are_refused() -> None:
    async def scenario() -> None:
        async with world() as w:
            with pytest.raises(FencedError):
                await w.gateway("of an old leader").jobmaster_heartbeat(m.JobMasterHeartbeat("one"))
            await w.job("one", 1)
            with pytest.raises(RpcFault, match="'big'"):
                await w.gateway().declare_requirements(m.DeclareRequirements("one", (m.Requirement("big", 1),)))

    run(scenario())


def test_stopping_while_the_fleet_starts_leaves_nothing() -> None:
    async def scenario() -> None:
        fleet = ProcessFleet()
        async with world(fleet) as w:
            await w.job("one", 2)
        assert not fleet.is_alive()

    run(scenario())


class SlowServices(MemoryServices):
    """Whoever says that it leads waits until the test lets it go on."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.go_on = threading.Event(), threading.Event()

    def campaign(self, component: str) -> Leadership | None:
        leadership = super().campaign(component)
        assert leadership is not None
        announce = leadership.announce

        def slowly(address: str, token: str) -> None:
            self.entered.set()
            assert self.go_on.wait(PATIENCE)
            announce(address, token)

        vars(leadership)["announce"] = slowly
        return leadership


def test_a_taskmanager_may_register_before_the_resourcemanager_has_said_that_it_leads() -> None:
    async def scenario(directory: RunDirectory) -> None:
        common: dict[str, Any] = {"settings": Settings({}), "secret": SECRET, "clock": SystemClock()}
        ha, fleet, (port,) = SlowServices(), ProcessFleet(), free_ports(1)
        rm = create_resourcemanager(**common, provider=Provider(fleet, is_embedded=True), ha=ha)
        starting = asyncio.create_task(rm.start(port=port))
        try:
            await eventually(ha.entered.is_set)
            leaders = FixedLeaders({RESOURCEMANAGER: f"http://127.0.0.1:{port}"})
            tm = create_taskmanager(**common, run_directory=directory, taskmanager_id="tm", slots=2, leaders=leaders)
            async with serving(tm):
                await eventually(lambda: rm.core.table.total() == 2)
                assert not starting.done()
                ha.go_on.set()
                await starting
                assert rm.failure is None, "its first heartbeat to the TaskManager failed"
        finally:
            ha.go_on.set()
            await asyncio.gather(starting, return_exceptions=True)
            await rm.stop()
            fleet.stop()
        assert rm.failure is None

    directory = RunDirectory.create()
    try:
        run(scenario(directory))
    finally:
        directory.remove()


def test_a_taskmanager_that_can_not_be_reached_is_asked_again_before_the_next_round() -> None:
    """Jobs that have lost its slots wait for it to be given up."""

    async def scenario() -> None:
        async with world(heartbeat_interval="200 s", heartbeat_timeout="600 s") as w:
            (closed,) = free_ports(1)
            dead = m.RegisterTaskManager("dead", f"http://127.0.0.1:{closed}", 1, versions=own_versions())
            await w.gateway("").register_taskmanager(dead)
            assert "dead" in w.rm.core.table.taskmanagers
            await eventually(lambda: "dead" not in w.rm.core.table.taskmanagers)
            assert "tm" in w.rm.core.table.taskmanagers

    run(scenario())
