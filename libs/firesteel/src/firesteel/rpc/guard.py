"""The guard in front of all routes that only services of the cluster may use."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets

from aiohttp import web

from firesteel.core.clock import Clock
from firesteel.core.errors import UnauthorizedError
from firesteel.core.refusals import RefusalLog
from firesteel.rpc.signing import Signer, Verified

logger = logging.getLogger(__name__)


class RequestGuard:
    """Lets signed requests pass, and logs the peers that it refuses.

    Args:
        secret: of the cluster.
        clock: for the age of requests.

    Attributes:
        signer: checks requests and signs answers.
        identity: random id of this start of the service, which calls have to name.
    """

    def __init__(self, secret: str, clock: Clock) -> None:
        self.signer = Signer(secret, clock)
        self.identity = secrets.token_hex(16)
        self._refusals = RefusalLog(logger, "internal port")

    def check(self, request: web.Request) -> Verified:
        """Check the signature of a request, without its body.

        Raises:
            UnauthorizedError: the request is refused.
        """
        try:
            authorization = request.headers.get("Authorization")
            verified = self.signer.verify(
                request.method, request.headers.get("Host", ""), request.raw_path, authorization
            )
        except UnauthorizedError as error:
            self._refused(request, error)
            raise
        if (mark_authenticated := getattr(request.protocol, "authenticated", None)) is not None:
            mark_authenticated()  # so the listener can tell the cluster's connections from those of strangers
        return verified

    async def read(self, request: web.Request) -> tuple[Verified, bytes]:
        """Check a request and read its body.

        Raises:
            UnauthorizedError: the request is refused, or its body is not the signed one.
            HTTPRequestEntityTooLarge: the body is larger than the application allows.
        """
        verified = self.check(request)
        body = await request.read()
        if not hmac.compare_digest(hashlib.sha256(body).hexdigest(), verified.digest):
            error = UnauthorizedError("the body of the request is not the one that was signed")
            self._refused(request, error)
            raise error
        return verified, body

    def _refused(self, request: web.Request, error: UnauthorizedError) -> None:
        text = str(error)
        self._refusals.refused(request.remote or "?", f"{request.method} {request.path[:100]!r}: {text}", text[:40])
