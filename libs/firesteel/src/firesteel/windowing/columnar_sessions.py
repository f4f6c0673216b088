"""Intervals of many keys that become one where they overlap or touch, with arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


class Merged(NamedTuple):
    """Groups of intervals that overlap or touch, of one key each.

    Attributes:
        order: positions of the intervals by key and start.
        firsts: where each group begins in it.
        group: the number of each interval's group, in the order of ``order``.
    """

    order: Ints
    firsts: Ints
    group: Ints


def merged(keys: Ints, starts: Ints, ends: Ints) -> Merged:
    """Find the groups. Costs n log n, and less where many intervals stand in order already.

    Args:
        keys: of the intervals, numbers from 0.
        starts: ms.
        ends: ms; not before the starts.
    """
    if not len(keys):
        empty = np.empty(0, np.int64)
        return Merged(empty, empty, empty)
    low, high = int(starts.min()), int(ends.max())
    bits = (high - low).bit_length()
    if bits + int(keys.max()).bit_length() > 63:  # numbers of times instead of times
        times = np.unique(np.concatenate([starts, ends]))
        return merged(keys, np.searchsorted(times, starts), np.searchsorted(times, ends))
    shifted = keys << bits
    begins = shifted + (starts - low)
    order = np.argsort(begins, kind="stable")
    begins = begins[order]
    reach = np.maximum.accumulate((shifted + (ends - low))[order])
    new = np.empty(len(keys), np.bool_)
    new[0] = True
    np.greater(begins[1:], reach[:-1], out=new[1:])
    return Merged(order, np.flatnonzero(new), np.cumsum(new) - 1)
