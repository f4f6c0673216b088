"""The answering side of calls: from a signed request to a handler, and back."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from firesteel.core.clock import Clock, SystemClock
from firesteel.core.errors import (
    FencedError,
    GraphError,
    JobNotFoundError,
    NoResourceAvailableError,
    ProtocolError,
    UnauthorizedError,
)
from firesteel.protocol.message import RPC_VERSION, RpcCode, RpcFault
from firesteel.rpc.guard import RequestGuard
from firesteel.rpc.signing import Verified

logger = logging.getLogger(__name__)
IDENTITY = "identity"
"""Field of the answer to a call that does not name the process: the identity of this start of the service."""
KEEP_ANSWERS = 1024
KEEP_SECONDS = 300.0
KEEP_BYTES = 16 * 1024
"""Longer answers are not kept, which does no harm: handlers are idempotent."""
KEEP_TOTAL = 2 * 1024 * 1024
"""Bytes of all kept answers together; the oldest go first."""
_STATUS = {
    RpcCode.FENCED: 409,
    RpcCode.NOT_FOUND: 404,
    RpcCode.UNKNOWN_EXECUTION: 404,
    RpcCode.UNKNOWN_PLACEMENT: 404,
    RpcCode.BAD_REQUEST: 400,
    RpcCode.REFUSED: 400,
    RpcCode.VERSION: 400,
    RpcCode.UNAUTHORIZED: 401,
    RpcCode.ANOTHER_PROCESS: 421,
    RpcCode.INTERNAL: 500,
    RpcCode.NO_RESOURCES: 503,
    RpcCode.GONE: 410,
}


@dataclass(frozen=True)
class RpcRequest:
    """A call as its handler gets it.

    Attributes:
        method: name of the method.
        id: of the call; a repeat carries the same id.
        token: the callee's fencing token as the caller knows it.
        payload: plain arguments.
        path: variable parts of the URL, such as ``job_id``.
    """

    method: str
    id: str
    token: str
    payload: Mapping[str, Any]
    path: Mapping[str, str]


Handler = Callable[[RpcRequest], Awaitable[Mapping[str, Any]]]


class _AnswerCache:
    """The last answers by call id; a repeat that comes while the first call runs waits for its answer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answers: OrderedDict[str, tuple[float, asyncio.Future[tuple[int, bytes]]]] = OrderedDict()
        self._bytes = 0

    def find(self, call: str) -> asyncio.Future[tuple[int, bytes]] | None:
        now = self._clock.monotonic()
        while self._answers:
            oldest, (at, _) = next(iter(self._answers.items()))
            if len(self._answers) <= KEEP_ANSWERS and self._bytes <= KEEP_TOTAL and now - at < KEEP_SECONDS:
                break
            self.forget(oldest)
        entry = self._answers.get(call)
        return entry[1] if entry else None

    def begin(self, call: str) -> asyncio.Future[tuple[int, bytes]]:
        future: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        self._answers[call] = (self._clock.monotonic(), future)
        return future

    def answered(self, call: str, size: int) -> None:
        if size > KEEP_BYTES:
            self.forget(call)
        elif call in self._answers:
            self._bytes += size

    def forget(self, call: str) -> None:
        _, future = self._answers.pop(call, (0.0, None))
        if future is not None and future.done() and not future.cancelled():
            self._bytes -= len(future.result()[1])


