"""What waits on the stack of a chain: batches and watermarks on their way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from firesteel.runtime.batch import Watermark
from firesteel.runtime.chain_plan import Segment
from firesteel.runtime.columns import Part, Stamps

ROWS_AT_THE_DOOR: Final = 4096
"""So many rows are made of columns at once: about two milliseconds' worth."""


class Frame:
    """A batch on its way through a segment."""

    __slots__ = ("input_index", "left", "pipeline", "records", "segment", "stamps", "values")

    def __init__(self, segment: Segment, values: list[Any], stamps: list[int] | None, input_index: int) -> None:
        self.segment, self.values, self.stamps, self.input_index = segment, values, stamps, input_index
        self.left = len(values)
        self.records: Iterator[Any] = iter(values) if stamps is None else zip(values, stamps, strict=True)
        self.pipeline: Iterator[Any] | None = None


class ColumnFrame:
    """Columns on their way through a segment that takes them.

    Attributes:
        start: rows from here on have not gone in yet.
        took: seconds that the pipeline has worked.
    """

    __slots__ = ("batch", "pipeline", "segment", "size", "stamps", "start", "took")

    def __init__(self, segment: Segment, batch: pa.RecordBatch, stamps: Stamps) -> None:
        self.segment, self.batch, self.stamps = segment, batch, stamps
        self.pipeline: Iterator[Part] | None = None
        self.start = self.size = 0
        self.took = 0.0

    def next_rows(self) -> Part:
        """The rows that go in next."""
        batch, stamps, start = self.batch, self.stamps, self.start
        left = len(batch) - start
        self.size, self.took = min(left, self.segment.column_size), 0.0
        if self.size < len(batch):
            batch = batch.slice(start, self.size)
            stamps = None if stamps is None else stamps[start : start + self.size]
        self.start = start + self.size
        return batch, stamps

    def next_pipeline(self) -> Iterator[Part]:
        """Let the next rows in."""
        self.pipeline = pipeline = self.segment.column_pipeline(*self.next_rows())
        return pipeline


class Pieces:
    """Columns of which rows have to be made, a few at a time: for a segment (``inward``), or for who is behind it."""

    __slots__ = ("batch", "input_index", "inward", "pipeline", "segment", "stamps", "start")

    def __init__(
        self, segment: Segment, batch: pa.RecordBatch, stamps: Stamps, input_index: int, *, inward: bool
    ) -> None:
        self.segment, self.batch, self.stamps = segment, batch, stamps
        self.input_index, self.inward = input_index, inward
        self.start = 0
        self.pipeline = None

    def take(self) -> Part:
        """The next rows, still as columns."""
        start = self.start
        stop = self.start = min(start + ROWS_AT_THE_DOOR, self.batch.num_rows)
        stamps = None if self.stamps is None else self.stamps[start:stop]
        return self.batch.slice(start, stop - start), stamps

    @property
    def done(self) -> bool:
        """Whether all rows were taken."""
        return self.start >= len(self.batch)


class Advance:
    """A watermark on its way into a segment."""

    __slots__ = ("pipeline", "segment", "watermark")

    def __init__(self, segment: Segment, watermark: Watermark) -> None:
        self.segment, self.watermark = segment, watermark
        self.pipeline: Iterator[Any] | None = None


class Pass:
    """A watermark on its way out of a segment."""

    __slots__ = ("pipeline", "segment", "watermark")

    def __init__(self, segment: Segment, watermark: Watermark) -> None:
        self.segment, self.watermark = segment, watermark
        self.pipeline = None


class Fire:
    """Processing-time timers of a segment."""

    __slots__ = ("pipeline", "segment")

    def __init__(self, segment: Segment, pipeline: Iterator[Any]) -> None:
        self.segment = segment
        self.pipeline: Iterator[Any] | None = pipeline
