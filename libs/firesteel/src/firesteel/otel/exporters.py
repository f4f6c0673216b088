"""Exporters of OpenTelemetry's SDK, over HTTP and gRPC, that log a failure in one line instead of a stack trace."""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from firesteel import __version__
from firesteel.core.errors import ConfigurationError
from firesteel.otel.settings import GRPC, LOGS, METRICS, TRACES, OtlpReporter

if TYPE_CHECKING:
    from opentelemetry.sdk._logs.export import LogRecordExporter
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.export import SpanExporter

__all__ = [
    "FLUSH_SECONDS",
    "Shipment",
    "logs_exporter",
    "metrics_exporter",
    "needs",
    "resource_of",
    "shut_down",
    "spans_exporter",
]

logger = logging.getLogger(__name__)
FLUSH_SECONDS: Final = 2.0
"""Time that a process which ends has for the export of its last spans and logs."""
_CLASSES: Final = {
    TRACES: ("trace_exporter", "OTLPSpanExporter"),
    METRICS: ("metric_exporter", "OTLPMetricExporter"),
    LOGS: ("_log_exporter", "OTLPLogExporter"),
}
_PACKAGE: Final = "opentelemetry.exporter.otlp.proto"
_OPTIONS: Final = (("grpc.enable_http_proxy", 0),)
"""Ignore proxies of the environment, which are not meant for the cluster's receivers; the same holds over HTTP."""


def needs(feature: str, error: ModuleNotFoundError, protocol: str = "") -> ConfigurationError:
    """Return the error for a process in which OpenTelemetry is not installed.

    Args:
        feature: what needs it, such as ``traces``.
        error: the error of the import.
        protocol: protocol that is configured.
    """
    extra = "otel-grpc" if protocol == GRPC else "otel"
    return ConfigurationError(
        f"{feature} need the package {error.name}, which is not installed: pip install firesteel[{extra}]"
    )


def resource_of(reporter: OtlpReporter, part: str, attributes: Mapping[str, str] | None = None) -> Resource:
    """Describe this process as the origin of spans, metrics and logs.

    Args:
        reporter: has the name of the service.
        part: part of the cluster: ``dispatcher``, ``resourcemanager``, ``jobmaster``, ``taskmanager`` or ``slot``.
        attributes: further attributes of the process.
    """
    from opentelemetry.sdk.resources import Resource

    service = {"service.name": reporter.service, "service.version": __version__, "firesteel.part": part}
    return Resource.create({**service, **(attributes or {})})


def shut_down(shutdown: Callable[[], Any], seconds: float = FLUSH_SECONDS) -> bool:
    """Have a provider export what waits, and end; return whether it was done within ``seconds``."""
    thread = threading.Thread(target=shutdown, name="firesteel-otel-end", daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


class Shipment:
    """Sends batches to a receiver; logs the first, the 10th, the 100th failure (and so on) in a row.

    Args:
        reporter: the receiver.
        signal: ``traces``, ``metrics`` or ``logs``.

    Attributes:
        otlp: the SDK's exporter.

    Raises:
        ConfigurationError: the SDK's exporter is not installed.
    """

    def __init__(self, reporter: OtlpReporter, signal: str) -> None:
        self._reporter, self._signal, self._failed = reporter, signal, 0
        self.otlp = _otlp(reporter, signal)

    def ship(self, batch: Any, count: int, **arguments: Any) -> Any:
        """Send a batch of ``count`` items; return the result of the SDK's exporter."""
        result = self.otlp.export(batch, **arguments)
        if result.name == "SUCCESS":
            self._failed = 0
            return result
        self._failed += 1
        if str(self._failed).strip("0") == "1":
            logger.warning(
                "%s (reporter %s) takes no %s: %d are lost (%d batches in a row so far)",
                self._reporter.endpoint, self._reporter.name, self._signal, count, self._failed,
            )  # fmt: skip
        return result


def _otlp(reporter: OtlpReporter, signal: str) -> Any:
    module, name = _CLASSES[signal]
    speaks_grpc = reporter.protocol == GRPC
    try:
        make = getattr(importlib.import_module(f"{_PACKAGE}.{'grpc' if speaks_grpc else 'http'}.{module}"), name)
    except ModuleNotFoundError as error:
        raise needs(f"{signal} over OTLP", error, reporter.protocol) from error
    # The SDK logs each failure with a stack trace; Shipment logs it instead.
    logging.getLogger("opentelemetry.exporter.otlp").setLevel(logging.CRITICAL)
    common: dict[str, Any] = {"endpoint": reporter.endpoint, "timeout": reporter.timeout}
    if speaks_grpc:
        headers = {key.lower(): value for key, value in reporter.headers.items()}
        insecure = reporter.endpoint.startswith("http:")
        return make(**common, headers=headers, insecure=insecure, channel_options=_OPTIONS)
    import requests

    session = requests.Session()
    session.trust_env = False
    return make(**common, headers=dict(reporter.headers), session=session)


def spans_exporter(reporter: OtlpReporter) -> SpanExporter:
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    shipment = Shipment(reporter, TRACES)

    class Quiet(SpanExporter):
        def export(self, spans: Sequence[Any]) -> SpanExportResult:
            return cast("SpanExportResult", shipment.ship(spans, len(spans)))

        def shutdown(self) -> None:
            shipment.otlp.shutdown()

        def force_flush(self, timeout_millis: int = 30_000) -> bool:
            return bool(shipment.otlp.force_flush(timeout_millis))

    return Quiet()


def logs_exporter(reporter: OtlpReporter) -> LogRecordExporter:
    from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult

    shipment = Shipment(reporter, LOGS)

    class Quiet(LogRecordExporter):
        def export(self, batch: Sequence[Any]) -> LogRecordExportResult:
            return cast("LogRecordExportResult", shipment.ship(batch, len(batch)))

        def shutdown(self) -> None:
            shipment.otlp.shutdown()

        def force_flush(self, timeout_millis: int = 30_000) -> bool:
            return bool(shipment.otlp.force_flush(timeout_millis))

    return Quiet()


def metrics_exporter(reporter: OtlpReporter) -> MetricExporter:
    """Return an exporter for a meter provider, which counts the data points of a failed batch."""
    from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData

    shipment = Shipment(reporter, METRICS)

    class Quiet(MetricExporter):
        def export(
            self, metrics_data: MetricsData, timeout_millis: float = 10_000, **options: Any
        ) -> MetricExportResult:
            scopes = [scope for resource in metrics_data.resource_metrics for scope in resource.scope_metrics]
            points = sum(len(metric.data.data_points) for scope in scopes for metric in scope.metrics)
            return cast("MetricExportResult", shipment.ship(metrics_data, points, timeout_millis=timeout_millis))

        def shutdown(self, timeout_millis: float = 30_000, **options: Any) -> None:
            shipment.otlp.shutdown(timeout_millis)

        def force_flush(self, timeout_millis: float = 10_000) -> bool:
            return bool(shipment.otlp.force_flush(timeout_millis))

    return Quiet()
