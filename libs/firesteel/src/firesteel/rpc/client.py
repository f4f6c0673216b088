"""The calling side."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Mapping
from typing import Any

import aiohttp

from firesteel.core.clock import Clock
from firesteel.core.errors import FencedError, PeerUnreachableError
from firesteel.protocol.message import RPC_VERSION, RpcCode, RpcFault

logger = logging.getLogger(__name__)
DEFAULT_TIMEOUT = 10.0
"""Seconds; Flink's ``pekko.ask.timeout``."""
STALL_SECONDS = 1.0
"""A timeout that comes so much too late was made by a stall of this process, not by the peer."""


class RpcClient:
    """Calls methods of other services.

    Args:
        session: carries the calls; closed by its owner.
        secret: the cluster's secret.
        clock: measures calls for the log.
    """

    def __init__(self, session: aiohttp.ClientSession, secret: str, clock: Clock) -> None:
        self._session, self._clock = session, clock
        self._headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}

    async def call(
        self,
        base_url: str,
        method: str,
        payload: Mapping[str, Any],
        token: str = "",
        timeout: float = DEFAULT_TIMEOUT,
    ) -> dict[str, Any]:
        """Call ``<base_url>/rpc/<method>`` and return the answer's payload.

        A call whose connection breaks in the middle (a kept connection that the peer had closed) is repeated at once,
        up to twice, with the same id, so that the callee does it only once; so is one whose time ran out while this
        process was stopped, or a thread of it held the interpreter.

        Args:
            base_url: of the service, or of a job within its host.
            method: its name.
            payload: plain arguments.
            token: fencing token of the callee as the caller knows it; empty before registration.
            timeout: seconds for the whole call.

        Raises:
            FencedError: the token is stale.
            PeerUnreachableError: no answer; the call may have happened.
            RpcFault: the callee refused the call or failed in it.
        """
        envelope = {"v": RPC_VERSION, "id": uuid.uuid4().hex, "token": token, "payload": payload}
        body = json.dumps(envelope, separators=(",", ":"), default=_mapping).encode()
        url = f"{base_url}/rpc/{method}"
        limit = aiohttp.ClientTimeout(total=timeout)
        for last_try in (False, False, True):
            started = self._clock.monotonic()
            try:
                async with self._session.post(url, data=body, headers=self._headers, timeout=limit) as response:
                    status, text = response.status, await response.read()
                break
            except TimeoutError as error:
                if not last_try and self._clock.monotonic() - started > timeout + STALL_SECONDS:
                    continue
                raise PeerUnreachableError(f"{url}: no answer within {timeout:g} s") from error
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                if last_try or isinstance(error, aiohttp.ClientConnectorError):
                    raise PeerUnreachableError(f"{url}: {error}") from error
            except aiohttp.ClientError as error:
                raise PeerUnreachableError(f"{url}: {type(error).__name__}: {error}") from error
            except RuntimeError as error:  # the session was closed: this service is stopping
                raise PeerUnreachableError(f"{url}: {error}") from error
        logger.debug("%s: %d in %.1f ms", url, status, (self._clock.monotonic() - started) * 1000)
        return _answer(url, status, text)


def _mapping(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} can't travel as JSON")


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
    known = RpcCode(code) if code in set(RpcCode) else RpcCode.NOT_FOUND if status == 404 else RpcCode.INTERNAL
    raise RpcFault(known, f"{url}: {message}")
