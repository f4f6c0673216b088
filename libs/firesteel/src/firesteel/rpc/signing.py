"""Signed requests and answers: without the cluster's secret nobody can make, answer or repeat a call.

A request carries one header, ``Authorization: Firesteel <time> <nonce> <digest> <callee> <mac>``: milliseconds since
1970, 32 random hex digits, the SHA-256 of the body, the identity of the callee's process (``-`` where the caller does
not know it), and the HMAC-SHA256 of these and of method, host and path. It is checked before the body is read, so that
the body of a stranger is never kept. An answer carries ``Firesteel-Signature``: the HMAC-SHA256 of the request's nonce,
the status and the SHA-256 of the answer's body.

A process remembers the nonces that it has accepted, and its successor at the same port does not have them. The identity
closes that gap: it is random, made at each start, and a call that names another identity is refused.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from firesteel.core.clock import Clock
from firesteel.core.errors import UnauthorizedError
from firesteel.core.secret import derive

SCHEME = "Firesteel"
ANSWER_HEADER = "Firesteel-Signature"
MOST_SKEW_MS = 300_000
"""Largest difference between the time of a request and the callee's clock; other requests are refused."""
MOST_NONCES = 400_000
"""Nonces that are remembered. The oldest are dropped first, and requests as old as those are refused from then on."""
ANY_CALLEE = "-"
"""Stands for the identity in a request whose caller does not know it."""
_BUCKET_MS = 10_000
_NONCE = 32
_DIGEST = 64


@dataclass(frozen=True)
class Verified:
    """A request with a valid signature.

    Attributes:
        nonce: goes into the signature of the answer.
        digest: SHA-256 of the body that the caller sent, hexadecimal.
        callee: identity of the process that the caller has named; ``ANY_CALLEE`` where it does not know it.
    """

    nonce: str
    digest: str
    callee: str


class Signer:
    """Signs and checks requests and answers, with a key derived from the cluster's secret.

    It remembers the nonces that it has accepted, so each place that accepts requests has one signer.

    Args:
        secret: of the cluster.
        clock: its wall clock is used.
    """

    def __init__(self, secret: str, clock: Clock) -> None:
        self._mac = hmac.new(derive(secret, "rpc").encode(), digestmod=hashlib.sha256)
        self._clock = clock
        self._seen = _Nonces()

    def headers(self, method: str, url: str, body: bytes = b"") -> dict[str, str]:
        """Headers that sign one sending of a request; a repeat needs new ones.

        Args:
            method: HTTP method, in capitals.
            url: whole URL of the request.
            body: body of the request.
        """
        return self.sign(method, url, body)[1]

    def sign(self, method: str, url: str, body: bytes = b"", callee: str = ANY_CALLEE) -> tuple[str, dict[str, str]]:
        """Like ``headers``, with the nonce, which ``check_answer`` needs.

        Args:
            method: HTTP method, in capitals.
            url: whole URL of the request.
            body: body of the request.
            callee: identity of the callee's process.
        """
        parts = urlsplit(url)
        if not parts.netloc:
            raise ValueError(f"a whole URL is signed, not {url!r}")
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        host = parts.netloc.lower().removesuffix(":80")  # as clients write it into Host
        when, nonce, digest = self._clock.epoch_ms(), secrets.token_hex(_NONCE // 2), hashlib.sha256(body).hexdigest()
        mac = self._request_mac(method, host, path, str(when), nonce, digest, callee)
        return nonce, {"Authorization": f"{SCHEME} {when} {nonce} {digest} {callee} {mac}"}

    def verify(self, method: str, host: str, path: str, authorization: str | None) -> Verified:
        """Check the headers of a request; each request is accepted only once.

        The caller has to compare the body with ``digest`` once it is read.

        Args:
            method: HTTP method, in capitals.
            host: the header ``Host``.
            path: path of the request, with the query.
            authorization: the header ``Authorization``.

        Raises:
            UnauthorizedError: the request is not signed, signed with another secret, too old, or a repeat; the message
                says which.
        """
        fields = (authorization or "").split(" ")
        if len(fields) != 6 or fields[0] != SCHEME:
            raise UnauthorizedError("the request is not signed with the cluster secret")
        _, when, nonce, digest, callee, mac = fields
        if len(nonce) != _NONCE or len(digest) != _DIGEST or not (when.isascii() and when.isdecimal()):
            raise UnauthorizedError("the signature of the request is malformed")
        expected = self._request_mac(method, host.lower(), path, when, nonce, digest, callee)
        if not hmac.compare_digest(expected.encode(), mac.encode(errors="replace")):
            raise UnauthorizedError("the request is not signed with the cluster secret: the secrets differ")
        now, at = self._clock.epoch_ms(), int(when)
        if abs(now - at) > MOST_SKEW_MS:
            raise UnauthorizedError(
                f"the caller's clock differs from the one here by {(at - now) / 1000:+.0f} s, and no more than "
                f"{MOST_SKEW_MS // 1000} s are accepted: set the clocks of both machines"
            )
        if not self._seen.add(nonce, at, now):
            raise UnauthorizedError("the request is a repeat of one that came before")
        return Verified(nonce, digest, callee)

    def answer_headers(self, nonce: str, status: int, body: bytes) -> dict[str, str]:
        """Headers that sign the answer to a request."""
        return {ANSWER_HEADER: self._answer_mac(nonce, status, body)}

    def check_answer(self, nonce: str, status: int, body: bytes, headers: Mapping[str, str]) -> bool:
        """Whether an answer to the request with this nonce comes from a service that knows the secret."""
        signature = headers.get(ANSWER_HEADER, "")
        return hmac.compare_digest(self._answer_mac(nonce, status, body).encode(), signature.encode(errors="replace"))

    def _request_mac(self, *fields: str) -> str:
        return self._of("request", *fields)

    def _answer_mac(self, nonce: str, status: int, body: bytes) -> str:
        return self._of("answer", nonce, str(status), hashlib.sha256(body).hexdigest())

    def _of(self, *fields: str) -> str:
        mac = self._mac.copy()
        mac.update("\n".join(fields).encode(errors="surrogateescape"))  # no field of a request holds a line end
        return mac.hexdigest()


class _Nonces:
    """The nonces of the last minutes, in buckets by the time in the request."""

    def __init__(self) -> None:
        self._buckets: dict[int, set[int]] = {}
        self._count = 0
        self._forgotten = -1
        """Newest bucket that had to be dropped before its time."""

    def add(self, nonce: str, at: int, now: int) -> bool:
        """Note a nonce; returns whether it is new. A request from a time whose nonces are gone counts as a repeat."""
        number, value = at // _BUCKET_MS, int(nonce[:16], 16)
        if number <= self._forgotten:
            return False
        bucket = self._buckets.get(number)
        if bucket is None:
            for expired in [n for n in self._buckets if (n + 1) * _BUCKET_MS < now - MOST_SKEW_MS]:
                self._count -= len(self._buckets.pop(expired))
            bucket = self._buckets[number] = set()
        if value in bucket:
            return False
        bucket.add(value)
        self._count += 1
        if self._count > MOST_NONCES:
            self._forgotten = min(self._buckets)
            self._count -= len(self._buckets.pop(self._forgotten))
        return True
