"""The paths of the REST API: Flink's, bare and below ``/v1``."""

from __future__ import annotations

from aiohttp import web

from firesteel_dispatcher.answers import Handler, json_answer, with_errors
from firesteel_dispatcher.dashboard import dashboard_routes
from firesteel_dispatcher.endpoints import ENDPOINTS
from firesteel_dispatcher.rest_calls import Access, Endpoint
from firesteel_dispatcher.shell import DispatcherService


def rest_routes(service: DispatcherService) -> list[web.RouteDef]:
    """All of them; GET does not bring HEAD along: an unknown method is 404."""
    found = dashboard_routes()
    for endpoint in ENDPOINTS:
        handler = _handler(service, endpoint)
        found += [_route(endpoint.method, f"{prefix}{endpoint.path}", handler) for prefix in ("", "/v1")]
    return found


def _handler(service: DispatcherService, endpoint: Endpoint) -> Handler:
    guarded = {
        Access.READ: service.access.all_paths,
        Access.CHANGE: True,
        Access.CANCEL: not service.access.cancel_is_free,
    }[endpoint.access]

    async def handle(request: web.Request) -> web.StreamResponse:
        _check(service, request, guarded)
        answer = await endpoint.handle(service, await endpoint.read(request))
        return answer if isinstance(answer, web.StreamResponse) else json_answer(answer, endpoint.status)

    return with_errors(handle)


def _check(service: DispatcherService, request: web.Request, guarded: bool) -> None:
    if guarded:
        service.access.check(request)
    else:
        service.access.is_known(request)


def _route(method: str, path: str, handler: Handler) -> web.RouteDef:
    return web.get(path, handler, allow_head=False) if method == "GET" else web.route(method, path, handler)
