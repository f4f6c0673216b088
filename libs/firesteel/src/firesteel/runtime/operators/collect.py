"""Results on their way to the client, which pulls them by offset: a bounded buffer."""

from __future__ import annotations

import pickle
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Final

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
_SMALLEST_SIZE: Final = 8


@dataclass(frozen=True)
class CollectAnswer:
    """The operator's answer to a client that fetches results.

    Attributes:
        offset: of the first result.
        count: number of results in ``data``.
        end: there will be no results behind these.
        data: pickled list; empty if there are none.
    """

    offset: int
    count: int
    end: bool
    data: bytes


class CollectOperator(Consumer):
    """Keeps results until the client asks for a later offset; takes no more when full. Thread-safe.

    In jobs with checkpoints a result is given to the client only when a checkpoint that has it is complete: so none is
    given twice, with whatever order the job comes to it after a restart. Until then the buffer has no bound: a full one
    would hold up the barrier.

    Attributes:
        on_results: called (from whatever thread writes) when results or the end came; long polls wait for it.
        opened: the buffer is what it was at the checkpoint that the job goes on from; before, it may be asked nothing.
    """

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        self.on_results: Callable[[], None] | None = None
        self.opened = False
        self._limit = int(spec.extra.get("buffer_bytes") or DEFAULT_BUFFER_BYTES)
        self._lock = threading.Lock()
        self._results: deque[tuple[Any, int]] = deque()  # (result, estimated size)
        self._first = 0
        self._bytes = 0
        self._ended = False
        self._visible: int | None = None  # offset behind the last one that may be given; None: all may
        self._hidden_bytes = 0
        self._marks: dict[int, int] = {}  # checkpoint -> offset behind the last result in it

    def open(self, context: OperatorContext) -> None:
        """Nothing may be given before a checkpoint, if the job takes some."""
        super().open(context)
        if context.checkpointing:
            self._visible = self._first + len(self._results)
        self.opened = True
        if self.on_results is not None:
            self.on_results()

    @property
    def writable(self) -> bool:
        """Whether the buffer has room."""
        return self._bytes - self._hidden_bytes < self._limit

    @property
    def overdrawn(self) -> bool:
        """Whether twice the buffer is full."""
        return self._bytes - self._hidden_bytes >= 2 * self._limit

    @property
    def drained(self) -> bool:
        """Whether the input has ended and the client has fetched everything."""
        return self._ended and not self._results

    @property
    def available(self) -> int:
        """Offset behind the last result that may be given."""
        return self._first + len(self._results) if self._visible is None else self._visible

    @property
    def ended(self) -> bool:
        """No further results will come, and all may be given."""
        return self._ended and (self._visible is None or not self._hidden_bytes)

    def ready(self, offset: int) -> bool:
        """Whether there is an answer for who asks for the results from ``offset`` on."""
        return self.opened and (self._start(offset) < self.available or self.ended)

    def _start(self, offset: int) -> int:
        """Who asks for all results has none, and has never asked for others: it is the client of another run than those
        before ``_first`` were given to. The job goes on behind these."""
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

    def finish(self) -> None:
        """The input has ended."""
        self._ended = True
        if self.on_results is not None:
            self.on_results()

    def stop(self) -> None:
        """No further results come."""
        self._show(self._first + len(self._results))
        self.finish()

    def fetch(self, offset: int, max_bytes: int) -> CollectAnswer:
        """Drop the results before ``offset``, which are thereby acknowledged, and give those from it on.

        Args:
            offset: 0 = all that are here, whatever was given to the client of an earlier run.
            max_bytes: about so many; one result is given at least.

        Raises:
            ValueError: results from ``offset`` on were dropped before, or are not there yet.
            SerializationError: a result can't be pickled.
        """
        self.acknowledge(offset)
        with self._lock:
            offset = self._start(offset)
            data, count = self._take(max_bytes)
            end = self._ended and count == len(self._results)
        return CollectAnswer(offset, count, end, data)

    def acknowledge(self, offset: int) -> None:
        """Drop the results before ``offset``: the client has them.

        Raises:
            ValueError: see ``fetch``.
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
        values: list[Any] = []
        size = 0
        for result, estimate in islice(self._results, self.available - self._first):
            size += estimate
            if values and size > max_bytes:
                break
            values.append(result)
            if size >= max_bytes:
                break
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
            for value in values:  # the failure names the record at hand
                _dumps([value])
            raise

    # -- checkpoints

    def snapshot_parts(self) -> Mapping[str, KeyedPart]:
        """The results that the client does not have."""
        return {RESULTS: _ResultsPart(self)}

    def snapshot_state(self, context: SnapshotContext) -> None:
        """What is here now may be given when the checkpoint is complete."""
        with self._lock:
            self._marks[context.checkpoint_id] = self._first + len(self._results)

    def outgoing(self) -> _OutgoingResults:
        """The results of now, to be written."""
        with self._lock:
            return _OutgoingResults(self._first, [value for value, _ in self._results])

    def take_back(self, chunks: Iterable[StateChunk]) -> None:
        """Go on behind the results that were in the checkpoint, which may be given at once."""
        for chunk in chunks:
            offset, values = pickle.loads(chunk.data)
            if not self._results:
                self._first = offset
            size = _sampled_size(values) if values else 0
            self._results.extend([(value, size) for value in values])
            self._bytes += size * len(values)

    def checkpoint_complete(self, checkpoint_id: int) -> None:
        """Results that are in this checkpoint may be given."""
        marks = [number for number in self._marks if number <= checkpoint_id]
        if marks:
            self._show(max(self._marks.pop(number) for number in marks))

    def commit(self) -> None:
        """All tasks have come to their end: everything may be given."""
        self._show(self._first + len(self._results))

    def _show(self, offset: int) -> None:
        with self._lock:
            if self._visible is None or offset <= self._visible:
                return
            shown = islice(self._results, max(0, self._visible - self._first), offset - self._first)
            self._hidden_bytes -= sum(size for _, size in shown)
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
        for one in written:
            self._operator.take_back(one.chunks())


class _OutgoingResults(Outgoing):
    """Results on their way into a checkpoint: chunks of the number of the first one, and these."""

    joined: ClassVar[bool] = False

    def __init__(self, first: int, values: list[Any]) -> None:
        self.states = (StateInfo(RESULTS, RESULTS, {}),)
        self._first, self._values = first, values
        self._next = 0

    def next_block(self, entries: int) -> Block | None:
        values = self._values[self._next : self._next + entries]
        if not values and self._next:
            return None
        block = Block(max(1, len(values)), _dumps((self._first + self._next, values)))  # an empty buffer has one, too
        self._next += max(1, len(values))
        return block

    def end(self) -> None:
        self._values = []


def _sampled_size(values: list[Any]) -> int:
    """About how many bytes one of the values takes when pickled."""
    sample = values[:: max(1, len(values) // 4)][:4]
    return max(_SMALLEST_SIZE, len(_dumps(sample)) // len(sample))


def _dumps(values: Any) -> bytes:
    return dumps(
        values,
        lambda reason: (
            f"a result can't be sent to the client: {reason}; the results begin with {short_repr(values, 80)}"
        ),
    )
