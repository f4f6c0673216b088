"""The sending end of a channel to another slot: merges and cuts batches, serialises them, and ships what was granted.

A record passes two queues. In ``_pending`` records wait as objects until they fill a message, or are flushed, *and* the
receiver has granted credit; only then are they serialised into ``_outbox``, from which the link takes chunks. Because
serialisation comes last, batches that wait for credit are merged into full messages, however small they were written.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Final, Protocol

import pyarrow as pa
from typing_extensions import override

from firesteel.core.errors import FiresteelError
from firesteel.runtime.exchange.channels import ChannelId, OutputChannel
from firesteel.runtime.exchange.elements import append_element, dump_element
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
"""Shortest time, measured as the best, between two messages that one receiver gets because the task has nothing to do:
each message wakes two processes, which costs more than a few records do. A receiver that is written to rarely gets each
record immediately."""
COLUMN_BYTES: Final = 4 * 1024 * 1024
"""Batches of columns larger than this are cut; smaller ones are sent whole."""
MERGED_ROWS: Final = 16384
"""Most rows of a batch merged from waiting batches of columns. A merge copies them, so larger batches go one by one."""
_UNLIMITED_RECORDS: Final = 1 << 40


class OutputLink(Protocol):
    """What a sending end needs of the connection that carries it."""

    def activate(self, channel: RemoteOutputChannel) -> None:
        """The channel has something to ship and may ship it."""

    def release_output(self, channel: RemoteOutputChannel) -> None:
        """The channel was closed."""

    def failed(self, error: Exception) -> None:
        """Report records that can't be serialised on a channel whose task has set no ``on_error``."""


