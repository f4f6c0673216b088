"""REST answers about jobs, and what users may do with them."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from firesteel.core.errors import ConfigurationError
from firesteel.graph.chaining import client_versions
from firesteel.rest import checkpoint_views, views
from firesteel.service.middlewares import error_response
from firesteel_dispatcher.answers import Handler, job_id_of, json_answer, not_stored, number
from firesteel_dispatcher.checkpoint_requests import read_savepoint, read_stop, read_trigger
from firesteel_dispatcher.shell import DispatcherService
from firesteel_dispatcher.submission import read_submission

LONGEST_WAIT_MS: Final = 60_000
_EXCEPTIONS: Final = 10


class JobHandlers:
    """Handlers."""

    def __init__(self, service: DispatcherService) -> None:
        self._service = service

    # -- reading

    async def jobs(self, _: web.Request) -> web.StreamResponse:
        """Ids and states."""
        return json_answer({"jobs": [{"id": j.id, "status": j.state} for j in self._service.core.jobs.values()]})

    async def overview(self, _: web.Request) -> web.StreamResponse:
        """All jobs."""
        return json_answer({"jobs": await self._service.details.overviews()})

    async def status(self, request: web.Request) -> web.StreamResponse:
        """A job's state."""
        return json_answer({"status": self._service.core.job(job_id_of(request)).state})

    async def exceptions(self, request: web.Request) -> web.StreamResponse:
        """What went wrong in a job."""
        most = number(request, "maxExceptions", _EXCEPTIONS, 1, 10_000)
        labels = dict(
            pair.partition(":")[::2] for pair in request.query.get("failureLabelFilter", "").split(",") if pair
        )
        return json_answer(views.job_exceptions(await self._service.details.of(job_id_of(request)), most, labels))

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        """Metrics of a job."""
        archive = await self._service.details.of(job_id_of(request))
        return json_answer(views.job_metrics(archive, request.query.get("get")))

    async def subtask(self, request: web.Request) -> web.StreamResponse:
        """A subtask, or one of its attempts."""
        match = request.match_info
        archive = await self._service.details.of(job_id_of(request), match["vertex_id"])
        attempt = int(match["attempt"]) if "attempt" in match else None
        return json_answer(views.subtask_attempt(archive, match["vertex_id"], int(match["subtask"]), attempt))

    async def execution_result(self, request: web.Request) -> web.StreamResponse:
        """How a job ended; waits for that as long as ``wait-ms`` says."""
        wait_ms = number(request, "wait-ms", 0, 0, LONGEST_WAIT_MS)
        job = await self._service.news.ended(job_id_of(request), wait_ms / 1000)
        if not job.ended:
            return json_answer({"status": {"id": "IN_PROGRESS"}})
        return json_answer(views.execution_result(await self._service.details.of(job.id)))

    def of_job(self, view: Callable[[Mapping[str, Any]], Any]) -> Handler:
        """A handler that shows a job."""

        async def handle(request: web.Request) -> web.StreamResponse:
            return json_answer(view(await self._service.details.of(job_id_of(request))))

        return handle

    def of_vertex(self, view: Callable[[Mapping[str, Any], str], Any]) -> Handler:
        """A handler that shows a vertex of a job."""

        async def handle(request: web.Request) -> web.StreamResponse:
            vertex_id = request.match_info["vertex_id"]
            return json_answer(view(await self._service.details.of(job_id_of(request), vertex_id), vertex_id))

        return handle

    def of_metrics(self, view: Callable[[Mapping[str, Any], Mapping[str, str]], Any]) -> Handler:
        """A handler that shows metrics; it gets the parts of the path and the query, the latter below."""

        async def handle(request: web.Request) -> web.StreamResponse:
            match = request.match_info
            archive = await self._service.details.of(job_id_of(request), match.get("vertex_id", ""))
            return json_answer(view(archive, {**request.query, **match}))

        return handle

    async def collect(self, request: web.Request) -> web.StreamResponse:
        """Results of a collect operator, as a pickled list."""
        results = await self._service.collect(
            job_id_of(request),
            request.match_info["operator_id"],
            number(request, "offset", 0, 0, 1 << 62),
            number(request, "max-bytes", 1 << 20, 1, 1 << 30),
            number(request, "wait-ms", 0, 0, LONGEST_WAIT_MS),
        )
        headers = {
            "X-Firesteel-Offset": str(results.offset),
            "X-Firesteel-Count": str(results.count),
            "X-Firesteel-End": "true" if results.end else "false",
            "X-Firesteel-State": results.state,
        }
        data = base64.b64decode(results.data)
        return web.Response(body=data, content_type="application/octet-stream", headers=headers)

    # -- doing

    async def cancel(self, request: web.Request) -> web.StreamResponse:
        """Cancel a job."""
        mode = request.query.get("mode", "cancel").lower()
        if mode != "cancel":
            text = f"Only mode=cancel is possible, not mode={mode!r:.40}: stop is POST /jobs/:jobid/stop in Flink."
            return error_response(308 if mode == "stop" else 400, text)
        await self._service.cancel(job_id_of(request))
        return json_answer({}, 202)

    async def trigger_checkpoint(self, request: web.Request) -> web.StreamResponse:
        """Take a checkpoint now."""
        job_id = job_id_of(request)
        trigger_id, full = await read_trigger(request)
        await self._service.trigger_checkpoint(job_id, trigger_id, full)
        return json_answer({"request-id": trigger_id}, 202)

    async def checkpoint_status(self, request: web.Request) -> web.StreamResponse:
        """What became of a checkpoint that somebody asked for."""
        job_id = job_id_of(request)
        self._service.details.outdated(job_id)
        archive = await self._service.details.of(job_id)
        return json_answer(checkpoint_views.trigger_status(archive, dict(request.match_info)))

    async def trigger_savepoint(self, request: web.Request) -> web.StreamResponse:
        """Take a savepoint now."""
        job_id = job_id_of(request)
        wanted = await read_savepoint(request)
        await self._service.trigger_savepoint(job_id, wanted)
        return json_answer({"request-id": wanted.trigger_id}, 202)

    async def stop(self, request: web.Request) -> web.StreamResponse:
        """Stop a job with a savepoint."""
        job_id = job_id_of(request)
        wanted = await read_stop(request)
        await self._service.trigger_savepoint(job_id, wanted)
        return json_answer({"request-id": wanted.trigger_id}, 202)

    async def savepoint_status(self, request: web.Request) -> web.StreamResponse:
        """What became of a savepoint that somebody asked for, or of a stop."""
        job_id = job_id_of(request)
        self._service.details.outdated(job_id)
        archive = await self._service.details.of(job_id)
        return json_answer(checkpoint_views.savepoint_status(archive, dict(request.match_info)))

    async def client_heartbeat(self, request: web.Request) -> web.StreamResponse:
        """The client of a job lives."""
        job_id = job_id_of(request)
        try:
            body = await request.json()
            expires = body["expiredTimestamp"] if isinstance(body, dict) else None
        except (ValueError, KeyError):
            expires = None
        if isinstance(expires, bool) or not isinstance(expires, int | float) or not math.isfinite(expires):
            raise ConfigurationError('the body has to be {"expiredTimestamp": <milliseconds since 1970>}')
        now = self._service.now()
        self._service.core.client_alive(job_id, (expires - now.epoch_ms) / 1000, now)
        return json_answer({}, 202)

    async def submit(self, request: web.Request) -> web.StreamResponse:
        """Submit a job: it is stored when this answers."""
        service = self._service
        received: Path | None = None
        traces, job = service.traces, ("", "")
        trace = traces.begin(request.headers.get("traceparent"))
        try:
            received = await service.on_disk(service.store.receive)
            limit = service.settings.max_content_length
            submission = await read_submission(request, received, client_versions(), limit)
            job = submission.graph.job_id, submission.graph.name
            traces.step(trace, "Upload")
            await service.submit(submission, received, trace)
            traces.ended(trace, *job)
        except OSError as error:
            traces.ended(trace, *job, error=str(error))
            return not_stored(error, service.store.directory)
        except Exception as error:
            traces.ended(trace, *job, error=f"{type(error).__name__}: {error}")
            raise
        finally:
            if received is not None and received.exists():
                await service.on_disk(service.store.drop, received)
        return json_answer({"jobUrl": f"/jobs/{submission.graph.job_id}"}, 202)
