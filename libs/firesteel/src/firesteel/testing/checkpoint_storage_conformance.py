"""Tests a checkpoint storage against its contract (``firesteel.checkpoint.storage``)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from firesteel.checkpoint.handles import FileState, StateHandle, checksum
from firesteel.checkpoint.storage import CheckpointStorage
from firesteel.core.errors import CheckpointCorruptedError, CheckpointError, CheckpointStorageError
from firesteel.testing.rules import require, require_raises, require_returns

_SMALL, _LARGE = b"small state", bytes(range(256)) * 1024
_THREADS = 4


def check_checkpoint_storage(make_storage: Callable[[], CheckpointStorage], *, large: bytes = _LARGE) -> None:
    """Write, read, repeat, damage and remove; at the end nothing of the job must be left.

    Args:
        make_storage: makes a new storage object for the same job, as the JobMaster, slots, and a later JobMaster do. A
            storage that is not persistent may return the same object each time.
        large: state that is large enough to be written to a file, if the storage has files.

    Raises:
        AssertionError: the message says which rule is broken.
    """
    storage, slot = make_storage(), make_storage()
    storage.prepare(1)
    storage.prepare(1)
    handles = _write_state(slot, large)
    _read_state(make_storage(), handles, large)
    _abort(slot, large)
    _never_share(slot, large)
    location = _metadata(storage, make_storage)
    _damage(storage, handles)
    _discard(storage, slot, handles, large)
    _sparing(storage, slot, large)
    _left_behind(storage, make_storage)
    _dispose(storage, handles, location)
    _end(storage, make_storage)


def _write_state(slot: CheckpointStorage, large: bytes) -> list[StateHandle]:
    handles = []
    for data in (b"", _SMALL, large):
        with slot.open_state_stream(1, "conformance") as writer:
            for start in range(0, len(data), 10_000):
                writer.write(memoryview(data)[start : start + 10_000])
            handles.append(writer.close())
        require(handles[-1].size == len(data), f"the handle of {len(data)} bytes says {handles[-1].size}")
        require_raises(CheckpointStorageError, lambda: writer.write(b"x"), "write() after close()")
    return handles


def _read_state(reader: CheckpointStorage, handles: list[StateHandle], large: bytes) -> None:
    for handle, data in zip(handles, (b"", _SMALL, large), strict=True):
        require(reader.read_state(handle) == data, f"read_state() gives something else for {len(data)} bytes")
        with reader.open_state(handle) as stream:
            stream.seek(len(data) // 2)
            require(stream.read() == data[len(data) // 2 :], "open_state() gives something else behind a seek()")
        if isinstance(handle, FileState) and len(data) > 20:
            part = FileState(handle.path, 5, checksum(data[7:12]), handle.offset + 7)
            require(reader.read_state(part) == data[7:12], "a handle with an offset gives other bytes")
            with reader.open_state(part) as stream:
                require(stream.read(100) == data[7:12], "open_state() reads beyond the end of a handle")
    reader.verify(handles)


def _abort(slot: CheckpointStorage, large: bytes) -> None:
    writer = slot.open_state_stream(1, "aborted")
    writer.write(large)
    writer.abort()
    writer.abort()
    require_raises(CheckpointStorageError, writer.close, "close() after abort()")


def _never_share(slot: CheckpointStorage, large: bytes) -> None:
    """Check that streams of several threads with one hint never share a file."""
    handle_of_thread: dict[int, StateHandle] = {}

    def write(number: int) -> None:
        with slot.open_state_stream(1, "shared") as writer:
            writer.write(large)
            writer.write(bytes([number]))
            handle_of_thread[number] = writer.close()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    require(len(handle_of_thread) == _THREADS, "several threads can't write at once")
    for number, handle in handle_of_thread.items():
        require(slot.read_state(handle) == large + bytes([number]), "two streams have shared a file")


def _metadata(storage: CheckpointStorage, make_storage: Callable[[], CheckpointStorage]) -> str:
    location = storage.write_metadata(1, b"metadata of 1")
    require(storage.write_metadata(1, b"metadata of 1") == location, "a repeat gives another location")
    require_raises(CheckpointStorageError, lambda: storage.write_metadata(1, b"others"), "write_metadata() over others")
    reader = make_storage() if storage.persistent else storage
    require(reader.read_metadata(location)[1] == b"metadata of 1", "read_metadata() gives something else")
    missing = "991".join(location.rsplit("1", 1))
    require_raises(CheckpointCorruptedError, lambda: reader.read_metadata(missing), "read_metadata() of nothing")
    return location


def _damage(storage: CheckpointStorage, handles: list[StateHandle]) -> None:
    for handle in handles:
        if isinstance(handle, FileState):
            longer = replace(handle, length=handle.length + 1)
            require_raises(CheckpointCorruptedError, lambda: storage.read_state(longer), "state that is too short")  # noqa: B023
            require_raises(CheckpointCorruptedError, lambda: storage.verify([longer]), "verify() of too short state")  # noqa: B023
            changed = replace(handle, checksum=checksum(b"other"))
            require_raises(CheckpointCorruptedError, lambda: storage.read_state(changed), "state that was changed")  # noqa: B023
            missing = replace(handle, path=f"{handle.path}-gone")
            require_raises(CheckpointCorruptedError, lambda: storage.read_state(missing), "a missing file")  # noqa: B023
            require_raises(CheckpointCorruptedError, lambda: storage.verify([missing]), "verify() of a missing file")  # noqa: B023


def _discard(storage: CheckpointStorage, slot: CheckpointStorage, handles: list[StateHandle], large: bytes) -> None:
    storage.prepare(2)
    with slot.open_state_stream(2, "given up") as writer:
        writer.write(large)
        written = writer.close()
    late = slot.open_state_stream(2, "late")
    storage.discard(2, _paths([written]))
    storage.discard(2, _paths([written]))
    if isinstance(written, FileState):
        require_raises(CheckpointError, lambda: slot.read_state(written), "state of a discarded checkpoint")

        def write_late() -> None:
            late.write(large)
            late.close()

        require_raises(CheckpointStorageError, write_late, "a stream of a discarded checkpoint")
    late.abort()
    require_returns(lambda: storage.verify(handles), "discard() removes files of another checkpoint")


def _sparing(storage: CheckpointStorage, slot: CheckpointStorage, large: bytes) -> None:
    """Check that files of a removed checkpoint stay if another checkpoint needs them."""
    storage.prepare(4)
    with slot.open_state_stream(4, "needed") as writer:
        writer.write(large)
        needed = writer.close()
    with slot.open_state_stream(4, "of no use") as writer:
        writer.write(large)
        unneeded = writer.close()
    for _ in range(2):
        storage.discard(4, _paths([needed, unneeded]), _paths([needed]))
        require_returns(lambda: storage.verify([needed]), "discard() removes a file that is to be kept")
    if isinstance(unneeded, FileState):
        require_raises(
            CheckpointCorruptedError, lambda: storage.verify([unneeded]), "verify() of a file that nobody needs"
        )
    storage.prepare(5)
    location = storage.write_metadata(5, b"metadata of 5, which needs a file of 4")
    if storage.persistent:
        storage.close_job(_paths([needed]))
        require_returns(lambda: storage.verify([needed]), "close_job() removes a file that is to be kept")
    storage.dispose(location, _paths([needed]))
    if isinstance(needed, FileState):
        require_raises(CheckpointCorruptedError, lambda: storage.verify([needed]), "verify() of a file of 4")


def _left_behind(storage: CheckpointStorage, make_storage: Callable[[], CheckpointStorage]) -> None:
    """Check that ``left_behind`` lists all checkpoints, or none."""
    entry_of_checkpoint = {id_: (location, data) for id_, location, data in make_storage().left_behind(7)}
    if entry_of_checkpoint:
        require(
            set(entry_of_checkpoint) == {1}, f"left_behind() names {sorted(entry_of_checkpoint)} where only 1 is there"
        )
        location, data = entry_of_checkpoint[1]
        require(data == b"metadata of 1", "left_behind() gives other metadata")
        require(make_storage().read_metadata(location)[1] == data, "left_behind() gives another location")
        storage.prepare(6)
        entries = [(id_, data) for id_, _, data in make_storage().left_behind(7)]
        require((6, None) in entries, "left_behind() does not name what has no metadata")
        require(make_storage().left_behind(1) == [], "left_behind() minds no bound")
        orphan = _shared(storage, 6)
        if orphan is not None:
            storage.discard(6, (), [orphan.path])
            require_returns(lambda: storage.verify([orphan]), "discard() removes a shared file that is to be kept")
            entries = [(id_, data) for id_, _, data in make_storage().left_behind(7)]
            require((6, None) in entries, "left_behind() does not name what has only a shared file")
        storage.discard(6)
        if orphan is not None:
            require_raises(
                CheckpointCorruptedError, lambda: storage.verify([orphan]), "verify() of a shared file of nobody"
            )
        require({id_ for id_, _, _ in make_storage().left_behind(7)} == {1}, "discard() leaves something behind")


def _shared(storage: CheckpointStorage, checkpoint_id: int) -> FileState | None:
    """Write state that several checkpoints may use; None if the storage has none, or not in a file."""
    writer = storage.open_shared_stream(checkpoint_id, "shared")
    if writer is None:
        return None
    with writer:
        writer.write(_LARGE)
        handle = writer.close()
    return handle if isinstance(handle, FileState) else None


def _dispose(storage: CheckpointStorage, handles: list[StateHandle], location: str) -> None:
    files = _paths(handles)
    storage.dispose(location, files, keep=files)
    require_raises(
        CheckpointCorruptedError, lambda: storage.read_metadata(location), "metadata of a disposed checkpoint"
    )
    require_returns(lambda: storage.verify(handles), "dispose() removes files that are to be kept")
    storage.dispose(location, files)
    storage.dispose(location, files)
    for handle in handles:
        if isinstance(handle, FileState):
            require_raises(CheckpointError, lambda: storage.read_state(handle), "state of a disposed checkpoint")  # noqa: B023


def _end(storage: CheckpointStorage, make_storage: Callable[[], CheckpointStorage]) -> None:
    storage.prepare(3)
    location = storage.write_metadata(3, b"metadata of 3")
    if storage.persistent:
        storage.close_job()
        require(make_storage().read_metadata(location)[1] == b"metadata of 3", "close_job() removes a checkpoint")
    storage.dispose(location, ())
    storage.close_job()
    storage.close_job()
    require_raises(CheckpointCorruptedError, lambda: storage.read_metadata(location), "metadata after close_job()")


def _paths(handles: list[StateHandle]) -> set[str]:
    return {handle.path for handle in handles if isinstance(handle, FileState)}
