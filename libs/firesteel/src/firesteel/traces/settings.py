"""Configuration of trace reporters: ``traces.reporters`` and ``traces.reporter.<name>.*``."""

from __future__ import annotations

from typing import Final

from firesteel.config import Settings, options
from firesteel.config.reporters import reporters_of
from firesteel.core.errors import ConfigurationError
from firesteel.otel.settings import OTEL, TRACES, OtlpReporter, read_otlp

__all__ = ["trace_reporters"]

_FACTORIES: Final = {
    "opentelemetry": OTEL,
    "org.apache.flink.traces.otel.OpenTelemetryTraceReporterFactory": OTEL,
}


def trace_reporters(settings: Settings) -> tuple[OtlpReporter, ...]:
    """Read the configured trace reporters; none = nothing is traced.

    Raises:
        ConfigurationError: a reporter is not known, or one of its parameters is malformed.
    """
    reporters = reporters_of(settings, options.TRACES_REPORTERS, "traces.reporter.", _FACTORIES)
    for reporter in reporters:
        if reporter.factory != OTEL:
            raise ConfigurationError(
                f"{reporter.key('factory.class')}: there is no trace reporter {reporter.factory!r}; known: {OTEL}"
            )
    return tuple(read_otlp(reporter, TRACES) for reporter in reporters)
