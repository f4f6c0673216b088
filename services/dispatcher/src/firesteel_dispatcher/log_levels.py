"""``/firesteel/loglevels``: levels of logs at all processes of the cluster, shown and changed while they run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import urlsplit

from aiohttp import web

from firesteel.core.errors import ConfigurationError, RpcError
from firesteel.core.log_levels import level_number, levels, set_level
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import LoggingGateway
from firesteel.rpc.log_levels import PREFIX
from firesteel_dispatcher.answers import Handler, json_answer, with_errors
from firesteel_dispatcher.shell import DispatcherService

PATH: Final = "/firesteel/loglevels"
_LONGEST_NAME: Final = 500
Ask = Callable[[LoggingGateway], Awaitable[m.LogLevels]]


def log_level_routes(service: DispatcherService) -> list[web.RouteDef]:
    """Both, bare and below ``/v1``."""

    async def show(_: web.Request) -> web.StreamResponse:
        return json_answer({"processes": await _of_all(service, levels, lambda gateway: gateway.log_levels())})

    async def change(request: web.Request) -> web.StreamResponse:
        logger, level = await _read(request)

        def here() -> dict[str, str]:
            set_level(logger, level)
            return levels()

        wanted = m.SetLogLevel(logger, level)
        found = await _of_all(service, here, lambda gateway: gateway.set_log_level(wanted))
        return json_answer({"processes": found})

    def checked(handler: Handler, guarded: bool) -> Handler:
        async def check_first(request: web.Request) -> web.StreamResponse:
            if guarded:
                service.access.check(request)
            return await handler(request)

        return with_errors(check_first)

    found = []
    for prefix in ("", "/v1"):
        found.append(web.get(prefix + PATH, checked(show, service.access.all_paths), allow_head=False))
        found.append(web.put(prefix + PATH, checked(change, True)))
    return found


async def _read(request: web.Request) -> tuple[str, str]:
    try:
        body = await request.json()
    except ValueError as error:
        raise ConfigurationError("the body is no JSON") from error
    if not isinstance(body, dict) or body.keys() - {"logger", "level"}:
        raise ConfigurationError('the body has to be {"logger": NAME, "level": LEVEL}')
    logger, level = body.get("logger", ""), body.get("level")
    if not isinstance(logger, str) or len(logger) > _LONGEST_NAME:
        raise ConfigurationError("logger: the name of a logger is expected, or root")
    if not isinstance(level, str):
        raise ConfigurationError("level: the name of a level is expected")
    level_number(level)
    return logger, level.upper()


async def _of_all(service: DispatcherService, here: Callable[[], dict[str, str]], ask: Ask) -> list[dict[str, Any]]:
    """The answers of all processes; of one that does not give any, why."""
    found: list[dict[str, Any]] = [{"process": "dispatcher", "levels": here()}]
    targets: dict[str, str] = {}
    for name, channel in service.coordinators.items():
        address = channel.where()[0]
        if address:
            targets[name] = address
        else:
            found.append({"process": name, "error": "where it is is not known"})
    try:
        taskmanagers = (await service.cluster()).taskmanagers
    except RpcError:  # the ResourceManager's own answer says so
        taskmanagers = ()
    targets |= {f"taskmanager {one['id']}": str(one["path"]) for one in taskmanagers}
    for job in service.core.jobs.values():
        if not job.ended and job.jobmaster is not None:
            parts = urlsplit(job.jobmaster[0])
            targets[f"jobmaster of job {job.id}"] = f"{parts.scheme}://{parts.netloc}"

    async def one(name: str, address: str) -> dict[str, Any]:
        try:
            answer = await ask(LoggingGateway(service.client, address + PREFIX))
        except RpcError as error:
            return {"process": name, "error": str(error)}
        return {"process": name, "levels": dict(answer.levels)}

    return found + list(await asyncio.gather(*(one(name, address) for name, address in targets.items())))
