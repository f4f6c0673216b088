"""The events of the workloads: event i is the same in every system that is compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

CHANNELS = ("apple", "google", "facebook", "baidu")
BASE_MS = 1_700_000_000_000
KEYS: Final = 10_000
FIELDS: Final = ("auction", "bidder", "price", "channel", "ts")
_NAMES: Final = pa.array(CHANNELS)
_U32 = np.uint32
_AT_ONCE: Final = 10_000_000


def columns(start: int, stop: int, keys: int = KEYS) -> tuple[Any, ...]:
    """Auction, bidder, price, channel number, timestamp (ms) of the events from ``start`` to ``stop``, as arrays."""
    i = np.arange(start, stop, dtype=np.int64)
    h = (i * 2654435761) % 4294967296
    return (h // 256) % keys, (h // 16) % 100003, 1 + (h // 64) % 9973, (h // 1048576) % 4, BASE_MS + i // 10


def picked_tuples(numbers: Any) -> list[tuple[int, int, int, str, int]]:
    """The events of these numbers as tuples."""
    h = (numbers * 2654435761) % 4294967296
    names = [CHANNELS[k] for k in ((h // 1048576) % 4).tolist()]
    found = (h // 256) % KEYS, (h // 16) % 100003, 1 + (h // 64) % 9973
    auction, bidder, price = (column.tolist() for column in found)
    return list(zip(auction, bidder, price, names, (BASE_MS + numbers // 10).tolist(), strict=True))


def tuples(start: int, stop: int, keys: int = KEYS) -> list[tuple[int, int, int, str, int]]:
    """The same events as Python tuples, the channel as text."""
    auction, bidder, price, channel, ts = columns(start, stop, keys)
    names = [CHANNELS[k] for k in channel.tolist()]
    return list(zip(auction.tolist(), bidder.tolist(), price.tolist(), names, ts.tolist(), strict=True))


def batch(start: int, stop: int, columns: Sequence[str] = FIELDS, keys: int = KEYS) -> pa.RecordBatch:
    """The same events as a record batch of these columns."""
    return picked(np.arange(start, stop, dtype=np.uint64), columns, keys)


def picked(numbers: Any, columns: Sequence[str] = FIELDS, keys: int = KEYS) -> pa.RecordBatch:
    """The events of these numbers. In 32 bits, in which numpy divides faster."""
    numbers = numbers.astype(np.uint64, copy=False)
    h = (numbers * np.uint64(2654435761)).astype(_U32)
    return pa.RecordBatch.from_arrays([_column(name, numbers, h, keys) for name in columns], list(columns))


def _column(name: str, numbers: Any, h: Any, keys: int) -> pa.Array:
    if name == "auction":
        return pa.array(((h >> _U32(8)) % _U32(keys)).astype(np.int64))
    if name == "bidder":
        return pa.array(((h >> _U32(4)) % _U32(100003)).astype(np.int64))
    if name == "price":
        return pa.array(((h >> _U32(6)) % _U32(9973)).astype(np.int64) + 1)
    if name == "channel":
        return _NAMES.take(pa.array(((h >> _U32(20)) & _U32(3)).astype(np.int32)))
    return pa.array((numbers // np.uint64(10)).astype(np.int64) + BASE_MS)


def expected(workload: str, count: int, keys: int = KEYS) -> tuple[int, int]:
    """(rows at the sink, sum of the counts there; 0 for w1) for events 0 to ``count`` - 1."""
    per_key = np.zeros(keys, np.int64)
    for start in range(0, count, _AT_ONCE):
        numbers = np.arange(start, min(start + _AT_ONCE, count), dtype=np.uint64)
        auction = ((numbers * np.uint64(2654435761)).astype(_U32) >> _U32(8)) % _U32(keys)
        per_key += np.bincount(auction, minlength=len(per_key))
    if workload == "w1":
        return int(per_key[::123].sum()), 0
    return count, int((per_key * (per_key + 1) // 2).sum())
