"""Which metrics a reporter gets: ``filter.includes`` and ``filter.excludes``, in Flink's syntax."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from firesteel.config.reporters import Reporter
from firesteel.core.errors import ConfigurationError
from firesteel.metrics.reporter import Measured

__all__ = ["EXCLUDES", "INCLUDES", "filter_of"]

INCLUDES: Final = "filter.includes"
EXCLUDES: Final = "filter.excludes"
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


def filter_of(reporter: Reporter) -> Callable[[Iterable[Measured]], list[Measured]]:
    """What leaves the others out.

    Raises:
        ConfigurationError: a filter is malformed.
    """
    includes, excludes = _patterns(reporter, INCLUDES), _patterns(reporter, EXCLUDES)
    if not includes and not excludes:
        return list

    def filtered(measured: Iterable[Measured]) -> list[Measured]:
        return [
            one for one in measured
            if (not includes or any(pattern.takes(one) for pattern in includes))
            and not any(pattern.takes(one) for pattern in excludes)
        ]  # fmt: skip

    return filtered


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
