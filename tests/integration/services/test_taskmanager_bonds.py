"""A TaskManager whose ResourceManager or JobMaster is late, slow, started anew, refuses it, or never comes."""

from __future__ import annotations

import asyncio
import errno
import os
import platform
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from aiohttp import web

import firesteel
from firesteel.config import Settings
from firesteel.core.clock import SystemClock
from firesteel.core.errors import FencedError, PeerUnreachableError
from firesteel.core.run_directory import RunDirectory
from firesteel.ha.memory import MemoryServices
from firesteel.ha.retrieval import RESOURCEMANAGER, FixedLeaders
from firesteel.ha.services import Leadership
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import TaskManagerGateway
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.rpc.client import RpcClient
from firesteel.service.base import Service
from firesteel_taskmanager.app import create_service
from tests.integration.services.cluster_peers import PATIENCE, SECRET, client_of, eventually, serving
from tests.integration.services.taskmanager_world import BLOB, World, jobmaster_peer, resourcemanager_peer, run, world

QUICK = {
    "cluster.registration.error-delay": "100 ms",
    "cluster.registration.refused-registration-delay": "100 ms",
    "cluster.registration.max-timeout": "200 ms",
}


def port_of(service: Service) -> int:
    port = urlsplit(service.address).port
    assert port is not None
    return port


def state_of(w: World, allocation: str = "a") -> str:
    slot = w.service.core.slots.find(allocation)
    return slot.state.value if slot is not None else "gone"


def test_a_taskmanager_presents_its_slots_its_machine_and_its_versions() -> None:
    async def scenario() -> None:
        async with world() as w:
            (first,) = w.resourcemanager.of("register_taskmanager")
            assert [s["state"] for s in first["slot_report"]] == ["FREE", "FREE"]
            assert first["versions"] == {
                "firesteel": firesteel.__version__,
                "python": ".".join(platform.python_version_tuple()[:2]),
                "pyspark": __import__("pyspark").__version__,
            }
            hardware = first["hardware"]
            assert hardware["cpuCores"] == len(os.sched_getaffinity(0))
            assert 0 < hardware["freeMemory"] < hardware["physicalMemory"]
            assert hardware["physicalMemory"] <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    run(scenario())


async def alone(address: str, **options: str) -> tuple[Service, RunDirectory]:
    directory = RunDirectory.create()
    settings = Settings({**QUICK, **{key.replace("__", "."): value for key, value in options.items()}})
    service = create_service(
        settings=settings, secret=SECRET, clock=SystemClock(), run_directory=directory, taskmanager_id="tm", slots=1,
        leaders=FixedLeaders({RESOURCEMANAGER: address}),
    )  # fmt: skip
    return service, directory


def test_a_resourcemanager_may_come_later() -> None:
    async def scenario() -> None:
        early = resourcemanager_peer()
        await early.start()
        port = port_of(early)
        await early.stop()
        service, directory = await alone(f"http://127.0.0.1:{port}")
        try:
            async with serving(service):
                assert not service.is_ready()
                late = resourcemanager_peer()
                await late.start(port=port)
                try:
                    await late.wait_for("register_taskmanager")
                    await eventually(service.is_ready)
                finally:
                    await late.stop()
        finally:
            directory.remove()

    run(scenario())


