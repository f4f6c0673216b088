"""The paths of the history server: those of the Dispatcher that need only archives of jobs, and the dashboard."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final, cast
from urllib.parse import quote

from aiohttp import web

import firesteel
from firesteel.core import plugins
from firesteel.core.errors import ConfigurationError, UnauthorizedError
from firesteel.graph.job_archive import HISTORY, LOGS
from firesteel.ha.documents import DamagedEntryError
from firesteel.rest import types as t
from firesteel.rest import views
from firesteel.rest.application_views import application_details, application_exceptions, application_row
from firesteel.rest.archive_cache import Archive
from firesteel.rest.checkpoint_views import NoCheckpointsError
from firesteel.rest.endpoints import Endpoint, Parameter, RestCall, get
from firesteel.rest.job_endpoints import (
    CHECKPOINT_ENDPOINTS,
    JOB,
    JOB_ENDPOINTS,
    RESCALE_ENDPOINTS,
    STATE_ENDPOINTS,
    VERTEX_ENDPOINTS,
    of_job,
)
from firesteel.rest.rescale_views import UnknownRescaleError
from firesteel.service.middlewares import error_response
from firesteel_historyserver.core import counts
from firesteel_historyserver.shell import HistoryService, UnknownArchiveError

logger = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
FLINK_VERSION: Final = "2.3.0"
_APPLICATION: Final = "/applications/{application_id}"
_PAGE: Final = """<!doctype html><title>Firesteel history</title><h1>Firesteel {version}: jobs that have ended</h1>
<p><a href="/jobs/overview">/jobs/overview</a>, <a href="/config">/config</a>.</p>
"""
_UNKNOWN: Final = (UnknownArchiveError, views.UnknownVertexError, NoCheckpointsError, UnknownRescaleError)


# -- handlers


async def config(service: HistoryService, _: RestCall) -> t.DashboardConfiguration:
    local = time.localtime()
    return {
        "refresh-interval": service.settings.web_refresh_ms,
        "timezone-name": time.tzname[local.tm_isdst],
        "timezone-offset": local.tm_gmtoff * 1000,
        "flink-version": FLINK_VERSION,
        "flink-revision": "firesteel",
        "features": {"web-submit": False, "web-cancel": False, "web-rescale": False, "web-history": True},
        "firesteel-version": firesteel.__version__,
    }


async def overview(service: HistoryService, _: RestCall) -> t.ClusterOverview:
    """Numbers of jobs; there are no TaskManagers."""
    return {
        "taskmanagers": 0,
        "slots-total": 0,
        "slots-available": 0,
        **counts(service.core.overviews()),
        "flink-version": FLINK_VERSION,
        "flink-commit": "firesteel",
        "firesteel-version": firesteel.__version__,
    }


async def taskmanagers(_: HistoryService, __: RestCall) -> t.TaskManagers:
    return {"taskmanagers": []}


async def jobs(service: HistoryService, _: RestCall) -> t.Jobs:
    return {"jobs": [{"id": row["jid"], "status": row["state"]} for row in service.core.overviews()]}


async def job_overviews(service: HistoryService, _: RestCall) -> t.JobsOverview:
    return {"jobs": service.core.overviews()}


async def applications(service: HistoryService, _: RestCall) -> t.ApplicationsOverview:
    """Applications by their jobs, since failures of ``main()`` itself are not archived."""
    now = service.clock.epoch_ms()
    rows = service.core.applications().items()
    return {"applications": [application_row(application_id, None, jobs, now) for application_id, jobs in rows]}


async def application(service: HistoryService, call: RestCall) -> t.ApplicationDetails:
    jobs = _jobs_of(service, call)
    archives = [await service.archive_of(job["jid"]) for job in jobs]
    return application_details(call.path["application_id"], None, jobs, archives, service.clock.epoch_ms())


async def application_failures(service: HistoryService, call: RestCall) -> t.ApplicationExceptions:
    """Failures that ended the jobs of an application."""
    return application_exceptions(None, [await service.archive_of(job["jid"]) for job in _jobs_of(service, call)])


def _jobs_of(service: HistoryService, call: RestCall) -> list[t.JobRow]:
    jobs = service.core.applications().get(call.path["application_id"])
    if jobs is None:
        raise UnknownArchiveError(f"Application {call.path['application_id']} not found")
    return jobs


def job_status(archive: Archive) -> t.JobStatusInfo:
    return {"status": archive["state"]}


def jobmanager_environment(archive: Archive) -> t.Environment:
    return cast(t.Environment, archive[HISTORY]["environment"])


def jobmanager_config(archive: Archive) -> list[t.Setting]:
    return [{"key": key, "value": value} for key, value in sorted(archive[HISTORY]["config"].items())]


async def jobmanager_log(service: HistoryService, call: RestCall) -> t.LogUrl | web.Response:
    """The URL of the JobMaster's log: from the configured pattern, else that of the file."""
    logs = (await service.archive_of(call.job_id)).get(LOGS) or {}
    pattern = service.settings.jobmanager_logs
    if pattern:
        return {"url": pattern.replace("<jobid>", call.job_id)}
    if not logs.get("jobmaster"):
        return error_response(404, f"The archive of job {call.job_id} does not say where its log is.")
    return {"url": f"file://{logs.get('host', '')}{quote(logs['jobmaster'])}"}


