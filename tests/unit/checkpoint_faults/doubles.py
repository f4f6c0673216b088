"""Storages, stores and file systems that do not do what they should."""

from __future__ import annotations

import builtins
import errno
import io
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from unittest import mock

from firesteel.checkpoint.handles import FileState, StateHandle
from firesteel.checkpoint.storage import CheckpointStorage, StateWriter
from firesteel.checkpoint.store import CompletedCheckpointStore, StoredCheckpoint
from firesteel.core.errors import CheckpointStorageError

BEFORE, AFTER, HALF = "before", "after", "half"
"""It is not done; it is done and there is no answer; a part of it is done."""


class Faults:
    """Counts operations, and says which of them fail.

    Attributes:
        wrong: numbers, from 0.
        how: ``BEFORE``, ``AFTER`` or ``HALF``.
        seen: names of the operations so far.
        happened: names of those that failed.
    """

    def __init__(self, wrong: Collection[int] = (), how: str = BEFORE) -> None:
        self.wrong, self.how = wrong, how
        self.seen: list[str] = []
        self.happened: list[str] = []

    def next(self, name: str) -> bool:
        """Whether this one fails."""
        self.seen.append(name)
        fails = len(self.seen) - 1 in self.wrong
        if fails:
            self.happened.append(name)
        return fails

    def call(self, name: str, action: Callable[[], Any], half: Callable[[], Any] = lambda: None) -> Any:
        """Do it, or not."""
        if not self.next(name):
            return action()
        if self.how == AFTER:
            action()
        elif self.how == HALF:
            half()
        raise CheckpointStorageError(f"{name}: no answer, by a test")


class FaultyWriter(StateWriter):
    def __init__(self, inner: StateWriter, storage: FaultyStorage) -> None:
        self._inner, self._storage, self._faults = inner, storage, storage.faults

    def write(self, data: bytes | bytearray | memoryview) -> None:
        half = memoryview(data)[: len(data) // 2]
        self._faults.call("write", lambda: self._inner.write(data), lambda: self._inner.write(half))

    def close(self) -> StateHandle:
        handle: StateHandle = self._faults.call("close", self._inner.close)
        if isinstance(handle, FileState) and self._storage.lie is not None:
            self._storage.lie(Path(handle.path))
        return handle

    def abort(self) -> None:
        self._faults.call("abort", self._inner.abort)


class FaultyStorage(CheckpointStorage):
    """A storage between which and its user things go wrong.

    Args:
        inner: the storage.
        faults: what fails.
        lie: done to each file of state when it is said to be written.
    """

    name = "faulty"

    def __init__(
        self, inner: CheckpointStorage, faults: Faults | None = None, lie: Callable[[Path], None] | None = None
    ) -> None:
        self.inner, self.faults, self.lie = inner, faults or Faults(), lie

    @property
    def persistent(self) -> bool:
        return self.inner.persistent

    def open_state_stream(self, checkpoint_id: int, hint: str = "") -> StateWriter:
        return FaultyWriter(
            self.faults.call("open_state_stream", lambda: self.inner.open_state_stream(checkpoint_id, hint)), self
        )

    def open_state(self, handle: StateHandle) -> BinaryIO:
        return self.faults.call("open_state", lambda: self.inner.open_state(handle))  # type: ignore[no-any-return]

    def prepare(self, checkpoint_id: int) -> None:
        self.faults.call("prepare", lambda: self.inner.prepare(checkpoint_id))

    def verify(self, handles: Iterable[StateHandle]) -> None:
        self.faults.call("verify", lambda: self.inner.verify(handles))

    def write_metadata(self, checkpoint_id: int, data: bytes) -> str:
        return self.faults.call("write_metadata", lambda: self.inner.write_metadata(checkpoint_id, data))  # type: ignore[no-any-return]

    def read_metadata(self, location: str) -> tuple[str, bytes]:
        return self.faults.call("read_metadata", lambda: self.inner.read_metadata(location))  # type: ignore[no-any-return]

    def left_behind(self, below: int) -> list[tuple[int, str, bytes | None]]:
        return self.faults.call("left_behind", lambda: self.inner.left_behind(below))  # type: ignore[no-any-return]

    def discard(self, checkpoint_id: int, files: Collection[str] = (), keep: Collection[str] = ()) -> None:
        self.faults.call("discard", lambda: self.inner.discard(checkpoint_id, files, keep))

    def dispose(self, location: str, files: Collection[str], keep: Collection[str] = ()) -> None:
        def half() -> None:
            Path(location).unlink()

        self.faults.call("dispose", lambda: self.inner.dispose(location, files, keep), half)

    def close_job(self, keep: Collection[str] = ()) -> None:
        self.faults.call("close_job", lambda: self.inner.close_job(keep))


class FaultyStore(CompletedCheckpointStore):
    """The same for a store of completed checkpoints."""

    def __init__(self, inner: CompletedCheckpointStore, faults: Faults) -> None:
        self.inner, self.faults = inner, faults

    def next_id(self, above: int = 0) -> int:
        return self.faults.call("next_id", lambda: self.inner.next_id(above))  # type: ignore[no-any-return]

    def add(self, checkpoint: StoredCheckpoint) -> None:
        self.faults.call("add", lambda: self.inner.add(checkpoint))

    def remove(self, checkpoint_id: int) -> None:
        self.faults.call("remove", lambda: self.inner.remove(checkpoint_id))

    def all(self) -> list[StoredCheckpoint]:
        return self.faults.call("all", self.inner.all)  # type: ignore[no-any-return]

    @property
    def damaged(self) -> tuple[str, ...]:
        return self.inner.damaged

    def clear(self) -> None:
        self.faults.call("clear", self.inner.clear)


_OF_PATHS = ("open", "stat", "mkdir", "unlink", "replace", "rename", "rmdir", "listdir", "link")


@contextmanager
def system_faults(directory: Path, faults: Faults, number: int) -> Iterator[None]:
    """Calls of the system about this directory are counted, and some fail with this ``errno``."""

    def fail(name: str, path: Any) -> None:
        if faults.next(name):
            raise OSError(number, os.strerror(number), str(path))

    def of_path(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *arguments: Any, **named: Any) -> Any:
            if isinstance(path, str | os.PathLike) and os.fspath(path).startswith(str(directory)):
                fail(name, path)
            return original(path, *arguments, **named)

        return call

    fsync = os.fsync

    def sync(handle: int) -> None:
        path = os.readlink(f"/proc/self/fd/{handle}")
        if path.startswith(str(directory)):
            fail("fsync", path)
        fsync(handle)

    class File(io.FileIO):
        def __init__(self, path: Any, *arguments: Any, **named: Any) -> None:
            if str(path).startswith(str(directory)):
                fail("create", path)
            super().__init__(path, *arguments, **named)

        def write(self, data: Any) -> int:
            with memoryview(data).cast("B") as view:
                if faults.next("write"):
                    if number == errno.ENOSPC and len(view) > 1:
                        super().write(view[: len(view) // 2])
                    raise OSError(number, os.strerror(number))
                return super().write(view)

    patches: list[Any] = [mock.patch.object(os, name, of_path(name, getattr(os, name))) for name in _OF_PATHS]
    opened = of_path("open file", builtins.open)
    patches += [
        mock.patch.object(os, "fsync", sync),
        mock.patch.object(builtins, "open", opened),
        mock.patch.object(io, "open", opened),
        mock.patch.object(io, "FileIO", File),
    ]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in reversed(patches):
            patch.stop()
