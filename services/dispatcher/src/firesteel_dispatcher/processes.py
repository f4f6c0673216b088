"""The processes of a cluster, and calls that all of them answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from firesteel.core.errors import RpcError
from firesteel.core.stacks import Samples, dump_threads, other_threads, process_name, sample
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import ProcessGateway
from firesteel.rest import types as t
from firesteel.rpc.process_calls import PREFIX, SAMPLES
from firesteel_dispatcher.shell import DispatcherService

T = TypeVar("T")
_PATIENCE: Final = 5.0


def coordinators(service: DispatcherService) -> dict[str, str]:
    """Addresses of ResourceManager, JobMaster host and JobMasters, by name; empty = the address is not known."""
    addresses = service.coordinators.addresses()
    for job in service.core.jobs.values():
        if not job.ended and job.jobmaster is not None:
            parts = urlsplit(job.jobmaster[0])
            addresses[f"jobmaster of job {job.id}"] = f"{parts.scheme}://{parts.netloc}"
    return addresses


async def taskmanagers(service: DispatcherService) -> dict[str, str]:
    """Addresses of TaskManagers, by name; none where the ResourceManager does not answer."""
    try:
        rows = (await service.coordinators.overview()).taskmanagers
    except RpcError:
        return {}
    return {f"taskmanager {row['id']}": str(row["path"]) for row in rows}


async def of_each(
    service: DispatcherService,
    addresses: Mapping[str, str],
    ask: Callable[[ProcessGateway], Awaitable[T]],
    timeout: float | None = None,
) -> dict[str, T | RpcError]:
    """The answers of processes, by their names; the error of a process that does not answer."""

    async def answer_of(address: str) -> T | RpcError:
        if not address:
            return RpcError("its address is not known")
        try:
            return await ask(process_at(service, address, timeout))
        except RpcError as error:
            return error

    answers = await asyncio.gather(*(answer_of(address) for address in addresses.values()))
    return dict(zip(addresses, answers, strict=True))


def process_at(service: DispatcherService, address: str, timeout: float | None = None) -> ProcessGateway:
    """Calls to the process with this address."""
    if timeout is None:
        return ProcessGateway(service.client, address + PREFIX)
    return ProcessGateway(service.client, address + PREFIX, timeout=timeout)


# -- the JobManager: this process and the coordinators beside it


async def jobmanager_threads(service: DispatcherService) -> list[t.ThreadInfo]:
    """What all threads of the JobManager do; names of threads of other processes begin with the process's name."""
    threads = [thread_info(thread) for thread in dump_threads()]
    for name, dump in (await _others(service)).items():
        if isinstance(dump, RpcError):
            threads.append({"threadName": name, "stringifiedThreadInfo": f"{name}: {dump}"})
            continue
        threads += [thread_info(thread, f"{name}: ") for thread in dump.threads]
    return threads


def thread_info(thread: Mapping[str, Any], prefix: str = "") -> t.ThreadInfo:
    """A thread as another process or this one describes it, with a prefix that says whose it is."""
    return {
        "threadName": f"{prefix}{thread['threadName']}",
        "stringifiedThreadInfo": f"{prefix}{thread['stringifiedThreadInfo']}",
    }


async def sample_jobmanager(service: DispatcherService, count: int, interval_ms: int) -> dict[str, Samples]:
    """Samples of the threads of the JobManager, by their names."""
    other_processes = [name for name, dump in (await _others(service)).items() if not isinstance(dump, RpcError)]
    addresses = {name: address for name, address in coordinators(service).items() if name in other_processes}
    message = m.SampleThreads(count, interval_ms)
    here, answers = await asyncio.gather(
        SAMPLES.call(sample, other_threads, count, interval_ms / 1000),
        of_each(service, addresses, lambda process: process.sample_threads(message)),
    )
    all_samples = {f"dispatcher: {name}" if other_processes else name: samples for name, samples in here.items()}
    for name, answer in answers.items():
        if not isinstance(answer, RpcError):
            all_samples |= {f"{name}: {thread}": Samples.from_plain(plain) for thread, plain in answer.subtasks.items()}
    return all_samples


async def _others(service: DispatcherService) -> dict[str, m.ThreadDump | RpcError]:
    """Dumps of the coordinators that are other processes than this one, each process once."""
    dumps = await of_each(service, coordinators(service), lambda process: process.dump_threads(), _PATIENCE)
    seen_processes = {process_name()}
    other_dumps: dict[str, m.ThreadDump | RpcError] = {}
    for name, dump in dumps.items():
        if isinstance(dump, RpcError) or dump.process not in seen_processes:
            other_dumps[name] = dump
        if not isinstance(dump, RpcError):
            seen_processes.add(dump.process)
    return other_dumps
