"""The receiving end of a channel from another slot: assembles messages and grants room for more.

What the sender may still send (``outstanding``) plus what is queued here never passes the window, with one exception:
when a message is under way that does not fit and nothing else is queued, the rest of it is granted, so that it passes
alone.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

import numpy as np

from firesteel.core.errors import ProtocolError
from firesteel.runtime.exchange.channels import ChannelId, InputChannel
from firesteel.runtime.exchange.elements import append_element, barrier_in, load_element, may_overtake, position_of
from firesteel.runtime.exchange.flow_control import TimedLimit, WideWindows
from firesteel.runtime.exchange.reading import LARGE_MESSAGE
from firesteel.runtime.exchange.serialization import MessageReader, is_columns, mergeable
from firesteel.runtime.records.batch import END_OF_INPUT, Barrier, Batch, EndOfInput, InBand
from firesteel.runtime.records.copies import COPIES

SMALL_MESSAGE: Final = 4096
"""Bytes; smaller messages that are queued are given out together, up to ``MERGED_RECORDS`` records."""
MERGED_RECORDS: Final = 1024
LARGEST_PLACE: Final = 64 * 1024 * 1024
"""Bytes; memory for a message that announces more is taken as its chunks come."""
Message = bytearray | memoryview


class InputLink(Protocol):
    """What a receiving end needs of the connection that carries it."""

    def grant(self, channel: RemoteInputChannel, amount: int) -> None:
        """Tell the sender that it may send this many bytes more."""

    def release_input(self, channel: RemoteInputChannel) -> None:
        """The channel was closed."""


class RemoteInputChannel(InputChannel):
    """See ``InputChannel``.

    Args:
        channel: which channel.
        link: carries it.
        peer: the sender, for errors.
        attempt: of the tasks at both ends.
        window: bytes.
        wide: where room for large batches of columns comes from.
        timed: bounds by time what is granted; None = only ``window`` does.
    """

    def __init__(
        self,
        channel: ChannelId,
        link: InputLink,
        peer: str,
        *,
        attempt: int,
        window: int,
        wide: WideWindows | None = None,
        timed: TimedLimit | None = None,
    ) -> None:
        super().__init__(channel)
        self._timed = timed
        self.attempt = attempt
        self._link, self._peer, self.window = link, peer, window
        self._wide, self._narrow = wide or WideWindows(0), window
        self._queue: deque[Message | Batch | InBand] = deque()
        self._partial: bytearray | None = None  # a message that grows
        self._place: memoryview | None = None  # a large message, of which ``_filled`` bytes are there
        self._filled = 0
        self._rest = 0  # bytes of the message under way that are still to come; 0: there is none
        self._outstanding = 0
        self._paused = False
        self.ended = False  # the end has arrived
        self._closed = False
        self._reader = MessageReader(f"{peer}, {channel}")

    # -- the task's side

    def poll(self) -> Batch | InBand | None:
        """See ``InputChannel.poll``."""
        if not self.readable:
            if self._timed is not None:
                self._timed.starved()
            return None
        queue = self._queue
        item = queue.popleft()
        self.readable = bool(queue)
        if isinstance(item, InBand):
            if self._rest and not queue:
                self._give_credit()  # nothing else is queued now: the rest of a large message may come
            return item
        if isinstance(item, Batch):  # a barrier has overtaken it
            self._leaves(item.bytes_estimate)
            self.records_in += len(item)
            return item
        self._leaves(len(item))
        batch = self._reader.loads(item)
        if queue and len(item) < SMALL_MESSAGE:
            self._merge_small(batch, item)
        self.records_in += len(batch)
        return batch

    def barrier_ahead(self) -> Barrier | EndOfInput | None:
        """See ``InputChannel.barrier_ahead``."""
        return barrier_in(self._queue)

    def overtaken(self, element: Barrier | EndOfInput) -> list[Batch]:
        """See ``InputChannel.overtaken``. What is in front becomes batches where it is."""
        queue, front = self._queue, list[Batch]()
        for position in range(position_of(element, queue)):
            item = queue[position]
            if isinstance(item, InBand):
                continue
            if not isinstance(item, Batch):
                item = queue[position] = self._reader.loads(item)
            front.append(item)
        if isinstance(element, Barrier):
            self.discard(element)
        return front

    def discard(self, barrier: Barrier) -> None:
        """See ``InputChannel.discard``."""
        queue = self._queue
        del queue[position_of(barrier, queue)]
        self.readable = self.readable and bool(queue)
        if self._rest and not queue:
            self._give_credit()

    def give_back(self, size: int) -> None:
        """See ``InputChannel.give_back``."""
        if not self._closed:
            self.lent_bytes -= size
            self.queued_bytes -= size
            self._give_credit()

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
            self._queue.clear()
            self._partial = self._place = None
            self._rest = self.queued_bytes = self.lent_bytes = 0
            self._wide.give_back(self.window - self._narrow)
            self.window = self._narrow
            self._link.release_input(self)

    # -- the link's side

    @property
    def finished(self) -> bool:
        """Whether the end of the input has arrived, or nothing is wanted any more."""
        return self.ended or self._closed

    def start(self) -> None:
        """Make the first grant."""
        self._give_credit()

    def receive(self, chunk: memoryview, rest: int) -> None:
        """Take a chunk; ``rest`` bytes of its message are still to come.

        Raises:
            ProtocolError: the sender broke the rules.
        """
        size = len(chunk)
        COPIES.bytes += size
        room = self.room(size, rest)
        if room is not None:
            room[:] = chunk
            self.placed(size, rest)
            return
        message, first = self._partial, self._partial is None
        if message is None:
            message = bytearray(chunk)
        else:
            message += chunk
        self._partial = message if rest else None
        self._took(message, size, rest, first=first)

    def room(self, size: int, rest: int) -> memoryview | None:
        """Where to put a chunk of this size, if its message is a large one; ``placed`` has to follow.

        Raises:
            ProtocolError: the sender broke the rules.
        """
        if self.ended:
            raise ProtocolError(self._peer, f"{self.id}: data after the end of input")
        if size > self._outstanding:
            raise ProtocolError(self._peer, f"{self.id}: {size} bytes came, but only {self._outstanding} were granted")
        if not self._rest:
            if not LARGE_MESSAGE <= size + rest <= LARGEST_PLACE:
                return None
            self._place, self._filled = np.empty(size + rest, np.uint8).data, 0  # not zeroed
        elif size + rest != self._rest:
            raise ProtocolError(self._peer, f"{self.id}: {size + rest} bytes of a message are left, not {self._rest}")
        return None if self._place is None else self._place[self._filled : self._filled + size]

    def placed(self, size: int, rest: int) -> None:
        """A chunk is where ``room`` said."""
        place, first = self._place, not self._filled
        assert place is not None
        self._filled += size
        self._took(place, size, rest, first=first)

    def _took(self, message: Message, size: int, rest: int, *, first: bool) -> None:
        self._outstanding -= size
        self._rest = rest
        self.bytes_in += size
        self.queued_bytes += size
        if first and is_columns(message):
            self.window = self._wide.widen(self.window, size + rest)
        if rest:
            self._give_credit()
        else:
            self._place = None
            self._arrived(message)

    def receive_end(self) -> None:
        """Take the end of the input.

        Raises:
            ProtocolError: the sender broke the rules.
        """
        if self.ended:
            raise ProtocolError(self._peer, f"{self.id}: a second end of input")
        if self._rest:
            raise ProtocolError(self._peer, f"{self.id}: end of input within a message, {self._rest} bytes are missing")
        self.ended = True
        self._arrived(END_OF_INPUT)
        if self.on_barrier is not None:
            self.on_barrier()

    def receive_element(self, payload: memoryview) -> None:
        """Take an in-band element.

        Raises:
            ProtocolError: the sender broke the rules.
        """
        if self.ended:
            raise ProtocolError(self._peer, f"{self.id}: an element after the end of input")
        if self._rest:
            raise ProtocolError(self._peer, f"{self.id}: an element within a message, {self._rest} bytes are missing")
        element = load_element(payload, f"{self._peer}, {self.id}")
        if append_element(self._queue, element) and len(self._queue) == 1:
            self._became_readable()
        if self.on_barrier is not None and may_overtake(element):
            self.on_barrier()

    def overdrawn(self, amount: int) -> None:
        """The sender will send so many bytes more than it was granted.

        Raises:
            ProtocolError: the sender broke the rules.
        """
        if self.ended:
            raise ProtocolError(self._peer, f"{self.id}: an overdraft after the end of input")
        self._outstanding += amount

    # -- inside

    def _leaves(self, size: int) -> None:
        """A message is polled."""
        if self._timed is not None:
            self._timed.took(size)
        if self.lends:
            self.lent_bytes += size
        else:
            self.queued_bytes -= size
            self._give_credit()

    def _arrived(self, item: Message | InBand) -> None:
        self._queue.append(item)
        if len(self._queue) == 1:
            self._became_readable()

    def _became_readable(self) -> None:
        if self._queue and not self._paused:
            self.readable = True
            if self._timed is not None:
                self._timed.readable()
            if self.on_readable is not None:
                self.on_readable()

    def _give_credit(self) -> None:
        if self.ended:
            return
        limit = self._limit
        room = limit - self._outstanding - self.queued_bytes
        amount = room if room * 2 >= limit else 0
        if self._rest and not self._queue and not self.lent_bytes:
            amount = max(amount, self._rest - self._outstanding)
        if amount > 0:
            self._outstanding += amount
            self._link.grant(self, amount)

    @property
    def _limit(self) -> int:
        return self.window if self._timed is None else int(min(self.window, self._timed.bytes))

    def _merge_small(self, batch: Batch, first: Message) -> None:
        """Append the small messages that follow to a batch that was just made from one."""
        queue = self._queue
        values, most = batch.values, self._limit // 2 if self._timed is not None else self.window
        while queue and isinstance(values, list) and len(values) < MERGED_RECORDS and batch.bytes_estimate < most:
            item = queue[0]
            if isinstance(item, InBand | Batch) or len(item) >= SMALL_MESSAGE or not mergeable(first, item):
                break
            queue.popleft()
            self._leaves(len(item))
            more = self._reader.loads(item)
            values += more.values
            if isinstance(batch.timestamps, list) and isinstance(more.timestamps, list):
                batch.timestamps += more.timestamps
            if batch.kinds is not None and more.kinds is not None:
                batch.kinds += more.kinds
            batch.bytes_estimate += more.bytes_estimate
        self.readable = bool(queue)
