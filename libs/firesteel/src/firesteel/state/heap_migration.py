"""Converts restored entries to the current type of their state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from firesteel.core.errors import StateMigrationError, TypeMismatchError
from firesteel.functions.state import StateDescriptor
from firesteel.state.fitting import make_fit
from firesteel.state.heap_ttl import TTL_ENTRIES
from firesteel.state.schema import Compatibility, Convert, LostKeysError, SchemaCompatibility, compare
from firesteel.state.snapshots import Migration, StateInfo
from firesteel.state.tables import HeapTable, Table, TtlTable

_WITH_KEYS: Final = ("map", "broadcast")
"""Kinds whose values are of a type with keys."""


def adopt(old: StateInfo, entries: Table, new: StateInfo, now: int) -> Table:
    """Table of a declared state with the restored entries, converted to its type.

    Args:
        old: description in the snapshot.
        entries: as they were written.
        new: the declared state.
        now: epoch ms; time of the last access of values that had no time-to-live before.

    Raises:
        StateMigrationError: the types are incompatible, or several keys of a map would become one; names the field.
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
    """Function that turns a restored entry into one of the declared state; None if they are the same. Args as in
    ``adopt``.

    It raises ``LostKeysError`` where several keys of a map would become one, and ``StateMigrationError`` where a step
    of the user's migration returns a value that the state can't hold.

    Raises:
        StateMigrationError: the types are incompatible; names the field.
    """
    compatible = compatibility(old, new)
    if compatible.answer is SchemaCompatibility.INCOMPATIBLE:
        raise StateMigrationError(new.name, compatible.field, compatible.reason)
    if compatible.convert is None and old.ttl == new.ttl:
        return None
    return _converter(new.kind, old.ttl, new.ttl, compatible.convert, now)


Listener = Callable[[StateInfo, StateInfo, Compatibility], bool]
"""Called with the restored state, the declared state, and what becomes of it; True = nothing has to be done."""
_LISTENERS: Final[list[Listener]] = []


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call the listener with each answer of ``compatibility`` within this block.

    ``firesteel upgrade``, which has only descriptions of state, finds out in this way what would become of it.
    """
    _LISTENERS.append(listener)
    try:
        yield
    finally:
        _LISTENERS.remove(listener)


def compatibility(old: StateInfo, new: StateInfo) -> Compatibility:
    """Decide what becomes of restored state, of any kind but columns, when it is declared.

    Args:
        old: description in the snapshot.
        new: the declared state.
    """
    answer = _compatibility(old, new)
    if any([listener(old, new, answer) for listener in _LISTENERS]):  # a list, so that each listener is called
        return Compatibility(SchemaCompatibility.AS_IS)
    return answer


def _compatibility(old: StateInfo, new: StateInfo) -> Compatibility:
    if old.kind != new.kind:
        return _incompatible(f"it was {old.kind} state and is {new.kind} state now")
    if old.version > new.version:
        return _incompatible(
            f"it was written by version {old.version} of the state, and the program has version {new.version}"
        )
    migration = new.migration
    if migration is None:
        return compare(old.schema, new.schema)
    if old.version < new.version and migration.steps:
        missing = [version for version in range(old.version, new.version) if version not in migration.steps]
        if missing:
            return _incompatible(f"its StateMigration has no step from version {missing[0]}")
        if (
            old.kind in _WITH_KEYS
            and compare(old.schema["key"], new.schema["key"]).answer is not SchemaCompatibility.AS_IS
        ):
            return Compatibility(SchemaCompatibility.INCOMPATIBLE, "[key]", "types of keys can't be changed")
        reason = f"by the program's steps from version {old.version} to {new.version}"
        return Compatibility(SchemaCompatibility.MIGRATE, "", reason, _steps(new.name, old.version, migration))
    return compare(old.schema, new.schema, defaults=migration.defaults)


def _incompatible(reason: str) -> Compatibility:
    return Compatibility(SchemaCompatibility.INCOMPATIBLE, "", reason)


def _steps(name: str, version: int, migration: Migration) -> Convert:
    steps = [migration.steps[number] for number in range(version, migration.version)]
    fit = migration.fit

    def convert(value: Any) -> Any:
        for step in steps:
            value = step(value)
        if fit is None or value is None:
            return value
        try:
            return fit(value)
        except TypeMismatchError as error:
            raise StateMigrationError(name, "", f"a step of its StateMigration gave something else: {error}") from error

    return convert


def migration_of(descriptor: StateDescriptor, *, strict_integers: bool) -> Migration | None:
    """Earlier versions of a state that its descriptor can convert; None if there are none."""
    declared = descriptor.migration
    if declared is None:
        return None
    fit = make_fit(f"state {descriptor.name}", descriptor.type_info, strict_integers=strict_integers)
    return Migration(declared.version, declared.defaults, declared.steps, fit)


def together(info: StateInfo, tables: Sequence[Table]) -> Table:
    """Join the entries of several subtasks, which differed in the type of a state, into one table.

    No key is in two of them, since each key belongs to one subtask.

    Args:
        info: the declared state.
        tables: results of ``adopt``, one for each type; at least one.
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
    newest = TTL_ENTRIES[kind].newest
    table = TtlTable()
    table.update(sorted(entries, key=lambda item: newest(item[1])))
    return table


def _converter(kind: str, had_ttl: bool, has_ttl: bool, convert: Convert | None, now: int) -> Callable[[Any], Any]:
    """Function that turns an entry of the old state into one of the new state."""

    def fit(value: Any) -> Any:
        return value if value is None or convert is None else convert(value)

    def single(entry: Any) -> Any:
        value, stamp = entry if had_ttl else (entry, now)
        return (fit(value), stamp) if has_ttl else fit(value)

    def many(entry: list[Any]) -> list[Any]:
        return [single(element) for element in entry]

    def mapping(entry: dict[Any, Any]) -> dict[Any, Any]:
        stamps = [stamp for _, stamp in entry.values()] if had_ttl else [now] * len(entry)
        values = fit({key: value for key, (value, _) in entry.items()} if had_ttl else dict(entry))
        if not has_ttl:
            return values  # type: ignore[no-any-return]
        return {key: (value, stamp) for (key, value), stamp in zip(values.items(), stamps, strict=True)}

    converters: dict[str, Callable[[Any], Any]] = {"list": many, "map": mapping}
    return converters.get(kind, single)
