"""How long work on columns takes by itself, on a machine that also works for others.

The sizes of batches follow the time that they take. Where more threads are ready to run than there are processors, most
of the time of a batch is waiting for a turn. A smaller batch waits just as long, so sizes must not follow that: batches
would shrink until fixed costs, 2 ms for a batch in an operator with state, are all that the task works at.
"""

from __future__ import annotations

import time
from typing import Final

CROWDED: Final = 8
"""Ready threads for each processor up to which waiting for a turn does not count. Work that waits for anything else,
such as a function that asks a database, counts with this part of its time."""

processor_time = time.thread_time


def work_seconds(wall: float, processor: float) -> float:
    """The seconds that count for work, of which the clock and this thread's processor time measured so many."""
    return max(processor, wall / CROWDED)
