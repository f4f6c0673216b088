"""REST answers about the processes of the cluster: metrics, threads, logs, profiles of TaskManagers and JobManager."""

from __future__ import annotations

import asyncio
import base64
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol, cast

from aiohttp import web

from firesteel.core.call_pool import CallPool
from firesteel.core.errors import FiresteelError, RpcError
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import InspectionGateway
from firesteel.rest import metric_views
from firesteel.rest import types as t
from firesteel.rest.endpoints import RestCall
from firesteel.rest.picking import picked
from firesteel.service.measured import JOBMANAGER
from firesteel.service.middlewares import error_response
from firesteel.service.process_logs import LARGEST_PART, LogPiece, ProcessLogs
from firesteel.service.process_metrics import environment, process_values
from firesteel_dispatcher import processes
from firesteel_dispatcher.shell import DispatcherService
from firesteel_dispatcher.taskmanager_views import taskmanager_details, taskmanager_row, tasks_by_taskmanager

_TAIL_BYTES: Final = 1 << 20
"""In which the last lines of a log are looked for."""
_RANGE: Final = re.compile(r"bytes=(\d{1,18})?-(\d{1,18})?")
_PATIENCE: Final = 5.0
_LOGS: Final = CallPool("logs", deadline=20.0)


class UnknownTaskManagerError(FiresteelError):
    """There is no such TaskManager."""


# -- TaskManagers


async def taskmanagers(service: DispatcherService, _: RestCall) -> t.TaskManagers:
    cluster, tasks = await _what_runs(service)
    return {"taskmanagers": [taskmanager_row(found, tasks) for found in cluster.taskmanagers]}


async def taskmanager(service: DispatcherService, call: RestCall) -> t.TaskManagerDetails:
    """One TaskManager, with what it measures; without that where it does not answer."""
    cluster, tasks = await _what_runs(service)
    report = _find(cluster, call.path["taskmanager_id"])
    try:
        values = await _metrics_of(service, report)
    except RpcError:
        values = {}
    return taskmanager_details(report, tasks, values)


async def taskmanager_metrics(service: DispatcherService, call: RestCall) -> list[t.MetricValue]:
    """What a TaskManager measures of itself."""
    report = _find(await service.coordinators.overview(), call.path["taskmanager_id"])
    return metric_views.plain(await _metrics_of(service, report), call.given())


async def metrics_of_taskmanagers(service: DispatcherService, call: RestCall) -> list[t.AggregatedMetric]:
    """Aggregates over TaskManagers; those that do not answer are left out."""
    cluster = await service.coordinators.overview()
    chosen = call.query["taskmanagers"]
    ids = [row["id"] for row in cluster.taskmanagers] if chosen is None else metric_views.names(chosen)
    reports = [_find(cluster, taskmanager_id) for taskmanager_id in ids]
    answers = await asyncio.gather(*(_metrics_of(service, report) for report in reports), return_exceptions=True)
    values: list[Mapping[str, Any]] = []
    for answer in answers:
        if isinstance(answer, BaseException):
            if not isinstance(answer, RpcError):
                raise answer
        else:
            values.append(answer)
    return metric_views.aggregates(values, call.given())


async def taskmanager_threads(service: DispatcherService, call: RestCall) -> t.ThreadDumpInfo:
    """What all threads of a TaskManager and of its slots do."""
    gateway = await gateway_of(service, call.path["taskmanager_id"])
    return {"threadInfos": [processes.thread_info(thread) for thread in (await gateway.thread_dump()).threads]}


async def _what_runs(service: DispatcherService) -> tuple[m.ClusterOverview, Counter[tuple[str, str]]]:
    cluster = await service.coordinators.overview()
    return cluster, tasks_by_taskmanager(await service.jobs.details.of_running())


def _find(cluster: m.ClusterOverview, taskmanager_id: str) -> Mapping[str, Any]:
    for found in cluster.taskmanagers:
        if found["id"] == taskmanager_id:
            return found
    raise UnknownTaskManagerError(f"TaskManager {taskmanager_id[:80]!r} not found")


