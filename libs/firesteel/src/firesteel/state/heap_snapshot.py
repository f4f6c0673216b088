"""Writes tables in blocks (``state/snapshots.py``), and reads them again."""

from __future__ import annotations

import datetime
import io
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby, islice
from typing import Any, ClassVar, Final

from firesteel.common.nan_keys import each_with_one_nan, with_one_nan
from firesteel.common.types import to_pickle
from firesteel.core import pickling
from firesteel.core.errors import TaskInterrupt
from firesteel.core.short_repr import short_repr
from firesteel.state.snapshots import Block, Outgoing, StateInfo
from firesteel.state.tables import KEYS_AT_ONCE, MISSING, HeapTable, Table, drain, stop_reading

_DRAWN: Final = 1024
"""Entries that are taken out of a table at a time."""
_DRAWN_BY_GROUP: Final = 16384
"""Entries that are taken at a time and sorted by key group. Each group of them becomes a block of its own, so that
blocks are large only if there are many."""
_MOST_OBJECTS: Final = 64
"""Entries that are serialised between two readings of the clock, where a value may be of any size."""
_MOST_BEHIND: Final = 8192
"""New keys behind the known ones that one slice walks over; with more of them all keys are serialised again."""
_LARGEST_KEPT: Final = 16 * KEYS_AT_ONCE
"""Bytes of the largest block of keys that is kept for later snapshots (16 bytes a key); a table with larger ones keeps
none, for the memory that they would take."""
_SMALL: Final = frozenset({int, float, bool, type(None), datetime.date, datetime.time, datetime.timedelta})
"""Types of values that take about the same time each."""
Prune = Callable[[Any], Any]
GroupsOfKeys = Callable[[Sequence[Any]], Sequence[int]]


def dumps(what: Callable[[], str], value: Any) -> bytes:
    """Pickle a value of state; ``what`` names it in the error.

    Raises:
        SerializationError: it can't be pickled.
    """
    return pickling.dumps(
        value, lambda reason: f"{what()} can't be serialised: {reason}; it is {short_repr(value, 80)}"
    )


def decode(data: bytes) -> Iterator[tuple[Any, Any]]:
    """Entries of a chunk; NaN in their keys is the one NaN of this process."""
    return chain.from_iterable(_blocks(data))


def blocks_of_numbers(table: HeapTable) -> Iterator[tuple[int, bytes]]:
    """Serialise a table whose values are numbers; returns the number of entries as well.

    Visiting a million keys scattered in memory takes longer than everything else. So keys that an earlier snapshot
    serialised, and that are still the first ones of the table, are not visited again.
    """
    known, values = table.key_blocks, table.raw_values()
    after = dict.__len__(table) - len(known) * KEYS_AT_ONCE
    if known and after <= _MOST_BEHIND:
        for block in known:
            yield KEYS_AT_ONCE, block + pickle.dumps(list(islice(values, KEYS_AT_ONCE)), protocol=5)
        keys: Iterator[Any] = iter(list(islice(dict.__reversed__(table), after))[::-1])
    else:
        known, keys = [], table.raw_keys()
        table.key_blocks = known
    while some := list(islice(keys, KEYS_AT_ONCE)):
        block = dumps(lambda: "the keys of a table", some)
        if len(some) == KEYS_AT_ONCE and table.key_blocks is known:
            known.append(block)
            if len(block) > _LARGEST_KEPT:
                table.key_blocks = []
        yield len(some), block + pickle.dumps(list(islice(values, len(some))), protocol=5)


def _blocks(data: bytes) -> Iterator[Iterable[tuple[Any, Any]]]:
    stream = io.BytesIO(data)
    while stream.tell() < len(data):
        block = pickle.load(stream)
        if block.__class__ is list:
            yield zip(each_with_one_nan(block), pickle.load(stream), strict=True)
            continue
        if len(block) == 3:
            keys, values, packed = block
            yield zip(each_with_one_nan(keys), values, strict=True)
        else:  # the format before chunks of several key groups
            plain, packed = block
            yield ((with_one_nan(key), value) for key, value in plain)
        yield ((with_one_nan(key), pickle.loads(value)) for key, value in packed)


