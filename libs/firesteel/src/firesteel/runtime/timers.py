"""Timers of one operator: event time and processing time, for each key (and namespace), in order.

A queue holds each timer once. Timestamps are a heap of plain integers; what is due at one timestamp is a bucket in the
order of registration. So a timer costs a tuple and a dictionary entry (about 150 bytes), keys need no order, and a
million timers at one timestamp are one heap entry. Timers are taken out one by one: firing can be suspended anywhere.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from firesteel.core.clock import Clock
from firesteel.core.errors import ProgramError
from firesteel.runtime.batch import MAX_WATERMARK, MIN_WATERMARK
from firesteel.state.backend import KeyedStateBackend
from firesteel.state.keys import NO_KEY

__all__ = [
    "MAX_WATERMARK",
    "MIN_WATERMARK",
    "HeapTimerService",
    "Timer",
    "TimerQueue",
    "TimerService",
]

_SLACK: Final = 64
"""Timestamps without timers that a heap may hold beyond as many as it has with timers."""

Entry = tuple[Any, Any]
"""Key and namespace."""


class Timer(NamedTuple):
    """A timer of a key.

    Attributes:
        timestamp: epoch milliseconds.
        key: it belongs to.
        namespace: None = none, as in process functions; a window for windows.
    """

    timestamp: int
    key: Any
    namespace: Any


class TimerService(ABC):
    """Timers of one operator. The key is always the operator's current one (``operator.keyed.key``).

    A timer is known by time domain, key, namespace and timestamp: the same one twice is one. Both kinds fire in the
    order of their timestamps, those of one timestamp in the order of registration.
    """

    @abstractmethod
    def current_watermark(self) -> int:
        """The operator's event time; ``MIN_WATERMARK`` in the beginning. Does not change inside a batch."""

    @abstractmethod
    def current_processing_time(self) -> int:
        """Epoch milliseconds of the injected clock."""

    @abstractmethod
    def register_event_time_timer(self, namespace: Any, timestamp: int) -> None:
        """Fire when the watermark passes; one that it has passed already fires with the next watermark."""

    @abstractmethod
    def delete_event_time_timer(self, namespace: Any, timestamp: int) -> None:
        """Forget the timer; nothing happens if there is none."""

    @abstractmethod
    def register_processing_time_timer(self, namespace: Any, timestamp: int) -> None:
        """Fire when the clock has come so far."""

    @abstractmethod
    def delete_processing_time_timer(self, namespace: Any, timestamp: int) -> None:
        """Forget the timer; nothing happens if there is none."""


