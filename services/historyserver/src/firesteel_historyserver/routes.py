"""The paths of the history server: those of the Dispatcher that show a job, and what pages need to begin with."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from aiohttp import web

import firesteel
from firesteel.core import plugins
from firesteel.core.errors import ConfigurationError, UnauthorizedError
from firesteel.core.ids import parse_job_id
from firesteel.graph.job_archive import HISTORY, LOGS
from firesteel.ha.documents import DamagedEntryError
from firesteel.rest import checkpoint_views, metric_views, rescale_views, subtask_views, views
from firesteel.rest.application_views import application_details, application_exceptions, application_row
from firesteel.service.middlewares import error_response
from firesteel_historyserver.core import counts
from firesteel_historyserver.shell import HistoryService, UnknownArchiveError

logger = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
FLINK_VERSION: Final = "2.3.0"
_APPLICATION: Final = "/applications/{application_id}"
_JOB: Final = "/jobs/{job_id}"
_VERTEX: Final = f"{_JOB}/vertices/{{vertex_id}}"
_SUBTASK: Final = f"{_VERTEX}/subtasks/{{subtask:\\d+}}"
_CHECKPOINT: Final = f"{_JOB}/checkpoints/details/{{checkpoint_id}}"
_PAGE: Final = """<!doctype html><title>Firesteel history</title><h1>Firesteel {version}: jobs that have ended</h1>
<p><a href="/jobs/overview">/jobs/overview</a>, <a href="/config">/config</a>.</p>
"""


@dataclass(frozen=True)
class Asked:
    """What a request asks of a job.

    Attributes:
        archive: of the job, with the rows of the vertex in the path.
        path: its variable parts.
        query: its parameters.
    """

    archive: Mapping[str, Any]
    path: Mapping[str, str]
    query: Mapping[str, str]

    @property
    def vertex(self) -> str:
        """The vertex in the path."""
        return self.path["vertex_id"]

    @property
    def shown_vertex(self) -> Mapping[str, Any]:
        """The same, from the archive."""
        return views.find_vertex(self.archive, self.vertex)

    @property
    def both(self) -> dict[str, str]:
        """Parameters and parts of the path; the latter win."""
        return {**self.query, **self.path}


VIEWS: Final[Mapping[str, Callable[[Asked], Any]]] = {
    _JOB: lambda asked: views.job_details(asked.archive),
    f"{_JOB}/status": lambda asked: {"status": asked.archive["state"]},
    f"{_JOB}/config": lambda asked: views.job_config(asked.archive),
    f"{_JOB}/plan": lambda asked: {"plan": asked.archive["plan"]},
    f"{_JOB}/exceptions": lambda asked: _exceptions(asked),
    f"{_JOB}/execution-result": lambda asked: views.execution_result(asked.archive),
    f"{_JOB}/metrics": lambda asked: metric_views.plain(views.job_values(asked.archive), asked.both),
    f"{_JOB}/checkpoints": lambda asked: checkpoint_views.checkpoints(asked.archive),
    f"{_JOB}/checkpoints/config": lambda asked: checkpoint_views.checkpoint_config(asked.archive),
    _CHECKPOINT: lambda asked: checkpoint_views.checkpoint_details(asked.archive, asked.both),
    f"{_CHECKPOINT}/subtasks/{{vertex_id}}": lambda asked: checkpoint_views.checkpoint_subtasks(
        asked.archive, asked.both
    ),
    f"{_JOB}/rescales/overview": lambda asked: rescale_views.rescales_overview(asked.archive),
    f"{_JOB}/rescales/history": lambda asked: rescale_views.rescales_history(asked.archive),
    f"{_JOB}/rescales/details/{{rescale_id}}": lambda asked: rescale_views.rescale_details(asked.archive, asked.both),
    f"{_JOB}/rescales/summary": lambda asked: rescale_views.rescales_summary(asked.archive),
    f"{_JOB}/rescales/config": lambda asked: rescale_views.rescales_config(asked.archive),
    f"{_JOB}/jobmanager/environment": lambda asked: asked.archive[HISTORY]["environment"],
    f"{_JOB}/jobmanager/config": lambda asked: [
        {"key": key, "value": value} for key, value in sorted(asked.archive[HISTORY]["config"].items())
    ],
    _VERTEX: lambda asked: views.vertex_details(asked.archive, asked.vertex),
    f"{_VERTEX}/metrics": lambda asked: metric_views.vertex_metrics(asked.archive, asked.both),
    f"{_VERTEX}/watermarks": lambda asked: metric_views.vertex_watermarks(asked.archive, asked.both),
    f"{_VERTEX}/subtasks/metrics": lambda asked: metric_views.subtask_metrics(asked.archive, asked.both),
    f"{_VERTEX}/accumulators": lambda asked: subtask_views.vertex_accumulators(asked.shown_vertex),
    f"{_VERTEX}/subtasks/accumulators": lambda asked: subtask_views.subtasks_accumulators(asked.shown_vertex),
    f"{_VERTEX}/backpressure": lambda asked: subtask_views.back_pressure(asked.shown_vertex, asked.archive["now"]),
    f"{_SUBTASK}/metrics": lambda asked: metric_views.one_subtask_metrics(asked.archive, asked.both),
    _SUBTASK: lambda asked: _subtask(asked),
    f"{_SUBTASK}/attempts/{{attempt:\\d+}}": lambda asked: _subtask(asked),
    f"{_SUBTASK}/attempts/{{attempt:\\d+}}/accumulators": lambda asked: _attempt_accumulators(asked),
    f"{_VERTEX}/subtasktimes": lambda asked: views.subtask_times(asked.archive, asked.vertex),
    f"{_VERTEX}/taskmanagers": lambda asked: views.vertex_taskmanagers(asked.archive, asked.vertex),
}
"""Path -> the view that answers it."""
_UNKNOWN: Final = (
    UnknownArchiveError,
    views.UnknownVertexError,
    checkpoint_views.NoCheckpointsError,
    rescale_views.UnknownRescaleError,
)


def history_routes(service: HistoryService) -> list[web.RouteDef]:
    """All of them, bare and below ``/v1``; and the dashboard's files, where its package is installed."""
    asked = _Handlers(service)
    table: dict[str, Handler] = {
        "/config": asked.config,
        "/overview": asked.overview,
        "/jobs": asked.jobs,
        "/jobs/overview": asked.job_overviews,
        "/taskmanagers": asked.taskmanagers,
        "/applications/overview": asked.applications,
        _APPLICATION: asked.application,
        f"{_APPLICATION}/exceptions": asked.application_failures,
        f"{_JOB}/accumulators": asked.job_accumulators,
        f"{_JOB}/jobmanager/log-url": asked.jobmanager_log,
        f"{_JOB}/taskmanagers/{{taskmanager_id}}/log-url": asked.taskmanager_log,
        **{path: asked.of_job(view) for path, view in VIEWS.items()},
    }
    found = []
    for path, handler in table.items():
        checked = asked.checked(handler)
        found += [web.get(prefix + path, checked, allow_head=False) for prefix in ("", "/v1")]
    return [*_pages(asked), *found]


