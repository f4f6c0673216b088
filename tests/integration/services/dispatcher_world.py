"""A Dispatcher over loopback with a recording JobMaster host and ResourceManager."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import pickle
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from firesteel.client.rest_client import RestClient
from firesteel.config import Settings
from firesteel.core.clock import SystemClock
from firesteel.core.run_directory import RunDirectory
from firesteel.core.secret import rest_token
from firesteel.graph.chaining import client_versions
from firesteel.graph.execution_graph import ExecutionGraph
from firesteel.graph.job_archive import archive_of
from firesteel.graph.job_graph import JobGraph, JobVertex, OperatorInfo
from firesteel.ha.memory import MemoryServices
from firesteel.ha.services import (
    JOBMASTER_HOST,
    RESOURCEMANAGER,
    HighAvailabilityServices,
    load_high_availability,
)
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import DispatcherGateway
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel_dispatcher.app import create_service
from firesteel_dispatcher.shell import DispatcherService
from tests.integration.services.cluster_peers import SECRET, Peer, client_of, serving

BLOB = b"chain" * 1000
SHA = hashlib.sha256(BLOB).hexdigest()
JOB = "0123456789abcdef" * 2
VERTEX = "1" * 32
TOKEN = rest_token(SECRET)
BEARER = {"Authorization": f"Bearer {TOKEN}"}
LONGEST = 150.0
"""Seconds for a whole scenario."""
TASKMANAGER = {
    "id": "tm", "path": "http://tm", "dataPort": -1, "jmxPort": -1, "timeSinceLastHeartbeat": 1, "slotsNumber": 2,
    "freeSlots": 1, "allocatedSlots": [{"jobId": JOB}],
}  # fmt: skip


def graph(job: str = JOB, name: str = "words", **changes: Any) -> JobGraph:
    """A job of one task."""
    vertex = JobVertex(VERTEX, "v", 1, 128, "default", SHA, (OperatorInfo(VERTEX, "op", None, "map"),))
    fields: dict[str, Any] = {"blobs": {SHA: len(BLOB)}, "versions": client_versions(), **changes}
    return JobGraph(job, name, (vertex,), (), **fields)


def archive(state: str = "RUNNING", **changes: Any) -> dict[str, Any]:
    """What a JobMaster tells of the job."""
    return {**archive_of(ExecutionGraph(graph(), SystemClock())), "state": state, **changes}


@dataclass
class Host:
    """A JobMaster host and its jobs, as one service that remembers all calls.

    Attributes:
        may_start: cleared, it keeps the Dispatcher waiting for the answer to ``start_job``.
        running: job id -> graph; ``list_jobs`` tells them, and nobody can be adopted without any.
        failing: so many times it fails to start a job.
        code: how it says so.
        silent: its JobMasters do not answer.
        mistaken: so many times it answers with a JobMaster that was given up.
        elsewhere: where its JobMasters are said to be, if not here.
    """

    may_start: asyncio.Event = field(default_factory=asyncio.Event)
    running: dict[str, Any] = field(default_factory=dict)
    failing: int = 0
    code: RpcCode = RpcCode.INTERNAL
    silent: bool = False
    mistaken: int = 0
    elsewhere: str = ""
    token: str = "jm"
    details: Callable[[], Any] = archive

    def __post_init__(self) -> None:
        self.may_start.set()
        self.peer = self.new_peer()

    def new_peer(self) -> Peer:
        """The service, not started; a new one after each stop."""

        async def start_job(call: Any) -> dict[str, Any]:
            await self.may_start.wait()
            if self.failing:
                self.failing -= 1
                raise RpcFault(self.code, f"no template, {self.failing} more times")
            self.running[call["job_graph"]["job_id"]] = call["job_graph"]
            if self.mistaken:
                self.mistaken -= 1
            elif self.token in call["given_up"]:
                self.token += " again"
            return {"address": self.elsewhere or peer.address, "jobmaster_token": self.token}

        def list_jobs(_: Any) -> dict[str, Any]:
            where = {"address": peer.address, "jobmaster_token": self.token}
            return {"jobs": [{"job_id": job, "job_graph": plain, **where} for job, plain in self.running.items()]}

        def of_jobmaster(answer: Callable[[], Any]) -> Any:
            if self.silent:
                raise RpcFault(RpcCode.INTERNAL, "as good as frozen")
            return answer()

        def adopt(_: Any) -> Any:
            if not self.running:
                raise RpcFault(RpcCode.INTERNAL, "nobody is there any more")
            return of_jobmaster(dict)

        data = base64.b64encode(pickle.dumps([1, 2])).decode()
        peer = Peer(
            {
                "start_job": start_job,
                "list_jobs": list_jobs,
                "shut_down": lambda _: {},
                "adopt": adopt,
                "cancel": lambda _: {},
                "details": lambda _: of_jobmaster(self.details),
                "collect": lambda call: {**call, "count": 2, "end": False, "data": data, "state": "RUNNING"},
            }
        )
        return peer


def resourcemanager() -> Peer:
    """A ResourceManager with one TaskManager."""
    overview = {"taskmanagers": [TASKMANAGER], "slots_total": 2, "slots_available": 1}
    return Peer({"overview": lambda _: overview, "shut_down": lambda _: {}})


@dataclass
class World:
    """A Dispatcher with its peers."""

    service: DispatcherService
    host: Host
    resourcemanager: Peer
    rest: RestClient
    session: aiohttp.ClientSession
    store: Path

    @property
    def jobmaster(self) -> Peer:
        return self.host.peer

    async def get(self, path: str, **options: Any) -> tuple[int, Any]:
        """Status and JSON of a GET."""
        return await self.ask("GET", path, **options)

    async def ask(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        """Status and JSON of any request."""
        async with self.session.request(method, self.service.rest.address + path, **options) as answer:
            text = await answer.read()
            return answer.status, json.loads(text) if text else None

    async def submit(self) -> None:
        """A job that has been started."""
        await self.rest.submit(graph(), {SHA: BLOB})
        await self.jobmaster.wait_for("start_job")

    def dispatcher(self) -> DispatcherGateway:
        """Calls as a JobMaster makes them."""
        (start,) = self.jobmaster.of("start_job")[-1:]
        return DispatcherGateway(client_of(self.jobmaster), start["dispatcher_address"], start["dispatcher_token"])

    async def finish(self, state: str = "FINISHED", **changes: Any) -> None:
        await self.dispatcher().job_finished(m.JobFinished(JOB, archive(state, **changes)))

    def stored(self, kind: str) -> list[str]:
        """Jobs of which the store has a graph (``job``), or an archive (``ended``)."""
        return [path.name.partition(".")[0] for path in payloads_in(self.store, kind)]

    def stored_blobs(self) -> list[str]:
        return [path.name for folder in payloads_in(self.store, "job") for path in (folder / "blobs").iterdir()]

    def received(self) -> list[str]:
        """What has been received, and is not stored yet."""
        path = self.store / ".incoming"
        return os.listdir(path) if path.exists() else []


def payloads_in(store: Path, kind: str) -> list[Path]:
    """Folders of jobs (``job``), or files with their archives (``ended``)."""
    paths = store.glob(f"*/{kind}/*")
    return sorted((path for path in paths if not path.name.startswith(".")), key=lambda path: path.name)


@asynccontextmanager
async def world(
    port: int = 0,
    /,
    options: Mapping[str, Any] | None = None,
    cluster_directory: Path | None = None,
    prepare: Callable[[DispatcherService], None] = lambda _: None,
) -> AsyncIterator[World]:
    """A Dispatcher that listens.

    Args:
        port: of the REST API.
        options: of the cluster.
        cluster_directory: where jobs are kept; by default they end with the Dispatcher.
        prepare: called with the service before it starts.
    """
    host, manager, directory = Host(), resourcemanager(), RunDirectory.create()
    try:
        async with serving(host.peer, manager):
            peers = {JOBMASTER_HOST: host.peer.address, RESOURCEMANAGER: manager.address}
            where = {f"firesteel.{name.split('-')[0]}.address": address[7:] for name, address in peers.items()}
            settings = Settings({"rest.port": port, **where, **(options or {})})
            ha: HighAvailabilityServices = MemoryServices(directory=Path(directory.path))
            if cluster_directory is not None:
                ha = load_high_availability(settings, cluster_directory)
            else:
                for name, address in peers.items():
                    leadership = ha.campaign(name)
                    assert leadership is not None
                    leadership.announce(address, "")
            service = create_service(
                settings=settings, secret=SECRET, clock=SystemClock(), ha=ha, lasting=cluster_directory is not None
            )
            prepare(service)
            await service.start("127.0.0.1", 0)
            rest = RestClient(service.rest.address, TOKEN)
            try:
                async with aiohttp.ClientSession() as session:
                    yield World(service, host, manager, rest, session, Path(service.leadership.store.where))
                assert service.failure is None
            finally:
                await rest.close()
                await service.stop()
                ha.close()
            assert os.listdir(directory.path) == []
    finally:
        directory.remove()


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a scenario, not for ever."""

    async def limited() -> None:
        async with asyncio.timeout(LONGEST):
            await scenario

    asyncio.run(limited())
