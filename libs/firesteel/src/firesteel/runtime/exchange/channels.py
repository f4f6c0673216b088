"""The two ends of a channel as tasks see them. A channel leads from one upstream to one downstream subtask of an edge.

Both ends belong to the thread of the task loop. What runs between slots and what stays within one looks the same here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

from firesteel.runtime.exchange.inbox import Inbox
from firesteel.runtime.records.batch import Barrier, Batch, EndOfInput, InBand

Callback = Callable[[], None]


class ChannelId(NamedTuple):
    """Names a channel within a job: edge of the JobGraph, upstream subtask, downstream subtask."""

    edge: int
    up: int
    down: int

    def __str__(self) -> str:
        return f"channel {self.edge}:{self.up}->{self.down}"


class OutputChannel(ABC):
    """The sending end.

    Attributes:
        id: which channel.
        writable: False from when ``queued_bytes`` reaches the limit until half of it has left. A task does not write
            while it is False; if it does, nothing is lost but the queue grows.
        on_writable: called on the loop when ``writable`` turns True again.
        on_error: gets an error of serialisation that came up outside of ``write``, ``flush`` and ``end`` (records can
            wait for credit or for the buffer timeout); without it the exchange's ``on_failure`` gets it.
        queued_bytes: held back on this side; partly an estimate until the records are serialised.
        window: bytes that are to be held back here at most.
        bytes_out: running total; serialised size, within a slot an estimate.
        records_out: running total of records written.
    """

    def __init__(self, channel: ChannelId) -> None:
        self.id = channel
        self.writable = True
        self.on_writable: Callback | None = None
        self.on_error: Callable[[Exception], None] | None = None
        self.queued_bytes = self.window = 0
        self.bytes_out = 0
        self.records_out = 0

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Queue a batch; never blocks.

        The caller must not change the batch or its lists any more. It may give the same ones to other channels too:
        no channel changes them.

        Raises:
            SerializationError: a record can't be pickled.
        """

    @abstractmethod
    def send(self, element: InBand) -> None:
        """Queue an in-band element behind what was written; never blocks, costs no credit.

        It does not flush: what was written before goes when it would have gone. Of several watermarks without records
        between them the receiver may see the last one only.
        """

    @abstractmethod
    def flush(self) -> None:
        """Ship what waits for more records or the buffer timeout. Cheap.

        Raises:
            SerializationError: a record can't be pickled.
        """

    def rest(self) -> None:
        """The task has nothing to do: ship what waits, unless much has left in this way just now.

        Raises:
            SerializationError: a record can't be pickled.
        """
        self.flush()

    @property
    def limit(self) -> int:
        """Bytes after which ``writable`` turns False: the window, or less in front of a slow reader."""
        return self.window

    @property
    def overdrawn(self) -> bool:
        """Whether a task whose barrier may not wait for room has to wait after all: twice the window is queued here."""
        return self.queued_bytes >= 2 * self.window

    def hurry(self) -> None:  # noqa: B027 - what is with the receiver at once needs no hurry
        """A barrier, or the end, is queued: let it and all in front of it get to the receiver now, room or not.

        The sender owes that room: ``writable`` stays False until the receiver has worked off what came.

        Raises:
            SerializationError: a record can't be pickled.
        """

    @abstractmethod
    def end(self) -> None:
        """Flush, then send the end of the input. Nothing may be written after it.

        Raises:
            SerializationError: a record can't be pickled.
        """

    @abstractmethod
    def close(self) -> None:
        """The task is gone: drop what is queued. Idempotent.

        The receiver is not told: without ``end`` the job is failing or cancelled, and it hears of that from the job.
        """


class InputChannel(ABC):
    """The receiving end.

    Args:
        channel: which channel.
        inbox: what has come and was not polled yet.

    Attributes:
        id: which channel.
        inbox: see above.
        on_readable: called on the loop when something has come into the inbox, which was empty.
        bytes_in: running total of bytes received; serialised size, within a slot an estimate.
        records_in: running total of records that ``poll`` gave.
        queued_bytes: received and not polled yet.
        window: bytes that may be under way and queued here.
        on_barrier: called on the loop when a barrier that may overtake, or the end, has come into the inbox. It is
            called within the code that carries the channel, so it must not raise, and not run user code.
    """

    def __init__(self, channel: ChannelId, inbox: Inbox) -> None:
        self.id, self.inbox = channel, inbox
        self.on_readable: Callback | None = None
        self.on_barrier: Callback | None = None
        self.bytes_in = 0
        self.records_in = 0
        self.queued_bytes = self.window = 0

    @property
    def readable(self) -> bool:
        """Whether ``poll`` would give something now."""
        return bool(self.inbox.queue)

    def poll(self) -> Batch | InBand | None:
        """The next batch or in-band element (at last ``END_OF_INPUT``), or None: nothing there, or ended.

        Raises:
            SerializationError: a record can't be unpickled here, for instance as its class can't be imported.
            ProtocolError: the message is malformed.
        """
        item = self.inbox.take()
        if isinstance(item, Batch):
            self.records_in += len(item)
            self.release(item.bytes_estimate)
        elif item is not None:
            self.release(0)
        return item

    def barrier_ahead(self) -> Barrier | EndOfInput | None:
        """The first barrier in the inbox if it may overtake, or the end, whichever comes first. Looks at all of it."""
        return self.inbox.barrier_ahead()

    def overtaken(self, element: Barrier | EndOfInput) -> list[Batch]:
        """What is in front of ``barrier_ahead``. It stays to be polled; a barrier is taken out of the inbox.

        Raises:
            SerializationError, ProtocolError: see ``poll``.
        """
        front = self.inbox.in_flight(element)
        if isinstance(element, Barrier):
            self.discard(element)
        return front

    def discard(self, barrier: Barrier) -> None:
        """Take a barrier out of the inbox that is of no use any more."""
        self.inbox.remove(barrier)
        self.release(0)

    @abstractmethod
    def release(self, size: int) -> None:
        """So many bytes have left the inbox, or an element has: the sender may use their room."""

    @abstractmethod
    def close(self) -> None:
        """The task is gone: drop what is queued and what still comes, and tell the sender to stop. Idempotent."""
