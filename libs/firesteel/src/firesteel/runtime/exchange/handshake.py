"""The handshake of a connection: both ends prove that they know the job's secret before anything else is read.

The connecting side sends HELLO (who it is, which slot it looks for, a nonce). The accepting side answers CHALLENGE (who
it is, its nonce, and an HMAC-SHA256 over both hellos under the job's secret). The connecting side checks that and
answers PROOF (its own HMAC over the same). WELCOME ends the handshake; REFUSED with a reason can take the place of any
answer. Messages are small JSON and hex, and nothing is unpickled. This module is pure: bytes in, bytes out.
"""

from __future__ import annotations

import hmac
import json
import secrets
import struct
from collections.abc import Collection
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from firesteel.core.errors import ProtocolError

VERSION: Final = 1
MAGIC: Final = b"FSX\x00"
_PREFIX: Final = struct.Struct("<4sHBxI")
"""Magic, version, type, length; the same in every version."""
MAX_LENGTH: Final = 4096
"""Most bytes of a handshake message; a peer that is not authenticated must not be able to fill our memory."""


class HandshakeMessage(IntEnum):
    """Types of the messages by which two slots authenticate each other."""

    HELLO = 1
    CHALLENGE = 2
    PROOF = 3
    WELCOME = 4
    REFUSED = 5


class RefusedError(ProtocolError):
    """The handshake failed on this side.

    Attributes:
        reply: to be sent to the peer before the connection is closed; may be empty.
        stale: the peer is of an old attempt of the job.
    """

    def __init__(self, peer: str, reason: str, *, tell: bool = True, stale: bool = False) -> None:
        super().__init__(peer, reason)
        self.reply = _message(HandshakeMessage.REFUSED, reason[:1000].encode()) if tell else b""
        self.stale = stale


@dataclass(frozen=True)
class Identity:
    """Who an end of a connection is."""

    job_id: str
    job_attempt: int
    allocation_id: str


def _message(kind: HandshakeMessage, payload: bytes) -> bytes:
    return _PREFIX.pack(MAGIC, VERSION, kind, len(payload)) + payload


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)[:1000]


