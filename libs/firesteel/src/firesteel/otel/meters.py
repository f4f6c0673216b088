"""Export of the meters that user functions get from OpenTelemetry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from firesteel.otel.exporters import metrics_exporter, needs, resource_of, shut_down
from firesteel.otel.settings import OtlpReporter

__all__ = ["Meters"]


class Meters:
    """Exports the measurements of this process's meters, at the intervals of the reporters.

    Args:
        reporters: receivers, at least one.
        part: part of the cluster, such as ``slot``.
        attributes: attributes that distinguish this process from others.

    Raises:
        ConfigurationError: OpenTelemetry is not installed.
    """

    def __init__(self, reporters: Sequence[OtlpReporter], part: str, attributes: Mapping[str, str]) -> None:
        try:
            from opentelemetry.sdk.metrics import MeterProvider
            from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        except ModuleNotFoundError as error:
            raise needs("metrics over OTLP", error) from error
        readers = [
            PeriodicExportingMetricReader(
                metrics_exporter(reporter),
                export_interval_millis=reporter.interval * 1000,
                export_timeout_millis=reporter.timeout * 1000,
            )
            for reporter in reporters
        ]
        resource = resource_of(reporters[0], part, attributes)
        self.provider = MeterProvider(readers, resource, shutdown_on_exit=False)

    def serve_users(self) -> None:
        """Make this the provider of all meters that user code in this process gets from OpenTelemetry."""
        from opentelemetry.metrics import set_meter_provider

        set_meter_provider(self.provider)

    def close(self, seconds: float) -> bool:
        """Export what waits; return whether that was done within ``seconds``."""
        return shut_down(self.provider.shutdown, seconds)
