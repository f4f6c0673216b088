"""Where traces go: ``traces.reporters`` and ``traces.reporter.<name>.*``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from firesteel.config import Settings, options
from firesteel.config.reporters import Reporter, reporters_of
from firesteel.config.values import parse_duration, parse_map
from firesteel.core.errors import ConfigurationError

__all__ = ["TraceReporter", "trace_reporters"]

OTEL: Final = "otel"
_FACTORIES: Final = {
    "opentelemetry": OTEL,
    "org.apache.flink.traces.otel.OpenTelemetryTraceReporterFactory": OTEL,
}
_ENDPOINT, _PROTOCOL, _TIMEOUT = "exporter.endpoint", "exporter.protocol", "exporter.timeout"
_HEADERS: Final = "exporter.http-headers"
_SERVICE: Final = "service.name"
_KNOWN: Final = (_ENDPOINT, _PROTOCOL, _TIMEOUT, _HEADERS, _SERVICE)
DEFAULT_ENDPOINT: Final = "http://127.0.0.1:4318/v1/traces"


@dataclass(frozen=True)
class TraceReporter:
    """One receiver, which speaks OTLP over HTTP.

    Attributes:
        name: of the reporter.
        endpoint: URL that spans are posted to.
        headers: of these requests.
        timeout: seconds for one of them.
        service: name of the service that spans are said to come from.
    """

    name: str
    endpoint: str = DEFAULT_ENDPOINT
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = 10.0
    service: str = "firesteel"

    def to_plain(self) -> dict[str, Any]:
        """As JSON-able data."""
        return {**asdict(self), "headers": dict(self.headers)}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> TraceReporter:
        """The inverse of ``to_plain``."""
        return cls(**plain)


def trace_reporters(settings: Settings) -> tuple[TraceReporter, ...]:
    """Those that are to be used; empty = nothing is traced.

    Raises:
        ConfigurationError: one is not known, or one of its parameters is malformed.
    """
    found = reporters_of(settings, options.TRACES_REPORTERS, "traces.reporter.", _FACTORIES)
    return tuple(map(_read, found))


def _read(reporter: Reporter) -> TraceReporter:
    if reporter.factory != OTEL:
        raise ConfigurationError(
            f"{reporter.key('factory.class')}: there is no trace reporter {reporter.factory!r}; known: {OTEL}"
        )
    given = reporter.parameters
    unknown = sorted(set(given) - set(_KNOWN))
    if unknown:
        raise ConfigurationError(
            f"{reporter.key(unknown[0])}: a trace reporter has no such parameter; known: {', '.join(_KNOWN)}"
        )
    protocol = given.get(_PROTOCOL, "http").lower()
    if protocol not in ("http", "http/protobuf"):
        raise ConfigurationError(f"{reporter.key(_PROTOCOL)} = {protocol!r} is not valid: expected http.")
    return TraceReporter(
        reporter.name,
        _endpoint(reporter, given.get(_ENDPOINT, DEFAULT_ENDPOINT)),
        _parsed(reporter, _HEADERS, parse_map) if _HEADERS in given else {},
        _parsed(reporter, _TIMEOUT, parse_duration).total_seconds() if _TIMEOUT in given else 10.0,
        given.get(_SERVICE, "firesteel"),
    )


def _endpoint(reporter: Reporter, text: str) -> str:
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid:
        raise ConfigurationError(
            f"{reporter.key(_ENDPOINT)} = {text!r} is not valid: expected a URL such as {DEFAULT_ENDPOINT}."
        )
    return text if parts.path.strip("/") else f"{text.rstrip('/')}/v1/traces"


def _parsed(reporter: Reporter, parameter: str, parse: Any) -> Any:
    try:
        return parse(reporter.parameters[parameter])
    except ValueError as error:
        raise ConfigurationError(f"{reporter.key(parameter)} is not valid: expected {error}.") from None
