"""The events of Nexmark: event *i* is a pure function of *i*, the same one in every system that is compared.

Of 50 events one is a person, three are auctions, the others bids; event time goes on by a millisecond every ten events.
Half of the bids are for the hottest auction of the last hundred, three quarters by a hot bidder, prices are log-uniform
from 100 to 10**8, and a bid may name an auction up to ten ahead.

A batch has a row for each event: ``kind`` (0, 1, 2), and of the columns ``person``, ``auction`` and ``bid`` the one of
its kind is not null. What nobody reads is not made, neither columns nor fields of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.int64]
BEGINNING_MS: Final = 1_700_000_000_000
FIRST_ID: Final = 1000
"""Of people and of auctions."""
FIELDS: Final[dict[str, dict[str, pa.DataType]]] = {
    "person": {
        "id": pa.int64(), "name": pa.string(), "email": pa.string(), "card": pa.string(), "city": pa.string(),
        "state": pa.string(), "ts": pa.timestamp("us"), "extra": pa.string(),
    },
    "auction": {
        "id": pa.int64(), "item": pa.string(), "description": pa.string(), "first_bid": pa.int64(),
        "reserve": pa.int64(), "ts": pa.timestamp("us"), "expires": pa.timestamp("us"), "seller": pa.int64(),
        "category": pa.int64(), "extra": pa.string(),
    },
    "bid": {
        "auction": pa.int64(), "bidder": pa.int64(), "price": pa.int64(), "channel": pa.string(), "url": pa.string(),
        "ts": pa.timestamp("us"), "extra": pa.string(),
    },
}  # fmt: skip
"""Columns beside ``kind``, with the types of their fields."""

_FIRST_NAMES: Final = ["Ada", "Bo", "Cleo", "Dan", "Eve", "Fay", "Gus", "Hal", "Ida", "Jon"]
_LAST_NAMES: Final = [
    "Abel", "Byrd", "Cole", "Diaz", "Egan", "Ford", "Gray", "Hart", "Iver", "Jung",  # codespell:ignore hart
]  # fmt: skip
_NAMES: Final = pa.array([f"{first} {last}" for first in _FIRST_NAMES for last in _LAST_NAMES])
_CITIES: Final = pa.array(
    ["Phoenix", "Fresno", "Boise", "Salem", "Tacoma", "Casper", "Tucson", "Oakland", "Eugene", "Yakima"]
)
_STATES: Final = pa.array(["AZ", "CA", "ID", "OR", "WA", "WY"])
_CHANNELS: Final = pa.array(["apple", "google", "facebook", "baidu", *(f"channel-{n}" for n in range(10_000))])
_POWERS: Final = 10 ** np.arange(6, dtype=np.int64)


def _hash(numbers: Numbers) -> npt.NDArray[np.uint64]:
    """SplitMix64 (Steele, Lea and Flood, 2014) of whole numbers."""
    u64 = np.uint64
    mixed = numbers.astype(u64) * u64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> u64(30)
    mixed *= u64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> u64(27)
    mixed *= u64(0x94D049BB133111EB)
    mixed ^= mixed >> u64(31)
    return mixed


_LETTERS: Final[npt.NDArray[np.uint8]] = (
    ord("a") + (_hash(np.arange(65_792, dtype=np.int64) + 0xABCDEF) >> np.uint64(33)) % np.uint64(26)
).astype(np.uint8)
"""A text, of which texts of events are slices."""


def _price(mantissa: Numbers, exponent: Numbers) -> Numbers:
    return (100_000 + mantissa % 900_000) * _POWERS[exponent % 6] // 1000


def _strings(data: npt.NDArray[np.uint8], lengths: npt.NDArray[Any]) -> pa.Array:
    """Texts that follow each other in ``data``."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.Array.from_buffers(pa.string(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _slices(starts: Numbers, lengths: npt.NDArray[Any]) -> pa.Array:
    """Slices of the letters."""
    ends = np.cumsum(lengths)
    places = np.arange(int(ends[-1]) if len(ends) else 0, dtype=np.int64)
    places += np.repeat(starts - (ends - lengths), lengths)
    return _strings(_LETTERS[places], lengths)


def _block(starts: Numbers, length: int) -> npt.NDArray[np.uint8]:
    """Slices of the letters, all of one length, as the rows of a matrix."""
    return np.asarray(np.lib.stride_tricks.sliding_window_view(_LETTERS, length)[starts])


