"""The calling side of calls: signs them, repeats them where that is safe, and reads the answers."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import socket
import uuid
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp

from firesteel.core.clock import Clock
from firesteel.core.errors import FencedError, PeerUnreachableError
from firesteel.protocol.message import RPC_VERSION, RpcCode, RpcFault
from firesteel.protocol.method import DEFAULT_TIMEOUT
from firesteel.rpc.server import IDENTITY
from firesteel.rpc.signing import ANY_CALLEE, Signer

logger = logging.getLogger(__name__)
STALL_SECONDS = 1.0
"""A timeout that comes so many seconds too late was caused by a stall of this process, not by the peer."""
CONNECT_SECONDS: Final = 3.5
"""Seconds for a connection to be made. A lost first packet is sent again after one second and after three. An address
where nothing answers any more, such as that of a deleted pod, need not take the time of a whole call."""
MOST_IDENTITIES: Final = 10_000
"""Processes whose identities a caller remembers; the oldest identity is dropped first."""
_INTRODUCTIONS = 3
"""Tries of a call to processes whose identity was not known; after that, several were started anew meanwhile."""
_IN_PIECES = 1 << 20
"""Requests of more bytes are written in pieces: one write would hold up the event loop, and aiohttp warns of it."""


class RpcClient:
    """Calls methods of other services.

    Args:
        session: carries the calls; closed by its owner.
        secret: the cluster's secret; signs calls, and proves that an answer comes from the cluster.
        clock: measures calls for the log, and tells the time of requests.
    """

    def __init__(self, session: aiohttp.ClientSession, secret: str, clock: Clock) -> None:
        self._session, self._clock, self._signer = session, clock, Signer(secret, clock)
        self._identities: dict[str, str] = {}

    async def call(
        self,
        base_url: str,
        method: str,
        payload: Mapping[str, Any],
        token: str = "",
        timeout: float = DEFAULT_TIMEOUT,
    ) -> dict[str, Any]:
        """Call ``<base_url>/rpc/<method>`` and return the answer's payload.

        A call whose connection breaks in the middle (an idle connection that the peer had closed) is repeated at once,
        up to twice. The repeats have the same id, so that the callee carries the call out only once. A call whose time
        ran out while this process was stopped, or a thread held the interpreter, is repeated as well.

        The first call to a process is answered with the identity of the process alone, and made again. From then on
        calls name the identity, so that a recorded call is of no use with the next process at that address.

        Args:
            base_url: of the service, or of a job within its host; empty where it is not known.
            method: name of the method.
            payload: plain arguments.
            token: fencing token of the callee as the caller knows it; empty before registration.
            timeout: seconds for the whole call.

        Raises:
            FencedError: the token is stale.
            PeerUnreachableError: no answer; the call may have been carried out.
            RpcFault: the callee refused the call or failed in it, or its answer is not signed with the cluster secret
                (``UNAUTHORIZED``).
        """
        if not base_url:
            raise PeerUnreachableError(f"{method}: where its leader is, is not known (yet)")
        envelope = {"v": RPC_VERSION, "id": uuid.uuid4().hex, "token": token, "payload": payload}
        body = json.dumps(envelope, separators=(",", ":"), default=_mapping).encode()
        url = f"{base_url}/rpc/{method}"
        for _ in range(_INTRODUCTIONS):
            status, text = await self._send(url, body, self._identities.get(base_url, ANY_CALLEE), timeout)
            identity = _introduced(status, text)
            if identity is None:
                return _answer(url, status, text)
            self._identities.pop(base_url, None)
            self._identities[base_url] = identity
            if len(self._identities) > MOST_IDENTITIES:
                del self._identities[next(iter(self._identities))]
        raise PeerUnreachableError(f"{url}: the process there was another one at each of {_INTRODUCTIONS} tries")

    async def _send(self, url: str, body: bytes, callee: str, timeout: float) -> tuple[int, bytes]:
        """Send a call, again where its connection breaks; returns the status and the body of a genuine answer."""
        limit = aiohttp.ClientTimeout(total=timeout, sock_connect=min(timeout, CONNECT_SECONDS))
        for last_try in (False, False, True):
            started = self._clock.monotonic()
            nonce, headers = self._signer.sign("POST", url, body, callee)
            headers["Content-Type"] = "application/json"
            try:
                data = body if len(body) <= _IN_PIECES else io.BytesIO(body)
                async with self._session.post(
                    url, data=data, headers=headers, timeout=limit, allow_redirects=False
                ) as response:
                    status, text = response.status, await response.read()
                    genuine = self._signer.check_answer(nonce, status, text, response.headers)
                break
            except TimeoutError as error:
                connecting = isinstance(error, aiohttp.ConnectionTimeoutError)
                patience = min(timeout, CONNECT_SECONDS) if connecting else timeout
                if not last_try and self._clock.monotonic() - started > patience + STALL_SECONDS:
                    continue
                symptom = "no connection" if connecting else "no answer"
                raise PeerUnreachableError(f"{url}: {symptom} within {patience:g} s") from error
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                if last_try or isinstance(error, aiohttp.ClientConnectorError):
                    raise PeerUnreachableError(f"{url}: {error}") from error
            except aiohttp.ClientError as error:
                raise PeerUnreachableError(f"{url}: {type(error).__name__}: {error}") from error
            except RuntimeError as error:  # the session was closed: this service is stopping
                raise PeerUnreachableError(f"{url}: {error}") from error
        logger.debug("%s: %d in %.1f ms", url, status, (self._clock.monotonic() - started) * 1000)
        if not genuine:
            raise _not_signed(url, status, text)
        return status, text


async def check_reachable(base_url: str) -> None:
    """Check that a connection to a service can be made; nothing is sent.

    A host name that can't be looked up counts as reachable, since only the name service may be away.

    Args:
        base_url: as in ``RpcClient.call``.

    Raises:
        PeerUnreachableError: nobody listens there, or nothing answers within ``CONNECT_SECONDS``.
    """
    address = urlsplit(base_url)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(address.hostname, address.port)
    except TimeoutError as error:
        raise PeerUnreachableError(f"{base_url}: no connection within {CONNECT_SECONDS:g} s") from error
    except socket.gaierror as error:
        logger.warning("%s can't be looked up: %s", base_url, error)
        return
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise PeerUnreachableError(f"{base_url}: {reason}") from error
    writer.close()


def _mapping(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} can't travel as JSON")


def _not_signed(url: str, status: int, text: bytes) -> RpcFault:
    """The error of an answer that is not signed: it comes from outside of the cluster, or from a service that did not
    accept our own signature."""
    message = text[:500].decode(errors="replace")
    try:
        message = "; ".join(str(e) for e in json.loads(text)["errors"])[:500]
    except (ValueError, KeyError, TypeError):
        pass
    return RpcFault(RpcCode.UNAUTHORIZED, f"{url}: {status}, not signed with the cluster secret of here: {message}")


def _introduced(status: int, text: bytes) -> str | None:
    """The identity in the answer of a process that the call did not name; None for every other answer."""
    if status != 421:
        return None
    try:
        identity = json.loads(text)[IDENTITY]
    except (ValueError, KeyError, TypeError):
        return None
    return identity if isinstance(identity, str) else None


def _answer(url: str, status: int, text: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise RpcFault(RpcCode.INTERNAL, f"{url}: answered {status} with something that is not a JSON object")
    if status == 200 and isinstance(answer.get("payload"), dict):
        return dict(answer["payload"])
    message = "; ".join(str(e) for e in answer.get("errors", [])) or f"status {status}"
    code = answer.get("code")
    if code == RpcCode.FENCED:
        raise FencedError(f"{url}: {message}")
    fault_code = RpcCode(code) if code in set(RpcCode) else RpcCode.INTERNAL
    raise RpcFault(fault_code, f"{url}: {message}", message)
