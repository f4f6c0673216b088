"""The input of a source task: drives a reader. Runs on the task's loop; a reader on asyncio has a thread of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from firesteel.core.clock import Clock
from firesteel.core.errors import ProgramError
from firesteel.functions.source import (
    END,
    AsyncSourceReader,
    End,
    NeedSplits,
    Plain,
    ReaderContext,
    Source,
    SourceBatch,
    SourceReader,
    Split,
    Wait,
)
from firesteel.runtime.batch import END_OF_INPUT, EndOfInput
from firesteel.runtime.context import TaskInfo
from firesteel.runtime.exchange.sizes import values_bytes
from firesteel.runtime.interrupts import CancelToken, Guard
from firesteel.runtime.loop import Handle, TaskLoop
from firesteel.runtime.operators.base import UserCode
from firesteel.runtime.rows import to_records

TARGET_SECONDS: Final = 0.002
SMALLEST_POLL: Final = 64
BATCH_BYTES: Final = 1024 * 1024
"""About so many bytes are read at once; one record that is larger passes alone."""
_SAMPLED: Final = 16
ASK_AGAIN_SECONDS: Final = 0.5
"""After an answer without splits that promised more."""
HAND_OVER: Final = 2
"""Batches that a reader on asyncio may be ahead, as in Flink."""
_now = time.perf_counter


class Fed(NamedTuple):
    """A batch for the chain."""

    values: list[Any]
    timestamps: list[int] | None
    input_index: int


class TaskReaderContext(ReaderContext):
    """What a reader may ask."""

    def __init__(self, info: TaskInfo, clock: Clock, wake_up: Callable[[], None]) -> None:
        self._info, self._clock, self._wake_up = info, clock, wake_up

    @property
    def subtask_index(self) -> int:
        """From 0."""
        return self._info.subtask

    @property
    def parallelism(self) -> int:
        """Number of subtasks of the source."""
        return self._info.parallelism

    def monotonic(self) -> float:
        """Seconds of the clock."""
        return self._clock.monotonic()

    def wake_up(self) -> None:
        """Poll again soon; from any thread."""
        self._wake_up()


class SourceInput(UserCode):
    """Polls a reader and asks for splits.

    The reader is made at once; ``run_on`` must be called before ``open``.

    Args:
        name: of the source operator.
        source: makes the reader.
        info: of the subtask.
        clock: for the reader.
        request_splits: asks the JobMaster, through the control channel.
        on_readable: called on the loop when ``poll`` may give something again.
        max_records: most records in a batch.

    Attributes:
        positions: split id -> position behind the last record that was handed to the chain; unfinished splits only.
    """

    bytes_in = 0

    def __init__(
        self,
        name: str,
        source: Source[Any],
        info: TaskInfo,
        clock: Clock,
        token: CancelToken,
        request_splits: Callable[[], None],
        on_readable: Callable[[], None],
        max_records: int,
    ) -> None:
        self.name = name
        self.positions: dict[str, Plain] = {}
        self._token = token
        self._loop: TaskLoop | None = None
        self._guard = Guard()
        self._request_splits, self._on_readable = request_splits, on_readable
        self._max = max_records
        self._count = min(SMALLEST_POLL, max_records)
        self._type = source.produced_type()
        self._ready = True
        self._asked = False
        self._no_more = False
        self._ended = False
        self._closed = False
        self._timer: Handle | None = None
        context = TaskReaderContext(info, clock, lambda: self._post(self._wake))
        self._reader: SourceReader[Any] | AsyncSourceReader[Any] = source.create_reader(context)
        self._async: _AsyncPolls | None = None

    @property
    def blocking(self) -> bool:
        """The reader may wait for long in ``poll``."""
        return bool(getattr(self._reader, "blocking", False))

    def run_on(self, loop: TaskLoop, guard: Guard) -> None:
        """The loop and thread that all other calls come from; before ``open``."""
        self._loop, self._guard = loop, guard

    def _post(self, callback: Callable[[], None]) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(callback)

    def open(self) -> None:
        """Open the reader."""
        if isinstance(self._reader, AsyncSourceReader):
            self._async = _AsyncPolls(self._reader, self._max, lambda: self._post(self._available), self.name)
            self._async.start()
        else:
            self._reader.open()

    def poll(self) -> Fed | EndOfInput | None:
        """The next batch, the end, or None: nothing now."""
        while self._ready and not self._ended:
            answer = self._ask()
            if isinstance(answer, SourceBatch):
                if answer.split_finished:
                    self.positions.pop(answer.split_id, None)
                else:
                    self.positions[answer.split_id] = answer.position
                records = to_records(answer.values, self._type)
                if records:
                    return Fed(records, answer.timestamps, 0)
            elif isinstance(answer, End):
                self._ended = True
                return END_OF_INPUT
            elif isinstance(answer, NeedSplits):
                self._ready = self._async is not None  # further answers may be there already
                self._need_splits()
            elif isinstance(answer, Wait):
                self._ready = False
                if answer.seconds is not None:
                    self._call_after(max(0.0, answer.seconds))
            elif answer is None:
                self._ready = False
            else:
                raise ProgramError(
                    f"poll() of {type(self._reader).__name__} returned {type(answer).__name__}; it has to return a "
                    "SourceBatch, Wait, NEED_SPLITS or END"
                )
        return None

    def _ask(self) -> Any:
        if self._async is not None:
            return self._async.take()
        reader = self._reader
        assert isinstance(reader, SourceReader)
        count = self._count
        began = _now()
        self._guard.active = self._token
        answer = reader.poll(count)
        self._guard.active = None
        if isinstance(answer, SourceBatch) and not reader.blocking:
            took = _now() - began
            if took > 2 * TARGET_SECONDS:
                self._count = max(1, int(count * TARGET_SECONDS / took))
            elif took < TARGET_SECONDS / 2:
                self._count = min(count * 2, self._max)
            read = len(answer.values)
            if read >= _SAMPLED or self._count < _SAMPLED:
                self._count = max(1, min(self._count, BATCH_BYTES * read // max(1, values_bytes(answer.values))))
        return answer

    def _need_splits(self) -> None:
        if self._no_more and self._async is None:
            raise _asks_in_vain(self._reader)
        if not self._asked and not self._no_more:
            self._asked = True
            self._request_splits()

    def add_splits(self, splits: Sequence[Split], no_more: bool) -> None:
        """The JobMaster's answer; on the task's loop."""
        if self._closed or self._ended:
            return
        self._asked = False
        self._guard.active = self._token
        if self._async is not None:
            self._async.add_splits(splits, no_more)
        else:
            if splits:
                self._reader.add_splits(splits)
            if no_more and not self._no_more:
                self._reader.no_more_splits()
        self._guard.active = None
        self._no_more = self._no_more or no_more
        for split in splits:
            self.positions.setdefault(split.id, split.position)
        if splits or no_more:
            self._wake()
        else:
            self._call_after(ASK_AGAIN_SECONDS)

    def pause_splits(self, split_ids: Sequence[str]) -> None:
        """Pass it to the reader."""
        if self._async is not None:
            self._async.call(lambda: self._reader.pause_splits(split_ids))
        else:
            self._reader.pause_splits(split_ids)

    def resume_splits(self, split_ids: Sequence[str]) -> None:
        """Pass it to the reader, and poll."""
        if self._async is not None:
            self._async.call(lambda: self._reader.resume_splits(split_ids))
        else:
            self._reader.resume_splits(split_ids)
        self._wake()

    def _call_after(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._loop is not None:
            self._timer = self._loop.call_later(seconds, self._wake)

    def _wake(self) -> None:
        if self._async is not None:
            self._async.wake()
        self._available()

    def _available(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._ready and not self._ended and not self._closed:
            self._ready = True
            self._on_readable()

    def close(self) -> None:
        """Close the reader; exactly once."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._async is not None:
            self._async.close()
        else:
            self._reader.close()