def test_the_leader_of_the_resourcemanagers_is_followed_without_a_restart() -> None:
    async def scenario() -> None:
        ha = MemoryServices()

        async def lead(peer: Service, token: str) -> Leadership:
            leadership = ha.campaign(RESOURCEMANAGER)
            assert leadership is not None
            leadership.announce(peer.address, token)
            return leadership

        directory = RunDirectory.create()
        service = create_service(
            settings=Settings(QUICK), secret=SECRET, clock=SystemClock(), run_directory=directory, taskmanager_id="tm",
            slots=1, leaders=ha,
        )  # fmt: skip
        first, second = (
            resourcemanager_peer(),
            resourcemanager_peer(register_taskmanager=lambda _: {"token": "second", "heartbeat_interval_ms": 60_000}),
        )
        try:
            async with serving(first, second):
                async with serving(service):
                    assert not service.is_ready(), "nobody leads yet"
                    leadership = await lead(first, "rm")
                    await eventually(service.is_ready)
                    leadership.release()
                    await lead(second, "second")
                    await second.wait_for("register_taskmanager")
                    await eventually(service.is_ready)
                    old = TaskManagerGateway(client_of(service), service.address, "rm")
                    with pytest.raises(FencedError):
                        await old.heartbeat()
                    with pytest.raises(FencedError, match="does not say by its token who it is"):
                        await TaskManagerGateway(client_of(service), service.address).heartbeat()
                    await TaskManagerGateway(client_of(service), service.address, "second").heartbeat()
        finally:
            directory.remove()

    run(scenario())


@pytest.mark.parametrize("refusal", ["another version", "nobody there"])
def test_a_taskmanager_that_can_not_register_ends_and_says_why(refusal: str) -> None:
    def refuse(_: Any) -> Any:
        raise RpcFault(RpcCode.BAD_REQUEST, "TaskManager tm has Python 3.99, the cluster has 3.11")

    async def scenario() -> None:
        resourcemanager = resourcemanager_peer(register_taskmanager=refuse)
        await resourcemanager.start()
        address = resourcemanager.address
        if refusal == "nobody there":
            await resourcemanager.stop()
        service, directory = await alone(address, taskmanager__registration__timeout="700 ms")
        try:
            async with serving(service):
                async with asyncio.timeout(PATIENCE):
                    await service.end_wanted()
                assert isinstance(service.failure, PeerUnreachableError)
                text = str(service.failure)
                assert "taskmanager.registration.timeout" in text
                assert ("Python 3.99" if refusal == "another version" else "onnect") in text
                if refusal == "another version":
                    assert len(resourcemanager.of("register_taskmanager")) > 2
        finally:
            await resourcemanager.stop()
            directory.remove()

    run(scenario())


def test_slots_run_on_without_a_resourcemanager_and_a_new_one_hears_of_them() -> None:
    options = {**QUICK, "heartbeat.timeout": "5 s", "taskmanager.registration.timeout": "100 ms"}

    async def scenario() -> None:
        async with world(options) as w:
            await w.active()
            await w.submit("x")
            await w.states(2)
            port = port_of(w.resourcemanager)
            (pid,) = [s.pid for s in w.service.core.report() if s.pid]
            await w.resourcemanager.stop()

            async def jobmaster_beats() -> None:
                while True:
                    await w.tm.heartbeat_jobmaster(m.HeartbeatFromJobMaster("job", ("a",), "tm"))
                    await asyncio.sleep(0.05)

            beating = asyncio.get_running_loop().create_task(jobmaster_beats())
            try:
                await eventually(lambda: not w.service.is_ready())
                await asyncio.sleep(0.5)  # longer than the time to register: the slot is used
                assert w.service.failure is None
                second = resourcemanager_peer(register_taskmanager=lambda _: {"token": "2", "heartbeat_interval_ms": 0})
                await second.start(port=port)
                try:
                    report = (await second.wait_for("register_taskmanager"))[0]["slot_report"]
                    assert [(s["state"], s["allocation_id"], s["job_id"], s["pid"]) for s in report] == [
                        ("ACTIVE", "a", "job", pid), ("FREE", None, None, None)
                    ]  # fmt: skip
                    await eventually(w.service.is_ready)
                    assert state_of(w) == "ACTIVE"
                    assert w.processes[0].poll() is None
                    await w.tm.free_slot(m.FreeSlot("a", "done"))
                    assert (await second.wait_for("slot_available"))[0]["allocation_id"] == "a"
                finally:
                    await second.stop()
            finally:
                beating.cancel()
                await asyncio.gather(beating, return_exceptions=True)

    run(scenario())


