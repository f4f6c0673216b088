"""Rows that leave state as the watermark passes their time."""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

from firesteel.state.columnar.row_table import RowTable
from firesteel.state.columnar.slot_lists import runs

Ints = npt.NDArray[np.int64]


class ExpiryQueue:
    """The rows of a table by the time at which they expire, which is one of their numbers.

    Rows stand in buckets of a span of time. One that was dropped, and whose number another row has now, stays in its
    bucket, and is left out when the bucket is due.

    Args:
        table: with the number ``expires`` (epoch ms) for each row.
        width: of a bucket, ms.
        rows: the restored rows that have not expired; None = all of the table.
    """

    NUMBER = "expires"

    def __init__(self, table: RowTable, width: int, rows: Ints | None = None) -> None:
        self._table, self._width = table, max(width, 1)
        self._buckets: dict[int, list[Ints]] = {}
        self._order: list[int] = []
        rows = table.all_rows() if rows is None else rows
        self._add(rows, table.numbers[self.NUMBER].get(rows))

    def set(self, rows: Ints, times: Ints) -> None:
        """Say when new rows expire."""
        self._table.numbers[self.NUMBER].set(rows, times)
        self._add(rows, times)

    def _add(self, rows: Ints, times: Ints) -> None:
        buckets = times // self._width
        order = np.argsort(buckets, kind="stable")
        for start, count in zip(*runs(buckets[order]), strict=True):
            chosen = order[start : start + count]
            bucket = int(buckets[chosen[0]])
            if bucket not in self._buckets:
                self._buckets[bucket] = []
                heapq.heappush(self._order, bucket)
            self._buckets[bucket].append(rows[chosen])

    def due(self, time: int) -> Ints:
        """Take the rows that expire up to a time."""
        parts, later = [], []
        times = self._table.numbers[self.NUMBER]
        while self._order and self._order[0] * self._width <= time:
            bucket = heapq.heappop(self._order)
            rows = np.unique(np.concatenate(self._buckets.pop(bucket)))
            expires = times.get(rows)
            rows = rows[(self._table.slots_of(rows) >= 0) & (expires // self._width == bucket)]
            is_due = times.get(rows) <= time
            parts.append(rows[is_due])
            later.append(rows[~is_due])
        for rows in later:
            self._add(rows, times.get(rows))
        return np.concatenate(parts) if parts else np.empty(0, np.int64)
