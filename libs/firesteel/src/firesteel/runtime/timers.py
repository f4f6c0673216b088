"""Timers of one operator: event time and processing time, for each key (and namespace), in order.

A queue holds each timer once. Timestamps are a heap of plain integers; what is due at one timestamp is a bucket in the
order of registration. So a timer costs a tuple and a dictionary entry (about 150 bytes), keys need no order, and a
million timers at one timestamp are one heap entry. Timers are taken out one by one: firing can be suspended anywhere.
"""

from __future__ import annotations

import heapq
import sys
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
_SETTLED_AT_ACCESS: Final = 4

Entry = tuple[Any, Any]
"""Key and namespace."""
_NOT_MOVING: Final[tuple[int, deque[Entry]]] = (0, deque())


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

    __slots__ = ("_added", "_buckets", "_count", "_gone", "_heap", "_moving", "_reading")

    def __init__(self) -> None:
        self._heap: list[int] = []
        # the only entry of a timestamp stands in the dictionary as it is, several in a dictionary of their own
        self._buckets: dict[int, Entry | dict[Entry, None]] = {}
        self._count = 0
        # while the timers are written out, or changes are put back (``_FrozenQueue``):
        self._gone: dict[int, set[Entry]] = {}
        self._added: TimerQueue | None = None
        self._reading = False
        self._moving = _NOT_MOVING

    def __len__(self) -> int:
        return self._count

    def add(self, timestamp: int, key: Any, namespace: Any) -> bool:
        """Register a timer; returns whether it is new."""
        entry = (key, namespace)
        bucket = self._buckets.get(timestamp)
        if bucket is None:
            self._buckets[timestamp] = entry
            heapq.heappush(self._heap, timestamp)
        elif isinstance(bucket, dict):
            if entry in bucket:
                return False
            bucket[entry] = None
        else:
            if bucket == entry:
                return False
            self._buckets[timestamp] = {bucket: None, entry: None}
        self._count += 1
        return True

    def discard(self, timestamp: int, key: Any, namespace: Any) -> bool:
        """Forget a timer; returns whether it was there."""
        bucket = self._buckets.get(timestamp)
        if bucket is None:
            return False
        entry = (key, namespace)
        if isinstance(bucket, dict):
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

    def _entries(self, timestamp: int) -> deque[Entry]:
        """Those of a timestamp, in the order of registration."""
        bucket = self._buckets.get(timestamp)
        found = deque(bucket if isinstance(bucket, dict) else () if bucket is None else (bucket,))
        gone = self._gone.get(timestamp)
        if gone:
            found = deque(entry for entry in found if entry not in gone)
        if self._added is not None:  # what was forgotten may be there again
            found += self._added._entries(timestamp)
        return found

    def __iter__(self) -> Iterator[Timer]:
        """All timers, unordered."""
        return timers_of(self._buckets)

    def freeze(self) -> Iterator[tuple[int, Any, Any]]:
        """The timers of now, unordered, whatever happens to the queue until ``thaw``.

        Nothing of ``due`` may be suspended.
        """
        self._added, self._reading = TimerQueue(), True
        self.__class__ = _FrozenQueue
        return _plain_timers_of(self._buckets)

    def thaw(self) -> None:
        """What ``freeze`` gave is not read any more: what was changed may be put back."""

    def settle(self, most: int) -> bool:
        """Put back so many changes; whether none are left."""
        return True

    def clear(self) -> None:
        """Forget everything."""
        self.__class__ = TimerQueue
        self.__init__()  # type: ignore[misc] # as it was made


