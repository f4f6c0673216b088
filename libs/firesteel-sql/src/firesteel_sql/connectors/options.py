"""Options of tables: read with their types, and refused by near names if nobody knows them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from firesteel.core.errors import ProgramError
from firesteel_sql.catalog.catalogs import near


class TableOptionError(ProgramError):
    """An option of a table that is missing, wrong or unknown."""


class TableOptions:
    """The options of one table.

    Args:
        table: full name of the table, for errors.
        options: keys and values behind WITH.
    """

    def __init__(self, table: str, options: Mapping[str, str]) -> None:
        self._table, self._options = table, dict(options)
        self._known: set[str] = {"connector"}
        self._prefixes: set[str] = set()

    def refuse(self, key: str, problem: str) -> TableOptionError:
        """The error for an option."""
        return TableOptionError(f"table {self._table}: the option '{key}' {problem}")

    def text(self, key: str, default: str | None = None) -> str | None:
        """An option as it is."""
        self._known.add(key)
        return self._options.get(key, default)

    def required(self, key: str) -> str:
        """An option that has to be there.

        Raises:
            TableOptionError: it is not.
        """
        value = self.text(key)
        if value is None:
            raise TableOptionError(f"table {self._table}: the option '{key}' is missing")
        return value

    def _read(self, key: str, what: str, convert: Callable[[str], Any]) -> Any:
        value = self.text(key)
        if value is None:
            return None
        try:
            return convert(value.strip())
        except ValueError:
            raise self.refuse(key, f"is '{value}', which is no {what}") from None

    def integer(self, key: str, default: int | None = None) -> int | None:
        """An option that is a whole number.

        Raises:
            TableOptionError: it is none.
        """
        value = self._read(key, "whole number", int)
        return default if value is None else value

    def number(self, key: str, default: float | None = None) -> float | None:
        """An option that is a number.

        Raises:
            TableOptionError: it is none.
        """
        value = self._read(key, "number", float)
        return default if value is None else value

    def boolean(self, key: str, default: bool = False) -> bool:
        """An option that is true or false.

        Raises:
            TableOptionError: it is neither.
        """
        value = self._read(key, "true or false", _boolean)
        return default if value is None else bool(value)

    def duration(self, key: str, default: timedelta | None = None) -> timedelta | None:
        """An option that is a time: ``10 s``, ``500 ms``.

        Raises:
            TableOptionError: it is none.
        """
        value = self._read(key, "time (10 s, 500 ms)", _duration)
        return default if value is None else value

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """All options whose keys begin like this, without the prefix."""
        self._prefixes.add(prefix)
        return {key[len(prefix) :]: value for key, value in self._options.items() if key.startswith(prefix)}

    def refuse_unknown(self) -> None:
        """Refuse options that nobody has asked for.

        Raises:
            TableOptionError: there is one.
        """
        for key in self._options:
            if key not in self._known and not any(key.startswith(prefix) for prefix in self._prefixes):
                raise TableOptionError(
                    f"table {self._table}: there is no option '{key}'{near(key, self._known - {'connector'})}"
                )


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


_UNITS = {"ms": 0.001, "s": 1, "sec": 1, "min": 60, "m": 60, "h": 3600, "d": 86400}


def _duration(text: str) -> timedelta:
    match = re.fullmatch(r"(\d+)\s*([a-z]+)", text.lower())
    if match is None or match.group(2) not in _UNITS:
        raise ValueError(text)
    return timedelta(seconds=int(match.group(1)) * _UNITS[match.group(2)])
