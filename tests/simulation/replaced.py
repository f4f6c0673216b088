"""Puts the simulated network, channels and processes in the place of the real ones."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import firesteel.service.base
import firesteel_dispatcher.core
import firesteel_jobmaster.settings
import firesteel_resourcemanager.app
import firesteel_taskmanager.app
import firesteel_taskmanager.deployments
import firesteel_taskmanager.executors
from firesteel.checkpoint.storage import StorageParameters
from firesteel.connectors import enumerators
from firesteel.core.process import ProcessId
from firesteel.ha.disk import Disk
from firesteel.service.base import Service
from firesteel_dispatcher.archives import ended_archive
from firesteel_dispatcher.core import DispatcherCore
from firesteel_dispatcher.job import JobRecord
from firesteel_jobmaster import host, job_process
from firesteel_jobmaster.app import JobMasterService
from firesteel_jobmaster.dispatcher import DispatcherReporter
from firesteel_jobmaster.shell import JobMaster
from firesteel_taskmanager.memory import MemoryWatch
from tests.simulation.cluster import _SERVICES, Cluster
from tests.simulation.election import ProcessServices
from tests.simulation.jobmaster_processes import PipeEnd, Session, SimulatedTemplate, process_id, running_process
from tests.simulation.savepoints import on_disk
from tests.simulation.stand_ins import SimulatedBlobs, Trickle
from tests.simulation.storage import SimulatedStorage
from tests.simulation.world import SimulatedRpcClient, World


@contextmanager
def simulated(world: World, cluster: Callable[[], Cluster]) -> Iterator[None]:
    """Puts the simulated network, channels and processes in the place of the real ones, for all services."""

    def rpc_routes(handlers: Mapping[str, Any], secret: str, *, prefix: str = "", **_: Any) -> list[Any]:
        world.register_handlers(handlers, prefix)
        return []

    def token_hex(count: int | None = None) -> str:
        return f"{world.rng.getrandbits(8 * (count or 32)):0{2 * (count or 32)}x}"

    async def listen(service: Service, app: Any, *_: Any, **__: Any) -> str:
        if app is not service.app:
            return "http://rest:8081"
        process = running_process()
        process.listens = True
        return process.address

    replaced = {"RpcClient": SimulatedRpcClient, "rpc_routes": rpc_routes}

    async def open_connection(host: str = "", port: int = 0, *, sock: PipeEnd | None = None) -> Any:
        if sock is not None:
            return sock.reader, sock
        return await world.connect(running_process(), host, port)

    create = JobMasterService._create

    def create_job(service: JobMasterService, *arguments: Any) -> JobMaster:
        job = create(service, *arguments)
        world.obedience.leads(f"job {job.job_id}", job.token)
        if job.job_id in cluster().ha.over:
            world.broken.append(f"{cluster().short(job.job_id)} has ended, as its record says, and runs again")
        cluster().led.setdefault(job.job_id, []).append(job)
        return job

    report_end = DispatcherReporter.end

    def end_is_reported(reporter: DispatcherReporter, archive: Mapping[str, Any]) -> None:
        cluster().on_end(reporter._job_id)
        report_end(reporter, archive)

    def job_service(**arguments: Any) -> JobMasterService:
        service = running_process().service = JobMasterService(**arguments)
        return service

    def own_id() -> ProcessId:
        return process_id(running_process())

    def services(_: Any, directory: Path) -> ProcessServices:
        return ProcessServices(cluster().ha, running_process(), cluster().directory)

    def storage(parameters: StorageParameters) -> SimulatedStorage:
        return cluster().storage(parameters.job_id)

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

    async def measure_nothing(_: MemoryWatch) -> None:
        """Processes of simulated slots have no memory; to look for them in the machine's takes a third of the time."""

    def trickle(config: Mapping[str, Any]) -> Trickle:
        return Trickle(world, config)

    patches: list[Any] = [
        mock.patch.object(JobMasterService, "_create", create_job),
        mock.patch.object(DispatcherReporter, "end", end_is_reported),
        mock.patch.object(JobRecord, "end", job_ends),
        mock.patch.object(DispatcherCore, "end_stored", end_is_stored),
        mock.patch.object(firesteel_dispatcher.core, "ended_archive", told_by_dispatcher),
        mock.patch.object(DispatcherCore, "restored_end", end_is_restored),
        mock.patch.object(firesteel.service.base, "aiohttp", mock.Mock(ClientSession=Session)),
        mock.patch("os.fsync"),
        mock.patch.object(host, "TemplateProcess", lambda ended: SimulatedTemplate(cluster(), ended)),
        mock.patch.object(host, "ask_to_end", lambda process: cluster().job_processes.ask_to_end(process)),
        mock.patch.object(host, "kill", lambda process: cluster().job_processes.kill(process)),
        mock.patch.object(host, "is_running", lambda process: cluster().job_processes.is_running(process)),
        mock.patch.object(job_process, "JobMasterService", job_service),
        mock.patch.object(job_process, "SystemClock", running_process),
        mock.patch.object(job_process, "myself", own_id),
        mock.patch.object(job_process, "load_high_availability", services),
        mock.patch.object(firesteel_jobmaster.settings, "load_checkpoint_storage", storage),
        mock.patch.dict(enumerators._BUILT_IN, {"trickle": trickle}),
        mock.patch("asyncio.open_connection", open_connection),
        mock.patch("secrets.token_hex", token_hex),
        mock.patch.object(Service, "listen", listen),
        mock.patch.object(Disk, "sync"),
        mock.patch.object(MemoryWatch, "run", measure_nothing),
    ]
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in _SERVICES:
            for attribute, replacement in replaced.items():
                if hasattr(module, attribute):
                    patches.append(mock.patch.object(module, attribute, replacement))
    for attribute, seconds in {"BUSY_POLL": 0.5, "IDLE_POLL": 1.0}.items():  # fewer events that change nothing
        patches.append(mock.patch.object(firesteel_resourcemanager.shell, attribute, seconds))
    patches.append(mock.patch.object(firesteel_taskmanager.executors, "LOOK_SECONDS", 1.0))
    patches.append(mock.patch.object(firesteel_taskmanager.deployments, "BlobCache", SimulatedBlobs))
    patches.append(mock.patch.object(firesteel_taskmanager.shell, "ChannelServer", return_value=None))
    for patch in patches:
        patch.start()
    try:
        with on_disk(cluster):
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
