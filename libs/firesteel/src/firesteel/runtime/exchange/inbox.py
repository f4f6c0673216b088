"""What has come over a channel and was not read yet: batches, and the in-band elements between them.

An inbox owns the order of what waits, and with it overtaking: where a barrier stands, what is in flight in front of it,
and how it is taken out. Channels from other slots, channels within a slot and those of tasks with a thread of their own
have one each, or share it.

The loop that carries the channel puts in, at the back. One reader takes out, at the front, perhaps in another thread.
That needs no lock: only the loop appends, only the reader removes, each with one operation of a ``deque``, and the
reader looks through a copy, as a ``deque`` must not grow while somebody walks through it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from firesteel.runtime.exchange.elements import append_element, may_overtake
from firesteel.runtime.exchange.flow_control import TimedLimit
from firesteel.runtime.exchange.serialization import mergeable
from firesteel.runtime.records.batch import Barrier, Batch, EndOfInput, InBand, alike, merge

SMALL_MESSAGE: Final = 4096
"""Bytes; smaller messages that wait are read together, up to ``MERGED_RECORDS`` records."""
SMALL_BATCH: Final = 64
"""Records; the same for batches, which are objects already."""
MERGED_RECORDS: Final = 1024

Message = bytearray | memoryview


class Inbox:
    """See the module.

    Args:
        window: bytes of small messages or batches that are read together, at most.
        load: makes a batch of a message; for channels whose batches come as objects it is not called.
        timed: hears when the reader takes something; None = the reader is not measured.

    Attributes:
        queue: messages, batches and elements, in order.
    """

    def __init__(
        self, window: int, load: Callable[[Message], Batch] | None = None, timed: TimedLimit | None = None
    ) -> None:
        self.queue: deque[Any] = deque()
        self.timed = timed
        self._window, self._load = window, load

    # -- the loop that carries the channel

    def put(self, item: Message | Batch | InBand) -> bool:
        """Append; returns whether the inbox was empty, so that its reader has to be woken."""
        queue = self.queue
        if isinstance(item, InBand):
            return append_element(queue, item) and len(queue) == 1
        queue.append(item)
        return len(queue) == 1

    # -- the reader

    def take(self) -> Batch | InBand | None:
        """The next batch or element; None: nothing is there. Small batches that follow each other come as one.

        Raises:
            SerializationError: a record can't be unpickled here.
            ProtocolError: a message is malformed.
        """
        queue, timed = self.queue, self.timed
        if not queue:
            if timed is not None:
                timed.starved()
            return None
        item = queue.popleft()
        if isinstance(item, InBand):
            if timed is not None:
                timed.rests()
            return item
        batch = item if isinstance(item, Batch) else self._batch(item)
        if queue and _is_small(item):
            batch = self._with_small_ones(item, batch)
        if timed is not None:
            timed.took(batch.bytes_estimate)
        return batch

    def barrier_ahead(self) -> Barrier | EndOfInput | None:
        """The first barrier if it may overtake, or the end, whichever comes first.

        None: there is none, or it may not overtake, and hides what follows.
        """
        first = next((item for item in list(self.queue) if isinstance(item, Barrier | EndOfInput)), None)
        return first if may_overtake(first) else None

    def in_flight(self, element: Barrier | EndOfInput) -> list[Batch]:
        """What is in front of ``barrier_ahead``; it stays to be taken, as batches.

        Raises:
            SerializationError, ProtocolError: see ``take``.
        """
        front = list[Batch]()
        for position in range(self._position(element)):
            item = self.queue[position]
            if not isinstance(item, InBand):
                self.queue[position] = item = self._batch(item)
                front.append(item)
        return front

    def remove(self, barrier: Barrier) -> None:
        """Take a barrier out from where it stands: it has overtaken, or is of no use any more."""
        del self.queue[self._position(barrier)]

    # -- inside

    def _position(self, element: Barrier | EndOfInput) -> int:
        return next(position for position, item in enumerate(list(self.queue)) if item is element)

    def _batch(self, item: Message | Batch) -> Batch:
        if isinstance(item, Batch):
            return item
        assert self._load is not None
        return self._load(item)

    def _with_small_ones(self, first: Message | Batch, batch: Batch) -> Batch:
        """A batch together with the small ones that follow it."""
        queue, parts = self.queue, [batch]
        size, records = batch.bytes_estimate, len(batch)
        most = self._window if self.timed is None else min(self._window, self.timed.most_together)
        while queue and records < MERGED_RECORDS and size < most:
            item = queue[0]
            if isinstance(item, InBand) or not _is_small(item) or not _alike(first, item):
                break
            queue.popleft()
            part = self._batch(item)
            parts.append(part)
            size += part.bytes_estimate
            records += len(part)
        if len(parts) == 1:
            return batch
        batch = merge(parts)
        batch.bytes_estimate = size
        return batch


def _is_small(item: Message | Batch) -> bool:
    if isinstance(item, Batch):
        return len(item) < SMALL_BATCH and isinstance(item.values, list)
    return len(item) < SMALL_MESSAGE


def _alike(first: Message | Batch, item: Message | Batch) -> bool:
    """Whether the two can be read as one batch."""
    if isinstance(first, Batch):
        return isinstance(item, Batch) and alike(first, item)
    return not isinstance(item, Batch) and mergeable(first, item)
