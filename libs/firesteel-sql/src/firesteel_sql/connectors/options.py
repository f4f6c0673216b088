"""Options of tables: declared once, read with their types, and refused by near names if nobody declares them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

from firesteel.config.option import MASK, Option, is_sensitive
from firesteel.core.errors import ProgramError

T = TypeVar("T")


class TableOptionError(ProgramError):
    """An option of a table that is missing, wrong or unknown."""


class TableOptions:
    """The options of one table.

    Args:
        table: full name of the table, for errors.
        options: keys and values behind WITH.
        prefix: stands in front of the keys of options that are read, as ``value.`` in front of those of a format.
    """

    def __init__(self, table: str, options: Mapping[str, str], prefix: str = "") -> None:
        self.table, self._options, self.prefix = table, dict(options), prefix

    def below(self, prefix: str) -> TableOptions:
        """The same options, whose keys are read behind a prefix."""
        return TableOptions(self.table, self._options, prefix)

    def refuse(self, key: str, problem: str) -> TableOptionError:
        """The error for an option."""
        return TableOptionError(f"table {self.table}: the option '{self.prefix}{key}' {problem}")

    def get(self, option: Option[T], *names: str) -> T:
        """The value of an option, or its default.

        Args:
            option: the option.
            names: stand for the ``#`` in its key.

        Raises:
            TableOptionError: the value is not of the option's type.
        """
        key = _key(option, names)
        raw = self._options.get(f"{self.prefix}{key}")
        if raw is None:
            return option.default
        try:
            return option.parse(raw)
        except ValueError as error:
            shown = MASK if is_sensitive(key) else raw
            raise self.refuse(key, f"is '{shown}', and has to be {error}") from None

    def required(self, option: Option[T | None], *names: str) -> T:
        """The value of an option that has to be there.

        Raises:
            TableOptionError: it is not, or is not of its type.
        """
        value = self.get(option, *names)
        if value is None:
            raise TableOptionError(f"table {self.table}: the option '{self.prefix}{_key(option, names)}' is missing")
        return value

    def has(self, option: Option[Any], *names: str) -> bool:
        """Whether an option is set."""
        return f"{self.prefix}{_key(option, names)}" in self._options

    def raw(self, key: str) -> str | None:
        """The text of an option."""
        return self._options.get(f"{self.prefix}{key}")

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """All options whose keys begin like this, without the prefix."""
        return {key[len(prefix) :]: value for key, value in self._options.items() if key.startswith(prefix)}

    def refuse_unknown(self, supported: Iterable[str]) -> None:
        """Refuse options that are not supported.

        Args:
            supported: keys; ``#`` stands for the name of a column, a ``*`` at the end for anything.

        Raises:
            TableOptionError: there is one that is not.
        """
        keys = sorted({"connector", *supported})
        patterns = [re.compile(re.escape(key).replace(r"\#", ".+").replace(r"\*", ".+")) for key in keys]
        for key in self._options:
            if not any(pattern.fullmatch(key) for pattern in patterns):
                close = get_close_matches(key, keys, 1, 0.7)
                hint = f"did you mean {close[0]}? Supported" if close else "supported"
                raise TableOptionError(f"table {self.table}: there is no option '{key}'; {hint} are {', '.join(keys)}")


def _key(option: Option[Any], names: tuple[str, ...]) -> str:
    key = option.key
    for name in names:
        key = key.replace("#", name, 1)
    return key