class RemoteOutputChannel(OutputChannel):
    """The sending end of a channel whose receiver lives in another slot process.

    Args:
        channel: edge and subtasks that the channel connects.
        link: connection that carries the channel.
        loop: runs the buffer timeout and the callbacks.
        attempt: attempt of the tasks at both ends, stamped on every frame.
        window: queued bytes from which on the task is back-pressured.
        max_chunk: most bytes of a message in one frame.
        buffer_timeout_ms: how long a record waits for others: 0 not at all, -1 for ever.
        wide: budget of the slot from which windows for large batches of columns are widened.
        timed: whether the receiver limits its grants by the time that its reader needs (``TimedLimit``).
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
        self._recent_grants = (FIRST_BYTES // 2, FIRST_BYTES // 2) if timed else (window, window)  # of the last two
        self._limit = min(window, FIRST_BYTES) if timed else window
        """Queued bytes after which the task stops: the window, or less if the receiver grants little at a time."""
        self._target = min(TARGET_BYTES, max(1, self._limit // 2))
        self._ratio = 1.0  # serialised size / estimate, running average
        self._batch_sizes = BatchSizes()
        self._writer = MessageWriter()
        self._pending: deque[Batch | InBand] = deque()
        self._pending_bytes = 0  # estimated size of all that is pending
        self._pending_records = 0
        self._head_start = 0  # records of the first pending batch that are serialised already
        self._head_bytes = 0  # estimated size of the other records of that batch; 0 if the head is an element
        self._flushing = False  # pending records may leave although they fill no message
        self._deadline = float("inf")  # when the buffer timeout of the oldest pending record expires
        self._rested = float("-inf")  # when the last message left because the task had nothing to do
        self._timer: Handle | None = None
        self._outbox: deque[deque[Segment] | InBand] = deque()  # of the first message, chunks may have left already
        self._sizes: deque[int] = deque()  # bytes of each item of the outbox that have not left; 0 for an element
        self._outbox_bytes = 0
        self._credit = 0
        self._hurried = False  # a barrier or the end is queued that must not wait for credit
        self._overdraft = 0  # bytes beyond the credit that the receiver has yet to be told of
        self._debt = 0  # bytes of overdrafts that count as queued here until the receiver grants credit again
        self._welcome = False  # whether the receiver exists, which its first credit tells
        self._ending = False
        self._done = False  # end shipped, closed, or cancelled by the receiver
        self.active = False  # whether the channel is in the link's ring; maintained by the link

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
            # A window that holds less than a few batches of columns would let sender and receiver wait in turn.
            self.window = self._wide.widen(self.window, min(size, COLUMN_BYTES))
            self._adapt_limit()
        if not self._pending:
            self._head_bytes = size
        if not self._pending_records:
            self._deadline = float("inf") if self._timeout < 0 else self._loop.clock.monotonic() + self._timeout
        self._pending.append(batch)
        self._pending_bytes += size
        self._pending_records += count
        self._change_queued(size)
        if self._timeout == 0:
            self._flushing = True
        elif not self._flushing and not self._fills_message() and self._timeout > 0 and self._timer is None:
            self._timer = self._loop.call_later(self._timeout, self._on_timer)
        self._ship()

    @override
    def send(self, element: InBand) -> None:
        if self._ending:
            raise RuntimeError(f"{self.id}: send after end()")  # our own bug
        if self._done:
            return
        # An element keeps its place: behind records that are not serialised yet, else behind the last message.
        if self._pending:
            append_element(self._pending, element)
        elif append_element(self._outbox, element):
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
            # The last message left just now: instead of waking the receiver again, bring the buffer timeout forward.
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
        """Whether the channel will ship nothing more: its end has left, or one of the two sides has closed it."""
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
        """Add credit: the receiver has room for this many bytes more."""
        if not self._done:
            self._welcome = True
            self._credit += amount
            self._recent_grants = (self._recent_grants[1], amount)
            self._adapt_limit()
            # A receiver grants only once it has room, so it has worked off what it was sent beyond its credit.
            debt, self._debt = self._debt, 0
            self._change_queued(-debt)
            self._ship_from_link()

    def cancel(self) -> None:
        """Drop everything queued now and written later, because the receiver reads no more."""
        self._finish()
        self._signal_writable()

    def take_chunk(self, frames: list[Segment]) -> int:
        """Append the next frame to ``frames``; return its size in bytes. The link calls it while ``sendable`` holds."""
        channel = self.id
        if self._overdraft:
            # Announced first: the receiver takes more bytes than it has granted for a breach of the protocol.
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
        remaining = self._sizes[0]
        size = min(remaining, self._credit, self._max_chunk)
        remaining -= size
        # Each chunk says how much of its message follows, so the first one tells the receiver the whole size.
        header = HEADER.pack(size, FrameKind.DATA, channel.edge, self.attempt, channel.up, channel.down, remaining)
        frames.append(header)
        if not remaining:
            frames += segments
            self._outbox.popleft()
            self._sizes.popleft()
        else:
            self._sizes[0] = remaining
            self._cut_segments(segments, size, frames)
        self._credit -= size
        self._outbox_bytes -= size
        self.bytes_out += size
        self._change_queued(-size)
        if not self._outbox:
            self._fill_reporting()
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

    def _adapt_limit(self) -> None:
        """Derive the limit of this side from the last two grants.

        The receiver grants at least half of its own limit at a time, so twice a grant estimates that limit. The larger
        of two grants counts, because the rest of a single large message may be granted in a smaller piece.
        """
        receiver_limit = 2 * max(self._recent_grants)
        wide = not self._timed or receiver_limit >= self._narrow
        self._limit = self.window if wide else max(1, receiver_limit)
        self._target = min(TARGET_BYTES, max(1, self._limit // 2))

    def _fills_message(self) -> bool:
        """Whether the pending records fill a message. Those of a back-pressured task always do: it waits for them."""
        return (
            self._pending_bytes * self._ratio >= self._target
            or self._pending_records >= TARGET_RECORDS
            or not self.writable
        )

    def _change_queued(self, change: int) -> None:
        """Account for queued bytes; the task stops at the limit and goes on once half of it has left."""
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
        seconds = self._deadline - self._loop.clock.monotonic()
        if seconds > 0:  # the records that were pending when the timer was set have left meanwhile
            self._timer = self._loop.call_later(seconds, self._on_timer)
        else:
            self._flushing = True
            self._ship_from_link()

    def _ship(self) -> None:
        """Serialise and hand over to the link, for calls of the task, which get the errors of its records."""
        try:
            self._fill()
        finally:
            if self.sendable:
                self._link.activate(self)

    def _ship_from_link(self) -> None:
        """Serialise and hand over to the link, for calls of the link and of timers, which get no errors."""
        self._fill_reporting()
        if self.sendable:
            self._link.activate(self)

    def _fill_reporting(self) -> None:
        try:
            self._fill()
        except FiresteelError as error:
            # The caller is the link, perhaps in the middle of a frame that it reads. Report on the next turn of the
            # loop, so that the reaction of the task (it may close this channel) does not happen inside that read.
            report = self.on_error or self._link.failed
            self._loop.call_soon(partial(report, error))

    def _fill(self) -> None:
        """Serialise pending records into the outbox, as far as they are to leave now and have credit."""
        while self._pending:
            head = self._pending[0]
            if isinstance(head, InBand):
                self._pending.popleft()
                self._outbox.append(head)
                self._sizes.append(0)
                self._next_head()
                continue
            hurried = self._hurried and self._welcome
            if not hurried and (self._outbox_bytes >= self._credit or not (self._flushing or self._fills_message())):
                break
            batch, estimate = self._take()
            outbox_bytes_before = self._outbox_bytes
            if not self._pending_records:
                self._flushing = False
            try:
                self._serialize(batch)
            finally:
                # Even if it fails: the records have left ``_pending``, so their estimate must no longer count.
                self._change_queued(self._outbox_bytes - outbox_bytes_before - estimate)
            if len(batch) > 1:
                # A single record may be an exception among its kind, so only several teach how far estimates are off.
                ratio = (self._outbox_bytes - outbox_bytes_before) / max(1, estimate)
                self._ratio = min(64.0, max(1 / 64, 0.75 * self._ratio + 0.25 * ratio))

        if self._hurried and self._welcome:
            # The barrier must not wait for credit: take the missing credit as an overdraft, which is announced to the
            # receiver and keeps the task back-pressured (it counts as queued here) until the receiver grants again.
            self._hurried = False
            over = self._outbox_bytes - self._credit
            if over > 0:
                self._credit += over
                self._overdraft += over
                self._debt += over
                self._change_queued(over)

    def _take(self) -> tuple[Batch, int]:
        """Take about one message's worth of records off ``_pending``; return them and their estimated size."""
        columnar = isinstance(self._pending[0], Batch) and isinstance(self._pending[0].values, pa.RecordBatch)
        room = (self._column_target if columnar else self._target) / self._ratio
        record_limit = _UNLIMITED_RECORDS if columnar else TARGET_RECORDS
        alone = len(self._pending) == 1 and not self._head_start
        if alone and self._pending_bytes <= room and self._pending_records <= record_limit:
            # The usual case at low rates: the one pending batch becomes one message, without a cut or a merge.
            estimate, self._pending_bytes, self._pending_records = self._pending_bytes, 0, 0
            whole = self._pending.popleft()
            assert isinstance(whole, Batch)  # ``_fill`` has looked
            return whole, estimate
        parts: list[Batch] = []
        estimate = 0
        while self._pending:
            head = self._pending[0]
            # An element keeps its place among the records, so a message ends in front of it.
            if isinstance(head, InBand) or (parts and not (room > 0 and record_limit > 0 and alike(parts[0], head))):
                break
            if columnar and parts and _UNLIMITED_RECORDS - record_limit + len(head) > MERGED_ROWS:
                break
            remaining = len(head) - self._head_start
            # At least one record, however large: a record beyond the target makes a message of its own.
            count = min(remaining, record_limit, max(int(room * remaining / self._head_bytes), 0 if parts else 1))
            if not count:
                break
            share = self._head_bytes if count == remaining else self._head_bytes * count // remaining
            parts.append(head if count == len(head) else head.slice(self._head_start, self._head_start + count))
            room -= share
            record_limit -= count
            estimate += share
            if count < remaining:
                self._head_start += count
                self._head_bytes -= share  # stays >= 1
                break
            self._pending.popleft()
            self._next_head()
        batch = parts[0] if len(parts) == 1 else merge(parts)
        self._pending_bytes -= estimate
        self._pending_records -= len(batch)
        if self._pending_records and self._timeout >= 0:
            self._deadline = self._loop.clock.monotonic() + self._timeout
            if not self._flushing and self._timer is None and self._timeout > 0:
                self._timer = self._loop.call_later(self._timeout, self._on_timer)
        return batch, estimate

    def _next_head(self) -> None:
        """Note the size of the item that has become the first of ``_pending``."""
        head = self._pending[0] if self._pending else None
        self._head_start = 0
        self._head_bytes = head.bytes_estimate if isinstance(head, Batch) else 0

    def _serialize(self, batch: Batch) -> None:
        segments, size = self._writer.dumps(batch)
        count = len(batch)
        if size > self.window and count > 1:
            # The estimate was far too low. Cut the batch and serialise the pieces: the work is done twice, but only
            # once, as ``_ratio`` learns from it; the receiver could never grant room for more than a window.
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
