"""Timers on the heap, in order, which can be written in slices while they are in use.

Timestamps are a heap of plain integers; the timers of one timestamp are a bucket in the order of registration. So a
timer costs a tuple and a dictionary entry (about 150 bytes), keys need no order, and a million timers at one timestamp
are one heap entry. Timers are removed one by one: firing can be suspended anywhere.
"""

from __future__ import annotations

import heapq
import io
import pickle
import sys
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any, ClassVar, Final

from firesteel.common.nan_keys import with_one_nan
from firesteel.state.backend import Timer, TimerQueue
from firesteel.state.heap_snapshot import GroupsOfKeys, dumps
from firesteel.state.snapshots import Block, Outgoing, StateInfo

KIND: Final = "timers"
_SLACK: Final = 64
"""Timestamps without timers that a heap may have beyond as many as it has with timers, before it is rebuilt."""
_SETTLED_AT_ACCESS: Final = 4
"""Changes that each access puts back after a snapshot: more than the one that it adds, so that they come to an end."""

Entry = tuple[Any, Any]
"""Key and namespace of a timer."""
_NOT_MOVING: Final[tuple[int, deque[Entry]]] = (0, deque())


class HeapTimerQueue(TimerQueue):
    """Timers of one operator on the heap, ordered by timestamp."""

    __slots__ = ("_added", "_buckets", "_count", "_gone", "_heap", "_moving", "_reading")

    def __init__(self) -> None:
        self._heap: list[int] = []
        # the only entry of a timestamp stands in the dictionary as it is, several in a dictionary of their own
        self._buckets: dict[int, Entry | dict[Entry, None]] = {}
        self._count = 0
        # While the timers are written out, or changes are put back (``_FrozenQueue``): what was taken out of the frozen
        # buckets, what was registered since, whether a snapshot still reads, and the timestamp that is being put back.
        self._gone: dict[int, set[Entry]] = {}
        self._added: HeapTimerQueue | None = None
        self._reading = False
        self._moving = _NOT_MOVING

    def __len__(self) -> int:
        return self._count

    def add(self, timestamp: int, key: Any, namespace: Any) -> bool:
        """Register a timer; False = it was registered before."""
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
        """Forget a timer; False = there was none."""
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

    def holds(self, timestamp: int, key: Any, namespace: Any) -> bool:
        """Whether a timer is registered."""
        bucket = self._buckets.get(timestamp)
        entry = (key, namespace)
        return entry in bucket if isinstance(bucket, dict) else bucket == entry

    @property
    def earliest(self) -> int | None:
        """Smallest timestamp that has a timer; None = there is no timer."""
        heap, buckets = self._heap, self._buckets
        while heap and heap[0] not in buckets:
            heapq.heappop(heap)
        return heap[0] if heap else None

    def due(self, until: int) -> Iterator[Timer]:
        """Remove and yield all timers up to a timestamp, including those added meanwhile."""
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
        """Timers of a timestamp, in the order of registration."""
        bucket = self._buckets.get(timestamp)
        entries = deque(bucket if isinstance(bucket, dict) else () if bucket is None else (bucket,))
        gone = self._gone.get(timestamp)
        if gone:
            entries = deque(entry for entry in entries if entry not in gone)
        if self._added is not None:  # what was forgotten may be there again
            entries += self._added._entries(timestamp)
        return entries

    def __iter__(self) -> Iterator[Timer]:
        """All timers, in no order."""
        return timers_of(self._buckets)

    def freeze(self) -> Iterator[tuple[int, Any, Any]]:
        """Timers of this moment, unordered, whatever happens to the queue until ``thaw``.

        No iteration of ``due`` may be suspended.
        """
        self._added, self._reading = HeapTimerQueue(), True
        self.__class__ = _FrozenQueue
        return _plain_timers_of(self._buckets)

    def thaw(self) -> None:
        """Stop reading the timers of ``freeze``: changes may be put back."""

    def settle(self, most: int) -> bool:
        """Put back some changes; True = none are left."""
        return True

    def clear(self) -> None:
        self.__class__ = HeapTimerQueue
        self.__init__()  # type: ignore[misc] # as it was made


