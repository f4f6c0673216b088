"""Brings restored entries to the type that state is asked for with now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from firesteel.core.errors import StateMigrationError
from firesteel.state.heap_ttl import NEWEST
from firesteel.state.schema import Answer, Convert, LostKeysError, compare
from firesteel.state.snapshots import StateInfo
from firesteel.state.tables import HeapTable, Table, TtlTable


def adopt(old: StateInfo, entries: Table, new: StateInfo, now: int) -> Table:
    """The restored entries as a table of the new state.

    Args:
        old: what the snapshot says.
        entries: as they were written.
        new: the state that is asked for.
        now: epoch ms; time of the last access of values that had no time-to-live before.

    Raises:
        StateMigrationError: the types are incompatible, or keys of a map become one; names the field.
    """
    converter = converter_between(old, new, now)
    if converter is None and not new.ttl:
        return entries
    try:
        migrated = [(key, value if converter is None else converter(value)) for key, value in entries.items()]
    except LostKeysError as error:
        raise StateMigrationError(new.name, error.field, error.reason) from None
    if not new.ttl:
        plain = HeapTable()
        plain.update(migrated)
        return plain
    return _in_order(new.kind, migrated)


def converter_between(old: StateInfo, new: StateInfo, now: int) -> Callable[[Any], Any] | None:
    """What makes an entry of the new state of a restored one; None if they are the same. Arguments as of ``adopt``.

    It raises ``LostKeysError`` where keys of a map become one.

    Raises:
        StateMigrationError: the types are incompatible; names the field.
    """
    if old.kind != new.kind:
        raise StateMigrationError(new.name, "", f"it was {old.kind} state and is {new.kind} state now")
    found = compare(old.schema, new.schema)
    if found.answer is Answer.INCOMPATIBLE:
        raise StateMigrationError(new.name, found.field, found.reason)
    if found.convert is None and old.ttl == new.ttl:
        return None
    return _converter(new.kind, old.ttl, new.ttl, found.convert, now)


def together(info: StateInfo, tables: Sequence[Table]) -> Table:
    """The entries of several subtasks, which differed in the type of a state, as one table; no key is in two.

    Args:
        info: the state that is asked for.
        tables: what ``adopt`` made of each; at least one.
    """
    if len(tables) == 1:
        return tables[0]
    entries = [entry for table in tables for entry in table.items()]
    if info.ttl:
        return _in_order(info.kind, entries)
    plain = HeapTable()
    plain.update(entries)
    return plain


def _in_order(kind: str, entries: list[tuple[Any, Any]]) -> TtlTable:
    newest = NEWEST[kind]
    table = TtlTable()
    table.update(sorted(entries, key=lambda item: newest(item[1])))
    return table


def _converter(kind: str, had_ttl: bool, has_ttl: bool, convert: Convert | None, now: int) -> Callable[[Any], Any]:
    """What turns an entry of the old state into one of the new state."""

    def fit(value: Any) -> Any:
        return value if value is None or convert is None else convert(value)

    def one(entry: Any) -> Any:
        value, stamp = entry if had_ttl else (entry, now)
        return (fit(value), stamp) if has_ttl else fit(value)

    def many(entry: list[Any]) -> list[Any]:
        return [one(element) for element in entry]

    def mapping(entry: dict[Any, Any]) -> dict[Any, Any]:
        stamps = [stamp for _, stamp in entry.values()] if had_ttl else [now] * len(entry)
        values = fit({key: value for key, (value, _) in entry.items()} if had_ttl else dict(entry))
        if not has_ttl:
            return values  # type: ignore[no-any-return]
        return {key: (value, stamp) for (key, value), stamp in zip(values.items(), stamps, strict=True)}

    converters: dict[str, Callable[[Any], Any]] = {"list": many, "map": mapping}
    return converters.get(kind, one)
