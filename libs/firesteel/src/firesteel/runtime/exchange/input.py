"""The receiving end of a channel from another slot: assembles messages and grants room for more.

What the sender may still send (``outstanding``) plus what is queued here never passes the window, with one exception:
when a message is under way that does not fit and nothing else is queued, the rest of it is granted, so that it passes
alone.
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
"""Bytes; memory for a message that announces more is taken as its chunks come."""


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
        super().__init__(channel, Inbox(window, MessageReader(f"{peer}, {channel}").loads, timed))
        self._timed = timed
        self.attempt = attempt
        self._link, self._peer, self.window = link, peer, window
        self._wide, self._narrow = wide or WideWindows(0), window
        self._partial: bytearray | None = None  # a message that grows
        self._place: memoryview | None = None  # a large message, of which ``_filled`` bytes are there
        self._filled = 0
        self._rest = 0  # bytes of the message under way that are still to come; 0: there is none
        self._outstanding = 0
        self.ended = False  # the end has arrived
        self._closed = False

    # -- the task's side

    @override
    def release(self, size: int) -> None:
        # behind an element, too: if nothing else is queued now, the rest of a large message may come
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
        """The sender will send so many bytes more than it was granted.

        Raises:
            ProtocolError: the sender broke the rules.
        """
        if self.ended:
            raise ProtocolError(self._peer, f"{self.id}: an overdraft after the end of input")
        self._outstanding += amount

    # -- inside

    def _arrived(self, item: Message | InBand) -> None:
        if self.inbox.put(item) and self.on_readable is not None:
            self.on_readable()
        if self.on_barrier is not None and may_overtake(item):
            self.on_barrier()

    def _give_credit(self) -> None:
        if self.ended:
            return
        limit = self._limit
        room = limit - self._outstanding - self.queued_bytes
        amount = room if room * 2 >= limit else 0
        if self._rest and not self.inbox.queue:
            amount = max(amount, self._rest - self._outstanding)
        if amount > 0:
            self._outstanding += amount
            self._link.grant(self, amount)

    @property
    def _limit(self) -> int:
        return self.window if self._timed is None else int(min(self.window, self._timed.bytes))
