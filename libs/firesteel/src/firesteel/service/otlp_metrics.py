"""Metrics over OTLP, with the dotted names of Flink's OpenTelemetry reporter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from firesteel import __version__
from firesteel.config import Settings, options
from firesteel.config.reporters import Reporter, reporters_of
from firesteel.config.values import parse_duration
from firesteel.core.errors import ConfigurationError
from firesteel.metrics.filters import PARAMETERS
from firesteel.metrics.reporter import Measured, MetricReporter
from firesteel.otel.exporters import Shipment, needs, resource_of
from firesteel.otel.settings import METRICS, OTEL, OtlpReporter, read_otlp

PREFIX: Final = "metrics.reporter."
INTERVAL: Final = "interval"
PROMETHEUS: Final = "prometheus"
FACTORIES: Final = {
    "prom": PROMETHEUS,
    "org.apache.flink.metrics.prometheus.PrometheusReporterFactory": PROMETHEUS,
    "opentelemetry": OTEL,
    "org.apache.flink.metrics.otel.OpenTelemetryMetricReporterFactory": OTEL,
}
"""Names that Flink has for reporters -> our names of them."""
LARGEST: Final = 1000
"""Values in one request. They make half a megabyte; receivers refuse requests of more than four megabytes."""
_COMMON: Final = (INTERVAL, *PARAMETERS)


def interval_of(reporter: Reporter) -> float:
    """Seconds between two reports.

    Raises:
        ConfigurationError: the interval is malformed.
    """
    text = reporter.parameters.get(INTERVAL, "10 s")
    try:
        seconds = parse_duration(text).total_seconds()
    except ValueError as error:
        raise ConfigurationError(f"{reporter.key(INTERVAL)} = {text!r} is not valid: expected {error}.") from None
    if seconds <= 0:
        raise ConfigurationError(f"{reporter.key(INTERVAL)} = {text!r} is not valid: expected more than nothing.")
    return seconds


def otlp_of(reporter: Reporter) -> OtlpReporter:
    """The receiver of a reporter.

    Raises:
        ConfigurationError: a parameter is malformed or not known.
    """
    return read_otlp(reporter, METRICS, _COMMON, interval_of(reporter))


def otlp_metric_reporters(settings: Settings) -> tuple[OtlpReporter, ...]:
    """Receivers of metrics that speak OTLP; metrics of user functions go to them as well.

    Raises:
        ConfigurationError: a parameter is malformed or not known.
    """
    reporters = reporters_of(settings, options.METRICS_REPORTERS, PREFIX, FACTORIES)
    return tuple(otlp_of(reporter) for reporter in reporters if reporter.factory == OTEL)


class OtlpMetricReporter(MetricReporter):
    """Sends values to a receiver.

    Args:
        reporter: the receiver, with its parameters.
        part: name of this process's part of the cluster.
        now_ns: returns epoch nanoseconds.

    Raises:
        ConfigurationError: OpenTelemetry is not installed.
    """

    def __init__(self, reporter: OtlpReporter, part: str, now_ns: Callable[[], int]) -> None:
        self._shipment = Shipment(reporter, METRICS)
        try:
            from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        except ModuleNotFoundError as error:
            raise needs("metrics over OTLP", error) from error
        self._resource = resource_of(reporter, part)
        self._scope = InstrumentationScope("firesteel", __version__)
        self._now_ns, self._since = now_ns, now_ns()

    def report(self, measured: Sequence[Measured]) -> None:
        """Send the values, in requests of a bounded size."""
        from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics

        at = self._now_ns()
        for begin in range(0, len(measured), LARGEST):
            part = measured[begin : begin + LARGEST]
            scope = ScopeMetrics(self._scope, self._metrics(part, at), "")
            data = MetricsData([ResourceMetrics(self._resource, [scope], "")])
            self._shipment.ship(data, len(part))

    def close(self) -> None:
        self._shipment.otlp.shutdown()

    def _metrics(self, measured: Iterable[Measured], at: int) -> list[Any]:
        from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, Metric, NumberDataPoint, Sum

        points: dict[tuple[str, bool], list[Any]] = {}
        for metric in measured:
            name = ".".join(("flink", *metric.scope, metric.name))
            for suffix, value, labels in _values(metric):
                since = self._since if metric.grows else None
                point = NumberDataPoint(labels, since, at, value)  # type: ignore[arg-type] # None: a gauge has no start
                points.setdefault((name + suffix, metric.grows), []).append(point)
        return [
            Metric(
                name,
                None,
                None,
                Sum(data_points, AggregationTemporality.CUMULATIVE, is_monotonic=True) if grows else Gauge(data_points),
            )
            for (name, grows), data_points in points.items()
        ]


def _values(metric: Measured) -> list[tuple[str, float, Mapping[str, str]]]:
    """Suffix of the name, value and labels of each data point; a distribution has several."""
    if metric.quantiles is None:
        return [("", metric.value, metric.labels)]
    quantiles = [("", value, {**metric.labels, "quantile": str(q)}) for q, value in metric.quantiles.items()]
    return [(".count", metric.value, metric.labels), (".sum", metric.total, metric.labels), *quantiles]
