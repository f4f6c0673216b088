"""``/jobs/:jobid/logs``: what all processes have logged about a job, in order of time."""

from __future__ import annotations

from typing import Final

from firesteel.core.errors import RpcError
from firesteel.core.log_levels import level_number
from firesteel.graph.job_archive import TASKMANAGERS
from firesteel.protocol import messages as m
from firesteel.rest import types as t
from firesteel.rest.endpoints import RestCall
from firesteel.rest.picking import picked
from firesteel.rest.views import job_exceptions
from firesteel.rpc.process_calls import LOGS
from firesteel.service.job_log import job_log, merged
from firesteel_dispatcher.processes import coordinators, of_each
from firesteel_dispatcher.shell import DispatcherService

JOBMANAGER: Final = "jobmanager"
_PATIENCE: Final = 10.0
"""Seconds within which a process has to answer; one that does not is named, and the others are shown."""
_MOST_FAILURES: Final = 100
"""Failures that are looked through for TaskManagers which have gone."""


async def show(service: DispatcherService, call: RestCall) -> t.JobLogInfo:
    """Records of a job in the logs of the JobManager, its JobMaster and all TaskManagers.

    Raises:
        ConfigurationError: there is no such level.
    """
    job = service.core.job(call.job_id)
    query = call.query
    if query["level"]:
        level_number(query["level"])
    request = m.ReadJobLog(job.id, query["since"], query["until"], query["level"], query["text"], query["limit"])
    now = service.clock.epoch_ms()
    sources: list[t.LogSourceInfo] = []
    addresses: dict[str, str] = {}
    local_names = {log.name for log in await LOGS.call(service.diagnostics.logs.listed)}
    jobmaster = coordinators(service).get(f"jobmaster of job {job.id}")
    if jobmaster is not None and not any(job.id in name for name in local_names):
        addresses["jobmaster"] = jobmaster
    try:
        rows = (await service.coordinators.overview()).taskmanagers
    except RpcError as error:
        sources.append({"source": "taskmanagers", "error": f"the ResourceManager does not tell of them: {error}"})
    else:
        addresses |= {str(row["id"]): str(row["path"]) for row in rows}
        sources += [
            {"source": name, "error": "this TaskManager has gone, and its log is where it ran"}
            for name in sorted(await _former_taskmanagers(service, job.id) - {str(row["id"]) for row in rows})
        ]
    parts: dict[str, m.JobLog] = {JOBMANAGER: await LOGS.call(job_log, service.diagnostics.logs, request)}
    answers = await of_each(service, addresses, lambda process: process.job_log(request), _PATIENCE)
    sources.append({"source": JOBMANAGER})
    for name, answer in answers.items():
        if isinstance(answer, RpcError):
            sources.append({"source": name, "error": str(answer)})
        else:
            sources.append({"source": name})
            parts[name] = answer
    named = [
        m.JobLog(tuple({**record, "source": name} for record in part.records), part.complete_to)
        for name, part in parts.items()
    ]
    whole = merged(named, request.since >= 0, request.limit)
    return {
        "records": [picked(t.JobLogRecord, record) for record in whole.records],
        "complete-to": whole.complete_to,
        "now": now,
        "sources": sources,
    }


async def _former_taskmanagers(service: DispatcherService, job_id: str) -> set[str]:
    """TaskManagers that run the job or have seen one of its last failures."""
    archive = await service.archive_of(job_id)
    entries = job_exceptions(archive, _MOST_FAILURES)["exceptionHistory"]["entries"]
    names = set(archive.get(TASKMANAGERS, {})) | {str(entry.get("taskManagerId") or "") for entry in entries}
    return names - {"", "(unassigned)"}
