"""Configuration of OTLP receivers, from the reporters of traces, metrics and logs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from firesteel.common.plain import read_plain, to_plain
from firesteel.config.reporters import Reporter
from firesteel.config.values import parse_duration, parse_map
from firesteel.core.errors import ConfigurationError, ProtocolError

__all__ = ["GRPC", "HTTP", "LOGS", "METRICS", "OTEL", "TRACES", "OtlpReporter", "read_otlp"]

OTEL: Final = "otel"
"""Name of the factory in ``*.reporter.<name>.factory.class``."""
HTTP, GRPC = "http", "grpc"
TRACES, METRICS, LOGS = "traces", "metrics", "logs"
_PROTOCOLS: Final = {"http": HTTP, "http/protobuf": HTTP, "grpc": GRPC}
_DEFAULTS: Final = {HTTP: "http://127.0.0.1:4318", GRPC: "http://127.0.0.1:4317"}
_ENDPOINT, _PROTOCOL, _TIMEOUT = "exporter.endpoint", "exporter.protocol", "exporter.timeout"
_HEADERS: Final = "exporter.http-headers"
_SERVICE: Final = "service.name"
_KNOWN: Final = (_ENDPOINT, _PROTOCOL, _TIMEOUT, _HEADERS, _SERVICE)


@dataclass(frozen=True)
class OtlpReporter:
    """A receiver of OTLP.

    Attributes:
        name: name of the reporter.
        endpoint: URL that requests go to; over gRPC only scheme, host and port.
        protocol: ``http`` or ``grpc``.
        headers: headers of the requests; over gRPC their metadata.
        timeout: time limit of a request, in seconds.
        service: ``service.name`` of everything that is exported.
        interval: seconds between two reports of metrics.
    """

    name: str
    endpoint: str
    protocol: str = HTTP
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = 10.0
    service: str = "firesteel"
    interval: float = 10.0

    def to_plain(self) -> dict[str, Any]:
        plain: dict[str, Any] = to_plain(self)
        return plain

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> OtlpReporter:
        """Read the plain data of ``to_plain``; fields that this version does not know are ignored.

        Raises:
            ProtocolError: the data is malformed.
        """
        return read_plain(cls, plain, "reporter", ProtocolError)


def read_otlp(
    reporter: Reporter, signal: str, further_parameters: Collection[str] = (), interval: float = 10.0
) -> OtlpReporter:
    """Read the receiver from the parameters of a reporter.

    Args:
        reporter: the configured reporter.
        signal: ``traces``, ``metrics`` or ``logs``.
        further_parameters: other parameters that the reporter may have, which the caller reads.
        interval: ``interval`` of the result.

    Raises:
        ConfigurationError: a parameter is malformed or not known.
    """
    parameters = reporter.parameters
    unknown = sorted(set(parameters) - {*_KNOWN, *further_parameters})
    if unknown:
        raise ConfigurationError(
            f"{reporter.key(unknown[0])}: a reporter over OTLP has no such parameter; known: "
            f"{', '.join((*_KNOWN, *further_parameters))}"
        )
    protocol_name = parameters.get(_PROTOCOL, HTTP)
    protocol = _PROTOCOLS.get(protocol_name.strip().lower())
    if protocol is None:
        raise ConfigurationError(f"{reporter.key(_PROTOCOL)} = {protocol_name!r} is not valid: expected http or grpc.")
    return OtlpReporter(
        reporter.name,
        _endpoint(reporter, parameters.get(_ENDPOINT, _DEFAULTS[protocol]), protocol, signal),
        protocol,
        _parsed(reporter, _HEADERS, parse_map) if _HEADERS in parameters else {},
        _parsed(reporter, _TIMEOUT, parse_duration).total_seconds() if _TIMEOUT in parameters else 10.0,
        parameters.get(_SERVICE, "firesteel"),
        interval,
    )


def _endpoint(reporter: Reporter, text: str, protocol: str, signal: str) -> str:
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid:
        raise ConfigurationError(
            f"{reporter.key(_ENDPOINT)} = {text!r} is not valid: expected a URL such as {_DEFAULTS[protocol]}."
        )
    has_path = bool(parts.path.strip("/"))
    if protocol == GRPC and has_path:
        raise ConfigurationError(
            f"{reporter.key(_ENDPOINT)} = {text!r} is not valid: over gRPC an endpoint has no path."
        )
    return text if has_path or protocol == GRPC else f"{text.rstrip('/')}/v1/{signal}"


def _parsed(reporter: Reporter, parameter: str, parse: Any) -> Any:
    try:
        return parse(reporter.parameters[parameter])
    except ValueError as error:
        raise ConfigurationError(f"{reporter.key(parameter)} is not valid: expected {error}.") from None