def test_what_the_resourcemanager_sends_before_its_answer_to_a_registration_is_taken() -> None:
    early: list[asyncio.Task[Any]] = []

    async def set_slots(address: str) -> None:
        async with aiohttp.ClientSession() as session:
            await RpcClient(session, SECRET, SystemClock()).call(address, "set_slots", {"slots": 3}, "rm")

    async def register(message: Any) -> Any:
        early.append(asyncio.get_running_loop().create_task(set_slots(message["address"])))
        await asyncio.sleep(0.2)
        assert not early[0].done()
        return {"token": "rm", "heartbeat_interval_ms": 60_000}

    async def scenario() -> None:
        async with world(QUICK, resourcemanager={"register_taskmanager": register}) as w:
            await early[0]
            assert len(w.service.core.report()) == 3

    run(scenario())


def test_a_resourcemanager_that_was_started_anew_is_told_what_the_old_one_would_not_hear() -> None:
    tokens = iter(["old", "new"])

    async def scenario() -> None:
        def free(_: Any) -> Any:
            if len(w.resourcemanager.of("slot_available")) == 1:
                raise FencedError("another one leads")
            return {}

        answers = {
            "register_taskmanager": lambda _: {"token": next(tokens), "heartbeat_interval_ms": 60_000},
            "slot_available": free,
        }
        async with world(QUICK, resourcemanager=answers) as w:
            await w.slot()
            await w.jobmaster.wait_for("offer_slots")
            await w.tm.free_slot(m.FreeSlot("a", "done"))
            await w.resourcemanager.wait_for("register_taskmanager", 2)
            await w.resourcemanager.wait_for("slot_available", 2)

    run(scenario())


def test_a_jobmaster_that_is_away_for_a_moment_keeps_its_slots_and_hears_everything() -> None:
    async def scenario() -> None:
        async with world({"heartbeat.timeout": "20 s"}) as w:
            await w.active()
            port = port_of(w.jobmaster)
            deployed = asyncio.get_running_loop().create_task(w.submit("x", "y"))
            await deployed
            await w.states(4)
            await w.jobmaster.stop()
            await w.tm.cancel_tasks(m.CancelTasks("job", ("y",)))
            await eventually(lambda: w.service.core.tasks.of_job("job")[0]["y"] == "CANCELED")
            await asyncio.sleep(0.5)  # several calls fail
            assert state_of(w) == "ACTIVE"
            back = jobmaster_peer()
            await back.start(port=port)
            try:
                (call,) = await back.wait_for("update_task_states")
                assert [(u["execution_id"], u["state"]) for u in call["updates"]] == [("y", "CANCELED")]
                assert state_of(w) == "ACTIVE"
                assert w.processes[0].poll() is None
            finally:
                await back.stop()

    run(scenario())


def test_a_jobmaster_that_is_slow_to_give_splits_is_waited_for() -> None:
    async def slowly(_: Any) -> Any:
        await asyncio.sleep(1.0)
        return {"splits": [{"id": "s1"}], "no_more": True, "serial": 1}

    async def scenario() -> None:
        async with world(jobmaster={"request_splits": slowly}) as w:
            await w.active("source")
            await w.submit("src")
            await w.jobmaster.wait_for("end_of_data")
            assert len(w.jobmaster.of("request_splits")) == 1
            assert state_of(w) == "ACTIVE"

    run(scenario())


def test_a_request_for_splits_is_repeated_until_there_is_an_answer() -> None:
    numbers: list[int] = []

    async def fails_twice(message: Any) -> Any:
        numbers.append(message["number"])
        if len(numbers) < 3:
            raise RpcFault(RpcCode.INTERNAL, "not today")
        return {"splits": [{"id": "s1"}], "no_more": True, "serial": 1}

    async def scenario() -> None:
        async with world(jobmaster={"request_splits": fails_twice}) as w:
            await w.active("source")
            await w.submit("src")
            await w.jobmaster.wait_for("end_of_data")
            assert numbers == [1, 1, 1]

    run(scenario())


