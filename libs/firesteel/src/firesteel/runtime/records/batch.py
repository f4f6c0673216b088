"""The unit that moves: a batch of records, never a single one."""

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
        bytes_estimate: about how many bytes the batch takes when serialised; 0 = not known yet.
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
        """Other values of the same form, one for each of these, with these timestamps and kinds."""
        return Batch(values, self.timestamps, self.kinds)

    def slice(self, start: int, stop: int) -> Batch:
        """The values from one position up to another: columns and arrays are views of these."""
        values = self.values
        return Batch(
            values.slice(start, stop - start) if isinstance(values, pa.RecordBatch) else values[start:stop],
            None if self.timestamps is None else self.timestamps[start:stop],
            None if self.kinds is None else self.kinds[start:stop],
        )

    def cut(self, size: int) -> Iterator[Batch]:
        """Batches of so many values, in order; itself if it has no more."""
        count = len(self)
        if count <= size:
            yield self
        else:
            for start in range(0, count, size):
                yield self.slice(start, min(start + size, count))


def alike(one: Batch, other: Batch) -> bool:
    """Whether the batches can be merged to one."""
    if (one.timestamps is None) != (other.timestamps is None) or (one.kinds is None) != (other.kinds is None):
        return False
    if isinstance(one.values, pa.RecordBatch):
        return isinstance(other.values, pa.RecordBatch) and bool(one.values.schema.equals(other.values.schema))
    return not isinstance(other.values, pa.RecordBatch)


def merge(parts: Sequence[Batch]) -> Batch:
    """One batch of the rows of several, in their order; all are ``alike``.

    Args:
        parts: at least one.
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
    """A batch for the chain.

    Attributes:
        batch: the records.
        input_index: the input of its first operator that it is for.
    """

    batch: Batch
    input_index: int = 0


class InBand:
    """What travels on a channel beside batches, in order with them: the end, watermarks, barriers."""

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
    """In-band: event time of what follows. Records behind it with a timestamp up to ``timestamp`` are late.

    The watermark and its status travel together, so that of several that follow each other without records between
    them only the last one matters.

    Attributes:
        timestamp: epoch milliseconds; ``MIN_WATERMARK`` = none yet.
        idle: who sent it gives no records for now and holds back no watermark.
        origin: source and split, or operator, that the watermark follows, for the log. Set where the watermark leaves
            its first task; it travels on with the watermarks that are made of this one, and does not count in ``==``.
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
    """In-band: what came before it belongs to the checkpoint, what comes behind it does not.

    Attributes:
        checkpoint_id: which checkpoint; they grow along each channel.
        timestamp: when it was triggered, epoch milliseconds.
        options: plain data from the coordinator; ``mode`` is ``EXACTLY_ONCE`` (the default) or ``AT_LEAST_ONCE``. With
            ``unaligned`` the barrier overtakes records ``aligned_ms`` after it was triggered; with ``rescalable`` not
            at tasks whose records in flight can't be dealt out to another number of subtasks.
    """

    __slots__ = ("checkpoint_id", "options", "timestamp")

    def __init__(self, checkpoint_id: int, timestamp: int, options: Mapping[str, Any] | None = None) -> None:
        self.checkpoint_id, self.timestamp, self.options = checkpoint_id, timestamp, dict(options or {})

    @property
    def exactly_once(self) -> bool:
        """Whether a channel that has delivered the barrier waits for the others."""
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


class CancelBarrier(InBand):
    """In-band: the barrier of this checkpoint will not come; nobody needs to wait for it.

    Attributes:
        checkpoint_id: which checkpoint.
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