async def _metrics_of(service: DispatcherService, found: Mapping[str, Any]) -> Mapping[str, Any]:
    gateway = InspectionGateway(service.client, str(found["path"]), timeout=_PATIENCE)
    return (await gateway.process_metrics()).values


async def gateway_of(service: DispatcherService, taskmanager_id: str) -> InspectionGateway:
    """Calls that look at a TaskManager.

    Raises:
        UnknownTaskManagerError: there is no such one.
        RpcError: the ResourceManager does not answer.
    """
    return InspectionGateway(service.client, await address_of(service, taskmanager_id), timeout=_PATIENCE)


async def address_of(service: DispatcherService, taskmanager_id: str) -> str:
    """Where a TaskManager is.

    Raises:
        UnknownTaskManagerError, RpcError: see ``gateway_of``.
    """
    return str(_find(await service.coordinators.overview(), taskmanager_id)["path"])


# -- JobManager: this process, and what it knows of the others that make it up


async def jobmanager_config(service: DispatcherService, call: RestCall) -> list[t.Setting]:
    """All settings of the cluster that somebody has made; secrets are stars."""
    for part in ("job_id", "application_id"):
        if part in call.path:
            service.core.job(call.path[part])
    return [{"key": key, "value": value} for key, value in sorted(service.cluster_settings.to_shown().items())]


async def jobmanager_environment(service: DispatcherService, call: RestCall) -> t.Environment:
    """What this process runs on."""
    if "job_id" in call.path:
        service.core.job(call.job_id)
    return cast(t.Environment, environment())


async def jobmanager_metrics(service: DispatcherService, call: RestCall) -> list[t.MetricValue]:
    """What this process measures, and the cluster's slots."""
    values = process_values(await service.measured_of_process(), JOBMANAGER)
    values["numRunningJobs"] = sum(not job.ended for job in service.core.jobs.values())
    try:
        cluster = await service.coordinators.overview()
    except RpcError:
        pass
    else:
        values["numRegisteredTaskManagers"] = len(cluster.taskmanagers)
        values["taskSlotsTotal"] = cluster.slots_total
        values["taskSlotsAvailable"] = cluster.slots_available
    return metric_views.plain(values, call.given())


async def jobmanager_threads(service: DispatcherService, _: RestCall) -> t.ThreadDumpInfo:
    """What all threads of the processes that make up the JobManager do."""
    return {"threadInfos": await processes.jobmanager_threads(service)}


# -- logs


class LogSource(Protocol):
    """Where logs are read from."""

    async def listed(self) -> tuple[list[t.LogFile], str, str]:
        """All, and the names of the main one and of that with the standard output; empty = there is none."""

    async def read(self, name: str, offset: int, length: int) -> LogPiece:
        """A piece; raises ``UnknownLogError``."""


@dataclass(frozen=True)
class _Here:
    logs: ProcessLogs

    async def listed(self) -> tuple[list[t.LogFile], str, str]:
        logs = await _LOGS.call(self.logs.listed)
        return [picked(t.LogFile, asdict(log)) for log in logs], self.logs.main, self.logs.stdout

    async def read(self, name: str, offset: int, length: int) -> LogPiece:
        return await _LOGS.call(self.logs.read, name, offset, length)


@dataclass(frozen=True)
class _There:
    gateway: InspectionGateway

    async def listed(self) -> tuple[list[t.LogFile], str, str]:
        found = await self.gateway.list_logs()
        return [picked(t.LogFile, log) for log in found.logs], found.main, found.stdout

    async def read(self, name: str, offset: int, length: int) -> LogPiece:
        found = await self.gateway.read_log(m.ReadLog(name, offset, length))
        return LogPiece(found.size, found.offset, base64.b64decode(found.data))


