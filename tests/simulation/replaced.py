"""Puts the simulated network, channels and processes in the place of the real ones."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

import firesteel_dispatcher.core
import firesteel_jobmaster.settings
import firesteel_resourcemanager.app
import firesteel_taskmanager.app
import firesteel_taskmanager.executors
from firesteel.checkpoint.storage import StorageParameters
from firesteel.connectors import enumerators
from firesteel.graph.job_graph import JobGraph
from firesteel.ha.disk import Disk
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.protocol.messages import JobMasterLost, StartJob
from firesteel.rpc.gateways import RemoteDispatcher
from firesteel.service.base import Service
from firesteel_dispatcher.core import DispatcherCore
from firesteel_dispatcher.ends import ended_archive
from firesteel_dispatcher.job import JobRecord
from firesteel_jobmaster.app import JobMasterService
from firesteel_jobmaster.lanes import until_it_works
from tests.simulation.cluster import _SERVICES, Cluster
from tests.simulation.stand_ins import SimulatedBlobs, Trickle
from tests.simulation.storage import SimulatedStorage
from tests.simulation.world import SimulatedRpcClient, World


@contextmanager
def simulated(world: World, cluster: Callable[[], Cluster]) -> Iterator[None]:
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

    def create_job(service: JobMasterService, graph: JobGraph, settings: Any, message: StartJob, *_: Any) -> Any:
        """As a process of its own does, which leads the job from then on."""
        store, attempts = cluster().lead(graph.job_id, message.takeover)
        more: dict[str, Any] = {} if store is None else {"checkpoint_store": store}
        job = create(service, graph, settings, message, attempts=attempts, **more)
        world.obedience.leads(f"job {job.job_id}", job.token)
        cluster().led.setdefault(graph.job_id, []).append(job)

        async def forget() -> None:
            await job.acknowledged.wait()
            await job.checkpoints_closed()
            if job.is_over:
                cluster().ha.forget(graph.job_id)

        service.spawn(forget(), f"what outlives the JobMaster of job {graph.job_id}")
        return job

    def storage(parameters: StorageParameters) -> SimulatedStorage:
        return cluster().storage(parameters.job_id)

    begin = JobMasterService.start_job
    begun: dict[str, tuple[int, str]] = {}
    """Host and job -> incarnation of its process, and token of the JobMaster."""

    async def start_job(service: JobMasterService, message: StartJob) -> Any:
        """As a host that finds on disk which jobs a former one had begun: it says that they are lost."""
        own: Any = service._clock
        job_id = message.job_graph["job_id"]
        key = f"{own.host} {job_id}"
        incarnation, token = begun.get(key, (own.incarnation, ""))
        if incarnation != own.incarnation and token not in message.given_up:
            cause = "its JobMaster was lost"
            client = SimulatedRpcClient(None, "", own)
            dispatcher = RemoteDispatcher(client, message.dispatcher_address)  # type: ignore[arg-type]
            lost = JobMasterLost(job_id, cause, token)

            async def tell() -> None:
                await until_it_works("loss", lambda: dispatcher.jobmaster_lost(lost), lambda: True)
                if begun.get(key) == (incarnation, token):
                    del begun[key]

            service.spawn(tell(), f"loss of the JobMaster of job {job_id}")
            raise RpcFault(RpcCode.INTERNAL, cause)
        started = await begin(service, message)
        begun[key] = own.incarnation, started.jobmaster_token
        return started

    end = JobRecord.end

    def job_ends(record: JobRecord, archive: Mapping[str, Any], now: Any) -> None:
        failure = archive.get("failure")
        cluster().archives[record.id] = archive
        cluster().failures[record.id] = f"{failure['error_class']}: {failure['message']}" if failure else ""
        end(record, archive, now)

    end_stored, restored_end = DispatcherCore.end_stored, DispatcherCore.restored_end

    def end_is_stored(core: DispatcherCore, job_id: str, keep_archive: bool) -> None:
        cluster().ledger.ended_safely(job_id)
        end_stored(core, job_id, keep_archive)

    def end_is_restored(core: DispatcherCore, job_id: str, *arguments: Any) -> None:
        cluster().ledger.ended_safely(job_id)
        restored_end(core, job_id, *arguments)

    ended = ended_archive

    def told_by_dispatcher(*arguments: Any) -> dict[str, Any]:
        return {**ended(*arguments), "told-by": "Dispatcher"}

    def trickle(config: Mapping[str, Any]) -> Trickle:
        return Trickle(world, config)

    patches: list[Any] = [
        mock.patch.object(JobMasterService, "_create", create_job),
        mock.patch.object(JobRecord, "end", job_ends),
        mock.patch.object(DispatcherCore, "end_stored", end_is_stored),
        mock.patch.object(firesteel_dispatcher.core, "ended_archive", told_by_dispatcher),
        mock.patch.object(DispatcherCore, "restored_end", end_is_restored),
        mock.patch.object(JobMasterService, "start_job", start_job),
        mock.patch.object(firesteel_jobmaster.settings, "load_checkpoint_storage", storage),
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
        for thread in list(world.threads):
            thread.end()
        for process in world.everyone:
            if process.alive:
                process.kill()
            process.loop.bury()
