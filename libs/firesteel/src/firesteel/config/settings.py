"""``Settings``: values that were set, with the layer that set each, read through declared options."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from copy import copy
from typing import Any, TypeVar

from firesteel.config.application_options import APPLICATION_ARGUMENTS
from firesteel.config.keys import OWN_PREFIX, REFUSED, current_name, flink_keys, is_flink_key, near
from firesteel.config.option import Option, Secret
from firesteel.config.options import ENVIRONMENT_PREFIXES, OPTIONS, REPORTER_PREFIXES
from firesteel.core.errors import ConfigurationError
from firesteel.core.option_texts import show
from firesteel.core.sensitive import MASK, is_sensitive, masked_arguments

__all__ = ["Settings"]

T = TypeVar("T")


class Settings:
    """Keys with their values, in layers of which the later win. Immutable.

    Renamed keys get their current names as a layer is added. There are no global settings: a component gets its
    ``Settings``, or a slice of them, from the code that creates it.
    """

    __slots__ = ("_layer_of", "_renamed", "_values")

    def __init__(self, values: Mapping[str, Any] | None = None, layer: str = "program") -> None:
        self._values: dict[str, Any] = {}
        self._layer_of: dict[str, str] = {}
        self._renamed: dict[str, str] = {}
        if values:
            self._add(layer, values)

    def with_layer(self, layer: str, values: Mapping[str, Any]) -> Settings:
        """Returns new settings with these values on top.

        Args:
            layer: where they come from, for messages: ``config.yaml``, ``environment``, ``command line``, ….
            values: keys with text or Python values; None leaves a key as it is below.
        """
        layered = Settings()
        layered._values, layered._layer_of = dict(self._values), dict(self._layer_of)
        layered._renamed = dict(self._renamed)
        layered._add(layer, values)
        return layered

    def _add(self, layer: str, values: Mapping[str, Any]) -> None:
        names_in_layer = set(values)
        for key, value in values.items():
            name = current_name(key)
            if value is None or (name != key and name in names_in_layer):
                continue
            if name != key:
                self._renamed[key] = name
            self._values[name] = value
            self._layer_of[name] = layer

    def get(self, option: Option[T]) -> T:
        """Returns the option's value: what was set, else what a fall-back key was set to, else its default.

        Raises:
            ConfigurationError: the value is not of the option's type or out of its bounds.
        """
        key = self._set_key(option)
        if key is None:
            return copy(option.default)
        raw = self._values[key]
        try:
            return option.parse(raw)
        except ValueError as error:
            shown = MASK if option.secret or is_sensitive(key) else repr(show(raw))
            raise ConfigurationError(
                f"{key} = {shown} (from {self._layer_of[key]}) is not valid: expected {error}."
            ) from None

    def _set_key(self, option: Option[Any]) -> str | None:
        return next((key for key in (option.key, *option.fallback_keys) if key in self._values), None)

    def is_set(self, option: Option[Any]) -> bool:
        """Returns whether somebody set the option or one of its fall-back keys."""
        return self._set_key(option) is not None

    def source_of(self, option: Option[Any]) -> str:
        """Returns the layer that the option's value comes from; ``default`` if none set it."""
        key = self._set_key(option)
        return "default" if key is None else self._layer_of[key]

    def layers(self) -> dict[str, str]:
        """Returns for every key that was set the layer that its value comes from."""
        return dict(sorted(self._layer_of.items()))

    def keys(self) -> frozenset[str]:
        """Returns all keys that were set."""
        return frozenset(self._values)

    def under(self, prefix: str) -> dict[str, str]:
        """Returns the values of keys with this prefix, as text, by their keys without the prefix."""
        return {key[len(prefix) :]: show(_open(v)) for key, v in self._values.items() if key.startswith(prefix)}

    def slice(self, options: Iterable[Option[Any]]) -> Settings:
        """Returns settings of these options only."""
        keys = {key for option in options for key in (option.key, *option.fallback_keys)}
        sliced = Settings()
        for key in sorted(keys & self._values.keys()):
            sliced._values[key], sliced._layer_of[key] = self._values[key], self._layer_of[key]
        return sliced

    def to_plain(self) -> dict[str, str]:
        """Returns everything as text, secrets too, to send to another process (``Settings.from_plain``)."""
        return {key: show(_open(value)) for key, value in sorted(self._values.items())}

    @staticmethod
    def from_plain(plain: Mapping[str, str], layer: str = "cluster") -> Settings:
        """Returns settings from the result of ``to_plain``, all of one layer."""
        return Settings(plain, layer)

    def to_shown(self) -> dict[str, str]:
        """Returns everything as text to show to people: secrets are stars, in arguments of programs as well."""
        return {key: _shown(key, text, value) for (key, text), value in self._pairs()}

    def _pairs(self) -> Iterable[tuple[tuple[str, str], Any]]:
        return [((key, text), self._values[key]) for key, text in self.to_plain().items()]

    def check(self) -> list[str]:
        """Checks all keys and all values of declared options.

        Returns:
            Warnings, at most one of each kind: renamed keys, Flink's keys that have no effect here, unknown keys.

        Raises:
            ConfigurationError: keys under ``firesteel.`` that do not exist, values that are not valid, or a protection
                that Flink has and we do not; all of them in one message.
        """
        faults: list[str] = []
        unused: list[str] = []
        unknown: list[str] = []
        fallbacks = {key for option in OPTIONS.values() for key in option.fallback_keys}
        for key in sorted(self._values):
            if key in OPTIONS or key in fallbacks or key.startswith((*REPORTER_PREFIXES, *ENVIRONMENT_PREFIXES)):
                continue
            if key in REFUSED and str(show(self._values[key])).strip().lower() == "true":
                faults.append(
                    f"{key} = true (from {self._layer_of[key]}) can't be honoured: {REFUSED[key]} (docs/security.md). "
                    "Leave the key out, or set it to false, if you do without."
                )
            elif key.startswith(OWN_PREFIX):
                faults.append(f"There is no option {key} (from {self._layer_of[key]}){_hint(key, OPTIONS)}.")
            elif is_flink_key(key):
                unused.append(key)
            else:
                unknown.append(f"{key} (from {self._layer_of[key]}{_hint(key, [*OPTIONS, *flink_keys()])})")
        for option in OPTIONS.values():
            try:
                self.get(option)
            except ConfigurationError as error:
                faults.append(str(error))
        if faults:
            raise ConfigurationError("\n".join(faults))
        warnings: list[str] = []
        if self._renamed:
            pairs = ", ".join(f"{key} is now {name}" for key, name in sorted(self._renamed.items()))
            warnings.append(f"Renamed configuration keys: {pairs}.")
        if unused:
            warnings.append(f"These configuration keys of Flink have no effect in Firesteel: {', '.join(unused)}.")
        if unknown:
            warnings.append(f"Unknown configuration keys: {', '.join(unknown)}.")
        return warnings

    def __eq__(self, other: object) -> bool:
        return self.to_plain() == other.to_plain() if isinstance(other, Settings) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self.to_plain().items()))

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{key}={text}' for key, text in self.to_shown().items())})"


def _open(value: Any) -> Any:
    return value.reveal() if isinstance(value, Secret) else value


def _is_secret(key: str, value: Any) -> bool:
    option = OPTIONS.get(key)
    return isinstance(value, Secret) or is_sensitive(key) or (option is not None and option.secret)


def _shown(key: str, text: str, value: Any) -> str:
    if _is_secret(key, value):
        return MASK
    if key == APPLICATION_ARGUMENTS.key:
        try:
            words = json.loads(text)
        except ValueError:
            return MASK
        return json.dumps(masked_arguments(map(str, words))) if isinstance(words, list) else MASK
    return " ".join(masked_arguments(text.split(" ")))


def _hint(key: str, candidates: Iterable[str]) -> str:
    matches = near(key, candidates)
    return f"; did you mean {' or '.join(matches)}?" if matches else ""