class _FrozenQueue(TimerQueue):
    """A queue whose timers are written out: they stay as they are, and what changes stands beside them."""

    __slots__ = ()

    def _there(self, timestamp: int, entry: Entry) -> bool:
        """Whether it is among those that stay as they are, and was not forgotten."""
        bucket = self._buckets.get(timestamp)
        if bucket is None or (entry not in bucket if isinstance(bucket, dict) else bucket != entry):
            return False
        gone = self._gone.get(timestamp)
        return gone is None or entry not in gone

    def add(self, timestamp: int, key: Any, namespace: Any) -> bool:
        assert self._added is not None
        if self._there(timestamp, (key, namespace)) or not self._added.add(timestamp, key, namespace):
            return False
        self._count += 1
        self._settle_some()
        return True

    def discard(self, timestamp: int, key: Any, namespace: Any) -> bool:
        assert self._added is not None
        entry = (key, namespace)
        if self._there(timestamp, entry):
            self._gone.setdefault(timestamp, set()).add(entry)
        elif not self._added.discard(timestamp, key, namespace):
            return False
        self._count -= 1
        self._settle_some()
        return True

    def _left(self, timestamp: int) -> bool:
        """Whether a timestamp has any of those that stay as they are."""
        bucket = self._buckets.get(timestamp)
        if bucket is None:
            return False
        return len(self._gone.get(timestamp, ())) < (len(bucket) if isinstance(bucket, dict) else 1)

    @property
    def earliest(self) -> int | None:
        assert self._added is not None
        heap = self._heap
        while heap and not self._left(heap[0]):
            heapq.heappop(heap)
        times = [time for time in (heap[0] if heap else None, self._added.earliest) if time is not None]
        return min(times, default=None)

    def due(self, until: int) -> Iterator[Timer]:
        while (timestamp := self.earliest) is not None and timestamp <= until:
            waiting = self._entries(timestamp)
            while waiting:
                earliest = self.earliest
                if earliest is not None and earliest < timestamp:
                    yield from self.due(timestamp - 1)
                entry = waiting.popleft()
                if self.discard(timestamp, *entry):
                    yield Timer(timestamp, *entry)

    def __iter__(self) -> Iterator[Timer]:
        assert self._added is not None
        for timer in timers_of(self._buckets):
            if timer[1:] not in self._gone.get(timer.timestamp, ()):
                yield timer
        yield from self._added

    def freeze(self) -> Iterator[tuple[int, Any, Any]]:
        self._reading = False
        self.settle(sys.maxsize)
        return self.freeze()

    def thaw(self) -> None:
        self._reading = False
        self.settle(0)

    def _settle_some(self) -> None:
        if not self._reading:
            self.settle(_SETTLED_AT_ACCESS)

    def settle(self, most: int) -> bool:
        assert self._added is not None
        gone, added, buckets = self._gone, self._added, self._buckets
        while gone and most > 0:
            timestamp, entries = gone.popitem()
            bucket = buckets[timestamp]
            while entries and most > 0:
                most -= 1
                entry = entries.pop()
                if isinstance(bucket, dict):
                    del bucket[entry]
            if entries:
                gone[timestamp] = entries
            elif not isinstance(bucket, dict) or not bucket:
                del buckets[timestamp]
        while not gone and added and most > 0:
            most -= 1
            if not self._moving[1]:
                earliest = added.earliest
                assert earliest is not None
                self._moving = earliest, added._entries(earliest)
            timestamp, waiting = self._moving
            entry = waiting.popleft()
            if added.discard(timestamp, *entry):
                if timestamp not in buckets:
                    heapq.heappush(self._heap, timestamp)
                self._put(timestamp, entry)
        if gone or added:
            return False
        self.__class__ = TimerQueue  # type: ignore[assignment]
        self._added, self._moving = None, _NOT_MOVING
        return True

    def _put(self, timestamp: int, entry: Entry) -> None:
        bucket = self._buckets.get(timestamp)
        if bucket is None:
            self._buckets[timestamp] = entry
        elif isinstance(bucket, dict):
            bucket[entry] = None
        else:
            self._buckets[timestamp] = {bucket: None, entry: None}


def timers_of(buckets: dict[int, Entry | dict[Entry, None]]) -> Iterator[Timer]:
    """The timers in buckets."""
    for timestamp, bucket in buckets.items():
        if isinstance(bucket, dict):
            for entry in bucket:
                yield Timer(timestamp, *entry)
        else:
            yield Timer(timestamp, *bucket)


def _plain_timers_of(buckets: dict[int, Entry | dict[Entry, None]]) -> Iterator[tuple[int, Any, Any]]:
    for timestamp, bucket in buckets.items():
        if isinstance(bucket, dict):
            for key, namespace in bucket:
                yield timestamp, key, namespace
        else:
            yield timestamp, bucket[0], bucket[1]


class TimerQueues:
    """The timers of an operator.

    Attributes:
        event, processing: those of each time domain.
    """

    def __init__(self) -> None:
        self.event = TimerQueue()
        self.processing = TimerQueue()


class HeapTimerService(TimerService):
    """Timers on the heap.

    Args:
        keyed: holds the current key.
        clock: of processing time.
        on_register: called when a processing-time timer was registered, with its timestamp.
        queues: that it goes on with; None = new ones.

    Attributes:
        event, processing: the timers.
        watermark: the current one; set by whoever fires.
    """

    def __init__(
        self,
        keyed: KeyedStateBackend,
        clock: Clock,
        on_register: Callable[[int], None] = lambda timestamp: None,
        queues: TimerQueues | None = None,
    ) -> None:
        queues = queues or TimerQueues()
        self.event, self.processing = queues.event, queues.processing
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
