"""Channels of a task that runs in a thread of its own: hand-over between its loop and the slot's main loop, bounded.

A real channel belongs to the main loop's thread, the bridge to the task's. Each side posts to the other's loop.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import islice
from typing import Final

from firesteel.runtime.exchange.channels import InputChannel, OutputChannel
from firesteel.runtime.exchange.elements import barrier_in, position_of
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.records.batch import END_OF_INPUT, Barrier, Batch, EndOfInput, InBand

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

    @property
    def overdrawn(self) -> bool:
        """Whether twice as much waits as is let in."""
        return len(self._queue) >= 2 * LARGEST_QUEUE

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
    """The task's end of an input.

    A few batches are handed over ahead of the task. When a barrier overtakes, it is handed over with all that is in
    front of it, so that the task finds everything in the one queue here. The room of what came over in this way stays
    the sender's debt until the task has taken it: else each checkpoint would let in another window of records.
    """

    def __init__(self, channel: InputChannel, main: TaskLoop, task: TaskLoop) -> None:
        super().__init__(channel.id)
        self._channel, self._main, self._task = channel, main, task
        self._queue: deque[tuple[Batch | InBand | Exception, int]] = deque()
        """Each with the bytes that are lent. The main loop appends, the task takes from the front."""
        self._closed = False
        self._most = LARGEST_QUEUE
        channel.on_readable = self._pump
        channel.on_barrier = self._barrier_came
        main.call_soon_threadsafe(self._pump)

    # -- the task's side

    def poll(self) -> Batch | InBand | None:
        """The next batch; raises what the channel raised."""
        if not self._queue:
            return None
        item, lent = self._queue.popleft()
        self._main.call_soon_threadsafe(partial(self.give_back, lent))
        if isinstance(item, Exception):
            raise item
        if isinstance(item, Batch):
            self.records_in += len(item)
        return item

    def barrier_ahead(self) -> Barrier | EndOfInput | None:
        """See ``InputChannel.barrier_ahead``."""
        return barrier_in(self._items())

    def overtaken(self, element: Barrier | EndOfInput) -> list[Batch]:
        """See ``InputChannel.overtaken``."""
        items = self._items()
        front = [item for item in islice(items, position_of(element, items)) if isinstance(item, Batch)]
        if isinstance(element, Barrier):
            self.discard(element)
        return front

    def discard(self, barrier: Barrier) -> None:
        """See ``InputChannel.discard``."""
        del self._queue[position_of(barrier, self._items())]
        self._main.call_soon_threadsafe(self._pump)

    def _items(self) -> list[Batch | InBand | Exception]:
        return [item for item, _ in list(self._queue)]  # a copy, as the main loop may append meanwhile

    def _tell_readable(self) -> None:
        if self._queue and self.on_readable is not None:
            self.on_readable()

    def _tell_of_barrier(self) -> None:
        if self.on_barrier is not None:
            self.on_barrier()

    # -- on the main loop

    def give_back(self, size: int) -> None:
        """The task has taken what was lent to it."""
        if size and not self._closed:
            self._channel.give_back(size)
        self._pump()

    def _barrier_came(self) -> None:
        """A barrier has come that overtakes, now or later, or the end."""
        while not self._closed:
            element = self._channel.barrier_ahead()
            if isinstance(element, EndOfInput):
                self._most = _ALL  # nothing comes behind it: what is there may wait here as well
                self._pump()
                return
            if element is not None and (left := element.overtakes_at - self._main.clock.epoch_ms()) > 0:
                self._main.call_later(left / 1000, self._barrier_came)
                return
            if element is not None and not self._hand_over(element):
                return
            self._task.call_soon_threadsafe(self._tell_of_barrier)
            if element is None:  # it is with the task already
                return

    def _hand_over(self, barrier: Barrier) -> bool:
        """All up to a barrier goes to the task; False: the channel gives nothing."""
        self._channel.lends = True
        item: object = None
        while item is not barrier and (item := self._take()) is not None:
            pass
        self._channel.lends = False
        return item is not None

    def _take(self) -> Batch | InBand | None:
        before = self._channel.lent_bytes
        try:
            item = self._channel.poll()
        except Exception as error:
            self._queue.append((error, 0))
            self._task.call_soon_threadsafe(self._tell_readable)
            self._closed = True
            return None
        if item is not None:
            self._queue.append((item, self._channel.lent_bytes - before))
            if isinstance(item, Barrier):
                self._main.call_soon(self._barrier_came)  # it may have hidden another one
        return item

    def _pump(self) -> None:
        while len(self._queue) < self._most and not self._closed:
            item = self._take()
            if item is None:
                break
            if item is END_OF_INPUT:
                self._task.call_soon_threadsafe(self._tell_of_barrier)
                break
        self.bytes_in = self._channel.bytes_in
        if self._queue:
            self._task.call_soon_threadsafe(self._tell_readable)

    # -- both

    def pause(self) -> None:
        """Pause the channel; what was handed over already is still given."""
        self._main.call_soon_threadsafe(self._channel.pause)

    def resume(self) -> None:
        """Go on."""
        self._main.call_soon_threadsafe(self._channel.resume)
        self._main.call_soon_threadsafe(self._barrier_came)

    def close(self) -> None:
        """Drop everything."""
        self._closed = True
        self._queue.clear()
        self._main.call_soon_threadsafe(self._channel.close)
