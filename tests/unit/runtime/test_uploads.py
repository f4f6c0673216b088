"""State on its way out of the slot: one thread writes it, in order, and a snapshot that pauses is woken."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from firesteel.checkpoint.handles import InlineState, StateHandle
from firesteel.checkpoint.storage import StateWriter
from firesteel.core.errors import CheckpointStorageError
from firesteel.runtime.checkpoints.uploads import MOST_BYTES_AHEAD, InlineStream, Upload, UploadThread
from firesteel.state.snapshots import SnapshotFiles


def test_tasks_that_submit_at_the_same_time_share_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the thread is made for the first piece, another task comes with the second."""
    threads: list[threading.Thread] = []
    writer, wrote = UploadThread(), list[str]()
    real = threading.Thread
    second_has_come = threading.Event()

    def second() -> None:
        second_has_come.set()
        writer.submit(lambda: wrote.append("second"))

    other = real(target=second)

    def make(**arguments: Any) -> threading.Thread:
        threads.append(real(**arguments))
        if len(threads) == 1:
            other.start()
            assert second_has_come.wait(10)
            other.join(0.05)  # done if nobody holds it up
        return threads[-1]

    monkeypatch.setattr(threading, "Thread", make)
    writer.submit(lambda: wrote.append("first"))
    other.join(10)
    writer.stop(10)
    for thread in threads[1:]:
        writer.submit(lambda: None)
        writer._queue.put(None)
        thread.join(10)
    assert len(threads) == 1
    assert wrote == ["first", "second"]


class Interleaved(Upload):
    """When ``between`` is set all that was submitted is written right after the task has read how much is done."""

    def __init__(self, on_room: Callable[[], None]) -> None:
        self.work: list[Callable[[], None]] = []
        self.done, self.between = 0, False
        super().__init__(1, "task", lambda checkpoint_id, hint: InlineStream(), self.work.append, on_room)

    @property
    def _done(self) -> int:
        done = self.done
        if self.between:
            self.between = False
            while self.work:
                self.work.pop(0)()
        return done

    @_done.setter
    def _done(self, amount: int) -> None:
        self.done = amount


def test_room_that_comes_while_the_task_looks_is_told() -> None:
    wake_ups: list[bool] = []
    upload = Interleaved(lambda: wake_ups.append(True))
    upload.data(0, bytes(MOST_BYTES_AHEAD + 1))
    upload.between = True
    assert not upload.room
    assert wake_ups, "all is written, and nobody wakes the task"
    assert upload.room


@pytest.mark.parametrize("error", [OSError("disk"), SystemExit(3), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("where", ["write", "close"])
def test_whatever_a_storage_raises_fails_the_checkpoint_and_the_thread_goes_on(
    where: str, error: BaseException
) -> None:
    class Broken(StateWriter):
        def write(self, data: bytes | bytearray | memoryview) -> None:
            if where == "write":
                raise error

        def close(self) -> StateHandle:
            raise error

        def abort(self) -> None:
            raise error

    writer = UploadThread()
    results: list[Any] = []
    both = threading.Semaphore(0)

    def done(handles: dict[int, StateHandle], raised: BaseException | None) -> None:
        results.append((handles, raised))
        both.release()

    for stream in (Broken(), InlineStream()):
        upload = Upload(1, "task", lambda checkpoint_id, hint, stream=stream: stream, writer.submit, lambda: None)  # type: ignore[misc]
        upload.data(0, b"state")
        upload.finish(done)
    assert both.acquire(timeout=10)
    assert both.acquire(timeout=10)
    writer.stop(10)
    assert results[0] == ({}, error)
    assert results[1] == ({0: InlineState(b"state")}, None)


def _note_error(ends: list[BaseException | None], handles: Any, error: BaseException | None) -> None:
    ends.append(error)


def test_files_are_stored_or_kept_and_discarded_ones_are_not(tmp_path: Path) -> None:
    """The backend is called in any case: it may have to tidy up."""
    (tmp_path / "new").write_bytes(b"new")
    known: dict[str, StateHandle] = {"old": InlineState(b"old")}
    seen: list[Any] = []

    def write(files: SnapshotFiles) -> None:
        seen.append(dict(files.known))
        files.keep("old")
        files.put("new", str(tmp_path / "new"))
        seen.append("done")

    for discarded in (False, True):
        work: list[Callable[[], None]] = []
        upload = Upload(1, "task", lambda checkpoint_id, hint: InlineStream(), work.append, lambda: None)
        upload.write_files(3, write, known)
        ends: list[BaseException | None] = []
        upload.finish(partial(_note_error, ends))
        if discarded:
            upload.discard()
        while work:
            work.pop(0)()
        if discarded:
            assert isinstance(ends[0], CheckpointStorageError)
            assert seen[2:] == [{"old": 3}], "the file was stored for nobody"
        else:
            assert ends == [None]
            assert upload.files == {3: {"old": InlineState(b"old"), "new": InlineState(b"new")}}
            assert seen == [{"old": 3}, "done"]
