"""How the time of a stage divides among its operators, by a sample of its slices.

Operators of a stage pull records from each other one by one, so nobody sees from outside how long each of them works.
Once in a while a slice runs with a clock between every two operators; user code runs in the same order as ever. The
shares in these slices, and the time of all slices, which is measured anyway, give the time of each operator.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

REST: Final = 100
"""Time between two slices with clocks, as a multiple of the time that the former one took. Clocks make a slice of
trivial functions three times as long: this keeps their cost at about 1 %, also on a loaded machine."""
LONGEST_REST: Final = 0.5
"""Most seconds between two slices with clocks."""
SLOW_RECORD: Final = 0.0001
"""Seconds for a record, for each operator, from which on clocks cost less than 1 %, so that every slice has them."""
_now = time.perf_counter


class OwnTimes:
    """Times of the operators of a stage.

    Args:
        count: number of operators.
    """

    def __init__(self, count: int) -> None:
        self._upstream = [0.0] * (count - 1)
        """For each operator but the last one: seconds in it and in those before it, of the sampled slices."""
        self._total = 0.0
        """Seconds of the sampled slices."""
        self._next_at = 0.0

    def is_due(self, now: float) -> bool:
        """Whether a slice that begins now runs with clocks."""
        return bool(self._upstream) and now >= self._next_at

    def timed(self, results: Iterable[Any], position: int) -> Iterator[Any]:
        """Yield the results of an operator, and add the time that pulling them takes."""
        upstream = self._upstream
        began = _now()
        for result in results:
            upstream[position] += _now() - began
            yield result
            began = _now()
        upstream[position] += _now() - began

    def add(self, seconds: float, records: int) -> None:
        """Add the time of a sampled slice as a whole, and let the next ones run without clocks for a while.

        Args:
            seconds: that the slice took.
            records: that it took, at most.
        """
        self._total += seconds
        if seconds < SLOW_RECORD * records * len(self._upstream):
            self._next_at = _now() + min(LONGEST_REST, REST * seconds)

    def add_first(self, seconds: float) -> None:
        """Add a time that the first operator took in a sampled slice before it was pulled from."""
        for position in range(len(self._upstream)):
            self._upstream[position] += seconds

    def divide(self, seconds: float) -> list[float]:
        """Divide the time of the whole stage among its operators, in their order; may be called from any thread.

        Where no slice was sampled yet, nothing is known of the operators, and all of it is the last one's.
        """
        total, upstream = self._total, list(self._upstream)
        if not total:
            return [*(0.0 for _ in upstream), seconds]
        times, before = [], 0.0
        for until in [*upstream, max(total, upstream[-1] if upstream else 0.0)]:
            times.append(max(0.0, until - before))
            before = until
        whole = sum(times) or 1.0
        return [seconds * part / whole for part in times]
