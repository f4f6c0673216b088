"""``Configuration``: the keys and values that a program passes to its environment. PyFlink's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from firesteel.core.option_texts import show
from firesteel.core.sensitive import MASK, is_sensitive

__all__ = ["Configuration"]


class Configuration:
    """Keys and values. Values keep the type with which they were set; the getters also read Flink's text forms.

    The environment checks whether the keys exist and what they mean.

    Examples:
        ```python
        from firesteel.common import Configuration

        config = Configuration()
        config.set_string("execution.checkpointing.interval", "10 s")
        config.set_integer("parallelism.default", 2)
        print(config.get_integer("parallelism.default", 1))
        ```

        ```text
        2
        ```
    """

    def __init__(self, other: Configuration | None = None) -> None:
        self._values: dict[str, Any] = dict(other._values) if other is not None else {}

    @classmethod
    def from_dict(cls, map: Mapping[str, Any]) -> Configuration:
        """Makes a configuration with these keys and values."""
        configuration = cls()
        for key, value in map.items():
            configuration._set(key, value)
        return configuration

    @staticmethod
    def parse_list_value(value: str | None) -> list[str]:
        """Reads a list written as YAML (``[a, 'b,c']``) or as ``a;b``; an empty text and None are an empty list."""
        text = "" if value is None else value.strip()
        try:  # the BaseLoader leaves all elements as text: 1.0 stays "1.0", and no stays "no"
            parts = yaml.load(text, yaml.BaseLoader)
        except yaml.YAMLError:
            parts = None
        if not isinstance(parts, list):
            parts = text.split(";")
        return [str(part).strip() for part in parts if str(part).strip()]

    def get_string(self, key: str, default_value: str | None) -> str | None:
        """Returns the value as text."""
        return show(self._values[key]) if key in self._values else default_value

    def set_string(self, key: str, value: str) -> Configuration:
        """Sets a key; returns this configuration."""
        return self._set(key, value)

    def get_integer(self, key: str, default_value: int) -> int:
        """Returns the value as an int.

        Raises:
            ValueError: it is not an integer.
        """
        if key not in self._values:
            return default_value
        value = self._values[key]
        try:
            if isinstance(value, float) and not value.is_integer():
                raise ValueError
            return int(value)
        except (TypeError, ValueError):
            raise ValueError(f"The value of {key!r} is not an integer: {value!r}.") from None

    def set_integer(self, key: str, value: int) -> Configuration:
        """Sets a key; returns this configuration."""
        return self._set(key, int(value))

    def get_boolean(self, key: str, default_value: bool) -> bool:
        """Returns the value as a bool.

        Raises:
            ValueError: it is neither ``true`` nor ``false``.
        """
        if key not in self._values:
            return default_value
        text = show(self._values[key]).strip().lower()
        if text not in ("true", "false"):
            raise ValueError(f"The value of {key!r} is neither true nor false: {self._values[key]!r}.")
        return text == "true"

    def set_boolean(self, key: str, value: bool) -> Configuration:
        """Sets a key; returns this configuration."""
        return self._set(key, bool(value))

    def get_float(self, key: str, default_value: float) -> float:
        """Returns the value as a float.

        Raises:
            ValueError: it is not a number.
        """
        if key not in self._values:
            return float(default_value)
        try:
            return float(self._values[key])
        except (TypeError, ValueError):
            raise ValueError(f"The value of {key!r} is not a number: {self._values[key]!r}.") from None

    def set_float(self, key: str, value: float) -> Configuration:
        """Sets a key; returns this configuration."""
        return self._set(key, float(value))

    def get_bytearray(self, key: str, default_value: bytes | bytearray) -> bytearray:
        """Returns the value as a bytearray.

        Raises:
            ValueError: the value is not bytes.
        """
        if key not in self._values:
            return bytearray(default_value)
        value = self._values[key]
        if not isinstance(value, (bytes, bytearray)):
            raise ValueError(f"The value of {key!r} is not bytes: {value!r}.")
        return bytearray(value)

    def set_bytearray(self, key: str, value: bytes | bytearray) -> Configuration:
        """Sets a key; returns this configuration."""
        return self._set(key, bytes(value))

    def key_set(self) -> set[str]:
        """Returns the keys that are set."""
        return set(self._values)

    def add_all_to_dict(self, target_dict: dict[str, Any]) -> None:
        """Adds all keys to a dict, with their values in the types that they were set with."""
        target_dict.update(self._values)

    def add_all(self, other: Configuration, prefix: str | None = None) -> Configuration:
        """Adds all of another configuration, with ``prefix`` before each key if given."""
        for key, value in other._values.items():
            self._values[(prefix or "") + key] = value
        return self

    def contains_key(self, key: str) -> bool:
        """Returns whether the key is set."""
        return key in self._values

    def to_dict(self) -> dict[str, str]:
        """Returns all keys with their values as text (``true``, ``3``; bytes as Base64)."""
        return {key: show(value) for key, value in self._values.items()}

    def remove_config(self, key: str) -> bool:
        """Removes a key; returns whether it was set."""
        return self._values.pop(key, _MISSING) is not _MISSING

    def _set(self, key: str, value: Any) -> Configuration:
        if not isinstance(key, str) or not key:
            raise TypeError(f"A configuration key is a non-empty str, not {key!r}.")
        if value is None:
            raise ValueError(f"The value of {key!r} is None; leave the key out or remove it with remove_config().")
        self._values[key] = value
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Configuration:
        return Configuration(self)

    def __eq__(self, other: object) -> bool:
        return self.to_dict() == other.to_dict() if isinstance(other, Configuration) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self.to_dict().items()))

    def __repr__(self) -> str:
        shown = {k: MASK if is_sensitive(k) else v for k, v in self.to_dict().items()}
        return "{" + ", ".join(f"{k}={v}" for k, v in shown.items()) + "}"


_MISSING = object()
