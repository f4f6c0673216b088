"""Which metrics a reporter gets, and with which labels: ``filter.*`` and ``scope.variables.*``, in Flink's syntax."""

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

    def takes(self, one: Measured) -> bool:
        return (
            one.kind in self.kinds
            and self.scope.fullmatch(".".join(one.scope)) is not None
            and any(name.fullmatch(one.name) is not None for name in self.names)
        )


def selection_of(reporter: Reporter) -> Callable[[Iterable[Measured]], list[Measured]]:
    """What leaves the others out, and gives labels.

    Raises:
        ConfigurationError: a parameter is malformed.
    """
    includes, excludes = _patterns(reporter, INCLUDES), _patterns(reporter, EXCLUDES)
    without = {name.strip() for name in reporter.parameters.get(WITHOUT, "").split(";")} - {""}
    try:
        more = parse_map(reporter.parameters[WITH]) if WITH in reporter.parameters else {}
    except ValueError as error:
        raise ConfigurationError(f"{reporter.key(WITH)} is not valid: expected {error}.") from None

    def labelled(one: Measured) -> Measured:
        labels = {name: value for name, value in one.labels.items() if name not in without}
        return replace(one, labels={**labels, **more})

    def selected(measured: Iterable[Measured]) -> list[Measured]:
        found = [
            one for one in measured
            if (not includes or any(pattern.takes(one) for pattern in includes))
            and not any(pattern.takes(one) for pattern in excludes)
        ]  # fmt: skip
        return list(map(labelled, found)) if without or more else found

    return selected


def _patterns(reporter: Reporter, parameter: str) -> list[_Pattern]:
    text = reporter.parameters.get(parameter, "")
    return [_pattern(reporter, parameter, one.strip()) for one in text.split(";") if one.strip()]


def _pattern(reporter: Reporter, parameter: str, text: str) -> _Pattern:
    scope, *rest = (part.strip() for part in text.split(":"))
    names, kinds = rest[0] if rest else "*", rest[1] if len(rest) > 1 else "*"
    wanted = _KINDS if kinds == "*" else frozenset(kind.strip().lower() for kind in kinds.split(","))
    if len(rest) > 2 or not scope or not names or not wanted <= _KINDS:
        raise ConfigurationError(
            f"{reporter.key(parameter)}: {text!r} is not valid: expected <scope>:<name>,<name>:<type>,<type>, such as "
            f"taskmanager.job.task.*:numRecordsIn*:counter; types: {', '.join(sorted(_KINDS))}."
        )
    return _Pattern(_wildcard(scope), tuple(_wildcard(name.strip()) for name in names.split(",")), wanted)


def _wildcard(text: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, text.split("*"))))
