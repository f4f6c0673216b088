"""REST answers about jobs, and requests that change them."""

from __future__ import annotations

import base64
import math
from pathlib import Path
from typing import cast

from aiohttp import web

from firesteel.core.errors import ConfigurationError
from firesteel.graph.chaining import client_versions
from firesteel.rest import checkpoint_types as c
from firesteel.rest import checkpoint_views, metric_views, views
from firesteel.rest import types as t
from firesteel.rest.application_views import application_details, application_exceptions, application_row
from firesteel.rest.archive_cache import Archive
from firesteel.rest.endpoints import RestCall
from firesteel.rest.rescale_views import require
from firesteel.service.middlewares import error_response
from firesteel_dispatcher.answers import not_stored
from firesteel_dispatcher.application import Application
from firesteel_dispatcher.audit import caller_text
from firesteel_dispatcher.checkpoint_requests import read_savepoint, read_stop, read_trigger
from firesteel_dispatcher.job import UnknownJobError
from firesteel_dispatcher.shell import DispatcherService
from firesteel_dispatcher.submission import read_submission

# -- reading


async def jobs(service: DispatcherService, _: RestCall) -> t.Jobs:
    return {"jobs": [{"id": job.id, "status": cast(t.JobState, job.state)} for job in service.core.jobs.values()]}


async def overview(service: DispatcherService, call: RestCall) -> t.JobsOverview:
    """All jobs; with ``history``, the running ones have the rates of the last minutes."""
    rows = await service.jobs.details.overviews()
    if not call.query["history"]:
        return {"jobs": rows}
    sparkline = service.diagnostics.metric_history.sparkline
    return {
        "jobs": [
            {**row, "firesteel-health": {**row["firesteel-health"], "records-in-history": sparkline(row["jid"])}}
            if row["end-time"] < 0 and "firesteel-health" in row
            else row
            for row in rows
        ]
    }


async def applications(service: DispatcherService, _: RestCall) -> t.ApplicationsOverview:
    """Programs with their jobs; a job that no program of the cluster has submitted is an application by itself."""
    grouped: dict[str, list[t.JobRow]] = {id_: [] for id_ in service.applications.known}
    for overview in await service.jobs.details.overviews():
        grouped.setdefault(service.applications.of_job(overview["jid"]), []).append(overview)
    now, programs = service.clock.epoch_ms(), service.applications.known
    return {"applications": [application_row(id_, programs.get(id_), jobs, now) for id_, jobs in grouped.items()]}


async def application(service: DispatcherService, call: RestCall) -> t.ApplicationDetails:
    application, archives = await _application(service, call)
    rows = [views.job_overview(archive) for archive in archives]
    application_id = call.path["application_id"]
    return application_details(application_id, application, rows, archives, service.clock.epoch_ms())


async def application_failures(service: DispatcherService, call: RestCall) -> t.ApplicationExceptions:
    return application_exceptions(*await _application(service, call))


async def _application(service: DispatcherService, call: RestCall) -> tuple[Application | None, list[Archive]]:
    """The program of an application, if it is known, and the archives of its jobs.

    Raises:
        UnknownJobError: the cluster knows no such application.
    """
    application_id = call.path["application_id"]
    application = service.applications.known.get(application_id)
    jobs = service.applications.jobs_of(application_id)
    if application is None and not jobs:
        raise UnknownJobError(f"Application {application_id} not found")
    archives: list[Archive] = []
    for job_id in jobs:
        try:
            archives.append(await service.archive_of(job_id))
        except UnknownJobError:  # it was forgotten just now
            continue
    return application, archives


async def status(service: DispatcherService, call: RestCall) -> t.JobStatusInfo:
    return {"status": cast(t.JobState, service.core.job(call.job_id).state)}


async def metric_history(service: DispatcherService, call: RestCall) -> t.MetricHistoryInfo:
    """Metrics of a job, or of a vertex, over the last hour."""
    job = service.core.job(call.job_id)
    return service.diagnostics.metric_history.of(job.id, call.query["vertex"], call.query["since"])


async def metrics_of_jobs(service: DispatcherService, call: RestCall) -> list[t.AggregatedMetric]:
    """Aggregates over several jobs."""
    job_ids = metric_views.names(call.query["jobs"]) if call.query["jobs"] is not None else list(service.core.jobs)
    values = [views.job_values(await service.archive_of(job_id)) for job_id in job_ids]
    return metric_views.aggregates(values, call.given())


async def execution_result(service: DispatcherService, call: RestCall) -> t.ExecutionResult:
    """How a job ended; waits for that as long as ``wait-ms`` says."""
    job = await service.jobs.news.ended(call.job_id, call.query["wait-ms"] / 1000)
    if not job.ended:
        return {"status": {"id": "IN_PROGRESS"}}
    return views.execution_result(await service.archive_of(job.id))


async def collect(service: DispatcherService, call: RestCall) -> web.Response:
    """Results of a collect operator, as a pickled list."""
    query = call.query
    results = await service.jobs.collect(
        call.job_id, call.path["operator_id"], query["offset"], query["max-bytes"], query["wait-ms"]
    )
    headers = {
        "X-Firesteel-Offset": str(results.offset),
        "X-Firesteel-Count": str(results.count),
        "X-Firesteel-End": "true" if results.end else "false",
        "X-Firesteel-State": results.state,
    }
    data = base64.b64decode(results.data)
    return web.Response(body=data, content_type="application/octet-stream", headers=headers)


