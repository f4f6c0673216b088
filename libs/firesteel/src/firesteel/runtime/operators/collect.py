"""The operator behind ``execute_and_collect``: a bounded buffer of results, which the client fetches by offset."""

from __future__ import annotations

import pickle
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Final

from typing_extensions import override

from firesteel.checkpoint.assign import RESULTS
from firesteel.core.errors import SerializationError
from firesteel.core.pickling import dumps
from firesteel.core.short_repr import short_repr
from firesteel.graph.specs import OperatorSpec
from firesteel.runtime.operator_base.base import KeyedPart
from firesteel.runtime.operator_base.context import OperatorContext
from firesteel.runtime.operator_base.initialization import SnapshotContext
from firesteel.runtime.operators.sinks import Consumer
from firesteel.state.snapshots import (
    NO_CHECKPOINT,
    SLICE_SECONDS,
    Block,
    KeyedSnapshot,
    Outgoing,
    Purpose,
    SlicedSnapshot,
    StateChunk,
    StateInfo,
    WrittenState,
)

DEFAULT_BUFFER_BYTES: Final = 4 << 20
"""Bytes of results from which on the buffer is full, unless the program says otherwise."""
_SMALLEST_SIZE: Final = 8
"""Least estimate, in bytes, for one result."""


@dataclass(frozen=True)
class CollectAnswer:
    """The operator's answer to a client that fetches results.

    Attributes:
        offset: offset of the first result.
        count: number of results in ``data``.
        end: whether no results will follow these.
        data: pickled list of results; empty if there are none.
    """

    offset: int
    count: int
    end: bool
    data: bytes


