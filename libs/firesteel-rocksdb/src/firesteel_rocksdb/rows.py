"""Tables of many rows for each key on disk, with the keys that are in use in memory in front of them.

The rows in memory are those of ``state/columnar/row_table.py``. Keys that are looked up and not in memory are read
together, each with all of its rows. Before each batch a clock hand goes round the keys in memory, as long as they take
more than their share, and lets those go that were not used in its last two rounds; within a batch all rows stay, so
that their numbers are valid. As long as everything fits, the database is written only at checkpoints and never read.

On disk a key has pages of up to 32 rows (``row_pages.py``): page 0 stands under the bytes of the key, the others under
these with their number. A page with a row that changed is written as a whole; a key of which more than half is room of
rows that have gone is written anew. For a snapshot the changed keys are written some at a time, and a key that is about
to change again before its turn is written first. Until the files are linked nothing else is written: only keys that
equal those of the database leave memory.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import override

from firesteel.state.columnar.growing import GrowingArray
from firesteel.state.columnar.row_table import RowLife, RowTable
from firesteel.state.columnar.snapshots import GroupsOf, stream_of
from firesteel.state.columnar.store import one_group
from firesteel.state.snapshots import Block
from firesteel_rocksdb.column_rows import KeyBytes
from firesteel_rocksdb.database import Pair
from firesteel_rocksdb.row_pages import PageLayout, pages_of_key
from firesteel_rocksdb.table import TableStore, moved, range_of

Ints = npt.NDArray[np.int64]
_PAGE: Final = 32
"""Rows of a page: one that changes costs that many, and so many are read together."""
_WINDOW: Final = 8192
"""Keys that the clock hand checks in one go."""
_PIECE: Final = 4096
"""Keys that are written in one go."""
_ROW: Final = 25
"""Bytes of a row beyond its values: its owner, places in lists and pages, marks."""
_CONTENT: Final = 60
"""Bytes of a row in the index of contents."""
_KEY: Final = 45
"""Bytes of a key beyond its words: hash table, list of rows, marks."""
_ROOM: Final = 0.8
"""Share of the memory that is left in use when keys leave."""
_SWEPT: Final = 64
"""Pages on disk that are checked together for their time-to-live."""


class RowsOnDisk(RowTable):
    """Rows by key, on disk.

    Args:
        name: of the state, in snapshots and errors.
        key_types: of the key's columns.
        schema: of the rows.
        numbers: names of the numbers beside each row.
        groups_of: computes the key groups of keys, which come as columns.
        key_groups: those that the subtask owns.
        life: time-to-live of the rows; None = they stay until they are dropped.
        open_store: opens the database, or returns it if it is open.

    Attributes:
        number: of the state in the database.
    """

    def __init__(
        self,
        name: str,
        key_types: Sequence[pa.DataType],
        schema: pa.Schema,
        numbers: Sequence[str] = (),
        groups_of: GroupsOf = one_group,
        key_groups: range = range(1),
        life: RowLife | None = None,
        *,
        open_store: Callable[[], TableStore],
    ) -> None:
        self._keys = KeyBytes(key_types)
        super().__init__(name, key_types, schema, numbers, groups_of, key_groups, life)
        self.number = 0
        self._open_store = open_store
        self._home: TableStore | None = None
        self._layouts = [PageLayout(0, self._page_schema(), list(self.numbers))]
        self._layout_now = 0
        self._whole = True  # everything is in memory
        self._highest: dict[str, int] = {}
        self._without_life = 0 if life is None else life.now()  # time of rows that were written without one
        self._leaving_mark = 0  # keys of this mark or an earlier one belong to the snapshot that is being written
        self._place_swept = b""

    @override
    def _create(self) -> None:
        super()._create()
        self._dirty = GrowingArray(np.int32)  # of each key: mark of its last change; 0 = it equals the database
        self._pages = GrowingArray(np.int32)  # of each key: number of its pages in the database
        self._used = GrowingArray(np.int32)  # of each key: tick at which it was last used
        self._page = GrowingArray(np.int32)  # of each row: its page + 1; 0 = none yet
        self._fresh = GrowingArray(np.bool_)  # rows that their page does not have as they are
        self._holes: list[tuple[Ints, Ints]] = []  # keys and pages of rows that have gone
        self._tick = self._hand = self._lap = self._lap_before = 0

    # -- where it is

    def home(self) -> TableStore:
        """Store of the database, which is opened on first use."""
        if self._home is None:
            self._home = self._open_store()
            self.number = self._home.add_columns(self)
        return self._home

    def _places(self, slots: Ints) -> list[bytes]:
        """Where page 0 of keys stands."""
        keys = self.index.keys(slots)
        return self._keys.encode(self.number, keys, self._groups_of(keys))

    # -- keys

    @override
    def slots(self, keys: Sequence[pa.Array]) -> Ints:
        self._bring(keys)
        slots = super().slots(keys)
        self._ensure_slots()
        self._used.set(slots, self._tick)
        return slots

    @override
    def find(self, keys: Sequence[pa.Array]) -> Ints:
        self._bring(keys)
        return super().find(keys)

    def _ensure_slots(self) -> None:
        for array in (self._dirty, self._pages, self._used):
            array.ensure(self.index.capacity)

    @override
    def _forgettable(self, slots: Ints) -> Ints:
        # The database still has pages of the others, which are deleted when it is written.
        self._ensure_slots()
        forgotten: Ints = slots[self._pages.get(slots) == 0]
        self._dirty.set(forgotten, 0)
        return forgotten

    def _bring(self, keys: Sequence[pa.Array]) -> None:
        """Read the rows of keys that are not in memory."""
        slots = self.index.find(keys)
        is_there = slots >= 0
        self._used.set(slots[is_there], self._tick)
        if self._whole or is_there.all():
            return
        missing = pa.array(np.flatnonzero(~is_there))
        self._load([column.take(missing) for column in keys])

    def _load(self, keys: Sequence[pa.Array]) -> None:
        places = self._keys.encode(self.number, keys, self._groups_of(keys))
        row_of = dict(zip(places, range(len(places)), strict=True))
        stored = sorted(row_of)
        first_pages = self.home().database.get_many(stored)
        pages: list[bytes] = []
        owners: list[int] = []  # row in ``keys`` of each page
        numbers: list[int] = []
        more: list[tuple[bytes, int, int]] = []
        counts: dict[int, int] = {}
        for place, page in zip(stored, first_pages, strict=True):
            if page is None:
                continue
            row, count = row_of[place], pages_of_key(page)
            pages.append(page)
            owners.append(row)
            numbers.append(0)
            counts[row] = count
            more += [(place + number.to_bytes(4, "big"), row, number) for number in range(1, count)]
        if not pages:
            return
        if more:
            others = self.home().database.get_many([place for place, _, _ in more])
            for page, (_, row, number) in zip(others, more, strict=True):
                if page is not None:
                    pages.append(page)
                    owners.append(row)
                    numbers.append(number)
        chosen = np.fromiter(counts, np.int64, len(counts))
        slots = self.index.slots([column.take(pa.array(chosen)) for column in keys])
        self._ensure_slots()
        self._used.set(slots, self._tick)
        self._dirty.set(slots, 0)
        self._pages.set(slots, np.fromiter(counts.values(), np.int64, len(counts)))
        slot_of = np.zeros(len(places), np.int64)
        slot_of[chosen] = slots
        self._take_pages(pages, slot_of[np.array(owners)], np.array(numbers))

    def _take_pages(self, pages: Sequence[bytes], slots: Ints, page_numbers: Ints) -> None:
        """Put the rows of pages of keys into memory."""
        layouts = np.array([page[0] for page in pages])
        for number in np.unique(layouts).tolist():
            chosen = np.flatnonzero(layouts == number)
            read = self._layouts[number].read([pages[at] for at in chosen.tolist()])
            at = chosen[read.pages]
            if not len(at):
                continue
            rows = super().add(slots[at], self._columns_now(self._layouts[number], read.columns))
            for name, array in self.numbers.items():
                array.set(rows, read.numbers.get(name, self._without_life))
            self._ensure_rows()
            self._page.set(rows, page_numbers[at] + 1)
            self._fresh.set(rows, False)
            self.on_arrival(rows)

    # -- rows

    def _ensure_rows(self) -> None:
        self._page.ensure(self._capacity)
        self._fresh.ensure(self._capacity)

    @override
    def add(self, slots: Ints, columns: Sequence[pa.Array]) -> Ints:
        self._change(slots)
        rows = super().add(slots, columns)
        self._ensure_rows()
        self._page.set(rows, 0)
        self._fresh.set(rows, True)
        return rows

    @override
    def touch(self, rows: Ints, *, is_write: bool = True) -> None:
        self._change(self.slots_of(rows))
        self._fresh.set(rows, True)
        super().touch(rows, is_write=is_write)

    @override
    def _remove(self, rows: Ints) -> Ints:
        paged = rows[self._page.get(rows) > 0]
        if len(paged):
            self._holes.append((self.slots_of(paged), self._page.get(paged).astype(np.int64) - 1))
        return super()._remove(rows)

    def _change(self, slots: Ints) -> None:
        """Note that keys are about to change; what a snapshot has to have of them is written first."""
        if not len(slots):
            return
        if self._leaving_mark:
            marks = self._dirty.get(slots)
            self._write(np.unique(slots[(marks > 0) & (marks <= self._leaving_mark)]))
        self._dirty.set(slots, self.mark)

    @override
    def highest(self, number: str) -> int:
        return max(super().highest(number), self._highest.get(number, -1))

    # -- leaving memory

    @property
    def bytes_in_use(self) -> int:
        """Bytes of the rows and keys in memory, about."""
        each = _ROW + 8 * len(self.numbers) + sum(column.width for column in self._columns)
        each += _CONTENT if self._contents is not None else 0
        texts = sum(column.live_bytes for column in self._columns)
        return self.size * each + texts + self.index.size * (_KEY + 8 * len(self.index.words))

    @override
    def begin_batch(self, rows: int) -> None:
        if self.life is not None and not self._whole:
            self._sweep_disk()
        super().begin_batch(rows)
        self._tick += 1
        self._make_room()

    def _sweep_disk(self) -> None:
        """Read the rows of some keys, so that expired ones are dropped."""
        start, stop = range_of(self.number, self._key_groups)
        entries = self.home().database.read(max(start, self._place_swept), stop, _SWEPT)
        self._place_swept = entries[-1][0] + b"\0" if len(entries) == _SWEPT else b""
        if entries:
            self.find(self._keys.decode([place for place, _ in entries]))

    def _make_room(self) -> None:
        if self.size < _PIECE and self._home is None:
            return  # a handful of rows needs no database
        share = self.home().memory.share
        in_use = self.bytes_in_use
        if in_use <= share or self._restored is not None:
            return
        self._release_emptied()  # a key must not be released twice
        home = self.home()
        # Changed keys can't leave memory while a snapshot is linked, so that waiting is the only way in the end.
        if not home.free and in_use > 1.25 * share:
            home.wait_until_free()
        self._evict(int(self.index.size * (1 - _ROOM * share / in_use)) + 1, home.free)

    def _evict(self, count: int, free: bool) -> None:
        """Let about ``count`` keys leave memory; ``free`` = changed keys may be written."""
        rounds = 0
        self._ensure_slots()
        # Three rounds: a key may have to be met twice before it counts as unused.
        while count > 0 and rounds < 3:
            start, stop = self._hand, min(self._hand + _WINDOW, self.index.capacity)
            slots = np.arange(start, stop)
            evictable = (self.lists.counts(slots) > 0) | (self._dirty.get(slots) > 0)
            evictable &= self._used.get(slots) < self._lap_before
            if not free:
                evictable &= self._dirty.get(slots) == 0
            chosen = slots[evictable][:count]
            count -= len(chosen)
            self._hand = stop if count > 0 else int(chosen[-1]) + 1
            if self._hand >= self.index.capacity:
                self._hand, rounds = 0, rounds + 1
                self._lap_before, self._lap = self._lap, self._tick
            self._let_go(chosen)

    def _let_go(self, slots: Ints) -> None:
        """Let keys leave memory."""
        if not len(slots):
            return
        self._write(slots[self._dirty.get(slots) > 0])
        slots = slots[self.lists.counts(slots) > 0]  # keys without rows are forgotten once they are written
        if not len(slots):
            return
        _, rows = self.lists.gather(slots)
        self._note_highest(rows)
        self.on_leaving(rows)
        self._page.set(rows, 0)
        self._remove(rows)
        self.index.release(slots)
        self._pages.set(slots, 0)
        self._whole = False

    def _note_highest(self, rows: Ints) -> None:
        for name, numbers in self.numbers.items():
            if len(rows):
                self._highest[name] = max(self._highest.get(name, -1), int(numbers.get(rows).max()))

    # -- writing

    def _write(self, slots: Ints) -> None:
        """Write the changed pages of different keys."""
        for start in range(0, len(slots), _PIECE):
            self._write_piece(slots[start : start + _PIECE])

    def _write_piece(self, slots: Ints) -> None:
        positions, rows = self.lists.gather(slots)
        counts = np.bincount(positions, minlength=len(slots))
        old_pages = self._pages.get(slots).astype(np.int64)
        pages = self._page.get(rows).astype(np.int64) - 1
        # Small keys, and those of which more than half is room of rows that have gone, are written anew.
        is_new = (counts <= _PAGE) | (2 * counts < old_pages * _PAGE) | (old_pages == 0)
        of_new = is_new[positions]
        firsts = np.cumsum(counts) - counts
        within = np.arange(len(rows)) - firsts[positions]
        pages[of_new] = within[of_new] // _PAGE
        new_pages = np.where(is_new, -(-counts // _PAGE), old_pages)
        changed = [(positions[of_new], pages[of_new])]
        for position in np.flatnonzero(~is_new).tolist():
            own = np.arange(firsts[position], firsts[position] + counts[position])
            changed += self._append_rows(position, slots[position], rows, pages, own, new_pages)
        changed_positions, changed_pages = (np.concatenate(parts) for parts in zip(*changed, strict=True))
        width = int(new_pages.max(initial=1)) + 1
        codes = np.unique(changed_positions * width + changed_pages)
        row_codes = positions * width + pages
        chosen = np.flatnonzero(np.isin(row_codes, codes))
        order = chosen[np.argsort(row_codes[chosen], kind="stable")]
        row_counts = np.searchsorted(row_codes[order], codes, "right") - np.searchsorted(row_codes[order], codes)
        page_positions, page_numbers = codes // width, codes % width
        written = rows[order]
        content = self._layouts[self._layout_now].write(
            self.take(written), [array.get(written) for array in self.numbers.values()], row_counts,
            new_pages[page_positions],
        )  # fmt: skip
        places = self._places(slots)
        pairs: list[Pair] = [
            (places[position] + (page.to_bytes(4, "big") if page else b""), value)
            for position, page, value in zip(page_positions.tolist(), page_numbers.tolist(), content, strict=True)
        ]
        gone = np.flatnonzero(new_pages < old_pages)
        for position in gone.tolist():
            pairs += [
                (places[position] + (page.to_bytes(4, "big") if page else b""), None)
                for page in range(int(new_pages[position]), int(old_pages[position]))
            ]
        self.home().database.write(pairs)
        self._note_highest(written)
        self._page.set(rows, pages + 1)
        self._fresh.set(rows, False)
        self._pages.set(slots, new_pages)
        self._dirty.set(slots, 0)
        self._emptied.append(slots[counts == 0])
        self._holes = [
            (owners[stays], numbers[stays])
            for owners, numbers in self._holes
            if (stays := ~np.isin(owners, slots)).any()
        ]

    def _append_rows(
        self, position: int, slot: int, rows: Ints, pages: Ints, own: Ints, new_pages: Ints
    ) -> list[tuple[Ints, Ints]]:
        """Give the new rows of a large key pages behind its others; returns its changed pages."""
        last = int(new_pages[position]) - 1
        added = own[pages[own] < 0]
        in_last = int(np.count_nonzero(pages[own] == last))
        pages[added] = last + (in_last + np.arange(len(added))) // _PAGE
        changed = [pages[own[self._fresh.get(rows[own])]]]
        changed += [numbers[owners == slot] for owners, numbers in self._holes]
        count = int(pages[own].max()) + 1
        if count > new_pages[position]:
            new_pages[position] = count
            changed.append(np.zeros(1, np.int64))  # page 0 says how many there are
        numbers = np.unique(np.concatenate(changed))
        return [(np.full(len(numbers), position), numbers)]

    # -- snapshots

    def begin(self) -> _ChangedKeys:
        """Begin a snapshot: the keys that have changed since the last one, on their way into the database."""
        self._ensure_slots()
        self._leaving_mark = self.mark
        self.mark += 1
        return _ChangedKeys(self, np.flatnonzero(self._dirty.values[: self.index.capacity]))

    def write_changed(self, slots: Ints) -> None:
        """Write those of some keys that the snapshot still has to have."""
        marks = self._dirty.get(slots)
        self._write(slots[(marks > 0) & (marks <= self._leaving_mark)])

    def write_removed(self, most: int) -> bool:
        """Delete keys that were removed: they are written as all others."""
        return False

    def end(self) -> None:
        """End the snapshot, whose rows are all in the database, or which was given up."""
        self._leaving_mark = 0

    def to_json(self) -> dict[str, Any]:
        """What the contents file says of this table beside its rows."""
        self._note_highest(self.all_rows())
        layouts = [
            {"schema": base64.b64encode(layout.schema.serialize().to_pybytes()).decode(), "numbers": layout.numbers}
            for layout in self._layouts
        ]
        return {"layouts": layouts, "highest": self._highest}

    def stream_of(self, entries: Sequence[tuple[bytes, bytes]]) -> bytes:
        """Pages of the database in the form of a chunk."""
        parts = []
        layouts = np.array([page[0] for _, page in entries])
        keys = self._keys.decode([place for place, _ in entries])
        for number in np.unique(layouts).tolist():
            chosen = np.flatnonzero(layouts == number)
            read = self._layouts[number].read([entries[at][1] for at in chosen.tolist()])
            owners = pa.array(chosen[read.pages])
            without = np.full(len(read.pages), self._without_life)
            columns = self._columns_now(self._layouts[number], read.columns)
            arrays = [*(key.take(owners) for key in keys), *columns]
            arrays += [pa.array(read.numbers.get(name, without), pa.int64()) for name in self.numbers]
            parts.append(pa.RecordBatch.from_arrays(arrays, names=self._column_names))
        (batch,) = pa.Table.from_batches(parts).combine_chunks().to_batches() or parts[:1]
        return stream_of(batch)

    # -- restoring

    def take_files(self, home: TableStore, number: int, plain: dict[str, Any]) -> None:
        """Take over rows that are in the database already."""
        self._home, self.number = home, number
        home.add_columns(self, number)
        self._whole = False
        self._layouts = [PageLayout(at, *_layout_of(layout)) for at, layout in enumerate(plain["layouts"])]
        self._layout_now = self._layout(self._page_schema(), list(self.numbers))
        self._take_highest(plain)

    def take_rows_of(self, plain: dict[str, Any]) -> Callable[[bytes, bytes], Pair]:
        """Prepare for pages that are copied from another database; the function returned turns its pages into pages of
        this one.
        """
        self._whole = False
        self.home()
        layouts = [self._layout(*_layout_of(layout)) for layout in plain["layouts"]]
        self._take_highest(plain)
        return lambda place, page: (moved(place, self.number), bytes([layouts[page[0]]]) + page[1:])

    def _layout(self, schema: pa.Schema, numbers: Sequence[str]) -> int:
        """Number of the layout of rows with these columns, and these numbers beside them."""
        for layout in self._layouts:
            if layout.numbers == list(numbers) and layout.schema == schema:
                return layout.number
        self._layouts.append(PageLayout(len(self._layouts), schema, numbers))
        return self._layouts[-1].number

    def _page_schema(self) -> pa.Schema:
        """The columns of rows, under the names by which they are found again."""
        return pa.schema(list(self._types.items())[: len(self.schema)])

    def _columns_now(self, layout: PageLayout, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """The current columns of rows of a layout, which may have more of them, and in another order."""
        by_name = dict(zip(layout.schema.names, columns, strict=True))
        return [by_name[field.name].cast(field.type) for field in self._page_schema()]

    def _take_highest(self, plain: dict[str, Any]) -> None:
        for name, highest in plain["highest"].items():
            self._highest[name] = max(self._highest.get(name, -1), highest)

    @override
    def _take_rows(self, batch: pa.RecordBatch) -> Ints:
        rows = super()._take_rows(batch)
        if len(rows):
            self._tick += 1
            self._make_room()
        return rows

    @override
    def close(self) -> None:
        super().close()
        self._leaving_mark = 0


def _layout_of(plain: dict[str, Any]) -> tuple[pa.Schema, list[str]]:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(plain["schema"]))), plain["numbers"]


class _ChangedKeys:
    """The keys that differ from the database at the moment a snapshot begins.

    Args:
        table: the table they belong to.
        slots: the keys.
    """

    def __init__(self, table: RowsOnDisk, slots: Ints) -> None:
        self._table, self._slots, self._at = table, slots, 0

    def take(self, most: int) -> Block | None:
        """Write some keys, ``most`` at most; None at the end."""
        if self._at >= len(self._slots):
            return None
        piece = self._slots[self._at : self._at + most]
        self._at += len(piece)
        self._table.write_changed(piece)
        return Block(0, b"")