class _Side:
    """The part that both sides share: it assembles messages from bytes and checks their form."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self._buffer = bytearray()

    def _next(self, expected: HandshakeMessage) -> bytes | None:
        """Take the payload of the next message, which must be of the expected type; None while it is incomplete."""
        buffer = self._buffer
        if not MAGIC.startswith(bytes(buffer[:4])):
            raise RefusedError(self.peer, "does not speak the protocol of the exchange", tell=False)
        if len(buffer) < _PREFIX.size:
            return None
        _, version, kind, length = _PREFIX.unpack_from(buffer)
        if version != VERSION:
            raise RefusedError(self.peer, f"it speaks version {version} of the exchange protocol, this side {VERSION}")
        if length > MAX_LENGTH:
            raise RefusedError(self.peer, f"handshake message of {length} bytes; at most {MAX_LENGTH} are allowed")
        if len(buffer) < _PREFIX.size + length:
            return None
        payload = bytes(buffer[_PREFIX.size : _PREFIX.size + length])
        del buffer[: _PREFIX.size + length]
        if kind == HandshakeMessage.REFUSED:
            reason = _printable(payload.decode(errors="replace"))
            raise RefusedError(self.peer, f"it refused the connection: {reason}", tell=False)
        if kind != expected:
            raise RefusedError(self.peer, f"handshake message {kind} came in place of {expected.name}")
        return payload

    def _object(self, payload: bytes, fields: dict[str, type]) -> dict[str, Any]:
        try:
            value = json.loads(payload)
        except (ValueError, RecursionError):  # ValueError also stands for bytes that are not UTF-8
            value = None
        if type(value) is not dict or any(type(value.get(name)) is not kind for name, kind in fields.items()):
            raise RefusedError(self.peer, f"malformed handshake message; {', '.join(fields)} are expected")
        return value

    @property
    def leftover(self) -> bytes:
        """Bytes that came behind the handshake: the first frames."""
        return bytes(self._buffer)


def _proof(secret: bytes, role: bytes, hello: bytes, challenge: bytes) -> str:
    # The role keeps a proof from being sent back as its own answer; the lengths keep the parts from being shifted.
    transcript = b"".join(struct.pack("<I", len(part)) + part for part in (role, hello, challenge))
    return hmac.new(secret, transcript, "sha256").hexdigest()


_HELLO_FIELDS: Final[dict[str, type]] = {"job": str, "attempt": int, "from": str, "to": str, "nonce": str}


def _check_identity(peer: str, hello: dict[str, Any], me: Identity) -> None:
    if hello["job"] != me.job_id:
        raise RefusedError(peer, f"it belongs to job {_printable(hello['job'])[:40]}, this slot to job {me.job_id}")
    if hello["attempt"] != me.job_attempt:
        raise RefusedError(
            peer,
            f"it runs attempt {hello['attempt']} of the job, this slot attempt {me.job_attempt}",
            stale=hello["attempt"] < me.job_attempt,
        )
    if hello["to"] != me.allocation_id:
        raise RefusedError(peer, f"it looks for slot {_printable(hello['to'])[:40]}, this is slot {me.allocation_id}")


class ConnectingHandshake(_Side):
    """The side that connects.

    Args:
        peer: name of the other side in errors.
        me: identity of this side.
        target: allocation id of the slot that should answer.
        secret: secret of the job.
    """

    def __init__(self, peer: str, me: Identity, target: str, secret: bytes) -> None:
        super().__init__(peer)
        self._me, self._target, self._secret = me, target, secret
        self._hello = json.dumps(
            {
                "job": me.job_id,
                "attempt": me.job_attempt,
                "from": me.allocation_id,
                "to": target,
                "nonce": secrets.token_hex(32),
            }
        ).encode()
        self._proved = False
        self.done = False

    def start(self) -> bytes:
        """The first message to send: HELLO."""
        return _message(HandshakeMessage.HELLO, self._hello)

    def feed(self, data: bytes) -> bytes:
        """Take bytes that arrived; return bytes to send. ``done`` turns True when the handshake is over.

        Raises:
            RefusedError: the peer refused, or is not who it should be; close the connection.
        """
        self._buffer += data
        if not self._proved:
            payload = self._next(HandshakeMessage.CHALLENGE)
            if payload is None:
                return b""
            # The answer is {"hello": text of the JSON that was proved, "proof": hex}.
            answer = self._object(payload, {"hello": str, "proof": str})
            challenge = answer["hello"].encode(errors="surrogatepass")
            expected = _proof(self._secret, b"accept", self._hello, challenge)
            if not hmac.compare_digest(expected.encode(), answer["proof"].encode(errors="replace")):
                raise RefusedError(self.peer, "wrong secret: it does not know the secret of this job")
            hello = self._object(challenge, _HELLO_FIELDS)
            _check_identity(self.peer, hello, self._me)
            if hello["from"] != self._target:
                other = _printable(hello["from"])[:40]
                raise RefusedError(self.peer, f"slot {other} answered in place of {self._target}")
            self._proved = True
            return _message(HandshakeMessage.PROOF, _proof(self._secret, b"connect", self._hello, challenge).encode())
        if self._next(HandshakeMessage.WELCOME) is not None:
            self.done = True
        return b""


class AcceptingHandshake(_Side):
    """The side that accepts. HELLO may come before this slot knows its job; it then waits in ``hello``.

    Args:
        peer: name of the other side in errors, as far as it is known.
    """

    def __init__(self, peer: str) -> None:
        super().__init__(peer)
        self._raw_hello = b""
        self.hello: dict[str, Any] | None = None
        self._expected = ""
        self.done = False

    def feed(self, data: bytes) -> bytes:
        """Take bytes that arrived; return bytes to send. Look at ``hello`` and ``done`` afterwards.

        Raises:
            RefusedError: send its ``reply`` and close the connection.
        """
        self._buffer += data
        if self.hello is None:
            payload = self._next(HandshakeMessage.HELLO)
            if payload is not None:
                self.hello = self._object(payload, _HELLO_FIELDS)
                self._raw_hello = payload
                self.peer = f"slot {_printable(self.hello['from'])[:40]} ({self.peer})"
            return b""
        if not self._expected:
            if self._buffer:
                raise RefusedError(self.peer, "it went on before it was answered")
            return b""
        payload = self._next(HandshakeMessage.PROOF)
        if payload is None:
            return b""
        if not hmac.compare_digest(self._expected.encode(), payload):
            raise RefusedError(self.peer, "wrong secret: it does not know the secret of this job")
        self.done = True
        return _message(HandshakeMessage.WELCOME, b"")

    def answer(self, me: Identity, secret: bytes, allowed: Collection[str]) -> bytes:
        """Check who sent HELLO; return the CHALLENGE to send.

        Args:
            me: identity of this side.
            secret: secret of the job.
            allowed: allocation ids that may connect to this slot.

        Raises:
            RefusedError: send its ``reply`` and close the connection.
        """
        hello = self.hello
        if hello is None:
            raise RuntimeError("there was no HELLO")
        _check_identity(self.peer, hello, me)
        if hello["from"] not in allowed:
            raise RefusedError(self.peer, "this slot expects no connection from it")
        answer = json.dumps(
            {
                "job": me.job_id,
                "attempt": me.job_attempt,
                "from": me.allocation_id,
                "to": hello["from"],
                "nonce": secrets.token_hex(32),
            }
        )
        challenge = answer.encode()
        self._expected = _proof(secret, b"connect", self._raw_hello, challenge)
        proof = _proof(secret, b"accept", self._raw_hello, challenge)
        return _message(HandshakeMessage.CHALLENGE, json.dumps({"hello": answer, "proof": proof}).encode())
