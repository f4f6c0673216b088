"""What only services of the cluster may ask for: the Dispatcher's calls, and blobs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from firesteel.core.errors import JobNotFoundError, UnauthorizedError
from firesteel.ha.blobs import DamagedBlobError
from firesteel.protocol import messages as m
from firesteel.rpc import RpcRequest, rpc_routes
from firesteel.rpc.guard import Guard
from firesteel.service.middlewares import error_response
from firesteel_dispatcher.job import UnknownJobError
from firesteel_dispatcher.shell import DispatcherService

logger = logging.getLogger(__name__)


def internal_routes(service: DispatcherService) -> list[web.RouteDef]:
    """Routes of the internal port."""
    guard = Guard(service.secret, service.clock)

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
            await service.job_finished(message)
        except UnknownJobError as error:
            raise JobNotFoundError(str(error), message.job_id) from error
        return {}

    async def jobmaster_lost(call: RpcRequest) -> Mapping[str, Any]:
        service.jobmaster_lost(m.JobMasterLost.from_plain(call.payload))
        return {}

    def token_of(call: RpcRequest) -> str | None:
        return None if call.method == "jobmaster_lost" else service.token  # a host knows no leader, only a death

    async def blob(request: web.Request) -> web.StreamResponse:
        try:
            guard.check(request)
        except UnauthorizedError as error:
            return error_response(401, str(error))
        name = request.match_info["sha"]
        try:
            path = await service.on_disk(service.store.blob, name)
        except DamagedBlobError as error:
            logger.error("%s", error)
            return error_response(500, str(error))
        if path is None:
            return error_response(404, f"There is no blob {name!r:.80}")
        return web.FileResponse(path, headers={"Content-Type": "application/octet-stream"})

    calls = {"job_state_changed": job_state_changed, "job_finished": job_finished, "jobmaster_lost": jobmaster_lost}
    return [
        web.get("/blobs/{sha}", blob, allow_head=False),
        *rpc_routes(calls, service.secret, token_of, clock=service.clock),
    ]
