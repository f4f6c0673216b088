"""The hint STATE_TTL: how long the operators of a SELECT remember rows of its inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from firesteel.config.values import parse_duration
from firesteel_sql.bind.expressions import ExpressionBinder
from firesteel_sql.catalog.catalogs import near
from firesteel_sql.parse import nodes as n

_NAME = "STATE_TTL"


def state_ttl_of(source: n.TableReference, hints: Sequence[n.Hint]) -> int | None:
    """Time-to-live of rows of an input, ms; None = no hint names it: the session says."""
    if not isinstance(source, n.Aliased):
        return None
    names = _names_of(source)
    ttl = None
    for hint in hints:
        for key, value in hint.options if hint.name == _NAME else ():
            if key in names:
                ttl = _millis(value)
    return ttl


def check_state_hints(source: n.TableReference | None, hints: Sequence[n.Hint], binder: ExpressionBinder) -> None:
    """Check that hints name inputs of the SELECT, and durations.

    Raises:
        SqlError: they do not.
    """
    names = [name for aliased in _inputs(source) for name in _names_of(aliased)]
    for hint in hints:
        if hint.name != _NAME:
            continue
        if hint.arguments or not hint.options:
            binder.refuse(hint, f"{_NAME} names inputs with durations: {_NAME}('orders' = '1 d')")
        for key, value in hint.options:
            if key not in names:
                binder.refuse(hint, f"{_NAME}: the SELECT has no input '{key}'{near(key, names)}")
            try:
                _millis(value)
            except ValueError as error:
                binder.refuse(hint, f"{_NAME}: '{key}' can't be '{value}': expected {error}")


def _millis(value: str) -> int:
    return int(parse_duration(value).total_seconds() * 1000)


def _inputs(source: n.TableReference | None) -> Iterator[n.Aliased]:
    match source:
        case n.JoinedTable():
            yield from _inputs(source.left)
            yield from _inputs(source.right)
        case n.Aliased():
            yield source


def _names_of(source: n.Aliased) -> tuple[str, ...]:
    """The names of an input: its alias, or else that of the table, without and with the database."""
    if source.alias is not None:
        return (source.alias,)
    match source.source:
        case n.NamedTable(path=path):
            return tuple(dict.fromkeys((path[-1], ".".join(path))))
    return ()
