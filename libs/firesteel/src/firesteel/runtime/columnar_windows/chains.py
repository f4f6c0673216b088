"""Running contents: the contents of accumulators in a chain of slots, each combined with all in front of it."""

from __future__ import annotations

import numpy as np

from firesteel.state.columnar.aggregate_fields import Ints
from firesteel.state.columnar.aggregate_kernels import Accumulators

__all__ = ["accumulate"]


def accumulate(accumulators: Accumulators, slots: Ints, positions: Ints, count: int) -> None:
    """Add to each slot of a chain the contents of all slots in front of it: a prefix sum.

    It works by doubling (Hillis and Steele, "Data parallel algorithms", 1986): after each step a slot contains twice as
    many of the slots in front of it. That takes log n merges of arrays, where one slot after the other would take n.

    Args:
        accumulators: accumulators of the slots.
        slots: slots of all chains, one chain after the other; each slot occurs once.
        positions: position of each slot within its chain, from 0.
        count: number of all slots of the accumulators.
    """
    step, last = 1, int(positions.max(initial=0))
    while step <= last:
        later = np.flatnonzero(positions >= step)
        # A merge reads everything that it adds before it writes, so slots of one step do not see each other's changes.
        accumulators.merge(slots[later], accumulators, slots[later - step], count)
        step *= 2
