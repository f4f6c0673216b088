"""Options of a session: which keys SET knows, and which values they take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from zoneinfo import ZoneInfo

from firesteel.config.keys import current_name, flink_keys, is_flink_key, near
from firesteel.config.options import ENVIRONMENT_PREFIXES, OPTIONS, REPORTER_PREFIXES
from firesteel.config.values import parse_bool, parse_duration
from firesteel.core.errors import ProgramError

TIME_ZONE: Final = "table.local-time-zone"
DML_SYNC: Final = "table.dml-sync"
NOT_NULL_ENFORCER: Final = "table.exec.sink.not-null-enforcer"
STATE_TTL: Final = "table.exec.state.ttl"
SOURCE_IDLE_TIMEOUT: Final = "table.exec.source.idle-timeout"
UPSERT_MATERIALIZE: Final = "table.exec.sink.upsert-materialize"
REQUIRE_ON_CONFLICT: Final = "table.exec.sink.require-on-conflict"
CONSISTENCY: Final = "table.exec.consistency"
MAX_ITERATIONS: Final = "table.exec.recursion.max-iterations"
BATCH_ROUTE: Final = "table.exec.batch.route"
_PREFIXES: Final = (*REPORTER_PREFIXES, *ENVIRONMENT_PREFIXES, "sql-client.", "spark.")


class OptionRefused(ProgramError):
    """An option that does not exist, or a value that it does not take."""


def check_key(key: str) -> None:
    """Refuse a key that nobody knows.

    Raises:
        OptionRefused: near keys are named.
    """
    key = current_name(key)
    if key in _KNOWN or key.startswith(_PREFIXES) or is_flink_key(key):
        return
    alike = near(key, [*_KNOWN, *flink_keys()], 1)
    raise OptionRefused(f"there is no option '{key}'" + (f"; did you mean '{alike[0]}'?" if alike else ""))


def check_option(key: str, value: str) -> None:
    """Refuse an option that nobody knows, or a value that it can't have.

    Raises:
        OptionRefused: says what is wrong.
    """
    check_key(key)
    option = OPTIONS.get(current_name(key))
    parse = _VALUES.get(key) if option is None else option.parse
    if parse is None:
        return
    try:
        parse(value)
    except ValueError as error:
        raise OptionRefused(f"'{key}' can't be '{value}': expected {error}") from None


def _zone(value: str) -> None:
    if value == "default":
        return
    try:
        ZoneInfo(value)
    except (KeyError, ValueError, OSError):
        raise ValueError("the name of a time zone, such as 'Europe/Berlin' or 'UTC'") from None


def _positive(value: str) -> None:
    if not value.isdecimal() or not int(value):
        raise ValueError("a whole number above 0")


def _one_of(*values: str) -> Callable[[str], None]:
    def check(value: str) -> None:
        if value.upper() not in values:
            raise ValueError(" or ".join(values))

    return check


def _only(value: str, reason: str) -> Callable[[str], None]:
    """A check for an option of Flink's that can't be honoured with another value."""

    def check(other: str) -> None:
        if other.upper() != value.upper():
            raise ValueError(f"{value}: {reason}")

    return check


_VALUES: Final[dict[str, Callable[[str], object]]] = {
    TIME_ZONE: _zone,
    DML_SYNC: parse_bool,
    NOT_NULL_ENFORCER: _one_of("ERROR", "DROP"),
    UPSERT_MATERIALIZE: _one_of("AUTO", "NONE", "FORCE"),
    REQUIRE_ON_CONFLICT: parse_bool,
    CONSISTENCY: _one_of("EVENTUAL", "EPOCH"),
    STATE_TTL: parse_duration,
    MAX_ITERATIONS: _positive,
    BATCH_ROUTE: _one_of("AUTO", "SPARK", "STAGES"),
    SOURCE_IDLE_TIMEOUT: parse_duration,
    "table.exec.legacy-cast-behaviour": _only("DISABLED", "casts are those of Flink 2"),
    "table.exec.sink.type-length-enforcer": _only("IGNORE", "a CAST in the query cuts and pads"),
    "table.exec.sink.nested-constraint-enforcer": _only("IGNORE", "NOT NULL is checked for whole columns"),
    "table.sql-dialect": _only("default", "there is no other dialect"),
    "table.catalog-store.kind": _only("generic_in_memory", "a session forgets its CREATE CATALOG at its end"),
    "table.dynamic-table-options.enabled": _only("true", "the hint OPTIONS is always there"),
}
"""Checks of values; of other options of Flink's SQL any value is taken: they are about speed, and have no effect."""

_FALLBACKS: Final = {key for option in OPTIONS.values() for key in option.fallback_keys}
_KNOWN: Final = frozenset({*OPTIONS, *_FALLBACKS, *_VALUES})
