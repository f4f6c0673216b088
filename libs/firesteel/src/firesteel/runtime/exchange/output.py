"""The sending end of a channel to another slot: merges, cuts, serialises, and ships what was granted.

Records wait as objects until they are many enough, or flushed, *and* there is credit for them; only then they are
serialised. So what waits for credit is merged to full messages, however small the pieces were in which it came.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Final, Protocol

import pyarrow as pa
from typing_extensions import override

from firesteel.core.errors import FiresteelError
from firesteel.runtime.exchange.channels import ChannelId, OutputChannel
from firesteel.runtime.exchange.elements import append_element, dump_element, supersedes
from firesteel.runtime.exchange.flow_control import FIRST_BYTES, WideWindows
from firesteel.runtime.exchange.frames import HEADER, FrameKind, encode
from firesteel.runtime.exchange.serialization import MessageWriter, Segment
from firesteel.runtime.loop.loop import Handle, TaskLoop
from firesteel.runtime.records.batch import Barrier, Batch, InBand, alike, merge
from firesteel.runtime.records.sizes import BatchSizes

TARGET_BYTES: Final = 64 * 1024
"""A message is shipped when it has about this size (or half of the window, if that is less)."""
TARGET_RECORDS: Final = 4096
"""A message is shipped when it has this many records, however small they are."""
REST_SECONDS: Final = 0.00025
"""Between two messages to a receiver that leave because a task rests: each wakes two processes, which costs both of
them more than a few records do. Who is written to seldom gets each record at once."""
COLUMN_BYTES: Final = 4 * 1024 * 1024
"""A larger batch of columns is cut; smaller ones go as they are."""
MERGED_ROWS: Final = 16384
"""Batches of columns that wait are merged, which copies them, as long as all together have no more rows."""


_ANY_NUMBER: Final = 1 << 40


class OutputLink(Protocol):
    """What a sending end needs of the connection that carries it."""

    def activate(self, channel: RemoteOutputChannel) -> None:
        """The channel has something to ship and may ship it."""

    def release_output(self, channel: RemoteOutputChannel) -> None:
        """The channel was closed."""

    def failed(self, error: Exception) -> None:
        """Records can't be serialised and the task has not asked to be told."""


