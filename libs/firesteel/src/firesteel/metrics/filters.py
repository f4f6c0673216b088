"""Selection of the metrics that a reporter gets, and of their labels.

The parameters are ``filter.*`` and ``scope.variables.*``, in Flink's syntax.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from firesteel.config.reporters import Reporter
from firesteel.config.values import parse_map
from firesteel.core.errors import ConfigurationError
from firesteel.metrics.reporter import Measured

__all__ = ["PARAMETERS", "selection_of"]

INCLUDES: Final = "filter.includes"
EXCLUDES: Final = "filter.excludes"
WITHOUT: Final = "scope.variables.excludes"
WITH: Final = "scope.variables.additional"
PARAMETERS: Final = (INCLUDES, EXCLUDES, WITHOUT, WITH)
_KINDS: Final = frozenset({"counter", "gauge", "meter", "histogram"})


@dataclass(frozen=True)
class _Pattern:
    scope: re.Pattern[str]
    names: tuple[re.Pattern[str], ...]
    kinds: frozenset[str]

    def takes(self, metric: Measured) -> bool:
        return (
            metric.kind in self.kinds
            and self.scope.fullmatch(".".join(metric.scope)) is not None
            and any(name.fullmatch(metric.name) is not None for name in self.names)
        )


def selection_of(reporter: Reporter) -> Callable[[Iterable[Measured]], list[Measured]]:
    """Return the function that selects a reporter's metrics and sets their labels.

    Raises:
        ConfigurationError: a parameter is malformed.
    """
    includes, excludes = _patterns(reporter, INCLUDES), _patterns(reporter, EXCLUDES)
    without = {name.strip() for name in reporter.parameters.get(WITHOUT, "").split(";")} - {""}
    try:
        additional = parse_map(reporter.parameters[WITH]) if WITH in reporter.parameters else {}
    except ValueError as error:
        raise ConfigurationError(f"{reporter.key(WITH)} is not valid: expected {error}.") from None

    def labelled(metric: Measured) -> Measured:
        labels = {name: value for name, value in metric.labels.items() if name not in without}
        return replace(metric, labels={**labels, **additional})

    def select(measured: Iterable[Measured]) -> list[Measured]:
        selected = [
            metric for metric in measured
            if (not includes or any(pattern.takes(metric) for pattern in includes))
            and not any(pattern.takes(metric) for pattern in excludes)
        ]  # fmt: skip
        return list(map(labelled, selected)) if without or additional else selected

    return select


def _patterns(reporter: Reporter, parameter: str) -> list[_Pattern]:
    text = reporter.parameters.get(parameter, "")
    return [_pattern(reporter, parameter, part.strip()) for part in text.split(";") if part.strip()]


def _pattern(reporter: Reporter, parameter: str, text: str) -> _Pattern:
    parts = [part.strip() for part in text.split(":")]
    parts += ["*"] * (3 - len(parts))
    scope, names, types, *excess = parts
    kinds = _KINDS if types == "*" else frozenset(kind.strip().lower() for kind in types.split(","))
    if excess or not scope or not names or not kinds <= _KINDS:
        raise ConfigurationError(
            f"{reporter.key(parameter)}: {text!r} is not valid: expected <scope>:<name>,<name>:<type>,<type>, such as "
            f"taskmanager.job.task.*:numRecordsIn*:counter; types: {', '.join(sorted(_KINDS))}."
        )
    return _Pattern(_wildcard(scope), tuple(_wildcard(name.strip()) for name in names.split(",")), kinds)


def _wildcard(text: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, text.split("*"))))
