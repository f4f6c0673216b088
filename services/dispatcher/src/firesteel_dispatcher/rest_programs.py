"""REST answers about programs that users upload: ``.py``, ``.zip``, ``.whl`` in place of Flink's jars."""

from __future__ import annotations

import logging
import re
import shlex
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from aiohttp import BodyPartReader, web

from firesteel.config import options
from firesteel.core.errors import ConfigurationError
from firesteel.core.ids import parse_job_id
from firesteel.rest import types as t
from firesteel.rest.endpoints import RestCall
from firesteel.service.middlewares import error_response
from firesteel_dispatcher.programs import ProgramOrder, order_again
from firesteel_dispatcher.shell import DispatcherService
from firesteel_dispatcher.submission import TooLargeError

logger = logging.getLogger(__name__)
_PIECE: Final = 1 << 18


async def uploaded(service: DispatcherService, _: RestCall) -> t.Programs:
    return {"address": service.rest.address, "files": await service.applications.programs.listed()}


async def upload(service: DispatcherService, call: RestCall) -> t.Uploaded:
    """Store a program from a multipart body with one file, under any name of the part."""
    request, limit = call.request, service.settings.max_content_length
    if request.content_type != "multipart/form-data":
        raise ConfigurationError("a program is uploaded as multipart/form-data with one file")
    if (request.content_length or 0) > limit:
        raise TooLargeError(f"The upload is larger than {limit} bytes ({options.REST_MAX_CONTENT_LENGTH.key}).")
    path = None
    try:
        parts = await request.multipart()
        while (part := await parts.next()) is not None:
            if not isinstance(part, BodyPartReader) or not part.filename:
                continue
            if path is not None:
                await service.applications.programs.remove(path.name)
                raise ConfigurationError("exactly one file is uploaded at a time")
            path = await service.applications.programs.add(part.filename, _pieces(part, limit))
    except ConfigurationError:  # a ValueError, too
        raise
    except ValueError as error:
        raise ConfigurationError(f"the multipart body can't be read: {error}") from error
    if path is None:
        raise ConfigurationError("the body has no file")
    return {"filename": str(path), "status": "success"}


async def _pieces(part: BodyPartReader, limit: int) -> AsyncIterator[bytes]:
    size = 0
    while piece := await part.read_chunk(_PIECE):
        size += len(piece)
        if size > limit:
            raise TooLargeError(f"The upload is larger than {limit} bytes ({options.REST_MAX_CONTENT_LENGTH.key}).")
        yield bytes(piece)


async def delete(service: DispatcherService, call: RestCall) -> t.EmptyResponse:
    await service.applications.programs.remove(call.path["jar_id"])
    return {}


async def plan(service: DispatcherService, call: RestCall) -> t.JobPlan:
    """Run a program up to its first job; answers with the plan of that job."""
    return {"plan": await service.applications.programs.plan(_order(call), service.rest.local_address)}


async def run(service: DispatcherService, call: RestCall) -> t.RunAnswer:
    """Run a program; answers when its first job is submitted."""
    job_id = await service.applications.programs.run(_order(call), service.rest.local_address)
    return {"jobid": job_id, "applicationId": job_id}


async def run_application(service: DispatcherService, call: RestCall) -> t.RunApplicationAnswer | web.Response:
    """Run a program; answers at once."""
    order = _order(call)
    if order.job_id in service.core.jobs:
        return error_response(409, f"There is a job {order.job_id} already.")
    if order.job_id in service.applications.known:
        return error_response(409, f"There is an application {order.job_id} already.")
    return {"applicationid": (await service.applications.begin(order, service.rest.local_address)).id}


async def run_again(service: DispatcherService, call: RestCall) -> t.RunAnswer:
    """Run the program of a job again; answers when its first job is submitted."""
    archive, body = await service.archive_of(call.job_id), call.body
    drops_state = bool(body.get("allowNonRestoredState"))
    order = order_again(archive, body.get("savepointPath") or "", drops_state=drops_state)
    job_id = await service.applications.programs.run(order, service.rest.local_address)
    return {"jobid": job_id, "applicationId": job_id}


def _order(call: RestCall) -> ProgramOrder:
    body, query = call.body, call.query
    arguments = body.get("programArgsList")
    if arguments is None and body.get("programArgs") is not None:
        arguments = _split(body["programArgs"], "programArgs")
    if arguments is None and query.get("programArg") is not None:
        arguments = [argument for argument in query["programArg"].split(",") if argument]
    if arguments is None and query.get("program-args") is not None:
        arguments = _split(query["program-args"], "program-args")
    job_id = None
    for name in ("jobId", "applicationId"):
        if body.get(name) is not None:
            try:
                job_id = str(parse_job_id(body[name]))
            except ConfigurationError as error:
                raise ConfigurationError(f"{name} = {body[name][:80]!r} is no job id: {error}") from error
    return ProgramOrder(
        call.path["jar_id"],
        body.get("entryClass") or query.get("entry-class") or None,
        tuple(arguments or ()),
        _settings(body, query),
        job_id,
    )


def _split(text: str, name: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigurationError(f"{name} = {text[:80]!r}: {error}") from error


def _settings(body: Mapping[str, Any], query: Mapping[str, Any]) -> dict[str, str]:
    settings: dict[str, str] = dict(body.get("flinkConfiguration") or {})
    for key in settings:
        if not re.fullmatch(r"[A-Za-z0-9_.$-]{1,200}", key):
            raise ConfigurationError(f"flinkConfiguration: {key[:80]!r} is no key of an option")
    parallelism = body.get("parallelism") or query.get("parallelism")
    if parallelism is not None:
        settings[options.PARALLELISM_DEFAULT.key] = str(parallelism)
    path = body.get("savepointPath") or query.get("savepointPath")
    if path:
        settings[options.STATE_RECOVERY_PATH.key] = str(path)
    drops = body.get("allowNonRestoredState")
    if drops is None:
        drops = query.get("allowNonRestoredState")
    if drops is not None:
        settings[options.STATE_RECOVERY_IGNORE_UNCLAIMED.key] = "true" if drops else "false"
    mode = body.get("claimMode") or body.get("restoreMode")
    if mode:
        settings[options.STATE_RECOVERY_CLAIM_MODE.key] = str(mode)
    return settings
