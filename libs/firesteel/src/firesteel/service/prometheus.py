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
    """Values as text that Prometheus reads.

    Args:
        filters_values: label values have underscores for all characters but letters, digits, ``:`` and ``_``, as with
            Flink's reporter unless it is told otherwise.
    """

    def __init__(self, filters_values: bool = True) -> None:
        self._filters_values = filters_values

    def families(self, measured: Iterable[Measured]) -> list[Metric]:
        """One for each name. Of values whose names and labels become the same the first one is shown."""
        from prometheus_client.core import Metric

        found: dict[str, Metric] = {}
        seen: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
        for one in measured:
            name = _fit("_".join((_PREFIX, *one.scope, one.name)))
            kind = "gauge" if one.quantiles is None else "summary"
            labels = {_fit(label).replace(":", "_"): self._value(value) for label, value in one.labels.items()}
            family = found.get(name)
            if family is None:
                help_text = f"{one.name} (scope: {'_'.join(one.scope)})"
                family = found[name] = Metric(name, help_text, kind)
            key = name, tuple(sorted(labels.items()))
            if family.type != kind or key in seen:
                continue
            seen.add(key)
            if one.quantiles is None:
                family.add_sample(name, labels, one.value)
                continue
            family.add_sample(f"{name}_count", labels, one.value)
            family.add_sample(f"{name}_sum", labels, one.total)
            for quantile, value in one.quantiles.items():
                family.add_sample(name, {**labels, "quantile": str(quantile)}, value)
        return list(found.values())

    def text(self, measured: Iterable[Measured], accept: str = "") -> tuple[bytes, str]:
        """The text, and its content type.

        Args:
            measured: the values.
            accept: what the reader understands: its header of that name.
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
    """As a reporter is configured.

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
    given = reporter.parameters.get(FILTER, "true")
    try:
        return Exposition(parse_bool(given))
    except ValueError as error:
        raise ConfigurationError(f"{reporter.key(FILTER)} = {given!r} is not valid: expected {error}.") from error


def ports_of(reporter: Reporter) -> range:
    """Of a reporter that has a port of its own: those of which it takes the first free one; empty = it has none.

    Raises:
        ConfigurationError: they are malformed.
    """
    given = reporter.parameters.get(PORT)
    if given is None:
        return range(0)
    match = re.fullmatch(r"\s*(\d{1,5})\s*(?:-\s*(\d{1,5}))?\s*", given)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if not 0 <= first <= last <= 65535:
        raise ConfigurationError(
            f"{reporter.key(PORT)} = {given!r} is not valid: expected a port or a range such as 9250-9260."
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
        measure: what there is.
        tokens: that open it.
        needs_token: whether it is closed to those without one.
        refusals: where those are logged who were refused.
    """

    async def metrics(request: web.Request) -> web.StreamResponse:
        if not tokens.is_known(request) and needs_token():
            what = "is wrong" if request.headers.get("Authorization") else "is missing"
            refusals.refused(request.remote or "?", f"GET {PATH}: the token {what}", what)
            return error_response(401, str(UnauthorizedError(f"The token {what}: {_NEEDED}")))
        body, content_type = exposition.text(await measure(), request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    return web.get(PATH, metrics, allow_head=False)


_NEEDED: Final = (
    "metrics that other hosts could read need Authorization: Bearer with the token of firesteel.rest.token-file, or "
    "with the one that is made from firesteel.security.secret-file; firesteel.rest.allow-unauthenticated opens them."
)
