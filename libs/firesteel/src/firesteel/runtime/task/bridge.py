"""Channels of a task that runs in a thread of its own: hand-over between its loop and the slot's main loop, bounded.

A real channel belongs to the main loop's thread, the bridge to the task's. Each side posts to the other's loop.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from firesteel.runtime.batch import END_OF_INPUT, Barrier, Batch, EndOfInput, InBand
from firesteel.runtime.exchange.channels import InputChannel, OutputChannel
from firesteel.runtime.task.loop import TaskLoop

LARGEST_QUEUE: Final = 4
"""Batches."""
_FLUSH: Final = "flush"
_REST: Final = "rest"
_END: Final = "end"
_HURRY: Final = "hurry"
_ALL: Final = 1 << 40


class BridgedOutput(OutputChannel):
    """The task's end of an output."""

    def __init__(self, channel: OutputChannel, main: TaskLoop, task: TaskLoop) -> None:
        super().__init__(channel.id)
        self._channel, self._main, self._task = channel, main, task
        self._queue: deque[Batch | InBand | str] = deque()
        self._hurries, self._hurried = 0, 0  # asked for, and done
        self._owes = False  # nothing more may be written until the channel has room
        channel.on_writable = self._pump
        channel.on_error = self._failed

    def write(self, batch: Batch) -> None:
        """Hand over a batch."""
        self.records_out += len(batch)
        self._hand_over(batch)

    def send(self, element: InBand) -> None:
        """Hand over an element."""
        self._hand_over(element)

    def _hand_over(self, item: Batch | InBand) -> None:
        self._queue.append(item)
        if len(self._queue) >= LARGEST_QUEUE:
            self.writable = False
        self._main.call_soon_threadsafe(self._pump)

    def flush(self) -> None:
        """Flush when all before has been handed over."""
        if not self._queue or self._queue[-1] is not _FLUSH:
            self._queue.append(_FLUSH)
            self._main.call_soon_threadsafe(self._pump)

    def rest(self) -> None:
        """Let the channel rest when all before has been handed over."""
        if not self._queue or (self._queue[-1] is not _FLUSH and self._queue[-1] is not _REST):
            self._queue.append(_REST)
            self._main.call_soon_threadsafe(self._pump)

    def hurry(self) -> None:
        """All that was handed over goes, whether there is room or not."""
        self._owes, self.writable = True, False
        self._queue.append(_HURRY)
        self._hurries += 1
        self._main.call_soon_threadsafe(self._pump)

    def end(self) -> None:
        """End when all before has been handed over."""
        self._queue.append(_END)
        self._main.call_soon_threadsafe(self._pump)

    def close(self) -> None:
        """Drop what is queued."""
        self._queue.clear()
        self._main.call_soon_threadsafe(self._channel.close)

    def _pump(self) -> None:
        channel = self._channel
        try:
            while self._queue and (
                channel.writable or self._hurried < self._hurries or not isinstance(self._queue[0], Batch)
            ):
                item = self._queue.popleft()
                if isinstance(item, Batch):
                    channel.write(item)
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
        except IndexError:  # closed in between
            return
        except Exception as error:  # a bug, or a value that can't be pickled: the task fails with it
            self._failed(error)
            return
        self.bytes_out = channel.bytes_out
        if not self.writable and self._has_room:
            self._task.call_soon_threadsafe(self._room)

    def _failed(self, error: Exception) -> None:
        if self.on_error is None:
            raise error
        on_error = self.on_error
        self._task.call_soon_threadsafe(lambda: on_error(error))

    @property
    def _has_room(self) -> bool:
        return len(self._queue) < LARGEST_QUEUE and (self._channel.writable or not self._owes)

    def _room(self) -> None:
        if not self.writable and self._has_room:
            self._owes, self.writable = False, True
            if self.on_writable is not None:
                self.on_writable()


class BridgedInput(InputChannel):
    """The task's end of an input."""

    def __init__(self, channel: InputChannel, main: TaskLoop, task: TaskLoop) -> None:
        super().__init__(channel.id)
        self._channel, self._main, self._task = channel, main, task
        self._queue: deque[Batch | InBand | Exception] = deque()
        self._closed = False
        self._most = LARGEST_QUEUE
        self._ahead: tuple[Barrier, list[Batch]] | None = None
        """A barrier that overtakes, and what is in front of it in the channel; that stands still until it is taken."""
        channel.on_readable = self._pump
        channel.on_barrier = self._look_ahead
        main.call_soon_threadsafe(self._pump)

    def poll(self) -> Batch | InBand | None:
        """The next batch; raises what the channel raised."""
        if not self._queue:
            return None
        got = self._queue.popleft()
        self._main.call_soon_threadsafe(self._pump)
        if isinstance(got, Exception):
            raise got
        if isinstance(got, Batch):
            self.records_in += len(got)
        return got

    def barrier_ahead(self) -> Barrier | EndOfInput | None:
        """One that the channel has told of, or the end."""
        if self._ahead is not None:
            return self._ahead[0]
        return END_OF_INPUT if END_OF_INPUT in list(self._queue) else None

    def overtaken(self, element: Barrier | EndOfInput) -> list[Batch]:
        """What is here, and what is in front of it in the channel."""
        front = [item for item in list(self._queue) if isinstance(item, Batch)]
        if self._ahead is None:  # see ``barrier_ahead``
            return front
        front += self._ahead[1]
        self._ahead = None
        self._main.call_soon_threadsafe(self._pump)
        return front

    def _look_ahead(self) -> None:
        """On the main loop: a barrier has come that overtakes, now or later, or the end."""
        barrier = None if self._closed or self._ahead is not None else self._channel.barrier_ahead()
        if isinstance(barrier, EndOfInput):
            self._most = _ALL  # nothing comes behind it: what is there may wait here as well
            self._pump()
        if not isinstance(barrier, Barrier):
            return
        left = barrier.overtakes_at - self._main.clock.epoch_ms()
        if left > 0:
            self._main.call_later(left / 1000, self._look_ahead)
            return
        try:
            self._ahead = barrier, self._channel.overtaken(barrier)
        except Exception as error:
            self._queue.append(error)
            self._task.call_soon_threadsafe(self._readable)
            return
        self._task.call_soon_threadsafe(self._told)

    def _told(self) -> None:
        if self.on_barrier is not None and self.barrier_ahead() is not None:
            self.on_barrier()

    def _pump(self) -> None:
        while len(self._queue) < self._most and not self._closed and self._ahead is None:
            try:
                got = self._channel.poll()
            except Exception as error:
                self._queue.append(error)
                self._closed = True
                break
            if got is None:
                break
            self._queue.append(got)
            if got is END_OF_INPUT:
                self._task.call_soon_threadsafe(self._told)
                break
        self.bytes_in = self._channel.bytes_in
        if self._queue:
            self._task.call_soon_threadsafe(self._readable)

    def _readable(self) -> None:
        if self._queue and self.on_readable is not None:
            self.on_readable()

    def pause(self) -> None:
        """Pause the channel; what was handed over already is still given."""
        self._main.call_soon_threadsafe(self._channel.pause)

    def resume(self) -> None:
        """Go on."""
        self._main.call_soon_threadsafe(self._channel.resume)

    def close(self) -> None:
        """Drop everything."""
        self._closed = True
        self._queue.clear()
        self._main.call_soon_threadsafe(self._channel.close)
