"""Who metrics and traces are reported to: ``metrics.reporter.<name>.<parameter>`` and the like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from firesteel.config.option import ConfigOption
from firesteel.config.settings import Settings
from firesteel.core.errors import ConfigurationError

__all__ = ["Reporter", "reporters_of"]

FACTORY: Final = "factory.class"


@dataclass(frozen=True)
class Reporter:
    """One that is configured.

    Attributes:
        name: of the reporter.
        prefix: of its keys, for messages.
        factory: what makes it.
        parameters: the others of its keys, without the prefix.
    """

    name: str
    prefix: str
    factory: str
    parameters: Mapping[str, str] = field(default_factory=dict)

    def key(self, parameter: str) -> str:
        """The whole key of a parameter."""
        return f"{self.prefix}{self.name}.{parameter}"


def reporters_of(
    settings: Settings, names: ConfigOption[tuple[str, ...] | None], prefix: str, factories: Mapping[str, str]
) -> list[Reporter]:
    """All that are to be used, in order.

    Args:
        settings: of the cluster.
        names: the option that lists them; where it is not set, those that have a factory are used.
        prefix: of the keys of reporters.
        factories: other names of factories -> their names here; a reporter without a factory that is called by one of
            the names has that one.

    Raises:
        ConfigurationError: one that is listed has no factory.
    """
    parameters: dict[str, dict[str, str]] = {}
    for key, value in settings.under(prefix).items():
        name, dot, parameter = key.partition(".")
        if dot:
            parameters.setdefault(name, {})[parameter] = value
    listed = settings.get(names)
    if listed is None:
        wanted = sorted(name for name, given in parameters.items() if FACTORY in given)
    else:  # Flink's own lists of reporters have commas
        wanted = [name for part in listed for one in part.split(",") if (name := one.strip())]
    found = []
    for name in dict.fromkeys(wanted):
        given = dict(parameters.get(name, {}))
        factory = given.pop(FACTORY, name if name in (*factories, *factories.values()) else "")
        if not factory:
            raise ConfigurationError(
                f"{names.key} names {name!r}, of which {prefix}{name}.{FACTORY} is not set: it says what reports, such "
                f"as {next(iter(factories.values()))}"
            )
        found.append(Reporter(name, prefix, factories.get(factory, factory), given))
    return found
