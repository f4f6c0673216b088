"""Calls whose envelope a test writes by hand."""

from __future__ import annotations

import aiohttp

from firesteel.core.clock import SystemClock
from firesteel.rpc import Signer


async def headers_of_call(session: aiohttp.ClientSession, secret: str, url: str, body: bytes) -> dict[str, str]:
    """Headers of a call that names the process at ``url``, whose identity is asked for first.

    Args:
        session: asks for the identity.
        secret: of the cluster.
        url: of the call.
        body: of the call.
    """
    signer = Signer(secret, SystemClock())
    async with session.post(url, data=b"{}", headers=signer.headers("POST", url, b"{}")) as answer:
        assert answer.status == 421
        identity = (await answer.json())["identity"]
    return signer.sign("POST", url, body, identity)[1]
