"""Routes of the internal port, for services of the cluster only: the Dispatcher's calls, and blobs."""

from __future__ import annotations

import logging

from aiohttp import web

from firesteel.core.errors import UnauthorizedError
from firesteel.ha.blobs import DamagedBlobError
from firesteel.protocol.gateways import DispatcherGateway
from firesteel.protocol.message import RpcCode
from firesteel.rpc import by_token, handlers_of, rpc_routes
from firesteel.rpc.guard import RequestGuard
from firesteel.service.middlewares import error_response
from firesteel_dispatcher.job import UnknownJobError
from firesteel_dispatcher.jobs import ClusterJobs
from firesteel_dispatcher.shell import DispatcherService

logger = logging.getLogger(__name__)


def internal_routes(service: DispatcherService) -> list[web.RouteDef]:
    """Routes of the internal port."""
    guard = RequestGuard(service.secret, service.clock)

    async def blob(request: web.Request) -> web.StreamResponse:
        try:
            guard.check(request)
        except UnauthorizedError as error:
            return error_response(401, str(error))
        name = request.match_info["sha"]
        try:
            path = await service.leadership.on_disk(service.leadership.store.blob, name)
        except DamagedBlobError as error:
            logger.error("%s", error)
            return error_response(500, str(error))
        if path is None:
            return error_response(404, f"There is no blob {name!r:.80}")
        return web.FileResponse(path, headers={"Content-Type": "application/octet-stream"})

    calls = handlers_of(
        DispatcherGateway,
        ClusterJobs,
        lambda _: service.jobs,
        by_token(lambda _: service.leadership.token),
        {UnknownJobError: RpcCode.NOT_FOUND},
    )
    return [
        web.get("/blobs/{sha}", blob, allow_head=False),
        *rpc_routes(calls, service.secret, clock=service.clock),
    ]
