"""The life cycle of a service: its listeners, its background tasks, its client session."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web

from firesteel.config.addresses import is_loopback, is_wildcard
from firesteel.core.errors import ConfigurationError
from firesteel.core.refusals import RefusalLog
from firesteel.service.background import BackgroundTasks
from firesteel.service.leaving import Leaving, way_out
from firesteel.service.listener import Listener
from firesteel.service.measured import JOBMANAGER, Measured, ProcessUse
from firesteel.service.middlewares import BODY_LIMIT, AcceptedNames, middlewares

logger = logging.getLogger(__name__)
DRAIN_SECONDS = 5.0
_NAME_SECONDS = 1
"""Seconds for which the address of a host name is cached: a pod that is made anew has another address."""


class Service:
    """Base of the services. ``start`` and ``stop`` are called once each, on the same event loop.

    A derived class overrides the hooks ``on_start``, ``on_drain``, ``on_stop`` and ``on_stopped``, which may look at
    ``leaving``. Its routes are added to ``app`` before the start. ``on_start`` may open more listeners with ``listen``;
    they end with the service.

    Args:
        name: ``dispatcher``, ``resourcemanager``, ``jobmaster`` or ``taskmanager``.
        host_names: names that requests may carry in ``Host`` beside the loopback names; ``*`` = any.
        drain_seconds: how long ``stop`` waits for ``on_drain``.
    """

    def __init__(self, name: str, *, host_names: Collection[str] = (), drain_seconds: float = DRAIN_SECONDS) -> None:
        self.name = name
        self.names = AcceptedNames(host_names)
        self.refusals = RefusalLog(logger, name)
        """Where refused peers of all listeners are logged."""
        self.app = self.new_app()
        self.background = BackgroundTasks(name, self._background_failed)
        self.failure: BaseException | None = None
        """The first exception that ended a background task; a service's own process ends non-zero with it."""
        self.exit_code = 0
        """Exit code of the service's own process when it stops in order."""
        self.process_use = ProcessUse()
        self._drain_seconds = drain_seconds
        self._listeners: list[Listener] = []
        self._also: list[tuple[web.Application, range, str]] = []
        self._beside: list[tuple[Callable[[], Coroutine[Any, Any, Any]], str]] = []
        self.is_open_to_others = False
        """Whether one of its ports can be reached from other hosts."""
        self._session: aiohttp.ClientSession | None = None
        self._address = ""
        self._started = self.stopping = False
        """Whether it listens, and whether ``stop`` was called."""
        self._end_wanted = asyncio.Event()
        self._leaving = Leaving.HAND_OVER

    def new_app(self, *, body_limit: int = BODY_LIMIT) -> web.Application:
        """An application with health checks, JSON errors, and the check of ``Host`` and ``Origin``.

        Args:
            body_limit: largest body in bytes.
        """
        app = web.Application(middlewares=middlewares(self.names, self.refusals), client_max_size=body_limit)
        app.add_routes([web.get("/health", self._health), web.get("/ready", self._ready)])
        return app

    @property
    def apps(self) -> list[web.Application]:
        """The applications whose ports users may know."""
        return [self.app]

    @property
    def host(self) -> str:
        """Host name under which others find the service."""
        return urlsplit(self.address).hostname or ""

    async def measured(self) -> list[Measured]:
        """Metrics of the process, for metric reporters; derived classes add their own."""
        return self.process_use.measure(JOBMANAGER, {"host": self.host, "service": self.name})

    @property
    def address(self) -> str:
        """Base URL, without a slash at its end; known after ``start``."""
        if not self._address:
            raise RuntimeError(f"{self.name} has not been started")
        return self._address

    @property
    def session(self) -> aiohttp.ClientSession:
        """Client session for calls to other services; open from before ``on_start`` until after ``on_stop``."""
        if self._session is None:
            raise RuntimeError(f"{self.name} has not been started")
        return self._session

    @property
    def is_standby(self) -> bool:
        """Whether ``start`` waits because another process leads; it can be cancelled then."""
        return False

    @property
    def leaving(self) -> Leaving:
        """Whether all that the service looks after ends with it, or is left to a successor."""
        return way_out(self._leaving, self.failure)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any] | None:
        """Run a coroutine as a named background task; None once the service has stopped."""
        return self.background.spawn(coroutine, name)

    async def start(self, host: str = "127.0.0.1", port: int = 0, advertised_host: str = "") -> str:
        """Listen and begin to work; returns the base URL.

        Args:
            host: address to listen on.
            port: 0 = any free one.
            advertised_host: name or address under which others find it; needed if ``host`` means all interfaces.

        Raises:
            OSError: the port is taken.
            ConfigurationError: an advertised host is missing.
        """
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30.0, ttl_dns_cache=_NAME_SECONDS),
            trust_env=False,
        )
        try:
            self._address = await self.listen(self.app, host, port, advertised_host)
            for app, ports, key in self._also:
                await self._listen_on_one(app, host, ports, advertised_host, key)
            await self.on_start()
            for run, name in self._beside:
                self.spawn(run(), name)
        except BaseException:
            await self.stop()
            raise
        self._started = True
        logger.info("%s listens on %s", self.name, self._address)
        return self._address

    def listen_also(self, app: web.Application, ports: range, key: str) -> None:
        """Have ``start`` open one more port at the same address: the first free one of several.

        Args:
            app: made by ``new_app``.
            ports: to try.
            key: of the option that names them, for messages.
        """
        self._also.append((app, ports, key))

    def run_also(self, run: Callable[[], Coroutine[Any, Any, Any]], name: str) -> None:
        """Have ``start`` run a coroutine in the background, until the service stops.

        Args:
            run: makes the coroutine, which must raise nothing: an exception ends the service.
            name: of the task.
        """
        self._beside.append((run, name))

    async def _listen_on_one(
        self, app: web.Application, host: str, ports: range, advertised_host: str, key: str
    ) -> None:
        for port in ports:
            try:
                address = await self.listen(app, host, port, advertised_host)
            except OSError as error:
                if port == ports[-1]:
                    raise OSError(error.errno, f"{error.strerror or error}; no port of {key} is free") from error
            else:
                logger.info("%s listens on %s, too (%s)", self.name, address, key)
                return

    async def listen(
        self, app: web.Application, host: str, port: int, advertised_host: str = "", *, next_free: bool = False
    ) -> str:
        """Open one more port, which ends with the service; returns its base URL.

        Args:
            app: made by ``new_app``.
            host: address to listen on.
            port: 0 = any free one.
            advertised_host: name or address under which others find it; needed if ``host`` means all interfaces.
            next_free: if the port is taken, take the next one that is free.

        Raises:
            OSError: the port is taken.
            ConfigurationError: an advertised host is missing.
        """
        if is_wildcard(host):
            if not advertised_host or is_wildcard(advertised_host):
                raise ConfigurationError(
                    f"{self.name} binds to all interfaces ({host or 'no address'}): say under which name others find it"
                )
            self.names.any_address = True
        if not is_loopback(host):
            self.is_open_to_others = True
        for name in (host, advertised_host):
            if name and not is_wildcard(name):
                self.names.add(name)
        listener = Listener(app, self.name, self.refusals)
        self._listeners.append(listener)
        await listener.start(host, port, next_free=next_free)
        return listener.address(advertised_host)

    def request_stop(self, leaving: Leaving = Leaving.HAND_OVER) -> None:
        """Ask the process to stop the service in order, and to end. An owner in another kind of process may ignore it.

        Args:
            leaving: whether all that the service looks after ends with it. ``END_ALL`` can't be taken back.
        """
        self._leave(leaving)
        self._end_wanted.set()

    def _leave(self, leaving: Leaving) -> None:
        if leaving is Leaving.END_ALL:
            self._leaving = leaving

    async def end_wanted(self) -> None:
        """Wait until the service wants its process to end: after ``request_stop``, or when a background task failed."""
        await self._end_wanted.wait()

    async def stop(self, leaving: Leaving = Leaving.HAND_OVER) -> None:
        """End in two phases: take no new work and drain within a deadline; then cancel and close. Never raises.

        Args:
            leaving: see ``request_stop``.
        """
        self._leave(leaving)
        if self.stopping:
            return
        self.stopping = True
        try:
            async with asyncio.timeout(self._drain_seconds):
                await self.on_drain()
        except TimeoutError:
            logger.warning("%s: not drained within %g s; it is cut off", self.name, self._drain_seconds)
        except Exception:  # whatever the derived class raises, the rest has to be stopped
            logger.exception("%s: draining failed", self.name)
        await self.background.close()
        try:
            await self.on_stop()
        except Exception:  # as above
            logger.exception("%s: stopping failed", self.name)
        for error in await asyncio.gather(*(listener.stop() for listener in self._listeners), return_exceptions=True):
            if error is not None:
                logger.error("%s: a port was not closed in order: %s", self.name, error)
        if self._session is not None:
            await self._session.close()
        try:
            await self.on_stopped()
        except Exception:  # as above
            logger.exception("%s: its end failed", self.name)

    def is_ready(self) -> bool:
        """Whether the service can do its work now; derived classes add conditions."""
        return self._started and not self.stopping and self.failure is None

    async def on_start(self) -> None:
        """Called when the service listens; start background tasks here."""

    async def on_drain(self) -> None:
        """First phase of ``stop``: finish the work under way; cancelled after the deadline."""

    async def on_stop(self) -> None:
        """Second phase of ``stop``, when background tasks have ended; the session is still open."""

    async def on_stopped(self) -> None:
        """Last phase of ``stop``, with ports and session closed: a leader gives up, and its successor can bind them."""

    def _background_failed(self, name: str, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
        self._end_wanted.set()

    async def _health(self, _: web.Request) -> web.Response:
        if self.failure is not None:
            text = f"{type(self.failure).__name__}: {self.failure}"
            return web.json_response({"status": "FAILED", "service": self.name, "errors": [text]}, status=500)
        return web.json_response({"status": "OK", "service": self.name})

    async def _ready(self, _: web.Request) -> web.Response:
        ready = self.is_ready()
        return web.json_response({"ready": ready, "service": self.name}, status=200 if ready else 503)
