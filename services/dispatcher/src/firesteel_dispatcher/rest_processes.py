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

from firesteel.core.errors import FiresteelError, RpcError
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import InspectionGateway
from firesteel.rest import metric_views
from firesteel.rest import types as t
from firesteel.rest.endpoints import RestCall
from firesteel.rest.picking import picked
from firesteel.rpc.process_calls import LOGS
from firesteel.service.measured import JOBMANAGER
from firesteel.service.middlewares import error_response
from firesteel.service.process_logs import LARGEST_PART, LogPiece, ProcessLogs
from firesteel.service.process_metrics import environment, process_values
from firesteel_dispatcher import processes
from firesteel_dispatcher.shell import DispatcherService
from firesteel_dispatcher.taskmanager_views import taskmanager_details, taskmanager_row, tasks_by_taskmanager

_TAIL_BYTES: Final = 1 << 20
"""Bytes at the end of a log that are searched for its last lines."""
_RANGE: Final = re.compile(r"bytes=(\d{1,18})?-(\d{1,18})?")
_PATIENCE: Final = 5.0


class UnknownTaskManagerError(FiresteelError):
    """No TaskManager has this id."""


# -- TaskManagers


async def taskmanagers(service: DispatcherService, _: RestCall) -> t.TaskManagers:
    cluster, tasks = await _what_runs(service)
    return {"taskmanagers": [taskmanager_row(report, tasks) for report in cluster.taskmanagers]}


async def taskmanager(service: DispatcherService, call: RestCall) -> t.TaskManagerDetails:
    """One TaskManager with its metrics; without metrics where it does not answer."""
    cluster, tasks = await _what_runs(service)
    report = _find(cluster, call.path["taskmanager_id"])
    try:
        metrics = await _metrics_of(service, report)
    except RpcError:
        return taskmanager_details(report, tasks)
    return taskmanager_details(report, tasks, metrics.values, metrics.slots)


async def taskmanager_metrics(service: DispatcherService, call: RestCall) -> list[t.MetricValue]:
    """What a TaskManager measures of itself."""
    report = _find(await service.coordinators.overview(), call.path["taskmanager_id"])
    return metric_views.plain((await _metrics_of(service, report)).values, call.given())


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
            values.append(answer.values)
    return metric_views.aggregates(values, call.given())


async def taskmanager_threads(service: DispatcherService, call: RestCall) -> t.ThreadDumpInfo:
    """What all threads of a TaskManager and of its slots do."""
    gateway = await gateway_of(service, call.path["taskmanager_id"])
    return {"threadInfos": [processes.thread_info(thread) for thread in (await gateway.thread_dump()).threads]}


async def _what_runs(service: DispatcherService) -> tuple[m.ClusterOverview, Counter[tuple[str, str]]]:
    cluster = await service.coordinators.overview()
    return cluster, tasks_by_taskmanager(await service.jobs.details.of_running())


def _find(cluster: m.ClusterOverview, taskmanager_id: str) -> Mapping[str, Any]:
    for row in cluster.taskmanagers:
        if row["id"] == taskmanager_id:
            return row
    raise UnknownTaskManagerError(f"TaskManager {taskmanager_id[:80]!r} not found")


async def _metrics_of(service: DispatcherService, row: Mapping[str, Any]) -> m.ProcessMetrics:
    gateway = InspectionGateway(service.client, str(row["path"]), timeout=_PATIENCE)
    return await gateway.process_metrics()


async def gateway_of(service: DispatcherService, taskmanager_id: str) -> InspectionGateway:
    """Calls that inspect a TaskManager.

    Raises:
        UnknownTaskManagerError: no TaskManager has this id.
        RpcError: the ResourceManager does not answer.
    """
    return InspectionGateway(service.client, await address_of(service, taskmanager_id), timeout=_PATIENCE)


async def address_of(service: DispatcherService, taskmanager_id: str) -> str:
    """The address of a TaskManager.

    Raises:
        UnknownTaskManagerError, RpcError: see ``gateway_of``.
    """
    return str(_find(await service.coordinators.overview(), taskmanager_id)["path"])


# -- JobManager: this process, and the coordinators beside it


async def jobmanager_config(service: DispatcherService, call: RestCall) -> list[t.Setting]:
    """All settings of the cluster that are set; secrets are shown as stars."""
    for part in ("job_id", "application_id"):
        if part in call.path:
            service.core.job(call.path[part])
    return [{"key": key, "value": value} for key, value in sorted(service.cluster_settings.to_shown().items())]


