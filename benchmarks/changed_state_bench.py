"""What a checkpoint of RocksDB costs when a hundredth of the state has changed, by how much state there is.

    python -m benchmarks.changed_state_bench [--mb 1 10 100 1000 10000] [--value 4000] [--memory BYTES]

One operator's backend with values of random bytes, which no codec makes smaller; its files are linked into a folder in
place of being sent. For each size: seconds to fill it, the whole checkpoint, and then three with a hundredth of the
keys changed, at random, in turn: the part for which records wait (``sync``), until all files are linked, and how many
bytes are new; at last a restore, which copies all files from that folder, so it reads and writes them once. Values
are compared. It needs about four times the state on the disk of ``TMPDIR``.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from firesteel.common.typeinfo import Types
from firesteel.functions.state import ValueStateDescriptor
from firesteel.graph.key_groups import KeyGroupAssigner
from firesteel.graph.key_hash_columns import key_groups_of
from firesteel.state.backend import KeyedStateBackend, KeyedStateParameters, load_state_backend
from firesteel.state.snapshots import Purpose, SnapshotFiles, StateChunk, StateInfo, WrittenState

GROUPS = 128
HEAD = "MB      keys      fill s   whole s   1 %: sync ms   s       MB new (three)          restore s"


class Store(SnapshotFiles):
    """A folder of links.

    Args:
        folder: of this checkpoint.
        before: the one before, None for the first.
    """

    def __init__(self, folder: Path, before: Store | None) -> None:
        self.folder, self._before = folder, before
        self.known = {} if before is None else before.files
        self.files: dict[str, int] = {}
        self.new = 0
        folder.mkdir()

    def keep(self, name: str) -> None:
        assert self._before is not None
        os.link(self._before.folder / name, self.folder / name)
        self.files[name] = self.known[name]

    def put(self, name: str, path: str) -> None:
        os.link(path, self.folder / name)
        self.files[name] = os.path.getsize(path)
        self.new += self.files[name]


class Stored(WrittenState):
    """A checkpoint for a restore of all key groups."""

    def __init__(self, store: Store, states: list[StateInfo], chunks: list[StateChunk]) -> None:
        self.states = [StateInfo.from_json(info.to_json()) for info in states]
        self.key_groups, self.files = range(GROUPS), store.files
        self._store, self._chunks = store, chunks

    def chunks(self) -> Iterator[StateChunk]:
        return iter(self._chunks)

    def fetch(self, name: str, path: str) -> None:
        shutil.copyfile(self._store.folder / name, path)


def backend(memory: int, directory: Path) -> KeyedStateBackend:
    """Of all key groups."""
    assigner = KeyGroupAssigner(GROUPS, GROUPS)
    return load_state_backend("rocksdb").create_keyed_state(
        KeyedStateParameters(
            key_group_of=assigner,
            key_groups_of_keys=assigner.assign,
            key_groups_of=partial(key_groups_of, max_parallelism=GROUPS),
            key_groups=range(GROUPS),
            max_parallelism=GROUPS,
            memory=memory,
            directory=str(directory),
        )
    )


def state_of(keyed: KeyedStateBackend) -> Any:
    """Asked for behind a restore."""
    return keyed.get_state(ValueStateDescriptor("value", Types.PRIMITIVE_ARRAY(Types.BYTE())))


def value_of(key: int, version: int, size: int) -> bytes:
    """Random, and the same each time."""
    return random.Random(key << 8 | version).randbytes(size)


def checkpoint(
    keyed: KeyedStateBackend, number: int, folder: Path, before: Store | None
) -> tuple[float, float, Stored]:
    """Seconds of the synchronous part, and until all files are linked."""
    began = time.monotonic()
    snapshot = keyed.snapshot(purpose=Purpose(number, True) if before is None else Purpose(number, True, number - 1))
    at_once = time.monotonic() - began
    chunks: list[StateChunk] = []
    for some in snapshot:
        chunks += some
    snapshot.close()
    store = Store(folder / f"chk-{number}", before)
    snapshot.write_files(store)
    return at_once, time.monotonic() - began, Stored(store, list(snapshot.states), chunks)


def run(megabytes: int, size: int, memory: int) -> None:
    """One row."""
    keys = max(megabytes * 1_000_000 // size, 100)
    versions: Mapping[int, int] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        keyed = backend(memory, folder / "state")
        state = state_of(keyed)

        def write(some: Mapping[int, int]) -> None:
            for key, version in some.items():
                keyed.key = key
                state.update(value_of(key, version, size))

        began = time.monotonic()
        write(dict.fromkeys(range(keys), 0))
        filled = time.monotonic() - began
        _, whole, taken = checkpoint(keyed, 1, folder, None)
        parts, chosen = [], random.Random(megabytes)
        for number in (2, 3, 4):
            changed = dict.fromkeys(chosen.sample(range(keys), max(keys // 100, 1)), number)
            write(changed)
            versions = {**versions, **changed}
            at_once, took, later = checkpoint(keyed, number, folder, taken._store)
            shutil.rmtree(taken._store.folder)
            taken = later
            parts.append((at_once, took, taken._store.new / 1e6))
        keyed.close()
        keyed = backend(memory, folder / "restored")
        began = time.monotonic()
        keyed.restore([taken])
        restored = time.monotonic() - began
        state = state_of(keyed)
        for key in [*list(versions)[:1000], *chosen.sample(range(keys), min(keys, 1000))]:
            keyed.key = key
            if state.value() != value_of(key, versions.get(key, 0), size):
                raise SystemExit(f"key {key} has a wrong value")
        keyed.close()
    at_once, took = (statistics.median(part[index] for part in parts) for index in (0, 1))
    new = ", ".join(f"{part[2]:.1f}" for part in parts)
    head = f"{megabytes:<7} {keys:<9} {filled:<8.1f} {whole:<9.2f}"
    print(f"{head} {at_once * 1e3:<14.2f} {took:<7.2f} {new:<23} {restored:.2f}", flush=True)


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mb", type=int, nargs="*", default=[1, 10, 100, 1000, 10_000])
    parser.add_argument("--value", type=int, default=4000, help="bytes of a value")
    parser.add_argument("--memory", type=int, default=256 << 20, help="of the slot, bytes")
    given = parser.parse_args()
    print(HEAD, flush=True)
    for megabytes in given.mb:
        run(megabytes, given.value, given.memory)


if __name__ == "__main__":
    main()
