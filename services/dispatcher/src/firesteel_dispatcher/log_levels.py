"""``/firesteel/loglevels``: levels of logs at all processes of the cluster, shown and changed while they run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from firesteel.core.errors import RpcError
from firesteel.core.log_levels import level_number, levels, set_level
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import LoggingGateway
from firesteel.rpc.log_levels import PREFIX
from firesteel_dispatcher.rest_calls import Call
from firesteel_dispatcher.shell import DispatcherService

Ask = Callable[[LoggingGateway], Awaitable[m.LogLevels]]


async def show(service: DispatcherService, _: Call) -> Any:
    """What holds at each process."""
    return {"processes": await _of_all(service, levels, lambda gateway: gateway.log_levels())}


async def change(service: DispatcherService, call: Call) -> Any:
    """Change the level of a logger at all processes.

    Raises:
        ConfigurationError: there is no such level.
    """
    logger, level = str(call.body["logger"]), str(call.body["level"])
    level_number(level)

    def here() -> dict[str, str]:
        set_level(logger, level)
        return levels()

    wanted = m.SetLogLevel(logger, level)
    return {"processes": await _of_all(service, here, lambda gateway: gateway.set_log_level(wanted))}


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