async def taskmanager_log(service: HistoryService, call: RestCall) -> t.LogUrl | web.Response:
    """The URL of a TaskManager's log, from the configured pattern."""
    await service.archive_of(call.job_id)
    pattern = service.settings.taskmanager_logs
    if not pattern:
        return error_response(404, "historyserver.log.taskmanager.url-pattern is not set.")
    taskmanager_id = quote(call.path["taskmanager_id"], safe="")
    return {"url": pattern.replace("<jobid>", call.job_id).replace("<tmid>", taskmanager_id)}


ENDPOINTS: Final = (
    get("/config", config, "what kind of service this is"),
    get("/overview", overview, "counters of jobs"),
    get("/jobs", jobs, "ids and states of jobs"),
    get("/jobs/overview", job_overviews, "all jobs with counts of their tasks"),
    get("/taskmanagers", taskmanagers, "none"),
    get("/applications/overview", applications, "all applications: programs with their jobs, and single jobs"),
    get(_APPLICATION, application, "an application with its jobs"),
    get(f"{_APPLICATION}/exceptions", application_failures, "what ended its jobs"),
    *JOB_ENDPOINTS,
    get(f"{JOB}/status", of_job(job_status), "state of a job"),
    get(
        f"{JOB}/execution-result", of_job(views.execution_result), "how a job ended",
        Parameter("wait-ms", "without effect: the job has ended", "number", 0, most=60_000),
    ),
    get(f"{JOB}/jobmanager/environment", of_job(jobmanager_environment), "what its cluster ran on"),
    get(f"{JOB}/jobmanager/config", of_job(jobmanager_config), "settings of its cluster"),
    get(f"{JOB}/jobmanager/log-url", jobmanager_log, "where the JobMaster's log is"),
    get(f"{JOB}/taskmanagers/{{taskmanager_id}}/log-url", taskmanager_log, "where a TaskManager's log is"),
    *CHECKPOINT_ENDPOINTS,
    *STATE_ENDPOINTS,
    *RESCALE_ENDPOINTS,
    *VERTEX_ENDPOINTS,
)  # fmt: skip
"""Endpoints in the order in which paths are tried: those with fixed parts stand before those with variable ones."""


# -- routes


def history_routes(service: HistoryService) -> list[web.RouteDef]:
    """All routes, bare and below ``/v1``, and the dashboard's files, where its package is installed."""
    return [
        *_pages(),
        *(
            web.get(prefix + endpoint.path, _route_handler(service, endpoint), allow_head=False)
            for endpoint in ENDPOINTS
            for prefix in ("", "/v1")
        ),
    ]


def _pages() -> list[web.RouteDef]:
    try:
        pages: list[web.RouteDef] = plugins.load("firesteel.dashboards", "dashboard")()
    except ConfigurationError as error:
        logger.info("there is no dashboard here: %s", error)
        return [web.get("/", _page, allow_head=False)]
    return pages


async def _page(_: web.Request) -> web.StreamResponse:
    """A page with links to the REST API, where there is no dashboard."""
    return web.Response(text=_PAGE.format(version=firesteel.__version__), content_type="text/html")


def _route_handler(service: HistoryService, endpoint: Endpoint) -> Handler:
    """A handler of an endpoint that checks the caller, and turns errors into answers."""

    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            if service.access.all_paths:
                service.access.check(request)
            return await endpoint.respond(service, request)
        except UnauthorizedError as error:
            refusal = error_response(401, str(error))
            refusal.headers["WWW-Authenticate"] = "Bearer"
            return refusal
        except _UNKNOWN as error:
            return error_response(404, str(error))
        except ConfigurationError as error:
            return error_response(400, str(error))
        except DamagedEntryError as error:
            logger.error("%s: %s", request.path, error)
            return error_response(500, str(error))
        except OSError as error:
            return error_response(503, f"The archive can't be read for now: {error}")

    return answer
