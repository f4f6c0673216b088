"""Writes tables out in slices, and reads the chunks again."""

from __future__ import annotations

import datetime
import io
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final

import cloudpickle

from firesteel.common.nan_keys import WHOLE, with_one_nan
from firesteel.common.types import to_pickle
from firesteel.core.errors import SerializationError
from firesteel.core.short_repr import short_repr
from firesteel.state.backend import SEVERAL, KeyedSnapshot, StateChunk, StateInfo
from firesteel.state.tables import KEYS_AT_ONCE, MISSING, HeapTable, Table, drain, stop_reading

_DRAWN: Final = 1024
"""Entries that are taken out of a table at a time."""
_FEWEST: Final = 4
_MOST_OBJECTS: Final = 64
"""Entries that are serialised between two looks at the clock, where a value may be of any size."""
_SHARE_OF_GATHERING: Final = 0.7
"""Of a slice; the rest is for what is done with it."""
_LONG: Final = 0.125
_SHORT: Final = 0.03125
"""Of a slice: more, or less, should not pass between two looks at the clock."""
_MOST_BEHIND: Final = 8192
"""Keys behind those that are known, in a slice."""
_LARGEST_KEPT: Final = 16 * KEYS_AT_ONCE
"""Bytes of a block: none are kept of a table with larger ones, for the memory that they take."""
_PUT_BACK: Final = 64
"""Changes between two looks at the clock."""
_SMALL: Final = frozenset({int, float, bool, type(None), datetime.date, datetime.time, datetime.timedelta})
"""Types of values that take about the same time each."""
Prune = Callable[[Any], Any]


def dumps(what: Callable[[], str], value: Any) -> bytes:
    """A pickled value.

    Raises:
        SerializationError: it can't be pickled.
    """
    try:
        return pickle.dumps(value, protocol=5)
    except Exception:  # the user's __reduce__ and __getstate__ raise what they like, here and below
        try:
            data: bytes = cloudpickle.dumps(value, protocol=5)
            return data
        except Exception as error:
            raise SerializationError(f"{what()} can't be serialised: {error}; it is {short_repr(value, 80)}") from error


def decode(data: bytes) -> Iterator[tuple[Any, Any]]:
    """The entries of a chunk; NaN in their keys is the one NaN of this process."""
    return chain.from_iterable(_blocks(data))


