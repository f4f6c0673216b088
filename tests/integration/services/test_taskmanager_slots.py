"""A TaskManager between a ResourceManager, a JobMaster and slot processes."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from firesteel.config import Settings
from firesteel.core.clock import SystemClock
from firesteel.core.errors import FencedError
from firesteel.core.run_directory import RunDirectory
from firesteel.protocol import messages as m
from firesteel.protocol.fleet import SlotLaunch
from firesteel.protocol.message import RpcFault
from firesteel.protocol.slot_channel import encode
from firesteel.rpc import Guard
from firesteel.rpc.gateways import RemoteTaskManager
from firesteel_taskmanager.app import create_service
from firesteel_taskmanager.shell import TaskManagerService
from tests.integration.services.cluster_peers import PATIENCE, SECRET, Peer, client_of, eventually, serving
from tests.integration.services.cluster_peers import start_slot_process as start_process

BLOB = b"chain"
SHA = hashlib.sha256(BLOB).hexdigest()


@dataclass
class World:
    """One TaskManager with its peers; all slots are given to one job."""

    service: TaskManagerService
    resourcemanager: Peer
    jobmaster: Peer
    tm: RemoteTaskManager
    printed: list[str]
    directory: str
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    async def slot(self, allocation: str = "a", index: int = 0, *behaviour: str, job: str = "job") -> None:
        """Allocate a slot and start its process."""
        message = m.RequestSlot(index, allocation, job, self.jobmaster.address, "jm token")
        answer = await client_of(self.service).call(self.service.address, "request_slot", message.to_plain())
        launch = SlotLaunch(allocation, "tm", answer["executor_id"], answer["control_socket"])
        self.processes.append(start_process(launch, *behaviour))

    async def active(self, *behaviour: str) -> None:
        """One slot that was offered and accepted."""
        await self.slot("a", 0, *behaviour)
        await self.jobmaster.wait_for("offer_slots")

    async def submit(self, *executions: str, allocation: str = "a", **changes: Any) -> None:
        """Run tasks."""
        deployment = {
            "tasks": [{"execution_id": e, "chain": SHA} for e in executions], "main_blob": None, "blobs": {},
            "config": {"task.cancellation.timeout": "200 ms"}, **changes,
        }  # fmt: skip
        await self.tm.submit_tasks(m.SubmitTasks("job", allocation, "jm token", deployment, self.jobmaster.address))

    async def states(self, count: int) -> list[tuple[str, str]]:
        """The first so many states that were reported."""
        await self.jobmaster.wait(lambda: len(self._states()) >= count)
        return self._states()

    def _states(self) -> list[tuple[str, str]]:
        return [(u["execution_id"], u["state"]) for c in self.jobmaster.of("update_task_states") for u in c["updates"]]

    async def free(self, allocation: str = "a") -> None:
        """Wait until the ResourceManager hears that a slot is free."""
        await self.resourcemanager.wait(
            lambda: allocation in [c["allocation_id"] for c in self.resourcemanager.of("slot_available")]
        )


@asynccontextmanager
async def world(
    accept: Callable[[Any], Any] | None = None, cause: str = "", wrong_blob: bool = False, **settings: str
) -> AsyncIterator[World]:
    resourcemanager = Peer(
        {
            "register_taskmanager": lambda _: {"token": "rm", "heartbeat_interval_ms": 1000},
            "slot_available": lambda _: {},
            "cancel_slot": lambda _: {"cause": cause},
        }
    )
    jobmaster = Peer(
        {
            "offer_slots": accept or (lambda call: {"accepted": [s["allocation_id"] for s in call["slots"]]}),
            "update_task_states": lambda _: {},
            "request_splits": lambda _: {"splits": [{"id": "s1"}, {"id": "s2"}], "no_more": True},
            "end_of_data": lambda _: {},
            "report_metrics": lambda _: {},
            "fail_slot": lambda _: {},
        }
    )

    async def blob(request: web.Request) -> web.Response:
        Guard(SECRET, SystemClock()).check(request)
        jobmaster.calls.append(("blob", {"sha": request.match_info["sha"]}))
        return web.Response(body=b"other" if wrong_blob else BLOB)

    jobmaster.app.router.add_get("/blobs/{sha}", blob)
    directory = RunDirectory.create()
    printed: list[str] = []
    processes: list[subprocess.Popen[bytes]] = []
    try:
        async with serving(resourcemanager, jobmaster):
            service = create_service(
                settings=Settings({key.replace("_", "."): value for key, value in settings.items()}),
                secret=SECRET, clock=SystemClock(), run_directory=directory, taskmanager_id="tm", slots=2,
                resourcemanager_address=resourcemanager.address, stdout=printed.append,
            )  # fmt: skip
            async with serving(service):
                await resourcemanager.wait_for("register_taskmanager")
                tm = RemoteTaskManager(client_of(service), service.address)
                yield World(service, resourcemanager, jobmaster, tm, printed, str(directory.path), processes)
            await eventually(lambda: all(p.poll() is not None for p in processes))
            assert os.listdir(directory.path) == [], "files were left in the run directory"
    finally:
        for process in processes:
            process.kill()
            process.wait()
        directory.remove()


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(2 * PATIENCE):
            await scenario

    asyncio.run(limited())


def test_a_job_runs_from_its_slots_to_its_end() -> None:
    async def scenario() -> None:
        async with world() as w:
            await asyncio.gather(w.slot("a", 0, "source"), w.slot("b", 1, "quick"))
            await w.jobmaster.wait(
                lambda: {s["allocation_id"] for c in w.jobmaster.of("offer_slots") for s in c["slots"]} == {"a", "b"}
            )
            await asyncio.gather(w.submit("src"), w.submit("x", "y", allocation="b"))
            await w.jobmaster.wait_for("end_of_data")
            await w.tm.commit(m.CommitTask("src"))
            states = await w.states(9)
            for execution in ("src", "x", "y"):
                mine = [state for name, state in states if name == execution]
                assert mine == ["INITIALIZING", "RUNNING", "FINISHED"]
            assert len(w.jobmaster.of("blob")) == 1, "both slots need the same blob"
            assert "blobs chain\n" in "".join(w.printed)
            assert "".join(w.printed).count("façade done\n") == 2
            report = await w.tm.heartbeat_jobmaster(m.HeartbeatFromJobMaster("job", ("a", "b")))
            assert report.executions == {"src": "FINISHED", "x": "FINISHED", "y": "FINISHED"}
            collected = await w.tm.collect(m.Collect("x", 5, 100, 0))
            assert (collected.offset, collected.count, collected.end) == (5, 2, True)
            assert base64.b64decode(collected.data) == b"results"
            for allocation in ("a", "b"):
                await w.tm.free_slot(m.FreeSlot(allocation, "job ended"))
                await w.free(allocation)
            assert [s.state for s in (await w.tm.heartbeat()).slot_report] == ["FREE", "FREE"]
            assert not w.jobmaster.of("fail_slot")

    run(scenario())


def test_what_a_slot_logs_is_logged_here(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def scenario() -> None:
        async with world() as w:
            await w.active("quick")
            await w.submit("x")
            await w.states(3)

    run(scenario())
    assert ("slot.test", 20, "1 blobs") in caplog.record_tuples


@pytest.mark.parametrize(("cause", "expected"), [("", "was killed or ended"), ("the Spark driver JVM ended", "JVM")])
def test_a_killed_process_fails_its_tasks_and_its_files_go(cause: str, expected: str) -> None:
    async def scenario() -> None:
        async with world(cause=cause) as w:
            await w.active("files")
            await w.submit("x")
            await w.states(2)
            (pid,) = [s.pid for s in (await w.tm.heartbeat()).slot_report if s.pid]
            left = f"{w.service.channels.path}.left"
            await eventually(lambda: os.path.exists(left) and w.service.core.slots.find("a").process.temporary_files)  # type: ignore[union-attr]
            os.kill(pid, signal.SIGKILL)
            (failed,) = await w.jobmaster.wait_for("fail_slot")
            assert str(pid) in failed["cause"]
            assert expected in failed["cause"]
            assert (await w.states(3))[-1] == ("x", "FAILED")
            error = w.jobmaster.of("update_task_states")[-1]["updates"][-1]["error"]
            assert error["kind"] == "external"
            assert expected in error["message"]
            await w.free()
            await eventually(lambda: not os.path.exists(left))
            assert w.resourcemanager.of("cancel_slot")

    run(scenario())


def test_tasks_that_do_not_end_when_cancelled_are_killed() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.active("deaf")
            await w.submit("x")
            await w.states(2)
            await w.tm.cancel_tasks(m.CancelTasks("job"))
            assert (await w.states(3))[-1] == ("x", "CANCELED")
            await eventually(lambda: w.processes[0].poll() == -signal.SIGKILL)
            await w.free()

    run(scenario())


def test_a_slot_that_does_not_return_when_released_is_killed() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.active("deaf")
            await w.tm.free_slot(m.FreeSlot("a", "done"))
            await w.free()
            assert w.processes[0].wait() == -signal.SIGKILL
            assert w.resourcemanager.of("cancel_slot")

    run(scenario())


def test_a_slot_that_the_job_refuses_is_released() -> None:
    async def scenario() -> None:
        async with world(accept=lambda _: {"accepted": []}) as w:
            await w.slot()
            await w.free()
            assert w.processes[0].wait() == 0

    run(scenario())


def test_a_second_copy_of_a_slot_returns() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.active()
            copy = start_process(SlotLaunch("a", "tm", "driver", str(w.service.channels.path)))
            w.processes.append(copy)
            await eventually(lambda: copy.poll() is not None)
            assert copy.returncode == 0
            assert w.processes[0].poll() is None

    run(scenario())


def test_stopping_ends_processes_also_those_that_do_not_listen() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.slot("a", 0, "deaf")
            await w.slot("b", 1)
            await w.jobmaster.wait(lambda: sum(len(c["slots"]) for c in w.jobmaster.of("offer_slots")) == 2)

    run(scenario())


def test_a_jobmaster_that_is_silent_loses_its_slots() -> None:
    async def scenario() -> None:
        async with world(heartbeat_timeout="400 ms") as w:
            await w.active()
            await w.submit("x")
            await w.free()

    run(scenario())


def test_a_blob_that_is_not_what_it_should_be_is_refused() -> None:
    async def scenario() -> None:
        async with world(wrong_blob=True) as w:
            await w.active()
            with pytest.raises(RpcFault, match="SHA-256"):
                await w.submit("x")
            assert w.jobmaster.of("update_task_states") == []

    run(scenario())


def test_tasks_of_a_deposed_jobmaster_are_refused() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.active()
            with pytest.raises(FencedError):
                await w.tm.submit_tasks(m.SubmitTasks("job", "a", "old token", {}, ""))

    run(scenario())


def test_a_slot_can_be_freed_while_nobody_answers_its_offer() -> None:
    async def scenario() -> None:
        async with world() as w:
            await w.jobmaster.stop()
            await w.slot()
            await eventually(lambda: "a" in [x.allocation_id for x in w.service.core.slots if x.process])
            await w.tm.free_slot(m.FreeSlot("a", "done"))
            await w.free()

    run(scenario())


def test_a_jobmaster_that_fails_at_an_offer_does_not_get_the_slot() -> None:
    def answer(_: Any) -> Any:
        raise RuntimeError("a bug in the JobMaster")

    async def scenario() -> None:
        async with world(accept=answer) as w:
            await w.slot()
            await w.free()
            assert w.processes[0].wait() == 0

    run(scenario())


def test_a_lost_resourcemanager_is_found_again() -> None:
    async def scenario() -> None:
        async with world(heartbeat_timeout="300 ms") as w:
            await w.resourcemanager.wait_for("register_taskmanager", 3)  # it sends no heartbeats

    run(scenario())


def test_a_process_that_talks_nonsense_is_cut_off() -> None:
    async def scenario() -> None:
        async with world() as w:
            reader, writer = await asyncio.open_unix_connection(w.service.channels.path)
            writer.write(b"\xff" * 64)
            assert await reader.read() == b""
            writer.close()
            reader, writer = await asyncio.open_unix_connection(w.service.channels.path)
            writer.write(encode({"type": "pong", "nonce": 1}))
            assert await reader.read() == b""
            writer.close()
            await w.active("malformed")
            (failed,) = await w.jobmaster.wait_for("fail_slot")
            assert "malformed 'collect_result'" in failed["cause"]
            await w.free()
            assert w.service.failure is None

    run(scenario())