async def coordinate(service: DispatcherService, call: RestCall) -> t.CoordinationResult:
    """A request of Flink's Java client to an operator coordinator."""
    service.core.job(call.job_id)
    raise ConfigurationError(
        "serializedCoordinationRequest: requests to operator coordinators are objects of Java, which nobody here can "
        "read; results of a collect operator are at GET /jobs/:jobid/collect/:operatorUid"
    )


# -- changing


def _asked_by(service: DispatcherService, call: RestCall) -> str:
    """Who makes a request, and from where, as the audit log names them."""
    return caller_text(call.request, service.rest.access.caller(call.request))


async def cancel(service: DispatcherService, call: RestCall) -> t.EmptyResponse | web.Response:
    mode = call.query.get("mode", "cancel")
    if mode != "cancel":
        return error_response(308, "Only mode=cancel is possible: to stop a job is POST /jobs/:jobid/stop in Flink.")
    await service.jobs.cancel(call.job_id, _asked_by(service, call))
    return {}


async def cancel_application(service: DispatcherService, call: RestCall) -> t.EmptyResponse:
    """Cancel an application with its jobs."""
    await service.applications.cancel(call.path["application_id"], _asked_by(service, call))
    return {}


async def stop_of_old(service: DispatcherService, call: RestCall) -> web.Response:
    """Answer as Flink does since it removed this path."""
    service.core.job(call.job_id)
    return error_response(308, "This way to stop a job was removed in Flink: use POST /jobs/:jobid/stop.")


async def trigger_checkpoint(service: DispatcherService, call: RestCall) -> t.TriggerResponse:
    """Take a checkpoint now."""
    trigger_id, full = read_trigger(call.body)
    await service.jobs.trigger_checkpoint(call.job_id, trigger_id, full, _asked_by(service, call))
    return {"request-id": trigger_id}


async def checkpoint_status(service: DispatcherService, call: RestCall) -> c.CheckpointStatus:
    """The state of a triggered checkpoint."""
    service.jobs.details.outdated(call.job_id)
    return checkpoint_views.trigger_status(await service.archive_of(call.job_id), call.given())


async def trigger_savepoint(service: DispatcherService, call: RestCall) -> t.TriggerResponse:
    """Take a savepoint now."""
    savepoint = read_savepoint(call.body)
    await service.jobs.trigger_savepoint(call.job_id, savepoint, _asked_by(service, call))
    return {"request-id": savepoint.trigger_id}


async def stop(service: DispatcherService, call: RestCall) -> t.TriggerResponse:
    """Stop a job with a savepoint."""
    savepoint = read_stop(call.body)
    await service.jobs.trigger_savepoint(call.job_id, savepoint, _asked_by(service, call))
    return {"request-id": savepoint.trigger_id}


async def savepoint_status(service: DispatcherService, call: RestCall) -> c.SavepointStatus:
    """The state of a triggered savepoint, or of a stop."""
    service.jobs.details.outdated(call.job_id)
    return checkpoint_views.savepoint_status(await service.archive_of(call.job_id), call.given())


async def set_requirements(service: DispatcherService, call: RestCall) -> t.EmptyResponse:
    """Set the bounds of the parallelism."""
    return require(await service.archive_of(call.job_id), call.body)


async def rescaling(service: DispatcherService, call: RestCall) -> web.Response:
    """Answer as Flink does, which has switched this path off."""
    service.core.job(call.job_id)
    return error_response(503, "Rescaling is temporarily disabled, as in Flink. See PUT resource-requirements.")


async def client_heartbeat(service: DispatcherService, call: RestCall) -> t.EmptyResponse:
    """Take a sign of life of a job's client."""
    expires = call.body["expiredTimestamp"]
    if not math.isfinite(expires):
        raise ConfigurationError("expiredTimestamp has to be milliseconds since 1970")
    now = service.jobs.now()
    service.core.client_alive(call.job_id, (expires - now.epoch_ms) / 1000, now)
    return {}


async def submit(service: DispatcherService, call: RestCall) -> t.Submitted | web.Response:
    """Submit a job: it is stored when this answers."""
    request = call.request
    received: Path | None = None
    traces, job = service.jobs.admission.traces, ("", "")
    trace = traces.begin(request.headers.get("traceparent"))
    try:
        received = await service.leadership.on_disk(service.leadership.store.receive)
        limit = service.settings.max_content_length
        submission = await read_submission(request, received, client_versions(), limit)
        job = submission.graph.job_id, submission.graph.name
        traces.step(trace, "Upload")
        await service.jobs.admission.submit(submission, received, trace, _asked_by(service, call))
        traces.ended(trace, *job)
    except OSError as error:
        traces.ended(trace, *job, error=str(error))
        return not_stored(error, service.leadership.store.where)
    except Exception as error:
        traces.ended(trace, *job, error=f"{type(error).__name__}: {error}")
        raise
    finally:
        if received is not None and received.exists():
            await service.leadership.on_disk(service.leadership.store.drop, received)
    return {"jobUrl": f"/jobs/{submission.graph.job_id}"}