def blocks_of_numbers(table: HeapTable) -> Iterator[tuple[int, bytes]]:
    """A table whose values are numbers: how many entries, and these serialised.

    To look at a million keys that lie about in memory takes longer than anything else, so keys that were serialised by
    an earlier snapshot, and are the table's first ones still, are not looked at again.
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
            yield zip(_found_again(block), pickle.load(stream), strict=True)
            continue
        if len(block) == 3:
            keys, values, packed = block
            yield zip(_found_again(keys), values, strict=True)
        else:  # how it was written before there were chunks of several key groups
            plain, packed = block
            yield ((with_one_nan(key), value) for key, value in plain)
        yield ((with_one_nan(key), pickle.loads(value)) for key, value in packed)


def _found_again(keys: list[Any]) -> list[Any]:
    """Keys as dicts of this process find them."""
    return keys if WHOLE.issuperset(map(type, keys)) else list(map(with_one_nan, keys))


class TableSource:
    """A table that is to be written out.

    Attributes:
        info: what the snapshot says about it.
        table: its entries.
        prune: what is left of a value (MISSING: nothing); None = all of it.
        numbers: all values are numbers of a few bytes.
        together: its values can be pickled many at a time.
    """

    __slots__ = ("info", "numbers", "prune", "table", "together")

    def __init__(self, info: StateInfo, table: Table, prune: Prune | None = None, *, numbers: bool = False) -> None:
        self.info, self.table, self.prune, self.numbers = info, table, prune, numbers
        self.together = True


class HeapSnapshot(KeyedSnapshot):
    """Walks through the tables as they were when it was made.

    Args:
        sources: the tables.
        slice_seconds: how long a slice may work.
        on_change: called whenever methods of tables become others.
        now: seconds of work; time in which others had the processor must not make slices smaller.
    """

    def __init__(
        self,
        sources: Sequence[TableSource],
        slice_seconds: float,
        on_change: Callable[[], None],
        now: Callable[[], float] = time.thread_time,
    ) -> None:
        self.states = [source.info for source in sources]
        self._sources = [(index, source) for index, source in enumerate(sources) if len(source.table)]
        self._slice_seconds, self._now = slice_seconds, now
        self._on_change = on_change
        self._position = 0
        self._entries: tuple[Iterator[Any], Iterator[Any]] | None = None
        self._numbers: Iterator[tuple[int, bytes]] | None = None
        self._keys: list[Any] = []
        self._values: list[Any] = []
        self._at = 0
        self._most = _FEWEST
        self._error: BaseException | None = None
        self.closed = False
        for _, source in self._sources:
            source.table.begin(self._encoder(source), on_change)
        on_change()

    def _encoder(self, source: TableSource) -> Callable[[Any, Any], bytes]:
        """Serialises a value before it is handed out; an error is kept for ``next``."""

        def encode(key: Any, value: Any) -> bytes:
            try:
                return self._encode(source, key, value)
            except Exception as error:
                self._error = self._error or error
                return b""

        return encode

    def _encode(self, source: TableSource, key: Any, value: Any) -> bytes:
        """The value as it goes into the chunk; empty if nothing of it is left."""
        if source.prune is not None:
            value = source.prune(value)
            if value is MISSING:
                return b""
        return self._packed(source, key, value)

    @staticmethod
    def _packed(source: TableSource, key: Any, value: Any) -> bytes:
        return dumps(lambda: f"state {source.info.name!r} of key {short_repr(key, 40)}", value)

    def __next__(self) -> list[StateChunk]:
        if self._error is not None:
            self.close()
            raise self._error
        if self.closed:
            raise StopIteration
        began = self._now()
        try:
            return self._slice(began)
        except StopIteration:
            raise
        except BaseException:
            self.close()
            raise

    def _slice(self, began: float) -> list[StateChunk]:
        deadline = began + self._slice_seconds * _SHARE_OF_GATHERING
        chunks: list[StateChunk] = []
        now = began
        while self._position < len(self._sources):
            index, source = self._sources[self._position]
            gather = self._gather_numbers if source.numbers else self._gather
            ended, now = gather(index, source, now, deadline, chunks)
            if ended:
                self._entries, self._numbers, self._most = None, None, _FEWEST
                self._position += 1
                stop_reading(source.table)
            if now >= deadline:
                return chunks
        if chunks:
            return chunks
        for _, source in self._sources:
            while not drain(source.table, _PUT_BACK):
                if self._now() >= deadline:
                    return chunks
        self.closed = True
        raise StopIteration

    def _gather_numbers(
        self, index: int, source: TableSource, now: float, deadline: float, chunks: list[StateChunk]
    ) -> tuple[bool, float]:
        """The same as ``_gather``."""
        assert isinstance(source.table, HeapTable)
        if self._numbers is None:
            self._numbers = blocks_of_numbers(source.table)
        blocks: list[bytes] = []
        count = 0
        ended = True
        for entries, block in self._numbers:
            count += entries
            blocks.append(block)
            now = self._now()
            if now >= deadline:
                ended = False
                break
        if count:
            chunks.append(StateChunk(index, SEVERAL, count, b"".join(blocks)))
        return ended, now

    def _gather(
        self, index: int, source: TableSource, now: float, deadline: float, chunks: list[StateChunk]
    ) -> tuple[bool, float]:
        """Entries until the deadline, as one chunk; whether the table is at its end, and the time."""
        if self._entries is None:
            self._entries = source.table.raw_keys(), source.table.raw_values()
        blocks: list[bytes] = []
        count, ended, highest = 0, False, 0
        while not ended:
            if self._at >= len(self._keys):
                self._keys, self._values = (list(islice(entries, _DRAWN)) for entries in self._entries)
                self._at = highest = 0
                if not self._keys:
                    ended = True
                    break
            highest = highest or (_DRAWN if _SMALL.issuperset(map(type, self._values)) else _MOST_OBJECTS)
            self._most = min(self._most, highest)
            start, self._at = self._at, self._at + self._most
            written, block = self._block(source, self._keys[start : self._at], self._values[start : self._at])
            count += written
            blocks.append(block)
            before, now = now, self._now()
            if now - before > _LONG * self._slice_seconds:
                self._most = max(self._most // 2, 1)
            elif now - before < _SHORT * self._slice_seconds:
                self._most *= 2
            if now >= deadline:
                break
        if count:
            chunks.append(StateChunk(index, SEVERAL, count, b"".join(blocks)))
        return ended, now

    def _block(self, source: TableSource, keys: list[Any], values: list[Any]) -> tuple[int, bytes]:
        """How many entries are left of some, and these serialised."""
        assert source.table.writing is not None
        saved, prune = source.table.writing.saved, source.prune
        packed: list[tuple[Any, bytes]] = []
        if saved and not saved.keys().isdisjoint(keys):
            early = [(key, saved[key]) for key in keys if key in saved]
            saved.update(dict.fromkeys([key for key, _ in early], b""))
            gone = {key for key, _ in early}
            left = [(key, value) for key, value in zip(keys, values, strict=True) if key not in gone]
            keys, values = [key for key, _ in left], [value for _, value in left]
            packed = [(key, data) for key, data in early if data]
        if prune is not None:
            left = [(key, prune(value)) for key, value in zip(keys, values, strict=True)]
            left = [(key, value) for key, value in left if value is not MISSING]
            keys, values = [key for key, _ in left], [value for _, value in left]
        count = len(keys) + len(packed)
        if not count:
            return 0, b""
        if source.together:
            try:
                return count, pickle.dumps((to_pickle(keys), to_pickle(values), packed), protocol=5)
            except Exception:  # the user's code raises what it likes; below, whose value it is comes out
                source.together = False
        packed += [(key, self._packed(source, key, value)) for key, value in zip(keys, values, strict=True)]
        return count, dumps(lambda: f"keys of state {source.info.name!r}", ([], [], packed))

    def close(self) -> None:
        """What was changed is put back by later accesses."""
        if not self.closed:
            self.closed = True
            for _, source in self._sources:
                stop_reading(source.table)
            self._on_change()
