"""The parts of an operator that have state by key, and how timers are one of them."""

from __future__ import annotations

import io
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, Protocol

from firesteel.common.nan_keys import with_one_nan
from firesteel.runtime.timers import TimerQueue
from firesteel.state.backend import SEVERAL, SLICE_SECONDS, KeyedSnapshot, StateChunk, StateInfo
from firesteel.state.heap_snapshot import dumps

EVENT: Final = StateInfo("event-time", "timers", {})
PROCESSING: Final = StateInfo("processing-time", "timers", {})
_AT_ONCE: Final = 64
"""Timers that are serialised, or changes that are put back, between two looks at the clock."""


class KeyedPart(Protocol):
    """State by key group. The rules of ``snapshot`` and ``restore`` are those of ``KeyedStateBackend``."""

    def snapshot(self, slice_seconds: float = ...) -> KeyedSnapshot:
        """Begin to write out the state of now."""

    def restore(self, states: Sequence[StateInfo], chunks: Iterable[StateChunk]) -> None:
        """Take over what a snapshot wrote, as far as it belongs to the own key groups; may be called for several."""


class Queues(Protocol):
    """Whatever holds timers."""

    event: TimerQueue
    processing: TimerQueue


class TimerPart:
    """The timers of an operator.

    Args:
        timers: gives those of the operator.
        key_group_of: of keys.
        key_groups: the own ones.
    """

    def __init__(self, timers: Callable[[], Queues], key_group_of: Callable[[Any], int], key_groups: range) -> None:
        self._timers, self._key_group_of, self._key_groups = timers, key_group_of, key_groups

    def snapshot(self, slice_seconds: float = SLICE_SECONDS) -> KeyedSnapshot:
        """Begin to write out the timers of now."""
        return _TimerSnapshot(self._timers(), slice_seconds)

    def restore(self, states: Sequence[StateInfo], chunks: Iterable[StateChunk]) -> None:
        """Take over timers; those that are due by now fire as soon as time is looked at."""
        timers, group_of, own = self._timers(), self._key_group_of, self._key_groups
        for chunk in chunks:
            mixed = chunk.key_group == SEVERAL
            if not mixed and chunk.key_group not in own:
                continue
            queue = timers.event if states[chunk.state].name == EVENT.name else timers.processing
            for timestamp, key, namespace in _timers(chunk.data):
                if not mixed or group_of(key) in own:
                    queue.add(timestamp, with_one_nan(key), namespace)


class _TimerSnapshot(KeyedSnapshot):
    def __init__(self, timers: Queues, slice_seconds: float) -> None:
        self.states = (EVENT, PROCESSING)
        self._slice_seconds = slice_seconds
        self._queues = (timers.event, timers.processing)
        self._left = [queue.freeze() for queue in self._queues]
        self._state = 0
        self._closed = False

    def __next__(self) -> list[StateChunk]:
        if self._closed:
            raise StopIteration
        deadline = time.perf_counter() + self._slice_seconds / 2
        blocks: list[bytes] = []
        count = 0
        while self._state < len(self._left):
            timers = list(islice(self._left[self._state], _AT_ONCE))
            if not timers:
                break
            count += len(timers)
            blocks.append(dumps(lambda: "the keys of timers", timers))
            if time.perf_counter() >= deadline:
                break
        if blocks:
            return [StateChunk(self._state, SEVERAL, count, b"".join(blocks))]
        if self._state < len(self._left):
            self._queues[self._state].thaw()
            self._state += 1
            return []
        for queue in self._queues:
            while not queue.settle(_AT_ONCE):
                if time.perf_counter() >= deadline:
                    return []
        self._closed = True
        raise StopIteration

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._left = []
            for queue in self._queues:
                queue.thaw()


def _timers(data: bytes) -> Iterator[tuple[int, Any, Any]]:
    stream = io.BytesIO(data)
    while stream.tell() < len(data):
        yield from pickle.load(stream)
