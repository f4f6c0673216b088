"""The receiving end of a channel from another slot: assembles messages and grants credit for more.

Invariant: the bytes granted but not received (``_outstanding``) and the bytes queued here together never exceed the
limit. There is one exception: when a message larger than the limit is under way and nothing else is queued, the rest of
it is granted, so that it passes alone.
"""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np
from typing_extensions import override

from firesteel.core.errors import ProtocolError
from firesteel.runtime.exchange.channels import ChannelId, InputChannel
from firesteel.runtime.exchange.elements import load_element, may_overtake
from firesteel.runtime.exchange.flow_control import TimedLimit, WideWindows
from firesteel.runtime.exchange.inbox import Inbox, Message
from firesteel.runtime.exchange.reading import LARGE_MESSAGE
from firesteel.runtime.exchange.serialization import MessageReader, is_columns
from firesteel.runtime.records.batch import END_OF_INPUT, InBand
from firesteel.runtime.records.copies import COPIES

LARGEST_PLACE: Final = 64 * 1024 * 1024
"""Largest message, in bytes, whose memory is allocated when its first chunk comes. A larger one grows with its chunks,
so that a wrong announcement can't take the slot's memory."""


class InputLink(Protocol):
    """What a receiving end needs of the connection that carries it."""

    def grant(self, channel: RemoteInputChannel, amount: int) -> None:
        """Tell the sender that it may send this many bytes more."""

    def release_input(self, channel: RemoteInputChannel) -> None:
        """The channel was closed."""


class RemoteInputChannel(InputChannel):
    """The receiving end of a channel whose sender lives in another slot process.

    Args:
        channel: edge and subtasks that the channel connects.
        link: connection that carries the channel.
        peer: name of the sender's slot in errors.
        attempt: attempt of the tasks at both ends.
        window: most bytes that may be under way and queued here.
        wide: budget of the slot from which windows for large batches of columns are widened.
        timed: limits grants by the time that the reader needs for them; None = only ``window`` limits them.
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
        super().__init__(channel, Inbox(window, MessageReader(f"{peer}, {channel}").loads, timed))
        self._timed = timed
        self.attempt = attempt
        self._link, self._peer, self.window = link, peer, window
        self._wide, self._narrow = wide or WideWindows(0), window
        self._partial: bytearray | None = None  # an incomplete message that grows with its chunks
        self._place: memoryview | None = None  # memory of an incomplete large message; ``_filled`` bytes have come
        self._filled = 0
        self._rest = 0  # bytes of the incomplete message that have not come; 0 if no message is incomplete
        self._outstanding = 0  # bytes granted that have not come
        self.ended = False  # whether the end of the input has arrived
        self._closed = False

    # -- the task's side

    @override
    def release(self, size: int) -> None:
        # Also after an element (size 0): if the inbox is empty now, the rest of a large message may be granted.
        if not self._closed and (size or (self._rest and not self.inbox.queue)):
            self.queued_bytes -= size
            self._give_credit()

    @override
    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.on_readable = self.on_barrier = None
            self.inbox.queue.clear()
            self._partial = self._place = None
            self._rest = self.queued_bytes = 0
            self._wide.give_back(self.window - self._narrow)
            self.window = self._narrow
            self._link.release_input(self)

    # -- the link's side

    @property
    def finished(self) -> bool:
        """Whether the end of the input has arrived or the task has closed the channel."""
        return self.ended or self._closed

    def start(self) -> None:
        """Grant the first window, which also tells the sender that its receiver exists."""
        self._give_credit()

    def receive(self, chunk: memoryview, rest: int) -> None:
        """Take a chunk of a message of which ``rest`` bytes have still to come.

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
        self._account(message, size, rest, first=first)

    def room(self, size: int, rest: int) -> memoryview | None:
        """Check a chunk that is about to be read, and return the memory for it if its message is a large one.

        The caller reads the chunk into that memory and calls ``placed``; for None it calls ``receive``.

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
        """Take note that a chunk has been read into the memory that ``room`` returned."""
        place, first = self._place, not self._filled
        assert place is not None
        self._filled += size
        self._account(place, size, rest, first=first)

    def _account(self, message: Message, size: int, rest: int, *, first: bool) -> None:
        """Account for a chunk that has come, and queue its message if that is complete."""
        self._outstanding -= size
        self._rest = rest
        self.bytes_in += size
        self.queued_bytes += size
        if first and is_columns(message):
            self.window = self._wide.widen(self.window, size + rest)
        if rest:
            # A message larger than the limit needs further grants while it is under way.
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
        self._arrived(element)

    def overdrawn(self, amount: int) -> None:
        """Accept an announcement of the sender that it will send this many bytes more than it was granted.

        Raises:
            ProtocolError: the sender broke the rules.
        """
        if self.ended:
            raise ProtocolError(self._peer, f"{self.id}: an overdraft after the end of input")
        self._outstanding += amount

    # -- inside

    def _arrived(self, item: Message | InBand) -> None:
        """Queue a message or an element, wake the task, and tell it of barriers that may overtake."""
        if self.inbox.put(item) and self.on_readable is not None:
            self.on_readable()
        if self.on_barrier is not None and may_overtake(item):
            self.on_barrier()

    def _give_credit(self) -> None:
        if self.ended:
            return
        limit = self.window if self._timed is None else int(min(self.window, self._timed.bytes))
        room = limit - self._outstanding - self.queued_bytes
        # Half of the limit at a time: a grant for each batch would be a frame for each batch.
        amount = room if room * 2 >= limit else 0
        if self._rest and not self.inbox.queue:
            amount = max(amount, self._rest - self._outstanding)
        if amount > 0:
            self._outstanding += amount
            self._link.grant(self, amount)
