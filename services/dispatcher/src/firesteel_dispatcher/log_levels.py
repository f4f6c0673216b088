"""``/firesteel/loglevels``: levels of logs at all processes of the cluster, shown and changed while they run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from firesteel.core.errors import RpcError
from firesteel.core.log_levels import level_number, levels, set_level
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import ProcessGateway
from firesteel.rest import types as t
from firesteel.rest.endpoints import RestCall
from firesteel_dispatcher.processes import coordinators, of_each, taskmanagers
from firesteel_dispatcher.shell import DispatcherService

Ask = Callable[[ProcessGateway], Awaitable[m.LogLevels]]


async def show(service: DispatcherService, _: RestCall) -> t.LogLevelsInfo:
    """The levels of loggers at each process."""
    return {"processes": await _of_all(service, levels, lambda gateway: gateway.log_levels())}


async def change(service: DispatcherService, call: RestCall) -> t.LogLevelsInfo:
    """Change the level of a logger at all processes.

    Raises:
        ConfigurationError: there is no such level.
    """
    logger, level = str(call.body["logger"]), str(call.body["level"])
    level_number(level)

    def here() -> dict[str, str]:
        set_level(logger, level)
        return levels()

    message = m.SetLogLevel(logger, level)
    return {"processes": await _of_all(service, here, lambda gateway: gateway.set_log_level(message))}


async def _of_all(service: DispatcherService, here: Callable[[], dict[str, str]], ask: Ask) -> list[t.ProcessLogLevels]:
    """The answers of all processes; the error of a process that does not answer."""
    answers: list[t.ProcessLogLevels] = [{"process": "dispatcher", "levels": here()}]
    targets = coordinators(service) | await taskmanagers(service)
    for name, answer in (await of_each(service, targets, ask)).items():
        if isinstance(answer, RpcError):
            answers.append({"process": name, "error": str(answer)})
        else:
            answers.append({"process": name, "levels": dict(answer.levels)})
    return answers
