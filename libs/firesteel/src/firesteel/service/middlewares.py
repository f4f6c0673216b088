"""What stands in front of every handler: who may ask, errors as JSON, the log of requests."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Collection
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

logger = logging.getLogger(__name__)
BODY_LIMIT = 256 * 1024 * 1024
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def middlewares(host_names: Collection[str] = ()) -> list[Middleware]:
    """The middlewares of a service, outermost first.

    Args:
        host_names: names that ``Host`` and ``Origin`` may carry beside the loopback names; ``*`` = any.
    """
    return [_log_requests, _errors_as_json, _check_host_and_origin(frozenset(host_names) | LOOPBACK_NAMES)]


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
    except web.HTTPRequestEntityTooLarge:
        return error_response(413, f"The body is larger than {BODY_LIMIT // (1024 * 1024)} MiB.")
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return error_response(error.status, error.text or error.reason)
    except Exception:  # a fault of ours: the caller gets it as JSON too
        logger.exception("%s %s failed", request.method, request.path)
        return error_response(500, "Internal server error.", traceback.format_exc())


def _check_host_and_origin(names: frozenset[str]) -> Middleware:
    anyone = "*" in names

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not anyone:
            for header in ("Host", "Origin"):
                value = request.headers.get(header)
                if value is None and header == "Origin":
                    continue
                if _name_of(value or "") not in names:
                    return error_response(
                        403,
                        f"{header} {value!r} is refused: this address answers only to {', '.join(sorted(names))}. "
                        "A page of another site must not reach the cluster through your browser.",
                    )
        return await handler(request)

    return check


def _name_of(value: str) -> str:
    try:
        return (urlsplit(value if "//" in value else f"//{value}").hostname or "").lower()
    except ValueError:
        return ""