class TimerQueue:
    """Timers of one time domain."""

    __slots__ = ("_buckets", "_count", "_heap")

    def __init__(self) -> None:
        self._heap: list[int] = []
        # the only entry of a timestamp stands in the dictionary as it is, several in a dictionary of their own
        self._buckets: dict[int, Entry | dict[Entry, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, timestamp: int, key: Any, namespace: Any) -> bool:
        """Register a timer; returns whether it is new."""
        entry = (key, namespace)
        bucket = self._buckets.get(timestamp)
        if bucket is None:
            self._buckets[timestamp] = entry
            heapq.heappush(self._heap, timestamp)
        elif bucket.__class__ is dict:
            if entry in bucket:
                return False
            bucket[entry] = None
        else:
            if bucket == entry:
                return False
            self._buckets[timestamp] = {bucket: None, entry: None}  # type: ignore[dict-item]
        self._count += 1
        return True

    def discard(self, timestamp: int, key: Any, namespace: Any) -> bool:
        """Forget a timer; returns whether it was there."""
        bucket = self._buckets.get(timestamp)
        if bucket is None:
            return False
        entry = (key, namespace)
        if bucket.__class__ is dict:
            if entry not in bucket:
                return False
            del bucket[entry]
            if not bucket:
                del self._buckets[timestamp]
        elif bucket == entry:
            del self._buckets[timestamp]
        else:
            return False
        self._count -= 1
        if len(self._heap) > 2 * len(self._buckets) + _SLACK:
            self._heap = list(self._buckets)
            heapq.heapify(self._heap)
        return True

    @property
    def earliest(self) -> int | None:
        """The smallest timestamp that has a timer."""
        heap, buckets = self._heap, self._buckets
        while heap and heap[0] not in buckets:
            heapq.heappop(heap)
        return heap[0] if heap else None

    def due(self, until: int) -> Iterator[Timer]:
        """Take out all timers up to a timestamp, one by one; those that are added meanwhile, too."""
        while (timestamp := self.earliest) is not None and timestamp <= until:
            bucket = self._buckets[timestamp]
            if not isinstance(bucket, dict):
                del self._buckets[timestamp]
                self._count -= 1
                yield Timer(timestamp, *bucket)
                continue
            waiting = deque(bucket)
            while waiting:
                if self._heap and self._heap[0] < timestamp:  # one was added meanwhile that is due before
                    yield from self.due(timestamp - 1)
                entry = waiting.popleft()
                if entry in bucket:  # else it was deleted meanwhile
                    del bucket[entry]
                    self._count -= 1
                    if not bucket and self._buckets.get(timestamp) is bucket:
                        del self._buckets[timestamp]
                    yield Timer(timestamp, *entry)
        if not self._buckets:
            self._buckets = {}  # a dictionary keeps the memory of what was deleted

    def __iter__(self) -> Iterator[Timer]:
        """All timers, unordered; for snapshots."""
        for timestamp, bucket in self._buckets.items():
            for entry in bucket if isinstance(bucket, dict) else (bucket,):
                yield Timer(timestamp, *entry)

    def by_key_group(self, groups_of: Callable[[list[Any]], list[int]]) -> dict[int, list[Timer]]:
        """All timers by the key group of their key, for a snapshot.

        Args:
            groups_of: the key group of each of a list of keys.
        """
        timers = list(self)
        found: dict[int, list[Timer]] = {}
        for group, timer in zip(groups_of([timer.key for timer in timers]), timers, strict=True):
            found.setdefault(group, []).append(timer)
        return found

    def clear(self) -> None:
        """Forget everything."""
        self._heap.clear()
        self._buckets.clear()
        self._count = 0


class HeapTimerService(TimerService):
    """Timers on the heap.

    Args:
        keyed: holds the current key.
        clock: of processing time.
        on_register: called when a processing-time timer was registered, with its timestamp.

    Attributes:
        event, processing: the timers.
        watermark: the current one; set by whoever fires.
    """

    def __init__(
        self, keyed: KeyedStateBackend, clock: Clock, on_register: Callable[[int], None] = lambda timestamp: None
    ) -> None:
        self.event = TimerQueue()
        self.processing = TimerQueue()
        self.watermark = MIN_WATERMARK
        self._keyed, self._clock, self._on_register = keyed, clock, on_register

    def current_watermark(self) -> int:
        """See ``TimerService``."""
        return self.watermark

    def current_processing_time(self) -> int:
        """See ``TimerService``."""
        return self._clock.epoch_ms()

    def register_event_time_timer(self, namespace: Any, timestamp: int) -> None:
        """See ``TimerService``."""
        self.event.add(_checked(timestamp), self._key(), namespace)

    def delete_event_time_timer(self, namespace: Any, timestamp: int) -> None:
        """See ``TimerService``."""
        self.event.discard(_checked(timestamp), self._key(), namespace)

    def register_processing_time_timer(self, namespace: Any, timestamp: int) -> None:
        """See ``TimerService``."""
        if self.processing.add(_checked(timestamp), self._key(), namespace):
            self._on_register(timestamp)

    def delete_processing_time_timer(self, namespace: Any, timestamp: int) -> None:
        """See ``TimerService``."""
        self.processing.discard(_checked(timestamp), self._key(), namespace)

    def _key(self) -> Any:
        key = self._keyed.key
        if key is NO_KEY:
            raise ProgramError(
                "a timer was set or deleted while no record was being processed: timers belong to the key of a record; "
                "use them in process_element() and on_timer(), not in open() or close()"
            )
        return key

    def close(self) -> None:
        """Forget everything."""
        self.event.clear()
        self.processing.clear()


def _checked(timestamp: int) -> int:
    if timestamp.__class__ is int and MIN_WATERMARK <= timestamp <= MAX_WATERMARK:
        return timestamp
    if isinstance(timestamp, bool) or not hasattr(timestamp, "__index__"):
        raise ProgramError(
            f"the timestamp of a timer is an int of milliseconds since 1970-01-01 UTC, not {timestamp!r} "
            f"({type(timestamp).__name__})"
        )
    whole = timestamp.__index__()
    if not MIN_WATERMARK <= whole <= MAX_WATERMARK:
        raise ProgramError(f"the timestamp of a timer has to fit into 64 bits; {whole} does not")
    return whole
