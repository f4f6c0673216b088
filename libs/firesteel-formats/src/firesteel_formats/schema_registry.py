"""A schema registry that speaks Confluent's REST API, and its wire format: a zero, a schema's number, the message."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlsplit, urlunsplit

from firesteel.core.errors import ProgramError
from firesteel.core.proxies import opener_for

__all__ = ["Fetch", "Reference", "RegisteredSchema", "SchemaRegistry", "UnknownSchemaError", "framed", "unframed"]

HEADER_BYTES: Final = 5
ATTEMPTS: Final = 5
FIRST_PAUSE_SECONDS: Final = 0.2
TIMEOUT_SECONDS: Final = 10.0
_CONTENT: Final = "application/vnd.schemaregistry.v1+json"
_LOGIN: Final = "basic.auth.user.info"
_TOKEN: Final = "bearer.auth.token"  # a name
_CA: Final = "schema.registry.ssl.ca.location"
Fetch = Callable[[str, bytes | None], bytes]
"""The body that a URL gives, or that it answers to a body; raises ``urllib.error.HTTPError`` and ``OSError``."""


class UnknownSchemaError(ValueError):
    """The registry has no schema of this number, or one of another kind."""


@dataclass(frozen=True)
class Reference:
    """Another schema that a schema uses.

    Attributes:
        name: under which it is used.
        subject, version: of it.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema as a registry has it.

    Attributes:
        kind: ``AVRO``, ``JSON`` or ``PROTOBUF``.
        text: of it.
        references: to others.
    """

    kind: str
    text: str
    references: tuple[Reference, ...] = ()


def framed(number: int, payload: bytes) -> bytes:
    """A message in the wire format."""
    return b"\0" + number.to_bytes(4, "big") + payload


def unframed(message: bytes) -> tuple[int, bytes]:
    """The number of a message's schema, and what is behind it.

    Raises:
        ValueError: it is not in the wire format.
    """
    if len(message) < HEADER_BYTES or message[0] != 0:
        raise ValueError("it does not begin with a zero and the number of a schema")
    return int.from_bytes(message[1:HEADER_BYTES], "big"), message[HEADER_BYTES:]


class SchemaRegistry:
    """Asks a registry; what it has said once is not asked again.

    Args:
        url: of the registry; may hold ``user:password@``.
        configs: ``basic.auth.user.info`` (``user:password``), ``bearer.auth.token``,
            ``schema.registry.ssl.ca.location``.
        fetch: gets a URL; None = by HTTP.
        pause: waits between two attempts.

    Raises:
        ProgramError: it is no URL of HTTP, or a setting is not known.
    """

    def __init__(
        self,
        url: str,
        configs: Mapping[str, str] | None = None,
        fetch: Fetch | None = None,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ProgramError("a schema registry is at http://host:port or https://host:port")
        given = dict(configs or {})
        unknown = sorted(set(given) - {_LOGIN, _TOKEN, _CA})
        if unknown:
            raise ProgramError(f"a schema registry has no setting {unknown[0]!r}, but {_LOGIN}, {_TOKEN} and {_CA}")
        host = parts.hostname if parts.port is None else f"{parts.hostname}:{parts.port}"
        self.url = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        login = given.get(_LOGIN, "" if parts.username is None else f"{parts.username}:{parts.password or ''}")
        token = given.get(_TOKEN, "")
        if login and token:
            raise ProgramError(f"a schema registry takes {_LOGIN} or {_TOKEN}, not both")
        basic = base64.b64encode(login.encode()).decode()
        self._authorization = f"Basic {basic}" if login else f"Bearer {token}" if token else ""
        self._ca = given.get(_CA)
        self._fetch, self._pause = fetch or self._get, pause or threading.Event().wait
        self._known: dict[int, RegisteredSchema] = {}
        self._numbers: dict[tuple[str, RegisteredSchema], int] = {}

    def schema(self, number: int, kind: str) -> RegisteredSchema:
        """The schema of this number.

        Args:
            number: of it.
            kind: that it has to be of.

        Raises:
            UnknownSchemaError: there is none, or it is of another kind.
            ConnectionError: the registry did not answer, five times.
            ProgramError: it refuses.
        """
        known = self._known.get(number)
        if known is None:
            what = f"schema {number}"
            known = self._known[number] = _read(self._ask(f"/schemas/ids/{number}", what), what)
        if known.kind != kind:
            raise UnknownSchemaError(f"schema {number} at {self.url} is one of {known.kind}, not of {kind.title()}")
        return known

    def referred(self, reference: Reference) -> RegisteredSchema:
        """The schema that another one uses; raises as ``schema`` does."""
        what = f"version {reference.version} of subject {reference.subject!r}"
        path = f"/subjects/{quote(reference.subject, safe='')}/versions/{reference.version}"
        return _read(self._ask(path, what), what)

    def register(self, subject: str, schema: RegisteredSchema, *, new: bool = True) -> int:
        """The number of a schema, which has it from then on if it had none.

        Args:
            subject: for which it is.
            schema: it.
            new: it may be registered; otherwise somebody has to have done so.

        Raises:
            UnknownSchemaError: it is not registered, and must not be.
            ConnectionError: the registry did not answer, five times.
            ProgramError: it refuses, as a schema that is not compatible with those before.
        """
        known = self._numbers.get((subject, schema))
        if known is None:
            known = self._numbers[subject, schema] = int(self._post(subject, schema, "/versions" if new else "")["id"])
        return known

    def version(self, subject: str, schema: RegisteredSchema) -> int:
        """The version that a registered schema has in its subject; raises as ``register`` does."""
        return int(self._post(subject, schema, "")["version"])

    def _post(self, subject: str, schema: RegisteredSchema, path: str) -> Any:
        body: dict[str, Any] = {"schema": schema.text, "schemaType": schema.kind}
        if schema.references:
            body["references"] = [vars(one) for one in schema.references]
        url = f"/subjects/{quote(subject, safe='')}{path}"
        return self._ask(url, f"schema of subject {subject!r}", json.dumps(body).encode())

    def _ask(self, path: str, what: str, body: bytes | None = None) -> Any:
        wait = FIRST_PAUSE_SECONDS
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return json.loads(self._fetch(self.url + path, body))
            except urllib.error.HTTPError as error:
                with error:
                    said = error.read()[:500].decode(errors="replace")
                if error.code == 404:
                    raise UnknownSchemaError(f"the registry at {self.url} has no {what}") from None
                if error.code < 500 and error.code not in (408, 429):
                    raise ProgramError(f"the registry at {self.url} refuses {what}: {error} {said}".rstrip()) from error
                reason: Exception = error
            except (OSError, ValueError) as error:
                if isinstance(getattr(error, "reason", error), ssl.SSLCertVerificationError):
                    raise ProgramError(f"the registry at {self.url} is not trusted: {error}") from error
                reason = error
            if attempt == ATTEMPTS:
                raise ConnectionError(f"the registry at {self.url} does not answer: {reason}") from reason
            self._pause(wait)
            wait *= 2
        raise AssertionError("unreachable")

    def _get(self, url: str, body: bytes | None) -> bytes:
        request = urllib.request.Request(url, body, headers={"Accept": _CONTENT, "Content-Type": _CONTENT})
        if self._authorization:
            request.add_header("Authorization", self._authorization)
        context = ssl.create_default_context(cafile=self._ca) if url.startswith("https") else None
        with opener_for(url, context).open(request, timeout=TIMEOUT_SECONDS) as answer:
            found: bytes = answer.read()
        return found


def _read(answer: Any, what: str) -> RegisteredSchema:
    try:
        references = tuple(
            Reference(str(one["name"]), str(one["subject"]), int(one["version"]))
            for one in answer.get("references") or ()
        )
        return RegisteredSchema(str(answer.get("schemaType") or "AVRO"), str(answer["schema"]), references)
    except (KeyError, TypeError, AttributeError) as error:
        raise UnknownSchemaError(f"the registry's answer about {what} is no schema: {error}") from error
