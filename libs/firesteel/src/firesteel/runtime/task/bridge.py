"""Channels of a task that runs in a thread of its own, between its loop and the slot's main loop.

The real channel belongs to the thread of the main loop, the bridge to that of the task; each side posts calls to the
loop of the other. An output hands over a bounded number of batches. An input needs no such queue, because the task
reads the inbox of the channel itself, which is made for two threads.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Final

from typing_extensions import override

from firesteel.runtime.exchange.channels import InputChannel, OutputChannel
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.records.batch import Batch, InBand
from firesteel.runtime.records.sizes import BatchSizes

LARGEST_QUEUE: Final = 4
"""Batches that wait for the main loop, at which the task is back-pressured."""
_FLUSH: Final = "flush"
_REST: Final = "rest"
_END: Final = "end"
_HURRY: Final = "hurry"


class BridgedOutput(OutputChannel):
    """The output channel that the task writes to; it forwards everything to the real one, in order."""

    def __init__(self, channel: OutputChannel, main: TaskLoop, task: TaskLoop) -> None:
        super().__init__(channel.id)
        self._channel, self._main, self._task = channel, main, task
        self._queue: deque[Batch | InBand | str] = deque()
        # Numbers of ``hurry`` calls, by the task and on the real channel. Each is written by one thread only.
        self._hurries, self._hurried = 0, 0
        self._owes = False  # whether nothing may be written until the real channel has room
        self._batch_sizes = BatchSizes()
        # Bytes handed over by the task, and written by the main loop. Each is written by one thread only.
        self._handed_over = self._written = 0
        channel.on_writable = self._pump
        channel.on_error = self._failed

    @override
    def write(self, batch: Batch) -> None:
        self.records_out += len(batch)
        self._handed_over += self._batch_sizes.measure(batch)
        self._hand_over(batch)

    @override
    def send(self, element: InBand) -> None:
        self._hand_over(element)

    def _hand_over(self, item: Batch | InBand) -> None:
        self._queue.append(item)
        self._count()
        if len(self._queue) >= LARGEST_QUEUE:
            self.writable = False
        elif self.queued_bytes >= self.limit:
            self._owes, self.writable = True, False
        self._main.call_soon_threadsafe(self._pump)

    @override
    def flush(self) -> None:
        if not self._queue or self._queue[-1] is not _FLUSH:
            self._queue.append(_FLUSH)
            self._main.call_soon_threadsafe(self._pump)

    @override
    def rest(self) -> None:
        if not self._queue or (self._queue[-1] is not _FLUSH and self._queue[-1] is not _REST):
            self._queue.append(_REST)
            self._main.call_soon_threadsafe(self._pump)

    @property
    @override
    def fill(self) -> tuple[int, int]:
        return self.queued_bytes, self._channel.window

    @property
    @override
    def limit(self) -> int:
        return self._channel.limit

    @property
    @override
    def overdrawn(self) -> bool:
        return len(self._queue) >= 2 * LARGEST_QUEUE

    @override
    def hurry(self) -> None:
        self._owes, self.writable = True, False
        self._queue.append(_HURRY)
        self._hurries += 1
        self._main.call_soon_threadsafe(self._pump)

    @override
    def end(self) -> None:
        self._queue.append(_END)
        self._main.call_soon_threadsafe(self._pump)

    @override
    def close(self) -> None:
        self._queue.clear()
        self._main.call_soon_threadsafe(self._channel.close)

    def _pump(self) -> None:
        """Pass on what was handed over, as far as the real channel has room; runs on the main loop."""
        channel = self._channel
        try:
            while self._queue and (
                channel.writable or self._hurried < self._hurries or not isinstance(self._queue[0], Batch)
            ):
                item = self._queue.popleft()
                if isinstance(item, Batch):
                    channel.write(item)
                    self._written += item.bytes_estimate
                elif isinstance(item, InBand):
                    channel.send(item)
                elif item is _FLUSH:
                    channel.flush()
                elif item is _REST:
                    channel.rest()
                elif item is _HURRY:
                    self._hurried += 1
                    channel.hurry()
                else:
                    channel.end()
        except IndexError:  # the task has closed this output in between
            return
        except Exception as error:  # a bug of ours, or a record that can't be pickled: the task fails with it
            self._failed(error)
            return
        self.bytes_out = channel.bytes_out
        self._count()
        if not self.writable and self._has_room:
            self._task.call_soon_threadsafe(self._tell_writable)

    def _count(self) -> None:
        self.queued_bytes = self._handed_over - self._written + self._channel.queued_bytes

    def _failed(self, error: Exception) -> None:
        if self.on_error is None:
            raise error
        on_error = self.on_error
        self._task.call_soon_threadsafe(lambda: on_error(error))

    @property
    def _has_room(self) -> bool:
        return len(self._queue) < LARGEST_QUEUE and (self._channel.writable or not self._owes)

    def _tell_writable(self) -> None:
        if not self.writable and self._has_room:
            self._owes, self.writable = False, True
            if self.on_writable is not None:
                self.on_writable()


class BridgedInput(InputChannel):
    """The input channel that the task polls; it reads the inbox of the real channel, in the task's thread.

    The main loop is told of what the task has taken, and only then grants its room to the sender.
    """

    def __init__(self, channel: InputChannel, main: TaskLoop, task: TaskLoop) -> None:
        super().__init__(channel.id, channel.inbox)
        self._channel, self._main, self._task = channel, main, task
        channel.on_readable = partial(task.call_soon_threadsafe, self._tell_readable)
        channel.on_barrier = partial(task.call_soon_threadsafe, self._tell_of_barrier)
        task.call_soon_threadsafe(self._tell_readable)  # batches may have come before the callbacks were set

    @property
    @override
    def fill(self) -> tuple[int, int]:
        return self._channel.fill

    @override
    def release(self, size: int) -> None:
        self._main.call_soon_threadsafe(partial(self._released, size))

    @override
    def close(self) -> None:
        self.on_readable = self.on_barrier = None
        self._main.call_soon_threadsafe(self._channel.close)

    def _released(self, size: int) -> None:
        self._channel.release(size)
        self.bytes_in = self._channel.bytes_in

    def _tell_readable(self) -> None:
        if self.inbox.queue and self.on_readable is not None:
            self.on_readable()

    def _tell_of_barrier(self) -> None:
        if self.on_barrier is not None:
            self.on_barrier()