class CollectOperator(Consumer):
    """Keeps results until the client fetches from a later offset; takes no more when full. Thread-safe.

    In jobs with checkpoints a result becomes visible to the client only when a checkpoint that contains it is complete:
    so none is given twice, whatever the order in which the job makes results after a restart. Invisible results do not
    count against the bound of the buffer, because a full buffer would hold up the barrier that makes them visible.

    Attributes:
        on_results: called (from whatever thread writes) when results or the end came; long polls wait for it.
        opened: whether the buffer is restored from the checkpoint; until then it answers no client.
    """

    takes_changes = True

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        self.on_results: Callable[[], None] | None = None
        self.opened = False
        self._limit = int(spec.extra.get("buffer_bytes") or DEFAULT_BUFFER_BYTES)
        self._lock = threading.Lock()
        self._results: deque[tuple[Any, int]] = deque()  # (result, estimated size)
        self._first = 0  # offset of the first result in the buffer
        self._bytes = 0
        self._ended = False
        self._visible: int | None = None  # offset behind the last visible result; None: all results are visible
        self._hidden_bytes = 0  # estimated size of the results that are not visible
        self._checkpoint_offsets: dict[int, int] = {}  # checkpoint -> offset behind the last result in it

    def open(self, context: OperatorContext) -> None:
        """Make the restored results visible; new ones become so with a checkpoint, if the job takes checkpoints."""
        super().open(context)
        if context.checkpointing:
            self._visible = self._first + len(self._results)
        self.opened = True
        if self.on_results is not None:
            self.on_results()

    @property
    @override
    def writable(self) -> bool:
        return self._bytes - self._hidden_bytes < self._limit

    @property
    @override
    def overdrawn(self) -> bool:
        return self._bytes - self._hidden_bytes >= 2 * self._limit

    @property
    @override
    def drained(self) -> bool:
        return self._ended and not self._results

    @property
    def available(self) -> int:
        """Offset behind the last result that is visible to the client."""
        return self._first + len(self._results) if self._visible is None else self._visible

    @property
    def ended(self) -> bool:
        """Whether no further results will come and all are visible."""
        return self._ended and (self._visible is None or not self._hidden_bytes)

    def ready(self, offset: int) -> bool:
        """Whether a client that fetches results from ``offset`` on would get an answer with results or the end."""
        return self.opened and (self._start(offset) < self.available or self.ended)

    def _start(self, offset: int) -> int:
        """Resolve the offset of a client; 0 means the first result in the buffer.

        A client that fetches from 0 has no results yet. If the buffer begins later, the results before were given to
        the client of an earlier run, and this job goes on behind them.
        """
        return offset or self._first

    def write(self, values: list[Any], timestamps: list[int] | None) -> None:
        if not values:
            return
        if self.coerce is not None:
            values = [self.coerce(value) for value in values]
        size = _sampled_size(values)
        with self._lock:
            self._results.extend([(value, size) for value in values])
            self._bytes += size * len(values)
            if self._visible is not None:
                self._hidden_bytes += size * len(values)
        if self.on_results is not None:
            self.on_results()

    @override
    def finish(self) -> None:
        self._ended = True
        if self.on_results is not None:
            self.on_results()

    @override
    def stop(self) -> None:
        # No later checkpoint will make the results of the last one visible.
        self._make_visible(self._first + len(self._results))
        self.finish()

    def fetch(self, offset: int, max_bytes: int) -> CollectAnswer:
        """Drop the results before ``offset``, which the client thereby acknowledges, and return those from it on.

        Args:
            offset: offset of the first result to return; 0 = all in the buffer, whatever an earlier client was given.
            max_bytes: approximate size of the answer; it has at least one result.

        Raises:
            ValueError: results from ``offset`` on were dropped before, or are not visible yet.
            SerializationError: a result can't be pickled.
        """
        self.acknowledge(offset)
        with self._lock:
            offset = self._start(offset)
            data, count = self._take(max_bytes)
            end = self._ended and count == len(self._results)
        return CollectAnswer(offset, count, end, data)

    def acknowledge(self, offset: int) -> None:
        """Drop the results before ``offset``, because the client has them.

        Raises:
            ValueError: as for ``fetch``.
        """
        with self._lock:
            was_writable = self.writable
            offset = self._start(offset)
            if not self._first <= offset <= self.available:
                raise ValueError(
                    f"results from offset {offset} on are not here: the buffer holds {self._first} to {self.available}"
                )
            while self._first < offset:
                self._bytes -= self._results.popleft()[1]
                self._first += 1
            drained, became_writable = self.drained, self.writable and not was_writable
        if became_writable and self.on_writable is not None:
            self.on_writable()
        if drained and self.on_drained is not None:
            self.on_drained()

    def _take(self, max_bytes: int) -> tuple[bytes, int]:
        """Pickle visible results of about ``max_bytes``; returns data and number. The results stay in the buffer."""
        values: list[Any] = []
        size = 0
        for result, estimate in islice(self._results, self.available - self._first):
            size += estimate
            if values and size > max_bytes:
                break
            values.append(result)
            if size >= max_bytes:
                break
        # Sizes are estimates: halve the results until their pickle is about as small as it should be.
        while values:
            data = self._pickled(values)
            if len(data) <= 2 * max_bytes or len(values) == 1:
                return data, len(values)
            values = list(islice(values, len(values) // 2))
        return b"", 0

    def _pickled(self, values: list[Any]) -> bytes:
        try:
            return _dumps(values)
        except SerializationError:
            # Pickle the results one by one, so that the error is raised while ``value`` is the record at fault: the
            # report of a failure reads that name from this frame.
            for value in values:
                _dumps([value])
            raise

    # -- checkpoints

    def snapshot_parts(self) -> Mapping[str, KeyedPart]:
        """The results that the client has not acknowledged."""
        return {RESULTS: _ResultsPart(self)}

    def snapshot_state(self, context: SnapshotContext) -> None:
        """Note which results become visible when this checkpoint is complete: those that are in the buffer now."""
        with self._lock:
            self._checkpoint_offsets[context.checkpoint_id] = self._first + len(self._results)

    def outgoing(self) -> _OutgoingResults:
        """The results in the buffer at this moment, to be written to a checkpoint."""
        with self._lock:
            return _OutgoingResults(self._first, [value for value, _ in self._results])

    def take_back(self, chunks: Iterable[StateChunk]) -> None:
        """Fill the buffer with the results of a checkpoint; ``open`` makes them visible."""
        for chunk in chunks:
            offset, values = pickle.loads(chunk.data)
            if not self._results:
                self._first = offset
            size = _sampled_size(values) if values else 0
            self._results.extend([(value, size) for value in values])
            self._bytes += size * len(values)

    def checkpoint_complete(self, checkpoint_id: int) -> None:
        """Make the results in this checkpoint visible, and those in earlier ones, whose notification may be lost."""
        complete = [number for number in self._checkpoint_offsets if number <= checkpoint_id]
        if complete:
            self._make_visible(max(self._checkpoint_offsets.pop(number) for number in complete))

    def commit(self) -> None:
        """Make all results visible, as all tasks of the job have reached their end."""
        self._make_visible(self._first + len(self._results))

    def _make_visible(self, offset: int) -> None:
        """Make the results before ``offset`` visible, and wake clients that wait for them."""
        with self._lock:
            if self._visible is None or offset <= self._visible:
                return
            newly_visible = islice(self._results, max(0, self._visible - self._first), offset - self._first)
            self._hidden_bytes -= sum(size for _, size in newly_visible)
            self._visible = offset
        if self.on_results is not None:
            self.on_results()

    def close(self) -> None:
        with self._lock:
            self._results.clear()
            self._bytes = 0


class _ResultsPart:
    """The buffer as a part of its operator's state."""

    def __init__(self, operator: CollectOperator) -> None:
        self._operator = operator

    def snapshot(self, slice_seconds: float = SLICE_SECONDS, purpose: Purpose = NO_CHECKPOINT) -> KeyedSnapshot:
        return SlicedSnapshot([self._operator.outgoing()], slice_seconds)

    def restore(self, written: Sequence[WrittenState]) -> None:
        for part in written:
            self._operator.take_back(part.chunks())


class _OutgoingResults(Outgoing):
    """Results that are written to a checkpoint, in chunks; each holds the offset of its first result, and results."""

    joined: ClassVar[bool] = False

    def __init__(self, first: int, values: list[Any]) -> None:
        self.states = (StateInfo(RESULTS, RESULTS, {}),)
        self._first, self._values = first, values
        self._next = 0

    def next_block(self, entries: int) -> Block | None:
        values = self._values[self._next : self._next + entries]
        if not values and self._next:
            return None
        # An empty buffer has a block too: its offset must survive, or the client's next offset would be unknown.
        block = Block(max(1, len(values)), _dumps((self._first + self._next, values)))
        self._next += max(1, len(values))
        return block

    def end(self) -> None:
        self._values = []


def _sampled_size(values: list[Any]) -> int:
    """Estimate how many bytes one of the values takes when pickled, from a sample of four."""
    sample = values[:: max(1, len(values) // 4)][:4]
    return max(_SMALLEST_SIZE, len(_dumps(sample)) // len(sample))


def _dumps(values: Any) -> bytes:
    return dumps(
        values,
        lambda reason: (
            f"a result can't be sent to the client: {reason}; the results begin with {short_repr(values, 80)}"
        ),
    )
