"""The queue between a channel and its reader: batches that were received but not read, and elements between them.

An inbox owns the order of its items, and with it overtaking: where a barrier stands, which batches are in flight in
front of it, and how it is taken out. Each channel has one, whether it comes from another slot or from the same; a task
with a thread of its own reads the same inbox.

The loop that carries the channel appends at the back. One reader takes from the front, perhaps in another thread. That
needs no lock: only the loop appends and only the reader removes, each with one operation of a ``deque``, which is
atomic. The reader searches a copy, because a ``deque`` must not grow while it is iterated over.
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
"""Messages smaller than this many bytes are merged with small ones behind them, up to ``MERGED_RECORDS`` records."""
SMALL_BATCH: Final = 64
"""Batches within a slot, which come as objects, are merged if they have fewer records than this."""
MERGED_RECORDS: Final = 1024
SMALL_COLUMNS: Final = 8192
"""Batches of columns with fewer rows are merged with small ones behind them, up to ``MERGED_ROWS`` rows."""
MERGED_ROWS: Final = 16384

Message = bytearray | memoryview


class Inbox:
    """The items of one channel that wait for their reader.

    Args:
        window: most bytes of small messages or batches that are merged for one ``take``.
        load: deserialises a message; not called for channels within a slot, whose batches come as objects.
        timed: measures how fast the reader is; None = it is not measured.

    Attributes:
        queue: messages, batches and elements, in order.
    """

    def __init__(
        self, window: int, load: Callable[[Message], Batch] | None = None, timed: TimedLimit | None = None
    ) -> None:
        self.queue: deque[Any] = deque()
        self.timed = timed
        self._window, self._load = window, load

    # -- called by the loop that carries the channel

    def put(self, item: Message | Batch | InBand) -> bool:
        """Append an item; returns whether the inbox was empty before, so that its reader has to be woken."""
        queue = self.queue
        if isinstance(item, InBand):
            return append_element(queue, item) and len(queue) == 1
        queue.append(item)
        return len(queue) == 1

    # -- called by the reader

    def take(self) -> Batch | InBand | None:
        """Remove and return the next batch or element, or None if there is none. Consecutive small batches are merged.

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
        if queue and not isinstance(batch.values, list):
            batch = self._merge_columns(batch)
        elif queue and _is_small(item):
            batch = self._merge_small(item, batch)
        if timed is not None:
            timed.took(batch.bytes_estimate)
        return batch

    def barrier_ahead(self) -> Barrier | EndOfInput | None:
        """The first barrier or the end of the input, whichever comes first, if it may overtake.

        None if there is neither, or if the first barrier may not overtake: those behind it must not pass it.
        """
        first = next((item for item in list(self.queue) if isinstance(item, Barrier | EndOfInput)), None)
        return first if may_overtake(first) else None

    def in_flight(self, element: Barrier | EndOfInput) -> list[Batch]:
        """The batches in front of ``barrier_ahead``, which become part of a checkpoint. They also stay to be taken.

        Raises:
            SerializationError, ProtocolError: as ``take``.
        """
        front = list[Batch]()
        for position in range(self._position(element)):
            item = self.queue[position]
            if not isinstance(item, InBand):
                # The deserialised batch replaces its message, or ``take`` would deserialise it a second time.
                self.queue[position] = item = self._batch(item)
                front.append(item)
        return front

    def remove(self, barrier: Barrier) -> None:
        """Remove a barrier that has overtaken the items in front of it, or that has become useless."""
        del self.queue[self._position(barrier)]

    # -- inside

    def _position(self, element: Barrier | EndOfInput) -> int:
        return next(position for position, item in enumerate(list(self.queue)) if item is element)

    def _batch(self, item: Message | Batch) -> Batch:
        if isinstance(item, Batch):
            return item
        assert self._load is not None
        return self._load(item)

    def _merge_small(self, first: Message | Batch, batch: Batch) -> Batch:
        """Merge a small batch with the small ones that follow it, since each batch has fixed costs in the chain."""
        queue, parts = self.queue, [batch]
        size, records = batch.bytes_estimate, len(batch)
        while queue and records < MERGED_RECORDS and size < self._most_together:
            item = queue[0]
            if isinstance(item, InBand) or not _is_small(item) or not _may_merge(first, item):
                break
            queue.popleft()
            part = self._batch(item)
            parts.append(part)
            size += part.bytes_estimate
            records += len(part)
        return _merged(parts, size)

    def _merge_columns(self, batch: Batch) -> Batch:
        """Merge a small batch of columns with those that follow it.

        Operators with state take milliseconds for a batch, however few rows it has.
        """
        queue, parts = self.queue, [batch]
        size, rows = batch.bytes_estimate, len(batch)
        while queue and len(parts[-1]) < SMALL_COLUMNS and rows < MERGED_ROWS and size < self._most_together:
            item = queue[0]
            if isinstance(item, InBand):
                break
            if not isinstance(item, Batch):
                # As in ``in_flight``: it may have to stay, and must not be deserialised again.
                queue[0] = item = self._batch(item)
            if len(item) >= SMALL_COLUMNS or not alike(batch, item):
                break
            queue.popleft()
            parts.append(item)
            size += item.bytes_estimate
            rows += len(item)
        return _merged(parts, size)

    @property
    def _most_together(self) -> float:
        """Most bytes of what is merged."""
        return self._window if self.timed is None else min(self._window, self.timed.most_together)


def _merged(parts: list[Batch], size: int) -> Batch:
    if len(parts) == 1:
        return parts[0]
    batch = merge(parts)
    batch.bytes_estimate = size
    return batch


def _is_small(item: Message | Batch) -> bool:
    if isinstance(item, Batch):
        return len(item) < SMALL_BATCH and isinstance(item.values, list)
    return len(item) < SMALL_MESSAGE


def _may_merge(first: Message | Batch, item: Message | Batch) -> bool:
    """Whether two items can become one batch: lists that agree in having timestamps and row kinds."""
    if isinstance(first, Batch):
        return isinstance(item, Batch) and alike(first, item)
    return not isinstance(item, Batch) and mergeable(first, item)
