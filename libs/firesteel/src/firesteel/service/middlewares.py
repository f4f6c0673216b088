"""Middlewares in front of every handler: checks of the caller, errors as JSON, the log of requests."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import secrets
import time
from collections.abc import Collection
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from firesteel.core.refusals import RefusalLog

logger = logging.getLogger(__name__)
BODY_LIMIT = 256 * 1024 * 1024
STALL_SECONDS = 30.0
"""Seconds without a byte after which a request's body is given up."""
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class AcceptedNames:
    """Names of a service that requests may carry in ``Host`` and ``Origin``.

    Attributes:
        any_address: whether ``Host`` may have any IP address. Pages of other sites can't use one against the service:
            they can point a name of theirs at it, but no address.
    """

    def __init__(self, names: Collection[str] = ()) -> None:
        self._names = set(LOOPBACK_NAMES) | {name.lower() for name in names}
        self.any_address = False

    def add(self, name: str) -> None:
        self._names.add(name.lower())

    def accepts_host(self, host: str) -> bool:
        """Whether ``Host`` has an accepted name; the name ``*`` accepts all."""
        return self._knows(host) or (self.any_address and _is_address(_name_of(host)))

    def accepts_origin(self, origin: str, host: str) -> bool:
        """Whether ``Origin`` has an accepted name, or is that of a page of the service itself, loaded from ``host``."""
        return _netloc_of(origin) == host or self._knows(origin)

    def _knows(self, value: str) -> bool:
        return "*" in self._names or _name_of(value) in self._names

    def __str__(self) -> str:
        return ", ".join(sorted(self._names)) + (" and IP addresses" if self.any_address else "")


def middlewares(names: AcceptedNames, refusals: RefusalLog) -> list[Middleware]:
    """The middlewares of a service, outermost first.

    Args:
        names: accepted in ``Host`` and ``Origin``.
        refusals: where refused requests are logged.
    """
    return [_log_requests, _errors_as_json, _check_host_and_origin(names, refusals), _give_up_stalled_bodies(refusals)]


def error_response(status: int, *errors: str) -> web.Response:
    """An error in the shape that Flink's clients expect."""
    return web.json_response({"errors": list(errors)}, status=status)


@web.middleware
async def _log_requests(request: web.Request, handler: Handler) -> web.StreamResponse:
    if not logger.isEnabledFor(logging.DEBUG):
        return await handler(request)
    started = time.monotonic()
    response = await handler(request)
    took_ms = (time.monotonic() - started) * 1000
    logger.debug("%s %s: %d in %.1f ms", request.method, request.path, response.status, took_ms)
    return response


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except (web.HTTPNotFound, web.HTTPMethodNotAllowed) as error:
        if error.text and not error.text.startswith(f"{error.status}:"):  # a handler's own words
            return error_response(404, error.text)
        return error_response(404, f"Not found: {request.method} {request.path}")
    except web.HTTPRequestEntityTooLarge as error:
        return error_response(413, f"The body is too large. {error.text or ''}".rstrip())
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return error_response(error.status, error.text or error.reason)
    except Exception:  # a fault of ours; the caller may be a stranger, so only the log has the details
        number = secrets.token_hex(4)
        logger.exception("%s %s failed (error %s)", request.method, request.path, number)
        return error_response(500, f"Internal server error: the log of the service tells more about error {number}.")


def _check_host_and_origin(names: AcceptedNames, refusals: RefusalLog) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        host, origin = request.headers.get("Host", ""), request.headers.get("Origin")
        if not names.accepts_host(host):
            header, value = "Host", host
        elif origin is not None and not names.accepts_origin(origin, host):
            header, value = "Origin", origin
        else:
            return await handler(request)
        refusals.refused(request.remote or "?", f"{header} {value[:200]!r} is none of {names}", header)
        return error_response(
            403,
            f"{header} {value!r} is refused: this address answers only to {names}. "
            "A page of another site must not reach the cluster through your browser.",
        )

    return check


def _give_up_stalled_bodies(refusals: RefusalLog) -> Middleware:
    @web.middleware
    async def watch(request: web.Request, handler: Handler) -> web.StreamResponse:
        content = request.content
        if content.is_eof():
            return await handler(request)
        loop = asyncio.get_running_loop()
        received = content.total_bytes
        timer: asyncio.TimerHandle

        def look() -> None:
            nonlocal received, timer
            if content.is_eof() or request.transport is None:
                return
            waits_for_us = not request.transport.is_reading()
            if content.total_bytes == received and not waits_for_us:
                reason = f"nothing more of the request's body came for {STALL_SECONDS:g} s"
                refusals.refused(request.remote or "?", f"{request.method} {request.path[:100]!r}: {reason}", "stall")
                content.set_exception(web.HTTPRequestTimeout(text=reason))
                return
            received = content.total_bytes
            timer = loop.call_later(STALL_SECONDS, look)

        timer = loop.call_later(STALL_SECONDS, look)
        try:
            return await handler(request)
        finally:
            timer.cancel()

    return watch


def _netloc_of(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _name_of(value: str) -> str:
    try:
        return (urlsplit(value if "//" in value else f"//{value}").hostname or "").lower()
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
