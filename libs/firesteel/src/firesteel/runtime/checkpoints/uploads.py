"""Writes state to the checkpoint storage: tasks hand over chunks on their loops, and one thread of the slot writes.

The storage decides where a stream ends up: a small one travels inside the acknowledgement, a larger one is a file.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from typing_extensions import override

from firesteel.checkpoint.chunks import frame
from firesteel.checkpoint.handles import InlineState, StateHandle
from firesteel.checkpoint.local_copies import link_copy
from firesteel.checkpoint.storage import StateWriter
from firesteel.core.errors import CheckpointStorageError
from firesteel.state.snapshots import SnapshotFiles, StateChunk

MOST_BYTES_AHEAD: Final = 16 << 20
"""Bytes handed over and not written yet, at which a snapshot pauses."""

_READ_AT_ONCE: Final = 1 << 20
"""Bytes of a file that are read at a time."""

Submit = Callable[[Callable[[], None]], None]
"""Runs work on the writing thread, in the order of the calls."""


OpenStream = Callable[[int, str], StateWriter]
"""Opens a stream for a checkpoint; the text is a hint for its name (``CheckpointStorage.open_state_stream``)."""


class InlineStream(StateWriter):
    """A stream in memory; all of it travels in the acknowledgement."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._parts.append(bytes(data))

    @override
    def close(self) -> StateHandle:
        return InlineState(b"".join(self._parts))

    def abort(self) -> None:
        self._parts.clear()


