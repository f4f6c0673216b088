"""Client of a schema registry with Confluent's REST API. Messages: a zero, the number of a schema, the payload."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlunsplit

from firesteel.core.errors import ProgramError
from firesteel.core.proxies import http_parts, opener_for

__all__ = ["Fetch", "Reference", "RegisteredSchema", "SchemaRegistry", "UnknownSchemaError", "framed", "unframed"]

HEADER_BYTES: Final = 5
ATTEMPTS: Final = 5
FIRST_PAUSE_SECONDS: Final = 0.2
TIMEOUT_SECONDS: Final = 10.0
_CONTENT: Final = "application/vnd.schemaregistry.v1+json"
_LOGIN: Final = "basic.auth.user.info"
_TOKEN: Final = "bearer.auth.token"
_CA: Final = "schema.registry.ssl.ca.location"
Fetch = Callable[[str, bytes | None], bytes]
"""Gets a URL, or posts a body to it, and returns the body of the answer.

It raises ``urllib.error.HTTPError`` for an answer that is an error, and other kinds of ``OSError`` or
``http.client.HTTPException`` if there is no answer, or not all of it.
"""


class UnknownSchemaError(ValueError):
    """The registry has no such schema, or its schema is of another kind."""


@dataclass(frozen=True)
class Reference:
    """Names another schema that a schema uses.

    Attributes:
        name: name by which the schema uses it.
        subject, version: place of the other schema in the registry.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema as a registry stores it.

    Attributes:
        kind: ``AVRO``, ``JSON`` or ``PROTOBUF``.
        text: text of the schema.
        references: other schemas that it uses.
    """

    kind: str
    text: str
    references: tuple[Reference, ...] = ()


def framed(number: int, payload: bytes) -> bytes:
    """Put the number of its schema before a payload, in the wire format."""
    return b"\0" + number.to_bytes(4, "big") + payload


def unframed(message: bytes) -> tuple[int, bytes]:
    """The number of a message's schema, and the payload behind it.

    Raises:
        ValueError: the message is not in the wire format.
    """
    if len(message) < HEADER_BYTES or message[0] != 0:
        raise ValueError("it does not begin with a zero and the number of a schema")
    return int.from_bytes(message[1:HEADER_BYTES], "big"), message[HEADER_BYTES:]


class SchemaRegistry:
    """Client of a registry, which remembers schemas and numbers.

    Args:
        url: URL of the registry; may hold ``user:password@``.
        configs: ``basic.auth.user.info`` (``user:password``), ``bearer.auth.token``,
            ``schema.registry.ssl.ca.location``.
        fetch: gets a URL; None = by HTTP.
        pause: waits so many seconds between two attempts.

    Raises:
        ProgramError: the URL is not one of HTTP, or a setting is not known.
    """

    def __init__(
        self,
        url: str,
        configs: Mapping[str, str] | None = None,
        fetch: Fetch | None = None,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        parts = http_parts(url)
        if parts is None:
            raise ProgramError("a schema registry is at http://host:port or https://host:port")
        settings = dict(configs or {})
        unknown = sorted(set(settings) - {_LOGIN, _TOKEN, _CA})
        if unknown:
            raise ProgramError(f"a schema registry has no setting {unknown[0]!r}, but {_LOGIN}, {_TOKEN} and {_CA}")
        host = parts.hostname if parts.port is None else f"{parts.hostname}:{parts.port}"
        self.url = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        login = settings.get(_LOGIN, "" if parts.username is None else f"{parts.username}:{parts.password or ''}")
        token = settings.get(_TOKEN, "")
        if login and token:
            raise ProgramError(f"a schema registry takes {_LOGIN} or {_TOKEN}, not both")
        basic = base64.b64encode(login.encode()).decode()
        self._authorization = f"Basic {basic}" if login else f"Bearer {token}" if token else ""
        self._ca = settings.get(_CA)
        self._fetch, self._pause = fetch or self._get, pause or threading.Event().wait
        self._schemas: dict[int, RegisteredSchema] = {}
        self._numbers: dict[tuple[str, RegisteredSchema], int] = {}

    def schema(self, number: int, kind: str) -> RegisteredSchema:
        """The schema with a number.

        Args:
            number: number of the schema.
            kind: kind that the schema has to be of.

        Raises:
            UnknownSchemaError: there is no such schema, or it is of another kind.
            ConnectionError: the registry has not answered five requests.
            ProgramError: the registry refuses or is not trusted, or the file of certificates can't be read.
        """
        schema = self._schemas.get(number)
        if schema is None:
            title = f"schema {number}"
            schema = self._schemas[number] = _read(self._ask(f"/schemas/ids/{number}", title), title)
        if schema.kind != kind:
            raise UnknownSchemaError(f"schema {number} at {self.url} is one of {schema.kind}, not of {kind.title()}")
        return schema

    def referred(self, reference: Reference) -> RegisteredSchema:
        """The schema that a reference names; raises as ``schema`` does."""
        title = f"version {reference.version} of subject {reference.subject!r}"
        path = f"/subjects/{quote(reference.subject, safe='')}/versions/{reference.version}"
        return _read(self._ask(path, title), title)

    def register(self, subject: str, schema: RegisteredSchema, *, new: bool = True) -> int:
        """The number of a schema in its subject; the schema is registered if it is not yet.

        Args:
            subject: subject of the schema.
            schema: the schema.
            new: the schema may be registered by this call; otherwise it has to be registered already.

        Raises:
            UnknownSchemaError: the schema is not registered, and must not be.
            ConnectionError: the registry has not answered five requests.
            ProgramError: the registry refuses, for example because the schema is not compatible with earlier ones.
        """
        number = self._numbers.get((subject, schema))
        if number is None:
            number = self._numbers[subject, schema] = int(self._post(subject, schema, "/versions" if new else "")["id"])
        return number

    def version(self, subject: str, schema: RegisteredSchema) -> int:
        """The version that a registered schema has in its subject; raises as ``register`` does."""
        return int(self._post(subject, schema, "")["version"])

    def _post(self, subject: str, schema: RegisteredSchema, path: str) -> Any:
        body: dict[str, Any] = {"schema": schema.text, "schemaType": schema.kind}
        if schema.references:
            body["references"] = [vars(reference) for reference in schema.references]
        url = f"/subjects/{quote(subject, safe='')}{path}"
        return self._ask(url, f"schema of subject {subject!r}", json.dumps(body).encode())

    def _ask(self, path: str, title: str, body: bytes | None = None) -> Any:
        """Ask the registry, again after a pause if it does not answer; ``title`` names the schema in messages."""
        wait = FIRST_PAUSE_SECONDS
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return json.loads(self._fetch(self.url + path, body))
            except urllib.error.HTTPError as error:
                detail = ""
                with error, suppress(OSError, http.client.HTTPException):
                    detail = error.read()[:500].decode(errors="replace")
                if error.code == 404:
                    raise UnknownSchemaError(f"the registry at {self.url} has no {title}") from None
                if error.code < 500 and error.code not in (408, 429):
                    raise ProgramError(
                        f"the registry at {self.url} refuses {title}: {error} {detail}".rstrip()
                    ) from error
                reason: Exception = error
            except (OSError, ValueError, http.client.HTTPException) as error:  # also answers that break off
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
        context = None
        if url.startswith("https"):
            try:
                context = ssl.create_default_context(cafile=self._ca)
            except OSError as error:  # also of a file that holds no certificates
                raise ProgramError(f"schema registry: {_CA}: {self._ca} can't be read: {error}") from error
        with opener_for(url, context).open(request, timeout=TIMEOUT_SECONDS) as answer:
            content: bytes = answer.read()
        return content


def _read(answer: Any, title: str) -> RegisteredSchema:
    try:
        references = tuple(
            Reference(str(reference["name"]), str(reference["subject"]), int(reference["version"]))
            for reference in answer.get("references") or ()
        )
        return RegisteredSchema(str(answer.get("schemaType") or "AVRO"), str(answer["schema"]), references)
    except (KeyError, TypeError, AttributeError) as error:
        raise UnknownSchemaError(f"the registry's answer about {title} is no schema: {error}") from error
