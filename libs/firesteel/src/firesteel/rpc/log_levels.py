"""Levels of logs, changed while a process runs: each service answers the same calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aiohttp import web

from firesteel.core.clock import Clock
from firesteel.core.errors import ConfigurationError
from firesteel.core.log_levels import levels, set_level
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import LoggingGateway
from firesteel.protocol.message import RpcCode
from firesteel.rpc.answering import answers, by_token, handlers_of
from firesteel.rpc.server import rpc_routes

PREFIX: Final = "/logging"
"""Between the address of a process and ``/rpc``."""


class _Calls:
    def __init__(self, changed: Callable[[str, str], None]) -> None:
        self._changed = changed

    @answers(LoggingGateway.log_levels)
    def log_levels(self, _: m.Empty) -> m.LogLevels:
        return m.LogLevels(levels())

    @answers(LoggingGateway.set_log_level)
    def set_log_level(self, message: m.SetLogLevel) -> m.LogLevels:
        set_level(message.logger, message.level)
        self._changed(message.logger, message.level)
        return m.LogLevels(levels())


def logging_routes(
    secret: str, clock: Clock, changed: Callable[[str, str], None] = lambda logger, level: None
) -> list[web.RouteDef]:
    """``LoggingGateway``, answered by this process.

    Args:
        secret: of the cluster.
        clock: of the process.
        changed: called with logger and level when one was changed.
    """
    calls = _Calls(changed)
    refusals: dict[type[Exception], RpcCode] = {ConfigurationError: RpcCode.BAD_REQUEST}
    handlers = handlers_of(LoggingGateway, _Calls, lambda _: calls, by_token(lambda _: ""), refusals)
    return rpc_routes(handlers, secret, prefix=PREFIX, clock=clock)