async def _source(service: DispatcherService, call: RestCall) -> LogSource:
    if "taskmanager_id" in call.path:
        return _There(await gateway_of(service, call.path["taskmanager_id"]))
    return _Here(service.diagnostics.logs)


async def log_list(service: DispatcherService, call: RestCall) -> t.LogListInfo:
    return {"logs": (await (await _source(service, call)).listed())[0]}


async def log_file(service: DispatcherService, call: RestCall) -> web.StreamResponse:
    return await _text(call, await _source(service, call), call.path["filename"])


async def main_log(service: DispatcherService, call: RestCall) -> web.StreamResponse:
    """The log of a process."""
    source = await _source(service, call)
    _, name, _ = await source.listed()
    if not name:
        return error_response(404, "This process has no log of its own: an embedded cluster logs as its program does.")
    return await _text(call, source, name)


async def standard_output(service: DispatcherService, call: RestCall) -> web.StreamResponse:
    """What a process has printed. Of a TaskManager without such a file: what its slots have printed."""
    source = await _source(service, call)
    logs, _, name = await source.listed()
    if name:
        return await _text(call, source, name)
    slots = [str(one["name"]) for one in logs if re.fullmatch(r"slot-\d+\.out", str(one["name"]))]
    if not slots:
        return error_response(404, "The standard output of this process goes to no file: see where it was started.")
    parts = [f"== {one} ==\n".encode() + (await source.read(one, -_TAIL_BYTES, _TAIL_BYTES)).data for one in slots]
    return web.Response(body=b"".join(parts), content_type="text/plain", charset="utf-8")


async def _text(call: RestCall, source: LogSource, name: str) -> web.StreamResponse:
    if call.query["tail"] is not None:
        part = await source.read(name, -_TAIL_BYTES, _TAIL_BYTES)
        lines = part.data.splitlines(keepends=True)[-call.query["tail"] :] if call.query["tail"] else []
        return web.Response(body=b"".join(lines), content_type="text/plain", charset="utf-8")
    start, end, wanted = 0, None, call.request.headers.get("Range")
    if wanted is not None and (found := _RANGE.fullmatch(wanted.strip())) and (found[1] or found[2]):
        start, end = (int(found[1]), int(found[2]) if found[2] else None) if found[1] else (-int(found[2]), None)
    else:
        wanted = None
    part = await source.read(name, start, LARGEST_PART)
    if wanted is not None and (start >= part.size or (end is not None and end < start)):
        refusal = error_response(416, f"the log {name} has {part.size} bytes")
        refusal.headers["Content-Range"] = f"bytes */{part.size}"
        return refusal
    last = part.size if end is None else min(part.size, end + 1)
    answer = web.StreamResponse(status=206 if wanted is not None else 200)
    answer.content_type, answer.charset = "text/plain", "utf-8"
    answer.headers["Accept-Ranges"] = "bytes"
    if wanted is not None:
        answer.headers["Content-Range"] = f"bytes {part.offset}-{last - 1}/{part.size}"
    answer.content_length = max(0, last - part.offset)
    await answer.prepare(call.request)
    await _stream(answer, source, name, part, last)
    await answer.write_eof()
    return answer


async def _stream(answer: web.StreamResponse, source: LogSource, name: str, part: LogPiece, last: int) -> None:
    """As much as was promised; where a log was rotated away meanwhile the answer breaks off."""
    at = part.offset
    while at < last:
        data = part.data[: last - at]
        if not data or part.offset != at:
            raise ConnectionResetError(f"the log {name} was rotated while it was read")
        await answer.write(data)
        at += len(data)
        if at < last:
            part = await source.read(name, at, LARGEST_PART)


async def log_url(service: DispatcherService, call: RestCall) -> t.LogUrl:
    """Where a log is."""
    service.core.job(call.job_id)
    if "taskmanager_id" in call.path:
        return {"url": f"{service.rest.address}/taskmanagers/{call.path['taskmanager_id']}/log"}
    return {"url": f"{service.rest.address}/jobmanager/log"}
