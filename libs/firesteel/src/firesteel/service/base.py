"""The life cycle of a service: an aiohttp application, its background tasks, its client session."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine
from typing import Any

import aiohttp
from aiohttp import web

from firesteel.service.background import BackgroundTasks
from firesteel.service.middlewares import BODY_LIMIT, middlewares

logger = logging.getLogger(__name__)
DRAIN_SECONDS = 5.0


class Service:
    """Base of the services. ``start`` and ``stop`` are called once each, on the same event loop.

    A derived class adds its routes to ``app`` in its constructor and overrides the hooks ``on_start``, ``on_drain``
    and ``on_stop``.

    Args:
        name: ``dispatcher``, ``resourcemanager``, ``jobmaster`` or ``taskmanager``.
        host_names: names that requests may carry in ``Host`` beside the loopback names; ``*`` = any.
        drain_seconds: how long ``stop`` waits for ``on_drain``.
    """

    def __init__(self, name: str, *, host_names: Collection[str] = (), drain_seconds: float = DRAIN_SECONDS) -> None:
        self.name = name
        self.app = web.Application(middlewares=middlewares(host_names), client_max_size=BODY_LIMIT)
        self.app.add_routes([web.get("/health", self._health), web.get("/ready", self._ready)])
        self.background = BackgroundTasks(name, self._background_failed)
        self.failure: BaseException | None = None
        """The first exception that ended a background task; a service's own process ends non-zero with it."""
        self._drain_seconds = drain_seconds
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None
        self._address = ""
        self._started = self._stopping = False

    @property
    def address(self) -> str:
        """Base URL, without a slash at its end; known after ``start``."""
        if not self._address:
            raise RuntimeError(f"{self.name} has not been started")
        return self._address

    @property
    def session(self) -> aiohttp.ClientSession:
        """For calls to other services; open from before ``on_start`` until after ``on_stop``."""
        if self._session is None:
            raise RuntimeError(f"{self.name} has not been started")
        return self._session

    @property
    def stopping(self) -> bool:
        """Whether ``stop`` was called."""
        return self._stopping

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any] | None:
        """Run a coroutine in the background, held and named; None once the service has stopped."""
        return self.background.spawn(coroutine, name)

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Listen and begin to work; returns the base URL.

        Args:
            host: address to listen on.
            port: 0 = any free one.

        Raises:
            OSError: the port is taken.
        """
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30.0), trust_env=False
        )
        self._runner = web.AppRunner(self.app, access_log=None, shutdown_timeout=1.0)
        try:
            await self._runner.setup()
            site = web.TCPSite(self._runner, host, port)
            await site.start()
            bound = self._runner.addresses[0][1]
            self._address = f"http://{f'[{host}]' if ':' in host else host}:{bound}"
            await self.on_start()
        except BaseException:
            await self.stop()
            raise
        self._started = True
        logger.info("%s listens on %s", self.name, self._address)
        return self._address

    async def stop(self) -> None:
        """End in two phases: take no new work and drain within a deadline; then cancel and close. Never raises."""
        if self._stopping:
            return
        self._stopping = True
        try:
            async with asyncio.timeout(self._drain_seconds):
                await self.on_drain()
        except TimeoutError:
            logger.warning("%s: not drained within %g s; it is cut off", self.name, self._drain_seconds)
        except Exception:  # of the derived class: whatever it is, the rest has to be stopped
            logger.exception("%s: draining failed", self.name)
        await self.background.close()
        try:
            await self.on_stop()
        except Exception:  # as above
            logger.exception("%s: stopping failed", self.name)
        if self._runner is not None:
            await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()

    def is_ready(self) -> bool:
        """Whether it can do its work now; derived classes narrow it."""
        return self._started and not self._stopping and self.failure is None

    async def on_start(self) -> None:
        """Called when the service listens; start background tasks here."""

    async def on_drain(self) -> None:
        """First phase of ``stop``: finish what was begun; cancelled after the deadline."""

    async def on_stop(self) -> None:
        """Second phase of ``stop``, when background tasks have ended; the session is still open."""

    def _background_failed(self, name: str, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error

    async def _health(self, _: web.Request) -> web.Response:
        if self.failure is not None:
            text = f"{type(self.failure).__name__}: {self.failure}"
            return web.json_response({"status": "FAILED", "service": self.name, "errors": [text]}, status=500)
        return web.json_response({"status": "OK", "service": self.name})

    async def _ready(self, _: web.Request) -> web.Response:
        ready = self.is_ready()
        return web.json_response({"ready": ready, "service": self.name}, status=200 if ready else 503)
