"""The REST API (Flink's paths and fields) and the Dispatcher's calls."""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

import firesteel
from firesteel.core.errors import ConfigurationError, GraphError, JobNotFoundError, RpcError
from firesteel.core.ids import parse_job_id
from firesteel.graph.chaining import client_versions
from firesteel.protocol import messages as m
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.rpc import RpcRequest, rpc_routes
from firesteel.service.middlewares import error_response
from firesteel_dispatcher import views
from firesteel_dispatcher.core import JobConflictError, JobEndedError, UnknownJobError
from firesteel_dispatcher.shell import DispatcherService, decode_results
from firesteel_dispatcher.submission import TooLargeError, read_submission

FLINK_VERSION = "2.3.0"
"""Clients choose by it what they may ask."""
LONGEST_WAIT_MS = 60_000
_EXCEPTIONS = 10
_PAGE = """<!doctype html><title>Firesteel</title><h1>Firesteel {version}</h1>
<p>This is the REST API of a Firesteel cluster, with the paths and fields of Flink {flink}:
<a href="/overview">/overview</a>, <a href="/jobs/overview">/jobs/overview</a>,
<a href="/taskmanagers">/taskmanagers</a>, <a href="/config">/config</a>.</p>
"""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Rest:
    """Handlers of the REST API."""

    def __init__(self, service: DispatcherService) -> None:
        self._service = service
        self._bearer = f"Bearer {service.secret}".encode()

    def routes(self) -> list[web.RouteDef]:
        """Every path bare and under /v1; GET does not bring HEAD along: an unknown method is 404."""
        job, vertex = "/jobs/{job_id}", "/jobs/{job_id}/vertices/{vertex_id}"
        table: list[tuple[str, str, Handler]] = [
            ("GET", "/config", self.config),
            ("GET", "/overview", self.overview),
            ("GET", "/jobs", self.jobs),
            ("POST", "/jobs", self.submit),
            ("GET", "/jobs/overview", self.jobs_overview),
            ("GET", job, self._of_job(views.job_details)),
            ("PATCH", job, self.cancel),
            ("GET", f"{job}/yarn-cancel", self.cancel),
            ("GET", f"{job}/status", self.status),
            ("GET", f"{job}/config", self._of_job(views.job_config)),
            ("GET", f"{job}/plan", self._of_job(lambda archive: {"plan": archive["plan"]})),
            ("GET", f"{job}/exceptions", self.exceptions),
            ("GET", f"{job}/execution-result", self.execution_result),
            ("GET", f"{job}/collect/{{operator_id}}", self.collect),
            ("GET", vertex, self._of_vertex(views.vertex_details)),
            ("GET", f"{vertex}/subtasktimes", self._of_vertex(views.subtask_times)),
            ("GET", f"{vertex}/taskmanagers", self._of_vertex(views.vertex_taskmanagers)),
            ("GET", "/taskmanagers", self.taskmanagers),
            ("GET", "/taskmanagers/{taskmanager_id}", self.taskmanager),
            ("GET", "/blobs/{sha}", self.blob),
        ]
        found = [web.get("/", self.page, allow_head=False)]
        for method, path, handler in table:
            for prefix in ("", "/v1"):
                checked = self._checked(handler)
                found.append(
                    web.get(prefix + path, checked, allow_head=False)
                    if method == "GET"
                    else web.route(method, prefix + path, checked)
                )
        return found

    # -- cluster

    async def page(self, _: web.Request) -> web.StreamResponse:
        """A pointer for people."""
        text = _PAGE.format(version=firesteel.__version__, flink=FLINK_VERSION)
        return web.Response(text=text, content_type="text/html")

    async def config(self, _: web.Request) -> web.StreamResponse:
        """What kind of cluster this is."""
        offset = -(time.altzone if time.localtime().tm_isdst else time.timezone)
        return _json(
            {
                "refresh-interval": 3000,
                "timezone-name": time.tzname[time.localtime().tm_isdst],
                "timezone-offset": offset * 1000,
                "flink-version": FLINK_VERSION,
                "flink-revision": "firesteel",
                "features": {"web-submit": False, "web-cancel": True, "web-rescale": False, "web-history": False},
                "firesteel-version": firesteel.__version__,
            }
        )

    async def overview(self, _: web.Request) -> web.StreamResponse:
        """Counters of the cluster."""
        cluster = await self._service.cluster()
        return _json(
            {
                "taskmanagers": len(cluster.taskmanagers),
                "slots-total": cluster.slots_total,
                "slots-available": cluster.slots_available,
                **self._service.core.counts(),
                "flink-version": FLINK_VERSION,
                "flink-commit": "firesteel",
                "firesteel-version": firesteel.__version__,
            }
        )

    async def taskmanagers(self, _: web.Request) -> web.StreamResponse:
        """All TaskManagers."""
        return _json({"taskmanagers": [_without_slots(t) for t in await self._taskmanagers()]})

    async def taskmanager(self, request: web.Request) -> web.StreamResponse:
        """One TaskManager."""
        wanted = request.match_info["taskmanager_id"]
        for found in await self._taskmanagers():
            if found["id"] == wanted:
                return _json({**found, "metrics": {"garbageCollectors": []}})
        return error_response(404, f"TaskManager {wanted!r:.80} not found")

    async def _taskmanagers(self) -> list[dict[str, Any]]:
        cluster = await self._service.cluster()
        tasks = views.tasks_by_taskmanager(await self._service.archives())
        return [{**t, "assignedTasks": tasks[t["id"]]} for t in cluster.taskmanagers]

    # -- jobs

    async def jobs(self, _: web.Request) -> web.StreamResponse:
        """Ids and states."""
        return _json({"jobs": [{"id": job.id, "status": job.state} for job in self._service.core.jobs.values()]})

    async def jobs_overview(self, _: web.Request) -> web.StreamResponse:
        """All jobs."""
        return _json({"jobs": [views.job_overview(archive) for archive in await self._service.archives()]})

    async def status(self, request: web.Request) -> web.StreamResponse:
        """A job's state."""
        return _json({"status": self._service.core.job(_job_id(request)).state})

    async def exceptions(self, request: web.Request) -> web.StreamResponse:
        """What went wrong in a job."""
        most = _number(request, "maxExceptions", _EXCEPTIONS, 1, 10_000)
        return _json(views.job_exceptions(await self._service.archive(_job_id(request)), most))

    async def execution_result(self, request: web.Request) -> web.StreamResponse:
        """How a job ended; waits for that as long as ``wait-ms`` says."""
        wait_ms = _number(request, "wait-ms", 0, 0, LONGEST_WAIT_MS)
        job = await self._service.wait_ended(_job_id(request), wait_ms / 1000)
        return _json(views.execution_result(job.archive) if job.ended else {"status": {"id": "IN_PROGRESS"}})

    async def cancel(self, request: web.Request) -> web.StreamResponse:
        """Cancel a job."""
        mode = request.query.get("mode", "cancel").lower()
        if mode != "cancel":
            text = f"Only mode=cancel is possible, not mode={mode!r:.40}: stop is POST /jobs/:jobid/stop in Flink."
            return error_response(308 if mode == "stop" else 400, text)
        self._service.perform(self._service.core.cancel(_job_id(request)))
        return _json({}, 202)

    async def submit(self, request: web.Request) -> web.StreamResponse:
        """Submit a job: it is stored when this answers."""
        self._authorize(request)
        limit = self._service.settings.max_content_length
        if (request.content_length or 0) > limit + (1 << 20):
            raise TooLargeError(f"The body has {request.content_length} bytes, more than the {limit} allowed.")
        submission = await read_submission(request, self._service.blobs, client_versions(), limit)
        self._service.submit(submission)
        return _json({"jobUrl": f"/jobs/{submission.graph.job_id}"}, 202)

    async def collect(self, request: web.Request) -> web.StreamResponse:
        """Results of a collect operator, as a pickled list."""
        self._authorize(request)
        results = await self._service.collect(
            _job_id(request),
            request.match_info["operator_id"],
            _number(request, "offset", 0, 0, 1 << 62),
            _number(request, "max-bytes", 1 << 20, 1, 1 << 30),
            _number(request, "wait-ms", 0, 0, LONGEST_WAIT_MS),
        )
        headers = {
            "X-Firesteel-Offset": str(results.offset),
            "X-Firesteel-Count": str(results.count),
            "X-Firesteel-End": "true" if results.end else "false",
            "X-Firesteel-State": results.state,
        }
        return web.Response(body=decode_results(results), content_type="application/octet-stream", headers=headers)

    async def blob(self, request: web.Request) -> web.StreamResponse:
        """A blob of a job."""
        self._authorize(request)
        name = request.match_info["sha"]
        size = self._service.blobs.size(name)
        if size is None:
            return error_response(404, f"There is no blob {name!r:.80}")
        response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
        response.content_length = size
        await response.prepare(request)
        for piece in self._service.blobs.read(name):
            await response.write(piece)
        await response.write_eof()
        return response

    # -- inside

    def _of_job(self, view: Callable[[Mapping[str, Any]], Any]) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            return _json(view(await self._service.archive(_job_id(request))))

        return handle

    def _of_vertex(self, view: Callable[[Mapping[str, Any], str], Any]) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            return _json(view(await self._service.archive(_job_id(request)), request.match_info["vertex_id"]))

        return handle

    def _authorize(self, request: web.Request) -> None:
        given = request.headers.get("Authorization", "").encode()
        if not hmac.compare_digest(given, self._bearer):
            text = "The cluster secret is missing or wrong: this call runs code, or reads what jobs are made of."
            raise web.HTTPUnauthorized(text=text)

    def _checked(self, handler: Handler) -> Handler:
        async def checked(request: web.Request) -> web.StreamResponse:
            try:
                return await handler(request)
            except (UnknownJobError, views.UnknownVertexError) as error:
                return error_response(404, str(error))
            except (JobEndedError, JobConflictError) as error:
                return error_response(409, str(error))
            except (GraphError, ConfigurationError) as error:
                return error_response(400, str(error))
            except TooLargeError as error:
                return error_response(413, str(error))
            except RpcFault as error:
                status = {RpcCode.NOT_FOUND: 404, RpcCode.BAD_REQUEST: 400}.get(error.code, 500)
                return error_response(status, str(error))
            except RpcError as error:
                return error_response(503, f"Another service of the cluster does not answer: {error}")

        return checked


