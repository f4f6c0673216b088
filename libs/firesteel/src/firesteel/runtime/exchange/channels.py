"""The two ends of a channel as tasks see them. A channel leads from one upstream to one downstream subtask of an edge.

Both ends belong to the thread of the task loop. Channels between slots and within one slot have the same contract.
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
    """The sending end of a channel.

    Attributes:
        id: edge and subtasks that the channel connects.
        writable: False from when ``queued_bytes`` reaches the limit until half of it has left. A task does not write
            while it is False; if it does, nothing is lost but the queue grows.
        on_writable: called on the loop when ``writable`` turns True again.
        on_error: gets an error of serialisation that came up outside of ``write``, ``flush`` and ``end`` (records can
            wait for credit or for the buffer timeout); without it the exchange's ``on_failure`` gets it.
        queued_bytes: bytes that wait on this side; partly an estimate until the records are serialised.
        window: most bytes that should wait on this side.
        bytes_out: running total of bytes sent; serialised size, within a slot an estimate.
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
        """Queue an in-band element behind the records written before; never blocks, costs no credit.

        It does not flush: records written before leave when they would have left without it. Of several watermarks
        without records between them the receiver may see only the last one.
        """

    @abstractmethod
    def flush(self) -> None:
        """Ship records that wait for more records or for the buffer timeout. Cheap.

        Raises:
            SerializationError: a record can't be pickled.
        """

    def rest(self) -> None:
        """Ship waiting records, as the task has nothing to do, unless the last message left in this way just now.

        Raises:
            SerializationError: a record can't be pickled.
        """
        self.flush()

    @property
    def fill(self) -> tuple[int, int]:
        """Bytes that wait on this side, and the most that should; may be read from any thread."""
        return self.queued_bytes, self.window

    @property
    def limit(self) -> int:
        """Bytes after which ``writable`` turns False: the window, or less in front of a slow reader."""
        return self.window

    @property
    def overdrawn(self) -> bool:
        """Whether even a task whose barrier must not wait for room has to wait: twice the window is queued here."""
        return self.queued_bytes >= 2 * self.window

    def hurry(self) -> None:  # noqa: B027 - a channel that delivers immediately has nothing to do
        """Ship a queued barrier, or the end, and all in front of it now, whether the receiver has room or not.

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
        """Drop queued records, as the task is gone. Idempotent.

        The receiver is not told: without ``end`` the job is failing or cancelled, and the JobMaster tells its tasks.
        """


class InputChannel(ABC):
    """The receiving end of a channel.

    Args:
        channel: edge and subtasks that the channel connects.
        inbox: holds batches and elements that have come and were not polled yet.

    Attributes:
        id: edge and subtasks that the channel connects.
        inbox: as given to the constructor.
        on_readable: called on the loop when an item has come into the empty inbox.
        bytes_in: running total of bytes received; serialised size, within a slot an estimate.
        records_in: running total of records that ``poll`` has returned.
        queued_bytes: bytes received and not polled yet.
        window: most bytes that may be under way and queued here.
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
    def fill(self) -> tuple[int, int]:
        """Bytes received and not polled yet, and the most that should be; may be read from any thread."""
        return self.queued_bytes, self.window

    @property
    def readable(self) -> bool:
        """Whether ``poll`` would return an item now."""
        return bool(self.inbox.queue)

    def poll(self) -> Batch | InBand | None:
        """Take the next batch or in-band element (the last one is ``END_OF_INPUT``); None if none is there.

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
        """The first barrier in the inbox if it may overtake, or the end, whichever comes first. Searches all of it."""
        return self.inbox.barrier_ahead()

    def overtaken(self, element: Barrier | EndOfInput) -> list[Batch]:
        """Let ``barrier_ahead`` overtake: remove it, and return the batches in front of it, which stay to be polled.

        Raises:
            SerializationError, ProtocolError: as ``poll``.
        """
        front = self.inbox.in_flight(element)
        if isinstance(element, Barrier):
            self.discard(element)
        return front

    def discard(self, barrier: Barrier) -> None:
        """Remove a barrier that has become useless from the inbox."""
        self.inbox.remove(barrier)
        self.release(0)

    @abstractmethod
    def release(self, size: int) -> None:
        """Let the sender use the room of this many bytes that have left the inbox; 0 after an element."""

    @abstractmethod
    def close(self) -> None:
        """Drop what is queued and what still comes, as the task is gone, and tell the sender to stop. Idempotent."""
