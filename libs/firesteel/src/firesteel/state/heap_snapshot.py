"""Writes tables out in slices, and reads the chunks again."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import cloudpickle

from firesteel.core.errors import SerializationError
from firesteel.core.short_repr import short_repr
from firesteel.state.backend import KeyedSnapshot, StateChunk, StateInfo
from firesteel.state.tables import MISSING, Table, drain, is_frozen, stop_reading

_LOOK_AT_CLOCK: Final = 16
"""Entries between two looks at the clock, as long as they are small."""
_SHARE_OF_GATHERING: Final = 0.7
"""Of a slice; the rest is for serialising what was gathered."""
_PUT_BACK: Final = 64
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
    """The entries of a chunk."""
    plain, packed = pickle.loads(data)
    yield from plain
    for key, value in packed:
        yield key, pickle.loads(value)


class TableSource:
    """A table that is to be written out.

    Attributes:
        info: what the snapshot says about it.
        table: its entries.
        prune: what is left of a value (MISSING: nothing); None = all of it.
    """

    __slots__ = ("info", "prune", "table")

    def __init__(self, info: StateInfo, table: Table, prune: Prune | None = None) -> None:
        self.info, self.table, self.prune = info, table, prune


class HeapSnapshot(KeyedSnapshot):
    """Walks through the tables as they were when it was made.

    Args:
        sources: the tables.
        key_group_of: of keys.
        slice_seconds: how long a slice may work.
        on_change: called whenever methods of tables become others.
        now: seconds, monotonic.
    """

    def __init__(
        self,
        sources: Sequence[TableSource],
        key_group_of: Callable[[Any], int],
        slice_seconds: float,
        on_change: Callable[[], None],
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.states = [source.info for source in sources]
        self._sources = [(index, source) for index, source in enumerate(sources) if len(source.table)]
        self._key_group_of, self._slice_seconds, self._now = key_group_of, slice_seconds, now
        self._on_change = on_change
        self._position = 0
        self._keys: Iterator[Any] | None = None
        self._error: BaseException | None = None
        self.closed = False
        for _, source in self._sources:
            source.table.begin(self._encoder(source), on_change)
        on_change()

    @property
    def settled(self) -> bool:
        """All tables are as any others again."""
        return all(source.table.writing is None for _, source in self._sources)

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
        while self._position < len(self._sources):
            index, source = self._sources[self._position]
            ended = self._gather(index, source, deadline, chunks)
            if ended:
                self._keys = None
                self._position += 1
                stop_reading(source.table)
            if not ended or self._now() >= deadline:
                return chunks
        if chunks:
            return chunks
        for _, source in self._sources:
            while not drain(source.table, _PUT_BACK):
                if self._now() >= deadline:
                    return chunks
        self.closed = True
        raise StopIteration

    def _gather(self, index: int, source: TableSource, deadline: float, chunks: list[StateChunk]) -> bool:
        """Entries until the deadline; whether the table is at its end."""
        table, prune, namespaced = source.table, source.prune, source.info.namespaced
        writing = table.writing
        assert writing is not None
        saved, get, group_of, now = writing.saved, dict.__getitem__, self._key_group_of, self._now
        if self._keys is None:
            self._keys = table.raw_keys()
        groups: dict[int, tuple[list[Any], list[Any]]] = {}
        ended = True
        for count, key in enumerate(self._keys, 1):
            look = count % _LOOK_AT_CLOCK == 0
            group = group_of(key[0] if namespaced else key)
            if group not in groups:
                groups[group] = ([], [])
            plain, packed = groups[group]
            early = saved.pop(key, None)
            if early is not None:
                if early:
                    packed.append((key, early))
            else:
                value = get(table, key)
                if is_frozen(value):
                    if prune is not None:
                        value = prune(value)
                    if value is not MISSING:
                        plain.append((key, value))
                else:
                    data = self._encode(source, key, value)
                    look = True
                    if data:
                        packed.append((key, data))
            if look and now() >= deadline:
                ended = False
                break
        for group, (plain, packed) in groups.items():
            if plain or packed:
                data = dumps(lambda: f"keys of state {source.info.name!r}", (plain, packed))
                chunks.append(StateChunk(index, group, len(plain) + len(packed), data))
        return ended

    def close(self) -> None:
        """What was changed is put back by later accesses."""
        if not self.closed:
            self.closed = True
            for _, source in self._sources:
                stop_reading(source.table)
            self._on_change()
