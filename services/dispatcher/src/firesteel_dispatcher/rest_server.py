"""The port of the REST API: where it listens, and who may call it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Protocol

from aiohttp import web

from firesteel.config.addresses import base_url, is_wildcard
from firesteel.config.options import REST_BIND_PORT, REST_PORT
from firesteel.rest.access import RestAccess

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RestListener:
    """Where the REST API listens, and under which name others find it.

    Attributes:
        host: address to bind to.
        ports: the first free one is taken; 0 = any free port.
        advertised_host: name of this host for others.
        next_free: whether a port behind the last one may be taken where all ``ports`` are in use.
    """

    host: str = "127.0.0.1"
    ports: tuple[int, ...] = (0,)
    advertised_host: str = ""
    next_free: bool = False


class OpenPort(Protocol):
    """The type of ``Service.listen``."""

    async def __call__(
        self, app: web.Application, host: str, port: int, advertised_host: str = "", *, next_free: bool = False
    ) -> str:
        """Open a port, which ends with the service; returns its base URL."""


class RestServer:
    """The REST API as a part of the Dispatcher's process.

    Args:
        app: has the routes.
        access: decides who may call.
        listener: where to listen.

    Attributes:
        address: base URL for others; empty until the port is open.
        local_address: base URL for programs beside this process. The advertised name may lead here only later, as that
            of a Service of Kubernetes does, or to another Dispatcher.
    """

    def __init__(self, app: web.Application, access: RestAccess, listener: RestListener) -> None:
        self.app, self.access, self.listener = app, access, listener
        self.address = self.local_address = ""

    async def open(self, listen: OpenPort) -> None:
        """Open the port.

        Args:
            listen: opens it.

        Raises:
            OSError: all ports are in use. Clients would hand their tokens to whoever listens where they look for the
                REST API, so the cluster does not move on silently.
        """
        listener = self.listener
        *first_ports, last_port = listener.ports
        for port in first_ports:
            try:
                self.address = await listen(self.app, listener.host, port, listener.advertised_host)
                break
            except OSError as error:
                logger.info("%s", error.strerror or error)
        else:
            try:
                self.address = await listen(
                    self.app, listener.host, last_port, listener.advertised_host, next_free=listener.next_free
                )
            except OSError as error:
                raise OSError(
                    error.errno,
                    f"the REST API does not start: {error.strerror or error}. End that one, or set "
                    f"{REST_PORT.key}, or {REST_BIND_PORT.key} to a range such as "
                    f"{last_port}-{min(last_port + 9, 65535)}.",
                ) from error
        port = int(self.address.rpartition(":")[2])
        self.local_address = base_url("127.0.0.1" if is_wildcard(listener.host) else listener.host, port)
        logger.info("the REST API listens on %s", self.address)
        if listener.ports[0] not in (0, port):
            logger.warning("port %d is taken: the REST API listens on port %d", listener.ports[0], port)
