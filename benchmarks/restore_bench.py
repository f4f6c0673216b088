"""``restore``: snapshots and restores of a million keys by one operator, in one process, on the checkpoint storage.

For each kind of state: how long the longest slice of a snapshot kept the thread (processor time), also while every
entry changes between slices; what a snapshot costs for each entry; how fast it is read again, by a thread as in slots;
and how long a loop had to wait for its turn meanwhile.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa

from firesteel.checkpoint.chunks import frame, read_chunks
from firesteel.checkpoint.storage import StorageParameters, load_checkpoint_storage
from firesteel.common import Types
from firesteel.config import Settings
from firesteel.datastream.state import ValueStateDescriptor
from firesteel.graph.key_hash import key_group
from firesteel.runtime.checkpoints.background import RestoreThreads
from firesteel.runtime.loop.interrupts import CancelToken
from firesteel.state.backend import KeyedStateParameters
from firesteel.state.heap import HeapKeyedState
from firesteel.state.snapshots import StateChunk, StateInfo, WrittenState

KEYS: Final = 1_000_000
_STAMP: Final = 1_700_000_000_000
_AT_ONCE: Final = 2048
_GROUPS: Final = 128
_COLLECT: Final = (50_000, 20, 50)
"""As in slots."""


class _Rows:
    """A value for each key, in Python objects."""

    def __init__(self, count: int, make: Callable[[int], Any], type_info: Any) -> None:
        self._count, self._make = count, make
        self._descriptor = ValueStateDescriptor("value", type_info)
        self.part: Any = self.empty()
        self._state = self.part.get_state(self._descriptor)
        for key in range(count):
            self.part.key = key
            self._state.update(make(key))

    def empty(self) -> Any:
        return HeapKeyedState(
            KeyedStateParameters(key_group_of=lambda key: key_group(key, _GROUPS), key_groups=range(_GROUPS))
        )

    def change(self, start: int, stop: int) -> None:
        for key in range(start, stop):
            self.part.key = key
            value = self._state.value()
            self._state.update(value + 1 if isinstance(value, int) else value)

    def restored(self, part: Any) -> int:
        state = part.get_state(self._descriptor)
        for key in (0, self._count // 2, self._count - 1):
            part.key = key
            assert state.value() is not None
        return len(list(part.keys()))


class _Columns:
    """A count for each key, in arrays."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.part = self.empty()
        self._numbers = pa.array(np.arange(count) * 7919)
        for start in range(0, count, 1 << 16):
            self.change(start, min(start + (1 << 16), count))

    def empty(self) -> HeapKeyedState:
        keyed = HeapKeyedState()
        self.state = keyed.columns("counts", [pa.int64()])
        self.state.column("n", pa.int64())
        return keyed

    def change(self, start: int, stop: int) -> None:
        slots = self.state.slots([self._numbers.slice(start, stop - start)])
        self.state.touch(slots)
        column = self.state.columns["n"]
        column.set(slots, column.get(slots) + 1)

    def restored(self, part: Any) -> int:
        return self.state.index.size


class _Timers:
    """A timer for each key."""

    def __init__(self, count: int, *, at_once: bool) -> None:
        self._count, self._step = count, 0 if at_once else 1
        self.part = self.empty()
        for key in range(count):
            self.part.timers("event-time").add(_STAMP + key * self._step, key, None)

    def empty(self) -> HeapKeyedState:
        return HeapKeyedState(
            KeyedStateParameters(key_group_of=lambda key: key_group(key, _GROUPS), key_groups=range(_GROUPS))
        )

    def change(self, start: int, stop: int) -> None:
        queue = self.part.timers("event-time")
        for key in range(start, stop):
            queue.discard(_STAMP + key * self._step, key, None)
            queue.add(_STAMP + key * self._step + 10**9, key, None)

    def restored(self, part: HeapKeyedState) -> int:
        return len(part.timers("event-time"))


class _Panes:
    """The count and the largest value of each key in one window, in arrays."""

    def __init__(self, count: int) -> None:
        from firesteel.expressions import col, max_
        from firesteel.expressions import count as counted
        from firesteel.expressions.aggregates import bind_aggregates

        declared = {"v": Types.LONG()}
        self._bound = bind_aggregates("window", [counted().alias("n"), max_(col("v")).alias("m")], declared, wrap=False)
        self._numbers = pa.array(np.arange(count) * 7919)
        self.part = self.empty()
        for start in range(0, count, 1 << 16):
            self.change(start, min(start + (1 << 16), count))

    def empty(self) -> HeapKeyedState:
        from firesteel.runtime.columnar_windows.fixed import FixedWindows
        from firesteel.runtime.columnar_windows.keys import index_maker
        from firesteel.runtime.columnar_windows.snapshots import StoredAs
        from firesteel.state.columnar.store import one_group
        from firesteel.state.snapshots import StateInfo

        keyed = HeapKeyedState()
        stored = StoredAs(StateInfo("windows", "columns", {}), 1, one_group, range(1))
        self.windows = FixedWindows(10_000, 10_000, 0, 0, index_maker([pa.int64()]), self._bound, stored)
        keyed.attach(self.windows)
        return keyed

    def change(self, start: int, stop: int) -> None:
        from firesteel.state.columnar.aggregate_kernels import Values
        from firesteel.state.columnar.values import Codec

        stop = min(stop, len(self._numbers))
        rows, values = stop - start, np.arange(start, stop)
        given = [Values(None, None), Values(pa.array(values), Codec(pa.int64()))]
        for _ in self.windows.add([self._numbers.slice(start, rows)], given, np.full(rows, 1000), values):
            pass

    def restored(self, part: Any) -> int:
        return sum(int(pane.index.size) for pane in self.windows.panes.values())