def _pages(asked: _Handlers) -> list[web.RouteDef]:
    try:
        pages: list[web.RouteDef] = plugins.load("firesteel.dashboards", "dashboard")()
    except ConfigurationError as error:
        logger.info("there is no dashboard here: %s", error)
        return [web.get("/", asked.page, allow_head=False)]
    return pages


class _Handlers:
    def __init__(self, service: HistoryService) -> None:
        self._service = service

    def checked(self, handler: Handler) -> Handler:
        """The handler, for those who may ask, with its errors as answers."""

        async def check_first(request: web.Request) -> web.StreamResponse:
            try:
                if self._service.access.all_paths:
                    self._service.access.check(request)
                return await handler(request)
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

        return check_first

    def of_job(self, view: Callable[[Asked], Any]) -> Handler:
        """A handler that shows a job."""

        async def handle(request: web.Request) -> web.StreamResponse:
            path = dict(request.match_info)
            archive = await self._service.of(_job_id(request), path.get("vertex_id", ""))
            return _json(view(Asked(archive, path, dict(request.query))))

        return handle

    async def page(self, _: web.Request) -> web.StreamResponse:
        """A pointer for people."""
        return web.Response(text=_PAGE.format(version=firesteel.__version__), content_type="text/html")

    async def config(self, _: web.Request) -> web.StreamResponse:
        local = time.localtime()
        return _json(
            {
                "refresh-interval": self._service.settings.web_refresh_ms,
                "timezone-name": time.tzname[local.tm_isdst],
                "timezone-offset": local.tm_gmtoff * 1000,
                "flink-version": FLINK_VERSION,
                "flink-revision": "firesteel",
                "features": {"web-submit": False, "web-cancel": False, "web-rescale": False, "web-history": True},
                "firesteel-version": firesteel.__version__,
            }
        )

    async def overview(self, _: web.Request) -> web.StreamResponse:
        """Counters; there are no TaskManagers."""
        return _json(
            {
                "taskmanagers": 0,
                "slots-total": 0,
                "slots-available": 0,
                **counts(self._service.core.overviews()),
                "flink-version": FLINK_VERSION,
                "flink-commit": "firesteel",
                "firesteel-version": firesteel.__version__,
            }
        )

    async def taskmanagers(self, _: web.Request) -> web.StreamResponse:
        """None."""
        return _json({"taskmanagers": []})

    async def jobs(self, _: web.Request) -> web.StreamResponse:
        jobs = [{"id": one["jid"], "status": one["state"]} for one in self._service.core.overviews()]
        return _json({"jobs": jobs})

    async def job_overviews(self, _: web.Request) -> web.StreamResponse:
        return _json({"jobs": self._service.core.overviews()})

    async def applications(self, _: web.Request) -> web.StreamResponse:
        """Programs by their jobs: what ``main()`` did itself is not archived."""
        now = self._service.clock.epoch_ms()
        found = self._service.core.applications()
        return _json({"applications": [application_row(one, None, jobs, now) for one, jobs in found.items()]})

    async def application(self, request: web.Request) -> web.StreamResponse:
        application_id, jobs = self._application(request)
        archives = [await self._service.of(job["jid"]) for job in jobs]
        return _json(application_details(application_id, None, jobs, archives, self._service.clock.epoch_ms()))

    async def application_failures(self, request: web.Request) -> web.StreamResponse:
        """What ended its jobs."""
        _, jobs = self._application(request)
        return _json(application_exceptions(None, [await self._service.of(job["jid"]) for job in jobs]))

    def _application(self, request: web.Request) -> tuple[str, list[Mapping[str, Any]]]:
        application_id = _id(request, "application_id", "applicationid")
        jobs = self._service.core.applications().get(application_id)
        if jobs is None:
            raise UnknownArchiveError(f"Application {application_id} not found")
        return application_id, jobs

    async def job_accumulators(self, request: web.Request) -> web.StreamResponse:
        """Counters of all user functions."""
        job_id = _job_id(request)
        rows: list[Mapping[str, Any]] = []
        for vertex in (await self._service.of(job_id))["vertices"]:
            archive = await self._service.of(job_id, vertex["id"])
            rows += views.find_vertex(archive, vertex["id"])["subtasks"]
        return _json(subtask_views.job_accumulators(rows))

    async def jobmanager_log(self, request: web.Request) -> web.StreamResponse:
        """Where the log of the JobMaster is: by the pattern that is configured, else the file."""
        job_id = _job_id(request)
        logs = (await self._service.of(job_id)).get(LOGS) or {}
        pattern = self._service.settings.jobmanager_logs
        if pattern:
            return _json({"url": pattern.replace("<jobid>", job_id)})
        if not logs.get("jobmaster"):
            return error_response(404, f"Where the log of job {job_id} is was not told.")
        return _json({"url": f"file://{logs.get('host', '')}{quote(logs['jobmaster'])}"})

    async def taskmanager_log(self, request: web.Request) -> web.StreamResponse:
        """Where the log of a TaskManager is, by the pattern that is configured."""
        job_id, taskmanager_id = _job_id(request), request.match_info["taskmanager_id"]
        await self._service.of(job_id)
        pattern = self._service.settings.taskmanager_logs
        if not pattern:
            return error_response(404, "historyserver.log.taskmanager.url-pattern is not set.")
        return _json({"url": pattern.replace("<jobid>", job_id).replace("<tmid>", quote(taskmanager_id, safe=""))})


