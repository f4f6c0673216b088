"""Snapshots as the runtime takes them, in memory: for kits and tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from firesteel.state.snapshots import SEVERAL, KeyedSnapshot, SnapshotFiles, StateChunk, StateInfo, WrittenState


class Taken:
    """What a checkpoint has of a state backend.

    Args:
        states: descriptions.
        chunks: in order.
        files: contents by name.
        key_groups: of the subtask that wrote it.
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

    def of(self, own: range) -> WrittenState:
        """As a subtask gets it that owns these key groups."""
        return _Handle(self, own)


class _Handle(WrittenState):
    def __init__(self, taken: Taken, own: range) -> None:
        self._taken, self._own = taken, own
        self.states, self.key_groups = taken.states, taken.key_groups
        self.files = {name: len(data) for name, data in taken.files.items()}

    def chunks(self) -> Iterator[StateChunk]:
        own, theirs = self._own, self.key_groups
        all_own = theirs.start >= own.start and theirs.stop <= own.stop
        for chunk in self._taken.chunks:
            if chunk.key_group == SEVERAL:
                yield replace(chunk, key_group=own.start) if all_own else chunk
            elif chunk.key_group in own:
                yield chunk

    def fetch(self, name: str, path: str) -> None:
        with open(path, "xb") as file:
            file.write(self._taken.files[name])


class _Files(SnapshotFiles):
    def __init__(self, before: Mapping[str, bytes]) -> None:
        self._before, self.stored = before, dict[str, bytes]()
        self.known = {name: len(data) for name, data in before.items()}

    def keep(self, name: str) -> None:
        self.stored[name] = self._before[name]

    def put(self, name: str, path: str) -> None:
        self.stored[name] = Path(path).read_bytes()


class Taking:
    """A snapshot that is being taken.

    Args:
        snapshot: has just begun.
        key_groups: of the backend.
        base: what the checkpoint has that it may build on.
    """

    def __init__(self, snapshot: KeyedSnapshot, key_groups: range = range(1), base: Taken | None = None) -> None:
        self.snapshot, self._key_groups, self._base = snapshot, key_groups, base
        self._chunks: list[StateChunk] = []

    def step(self) -> Taken | None:
        """The next slice; what was taken if that was the last one."""
        chunks = next(self.snapshot, None)
        if chunks is not None:
            self._chunks += chunks
            return None
        self.snapshot.close()
        files = _Files({} if self._base is None else self._base.files)
        if self.snapshot.has_files:
            self.snapshot.write_files(files)
        before = []
        if self.snapshot.base is not None:
            assert self._base is not None, "the snapshot builds on one that it was not told of"
            before = self._base.chunks
        return Taken(self.snapshot.states, [*before, *self._chunks], files.stored, self._key_groups)

    def rest(self, between: Callable[[], None] = lambda: None) -> Taken:
        """Take all slices that are left; with something to do between two."""
        while (taken := self.step()) is None:
            between()
        return taken


def take(snapshot: KeyedSnapshot, key_groups: range = range(1), base: Taken | None = None) -> Taken:
    """Take a snapshot at once."""
    return Taking(snapshot, key_groups, base).rest()
