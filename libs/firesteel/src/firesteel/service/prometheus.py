"""``/metrics`` for Prometheus, with the names and labels of Flink's own reporter."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from aiohttp import web

from firesteel.config.reporters import Reporter
from firesteel.config.values import parse_bool
from firesteel.core.errors import ConfigurationError, UnauthorizedError
from firesteel.core.refusals import RefusalLog
from firesteel.service.bearer import BearerTokens
from firesteel.service.measured import Measured
from firesteel.service.middlewares import error_response

if TYPE_CHECKING:
    from prometheus_client.core import Metric

logger = logging.getLogger(__name__)
PATH: Final = "/metrics"
PORT: Final = "port"
FILTER: Final = "filterLabelValueCharacters"
_PREFIX: Final = "flink"
_UNFIT: Final = re.compile(r"[^a-zA-Z0-9:_]")


class Exposition:
    """Writes metrics as text for Prometheus.

    Args:
        filters_values: whether label values get underscores for all characters but letters, digits, ``:`` and ``_``;
            that is the default of Flink's reporter.
    """

    def __init__(self, filters_values: bool = True) -> None:
        self._filters_values = filters_values

    def families(self, measured: Iterable[Measured]) -> list[Metric]:
        """A family for each name. Of values that come to have the same name and labels, only the first is shown."""
        from prometheus_client.core import Metric

        families: dict[str, Metric] = {}
        shown: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
        for metric in measured:
            name = _fit("_".join((_PREFIX, *metric.scope, metric.name)))
            kind = "gauge" if metric.quantiles is None else "summary"
            labels = {_fit(label).replace(":", "_"): self._value(value) for label, value in metric.labels.items()}
            family = families.get(name)
            if family is None:
                help_text = f"{metric.name} (scope: {'_'.join(metric.scope)})"
                family = families[name] = Metric(name, help_text, kind)
            key = name, tuple(sorted(labels.items()))
            if family.type != kind or key in shown:
                continue
            shown.add(key)
            if metric.quantiles is None:
                family.add_sample(name, labels, metric.value)
                continue
            family.add_sample(f"{name}_count", labels, metric.value)
            family.add_sample(f"{name}_sum", labels, metric.total)
            for quantile, value in metric.quantiles.items():
                family.add_sample(name, {**labels, "quantile": str(quantile)}, value)
        return list(families.values())

    def text(self, measured: Iterable[Measured], accept: str = "") -> tuple[bytes, str]:
        """The text, and its content type.

        Args:
            measured: the values.
            accept: ``Accept`` header of the request.
        """
        from prometheus_client import CollectorRegistry
        from prometheus_client.exposition import choose_encoder

        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collected(self.families(measured)))
        encode, content_type = choose_encoder(accept)
        return encode(registry), content_type

    def _value(self, value: str) -> str:
        return _UNFIT.sub("_", value) if self._filters_values else value


class _Collected:
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)


def _fit(name: str) -> str:
    return _UNFIT.sub("_", name)


def exposition_of(reporter: Reporter) -> Exposition:
    """The exposition that a reporter configures.

    Raises:
        ConfigurationError: a parameter is malformed, or prometheus_client is not installed.
    """
    try:
        import prometheus_client  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"the metric reporter {reporter.name!r} needs the package prometheus_client, which is not installed: "
            "pip install prometheus_client"
        ) from error
    filter_text = reporter.parameters.get(FILTER, "true")
    try:
        return Exposition(parse_bool(filter_text))
    except ValueError as error:
        raise ConfigurationError(f"{reporter.key(FILTER)} = {filter_text!r} is not valid: expected {error}.") from error


def ports_of(reporter: Reporter) -> range:
    """Ports of which a reporter takes the first free one; empty = it has no port of its own.

    Raises:
        ConfigurationError: the option is malformed.
    """
    port_text = reporter.parameters.get(PORT)
    if port_text is None:
        return range(0)
    match = re.fullmatch(r"\s*(\d{1,5})\s*(?:-\s*(\d{1,5}))?\s*", port_text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if not 0 <= first <= last <= 65535:
        raise ConfigurationError(
            f"{reporter.key(PORT)} = {port_text!r} is not valid: expected a port or a range such as 9250-9260."
        )
    return range(first, last + 1)


def metrics_route(
    exposition: Exposition,
    measure: Callable[[], Awaitable[list[Measured]]],
    tokens: BearerTokens,
    needs_token: Callable[[], bool],
    refusals: RefusalLog,
) -> web.RouteDef:
    """``/metrics``.

    Args:
        exposition: makes the text.
        measure: returns the values.
        tokens: open the route.
        needs_token: whether a request needs a token.
        refusals: logs refused requests.
    """

    async def metrics(request: web.Request) -> web.StreamResponse:
        if not tokens.is_known(request) and needs_token():
            fault = "is wrong" if request.headers.get("Authorization") else "is missing"
            refusals.refused(request.remote or "?", f"GET {PATH}: the token {fault}", fault)
            return error_response(401, str(UnauthorizedError(f"The token {fault}: {_NEEDED}")))
        body, content_type = exposition.text(await measure(), request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    return web.get(PATH, metrics, allow_head=False)


_NEEDED: Final = (
    "metrics that other hosts could read need Authorization: Bearer with the token of firesteel.rest.token-file, or "
    "with the one that is made from firesteel.security.secret-file; firesteel.rest.allow-unauthenticated opens them."
)