def routes(service: DispatcherService) -> list[web.RouteDef]:
    """All routes of the service."""

    async def job_state_changed(call: RpcRequest) -> Mapping[str, Any]:
        message = m.JobStateChanged.from_plain(call.payload)
        try:
            service.job_state_changed(message)
        except UnknownJobError as error:
            raise JobNotFoundError(str(error), message.job_id) from error
        return {}

    async def job_finished(call: RpcRequest) -> Mapping[str, Any]:
        message = m.JobFinished.from_plain(call.payload)
        try:
            service.job_finished(message)
        except UnknownJobError as error:
            raise JobNotFoundError(str(error), message.job_id) from error
        return {}

    calls = {"job_state_changed": job_state_changed, "job_finished": job_finished}
    return [*Rest(service).routes(), *rpc_routes(calls, service.secret, lambda _: service.token)]


def _json(value: Any, status: int = 200) -> web.Response:
    try:
        text = json.dumps(value, allow_nan=False)
    except ValueError:
        text = json.dumps(views.jsonable(value), allow_nan=False)
    return web.Response(text=text, status=status, content_type="application/json", charset="UTF-8")


def _job_id(request: web.Request) -> str:
    text = request.match_info["job_id"]
    try:
        return str(parse_job_id(text))
    except ConfigurationError as error:
        raise ConfigurationError(f"Cannot resolve path parameter (jobid) from value {text[:80]!r}: {error}") from error


def _number(request: web.Request, name: str, default: int, least: int, most: int) -> int:
    text = request.query.get(name)
    if text is None:
        return default
    try:
        return min(max(int(text), least), most)
    except ValueError as error:
        raise ConfigurationError(f"Cannot resolve query parameter ({name}) from value {text[:80]!r}") from error


def _without_slots(taskmanager: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in taskmanager.items() if key != "allocatedSlots"}