def test_splits_that_may_be_lost_fail_their_task_and_no_other() -> None:
    async def never(_: Any) -> Any:
        await asyncio.sleep(60)

    async def scenario() -> None:
        async with world({"heartbeat.timeout": "4 s"}, jobmaster={"request_splits": never}) as w:
            await w.active("source")
            async with w.heartbeats("a"):
                await w.submit("src")
                assert (await w.states(3))[-1] == ("src", "FAILED")
                error = w.jobmaster.of("update_task_states")[-1]["updates"][-1]["error"]
                assert "may be lost" in error["message"]
                assert error["error_class"].endswith("PeerUnreachableError")
                assert state_of(w) == "ACTIVE"

    run(scenario())


def test_a_jobmaster_that_says_it_does_not_know_us_loses_its_slots_at_once() -> None:
    def gone(_: Any) -> Any:
        raise RpcFault(RpcCode.NOT_FOUND, "no such job")

    async def scenario() -> None:
        async with world(jobmaster={"update_task_states": gone}) as w:
            await w.active()
            await w.submit("x")
            await w.free()

    run(scenario())


def test_a_heartbeat_for_another_taskmanager_at_the_same_address_takes_no_slots() -> None:
    """It was started again before its JobMaster had noticed that its predecessor was gone."""

    async def scenario() -> None:
        async with world() as w:
            await w.active()
            await w.submit("x")
            await w.states(2)
            with pytest.raises(RpcFault, match="TaskManager tm-before is gone, tm has its address now") as refused:
                await w.tm.heartbeat_jobmaster(m.HeartbeatFromJobMaster("job", (), "tm-before"))
            assert refused.value.code is RpcCode.NOT_FOUND
            assert state_of(w) == "ACTIVE"
            await w.tm.free_slot(m.FreeSlot("a", "mine"))
            await w.free()

    run(scenario())


def test_calls_of_a_deposed_jobmaster_are_refused() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.active()
            await w.submit("x")
            await w.states(2)
            old = TaskManagerGateway(client_of(w.service), w.service.address, "an older token")
            calls = (
                old.heartbeat_jobmaster(m.HeartbeatFromJobMaster("job", (), "tm")),
                old.cancel_tasks(m.CancelTasks("job")),
                old.notify_checkpoint_complete(m.NotifyCheckpoint("job", {"a": ("x",)}, 1)),
                old.assign_splits(m.AssignSplits("x", (), True, 1, "job", "a")),
                old.free_slot(m.FreeSlot("a", "mine")),
                old.collect(m.Collect("x", 0, 100, 0, "job", "a")),
            )
            for answer in await asyncio.gather(*calls, return_exceptions=True):
                assert isinstance(answer, FencedError), answer
            assert state_of(w) == "ACTIVE"
            current = TaskManagerGateway(client_of(w.service), w.service.address, "jm token")
            await current.free_slot(m.FreeSlot("a", "mine"))
            await w.free()

    run(scenario())


def test_a_dispatcher_that_is_started_anew_gives_blobs_a_little_later() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.active()
            port = port_of(w.jobmaster)  # it serves the blobs here
            await w.jobmaster.stop()
            deploying = asyncio.get_running_loop().create_task(w.submit("x"))
            await asyncio.sleep(0.3)  # the first tries fail
            assert not deploying.done()
            back = jobmaster_peer()
            back.app.router.add_get("/blobs/{sha}", _blob)
            await back.start(port=port)
            try:
                await deploying
                await back.wait_for("update_task_states")
            finally:
                await back.stop()

    run(scenario())


async def _blob(_: web.Request) -> web.Response:
    return web.Response(body=BLOB)


def test_a_full_disk_is_named_when_blobs_are_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, *_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device", str(self))

    async def scenario() -> None:
        async with world() as w:
            await w.active()
            monkeypatch.setattr(Path, "open", full)
            with pytest.raises(RpcFault, match=r"No space left on device: make room there.*firesteel\.run\.directory"):
                await w.submit("x")
            monkeypatch.undo()
            await w.submit("x")
            await w.states(2)

    run(scenario())