def _joined(count: int, *parts: bytes | npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """A matrix of characters from matrices and from what all rows have."""
    rows = [
        np.broadcast_to(np.frombuffer(part, np.uint8), (count, len(part))) if isinstance(part, bytes) else part
        for part in parts
    ]
    return np.concatenate(rows, axis=1)


def _of_one_length(characters: npt.NDArray[np.uint8]) -> pa.Array:
    return _strings(characters.reshape(-1), np.full(len(characters), characters.shape[1]))


def _times(milliseconds: Numbers) -> pa.Array:
    return pa.array(milliseconds * 1000).view(pa.timestamp("us"))


class _Events:
    """Events of one kind; what several of their fields are made of is computed once.

    Args:
        numbers: of the events.
    """

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers

    @cached_property
    def epoch(self) -> Numbers:
        """How many times all 50 events came before."""
        return self.numbers // 50

    @cached_property
    def first(self) -> npt.NDArray[np.uint64]:
        """The first hash of each event."""
        return _hash(2 * self.numbers)

    @cached_property
    def second(self) -> npt.NDArray[np.uint64]:
        """The second hash of each event."""
        return _hash(2 * self.numbers + 1)

    def first_bits(self, shift: int, mask: int) -> Numbers:
        """Bits of the first hash."""
        return (self.first >> np.uint64(shift) & np.uint64(mask)).view(np.int64)

    def second_bits(self, shift: int, mask: int) -> Numbers:
        """Bits of the second hash."""
        return (self.second >> np.uint64(shift) & np.uint64(mask)).view(np.int64)

    @property
    def milliseconds(self) -> Numbers:
        """Event time."""
        return BEGINNING_MS + self.numbers // 10


def _person(events: _Events, name: str) -> pa.Array:
    letters = events.second_bits(0, 0xFFFF)
    match name:
        case "id":
            return pa.array(FIRST_ID + events.epoch)
        case "name":
            number = events.first_bits(1, 0x3FF) % 10 * 10 + events.first_bits(11, 0x3FF) % 10
            return _NAMES.take(pa.array(number))
        case "email":
            parts = _block(letters, 8), b"@", _block(letters + 8, 6), b".com"
            return _of_one_length(_joined(len(letters), *parts))
        case "card":
            digits = events.first_bits(21, (1 << 43) - 1)[:, None] >> np.arange(0, 32, 2) & 7
            return _of_one_length((ord("0") + digits).astype(np.uint8))
        case "city":
            return _CITIES.take(pa.array(events.second_bits(16, 0x3FF) % 10))
        case "state":
            return _STATES.take(pa.array(events.second_bits(26, 0x3FF) % 6))
        case "extra":
            return _slices(events.second_bits(36, 0xFFFF), 64 + events.second_bits(52, 31))
    return _times(events.milliseconds)


def _auction(events: _Events, name: str) -> pa.Array:
    match name:
        case "id":
            return pa.array(FIRST_ID - 1 + 3 * events.epoch + events.numbers % 50)
        case "item" | "description" | "extra":
            shift, length = {"item": (0, 20), "description": (16, 100), "extra": (20, 200)}[name]
            return _of_one_length(_block(events.second_bits(shift, 0xFFFF), length))
        case "first_bid" | "reserve":
            price = _price(events.first_bits(0, 0xFFFFF), events.first_bits(20, 0xFF))
            if name == "reserve":
                price += _price(events.first_bits(28, 0xFFFFF), events.first_bits(48, 0xFF))
            return pa.array(price)
        case "expires":
            bits = ((events.first ^ events.second) >> np.uint64(40) & np.uint64(0x7FFF)).view(np.int64)
            return _times(events.milliseconds + 1 + bits % 333)
        case "seller":
            any_of_last = _any_of_last(events.epoch, 1000, events.second_bits(34, 0xFFFF))
            hot = events.epoch // 100 * 100
            return pa.array(FIRST_ID + np.where(events.second_bits(32, 3) != 0, hot, any_of_last))
        case "category":
            return pa.array(10 + events.second_bits(50, 0xFF) % 5)
    return _times(events.milliseconds)


def _bid(events: _Events, name: str) -> pa.Array:
    match name:
        case "auction":
            latest = 3 * events.epoch + 3
            any_of_last = _any_of_last(latest, 100, events.first_bits(1, 0x3FFFFF))
            hot = (latest - 1) // 100 * 100
            return pa.array(FIRST_ID + np.where(events.first_bits(0, 1) != 0, hot, any_of_last))
        case "bidder":
            any_of_last = _any_of_last(events.epoch, 1000, events.first_bits(25, 0x7FFFF))
            hot = events.epoch // 100 * 100 + 1
            return pa.array(FIRST_ID + np.where(events.first_bits(23, 3) != 0, hot, any_of_last))
        case "price":
            return pa.array(_price(events.first_bits(44, 0xFFFFF), events.second_bits(0, 0xFF)))
        case "channel":
            number = events.second_bits(9, 0x3FFF)
            chosen = np.where(events.second_bits(8, 1) != 0, number & 3, 4 + number % 10_000)
            return _CHANNELS.take(pa.array(chosen))
        case "url":
            return _urls(events)
        case "extra":
            return _slices(events.second_bits(23, 0xFFFF), 32 + events.second_bits(39, 31))
    return _times(events.milliseconds)


def _any_of_last(latest: Numbers, count: int, bits: Numbers) -> Numbers:
    """One of the last so many numbers, or of the ten that come next."""
    chosen: Numbers = np.maximum(latest - count, 0) + bits % (np.minimum(latest, count) + 10)
    return chosen


def _urls(events: _Events) -> pa.Array:
    """``https://www.shop.com/a/b/c/item.htm?query=1``, of 15 in 16 with ``&channel_id=`` and up to five digits."""
    count, letters = len(events.numbers), events.second_bits(48, 0xFFFF)
    channel, has_channel = events.second_bits(9, 0x3FFF), events.second_bits(44, 15) != 0
    head = (
        b"https://www.shop.com/", _block(letters, 5), b"/", _block(letters + 5, 5), b"/", _block(letters + 10, 5),
        b"/item.htm?query=1",
    )  # fmt: skip
    digits = (ord("0") + channel[:, None] // _POWERS[4::-1] % 10).astype(np.uint8)
    characters = _joined(count, *head, b"&channel_id=", digits)
    length = 1 + (channel[:, None] >= _POWERS[1:5]).sum(axis=1)
    kept = np.empty(characters.shape, bool)
    kept[:, :-17] = True
    kept[:, -17:-5] = has_channel[:, None]
    kept[:, -5:] = has_channel[:, None] & (np.arange(5) >= 5 - length[:, None])
    return _strings(characters[kept], kept.sum(axis=1))


_MAKERS: Final[dict[str, Callable[[_Events, str], pa.Array]]] = {"person": _person, "auction": _auction, "bid": _bid}


def _scattered(array: pa.Array, places: npt.NDArray[np.bool_]) -> pa.Array:
    """The values of some rows as a column of all of them; the others have zero or an empty text."""
    if array.type == pa.string():
        offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4)
        lengths = np.zeros(len(places), np.int32)
        lengths[places] = np.diff(offsets)
        return _strings(np.frombuffer(array.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]], lengths)
    values = np.zeros(len(places), np.int64)
    values[places] = np.frombuffer(array.buffers()[1], np.int64, len(array), array.offset * 8)
    return pa.array(values).view(array.type)


def batch(numbers: Numbers, columns: Mapping[str, Sequence[str]]) -> pa.RecordBatch:
    """The events of these numbers.

    Args:
        numbers: of the events, ascending.
        columns: which of ``kind``, ``person``, ``auction``, ``bid`` to make, in their order, with the names of the
            fields that they have.
    """
    turn = numbers % 50
    of_kind = {"person": turn == 0, "auction": (turn > 0) & (turn < 4), "bid": turn > 3}
    arrays = []
    for column, fields in columns.items():
        if column == "kind":
            arrays.append(pa.array(of_kind["auction"].astype(np.int32) + 2 * of_kind["bid"]))
            continue
        places = of_kind[column]
        events = _Events(numbers[places])
        made = [_scattered(_MAKERS[column](events, name), places) for name in fields]
        types = [pa.field(name, FIELDS[column][name]) for name in fields]
        arrays.append(pa.StructArray.from_arrays(made, fields=types, mask=pa.array(~places)))
    return pa.RecordBatch.from_arrays(arrays, list(columns))
