"""One TaskManager between a ResourceManager and a JobMaster that record what they hear, and slot processes."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from firesteel.config import Settings
from firesteel.core.clock import SystemClock
from firesteel.core.run_directory import RunDirectory
from firesteel.ha.retrieval import RESOURCEMANAGER, FixedLeaders
from firesteel.protocol import messages as m
from firesteel.protocol.fleet import SlotLaunch
from firesteel.protocol.gateways import TaskManagerGateway
from firesteel.protocol.method import Answer as Reply
from firesteel.protocol.method import Caller as Who
from firesteel.protocol.method import Method, Request
from firesteel.rpc import RequestGuard
from firesteel_taskmanager.app import create_service
from firesteel_taskmanager.shell import TaskManagerService
from tests.integration.services.cluster_peers import SECRET, Peer, client_of, eventually, serving
from tests.integration.services.cluster_peers import start_slot_process as start_process

BLOB = b"chain"
SHA = hashlib.sha256(BLOB).hexdigest()
Answer = Callable[[Any], Any]


class Caller(TaskManagerGateway):
    """Calls as the ResourceManager or as the JobMaster ("jm token"), whoever makes such calls."""

    def __init__(self, service: TaskManagerService) -> None:
        super().__init__(client_of(service), service.address)
        self._service = service

    async def call(self, method: Method[Request, Reply], message: Request) -> Reply:
        from_resourcemanager = method.by == {Who.RESOURCEMANAGER}
        self.token = self._service._link.bond.token if from_resourcemanager else "jm token"
        return await super().call(method, message)


@dataclass
class World:
    """One TaskManager with its peers; all slots are given to one job."""

    service: TaskManagerService
    resourcemanager: Peer
    jobmaster: Peer
    tm: TaskManagerGateway
    printed: list[str]
    directory: str
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    async def slot(self, allocation: str = "a", index: int = 0, *behaviour: str, job: str = "job") -> None:
        """Allocate a slot and start its process."""
        message = m.RequestSlot(index, allocation, job, self.jobmaster.address, "jm token")
        granted = await self.tm.request_slot(message)
        launch = SlotLaunch(allocation, "tm", granted.executor_id, granted.control_socket)
        self.processes.append(start_process(launch, *behaviour))

    async def active(self, *behaviour: str) -> None:
        """One slot that was offered and accepted."""
        await self.slot("a", 0, *behaviour)
        await self.jobmaster.wait_for("offer_slots")

    async def submit(self, *executions: str, allocation: str = "a", **changes: Any) -> None:
        deployment = {
            "tasks": [{"execution_id": e, "chain": SHA} for e in executions], "main_blob": None, "blobs": {},
            "salt": "s", "config": {"task.cancellation.timeout": "200 ms"}, "placement": "p", **changes,
        }  # fmt: skip
        await self.tm.share_placement(m.SharePlacement("job", "p", "packed"))
        await self.tm.submit_tasks(m.SubmitTasks("job", allocation, "jm token", deployment, self.jobmaster.address))

    async def states(self, count: int) -> list[tuple[str, str]]:
        """The first so many states that were reported."""
        await self.jobmaster.wait(lambda: len(self._states()) >= count)
        return self._states()

    def _states(self) -> list[tuple[str, str]]:
        return [(u["execution_id"], u["state"]) for c in self.jobmaster.of("update_task_states") for u in c["updates"]]

    @asynccontextmanager
    async def heartbeats(self, *allocations: str, job: str = "job") -> AsyncIterator[None]:
        """The ResourceManager and the JobMaster are alive."""

        async def beat() -> None:
            message = m.HeartbeatFromJobMaster(job, allocations, "tm")
            while True:
                await self.tm.heartbeat()
                if allocations:
                    await self.tm.heartbeat_jobmaster(message)
                await asyncio.sleep(0.05)

        beating = asyncio.get_running_loop().create_task(beat())
        try:
            yield
            assert not beating.done(), beating
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)

    async def free(self, allocation: str = "a") -> None:
        """Wait until the ResourceManager hears that a slot is free."""
        await self.resourcemanager.wait(
            lambda: allocation in [c["allocation_id"] for c in self.resourcemanager.of("slot_available")]
        )


def resourcemanager_peer(**answers: Answer) -> Peer:
    """A ResourceManager that knows everybody."""
    return Peer(
        {
            "register_taskmanager": lambda _: {"token": "rm", "heartbeat_interval_ms": 1000},
            "slot_available": lambda _: {},
            "cancel_slot": lambda _: {"cause": ""},
            "executor_lost": lambda _: {},
            "disconnect_taskmanager": lambda _: {},
            **answers,
        }
    )


def jobmaster_peer(**answers: Answer) -> Peer:
    """A JobMaster that takes every slot."""
    return Peer(
        {
            "offer_slots": lambda call: {"accepted": [s["allocation_id"] for s in call["slots"]]},
            "update_task_states": lambda _: {},
            "request_splits": lambda _: {"splits": [{"id": "s1"}, {"id": "s2"}], "no_more": True, "serial": 1},
            "end_of_data": lambda _: {},
            "report_metrics": lambda _: {},
            "fail_slot": lambda _: {},
            **answers,
        }
    )


@asynccontextmanager
async def world(
    options: Mapping[str, str] | None = None,
    *,
    resourcemanager: Mapping[str, Answer] | None = None,
    jobmaster: Mapping[str, Answer] | None = None,
    wrong_blob: bool = False,
    **more: Any,
) -> AsyncIterator[World]:
    """A TaskManager with its peers.

    Args:
        options: settings of the cluster.
        resourcemanager: answers of the ResourceManager, by method.
        jobmaster: answers of the JobMaster, by method.
        wrong_blob: blobs are not what their names say.
        more: for ``create_service``.
    """
    resourcemanagers, jobmasters = resourcemanager_peer(**resourcemanager or {}), jobmaster_peer(**jobmaster or {})

    async def blob(request: web.Request) -> web.Response:
        RequestGuard(SECRET, SystemClock()).check(request)
        jobmasters.calls.append(("blob", {"sha": request.match_info["sha"]}))
        return web.Response(body=b"other" if wrong_blob else BLOB)

    jobmasters.app.router.add_get("/blobs/{sha}", blob)
    directory = RunDirectory.create()
    printed: list[str] = []
    processes: list[subprocess.Popen[bytes]] = []
    try:
        async with serving(resourcemanagers, jobmasters):
            service = create_service(
                settings=Settings(dict(options or {})),
                secret=SECRET, clock=SystemClock(), run_directory=directory, taskmanager_id="tm", slots=2,
                leaders=FixedLeaders({RESOURCEMANAGER: resourcemanagers.address}), stdout=printed.append, **more,
            )  # fmt: skip
            async with serving(service):
                await resourcemanagers.wait_for("register_taskmanager")
                await eventually(lambda: service._link.bond.is_registered)
                tm = Caller(service)
                yield World(service, resourcemanagers, jobmasters, tm, printed, str(directory.path), processes)
            await eventually(lambda: all(p.poll() is not None for p in processes))
            assert os.listdir(directory.path) == [], "files were left in the run directory"
    finally:
        for process in processes:
            process.kill()
            process.wait()
        directory.remove()


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """To its end, or not much longer than a minute."""

    async def limited() -> None:
        async with asyncio.timeout(150):
            await scenario

    asyncio.run(limited())