class RemoteOutputChannel(OutputChannel):
    """See ``OutputChannel``.

    Args:
        channel: which channel.
        link: carries it.
        loop: for the buffer timeout and callbacks.
        attempt: of the tasks at both ends, stamped on every frame.
        window: bytes; from this many on the task is back-pressured.
        max_chunk: bytes of a message in one frame, at most.
        buffer_timeout_ms: how long a record waits for others: 0 not at all, -1 for ever.
        wide: where room for large batches of columns comes from.
        timed: the receiver bounds by time what it grants.
    """

    def __init__(
        self,
        channel: ChannelId,
        link: OutputLink,
        loop: TaskLoop,
        *,
        attempt: int,
        window: int,
        max_chunk: int,
        buffer_timeout_ms: int,
        wide: WideWindows | None = None,
        timed: bool = False,
    ) -> None:
        super().__init__(channel)
        self.attempt = attempt
        self._link, self._loop = link, loop
        self.window, self._max_chunk = window, max_chunk
        self._wide, self._narrow = wide or WideWindows(0), window
        self._timeout = buffer_timeout_ms / 1000
        self._timed = timed
        self._grants = (FIRST_BYTES // 2, FIRST_BYTES // 2) if timed else (window, window)  # the last two
        self._limit = min(window, FIRST_BYTES) if timed else window
        """Bytes after which the task stops: the window, or less if the receiver grants little at a time."""
        self._target = min(TARGET_BYTES, max(1, self._limit // 2))
        self._ratio = 1.0  # serialised size / estimate, running average
        self._batch_sizes = BatchSizes()
        self._writer = MessageWriter()
        self._pending: deque[Batch | InBand] = deque()
        self._pending_bytes = 0  # estimates; the head's share that is left is _head_bytes (0: it is an element)
        self._pending_records = 0
        self._head_start = 0
        self._head_bytes = 0
        self._flushing = False  # what is pending may go although it is not much
        self._deadline = float("inf")
        self._rested = float("-inf")  # when something left last because the task rested
        self._timer: Handle | None = None
        self._outbox: deque[deque[Segment] | InBand] = deque()  # messages; the first may have gone in part
        self._sizes: deque[int] = deque()  # bytes left of each message; 0: an element
        self._outbox_bytes = 0
        self._credit = 0
        self._hurried = False  # a barrier or the end is queued that must not wait for room
        self._overdraft = 0  # to be announced
        self._debt = 0  # of it, what counts as queued here until the receiver has worked it off
        self._welcome = False  # the receiver is there: it has given credit
        self._ending = False
        self._done = False  # end shipped, closed, or cancelled by the receiver
        self.active = False  # in the link's ring; kept by the link

    # -- the task's side

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
        if isinstance(batch.values, pa.RecordBatch):
            self.window = self._wide.widen(self.window, min(size, COLUMN_BYTES))
            self._adapt()
        if not self._pending:
            self._head_bytes = size
        if not self._pending_records:
            self._deadline = float("inf") if self._timeout < 0 else self._loop.clock.monotonic() + self._timeout
        self._pending.append(batch)
        self._pending_bytes += size
        self._pending_records += count
        self._queued(size)
        if self._timeout == 0:
            self._flushing = True
        elif not self._flushing and not self._enough() and self._timeout > 0 and self._timer is None:
            self._timer = self._loop.call_later(self._timeout, self._on_timer)
        self._ship()

    @override
    def send(self, element: InBand) -> None:
        if self._ending:
            raise RuntimeError(f"{self.id}: send after end()")  # our own bug
        if self._done:
            return
        if self._pending:
            append_element(self._pending, element)
        elif self._outbox and supersedes(element, self._outbox[-1]):
            self._outbox[-1] = element
        else:
            self._outbox.append(element)
            self._sizes.append(0)
            if self.sendable:
                self._link.activate(self)

    @override
    def flush(self) -> None:
        if self._pending and not self._done:
            self._flushing = True
            self._ship()

    @override
    def rest(self) -> None:
        if self._flushing or not self._pending or self._done:
            return
        now = self._loop.clock.monotonic()
        due = self._rested + min(REST_SECONDS, self._timeout)
        if due <= now:
            self._rested = now
            self.flush()
        elif due < self._deadline:
            self._rested = self._deadline = due
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_later(due - now, self._on_timer)

    @override
    def hurry(self) -> None:
        now = self._loop.clock.epoch_ms()
        queued = (*self._pending, *self._outbox)
        if not self._done and (
            self._ending or any(isinstance(item, Barrier) and item.overtakes_at <= now for item in queued)
        ):
            self._hurried = True
            self._ship()

    @override
    def end(self) -> None:
        if not self._ending:
            self._ending = True
            self._flushing = bool(self._pending)
            self._ship()

    @override
    def close(self) -> None:
        self._finish()
        self.on_writable = self.on_error = None
        self._link.release_output(self)

    @property
    @override
    def limit(self) -> int:
        return self._limit

    # -- the link's side

    @property
    def finished(self) -> bool:
        """Whether nothing will be shipped any more."""
        return self._done

    @property
    def sendable(self) -> bool:
        """Whether ``take_chunk`` would give something."""
        if not self._welcome:
            return False
        if self._outbox:
            return self._credit > 0 or not self._sizes[0]
        return self._ending and not self._pending and not self._done

    def grant(self, amount: int) -> None:
        """The receiver has room for this many bytes more."""
        if not self._done:
            self._welcome = True
            self._credit += amount
            self._grants = (self._grants[1], amount)
            self._adapt()
            debt, self._debt = self._debt, 0
            self._queued(-debt)
            self._ship_later()

    def cancel(self) -> None:
        """The receiver reads no more: drop everything, now and later."""
        self._finish()
        self._signal_writable()

    def take_chunk(self, frames: list[Segment]) -> int:
        """Append the next frame to ``frames``; return its size in bytes."""
        channel = self.id
        if self._overdraft:
            frames.append(encode(FrameKind.OVERDRAFT, channel, self.attempt, self._overdraft))
            self._overdraft = 0
            return HEADER.size
        if not self._outbox:
            frames.append(encode(FrameKind.END_OF_INPUT, channel, self.attempt))
            self._finish()
            return HEADER.size
        segments = self._outbox[0]
        if isinstance(segments, InBand):
            self._outbox.popleft()
            self._sizes.popleft()
            frames.append(encode(FrameKind.ELEMENT, channel, self.attempt, 0, dump_element(segments)))
            return len(frames[-1])
        left = self._sizes[0]
        size = min(left, self._credit, self._max_chunk)
        left -= size
        frames.append(HEADER.pack(size, FrameKind.DATA, channel.edge, self.attempt, channel.up, channel.down, left))
        if not left:
            frames += segments
            self._outbox.popleft()
            self._sizes.popleft()
        else:
            self._sizes[0] = left
            self._cut_segments(segments, size, frames)
        self._credit -= size
        self._outbox_bytes -= size
        self.bytes_out += size
        self._queued(-size)
        if not self._outbox:
            self._fill_later()
        return HEADER.size + size

    @staticmethod
    def _cut_segments(segments: deque[Segment], size: int, frames: list[Segment]) -> None:
        """Move the first ``size`` bytes of a message to ``frames``."""
        while size:
            first = segments[0]
            length = len(first)
            if length <= size:
                frames.append(first)
                segments.popleft()
                size -= length
            else:
                view = memoryview(first)
                frames.append(view[:size])
                segments[0] = view[size:]
                return

    # -- inside

    @property
    def _column_target(self) -> int:
        return min(COLUMN_BYTES, max(1, self._limit // 2))

    def _adapt(self) -> None:
        """Follow the receiver, which grants half of what it lets in, at least, at a time."""
        lets_in = 2 * max(self._grants)
        wide = not self._timed or lets_in >= self._narrow
        self._limit = self.window if wide else max(1, lets_in)
        self._target = min(TARGET_BYTES, max(1, self._limit // 2))

    def _enough(self) -> bool:
        """Whether what is pending makes a message. A stopped task waits for it to leave, however little it is."""
        return (
            self._pending_bytes * self._ratio >= self._target
            or self._pending_records >= TARGET_RECORDS
            or not self.writable
        )

    def _queued(self, change: int) -> None:
        self.queued_bytes += change
        if self.queued_bytes >= self._limit:
            self.writable = False
        elif not self.writable and self.queued_bytes <= self._limit // 2:
            self._signal_writable()

    def _signal_writable(self) -> None:
        if not self.writable:
            self.writable = True
            self._loop.call_soon(self._tell_writable)

    def _tell_writable(self) -> None:
        if self.writable and self.on_writable is not None:
            self.on_writable()

    def _on_timer(self) -> None:
        self._timer = None
        if self._done or not self._pending_records or self._flushing:
            return
        left = self._deadline - self._loop.clock.monotonic()
        if left > 0:  # what was queued when the timer was set has gone meanwhile
            self._timer = self._loop.call_later(left, self._on_timer)
        else:
            self._flushing = True
            self._ship_later()

    def _ship(self) -> None:
        try:
            self._fill()
        finally:
            if self.sendable:
                self._link.activate(self)

    def _ship_later(self) -> None:
        self._fill_later()
        if self.sendable:
            self._link.activate(self)

    def _fill_later(self) -> None:
        try:
            self._fill()
        except FiresteelError as error:
            # the caller is the link, perhaps within a frame that it reads: what the task does is not to disturb it
            report = self.on_error or self._link.failed
            self._loop.call_soon(partial(report, error))

    def _fill(self) -> None:
        """Serialise what is to go and has credit."""
        while self._pending:
            head = self._pending[0]
            if isinstance(head, InBand):
                self._pending.popleft()
                self._outbox.append(head)
                self._sizes.append(0)
                self._next_head()
                continue
            hurried = self._hurried and self._welcome
            if not hurried and (self._outbox_bytes >= self._credit or not (self._flushing or self._enough())):
                break
            batch, estimate = self._take()
            before = self._outbox_bytes
            if not self._pending_records:
                self._flushing = False
            try:
                self._serialize(batch)
            finally:
                self._queued(self._outbox_bytes - before - estimate)
            if len(batch) > 1:
                ratio = (self._outbox_bytes - before) / max(1, estimate)
                self._ratio = min(64.0, max(1 / 64, 0.75 * self._ratio + 0.25 * ratio))

        if self._hurried and self._welcome:
            self._hurried = False
            over = self._outbox_bytes - self._credit
            if over > 0:
                self._credit += over
                self._overdraft += over
                self._debt += over
                self._queued(over)

    def _take(self) -> tuple[Batch, int]:
        """Take about one message's worth of records off ``_pending``; return it and what it counted there."""
        columnar = isinstance(self._pending[0], Batch) and isinstance(self._pending[0].values, pa.RecordBatch)
        room = (self._column_target if columnar else self._target) / self._ratio
        records = _ANY_NUMBER if columnar else TARGET_RECORDS
        alone = len(self._pending) == 1 and not self._head_start
        if alone and self._pending_bytes <= room and self._pending_records <= records:  # most often, at low rates
            taken, self._pending_bytes, self._pending_records = self._pending_bytes, 0, 0
            whole = self._pending.popleft()
            assert isinstance(whole, Batch)  # ``_fill`` has looked
            return whole, taken
        parts: list[Batch] = []
        taken = 0
        while self._pending:
            head = self._pending[0]
            if isinstance(head, InBand) or (parts and not (room > 0 and records > 0 and alike(parts[0], head))):
                break
            if columnar and parts and _ANY_NUMBER - records + len(head) > MERGED_ROWS:
                break
            rest = len(head) - self._head_start
            count = min(rest, records, max(int(room * rest / self._head_bytes), 0 if parts else 1))
            if not count:
                break
            share = self._head_bytes if count == rest else self._head_bytes * count // rest
            parts.append(head if count == len(head) else head.slice(self._head_start, self._head_start + count))
            room -= share
            records -= count
            taken += share
            if count < rest:
                self._head_start += count
                self._head_bytes -= share  # stays >= 1
                break
            self._pending.popleft()
            self._next_head()
        batch = parts[0] if len(parts) == 1 else merge(parts)
        self._pending_bytes -= taken
        self._pending_records -= len(batch)
        if self._pending_records and self._timeout >= 0:
            self._deadline = self._loop.clock.monotonic() + self._timeout
            if not self._flushing and self._timer is None and self._timeout > 0:
                self._timer = self._loop.call_later(self._timeout, self._on_timer)
        return batch, taken

    def _next_head(self) -> None:
        """Another item is the first of ``_pending`` now."""
        head = self._pending[0] if self._pending else None
        self._head_start = 0
        self._head_bytes = head.bytes_estimate if isinstance(head, Batch) else 0

    def _serialize(self, batch: Batch) -> None:
        segments, size = self._writer.dumps(batch)
        count = len(batch)
        if size > self.window and count > 1:  # the estimate was far off: cut, and pay for it once
            self._writer.forget()
            target = self._column_target if isinstance(batch.values, pa.RecordBatch) else self._target
            step = max(1, min(count - 1, count * target // size))
            for start in range(0, count, step):
                self._serialize(batch.slice(start, min(start + step, count)))
            return
        self._outbox.append(deque(segments))
        self._sizes.append(size)
        self._outbox_bytes += size

    def _finish(self) -> None:
        self._done = True
        self._wide.give_back(self.window - self._narrow)
        self.window = self._narrow
        self._pending.clear()
        self._outbox.clear()
        self._sizes.clear()
        self._pending_bytes = self._pending_records = self._outbox_bytes = self._credit = 0
        self._overdraft = self._debt = 0
        self.queued_bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