def kinds(count: int) -> dict[str, Callable[[], Any]]:
    """What is measured."""
    return {
        "rows of numbers": lambda: _Rows(count, lambda key: key * 3, Types.LONG()),
        "rows of text": lambda: _Rows(count, lambda key: f"value {key}", Types.STRING()),
        "rows of lists": lambda: _Rows(count, lambda key: [key, str(key)], Types.PICKLED_BYTE_ARRAY()),
        "columns": lambda: _Columns(count),
        "timers": lambda: _Timers(count, at_once=False),
        "timers at one time": lambda: _Timers(count, at_once=True),
        "window": lambda: _Panes(count),
    }


def _snapshot(part: Any, between: Callable[[int], None]) -> tuple[list[StateChunk], Any, list[float]]:
    """All chunks, and how long each slice took; the first is the beginning."""
    took: list[float] = []
    began = time.thread_time()
    running = part.snapshot()
    took.append(time.thread_time() - began)
    chunks: list[StateChunk] = []
    while True:
        began = time.thread_time()
        found = next(running, None)
        took.append(time.thread_time() - began)
        if found is None:
            return chunks, list(running.states), took
        chunks += found
        between(len(took))


def _changing(kind: Any, count: int) -> Callable[[int], None]:
    def change(step: int) -> None:
        start = step * _AT_ONCE
        if start + _AT_ONCE <= count:
            kind.change(start, start + _AT_ONCE)

    return change


class _Read(WrittenState):
    """Chunks that are read while they are taken."""

    def __init__(self, states: Sequence[StateInfo], chunks: Iterable[StateChunk]) -> None:
        self.states, self.key_groups, self.files = states, range(_GROUPS), {}
        self._chunks = chunks

    def chunks(self) -> Iterator[StateChunk]:
        return iter(self._chunks)

    def fetch(self, name: str, path: str) -> None:
        raise KeyError(name)


def _restore(
    kind: Any, count: int, states: Any, stream: BinaryIO, *, filtered: bool = False, awake: bool = False
) -> tuple[float, float, float]:
    """Seconds, seconds of processor time, and how long somebody who wakes every millisecond had to wait at most.

    Args:
        kind: of state.
        count: of entries.
        states: what the snapshot said about them.
        stream: with the chunks.
        filtered: as a task does it that owns other key groups.
        awake: somebody wakes every millisecond.
    """
    part = kind.empty()
    threads, longest = RestoreThreads(), 0.0
    began, used = time.perf_counter(), time.process_time()
    chunks = (StateChunk(*chunk) for chunk in read_chunks(stream, "the benchmark's state"))
    written = _Read(states, chunks)
    threads.run(CancelToken("benchmark"), lambda: part.restore([written]))
    while awake and threads.guards():
        slept = time.perf_counter()
        time.sleep(0.001)
        longest = max(longest, time.perf_counter() - slept - 0.001)
    threads.join(3600)
    spent = time.perf_counter() - began, time.process_time() - used, longest
    if kind.restored(part) != count:
        raise SystemExit(f"{kind.restored(part)} of {count} entries came back")
    return spent


def run(count: int, folder: str, only: Iterable[str] = ()) -> None:
    """Print a line for each kind of state."""
    settings = Settings({"execution.checkpointing.dir": f"{folder}/checkpoints"}, "benchmark")
    storage = load_checkpoint_storage(StorageParameters("0" * 32, settings))
    storage.prepare(1)
    for name, make in kinds(count).items():
        if only and name not in only:
            continue
        kind = make()
        gc.freeze()
        gc.set_threshold(*_COLLECT)
        chunks, states, took = _snapshot(kind.part, lambda step: None)
        _, _, changing = _snapshot(kind.part, _changing(kind, count))
        writer = storage.open_state_stream(1, name)
        began = time.perf_counter()
        for chunk in chunks:
            writer.write(b"".join(frame(chunk.state, chunk.key_group, chunk.count, chunk.data)))
        handle = writer.close()
        written = time.perf_counter() - began
        del chunks
        with storage.open_state(handle) as stream:
            seconds, used, _ = _restore(kind, count, states, stream)
        with storage.open_state(handle) as stream:
            _, filtered, _ = _restore(kind, count, states, stream, filtered=True)
        with storage.open_state(handle) as stream:
            _, _, waited = _restore(kind, count, states, stream, awake=True)
        line = {
            "restore": name, "entries": count, "mb": round(handle.size / 1e6, 1),
            "longest_slice_ms": round(max(took) * 1e3, 2), "begin_ms": round(took[0] * 1e3, 2),
            "longest_slice_while_changed_ms": round(max(changing) * 1e3, 2),
            "snapshot_ns_each": round(sum(took) / count * 1e9),
            "write_mb_s": round(handle.size / written / 1e6),
            "restore_mb_s": round(handle.size / seconds / 1e6), "restore_ns_each": round(used / count * 1e9),
            "restore_with_other_parallelism_ns_each": round(filtered / count * 1e9),
            "longest_wait_while_restored_ms": round(waited * 1e3, 1),
        }  # fmt: skip
        print(json.dumps(line), flush=True)
        kind = None
