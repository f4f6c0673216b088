"""The events of the workloads: event i is the same in every system that is compared."""

from __future__ import annotations

from typing import Any

import numpy as np

CHANNELS = ("apple", "google", "facebook", "baidu")
BASE_MS = 1_700_000_000_000


def columns(start: int, stop: int) -> tuple[Any, ...]:
    """Auction, bidder, price, channel number, timestamp (ms) of the events from ``start`` to ``stop``, as arrays."""
    i = np.arange(start, stop, dtype=np.int64)
    h = (i * 2654435761) % 4294967296
    return (h // 256) % 10000, (h // 16) % 100003, 1 + (h // 64) % 9973, (h // 1048576) % 4, BASE_MS + i // 10


def tuples(start: int, stop: int) -> list[tuple[int, int, int, str, int]]:
    """The same events as Python tuples, the channel as text."""
    auction, bidder, price, channel, ts = columns(start, stop)
    names = [CHANNELS[k] for k in channel.tolist()]
    return list(zip(auction.tolist(), bidder.tolist(), price.tolist(), names, ts.tolist(), strict=True))


def expected(workload: str, count: int) -> tuple[int, int]:
    """(rows at the sink, sum of the counts there; 0 for w1) for events 0 to ``count`` - 1."""
    auction = columns(0, count)[0]
    if workload == "w1":
        return int((auction % 123 == 0).sum()), 0
    per_key = np.bincount(auction).astype(np.int64)
    return count, int((per_key * (per_key + 1) // 2).sum())
