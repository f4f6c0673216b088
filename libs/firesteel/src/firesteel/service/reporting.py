"""Has a service report what it measures, as ``metrics.reporters`` says."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from firesteel.config import Settings, options
from firesteel.config.reporters import Reporter, reporters_of
from firesteel.core.errors import ConfigurationError
from firesteel.service.base import Service
from firesteel.service.bearer import BearerTokens
from firesteel.service.prometheus import exposition_of, metrics_route, ports_of

PROMETHEUS: Final = "prometheus"
_FACTORIES: Final = {
    "prom": PROMETHEUS,
    "org.apache.flink.metrics.prometheus.PrometheusReporterFactory": PROMETHEUS,
}
"""Other names of reporters -> theirs."""


def report_metrics(service: Service, settings: Settings, tokens: Collection[str], has_ports: bool = True) -> None:
    """Prepare it, before the service starts. Without reporters nothing is measured.

    Args:
        service: measures.
        settings: of the cluster.
        tokens: that open the REST API, and this as well.
        has_ports: reporters may have ports of their own here.

    Raises:
        ConfigurationError: a reporter is not known, or one of its parameters is malformed.
    """
    found = reporters_of(settings, options.METRICS_REPORTERS, "metrics.reporter.", _FACTORIES)
    for number, reporter in enumerate(found):
        if reporter.factory != PROMETHEUS:
            raise ConfigurationError(
                f"{reporter.key('factory.class')}: there is no metric reporter {reporter.factory!r}; "
                f"known: {PROMETHEUS}"
            )
        if number:
            raise ConfigurationError(
                f"{options.METRICS_REPORTERS.key} names two reporters for Prometheus, {found[0].name!r} and "
                f"{reporter.name!r}: one answers all who ask"
            )
        _serve(service, settings, tokens, reporter, has_ports)


def _serve(service: Service, settings: Settings, tokens: Collection[str], reporter: Reporter, has_ports: bool) -> None:
    everybody, all_paths = settings.get(options.REST_ALLOW_UNAUTHENTICATED), settings.is_set(options.REST_TOKEN_FILE)

    def needs_token() -> bool:
        return all_paths or (service.is_open_to_others and not everybody)

    exposition, ports = exposition_of(reporter), ports_of(reporter)
    route = metrics_route(exposition, service.measured, BearerTokens(tokens), needs_token, service.refusals)
    for app in service.apps:
        app.add_routes([route])
    if ports and has_ports:
        more = service.new_app()
        more.add_routes([route])
        service.listen_also(more, ports, reporter.key("port"))
