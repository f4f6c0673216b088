"""Tables and columns on their way into a savepoint: entry by entry, out of a view of the database."""

from __future__ import annotations

from typing import ClassVar

from firesteel.core.errors import TaskInterrupt
from firesteel.state.heap_snapshot import dumps
from firesteel.state.heap_timers import KIND as TIMERS
from firesteel.state.snapshots import Block
from firesteel_rocksdb.database import View
from firesteel_rocksdb.table import OutgoingFiles, TableStore, entry_in
from firesteel_rocksdb.timers import timer_in


class OutgoingEntries(OutgoingFiles):
    """All tables and columns on their way into the database, and then into chunks, in the form of ``hashmap``.

    Args:
        store: has the tables.
    """

    fewest: ClassVar[int] = 64
    most: ClassVar[int] = 2048
    share: ClassVar[float] = 0.25
    joined: ClassVar[bool] = False

    def __init__(self, store: TableStore) -> None:
        super().__init__(store, "", range(0))
        self._names = [info.name for info in self.states]
        self._view: View | None = None
        self._table = 0

    def next_block(self, entries: int) -> Block | None:
        """Write some entries to the database; once all are there, the next entries of one key group, as a chunk."""
        if self.drain(entries):
            return Block(0, b"")
        if self._store.outgoing is self:
            self._take_view()
        while self._view is not None and self._table < len(self.numbers):
            group, entries_of_group = self._view.next(self.numbers[self._table], entries)
            if entries_of_group:
                return Block(len(entries_of_group), self._written(entries_of_group), self._table, group)
            self._table += 1
        return None

    def _written(self, entries: list[tuple[bytes, bytes]]) -> bytes:
        columns = self._store.columns.get(self.numbers[self._table])
        if columns is not None:
            return columns.stream_of(entries)
        name = self._names[self._table]
        if self.states[self._table].kind == TIMERS:
            return dumps(lambda: "the keys of timers", [timer_in(place, data) for place, data in entries])
        packed = [entry_in(place, data) for place, data in entries]
        return dumps(lambda: f"keys of state {name!r}", ([], [], packed))

    def _take_view(self) -> None:
        self._store.outgoing = None
        self._view = View(self._store.database)

    def finish(self) -> None:
        """Write everything to the database at once, so that later changes may be written there."""
        try:
            while self.drain(self.most):
                pass
            if self._store.outgoing is self:
                self._take_view()
        except TaskInterrupt:
            raise
        except BaseException as error:
            self.error = self.error or error
            self.end()

    def end(self) -> None:
        """Stop; the snapshot needs no more."""
        self._view = None
        super().end()
