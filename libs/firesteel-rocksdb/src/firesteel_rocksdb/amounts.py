"""Estimates how many entries each table of a database has, for people.

RocksDB knows the number of entries in a file, not that of a table. So a small table is counted. Of a larger one some
key groups are counted, which stand for all: the hashes of keys spread them evenly. Tables whose key groups are too
large for that share what is left of RocksDB's own estimate.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Final

from firesteel.state.snapshots import StateAmount

COUNTED: Final = 1024
"""Entries up to which a whole table is counted, which takes 1 ms."""
SAMPLED: Final = 16_384
"""Entries of a larger table that are looked at, which takes some 15 ms of a thread that no record waits for."""
SECONDS: Final = 10.0
"""Time between two looks at a larger table."""
Count = Callable[[int, range, int], tuple[int, int, bool]]
"""Counts the entries of a table in some key groups, up to a number; returns also their bytes, and whether these are
all."""


class Amounts:
    """How many entries the tables of a database have; samples of large tables are used for ``SECONDS``.

    Args:
        count: counts entries.
        all_entries: returns the estimated number of entries of all tables.
        clock: monotonic, in seconds.
    """

    def __init__(
        self, count: Count, all_entries: Callable[[], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._count, self._all_entries, self._clock = count, all_entries, clock
        self._sampled: dict[int, tuple[float, range, StateAmount]] = {}

    def of(self, numbers: Sequence[int], groups: range) -> list[StateAmount]:
        """How many entries tables have in the key groups of the subtask. Called by one thread at a time."""
        amounts: dict[int, StateAmount] = {}
        too_large: dict[int, float] = {}  # bytes of an entry by table
        for number in numbers:
            entries, size, is_whole = self._count(number, groups, COUNTED)
            if is_whole:
                amounts[number] = StateAmount(entries, size, counted=True)
            elif (sample := self._sample(number, groups)).entries:
                amounts[number] = sample
            else:
                too_large[number] = size / entries
        rest = max(0, self._all_entries() - sum(amount.entries for amount in amounts.values())) if too_large else 0
        for number, entry_size in too_large.items():
            entries = max(SAMPLED, rest // len(too_large))
            amounts[number] = StateAmount(entries, round(entries * entry_size), counted=False)
        return [amounts[number] for number in numbers]

    def _sample(self, number: int, groups: range) -> StateAmount:
        """The estimate for a table by some of its key groups; 0 entries = the first one is too large."""
        now = self._clock()
        at, of_groups, amount = self._sampled.get(number, (-math.inf, range(0), StateAmount(0, 0, counted=False)))
        if now - at < SECONDS and of_groups == groups:
            return amount
        whole_groups = entries = size = 0
        for group in groups:
            more, more_bytes, is_whole = self._count(number, range(group, group + 1), SAMPLED - entries)
            if not is_whole:
                break
            whole_groups, entries, size = whole_groups + 1, entries + more, size + more_bytes
            if entries >= SAMPLED // 2:
                break
        share = len(groups) / (whole_groups or 1)
        amount = StateAmount(round(entries * share), round(size * share), counted=False)
        self._sampled[number] = now, groups, amount
        return amount
