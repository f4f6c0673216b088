"""Merges the intervals of many keys where they overlap or touch, with arrays.

Key and time of each interval become one number (the key in the upper bits), so that one sort orders all keys at once.
An interval begins a new group if it begins behind the ends of all intervals before it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


class Merged(NamedTuple):
    """Groups of intervals that overlap or touch; each group belongs to one key.

    Attributes:
        order: positions of the intervals, sorted by key and start.
        firsts: index in ``order`` of each group's first interval.
        group: number of each interval's group, in the order of ``order``.
    """

    order: Ints
    firsts: Ints
    group: Ints


def merged(keys: Ints, starts: Ints, ends: Ints) -> Merged:
    """Find the groups, in O(n log n), and faster if many intervals are sorted already.

    Args:
        keys: keys of the intervals, as numbers from 0.
        starts: starts of the intervals, ms.
        ends: ends of the intervals, ms; not before the starts.
    """
    if not len(keys):
        empty = np.empty(0, np.int64)
        return Merged(empty, empty, empty)
    low, high = int(starts.min()), int(ends.max())
    bits = (high - low).bit_length()
    if bits + int(keys.max()).bit_length() > 63:  # too wide for an int64: use the ranks of times instead
        times = np.unique(np.concatenate([starts, ends]))
        return merged(keys, np.searchsorted(times, starts), np.searchsorted(times, ends))
    shifted = keys << bits
    begins = shifted + (starts - low)
    order = np.argsort(begins, kind="stable")
    begins = begins[order]
    reach = np.maximum.accumulate((shifted + (ends - low))[order])
    begins_group = np.empty(len(keys), np.bool_)
    begins_group[0] = True
    np.greater(begins[1:], reach[:-1], out=begins_group[1:])
    return Merged(order, np.flatnonzero(begins_group), np.cumsum(begins_group) - 1)
