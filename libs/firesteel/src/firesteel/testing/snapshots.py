"""Takes snapshots as the runtime does, but into memory: for kits and tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from firesteel.state.snapshots import SEVERAL, KeyedSnapshot, SnapshotFiles, StateChunk, StateInfo, WrittenState


class SnapshotContents:
    """The snapshot of a state backend, as a checkpoint stores it.

    Args:
        states: descriptions of the states.
        chunks: the chunks, in their order.
        files: contents of files, by name.
        key_groups: key groups of the subtask that wrote it.
    """

    def __init__(
        self,
        states: Sequence[StateInfo],
        chunks: Sequence[StateChunk],
        files: Mapping[str, bytes] | None = None,
        key_groups: range = range(1),
    ) -> None:
        self.states = [StateInfo.from_json(info.to_json()) for info in states]
        self.chunks, self.files, self.key_groups = list(chunks), dict(files or {}), key_groups

    def of(self, key_groups: range) -> WrittenState:
        """Return the snapshot as a subtask with these key groups gets it."""
        return _Handle(self, key_groups)


class _Handle(WrittenState):
    def __init__(self, contents: SnapshotContents, key_groups: range) -> None:
        self._contents, self._own_groups = contents, key_groups
        self.states, self.key_groups = contents.states, contents.key_groups
        self.files = {name: len(data) for name, data in contents.files.items()}

    def chunks(self) -> Iterator[StateChunk]:
        own_groups, written = self._own_groups, self.key_groups
        all_own = written.start >= own_groups.start and written.stop <= own_groups.stop
        for chunk in self._contents.chunks:
            if chunk.key_group == SEVERAL:
                yield replace(chunk, key_group=own_groups.start) if all_own else chunk
            elif chunk.key_group in own_groups:
                yield chunk

    def fetch(self, name: str, path: str) -> None:
        with open(path, "xb") as file:
            file.write(self._contents.files[name])


class _Files(SnapshotFiles):
    def __init__(self, base_files: Mapping[str, bytes]) -> None:
        self._base_files, self.stored = base_files, dict[str, bytes]()
        self.known = {name: len(data) for name, data in base_files.items()}

    def keep(self, name: str) -> None:
        self.stored[name] = self._base_files[name]

    def put(self, name: str, path: str) -> None:
        self.stored[name] = Path(path).read_bytes()


class RunningSnapshot:
    """A snapshot that is being taken.

    Args:
        snapshot: the backend's snapshot, which has just begun.
        key_groups: key groups of the backend.
        base: the stored snapshot that it may build on.
    """

    def __init__(
        self, snapshot: KeyedSnapshot, key_groups: range = range(1), base: SnapshotContents | None = None
    ) -> None:
        self.snapshot, self._key_groups, self._base = snapshot, key_groups, base
        self._chunks: list[StateChunk] = []

    def step(self) -> SnapshotContents | None:
        """Take the next slice; return the contents of the whole snapshot if it was the last one, else None."""
        chunks = next(self.snapshot, None)
        if chunks is not None:
            self._chunks += chunks
            return None
        self.snapshot.close()
        files = _Files({} if self._base is None else self._base.files)
        if self.snapshot.has_files:
            self.snapshot.write_files(files)
        base_chunks = []
        if self.snapshot.base is not None:
            assert self._base is not None, "the snapshot builds on one that it was not given"
            base_chunks = self._base.chunks
        return SnapshotContents(self.snapshot.states, [*base_chunks, *self._chunks], files.stored, self._key_groups)

    def rest(self, between: Callable[[], None] = lambda: None) -> SnapshotContents:
        """Take the remaining slices, calling ``between`` after each but the last; return the contents."""
        while (contents := self.step()) is None:
            between()
        return contents


def take_snapshot(
    snapshot: KeyedSnapshot, key_groups: range = range(1), base: SnapshotContents | None = None
) -> SnapshotContents:
    """Take a whole snapshot, and return its contents."""
    return RunningSnapshot(snapshot, key_groups, base).rest()
