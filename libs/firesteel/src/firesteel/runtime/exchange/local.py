"""A channel within one slot: batches pass by reference, under a window in bytes.

The window is small whatever is configured for channels between slots. There is no way to the receiver that has to be
filled, and what waits here are objects: of many, most have left the processor's caches when the receiver comes to them
(a keyed count at parallelism 2 makes 1.1 M records/s with a window of 1 MiB and 1.8 with this one).
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Any, Final

from firesteel.runtime.exchange.channels import ChannelId, InputChannel, OutputChannel
from firesteel.runtime.exchange.elements import append_element, barrier_in, may_overtake, position_of
from firesteel.runtime.exchange.flow_control import TimedLimit
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.records.batch import END_OF_INPUT, Barrier, Batch, EndOfInput, InBand, alike, merge
from firesteel.runtime.records.sizes import BatchSizes

SMALL_BATCH: Final = 64
"""Records; smaller batches that are queued are given out together, up to ``MERGED_RECORDS`` records."""
MERGED_RECORDS: Final = 1024
LARGEST_WINDOW: Final = 64 * 1024
"""Bytes."""


class LocalPipe:
    """Both ends of a channel within one slot; ``attempt`` is that of the tasks at both ends."""

    def __init__(
        self, channel: ChannelId, loop: TaskLoop, window: int, attempt: int = 0, timed: TimedLimit | None = None
    ) -> None:
        self.attempt, self.timed = attempt, timed
        self.output = LocalOutputChannel(channel, self, min(window, LARGEST_WINDOW))
        self.input = LocalInputChannel(channel, self)
        self.input.window = self.output.window
        self.loop = loop
        self.queue: deque[Batch | InBand] = deque()
        self.output_taken = self.input_taken = False

    @property
    def most_together(self) -> int:
        """Bytes of small batches that are given out together; of a slow reader a quarter of its limit."""
        return self.output.window if self.timed is None else self.limit // 4

    @property
    def limit(self) -> int:
        """Bytes that may wait here now."""
        window = self.output.window
        # all that waits is at this end: twice what one of two ends may have
        return window if self.timed is None else int(min(window, 2 * self.timed.bytes))


class LocalOutputChannel(OutputChannel):
    """See ``OutputChannel``. Nothing waits for more records here: ``flush`` has nothing to do."""

    def __init__(self, channel: ChannelId, pipe: LocalPipe, window: int) -> None:
        super().__init__(channel)
        self._pipe, self.window = pipe, window
        self._batch_sizes = BatchSizes()
        self._ending = False
        self._done = False

    def write(self, batch: Batch) -> None:
        """See ``OutputChannel.write``."""
        count = len(batch)
        if self._ending:
            raise RuntimeError(f"{self.id}: write after end()")  # our own bug
        if not count:
            return
        self.records_out += count
        if self._done:
            return
        size = self._batch_sizes.measure(batch)
        self.bytes_out += size
        self.queued_bytes += size
        if self.queued_bytes >= self._pipe.limit:
            self.writable = False
        self._pipe.input.arrived(batch, size)

    def send(self, element: InBand) -> None:
        """See ``OutputChannel.send``."""
        if self._ending:
            raise RuntimeError(f"{self.id}: send after end()")  # our own bug
        if not self._done:
            self._pipe.input.element_arrived(element)

    def flush(self) -> None:
        """See ``OutputChannel.flush``."""

    def end(self) -> None:
        """See ``OutputChannel.end``."""
        if not self._ending:
            self._ending = True
            if not self._done:
                self._pipe.input.element_arrived(END_OF_INPUT)

    def close(self) -> None:
        """See ``OutputChannel.close``. What was written stays readable for the consumer."""
        self._done = True
        self.on_writable = self.on_error = None

    def consumed(self, size: int) -> None:
        """The consumer took this many bytes."""
        self.queued_bytes -= size
        if not self.writable and self.queued_bytes <= self._pipe.limit // 2:
            self.writable = True
            self._pipe.loop.call_soon(self._tell_writable)

    def cancel(self) -> None:
        """The consumer reads no more."""
        self._done = True
        self.consumed(self.queued_bytes)

    def _tell_writable(self) -> None:
        if self.writable and self.on_writable is not None:
            self.on_writable()


class LocalInputChannel(InputChannel):
    """See ``InputChannel``."""

    def __init__(self, channel: ChannelId, pipe: LocalPipe) -> None:
        super().__init__(channel)
        self._pipe = pipe
        self._paused = False
        self._closed = False

    def element_arrived(self, element: InBand) -> None:
        """The producer sent this."""
        if not self._closed and append_element(self._pipe.queue, element) and len(self._pipe.queue) == 1:
            self._became_readable()
        if self.on_barrier is not None and may_overtake(element):
            self.on_barrier()

    def barrier_ahead(self) -> Barrier | EndOfInput | None:
        """See ``InputChannel.barrier_ahead``."""
        return barrier_in(self._pipe.queue)

    def overtaken(self, element: Barrier | EndOfInput) -> list[Batch]:
        """See ``InputChannel.overtaken``."""
        queue = self._pipe.queue
        front = [item for item in islice(queue, position_of(element, queue)) if isinstance(item, Batch)]
        if isinstance(element, Barrier):
            self.discard(element)
        return front

    def discard(self, barrier: Barrier) -> None:
        """See ``InputChannel.discard``."""
        queue = self._pipe.queue
        del queue[position_of(barrier, queue)]
        self.readable = self.readable and bool(queue)

    def give_back(self, size: int) -> None:
        """See ``InputChannel.give_back``."""
        if not self._closed:
            self.lent_bytes -= size
            self._leaves(size)

    def _leaves(self, size: int) -> None:
        self.queued_bytes -= size
        self._pipe.output.consumed(size)

    def arrived(self, item: Batch, size: int) -> None:
        """The producer wrote this."""
        if self._closed:
            return
        queue = self._pipe.queue
        queue.append(item)
        self.bytes_in += size
        self.queued_bytes += size
        if len(queue) == 1:
            self._became_readable()

    def poll(self) -> Batch | InBand | None:
        """See ``InputChannel.poll``."""
        timed = self._pipe.timed
        if not self.readable:
            if timed is not None:
                timed.starved()
            return None
        queue = self._pipe.queue
        item = queue.popleft()
        if isinstance(item, Batch):
            size = item.bytes_estimate
            if queue and len(item) < SMALL_BATCH and isinstance(item.values, list):
                item, size = self._merge_small(item)
            if timed is not None:
                timed.took(size)
            if self.lends:
                self.lent_bytes += size
            else:
                self._leaves(size)
            self.records_in += len(item)
        self.readable = bool(queue)
        return item

    def _merge_small(self, first: Batch) -> tuple[Batch, int]:
        queue = self._pipe.queue
        parts: list[Batch] = [first]
        size, records, most = first.bytes_estimate, len(first), self._pipe.most_together
        while queue and records < MERGED_RECORDS and size < most:
            item: Any = queue[0]
            if isinstance(item, InBand) or len(item) >= SMALL_BATCH or not alike(first, item):
                break
            parts.append(item)
            size += item.bytes_estimate
            records += len(item)
            queue.popleft()
        if len(parts) == 1:
            return first, size
        batch = merge(parts)
        batch.bytes_estimate = size
        return batch, size

    def pause(self) -> None:
        """See ``InputChannel.pause``."""
        self._paused = True
        self.readable = False

    def resume(self) -> None:
        """See ``InputChannel.resume``."""
        if self._paused:
            self._paused = False
            self._became_readable()

    def close(self) -> None:
        """See ``InputChannel.close``."""
        if not self._closed:
            self._closed = True
            self.on_readable = self.on_barrier = None
            self.readable = False
            self._pipe.queue.clear()
            self.queued_bytes = self.lent_bytes = 0
            self._pipe.output.cancel()

    def _became_readable(self) -> None:
        if self._pipe.queue and not self._paused:
            self.readable = True
            if self._pipe.timed is not None:
                self._pipe.timed.readable()
            if self.on_readable is not None:
                self.on_readable()
