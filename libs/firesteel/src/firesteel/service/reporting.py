"""Has a service report its metrics to the configured reporters (``metrics.reporters``)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final, cast

from firesteel.config import Settings, options
from firesteel.config.reporters import Reporter, reporters_of
from firesteel.core import plugins
from firesteel.core.clock import Clock, SystemClock
from firesteel.core.errors import ConfigurationError
from firesteel.metrics.filters import selection_of
from firesteel.metrics.reporter import Measured, MetricReporter
from firesteel.otel.settings import OTEL
from firesteel.service.base import Service
from firesteel.service.bearer import BearerTokens
from firesteel.service.otlp_metrics import FACTORIES, PREFIX, PROMETHEUS, OtlpMetricReporter, interval_of, otlp_of
from firesteel.service.prometheus import exposition_of, metrics_route, ports_of
from firesteel.service.pushing import Pushing

GROUP: Final = "firesteel.metric_reporters"
"""Group of the entry points of reporter factories."""


def report_metrics(
    service: Service,
    settings: Settings,
    tokens: Collection[str],
    has_ports: bool = True,
    sends: bool = True,
    clock: Clock | None = None,
) -> None:
    """Prepare a service to report its metrics, before it starts. Without reporters nothing is measured.

    Args:
        service: measures.
        settings: of the cluster; settings of jobs do not count.
        tokens: tokens of the REST API, which open ``/metrics`` as well.
        has_ports: whether reporters may have ports of their own here.
        sends: whether reporters that send do so here; if not, another service sends the same metrics.
        clock: dates the metrics that are sent.

    Raises:
        ConfigurationError: a reporter is not known or can't be imported, or one of its parameters is malformed.
    """
    shown: Reporter | None = None
    for reporter in reporters_of(settings, options.METRICS_REPORTERS, PREFIX, FACTORIES):
        if reporter.factory != PROMETHEUS:
            make = _factory(reporter, service.name, clock or SystemClock())
            filtered, interval = selection_of(reporter), interval_of(reporter)
            if sends:
                pushing = Pushing(reporter.name, make, service.measured, filtered, interval)
                service.run_also(pushing.run, f"metric reporter {reporter.name}")
            continue
        if shown is not None:
            raise ConfigurationError(
                f"{options.METRICS_REPORTERS.key} names two reporters for Prometheus, {shown.name!r} and "
                f"{reporter.name!r}: one answers all who ask"
            )
        shown = reporter
        _serve(service, settings, tokens, reporter, has_ports)


def _factory(reporter: Reporter, part: str, clock: Clock) -> Callable[[], MetricReporter]:
    if reporter.factory == OTEL:
        return partial(OtlpMetricReporter, otlp_of(reporter), part, lambda: clock.epoch_ms() * 1_000_000)
    factory = _load(reporter)
    return partial(_made, reporter, factory)


def _load(reporter: Reporter) -> Callable[[Any], Any]:
    """The factory that a user names: an entry point, or ``module:attribute``."""
    if ":" not in reporter.factory and reporter.factory not in plugins.known_names(GROUP):
        known = ", ".join(sorted({*FACTORIES.values(), *plugins.known_names(GROUP)}))
        raise ConfigurationError(
            f"{reporter.key('factory.class')}: there is no metric reporter {reporter.factory!r}; known: {known}; "
            "or name one of your own as package.module:factory"
        )
    try:
        if ":" in reporter.factory:
            factory: Any = plugins.import_target(reporter.factory)
        else:
            factory = plugins.load(GROUP, reporter.factory)
    except Exception as error:  # other people's modules raise any exception
        raise ConfigurationError(
            f"{reporter.key('factory.class')} = {reporter.factory!r} can't be imported: {type(error).__name__}: {error}"
        ) from error
    if not callable(factory):
        raise ConfigurationError(f"{reporter.key('factory.class')} = {reporter.factory!r} can't be called")
    return cast("Callable[[Any], Any]", factory)


def _made(reporter: Reporter, factory: Callable[[Any], Any]) -> MetricReporter:
    metric_reporter = factory(dict(reporter.parameters))
    if not isinstance(metric_reporter, MetricReporter):
        raise TypeError(f"{reporter.factory} makes a {type(metric_reporter).__name__}, which is no MetricReporter")
    return metric_reporter


def _serve(service: Service, settings: Settings, tokens: Collection[str], reporter: Reporter, has_ports: bool) -> None:
    allows_all, all_paths = settings.get(options.REST_ALLOW_UNAUTHENTICATED), settings.is_set(options.REST_TOKEN_FILE)

    def needs_token() -> bool:
        return all_paths or (service.is_open_to_others and not allows_all)

    exposition, ports, filtered = exposition_of(reporter), ports_of(reporter), selection_of(reporter)

    async def measured() -> list[Measured]:
        return filtered(await service.measured())

    route = metrics_route(exposition, measured, BearerTokens(tokens), needs_token, service.refusals)
    for app in service.apps:
        app.add_routes([route])
    if ports and has_ports:
        own_app = service.new_app()
        own_app.add_routes([route])
        service.listen_also(own_app, ports, reporter.key("port"))
