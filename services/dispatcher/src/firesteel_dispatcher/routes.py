"""The paths of the REST API: Flink's, bare and below ``/v1``."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from firesteel.rest import checkpoint_views, metric_views, views
from firesteel_dispatcher.answers import Handler, with_errors
from firesteel_dispatcher.rest_cluster import ClusterHandlers
from firesteel_dispatcher.rest_jobs import JobHandlers
from firesteel_dispatcher.shell import DispatcherService

_JOB: Final = "/jobs/{job_id}"
_VERTEX: Final = "/jobs/{job_id}/vertices/{vertex_id}"


def rest_routes(service: DispatcherService) -> list[web.RouteDef]:
    """All of them; GET does not bring HEAD along: an unknown method is 404."""
    jobs, cluster = JobHandlers(service), ClusterHandlers(service)
    reading: list[tuple[str, Handler]] = [
        ("/config", cluster.config),
        ("/overview", cluster.overview),
        ("/taskmanagers", cluster.taskmanagers),
        ("/taskmanagers/{taskmanager_id}", cluster.taskmanager),
        ("/jobs", jobs.jobs),
        ("/jobs/overview", jobs.overview),
        (_JOB, jobs.of_job(views.job_details)),
        (f"{_JOB}/status", jobs.status),
        (f"{_JOB}/config", jobs.of_job(views.job_config)),
        (f"{_JOB}/plan", jobs.of_job(lambda archive: {"plan": archive["plan"]})),
        (f"{_JOB}/exceptions", jobs.exceptions),
        (f"{_JOB}/execution-result", jobs.execution_result),
        (f"{_JOB}/checkpoints", jobs.of_job(checkpoint_views.checkpoints)),
        (f"{_JOB}/checkpoints/config", jobs.of_job(checkpoint_views.checkpoint_config)),
        (
            f"{_JOB}/checkpoints/details/{{checkpoint_id}}",
            jobs.of_metrics(checkpoint_views.checkpoint_details),
        ),
        (
            f"{_JOB}/checkpoints/details/{{checkpoint_id}}/subtasks/{{vertex_id}}",
            jobs.of_metrics(checkpoint_views.checkpoint_subtasks),
        ),
        (f"{_JOB}/checkpoints/{{trigger_id}}", jobs.checkpoint_status),
        (f"{_JOB}/savepoints/{{trigger_id}}", jobs.savepoint_status),
        ("/savepoint-disposal/{trigger_id}", cluster.disposal_status),
        (f"{_JOB}/metrics", jobs.metrics),
        (_VERTEX, jobs.of_vertex(views.vertex_details)),
        (f"{_VERTEX}/metrics", jobs.of_metrics(metric_views.vertex_metrics)),
        (f"{_VERTEX}/watermarks", jobs.of_metrics(metric_views.vertex_watermarks)),
        (f"{_VERTEX}/subtasks/metrics", jobs.of_metrics(metric_views.subtask_metrics)),
        (f"{_VERTEX}/subtasks/{{subtask}}/metrics", jobs.of_metrics(metric_views.one_subtask_metrics)),
        (f"{_VERTEX}/subtasks/{{subtask:\\d+}}", jobs.subtask),
        (f"{_VERTEX}/subtasks/{{subtask:\\d+}}/attempts/{{attempt:\\d+}}", jobs.subtask),
        (f"{_VERTEX}/subtasktimes", jobs.of_vertex(views.subtask_times)),
        (f"{_VERTEX}/taskmanagers", jobs.of_vertex(views.vertex_taskmanagers)),
    ]
    with_token: list[tuple[str, str, Handler]] = [
        ("DELETE", "/cluster", cluster.shut_down),
        ("POST", "/jobs", jobs.submit),
        ("POST", f"{_JOB}/checkpoints", jobs.trigger_checkpoint),
        ("POST", f"{_JOB}/savepoints", jobs.trigger_savepoint),
        ("POST", f"{_JOB}/stop", jobs.stop),
        ("POST", "/savepoint-disposal", cluster.dispose_savepoint),
        ("PATCH", f"{_JOB}/clientHeartbeat", jobs.client_heartbeat),
        ("GET", f"{_JOB}/collect/{{operator_id}}", jobs.collect),
    ]
    table = [("GET", path, handler, service.access.all_paths) for path, handler in reading]
    table += [(method, path, handler, True) for method, path, handler in with_token]
    guarded_cancel = not service.access.cancel_is_free
    table += [("PATCH", _JOB, jobs.cancel, guarded_cancel), ("GET", f"{_JOB}/yarn-cancel", jobs.cancel, guarded_cancel)]
    found = [_route("GET", "/", _checked(service, cluster.page, service.access.all_paths))]
    for method, path, handler, guarded in table:
        checked = _checked(service, handler, guarded)
        found += [_route(method, path, checked), _route(method, f"/v1{path}", checked)]
    return found


def _checked(service: DispatcherService, handler: Handler, guarded: bool) -> Handler:
    async def check_first(request: web.Request) -> web.StreamResponse:
        if guarded:
            service.access.check(request)
        else:
            service.access.is_known(request)
        return await handler(request)

    return with_errors(check_first)


def _route(method: str, path: str, handler: Handler) -> web.RouteDef:
    return web.get(path, handler, allow_head=False) if method == "GET" else web.route(method, path, handler)