def _asks_in_vain(reader: object) -> ProgramError:
    return ProgramError(
        f"{type(reader).__name__} asks for splits after it was told that no more come; poll() has to return END then"
    )


class _AsyncPolls:
    """Polls a reader on an asyncio loop in a thread of its own, at most ``HAND_OVER`` batches ahead."""

    def __init__(self, reader: AsyncSourceReader[Any], max_records: int, notify: Callable[[], None], name: str) -> None:
        self._reader, self._max, self._notify = reader, max_records, notify
        self._answers: deque[Any] = deque()
        self._loop = asyncio.new_event_loop()
        self._again = asyncio.Event()
        self._room = asyncio.Event()
        self._no_more = False
        self._stopping = False
        self._thread = threading.Thread(target=self._main, name=f"firesteel-reader {name}", daemon=True)

    def start(self) -> None:
        """Open the reader and begin."""
        self._thread.start()

    def take(self) -> Any:
        """The next answer, or None; raises what the reader raised."""
        if not self._answers:
            return None
        answer = self._answers.popleft()
        self.call(self._room.set)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def wake(self) -> None:
        """Poll again, if the reader waits."""
        self.call(self._again.set)

    def add_splits(self, splits: Sequence[Split], no_more: bool) -> None:
        """Hand them to the reader on its loop."""
        self.call(lambda: self._add(splits, no_more))

    def _add(self, splits: Sequence[Split], no_more: bool) -> None:
        try:
            if splits:
                self._reader.add_splits(splits)
            if no_more and not self._no_more:
                self._no_more = True
                self._reader.no_more_splits()
        except Exception as error:  # the user's reader: the task raises it
            self._give(error)
        self._again.set()

    def close(self) -> None:
        """Cancel the poll, close the reader, end the thread."""
        self._stopping = True
        if self._thread.ident is None:
            self._loop.close()
            self._reader.close()
            return
        self.call(self._cancel)
        self._thread.join()

    def _cancel(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()

    def call(self, callback: Callable[[], None]) -> None:
        """Call something on the reader's loop."""
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:  # its loop is closed: the thread has ended
            pass

    def _give(self, answer: Any) -> None:
        self._answers.append(answer)
        self._notify()

    def _main(self) -> None:
        try:
            self._loop.run_until_complete(self._polls())
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            self._give(error)
        finally:
            try:
                self._reader.close()
            except Exception as error:
                self._give(error)
            self._loop.close()

    async def _polls(self) -> None:
        self._reader.open()
        while not self._stopping:
            while len(self._answers) >= HAND_OVER:
                self._room.clear()
                await self._room.wait()
            self._again.clear()  # before the poll: what happens during it must not be missed
            answer = await self._reader.poll(self._max)
            if isinstance(answer, Wait):
                await self._pause(answer.seconds)
            elif isinstance(answer, NeedSplits):
                if self._no_more:
                    raise _asks_in_vain(self._reader)
                self._give(answer)
                await self._again.wait()
            else:
                self._give(answer)
                if answer is END:
                    return

    async def _pause(self, seconds: float | None) -> None:
        try:
            await asyncio.wait_for(self._again.wait(), seconds)
        except TimeoutError:
            pass