def _exceptions(asked: Asked) -> Any:
    text = asked.query.get("maxExceptions", "10")
    if not text.isdecimal() or len(text) > 9:
        raise ConfigurationError(f"Cannot resolve query parameter (maxExceptions) from value {text[:80]!r}")
    pairs = asked.query.get("failureLabelFilter", "").split(",")
    labels = dict(pair.partition(":")[::2] for pair in pairs if pair)
    return views.job_exceptions(asked.archive, max(1, min(int(text), 10_000)), labels)


def _subtask(asked: Asked) -> Any:
    attempt = int(asked.path["attempt"]) if "attempt" in asked.path else None
    return views.subtask_attempt(asked.archive, asked.vertex, int(asked.path["subtask"]), attempt)


def _attempt_accumulators(asked: Asked) -> Any:
    attempt = views.find_attempt(asked.archive, asked.vertex, int(asked.path["subtask"]), int(asked.path["attempt"]))
    return subtask_views.attempt_accumulators(asked.vertex, attempt)


def _job_id(request: web.Request) -> str:
    return _id(request, "job_id", "jobid")


def _id(request: web.Request, part: str, name: str) -> str:
    text = request.match_info[part]
    try:
        return str(parse_job_id(text))
    except ConfigurationError as error:
        raise ConfigurationError(f"Cannot resolve path parameter ({name}) from value {text[:80]!r}: {error}") from error


def _json(value: Any) -> web.Response:
    try:
        text = json.dumps(value, allow_nan=False)
    except ValueError:
        text = json.dumps(views.jsonable(value), allow_nan=False)
    return web.Response(text=text, content_type="application/json", charset="UTF-8")