def rpc_routes(
    handlers: Mapping[str, Handler],
    secret: str,
    *,
    prefix: str = "",
    clock: Clock | None = None,
) -> list[web.RouteDef]:
    """Routes that answer ``POST <prefix>/rpc/<method>``.

    A handler refuses a call by raising ``RpcFault``, ``FencedError``, ``ProtocolError`` (bad request), ``GraphError``
    (``REFUSED``), ``JobNotFoundError`` or ``NoResourceAvailableError``; any other exception is our bug, logged and
    answered as ``INTERNAL``. A call whose id was answered within the last five minutes gets the same answer again. A
    call that does not name the identity of this start of the service is answered with the identity alone.

    Args:
        handlers: by method name; ``firesteel.rpc.handlers_of`` makes them from the rows of a gateway.
        secret: the cluster's secret; calls that are not signed with it are refused, and answers are signed.
        prefix: in front of ``/rpc``; may have variable parts such as ``/jobs/{job_id}``.
        clock: for the age of answers and of requests.
    """
    clock = clock or SystemClock()
    guard, answers = RequestGuard(secret, clock), _AnswerCache(clock)

    def signed(verified: Verified, status: int, body: bytes) -> web.Response:
        return _response(status, body, guard.signer.answer_headers(verified.nonce, status, body))

    async def serve(request: web.Request) -> web.Response:
        try:
            verified, body = await guard.read(request)
        except UnauthorizedError as error:  # not signed, so the caller is unknown, and the answer is not signed either
            return _response(*_refusal(RpcCode.UNAUTHORIZED, str(error)), {})
        if verified.callee != guard.identity:
            # The call is not carried out: it may be a recorded call to the process that had this port before.
            return signed(verified, *_introduction(guard.identity))
        try:
            call = _read(body, request.match_info)
        except RpcFault as fault:
            return signed(verified, *_refusal(fault.code, str(fault)))
        key = f"{request.path}#{call.id}"
        running = answers.find(key)
        if running is not None:
            return signed(verified, *await asyncio.shield(running))
        future = answers.begin(key)
        try:
            status, answer = await _perform(call, handlers)
        except BaseException:  # cancelled: the caller went away; others that wait for this answer have to call again
            answers.forget(key)
            if not future.done():
                future.cancel()
            raise
        answers.answered(key, len(answer))
        future.set_result((status, answer))
        return signed(verified, status, answer)

    return [web.post(f"{prefix}/rpc/{{method}}", serve)]


def _read(body: bytes, path: Mapping[str, str]) -> RpcRequest:
    try:
        envelope = json.loads(body)
    except ValueError as error:
        raise RpcFault(RpcCode.BAD_REQUEST, f"the body is not JSON: {error}") from error
    if not isinstance(envelope, dict):
        raise RpcFault(RpcCode.BAD_REQUEST, "the body is not a JSON object")
    if envelope.get("v") != RPC_VERSION:
        raise RpcFault(
            RpcCode.VERSION, f"protocol version {envelope.get('v')!r} is not spoken here, only version {RPC_VERSION}"
        )
    call, token, payload = envelope.get("id"), envelope.get("token", ""), envelope.get("payload")
    if not isinstance(call, str) or not call or not isinstance(token, str) or not isinstance(payload, dict):
        raise RpcFault(RpcCode.BAD_REQUEST, "a call has id (text), token (text) and payload (object)")
    return RpcRequest(path["method"], call, token, payload, path)


async def _perform(call: RpcRequest, handlers: Mapping[str, Handler]) -> tuple[int, bytes]:
    try:
        handler = handlers.get(call.method)
        if handler is None:
            raise RpcFault(RpcCode.NOT_FOUND, f"there is no method {call.method!r}")
        return 200, json.dumps({"payload": await handler(call)}, separators=(",", ":"), default=_mapping).encode()
    except FencedError as error:
        return _refusal(RpcCode.FENCED, str(error))
    except RpcFault as fault:
        return _refusal(fault.code, str(fault))
    except ProtocolError as error:
        return _refusal(RpcCode.BAD_REQUEST, str(error))
    except GraphError as error:
        return _refusal(RpcCode.REFUSED, str(error))
    except JobNotFoundError as error:
        return _refusal(RpcCode.NOT_FOUND, str(error))
    except NoResourceAvailableError as error:
        return _refusal(RpcCode.NO_RESOURCES, str(error))
    except Exception as error:
        logger.exception("%s failed", call.method)
        return _refusal(RpcCode.INTERNAL, f"{call.method}: {type(error).__name__}: {error}")


def _mapping(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} can't travel as JSON")


def _refusal(code: RpcCode, message: str) -> tuple[int, bytes]:
    return _STATUS[code], json.dumps({"errors": [message], "code": code.value}).encode()


def _introduction(identity: str) -> tuple[int, bytes]:
    code = RpcCode.ANOTHER_PROCESS
    answer = {"errors": ["the call does not name this process"], "code": code.value, IDENTITY: identity}
    return _STATUS[code], json.dumps(answer).encode()


def _response(status: int, body: bytes, headers: Mapping[str, str]) -> web.Response:
    return web.Response(status=status, body=body, content_type="application/json", charset="utf-8", headers=headers)
