"""A state backend whose snapshots are files: what the contract promises to such a one is tried out with it."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from firesteel.checkpoint.chunks import read_chunks, write_chunks
from firesteel.state.backend import KeyedStateParameters
from firesteel.state.heap import HeapKeyedState, HeapStateBackend
from firesteel.state.snapshots import (
    NO_CHECKPOINT,
    KeyedSnapshot,
    Purpose,
    SnapshotFiles,
    StateChunk,
    StateInfo,
    WrittenState,
)

MANIFEST = "MANIFEST"
DONE: Counter[str] = Counter()
"""How many files were put, kept and fetched."""


class FileSnapshot(KeyedSnapshot):
    """A file for each state, named by what is in it, and one that names them."""

    has_files = True

    def __init__(self, inner: KeyedSnapshot, directory: Path, shared: bool) -> None:
        self.states, self.shared = inner.states, shared
        self._inner, self._directory = inner, directory
        self._chunks: list[StateChunk] = []

    def __next__(self) -> list[StateChunk]:
        self._chunks += next(self._inner)
        return []

    def write_files(self, files: SnapshotFiles) -> None:
        names: dict[str, str] = {}
        folder = self._directory / "written"
        folder.mkdir(parents=True)
        try:
            for number, info in enumerate(self.states):
                own = [chunk for chunk in self._chunks if chunk.state == number]
                data = write_chunks([(chunk.state, chunk.key_group, chunk.count, chunk.data) for chunk in own])
                names[str(number)] = name = f"{info.kind}-{number}-{hashlib.sha256(data).hexdigest()[:20]}"
                if name in files.known:
                    assert files.known[name] == len(data)
                    files.keep(name)
                    DONE["kept"] += 1
                else:
                    self._put(files, folder, name, data)
            self._put(files, folder, MANIFEST, json.dumps(names).encode())
        finally:
            shutil.rmtree(folder)

    def _put(self, files: SnapshotFiles, folder: Path, name: str, data: bytes) -> None:
        (folder / name).write_bytes(data)
        files.put(name, str(folder / name))
        DONE["put"] += 1

    def close(self) -> None:
        self._inner.close()


class _Fetched(WrittenState):
    """Chunks out of files."""

    files: dict[str, int] = {}

    def __init__(self, written: WrittenState, folder: Path) -> None:
        self.states: Sequence[StateInfo] = written.states
        self.key_groups = written.key_groups
        self._written, self._folder = written, folder

    def chunks(self) -> Iterator[StateChunk]:
        if not self._written.files:  # another backend has written them
            yield from self._written.chunks()
            return
        self._folder.mkdir(parents=True)
        for name in self._written.files:
            self._written.fetch(name, str(self._folder / name))
            DONE["fetched"] += 1
        for name in json.loads((self._folder / MANIFEST).read_text()).values():
            for chunk in read_chunks(io.BytesIO((self._folder / name).read_bytes()), name):
                yield StateChunk(*chunk)

    def fetch(self, name: str, path: str) -> None:
        raise AssertionError("it has no files any more")


class FileKeyedState(HeapKeyedState):
    def __init__(self, parameters: KeyedStateParameters) -> None:
        super().__init__(parameters)
        self._directory = Path(parameters.directory)

    def snapshot(self, slice_seconds: float = 0.002, purpose: Purpose = NO_CHECKPOINT) -> Any:
        if purpose.canonical:
            return super().snapshot(slice_seconds, purpose)
        return FileSnapshot(super().snapshot(slice_seconds), self._directory, purpose.shares)

    def restore(self, written: Sequence[WrittenState]) -> None:
        known = [state for state in written if not state.files or MANIFEST in state.files]
        others = [state for state in written if state not in known]
        super().restore(
            [*others, *(_Fetched(state, self._directory / f"from-{number}") for number, state in enumerate(known))]
        )

    def close(self) -> None:
        super().close()
        shutil.rmtree(self._directory, ignore_errors=True)


class FileBackend(HeapStateBackend):
    name = "files"

    def create_keyed_state(self, parameters: KeyedStateParameters) -> HeapKeyedState:
        return FileKeyedState(parameters)
