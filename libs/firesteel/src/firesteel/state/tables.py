"""Tables on the heap: dicts that can be written out in slices while they are used.

A table is a dict, and costs what a dict costs. While a snapshot writes it, its class is another one: its entries stay
as they are, changes go to a second dict in front of it, and a value that may be changed in place is serialised before
it is handed out for the first time. Afterwards the changes are put back, a few at a time, and the table is a plain dict
again. So bound methods of a table must not be kept from one call of the operator to the next.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, Final

from firesteel.common.own_copies import ATOMS

MISSING: Final = object()
"""Stands for "no value", since None may be a value."""
_DRAINED_AT_ACCESS: Final = 4
"""Changes that each write puts back after a snapshot: more than the one that it adds, so that they come to an end."""
KEYS_AT_ONCE: Final = 1024
"""Keys in a block that later snapshots use again (``HeapTable.key_blocks``)."""


def is_frozen(value: Any) -> bool:
    """Whether the value is immutable: a scalar, or a tuple of immutable values."""
    kind = value.__class__
    if kind in ATOMS:
        return True
    if kind is not tuple:
        return False
    if ATOMS.issuperset(map(type, value)):
        return True
    tuples = [value]  # no recursion: they may be nested to any depth
    while tuples:
        for part in tuples.pop():
            kind = part.__class__
            if kind is tuple:
                tuples.append(part)
            elif kind not in ATOMS:
                return False
    return True


Encode = Callable[[Any, Any], bytes]


class Writing:
    """The snapshot of a table in progress.

    Attributes:
        encode: (key, value) -> serialised value.
        changes: key -> current value, MISSING if it was removed. In order for tables that have one.
        removed: there may be MISSING among the changes.
        saved: key -> value as it was, serialised, of values that were handed out. Emptied once written.
        reading: the values are still being written; else changes are being put back.
        done: called when the table is a plain one again.
    """

    __slots__ = ("changes", "done", "encode", "reading", "removed", "saved")

    def __init__(self, changes: dict[Any, Any], encode: Encode, on_done: Callable[[], None]) -> None:
        self.changes, self.encode, self.done = changes, encode, on_done
        self.saved: dict[Any, bytes] = {}
        self.reading, self.removed = True, False


class HeapTable(dict[Any, Any]):
    """Values by key, in no meaningful order.

    It must have no ``__delitem__`` of its own: Python would look up ``__setitem__`` for each store then, which makes it
    three times as dear. So entries of tables with ``key_blocks`` are removed by the methods below, never by ``del``.

    Attributes:
        writing: the snapshot that writes it; else None.
        key_blocks: its first keys, serialised by earlier snapshots, ``KEYS_AT_ONCE`` of them in each; they stay the
            first ones until a key is removed.
    """

    __slots__ = ("key_blocks", "writing")

    def __init__(self) -> None:
        super().__init__()
        self.writing: Writing | None = None
        self.key_blocks: list[bytes] = []

    def begin(self, encode: Encode, done: Callable[[], None]) -> None:
        """Begin a snapshot: from now on the entries in the dict itself stay as they are.

        Args:
            encode: (key, value) -> serialised value.
            done: called when the changes have been put back.
        """
        self.writing = Writing({}, encode, done)
        self.__class__ = _WrittenTable

    raw_keys = dict.__iter__

    def raw_values(self) -> Iterator[Any]:
        """Values, in the order of ``raw_keys``."""
        return iter(dict.values(self))

    def raw_put(self, key: Any, value: Any) -> None:
        """Set an entry of the dict itself."""
        dict.__setitem__(self, key, value)

    def raw_delete(self, key: Any) -> None:
        """Remove an entry of the dict itself."""
        self.key_blocks = []
        dict.__delitem__(self, key)

    def pop(self, key: Any, *default: Any) -> Any:
        """Remove a key, and return its value, as ``dict.pop``."""
        self.key_blocks = []
        return dict.pop(self, key, *default)

    def popitem(self) -> tuple[Any, Any]:
        self.key_blocks = []
        return dict.popitem(self)

    def clear(self) -> None:
        self.key_blocks = []
        dict.clear(self)

    def touch(self, key: Any) -> None:
        """Note that the life of an entry was extended."""

    def put_back(self, changes: Any, most: int, *, removed: bool) -> None:
        """Put back up to ``most`` of the waiting changes; ``removed``: there may be MISSING among them."""
        popitem = changes.popitem
        changes_of_turn = [popitem() for _ in range(min(most, len(changes)))]
        if removed:
            self.key_blocks = []
            for key in [key for key, value in changes_of_turn if value is MISSING]:
                dict.pop(self, key, None)
            changes_of_turn = [pair for pair in changes_of_turn if pair[1] is not MISSING]
        dict.update(self, changes_of_turn)


class TtlTable(OrderedDict[Any, Any]):
    """A table in the order in which the life of its entries was last extended: the oldest one first.

    Attributes:
        writing: the snapshot that writes it; else None.
    """

    __slots__ = ("writing",)

    def __init__(self) -> None:
        super().__init__()
        self.writing: Writing | None = None

    def begin(self, encode: Encode, done: Callable[[], None]) -> None:
        """Begin a snapshot, as ``HeapTable.begin``."""
        self.writing = Writing(OrderedDict(), encode, done)
        self.__class__ = _WrittenTtlTable

    raw_keys = OrderedDict.__iter__

    def raw_values(self) -> Iterator[Any]:
        """Values, in the order of ``raw_keys``."""
        return iter(OrderedDict.values(self))

    def raw_put(self, key: Any, value: Any) -> None:
        """Set an entry of the dict itself, which becomes the youngest."""
        OrderedDict.__setitem__(self, key, value)
        OrderedDict.move_to_end(self, key)

    raw_delete = OrderedDict.__delitem__

    def touch(self, key: Any) -> None:
        """Make an entry the youngest: its life was extended."""
        OrderedDict.move_to_end(self, key)

    def put_back(self, changes: Any, most: int, *, removed: bool) -> None:
        """Put back up to ``most`` of the waiting changes, the oldest first, as ``HeapTable.put_back``."""
        for _ in range(min(most, len(changes))):
            key, value = changes.popitem(last=False)
            if value is not MISSING:
                self.raw_put(key, value)
            elif OrderedDict.__contains__(self, key):
                self.raw_delete(key)


Table = HeapTable | TtlTable


def save_changeable(table: Table) -> None:
    """Serialise all values that their holders may change in place; to be called when writing has begun."""
    writing = table.writing
    if writing is None or ATOMS.issuperset(map(type, table.raw_values())):
        return
    for key, value in dict.items(table):
        if not is_frozen(value):
            writing.saved[key] = writing.encode(key, value)


def stop_reading(table: Table) -> None:
    """Stop writing a table: its changes may be put back."""
    if table.writing is not None and table.writing.reading:
        table.writing.reading = False
        table.writing.saved = {}
        drain(table, 0)


def drain(table: Table, most: int) -> bool:
    """Put back up to ``most`` changes; True = none are left, and the table is a plain one again."""
    writing = table.writing
    if writing is None:
        return True
    table.put_back(writing.changes, most, removed=writing.removed)
    if writing.changes:
        return False
    table.writing = None
    table.__class__ = HeapTable if isinstance(table, HeapTable) else TtlTable
    writing.done()
    return True


def peek(table: Any, key: Any) -> Any:
    """The value or MISSING, only to be looked at: it must not be changed."""
    writing = table.writing
    if writing is not None:
        value = writing.changes.get(key, writing)
        if value is not writing:
            return value
    return dict.get(table, key, MISSING)


def _find(table: Any, key: Any) -> Any:
    """The value or MISSING, to be handed out."""
    writing = table.writing
    if writing is None:
        return dict.get(table, key, MISSING)
    value = writing.changes.get(key, writing)
    if value is not writing:
        return value
    value = dict.get(table, key, MISSING)
    # Its receiver may change the value in place, so the snapshot keeps it as it is now.
    if writing.reading and key not in writing.saved and value is not MISSING and not is_frozen(value):
        writing.saved[key] = writing.encode(key, value)
    return value


def _change(table: Any, key: Any, value: Any) -> None:
    writing = table.writing
    if writing is None:
        if value is MISSING:
            table.raw_delete(key)
        else:
            table.raw_put(key, value)
        return
    if value is MISSING:
        writing.removed = True
    changes = writing.changes
    changes.pop(key, None)  # a table with time-to-live puts changes back in the order of the last ones
    changes[key] = value
    if not writing.reading:
        drain(table, _DRAINED_AT_ACCESS)


class _Guarded:
    """Methods of a table while it is written, in front of a table class.

    A bound method may outlive that time by some accesses of the same call, so nothing here relies on the class. An
    iterator must not: putting back changes the dict below it.
    """

    __slots__ = ()

    def get(self: Any, key: Any, default: Any = None) -> Any:
        writing = self.writing  # as _find, for most records come by here
        value = dict.get(self, key, MISSING) if writing is None else writing.changes.get(key, writing)
        if value is writing:  # it has not changed since the snapshot began
            value = dict.get(self, key, MISSING)
            if value.__class__ not in ATOMS and value is not MISSING:
                value = _find(self, key)
        return default if value is MISSING else value

    def __getitem__(self, key: Any) -> Any:
        value = _find(self, key)
        if value is MISSING:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        return peek(self, key) is not MISSING

    def __setitem__(self, key: Any, value: Any) -> None:
        _change(self, key, value)

    def __delitem__(self, key: Any) -> None:
        if peek(self, key) is MISSING:
            raise KeyError(key)
        _change(self, key, MISSING)

    def pop(self, key: Any, *default: Any) -> Any:
        value = _find(self, key)
        if value is MISSING:
            if default:
                return default[0]
            raise KeyError(key)
        _change(self, key, MISSING)
        return value

    def setdefault(self, key: Any, default: Any = None) -> Any:
        value = _find(self, key)
        if value is MISSING:
            _change(self, key, default)
            return default
        return value

    def clear(self) -> None:
        for key in list(self):
            _change(self, key, MISSING)

    def __iter__(self: Any) -> Iterator[Any]:
        writing = self.writing
        changes = {} if writing is None else writing.changes
        for key in self.raw_keys():
            if changes.get(key) is not MISSING:
                yield key
        for key, value in changes.items():
            if value is not MISSING and not dict.__contains__(self, key):
                yield key

    def __len__(self: Any) -> int:
        length = dict.__len__(self)
        for key, value in {} if self.writing is None else self.writing.changes.items():
            length += (value is not MISSING) - dict.__contains__(self, key)
        return length

    def __bool__(self) -> bool:
        return any(True for _ in self)

    def copy(self: Any) -> dict[Any, Any]:
        return dict(self.items())

    def __eq__(self, other: object) -> bool:
        return self.copy() == other

    __hash__ = None  # type: ignore[assignment]

    def touch(self, key: Any) -> None:
        """Do nothing: changes are kept and put back in order."""

    keys = MutableMapping.keys
    values = MutableMapping.values
    items = MutableMapping.items
    update = MutableMapping.update
    popitem = MutableMapping.popitem


class _WrittenTable(_Guarded, HeapTable):  # type: ignore[misc]
    __slots__ = ()

    def __setitem__(self, key: Any, value: Any) -> None:
        writing = self.writing
        if writing is not None and writing.reading:  # there is no order to be kept
            writing.changes[key] = value
        else:
            _change(self, key, value)


class _WrittenTtlTable(_Guarded, TtlTable):  # type: ignore[misc]
    __slots__ = ()
