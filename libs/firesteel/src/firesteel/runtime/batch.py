"""The unit that moves: a batch of records, never a single one."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import pyarrow as pa

Values: TypeAlias = list[Any] | pa.RecordBatch


class Batch:
    """Values with optional timestamps and row kinds.

    Attributes:
        values: a list of Python objects, or a ``pyarrow.RecordBatch`` where the type is known.
        timestamps: epoch milliseconds, one for each value, or None.
        kinds: row kinds (0 insert, 1 update-before, 2 update-after, 3 delete), one for each value; None = all insert.
        bytes_estimate: about how many bytes the batch takes when serialised; 0 = not known yet.
    """

    __slots__ = ("bytes_estimate", "kinds", "timestamps", "values")

    def __init__(
        self,
        values: Values,
        timestamps: list[int] | None = None,
        kinds: list[int] | None = None,
        bytes_estimate: int = 0,
    ) -> None:
        self.values = values
        self.timestamps = timestamps
        self.kinds = kinds
        self.bytes_estimate = bytes_estimate

    def __len__(self) -> int:
        return self.values.num_rows if isinstance(self.values, pa.RecordBatch) else len(self.values)

    def __repr__(self) -> str:
        return f"Batch({len(self)} {'rows' if isinstance(self.values, pa.RecordBatch) else 'objects'})"


class InBand:
    """What travels on a channel beside batches, in order with them: the end, watermarks, later barriers."""

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
    """

    __slots__ = ("idle", "timestamp")

    def __init__(self, timestamp: int, idle: bool = False) -> None:
        self.timestamp = timestamp
        self.idle = idle

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Watermark):
            return NotImplemented
        return (self.timestamp, self.idle) == (other.timestamp, other.idle)

    def __hash__(self) -> int:
        return hash((self.timestamp, self.idle))

    def __repr__(self) -> str:
        return f"Watermark({self.timestamp}{', idle' if self.idle else ''})"
