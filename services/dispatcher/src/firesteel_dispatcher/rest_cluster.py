"""REST answers about the cluster and its TaskManagers."""

from __future__ import annotations

import time
from collections import Counter
from typing import Final

from aiohttp import web

import firesteel
from firesteel.protocol import messages as m
from firesteel.rest.checkpoint_views import failure_cause
from firesteel.service.middlewares import error_response
from firesteel_dispatcher.answers import json_answer
from firesteel_dispatcher.checkpoint_requests import read_disposal
from firesteel_dispatcher.shell import DispatcherService
from firesteel_dispatcher.taskmanager_views import taskmanager_details, taskmanager_row, tasks_by_taskmanager

FLINK_VERSION: Final = "2.3.0"
"""Clients choose by it what they may ask."""
_PAGE: Final = """<!doctype html><title>Firesteel</title><h1>Firesteel {version}</h1>
<p>This is the REST API of a Firesteel cluster, with the paths and fields of Flink {flink}:
<a href="/overview">/overview</a>, <a href="/jobs/overview">/jobs/overview</a>,
<a href="/taskmanagers">/taskmanagers</a>, <a href="/config">/config</a>.</p>
"""


class ClusterHandlers:
    """Handlers."""

    def __init__(self, service: DispatcherService) -> None:
        self._service = service

    async def page(self, _: web.Request) -> web.StreamResponse:
        """A pointer for people."""
        text = _PAGE.format(version=firesteel.__version__, flink=FLINK_VERSION)
        return web.Response(text=text, content_type="text/html")

    async def config(self, _: web.Request) -> web.StreamResponse:
        """What kind of cluster this is."""
        offset = -(time.altzone if time.localtime().tm_isdst else time.timezone)
        return json_answer(
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
        return json_answer(
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
        cluster, tasks = await self._what_runs()
        return json_answer({"taskmanagers": [taskmanager_row(found, tasks) for found in cluster.taskmanagers]})

    async def taskmanager(self, request: web.Request) -> web.StreamResponse:
        """One TaskManager."""
        wanted = request.match_info["taskmanager_id"]
        cluster, tasks = await self._what_runs()
        for found in cluster.taskmanagers:
            if found["id"] == wanted:
                return json_answer(taskmanager_details(found, tasks))
        return error_response(404, f"TaskManager {wanted!r:.80} not found")

    async def _what_runs(self) -> tuple[m.ClusterOverview, Counter[tuple[str, str]]]:
        cluster = await self._service.cluster()
        return cluster, tasks_by_taskmanager(await self._service.details.of_running())

    async def dispose_savepoint(self, request: web.Request) -> web.StreamResponse:
        """Remove a savepoint."""
        return json_answer({"request-id": self._service.disposals.begin(await read_disposal(request))})

    async def disposal_status(self, request: web.Request) -> web.StreamResponse:
        """Whether it is gone."""
        trigger_id, disposals = request.match_info["trigger_id"], self._service.disposals
        if not disposals.known(trigger_id):
            text = f"There is no asynchronous operation with the trigger id {trigger_id[:80]!r}."
            return error_response(404, text)
        failure = disposals.result(trigger_id)
        if failure is None:
            return json_answer({"status": {"id": "IN_PROGRESS"}, "operation": None})
        operation = {"failure-cause": failure_cause(failure)} if failure else {}
        return json_answer({"status": {"id": "COMPLETED"}, "operation": operation})

    async def shut_down(self, _: web.Request) -> web.StreamResponse:
        """End all jobs and the cluster."""
        self._service.shut_down_cluster()
        return json_answer({})
