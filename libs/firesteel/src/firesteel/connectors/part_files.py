"""Part files that are being written, of formats that append rows and of bulk formats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa

from firesteel.common.serialization import BulkWriter, BulkWriterFactory, Encoder
from firesteel.connectors.filesystems.file_system import MakeDurable, PartOutput, Persisted
from firesteel.core.call_each import call_each, call_one

_BULK_AT_ONCE: Final = 1000
"""Records of a bulk format that are written between two looks at the size of the file."""


def _at_once(work: Callable[[], None]) -> None:
    work()


class PartFile(ABC):
    """A part file that is being written.

    Args:
        output: takes the bytes; it may begin with those of another part.
        now: current time in seconds of the monotonic clock.

    Attributes:
        output: takes the bytes.
        begun, written: when the part was made, and when records were written last, by the same clock.
    """

    resumable = False
    """Whether another attempt can go on from a position at which the part was persisted."""

    def __init__(self, output: PartOutput, now: float) -> None:
        self.output, self.stream = output, output.stream
        self.begun = self.written = now

    @property
    @abstractmethod
    def size(self) -> int:
        """Approximate size in bytes."""

    @abstractmethod
    def write(self, values: Sequence[Any], start: int, limit: int | None) -> int:
        """Write values from an index on, until the size has reached the limit; returns the index of the next one."""

    def write_columns(self, batch: pa.RecordBatch, start: int, limit: int | None) -> int:
        """Write rows of a batch as ``write`` does, for formats that take columns."""
        raise TypeError(f"{type(self).__name__} takes no columns")

    @abstractmethod
    def finish(self) -> None:
        """Write the end of the format, such as a footer."""

    def persist(self, make_durable: MakeDurable) -> Persisted:
        """Prepare a checkpoint; returns what another attempt needs to go on with the part."""
        return self.output.persist(make_durable)

    def close(self, make_durable: MakeDurable = _at_once) -> None:
        """Finish the part; no more records come."""
        self.finish()
        self.output.close(make_durable)

    def discard(self) -> None:
        """Release the file without an end of the format; it stays hidden."""
        self.output.discard()

    def abort(self) -> None:
        """Release and remove the file."""
        self.discard()
        self.output.abort()


class _RowPart(PartFile):
    resumable = True

    def __init__(self, encoder: Encoder, output: PartOutput, now: float) -> None:
        super().__init__(output, now)
        self._encode, self._encoder = encoder.encode, encoder
        self._size = self.stream.tell()

    @property
    def size(self) -> int:
        return self._size

    def write(self, values: Sequence[Any], start: int, limit: int | None) -> int:
        encode = self._encode
        if limit is None:
            return self._append(call_each(encode, values[start:]), len(values))
        rows, room, stop = [], limit - self._size, start
        while stop < len(values) and room > 0:
            row = call_one(encode, values[stop])
            rows.append(row)
            room -= len(row)
            stop += 1
        return self._append(rows, stop)

    def write_columns(self, batch: pa.RecordBatch, start: int, limit: int | None) -> int:
        rows = self._encoder.encode_columns(batch.slice(start))
        if limit is None:
            return self._append(rows, batch.num_rows)
        room, count = limit - self._size, 0
        while count < len(rows) and room > 0:
            room -= len(rows[count])
            count += 1
        return self._append(rows[:count], start + count)

    def _append(self, rows: list[bytes], stop: int) -> int:
        data = b"".join(rows)
        self.stream.write(data)
        self._size += len(data)
        return stop

    def finish(self) -> None:
        pass


class _BulkPart(PartFile):
    def __init__(self, factory: BulkWriterFactory, output: PartOutput, now: float) -> None:
        super().__init__(output, now)
        self._writer: BulkWriter | None = None
        try:
            self._writer = factory.create(self.stream)
        except BaseException:
            self.abort()
            raise

    @property
    def size(self) -> int:
        assert self._writer is not None
        return self.stream.tell() + self._writer.buffered_bytes()

    def discard(self) -> None:
        if self._writer is not None:
            self._writer.abort()
        super().discard()

    def write(self, values: Sequence[Any], start: int, limit: int | None) -> int:
        assert self._writer is not None
        stop = start
        while stop < len(values) and (stop == start or limit is None or self.size < limit):
            piece = values[stop : stop + _BULK_AT_ONCE]
            self._writer.write(piece)
            stop += len(piece)
        return stop

    def write_columns(self, batch: pa.RecordBatch, start: int, limit: int | None) -> int:
        assert self._writer is not None
        stop = start
        while stop < batch.num_rows and (stop == start or limit is None or self.size < limit):
            piece = batch.slice(stop, _BULK_AT_ONCE if limit is not None else None)
            self._writer.write_columns(piece)
            stop += piece.num_rows
        return stop

    def finish(self) -> None:
        assert self._writer is not None
        self._writer.finish()


MakePart = Callable[[PartOutput, float], PartFile]
"""Makes a part that writes to an output; the second argument is the current time."""


def part_maker(file_format: Encoder | BulkWriterFactory) -> MakePart:
    """The function that makes parts of a format. Parts of bulk formats always begin empty."""
    if isinstance(file_format, BulkWriterFactory):
        return partial(_BulkPart, file_format)
    return partial(_RowPart, file_format)
