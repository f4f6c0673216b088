"""A channel within one slot: batches pass by reference, under a window in bytes.

The window is small, whatever is configured for channels between slots. There is no network to keep filled, and batches
wait as objects: if many wait, most have left the processor's caches when the receiver comes to them (a keyed count at
parallelism 2 makes 1.1 M records/s with a window of 1 MiB and 1.8 M with this one).
"""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from firesteel.runtime.exchange.channels import ChannelId, InputChannel, OutputChannel
from firesteel.runtime.exchange.elements import may_overtake
from firesteel.runtime.exchange.flow_control import MESSAGES_IN_FLIGHT, TimedLimit
from firesteel.runtime.exchange.inbox import Inbox
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.records.batch import END_OF_INPUT, Batch, InBand
from firesteel.runtime.records.sizes import BatchSizes

LARGEST_WINDOW: Final = 64 * 1024
"""Most bytes of records that wait in a channel within a slot."""
COLUMNS_WINDOW: Final = 4 * 1024 * 1024
"""Most bytes of columns that wait there: some batches of ten thousand rows, as smaller ones cost more for each row."""


class LocalPipe:
    """Both ends of a channel within one slot; ``attempt`` is that of the tasks at both ends."""

    def __init__(
        self, channel: ChannelId, loop: TaskLoop, window: int, attempt: int = 0, timed: TimedLimit | None = None
    ) -> None:
        self.attempt, self.timed = attempt, timed
        self.output = LocalOutputChannel(channel, self, min(window, LARGEST_WINDOW))
        self.input = LocalInputChannel(channel, self)
        self.loop = loop
        self.output_taken = self.input_taken = False  # whether the exchange has handed this end to its task


class LocalOutputChannel(OutputChannel):
    """The sending end of a channel within a slot. Batches arrive as they are written, so ``flush`` does nothing."""

    def __init__(self, channel: ChannelId, pipe: LocalPipe, window: int) -> None:
        super().__init__(channel)
        self._pipe, self.window = pipe, window
        self._batch_sizes = BatchSizes()
        self._ending = False  # whether the end was written
        self._done = False  # whether one of both ends is closed, so that nothing arrives any more

    @property
    @override
    def limit(self) -> int:
        timed = self._pipe.timed
        return self.window if timed is None else int(min(self.window, timed.bytes))

    @override
    def write(self, batch: Batch) -> None:
        count = len(batch)
        if self._ending:
            raise RuntimeError(f"{self.id}: write after end()")  # our own bug
        if not count:
            return
        self.records_out += count
        if self._done:
            return
        size = self._batch_sizes.measure(batch)
        if not isinstance(batch.values, list):
            self.window = max(self.window, min(MESSAGES_IN_FLIGHT * size, COLUMNS_WINDOW))
        self.bytes_out += size
        self.queued_bytes += size
        if self.queued_bytes >= self.limit:
            self.writable = False
        self._pipe.input.arrived(batch, size)

    @override
    def send(self, element: InBand) -> None:
        if self._ending:
            raise RuntimeError(f"{self.id}: send after end()")  # our own bug
        if not self._done:
            self._pipe.input.arrived(element)

    @override
    def flush(self) -> None: ...

    @override
    def end(self) -> None:
        if not self._ending:
            self._ending = True
            if not self._done:
                self._pipe.input.arrived(END_OF_INPUT)

    @override
    def close(self) -> None:
        # Batches that were written stay readable for the consumer.
        self._done = True
        self.on_writable = self.on_error = None

    def consumed(self, size: int) -> None:
        """Account for this many bytes that the receiving end has polled."""
        self.queued_bytes -= size
        if not self.writable and self.queued_bytes <= self.limit // 2:
            self.writable = True
            self._pipe.loop.call_soon(self._tell_writable)

    def cancel(self) -> None:
        """Drop everything from now on, because the receiving end was closed."""
        self._done = True
        self.consumed(self.queued_bytes)

    def _tell_writable(self) -> None:
        if self.writable and self.on_writable is not None:
            self.on_writable()


class LocalInputChannel(InputChannel):
    """The receiving end of a channel within a slot."""

    def __init__(self, channel: ChannelId, pipe: LocalPipe) -> None:
        super().__init__(channel, Inbox(pipe.output.window, timed=pipe.timed))
        self.window = pipe.output.window
        self._pipe = pipe
        self._closed = False

    def arrived(self, item: Batch | InBand, size: int = 0) -> None:
        """Queue a batch of this many bytes, or an element, that the sending end has just written."""
        if self._closed:
            return
        self.bytes_in += size
        self.queued_bytes += size
        if self.inbox.put(item) and self.on_readable is not None:
            self.on_readable()
        if self.on_barrier is not None and may_overtake(item):
            self.on_barrier()

    @property
    @override
    def fill(self) -> tuple[int, int]:
        return self.queued_bytes, self._pipe.output.window  # which grows with batches of columns

    @override
    def release(self, size: int) -> None:
        if size and not self._closed:
            self.queued_bytes -= size
            self._pipe.output.consumed(size)

    @override
    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.on_readable = self.on_barrier = None
            self.inbox.queue.clear()
            self.queued_bytes = 0
            self._pipe.output.cancel()