class _FrozenQueue(HeapTimerQueue):
    """A queue while a snapshot writes its timers: they stay as they are, and changes stand beside them.

    A timer is there if it is in a bucket and not in ``_gone``, or if it is in ``_added``. When the snapshot has been
    read, removed timers are taken out of the buckets first, and only then new ones are put in: one that was removed and
    registered again is in both, and has to come behind the others of its timestamp.
    """

    __slots__ = ()

    def _there(self, timestamp: int, entry: Entry) -> bool:
        """Whether a timer is among the frozen ones and was not removed."""
        bucket = self._buckets.get(timestamp)
        if bucket is None or (entry not in bucket if isinstance(bucket, dict) else bucket != entry):
            return False
        gone = self._gone.get(timestamp)
        return gone is None or entry not in gone

    def holds(self, timestamp: int, key: Any, namespace: Any) -> bool:
        assert self._added is not None
        return self._there(timestamp, (key, namespace)) or self._added.holds(timestamp, key, namespace)

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
        """Whether a timestamp has frozen timers that were not removed."""
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
        # Timestamps that are left without timers stay in the heap: ``earliest`` passes them over.
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
        # One timestamp after the other, and its timers in the order of registration, over as many calls as it takes.
        while not gone and added and most > 0:
            most -= 1
            if not self._moving[1]:
                earliest = added.earliest
                assert earliest is not None
                self._moving = earliest, added._entries(earliest)
            timestamp, waiting = self._moving
            entry = waiting.popleft()
            if added.discard(timestamp, *entry):  # else it was removed since the timestamp was begun
                if timestamp not in buckets:
                    heapq.heappush(self._heap, timestamp)
                self._put(timestamp, entry)
        if gone or added:
            return False
        self.__class__ = HeapTimerQueue  # type: ignore[assignment]
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
    """Timers of all buckets, with their timestamps."""
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


class OutgoingTimers(Outgoing):
    """The timers of a queue while a snapshot writes them; changes stand beside them.

    Args:
        name: of the queue.
        queue: its timers. No iteration of ``due`` may be suspended.
    """

    fewest: ClassVar[int] = 64

    def __init__(self, name: str, queue: HeapTimerQueue) -> None:
        self.states = (StateInfo(name, KIND, {}),)
        self._queue, self._left = queue, queue.freeze()

    def next_block(self, entries: int) -> Block | None:
        timers = list(islice(self._left, entries))
        return Block(len(timers), dumps(lambda: "the keys of timers", timers)) if timers else None

    def end(self) -> None:
        """Stop: changes may be put back."""
        self._left = iter(())
        self._queue.thaw()

    def settle(self, changes: int) -> bool:
        return self._queue.settle(changes)


def timers_by_group(block: Block, groups_of: GroupsOfKeys) -> Iterator[Block]:
    """Divide a block of timers by the key groups of their keys."""
    timers_of_group: dict[int, list[tuple[int, Any, Any]]] = {}
    timers = list(timers_in(block.data))
    for group, timer in zip(groups_of([key for _, key, _ in timers]), timers, strict=True):
        timers_of_group.setdefault(int(group), []).append(timer)
    for group, members in sorted(timers_of_group.items()):
        yield Block(len(members), dumps(lambda: "the keys of timers", members), block.state, group)


def timers_in(data: bytes) -> Iterator[tuple[int, Any, Any]]:
    """Timers of a chunk: timestamp, key and namespace; NaN in keys is the one NaN of this process."""
    stream = io.BytesIO(data)
    while stream.tell() < len(data):
        for timestamp, key, namespace in pickle.load(stream):
            yield timestamp, with_one_nan(key), namespace