class OutgoingTable(Outgoing):
    """A table that a snapshot writes; meanwhile changes go beside it.

    Args:
        info: describes it in the snapshot.
        table: its entries.
        on_change: called when the table's methods have changed, which they do at once, too.
        prune: returns the part of a value that is still valid (MISSING = nothing); None = everything is.
        numbers: all values are numbers of a few bytes.
        groups_of: computes the key groups of keys, to write the table by these; None = blocks have several groups.
    """

    most: ClassVar[int] = _DRAWN

    def __init__(
        self,
        info: StateInfo,
        table: Table,
        on_change: Callable[[], None],
        prune: Prune | None = None,
        *,
        numbers: bool = False,
        groups_of: GroupsOfKeys | None = None,
    ) -> None:
        self.states = (info,)
        self.error: BaseException | None = None
        self._groups_of, self._groups = groups_of, list[tuple[int, int]]()  # group and behind its last entry, reversed
        self._info, self._table, self._prune = info, table, prune
        self._together = True  # its values can be pickled many at a time
        self._keys: list[Any] = []
        self._values: list[Any] = []
        self._at = self._highest = 0
        self._numbers: Iterator[tuple[int, bytes]] = iter(())
        self._entries: tuple[Iterator[Any], Iterator[Any]] = iter(()), iter(())
        if len(table):
            table.begin(self._encode_early, on_change)
            if numbers and isinstance(table, HeapTable) and groups_of is None:
                self._numbers = blocks_of_numbers(table)
            else:
                self._entries = table.raw_keys(), table.raw_values()

    def next_block(self, entries: int) -> Block | None:
        for count, block in self._numbers:
            return Block(count, block)
        if self._at >= len(self._keys):
            drawn = _DRAWN if self._groups_of is None else _DRAWN_BY_GROUP
            self._keys, self._values = (list(islice(some, drawn)) for some in self._entries)
            if not self._keys:
                return None
            self._at, self._highest = 0, _DRAWN if _SMALL.issuperset(map(type, self._values)) else _MOST_OBJECTS
            if self._groups_of is not None:
                self._order(self._groups_of(self._keys))
        start, self._at = self._at, self._at + min(entries, self._highest)
        if not self._groups:
            return self._block(self._keys[start : self._at], self._values[start : self._at])
        group, stop = self._groups[-1]
        if self._at >= stop:
            self._at = stop
            self._groups.pop()
        return self._block(self._keys[start : self._at], self._values[start : self._at])._replace(key_group=group)

    def _order(self, groups: Sequence[int]) -> None:
        """Sort the current entries by key group, and note where each group ends."""
        order = sorted(range(len(groups)), key=groups.__getitem__)
        self._keys, self._values = [self._keys[i] for i in order], [self._values[i] for i in order]
        stop = 0
        for group, some in groupby(order, key=groups.__getitem__):
            stop += sum(1 for _ in some)
            self._groups.append((int(group), stop))
        self._groups.reverse()

    def end(self) -> None:
        """Stop: changes may be put back."""
        stop_reading(self._table)

    def settle(self, changes: int) -> bool:
        return drain(self._table, changes)

    def _encode_early(self, key: Any, value: Any) -> bytes:
        """Serialise a value that is about to be handed out, in the form of chunks; empty if nothing of it is still
        valid.
        """
        try:
            if self._prune is not None:
                value = self._prune(value)
                if value is MISSING:
                    return b""
            return self._packed(key, value)
        except TaskInterrupt:
            raise
        except BaseException as error:
            self.error = self.error or error
            return b""

    def _packed(self, key: Any, value: Any) -> bytes:
        return dumps(lambda: f"state {self._info.name!r} of key {short_repr(key, 40)}", value)

    def _block(self, keys: list[Any], values: list[Any]) -> Block:
        """Serialise some entries, as far as they are still valid."""
        assert self._table.writing is not None
        saved, prune = self._table.writing.saved, self._prune
        packed: list[tuple[Any, bytes]] = []
        # Values that were handed out meanwhile may have been changed in place: they are written as they were before.
        if saved and not saved.keys().isdisjoint(keys):
            early = [(key, saved[key]) for key in keys if key in saved]
            saved.update(dict.fromkeys([key for key, _ in early], b""))  # frees the bytes; the keys count as saved
            early_keys = {key for key, _ in early}
            remaining = [(key, value) for key, value in zip(keys, values, strict=True) if key not in early_keys]
            keys, values = [key for key, _ in remaining], [value for _, value in remaining]
            packed = [(key, data) for key, data in early if data]
        if prune is not None:
            remaining = [(key, prune(value)) for key, value in zip(keys, values, strict=True)]
            remaining = [(key, value) for key, value in remaining if value is not MISSING]
            keys, values = [key for key, _ in remaining], [value for _, value in remaining]
        count = len(keys) + len(packed)
        if not count:
            return Block(0, b"")
        # One pickle for all values is faster than one for each, but its errors do not say whose value it was.
        if self._together:
            try:
                return Block(count, pickle.dumps((to_pickle(keys), to_pickle(values), packed), protocol=5))
            except TaskInterrupt:
                raise
            except BaseException:  # the user's code raises what it likes; one by one, below, its key is known
                self._together = False
        packed += [(key, self._packed(key, value)) for key, value in zip(keys, values, strict=True)]
        return Block(count, dumps(lambda: f"keys of state {self._info.name!r}", ([], [], packed)))
