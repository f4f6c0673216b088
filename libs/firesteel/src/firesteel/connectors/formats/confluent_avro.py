"""Avro in Confluent's wire format: a zero, the number of a schema that a registry has, and the record."""

from __future__ import annotations

import base64
import io
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import pyarrow as pa

from firesteel.common.serialization import DeserializationSchema
from firesteel.common.typeinfo import TypeInformation
from firesteel.connectors.formats.avro_rows import RecordColumns, record_converter, type_of
from firesteel.connectors.formats.avro_schema import AvroSchema, fastavro_module
from firesteel.core.errors import MalformedDataError, ProgramError
from firesteel.expressions.schema import uncolumnar

__all__ = ["ConfluentRegistryAvroDeserializationSchema", "SchemaRegistry", "UnknownSchemaError"]

HEADER_BYTES: Final = 5
ATTEMPTS: Final = 5
FIRST_PAUSE_SECONDS: Final = 0.2
TIMEOUT_SECONDS: Final = 10.0
Fetch = Callable[[str], bytes]
"""The body that a URL gives; raises ``urllib.error.HTTPError`` and ``OSError``."""


class UnknownSchemaError(ValueError):
    """The registry has no schema of this number."""


class SchemaRegistry:
    """Asks a registry for schemas; each is asked for once.

    Args:
        url: of the registry; may hold ``user:password@``.
        fetch: gets a URL; None = by HTTP.
        pause: waits between two attempts.

    Raises:
        ProgramError: it is no URL of HTTP.
    """

    def __init__(self, url: str, fetch: Fetch | None = None, pause: Callable[[float], object] | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ProgramError("a schema registry is at http://host:port or https://host:port")
        host = parts.hostname if parts.port is None else f"{parts.hostname}:{parts.port}"
        self.url = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        self._login = None if parts.username is None else f"{parts.username}:{parts.password or ''}"
        self._fetch, self._pause = fetch or self._get, pause or threading.Event().wait
        self._known: dict[int, AvroSchema] = {}

    def schema(self, number: int) -> AvroSchema:
        """The schema of this number.

        Raises:
            UnknownSchemaError: there is none, or it is none of Avro.
            ConnectionError: the registry did not answer, five times.
            ProgramError: it refuses.
        """
        known = self._known.get(number)
        if known is None:
            known = self._known[number] = self._ask(number)
        return known

    def _ask(self, number: int) -> AvroSchema:
        url, wait = f"{self.url}/schemas/ids/{number}", FIRST_PAUSE_SECONDS
        for attempt in range(1, ATTEMPTS + 1):
            try:
                answer = json.loads(self._fetch(url))
                break
            except urllib.error.HTTPError as error:
                error.close()
                if error.code == 404:
                    raise UnknownSchemaError(f"the registry at {self.url} has no schema {number}") from None
                if error.code < 500:
                    raise ProgramError(f"the registry at {self.url} refuses schema {number}: {error}") from error
                reason: Exception = error
            except (OSError, ValueError) as error:
                reason = error
            if attempt == ATTEMPTS:
                raise ConnectionError(f"the registry at {self.url} does not answer: {reason}") from reason
            self._pause(wait)
            wait *= 2
        if answer.get("schemaType", "AVRO") != "AVRO":
            raise UnknownSchemaError(f"schema {number} at {self.url} is one of {answer['schemaType']}, not of Avro")
        if answer.get("references"):
            raise UnknownSchemaError(f"schema {number} at {self.url} refers to others, which is not supported")
        return AvroSchema.parse_string(answer["schema"])

    def _get(self, url: str) -> bytes:
        request = urllib.request.Request(url, headers={"Accept": "application/vnd.schemaregistry.v1+json"})
        if self._login is not None:
            request.add_header("Authorization", f"Basic {base64.b64encode(self._login.encode()).decode()}")
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            body: bytes = answer.read()
        return body


class ConfluentRegistryAvroDeserializationSchema(DeserializationSchema):
    """Records that were written with schemas of a registry, as rows of one schema.

    Args:
        avro_schema_string: what rows are, as JSON. Records that were written with another schema are brought to it by
            Avro's rules.
        schema_registry_url: of the registry.

    Raises:
        ProgramError: a schema is not one of records, or the URL is none.
    """

    def __init__(self, avro_schema_string: str, schema_registry_url: str, *, fetch: Fetch | None = None) -> None:
        self._schema = AvroSchema.parse_string(avro_schema_string)
        self._schema.record_fields(type(self).__name__)
        self._url, self._fetch = schema_registry_url, fetch
        self._registry: SchemaRegistry | None = SchemaRegistry(schema_registry_url, fetch)
        self._convert: Callable[[Any], Any] | None = None
        self._columns: RecordColumns | None = None
        self.gives_columns = uncolumnar(self.get_produced_type()) is None

    def deserialize(self, message: bytes) -> Any:
        """Returns the row.

        Raises:
            MalformedDataError: it is malformed, or the registry does not know its schema.
            ConnectionError: the registry does not answer.
        """
        if message is None:
            return None
        if self._convert is None:
            self._convert = record_converter(self._schema)
        try:
            return self._convert(self._record(message))
        except (ConnectionError, ProgramError):
            raise
        except Exception as error:  # fastavro raises what it stumbles over
            reason = f"malformed Avro {bytes(message)[:40]!r}: {type(error).__name__}: {error}"
            raise MalformedDataError("", None, None, reason) from error

    def deserialize_columns(self, messages: Sequence[bytes]) -> pa.RecordBatch | None:
        """Returns the rows of many messages; None = read them one by one."""
        if self._columns is None:
            self._columns = RecordColumns(self._schema)
        try:
            records = [self._record(message) for message in messages]
        except (ConnectionError, ProgramError):
            raise
        except Exception:  # one by one it is found out which it is
            return None
        return self._columns.of(records)

    def _record(self, message: bytes) -> Any:
        if len(message) < HEADER_BYTES or message[0] != 0:
            raise ValueError("it does not begin with a zero and the number of a schema")
        if self._registry is None:
            self._registry = SchemaRegistry(self._url, self._fetch)
        written = self._registry.schema(int.from_bytes(message[1:HEADER_BYTES], "big"))
        stream = io.BytesIO(message)
        stream.seek(HEADER_BYTES)
        record = fastavro_module().schemaless_reader(stream, written.parsed, self._schema.parsed)
        if stream.read(1):
            raise ValueError("bytes are left behind the record")
        return record

    def get_produced_type(self) -> TypeInformation:
        """Returns the row type that the schema stands for."""
        return type_of(self._schema.parsed)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_registry": None, "_convert": None, "_columns": None}
