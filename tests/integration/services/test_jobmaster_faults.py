"""A JobMaster whose TaskManager, ResourceManager or Dispatcher is killed, frozen or cut off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from firesteel.config import Settings
from firesteel.core.clock import SystemClock
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import JobMasterGateway, JobMasterHostGateway
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.rpc import RpcClient
from firesteel_jobmaster.app import JobMasterService, create_service
from tests.integration.services.jobmaster_peers import PATIENCE, QUICK, SECRET, Others
from tests.unit.jobmaster.jobs import two_by_two

SLOW = {"heartbeat.interval": "60 s", "heartbeat.timeout": "120 s"}
"""Whatever is noticed with these is noticed by something else than a heartbeat that was due."""


class World:
    """A job that runs on a TaskManager of its own server; ResourceManager and Dispatcher are another one."""

    def __init__(self, service: JobMasterService, others: Others, taskmanager: Others) -> None:
        self.service, self.others, self.taskmanager = service, others, taskmanager
        self.ids: list[str] = []

    async def run(self) -> None:
        others = self.others
        host = JobMasterHostGateway(RpcClient(others.session, SECRET, others.clock), self.service.address)
        where = (others.address, "d1", others.address, others.address)
        started = await host.start_job(m.StartJob(two_by_two().to_plain(), *where))
        await others.wait_for("declare_requirements")
        client = RpcClient(self.taskmanager.session, SECRET, others.clock)
        self.taskmanager.jobmaster = JobMasterGateway(client, started.address, started.jobmaster_token)
        await self.taskmanager.offer(2)
        self.ids = await self.taskmanager.all_run()

    @property
    def jobmaster(self) -> JobMasterGateway:
        assert self.taskmanager.jobmaster is not None
        return self.taskmanager.jobmaster

    async def state(self) -> str:
        return str((await self.jobmaster.details(m.LookAtJob())).archive["state"])


@asynccontextmanager
async def world(settings: Mapping[str, str]) -> AsyncIterator[World]:
    service = create_service(settings=Settings({**QUICK, **settings}), secret=SECRET, clock=SystemClock())
    others, taskmanager = Others(), Others("tm-7")
    others.slots = 0
    everybody = (others, taskmanager, service)
    for service_ in everybody:
        await service_.start()
    try:
        faulty_world = World(service, others, taskmanager)
        await faulty_world.run()
        yield faulty_world
    finally:
        for service_ in reversed(everybody):
            await service_.stop()
        assert service.failure is None


def run(test: Callable[[World], Awaitable[None]], settings: Mapping[str, str]) -> None:
    async def main() -> None:
        async with world(settings) as faulty_world:
            await test(faulty_world)

    asyncio.run(main())


def test_a_taskmanager_whose_connections_break_is_lost_before_its_next_heartbeat() -> None:
    async def test(w: World) -> None:
        await w.taskmanager.stop()
        archive = (await w.others.wait_for("job_finished"))["archive"]
        assert archive["state"] == "FAILED"
        assert "Slot 0 of TaskManager tm-7" in archive["failure"]["message"]
        assert "could not be reached 2 times in a row" in archive["failure"]["message"]

    run(test, SLOW)


def test_failed_calls_do_not_count_when_the_threshold_is_off() -> None:
    async def test(w: World) -> None:
        await w.taskmanager.stop()
        archive = (await w.others.wait_for("job_finished"))["archive"]
        assert "gave no sign of life for 3 s" in archive["failure"]["message"]

    run(test, {"heartbeat.rpc-failure-threshold": "-1", "heartbeat.timeout": "3 s"})


def test_a_frozen_taskmanager_is_lost_after_the_heartbeat_timeout() -> None:
    async def test(w: World) -> None:
        async def frozen(_: Mapping[str, Any]) -> Mapping[str, Any]:
            await asyncio.sleep(3600)
            return {}

        vars(w.taskmanager)["on_heartbeat_jobmaster"] = frozen
        archive = (await w.others.wait_for("job_finished"))["archive"]
        assert archive["state"] == "FAILED"
        assert "TaskManager tm-7 gave no sign of life for 2 s" in archive["failure"]["message"]
        # It wakes up: the job wants nothing of it any more.
        assert (await w.taskmanager.offer(2)).accepted == ()
        await w.taskmanager.report("FINISHED", *w.ids)
        assert await w.state() == "FAILED"

    run(test, {"heartbeat.timeout": "2 s"})


def test_a_taskmanager_whose_address_another_one_has_is_lost_at_once() -> None:
    async def test(w: World) -> None:
        async def for_another(payload: Mapping[str, Any]) -> Mapping[str, Any]:
            raise RpcFault(RpcCode.NOT_FOUND, f"TaskManager {payload['taskmanager_id']} is gone, tm-8 has its address")

        vars(w.taskmanager)["on_heartbeat_jobmaster"] = for_another
        archive = (await w.others.wait_for("job_finished"))["archive"]
        assert "TaskManager tm-7 is gone, tm-8 has its address" in archive["failure"]["message"]

    run(test, {"heartbeat.timeout": "60 s"})


def test_what_happened_during_a_short_partition_is_made_up_for_by_heartbeats() -> None:
    async def test(w: World) -> None:
        healed, tm = asyncio.Event(), w.taskmanager
        usual = tm.on_heartbeat_jobmaster

        async def cut_off(payload: Mapping[str, Any]) -> Mapping[str, Any]:
            await healed.wait()
            return await usual(payload)

        vars(tm)["on_heartbeat_jobmaster"] = cut_off
        await tm.wait_for("heartbeat_jobmaster", len(tm.calls("heartbeat_jobmaster")) + 1)
        tm.executions |= dict.fromkeys(w.ids, "FINISHED")  # and the reports are lost
        assert await w.state() == "RUNNING"
        healed.set()
        assert (await w.others.wait_for("job_finished"))["archive"]["state"] == "FINISHED"
        await tm.wait_for("free_slot", 2)

    run(test, {"heartbeat.timeout": "60 s"})


def test_a_job_goes_on_while_dispatcher_and_resourcemanager_are_away() -> None:
    async def test(w: World) -> None:
        port = int(w.others.address.rsplit(":", 1)[1])
        await w.others.stop()
        beats = len(w.taskmanager.calls("heartbeat_jobmaster"))
        await w.taskmanager.wait_for("heartbeat_jobmaster", beats + 5)
        assert await w.state() == "RUNNING"
        again = Others()
        again.slots, again.rm_token, again.dispatcher_token = 0, "rm2", "d2"
        await again.start(port=port)
        try:
            await again.wait_for("register_jobmaster")
            declared = await again.wait_for("declare_requirements")
            assert declared["requirements"] == [{"profile": "default", "count": 2}], "it keeps its slots"
            await w.jobmaster.adopt(m.AdoptJob(again.address, "d2"))
            assert (await again.wait_for("job_state_changed"))["state"] == "RUNNING"
            await w.taskmanager.report("FINISHED", *w.ids)
            assert (await again.wait_for("job_finished"))["archive"]["state"] == "FINISHED"
        finally:
            await w.service.stop()
            await again.stop()

    run(test, {})


def test_an_end_that_a_deposed_dispatcher_refuses_is_kept_for_the_next() -> None:
    async def test(w: World) -> None:
        w.others.dispatcher_token = "another leader"
        await w.taskmanager.report("FINISHED", *w.ids)
        async with asyncio.timeout(PATIENCE):
            while not w.others.asked["job_finished"]:
                await asyncio.sleep(0.01)
        job = w.service.running_jobs().jobs[0]
        assert await w.state() == "FINISHED"
        assert not w.service.job(job.job_id).dispatcher.acknowledged.is_set()
        await w.jobmaster.adopt(m.AdoptJob(w.others.address, "another leader"))
        await w.others.wait_for("job_finished")
        await w.service.job(job.job_id).dispatcher.acknowledged.wait()
        assert not w.service.running_jobs().jobs

    run(test, {})
