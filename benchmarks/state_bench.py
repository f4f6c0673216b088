"""What a record costs in a state backend: one reads a count by key and writes it back, in one operator.

``python -m benchmarks.state_bench [--keys N ...] [--memory BYTES]``: for each backend and number of keys, uniform and
by Zipf's law, processor time of the operator's thread for each record and of all threads; then a checkpoint: its
synchronous part, time and bytes; and an incremental one when a hundredth of the keys has changed.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from firesteel.common.typeinfo import Types
from firesteel.functions.state import ValueStateDescriptor
from firesteel.graph.key_groups import KeyGroupAssigner
from firesteel.state.backend import KeyedStateBackend, KeyedStateParameters, load_state_backend
from firesteel.state.snapshots import Purpose
from firesteel.testing.taken import Taken, take

GROUPS = 128


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--keys", type=int, nargs="*", default=[10_000, 1_000_000])
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--memory", type=int, default=64 << 20, help="of the slot, bytes")
    parser.add_argument("--backend", nargs="*", default=["hashmap", "rocksdb"])
    given = parser.parse_args()
    print("backend   keys      order     us/record  all threads  whole: s   MB      1 %: sync ms  s      MB")
    for keys in given.keys:
        for order in ("uniform", "zipf"):
            drawn = draw(keys, given.records, order)
            for backend in given.backend:
                run(backend, keys, order, drawn, given.memory)


def draw(keys: int, records: int, order: str) -> list[int]:
    """The keys of records, scattered."""
    random = np.random.default_rng(1)
    if order == "uniform":
        ranks = random.integers(0, keys, records)
    else:
        weights = 1 / np.arange(1, keys + 1) ** 0.99
        ranks = np.searchsorted(np.cumsum(weights) / weights.sum(), random.random(records))
    scattered: list[int] = (ranks * 2654435761 % (1 << 40)).tolist()
    return scattered


def checkpoint(keyed: KeyedStateBackend, base: Taken | None) -> tuple[tuple[float, float, int], Taken]:
    """Seconds of the synchronous part and of all of it, bytes that the base has not; and what was taken."""
    began = time.monotonic()
    snapshot = keyed.snapshot(purpose=Purpose(1, True) if base is None else Purpose(2, True, 1))
    at_once = time.monotonic() - began
    taken = take(snapshot, range(GROUPS), base)
    took = time.monotonic() - began
    before = {} if base is None else base.files
    new = sum(len(data) for name, data in taken.files.items() if name not in before)
    return (at_once, took, new + sum(len(chunk.data) for chunk in taken.chunks)), taken


def run(name: str, keys: int, order: str, drawn: Sequence[int], memory: int) -> None:
    """One row."""
    assigner = KeyGroupAssigner(GROUPS, GROUPS)
    with tempfile.TemporaryDirectory() as folder:
        keyed: KeyedStateBackend = load_state_backend(name).create_keyed_state(
            KeyedStateParameters(
                key_group_of=assigner,
                key_groups_of_keys=assigner.assign,
                key_groups=range(GROUPS),
                max_parallelism=GROUPS,
                memory=memory,
                directory=str(Path(folder) / "state"),
            )
        )
        state: Any = keyed.get_state(ValueStateDescriptor("count", Types.LONG()))
        value, update = state.value, state.update
        for key in drawn[: len(drawn) // 2]:  # the first half fills it
            keyed.key = key
            update((value() or 0) + 1)
        half = drawn[len(drawn) // 2 :]
        mine, everybody = time.thread_time(), time.process_time()
        for key in half:
            keyed.key = key
            update((value() or 0) + 1)
        mine, everybody = time.thread_time() - mine, time.process_time() - everybody
        whole, taken = checkpoint(keyed, None)
        for key in list(dict.fromkeys(half))[:: 100 if keys >= 1000 else 1]:
            keyed.key = key
            update((value() or 0) + 1)
        part, _ = checkpoint(keyed, taken)
        keyed.close()
    each = 1e6 / len(half)
    print(
        f"{name:9} {keys:<9} {order:9} {mine * each:<10.3f} {everybody * each:<12.3f} {whole[1]:<10.2f} "
        f"{whole[2] / 1e6:<7.1f} {part[0] * 1e3:<13.2f} {part[1]:<6.2f} {part[2] / 1e6:.1f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
