"""The paths of the REST API: Flink's, bare and below ``/v1``."""

from __future__ import annotations

from aiohttp import web

from firesteel.rest.endpoints import CallerRights, Endpoint, Switch
from firesteel.service.middlewares import error_response
from firesteel_dispatcher.answers import Handler, with_errors
from firesteel_dispatcher.audit import is_audited, log_request, outcome_of
from firesteel_dispatcher.dashboard import dashboard_routes
from firesteel_dispatcher.endpoints import ENDPOINTS
from firesteel_dispatcher.shell import DispatcherService


def rest_routes(service: DispatcherService) -> list[web.RouteDef]:
    """All routes. GET does not bring HEAD along, since an unknown method is answered with 404."""
    routes = dashboard_routes()
    for endpoint in ENDPOINTS:
        handler = _handler(service, endpoint)
        routes += [_route(endpoint.method, f"{prefix}{endpoint.path}", handler) for prefix in ("", "/v1")]
    return routes


def _handler(service: DispatcherService, endpoint: Endpoint) -> Handler:
    guarded = {
        CallerRights.READ: service.rest.access.all_paths,
        CallerRights.CHANGE: True,
        CallerRights.CANCEL: not service.rest.access.cancel_is_free,
    }[endpoint.access]

    async def answer_to(request: web.Request) -> web.StreamResponse:
        _check(service, request, guarded)
        if (reason := _switched_off(service, endpoint, request)) is not None:
            return error_response(403, reason)
        return await endpoint.respond(service, request)

    handle = with_errors(answer_to)
    if not is_audited(endpoint):
        return handle

    async def handle_and_log(request: web.Request) -> web.StreamResponse:
        outcome = "given up by its caller, or failed"
        try:
            response = await handle(request)
            outcome = outcome_of(response)
            return response
        finally:
            log_request(request, service.rest.access.caller(request), endpoint, outcome)

    return handle_and_log


def _switched_off(service: DispatcherService, endpoint: Endpoint, request: web.Request) -> str | None:
    """Why the settings of the cluster forbid a request; None where they allow it."""
    settings, key = service.settings, "" if endpoint.switch is None else endpoint.switch.value
    if endpoint.switch is Switch.SUBMIT and not settings.web_submit:
        return f"{key} is false: programs can't be uploaded to this cluster's REST API, nor run there."
    # A browser names the page with everything but a GET, and with each request to a host that it trusts.
    from_page = "Origin" in request.headers or "Sec-Fetch-Mode" in request.headers
    if endpoint.switch is Switch.CANCEL and not settings.web_cancel and from_page:
        return f"{key} is false: jobs can't be ended from a page in a browser; `firesteel cancel` and `stop` can."
    return None


def _check(service: DispatcherService, request: web.Request, guarded: bool) -> None:
    if guarded:
        service.rest.access.check(request)
    else:
        service.rest.access.is_known(request)


def _route(method: str, path: str, handler: Handler) -> web.RouteDef:
    return web.get(path, handler, allow_head=False) if method == "GET" else web.route(method, path, handler)
