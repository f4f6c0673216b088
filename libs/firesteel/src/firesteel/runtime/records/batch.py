"""What moves through tasks and channels: batches of records, never single ones, and in-band elements between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from firesteel.runtime.records.copies import COPIES

Values: TypeAlias = list[Any] | pa.RecordBatch
Timestamps: TypeAlias = list[int] | npt.NDArray[np.int64] | None
"""Beside a list a list, beside a ``RecordBatch`` a contiguous array; None = no timestamps."""
Kinds: TypeAlias = list[int] | npt.NDArray[np.int8] | None
"""Row kinds (0 insert, 1 update-before, 2 update-after, 3 delete), in the form of ``Timestamps``; None = all insert."""


class Batch:
    """Values with optional timestamps and row kinds.

    Attributes:
        values: a list of Python objects, or a ``pyarrow.RecordBatch`` where the type is known.
        timestamps: epoch milliseconds, one for each value, or None; a list beside a list, an array beside columns.
        kinds: row kinds, one for each value, or None; a list beside a list, an array beside columns.
        bytes_estimate: estimated size of the batch when serialised, in bytes; 0 = not known yet.
    """

    __slots__ = ("bytes_estimate", "kinds", "timestamps", "values")

    def __init__(
        self, values: Values, timestamps: Timestamps = None, kinds: Kinds = None, bytes_estimate: int = 0
    ) -> None:
        self.values = values
        self.timestamps = timestamps
        self.kinds = kinds
        self.bytes_estimate = bytes_estimate

    def __len__(self) -> int:
        return self.values.num_rows if isinstance(self.values, pa.RecordBatch) else len(self.values)

    def __repr__(self) -> str:
        return f"Batch({len(self)} {'rows' if isinstance(self.values, pa.RecordBatch) else 'objects'})"

    def with_values(self, values: Values) -> Batch:
        """A batch of other values, one for each of these, with the same timestamps and kinds."""
        return Batch(values, self.timestamps, self.kinds)

    def slice(self, start: int, stop: int) -> Batch:
        """The part of the batch from one position up to another; columns and arrays are views, lists are copies."""
        values = self.values
        return Batch(
            values.slice(start, stop - start) if isinstance(values, pa.RecordBatch) else values[start:stop],
            None if self.timestamps is None else self.timestamps[start:stop],
            None if self.kinds is None else self.kinds[start:stop],
        )

    def cut(self, size: int) -> Iterator[Batch]:
        """Yield pieces of at most ``size`` values, in order; the batch itself if it is no larger."""
        count = len(self)
        if count <= size:
            yield self
        else:
            for start in range(0, count, size):
                yield self.slice(start, min(start + size, count))


def alike(first: Batch, second: Batch) -> bool:
    """Whether two batches can be merged: both are rows or have one schema, and agree in having timestamps and kinds."""
    if (first.timestamps is None) != (second.timestamps is None) or (first.kinds is None) != (second.kinds is None):
        return False
    if isinstance(first.values, pa.RecordBatch):
        return isinstance(second.values, pa.RecordBatch) and bool(first.values.schema.equals(second.values.schema))
    return not isinstance(second.values, pa.RecordBatch)


def merge(parts: Sequence[Batch]) -> Batch:
    """Merge batches in their order.

    Args:
        parts: at least one batch; all are ``alike``.
    """
    values: Any
    if isinstance(parts[0].values, pa.RecordBatch):
        values = pa.concat_batches([part.values for part in parts])
        COPIES.bytes += values.nbytes
    else:
        values = list(chain.from_iterable(part.values for part in parts))
    return Batch(values, _joined([part.timestamps for part in parts]), _joined([part.kinds for part in parts]))


def _joined(parts: Sequence[Any]) -> Any:
    if parts[0] is None:
        return None
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    return list(chain.from_iterable(parts))


class InputBatch(NamedTuple):
    """A batch that enters a chain.

    Attributes:
        batch: the records.
        input_index: index of the input of the chain's first operator.
    """

    batch: Batch
    input_index: int = 0


class InBand:
    """An element that travels on a channel between batches, in order with them: watermark, barrier, or the end."""

    __slots__ = ()


class EndOfInput(InBand):
    """In-band marker: the channel will carry nothing more."""

    def __repr__(self) -> str:
        return "END_OF_INPUT"


END_OF_INPUT: Final = EndOfInput()

MIN_WATERMARK: Final = -(2**63)
"""No watermark yet."""
MAX_WATERMARK: Final = 2**63 - 1
"""Event time has ended."""


class Watermark(InBand):
    """In-band: progress of event time. Records behind it with a timestamp up to ``timestamp`` are late.

    The watermark and the status (Flink's ``WatermarkStatus``) travel together, so that of several without records
    between them only the last one matters.

    Attributes:
        timestamp: epoch milliseconds; ``MIN_WATERMARK`` = none yet.
        idle: whether the sender emits no records for now, and so must hold back no watermark downstream.
        origin: source and split, or operator, that the watermark follows, for the log. It is set where the watermark
            leaves its first task, and copied to watermarks that follow from this one; ``==`` ignores it.
    """

    __slots__ = ("idle", "origin", "timestamp")

    def __init__(self, timestamp: int, idle: bool = False, origin: str = "") -> None:
        self.timestamp = timestamp
        self.idle = idle
        self.origin = origin

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Watermark):
            return NotImplemented
        return (self.timestamp, self.idle) == (other.timestamp, other.idle)

    def __hash__(self) -> int:
        return hash((self.timestamp, self.idle))

    def __repr__(self) -> str:
        return f"Watermark({self.timestamp}{', idle' if self.idle else ''})"


class Barrier(InBand):
    """In-band: records in front of it belong to the checkpoint, records behind it do not.

    Attributes:
        checkpoint_id: id of the checkpoint; ids grow along each channel.
        timestamp: when it was triggered, epoch milliseconds.
        options: plain data from the coordinator; ``mode`` is ``EXACTLY_ONCE`` (the default) or ``AT_LEAST_ONCE``. With
            ``unaligned`` the barrier overtakes records ``aligned_ms`` after it was triggered; with ``rescalable`` not
            at tasks whose records in flight can't be redistributed to another number of subtasks.
    """

    __slots__ = ("checkpoint_id", "options", "timestamp")

    def __init__(self, checkpoint_id: int, timestamp: int, options: Mapping[str, Any] | None = None) -> None:
        self.checkpoint_id, self.timestamp, self.options = checkpoint_id, timestamp, dict(options or {})

    @property
    def exactly_once(self) -> bool:
        """Whether a channel that has delivered the barrier is blocked until the others have."""
        return bool(self.options.get("mode", "EXACTLY_ONCE") != "AT_LEAST_ONCE")

    @property
    def overtakes_at(self) -> float:
        """Epoch milliseconds from when on the barrier overtakes the records in front of it."""
        return self.timestamp + self.options.get("aligned_ms", 0) if self.options.get("unaligned") else float("inf")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Barrier):
            return NotImplemented
        mine = self.checkpoint_id, self.timestamp, self.options
        return mine == (other.checkpoint_id, other.timestamp, other.options)

    def __hash__(self) -> int:
        return hash((self.checkpoint_id, self.timestamp))

    def __repr__(self) -> str:
        return f"Barrier({self.checkpoint_id})"


class LatencyMarker(InBand):
    """In-band: a source has sent it at some moment; each task that it comes to measures how long it took.

    Attributes:
        source: id of the source's vertex.
        subtask: of the source.
        marked_ms: when the source sent it, epoch milliseconds.
    """

    __slots__ = ("marked_ms", "source", "subtask")

    def __init__(self, source: str, subtask: int, marked_ms: int) -> None:
        self.source, self.subtask, self.marked_ms = source, subtask, marked_ms

    def is_like(self, other: Any) -> bool:
        """Whether another element is a marker of the same source subtask."""
        return isinstance(other, LatencyMarker) and (self.source, self.subtask) == (other.source, other.subtask)

    def __eq__(self, other: object) -> bool:
        return self.is_like(other) and isinstance(other, LatencyMarker) and self.marked_ms == other.marked_ms

    def __hash__(self) -> int:
        return hash((self.source, self.subtask, self.marked_ms))

    def __repr__(self) -> str:
        return f"LatencyMarker({self.source}, {self.subtask}, {self.marked_ms})"


class CancelBarrier(InBand):
    """In-band: the barrier of this checkpoint will not come, so nobody must wait for it.

    Attributes:
        checkpoint_id: id of the checkpoint.
    """

    __slots__ = ("checkpoint_id",)

    def __init__(self, checkpoint_id: int) -> None:
        self.checkpoint_id = checkpoint_id

    def __eq__(self, other: object) -> bool:
        return other.checkpoint_id == self.checkpoint_id if isinstance(other, CancelBarrier) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.checkpoint_id)

    def __repr__(self) -> str:
        return f"CancelBarrier({self.checkpoint_id})"
