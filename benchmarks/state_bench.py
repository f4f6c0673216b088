"""What state costs in a backend: a count by key is read and written back, record by record and in columns.

``python -m benchmarks.state_bench [--keys N ...] [--form rows columns] [--memory BYTES]``: for each form, number of
keys, order (uniform and by Zipf's law) and backend, side by side: processor time of the operator's thread for each
record and of all threads, and records a second of that thread; then checkpoints, whole and with a hundredth of the keys
changed: the synchronous part, all of it, and bytes; a restore of it; and one by three subtasks out of two, with the
slowest of the three. ``--keys 10000 10000000 --records 20000000 --memory 402653184`` are the figures of the issue.
Results are checked against numpy.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from firesteel.common.typeinfo import Types
from firesteel.functions.state import ValueStateDescriptor
from firesteel.graph.key_groups import KeyGroupAssigner, key_group_range
from firesteel.graph.key_hash_columns import key_groups_of
from firesteel.runtime.chain.stages import LARGEST_SLICE
from firesteel.state.backend import KeyedStateBackend, KeyedStateParameters, load_state_backend
from firesteel.state.columnar.groups import Groups
from firesteel.state.snapshots import Purpose
from firesteel.testing.snapshots import SnapshotContents, take_snapshot

GROUPS = 128
HEAD = (
    "form     backend   keys      order    us/record  all threads  M/s/core  whole: s   MB      1 %: sync ms  s      MB"
    "      restore s  2->3 s   peak MB"
)
Ints = npt.NDArray[np.int64]


class Program(Protocol):
    """Counts by key in a backend."""

    def __init__(self, keyed: KeyedStateBackend) -> None: ...

    def count(self, keys: Ints) -> None:
        """One more for each record."""

    def of(self, keys: Ints) -> list[int]:
        """The counts of keys; 0 for unknown ones."""


class Rows:
    """Record by record."""

    def __init__(self, keyed: KeyedStateBackend) -> None:
        self.keyed = keyed

    def _state(self) -> Any:  # asked for behind a restore
        return self.keyed.get_state(ValueStateDescriptor("count", Types.LONG()))

    def count(self, keys: Ints) -> None:
        keyed, state = self.keyed, self._state()
        value, update = state.value, state.update
        for start in range(0, len(keys), LARGEST_SLICE):
            some = keys[start : start + LARGEST_SLICE].tolist()
            keyed.fetch_ahead(partial(list, some))  # as operators do for a slice of records
            for key in some:
                keyed.key = key
                update((value() or 0) + 1)

    def of(self, keys: Ints) -> list[int]:
        state, found = self._state(), []
        for key in keys.tolist():
            self.keyed.key = key
            found.append(state.value() or 0)
        return found


class InColumns:
    """In batches, as running aggregates do it."""

    def __init__(self, keyed: KeyedStateBackend, batch: int) -> None:
        self._state, self._batch = keyed.columns("counts", [pa.int64()]), batch
        self._count = self._state.column("count", pa.int64())

    def count(self, keys: Ints) -> None:
        for start in range(0, len(keys), self._batch):
            groups = Groups(self._state.slots([pa.array(keys[start : start + self._batch])]))
            self._state.touch(groups.slots)
            self._count.set(groups.slots, self._count.get(groups.slots) + groups.lengths)

    def of(self, keys: Ints) -> list[int]:
        found = np.zeros(len(keys), np.int64)
        for start in range(0, len(keys), self._batch):
            slots = self._state.find([pa.array(keys[start : start + self._batch])])
            there = slots >= 0
            found[start : start + self._batch][there] = self._count.get(slots[there])
        counts: list[int] = found.tolist()
        return counts


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--keys", type=int, nargs="*", default=[10_000, 1_000_000])
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--batch", type=int, default=131_072, help="records of a batch of columns")
    parser.add_argument("--memory", type=int, default=64 << 20, help="of the slot, bytes")
    parser.add_argument("--form", nargs="*", choices=["rows", "columns"], default=["rows", "columns"])
    parser.add_argument("--order", nargs="*", choices=["uniform", "zipf"], default=["uniform", "zipf"])
    parser.add_argument("--backend", nargs="*", default=["hashmap", "rocksdb"])
    given = parser.parse_args()
    print(HEAD, flush=True)
    for keys in given.keys:
        for order in given.order:
            drawn = draw(keys, given.records, order)
            for form in given.form:
                program: Callable[[KeyedStateBackend], Program] = (
                    Rows if form == "rows" else partial(InColumns, batch=given.batch)
                )
                for backend in given.backend:
                    run(form, program, backend, keys, order, drawn, given.memory)


def draw(keys: int, records: int, order: str) -> Ints:
    """The keys of records, scattered."""
    random = np.random.default_rng(1)
    if order == "uniform":
        ranks = random.integers(0, keys, records)
    else:
        weights = 1 / np.arange(1, keys + 1) ** 0.99
        ranks = np.searchsorted(np.cumsum(weights) / weights.sum(), random.random(records))
    scattered: Ints = ranks * 2654435761 % (1 << 40)
    return scattered


class Backends:
    """Makes keyed state in folders of its own."""

    def __init__(self, name: str, memory: int, folder: str) -> None:
        self._name, self._memory, self._folder, self._made = name, memory, Path(folder), 0

    def make(self, own: range) -> KeyedStateBackend:
        """Of these key groups."""
        assigner = KeyGroupAssigner(GROUPS, GROUPS)
        self._made += 1
        return load_state_backend(self._name).create_keyed_state(
            KeyedStateParameters(
                key_group_of=assigner,
                key_groups_of_keys=assigner.assign,
                key_groups_of=partial(key_groups_of, max_parallelism=GROUPS),
                key_groups=own,
                max_parallelism=GROUPS,
                memory=self._memory,
                directory=str(self._folder / f"state-{self._made}"),
            )
        )


def checkpoint(
    keyed: KeyedStateBackend, own: range, base: SnapshotContents | None
) -> tuple[tuple[float, float, int], SnapshotContents]:
    """Seconds of the synchronous part and of all of it, bytes that the base has not; and what was taken."""
    began = time.monotonic()
    snapshot = keyed.snapshot(purpose=Purpose(1, True) if base is None else Purpose(2, True, 1))
    at_once = time.monotonic() - began
    taken = take_snapshot(snapshot, own, base)
    took = time.monotonic() - began
    before = {} if base is None else base.files
    new = sum(len(data) for name, data in taken.files.items() if name not in before)
    return (at_once, took, new + sum(len(chunk.data) for chunk in taken.chunks)), taken


def split(parallelism: int) -> list[range]:
    """The key groups of subtasks."""
    bounds = [key_group_range(index, parallelism, GROUPS) for index in range(parallelism)]
    return [range(first, last + 1) for first, last in bounds]


def restored(
    backends: Backends, program: Callable[[KeyedStateBackend], Program], own: range, taken: Sequence[SnapshotContents]
) -> tuple[float, KeyedStateBackend, Program]:
    """Seconds until a subtask has its state, and that."""
    keyed = backends.make(own)
    made = program(keyed)
    began = time.monotonic()
    keyed.restore([one.of(own) for one in taken])
    return time.monotonic() - began, keyed, made


def rescaled(backends: Backends, program: Callable[[KeyedStateBackend], Program], counted: Ints) -> float:
    """Seconds that the slowest of three subtasks takes to go on from what two have written."""
    keys, counts = np.unique(counted, return_counts=True)
    groups = key_groups_of([pa.array(counted)], GROUPS)
    written = []
    for own in split(2):
        keyed = backends.make(own)
        program(keyed).count(counted[(groups >= own.start) & (groups < own.stop)])
        written.append(take_snapshot(keyed.snapshot(), own))
        keyed.close()
    slowest = 0.0
    groups = key_groups_of([pa.array(keys)], GROUPS)
    for own in split(3):
        mine = (groups >= own.start) & (groups < own.stop)
        theirs = [one for one in written if set(one.key_groups) & set(own)]
        took, keyed, made = restored(backends, program, own, theirs)
        slowest = max(slowest, took)
        check(made, keys[mine], counts[mine])
        keyed.close()
    return slowest


def check(program: Program, keys: Ints, counts: Ints) -> None:
    """Some counts are what they should be."""
    some = np.random.default_rng(2).permutation(len(keys))[:10_000]
    if program.of(keys[some]) != counts[some].tolist():
        raise SystemExit("wrong counts")


def run(
    form: str,
    program: Callable[[KeyedStateBackend], Program],
    name: str,
    keys: int,
    order: str,
    drawn: Ints,
    memory: int,
) -> None:
    """One row."""
    own = range(GROUPS)
    with tempfile.TemporaryDirectory() as folder:
        backends = Backends(name, memory, folder)
        keyed = backends.make(own)
        counting = program(keyed)
        half = len(drawn) // 2
        counting.count(drawn[:half])  # fills it
        mine, everybody = time.thread_time(), time.process_time()
        counting.count(drawn[half:])
        mine, everybody = time.thread_time() - mine, time.process_time() - everybody
        whole, taken = checkpoint(keyed, own, None)
        changed = np.unique(drawn)[:: 100 if keys >= 1000 else 1]
        counting.count(changed)
        part, taken = checkpoint(keyed, own, taken)
        keyed.close()
        took, keyed, later = restored(backends, program, own, [taken])
        known, counts = np.unique(drawn, return_counts=True)
        counts[np.searchsorted(known, changed)] += 1
        check(later, known, counts)
        keyed.close()
        scaled = rescaled(backends, program, drawn[:half])
    each = 1e6 / (len(drawn) - half)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{form:8} {name:9} {keys:<9} {order:8} {mine * each:<10.3f} {everybody * each:<12.3f} "
        f"{1 / max(mine * each, 1e-9):<9.2f} {whole[1]:<10.2f} {whole[2] / 1e6:<7.1f} {part[0] * 1e3:<13.2f} "
        f"{part[1]:<6.2f} {part[2] / 1e6:<7.1f} {took:<10.2f} {scaled:<8.2f} {peak:.0f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
