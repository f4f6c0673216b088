"""Typed keys for ``Configuration``-based APIs, with PyFlink's builder: ``ConfigOptions.key("k").int_type()``."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

__all__ = ["ConfigOption", "ConfigOptions"]

T = TypeVar("T")


class ConfigOption(Generic[T]):
    """A key, its type and its default value (None if there is none).

    Examples:
        ```python
        from firesteel.common import ConfigOptions

        workers = ConfigOptions.key("my.workers").int_type().default_value(4)
        print(workers.key, workers.default_value)
        ```

        ```text
        my.workers 4
        ```
    """

    def __init__(self, key: str, value_type: type[Any], default_value: T | None = None) -> None:
        self.key = key
        self.value_type = value_type
        self.default_value = default_value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConfigOption):
            return NotImplemented
        return (self.key, self.value_type, self.default_value) == (other.key, other.value_type, other.default_value)

    def __hash__(self) -> int:
        return hash((self.key, self.value_type))

    def __repr__(self) -> str:
        return f"ConfigOption(key={self.key!r}, default={self.default_value!r})"


class ConfigOptions:
    """Builds options: ``ConfigOptions.key(...)``, then the type, then the default.

    Examples:
        ```python
        from firesteel.common import ConfigOptions

        name = ConfigOptions.key("my.name").string_type().no_default_value()
        print(name.key, name.default_value)
        ```

        ```text
        my.name None
        ```
    """

    @staticmethod
    def key(key: str) -> ConfigOptions.OptionBuilder:
        """Starts an option with this key."""
        return ConfigOptions.OptionBuilder(key)

    class OptionBuilder:
        """Second step of the builder: sets the type."""

        def __init__(self, key: str) -> None:
            self._key = key

        def boolean_type(self) -> ConfigOptions.TypedConfigOptionBuilder[bool]:
            """The value is a bool."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, bool)

        def int_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """The value is an int."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, int)

        def long_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """The value is an int."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, int)

        def float_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            """The value is a float."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, float)

        def double_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            """The value is a float."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, float)

        def string_type(self) -> ConfigOptions.TypedConfigOptionBuilder[str]:
            """The value is a str."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, str)

    class TypedConfigOptionBuilder(Generic[T]):
        """Third step of the builder: sets the default."""

        def __init__(self, key: str, value_type: type[Any]) -> None:
            self._key = key
            self._value_type = value_type

        def default_value(self, value: T) -> ConfigOption[T]:
            """Makes the option, with this default."""
            return ConfigOption(self._key, self._value_type, value)

        def no_default_value(self) -> ConfigOption[T]:
            """Makes the option, without a default."""
            return ConfigOption(self._key, self._value_type)