async def jobmanager_environment(service: DispatcherService, call: RestCall) -> t.Environment:
    """The machine and the Python that this process runs on."""
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
    """A process whose logs are read."""

    async def listed(self) -> tuple[list[t.LogFile], str, str]:
        """All logs, and the names of the main log and of the standard output; empty = there is none."""

    async def read(self, name: str, offset: int, length: int) -> LogPiece:
        """A piece of a log; raises ``UnknownLogError``."""


@dataclass(frozen=True)
class _LocalLogs:
    logs: ProcessLogs

    async def listed(self) -> tuple[list[t.LogFile], str, str]:
        logs = await LOGS.call(self.logs.listed)
        return [picked(t.LogFile, asdict(log)) for log in logs], self.logs.main, self.logs.stdout

    async def read(self, name: str, offset: int, length: int) -> LogPiece:
        return await LOGS.call(self.logs.read, name, offset, length)


@dataclass(frozen=True)
class _TaskManagerLogs:
    gateway: InspectionGateway

    async def listed(self) -> tuple[list[t.LogFile], str, str]:
        answer = await self.gateway.list_logs()
        return [picked(t.LogFile, log) for log in answer.logs], answer.main, answer.stdout

    async def read(self, name: str, offset: int, length: int) -> LogPiece:
        answer = await self.gateway.read_log(m.ReadLog(name, offset, length))
        return LogPiece(answer.size, answer.offset, base64.b64decode(answer.data))


async def _source(service: DispatcherService, call: RestCall) -> LogSource:
    if "taskmanager_id" in call.path:
        return _TaskManagerLogs(await gateway_of(service, call.path["taskmanager_id"]))
    return _LocalLogs(service.diagnostics.logs)


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
    slots = [str(log["name"]) for log in logs if re.fullmatch(r"slot-\d+\.out", str(log["name"]))]
    if not slots:
        return error_response(404, "The standard output of this process goes to no file: see where it was started.")
    parts = [f"== {log} ==\n".encode() + (await source.read(log, -_TAIL_BYTES, _TAIL_BYTES)).data for log in slots]
    return web.Response(body=b"".join(parts), content_type="text/plain", charset="utf-8")


async def _text(call: RestCall, source: LogSource, name: str) -> web.StreamResponse:
    if call.query["tail"] is not None:
        part = await source.read(name, -_TAIL_BYTES, _TAIL_BYTES)
        lines = part.data.splitlines(keepends=True)[-call.query["tail"] :] if call.query["tail"] else []
        return web.Response(body=b"".join(lines), content_type="text/plain", charset="utf-8")
    start, end = 0, None
    byte_range = _RANGE.fullmatch(call.request.headers.get("Range", "").strip())
    is_partial = byte_range is not None and any(byte_range.groups())
    if byte_range is not None and is_partial:
        first_byte, last_byte = byte_range.groups()
        # Without a first byte, the number is a length: so many bytes at the end of the log.
        start, end = (int(first_byte), int(last_byte) if last_byte else None) if first_byte else (-int(last_byte), None)
    part = await source.read(name, start, LARGEST_PART)
    if is_partial and (start >= part.size or (end is not None and end < start)):
        refusal = error_response(416, f"the log {name} has {part.size} bytes")
        refusal.headers["Content-Range"] = f"bytes */{part.size}"
        return refusal
    last = part.size if end is None else min(part.size, end + 1)
    answer = web.StreamResponse(status=206 if is_partial else 200)
    answer.content_type, answer.charset = "text/plain", "utf-8"
    answer.headers["Accept-Ranges"] = "bytes"
    if is_partial:
        answer.headers["Content-Range"] = f"bytes {part.offset}-{last - 1}/{part.size}"
    answer.content_length = max(0, last - part.offset)
    await answer.prepare(call.request)
    await _stream(answer, source, name, part, last)
    await answer.write_eof()
    return answer


async def _stream(answer: web.StreamResponse, source: LogSource, name: str, part: LogPiece, last: int) -> None:
    """Write the promised bytes; the answer breaks off where the log is rotated away meanwhile."""
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
    """The URL of a log."""
    service.core.job(call.job_id)
    if "taskmanager_id" in call.path:
        return {"url": f"{service.rest.address}/taskmanagers/{call.path['taskmanager_id']}/log"}
    return {"url": f"{service.rest.address}/jobmanager/log"}