class Upload:
    """Writes all state of one task for one checkpoint, part by part; each part has a stream of its own.

    Args:
        checkpoint_id: id of the checkpoint.
        hint: names the task.
        open_stream: opens a stream to the checkpoint storage; called on the writing thread.
        submit: runs work on the writing thread.
        on_room: called on the writing thread when the task may go on after it had to pause.
        open_shared: opens a stream for state that later checkpoints may use too.

    Attributes:
        written: bytes handed over so far.
        files: files stored, by part and name; to be read only when everything is written.
    """

    def __init__(
        self,
        checkpoint_id: int,
        hint: str,
        open_stream: OpenStream,
        submit: Submit,
        on_room: Callable[[], None],
        open_shared: OpenStream | None = None,
    ) -> None:
        self._open_shared, self._shared = open_shared or open_stream, set[int]()
        self._checkpoint_id, self._hint, self._open_stream = checkpoint_id, hint, open_stream
        self._submit, self._on_room = submit, on_room
        self._streams: dict[int, StateWriter] = {}
        self._handles: dict[int, StateHandle] = {}
        self.files: dict[int, dict[str, StateHandle]] = {}
        self._error: BaseException | None = None
        self._discarded = self._paused = False
        self.written = 0
        self._done = 0

    # -- the task's thread

    @property
    def room(self) -> bool:
        """Whether the upload takes more now; if not, ``on_room`` will be called."""
        # Set before the comparison: if the writing thread makes room in between, it sees the pause and calls.
        self._paused = True
        self._paused = self.written - self._done > MOST_BYTES_AHEAD
        return not self._paused

    def share(self, part: int) -> None:
        """Store a part so that later checkpoints may refer to it."""
        self._shared.add(part)

    def chunks(self, part: int, chunks: Sequence[StateChunk]) -> None:
        """Append chunks to a part."""
        pieces: list[bytes] = []
        for chunk in chunks:
            pieces += frame(chunk.state, chunk.key_group, chunk.count, chunk.data)
        self.data(part, b"".join(pieces))

    def data(self, part: int, data: bytes) -> None:
        """Append bytes to a part."""
        if data:
            self.written += len(data)
            self._submit(lambda: self._guarded(lambda: self._write(part, data), len(data)))

    def write_files(self, part: int, write: Callable[[SnapshotFiles], None], known: Mapping[str, StateHandle]) -> None:
        """Store the files of a part, after its chunks.

        Args:
            part: number of the part.
            write: stores the files. It is called even if the upload was given up, because it may clean up; storing
                raises an error then.
            known: files of the checkpoint on which this one builds.
        """
        self._submit(lambda: self._write_files(part, write, known))

    def finish(self, done: Callable[[dict[int, StateHandle], BaseException | None], None]) -> None:
        """End the upload; ``done`` is called on the writing thread with the handles by part, or the first error."""

        def last() -> None:
            self._guarded(self._finish, 0)
            done(self._handles, self._error)
            if self._error is not None:
                self._drop()

        self._submit(last)

    def discard(self) -> None:
        """Give up, and abort the streams on the writing thread. Idempotent."""
        if not self._discarded:
            self._discarded = True
            self._submit(self._drop)

    # -- the writing thread

    def _guarded(self, action: Callable[[], None], size: int) -> None:
        if self._error is None and not self._discarded:
            try:
                action()
            except (
                BaseException
            ) as error:  # the storage is a plug-in: the checkpoint fails, not the task or this thread
                self._error = error
        self._done += size
        if self._paused and self.written - self._done <= MOST_BYTES_AHEAD // 2:
            self._on_room()

    def _write(self, part: int, data: bytes) -> None:
        stream = self._streams.get(part)
        if stream is None:
            make = self._open_shared if part in self._shared else self._open_stream
            stream = self._streams[part] = make(self._checkpoint_id, self._hint)
        stream.write(data)

    def _write_files(self, part: int, write: Callable[[SnapshotFiles], None], known: Mapping[str, StateHandle]) -> None:
        try:
            write(_Files(known, self.files.setdefault(part, {}), lambda path: self._put(part, path)))
        except BaseException as error:  # the backend is a plug-in, and so is the storage
            self._error = self._error or error

    def _put(self, part: int, path: str) -> StateHandle:
        """Copy a local file to the storage."""
        if self._discarded or self._error is not None:
            raise CheckpointStorageError(f"checkpoint {self._checkpoint_id} was given up: {path} is not stored")
        make = self._open_shared if part in self._shared else self._open_stream
        with make(self._checkpoint_id, self._hint) as stream, open(path, "rb") as file:
            link_copy(stream, path)
            while data := file.read(_READ_AT_ONCE):
                stream.write(data)
            return stream.close()

    def _finish(self) -> None:
        for part, stream in self._streams.items():
            self._handles[part] = stream.close()

    def _drop(self) -> None:
        for stream in self._streams.values():
            try:
                stream.abort()
            except BaseException as error:  # the file stays behind; the coordinator removes such orphans later
                self._error = self._error or error
        self._streams.clear()


class _Files(SnapshotFiles):
    """Stores the files of one part; used by a state backend, on the writing thread."""

    def __init__(
        self, known: Mapping[str, StateHandle], stored: dict[str, StateHandle], put: Callable[[str], StateHandle]
    ) -> None:
        self.known = {name: handle.size for name, handle in known.items()}
        self._handles, self._stored, self._put = known, stored, put

    def keep(self, name: str) -> None:
        self._stored[name] = self._handles[name]

    def put(self, name: str, path: str) -> None:
        self._stored[name] = self._put(path)


class UploadThread:
    """The writing thread of a slot, one for all tasks: it runs work in the order in which it was submitted.

    It starts with the first work, and nobody waits for its end.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def submit(self, work: Callable[[], None]) -> None:
        """Run work on this thread; may be called from any thread."""
        self._queue.put(work)
        if self._thread is None:
            with self._starting:  # tasks with threads of their own may call at the same time
                if self._thread is None:
                    thread = threading.Thread(target=self._run, name="firesteel-checkpoints", daemon=True)
                    thread.start()
                    self._thread = thread

    def stop(self, seconds: float) -> None:
        """End the thread after the submitted work; waits for at most this time."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(seconds)

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            work()
            del work  # it refers to a task, which would stay in memory until the next work comes
