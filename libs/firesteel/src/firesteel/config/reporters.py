"""Reporters of metrics and traces, read from ``metrics.reporter.<name>.<parameter>`` and similar keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from firesteel.config.option import Option
from firesteel.config.settings import Settings
from firesteel.core.errors import ConfigurationError

__all__ = ["Reporter", "reporters_of"]

FACTORY: Final = "factory.class"


@dataclass(frozen=True)
class Reporter:
    """A reporter as it is configured.

    Attributes:
        name: of the reporter.
        prefix: of its keys, for messages.
        factory: name of its factory.
        parameters: all its keys but the factory's, without the prefix, and their values.
    """

    name: str
    prefix: str
    factory: str
    parameters: Mapping[str, str] = field(default_factory=dict)

    def key(self, parameter: str) -> str:
        """The full configuration key of a parameter."""
        return f"{self.prefix}{self.name}.{parameter}"


def reporters_of(
    settings: Settings, names: Option[tuple[str, ...] | None], prefix: str, factories: Mapping[str, str]
) -> list[Reporter]:
    """The reporters to use, in the order of their list.

    Args:
        settings: of the cluster.
        names: the option that lists them; where it is not set, all that name a factory are used, by name.
        prefix: of the keys of reporters.
        factories: Flink's names of factories -> their names here. A reporter that names no factory, but is called by
            one of these names, uses that factory.

    Raises:
        ConfigurationError: a reporter in the list has no factory.
    """
    parameters: dict[str, dict[str, str]] = {}
    for key, value in settings.under(prefix).items():
        name, dot, parameter = key.partition(".")
        if dot:
            parameters.setdefault(name, {})[parameter] = value
    listed = settings.get(names)
    if listed is None:
        reporter_names = sorted(name for name, keys in parameters.items() if FACTORY in keys)
    else:  # Flink's own lists of reporters have commas
        reporter_names = [name for part in listed for entry in part.split(",") if (name := entry.strip())]
    reporters = []
    for name in dict.fromkeys(reporter_names):
        reporter_parameters = dict(parameters.get(name, {}))
        factory = reporter_parameters.pop(FACTORY, name if name in (*factories, *factories.values()) else "")
        if not factory:
            raise ConfigurationError(
                f"{names.key} names {name!r}, of which {prefix}{name}.{FACTORY} is not set: it says what reports, such "
                f"as {next(iter(factories.values()))}"
            )
        reporters.append(Reporter(name, prefix, factories.get(factory, factory), reporter_parameters))
    return reporters
