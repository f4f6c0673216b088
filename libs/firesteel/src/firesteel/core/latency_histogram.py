"""A histogram of latencies in milliseconds whose parts can be added up, so that subtasks make one of a whole vertex.

Buckets grow with the value, as in HdrHistogram: 16 in each doubling, so that a percentile is at most 1/16 too large.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

_SUB_BITS: Final = 4
_SUB: Final = 1 << _SUB_BITS
MOST_MS: Final = 1 << 40
"""Larger values count as this one (35 years): no bucket has a number beyond ``bucket_of(MOST_MS)``."""


def bucket_of(ms: int) -> int:
    """The bucket of a latency; below 0, where two clocks differ, it counts as 0."""
    value = min(max(ms, 0), MOST_MS)
    shift = max(0, value.bit_length() - _SUB_BITS - 1)
    return shift * _SUB + (value >> shift)


def upper_ms(bucket: int) -> int:
    """The largest latency in a bucket."""
    if bucket < 2 * _SUB:
        return bucket
    shift = bucket // _SUB - 1
    return ((bucket - shift * _SUB + 1) << shift) - 1


class LatencyHistogram:
    """Latencies, by bucket.

    Args:
        buckets: pairs of a bucket and a number of latencies; further pairs of the same bucket are added.
    """

    def __init__(self, buckets: Iterable[tuple[int, int]] = ()) -> None:
        self._counts = Counter[int]()
        self.add(buckets)

    def add(self, buckets: Iterable[tuple[int, int]]) -> None:
        """Add those of another histogram."""
        for bucket, number in buckets:
            self._counts[bucket] += number

    @property
    def total(self) -> int:
        """How many latencies were recorded."""
        return self._counts.total()

    def buckets(self) -> list[tuple[int, int]]:
        """Pairs of a bucket and its number of latencies, the smallest bucket first."""
        return sorted(self._counts.items())

    def percentile(self, share: float) -> int:
        """The latency (ms) that this share of all do not exceed; 0 of an empty histogram."""
        rank, seen = share * self.total, 0
        for bucket, number in self.buckets():
            seen += number
            if seen >= rank:
                return upper_ms(bucket)
        return 0
