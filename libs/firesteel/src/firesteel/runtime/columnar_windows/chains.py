"""Running contents: what slots of accumulators hold, each together with those in front of it."""

from __future__ import annotations

import numpy as np

from firesteel.state.columnar.aggregate_fields import Ints
from firesteel.state.columnar.aggregate_kernels import Accumulators

__all__ = ["accumulate"]


def accumulate(accumulators: Accumulators, slots: Ints, positions: Ints, count: int) -> None:
    """Add to each slot of a chain what all slots in front of it hold.

    By doubling (Hillis and Steele, "Data parallel algorithms", 1986): behind each step a slot holds twice as many of
    those in front of it. That takes log n merges of arrays, where one slot after the other would take n.

    Args:
        accumulators: of the slots.
        slots: of all chains, one chain behind the other; none stands there twice.
        positions: of each slot within its chain, from 0.
        count: of all slots of the accumulators.
    """
    step, last = 1, int(positions.max(initial=0))
    while step <= last:
        later = np.flatnonzero(positions >= step)
        # a merge reads all that it adds before it writes, so the slots of one step do not see each other's changes
        accumulators.merge(slots[later], accumulators, slots[later - step], count)
        step *= 2
