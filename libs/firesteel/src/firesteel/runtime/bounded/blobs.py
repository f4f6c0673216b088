"""What goes through Spark's shuffle: batches as bytes, and what a stage tells the driver."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from typing_extensions import override

from firesteel.protocol.stages import COLLECTED, REPORT
from firesteel.runtime.exchange.channels import ChannelId, OutputChannel
from firesteel.runtime.exchange.serialization import MessageReader, MessageWriter, mergeable
from firesteel.runtime.records.batch import Batch, InBand, alike, merge
from firesteel.runtime.records.sizes import values_bytes

__all__ = [
    "COLLECTED",
    "MARKER",
    "REPORT",
    "ShuffleChannel",
    "Shuffled",
    "read_batch",
    "read_marker",
    "read_tasks",
]

MARKER: Final = 0
"""First byte of what Spark puts in front of each piece (``StageInput.java``)."""
_PARTED: Final = 255
"""First byte of a blob of several messages; else it is that of a message (``serialization``)."""
_PARTS: Final = struct.Struct("<BxxxI")
"""That, and how many messages there are; then come their sizes, as uint64, and they, each at a multiple of 8 bytes."""
BLOB_BYTES: Final = 256 * 1024
"""About so many bytes of records become one blob."""
BUFFERED_BYTES: Final = 32 << 20
"""Of all partitions together; then each of them becomes a blob."""
_PARTITION_BYTES: Final = 8
_TOTALS: Final = -1
"""In place of a partition, in front of totals (``StageOutput.java``)."""


def read_marker(element: bytes) -> int:
    """Which input the blobs behind a marker are for; -1: the next ones belong to another bucket of keys."""
    return int.from_bytes(element[1:5], "big", signed=True)


def read_tasks(element: bytes) -> int:
    """How many tasks a stage has, of the first marker that one is given where that was chosen by size."""
    return -2 - int.from_bytes(element[1:5], "big", signed=True)


def read_batch(element: bytes, peer: str) -> Batch:
    """The batch of a blob."""
    if element[0] != _PARTED:
        return MessageReader(peer).loads(bytearray(element))  # arrays in it stay writable
    view, reader, parts = memoryview(bytearray(element)), MessageReader(peer), []
    _, count = _PARTS.unpack_from(view)
    position = _PARTS.size + 8 * count
    for size in struct.unpack_from(f"<{count}Q", view, _PARTS.size):
        parts.append(reader.loads(view[position : position + size]))
        position += size + -size % 8
    return merge(parts)


def _message(batch: Batch) -> bytes:
    segments, _ = MessageWriter().dumps(batch)
    return b"".join(segments)


def _parted(messages: Sequence[bytes]) -> bytes:
    if len(messages) == 1:
        return messages[0]
    head = _PARTS.pack(_PARTED, len(messages)) + struct.pack(f"<{len(messages)}Q", *map(len, messages))
    return b"".join(piece + bytes(-len(piece) % 8) for piece in (head, *messages))


class Shuffled:
    """What a task gives to Spark: a partition and a blob in turn.

    Attributes:
        bytes_out: of all blobs of records so far.
    """

    def __init__(self) -> None:
        self._out: list[bytes] = []
        self.bytes_out = 0
        self._channels: list[ShuffleChannel] = []
        self._buffered = 0

    def channel(self, edge: int, up: int, partition: int) -> ShuffleChannel:
        """Where the records of a partition go."""
        made = ShuffleChannel(self, edge, up, partition)
        self._channels.append(made)
        return made

    def buffered(self, size: int) -> None:
        """So many more bytes wait in a channel; fewer, if it is negative."""
        self._buffered += size
        if self._buffered > BUFFERED_BYTES:
            self.flush()

    def emit(self, partition: int, blob: bytes) -> None:
        self._out.append(partition.to_bytes(_PARTITION_BYTES, "big"))
        self._out.append(blob)

    def flush(self) -> None:
        """All that waits becomes blobs."""
        for channel in self._channels:
            channel.flush()

    def take(self) -> Iterator[bytes]:
        """What was given since the last time."""
        out, self._out = self._out, []
        return iter(out)


class ShuffleChannel(OutputChannel):
    """Records on their way to a partition of Spark's shuffle. It has always room: Spark spills.

    Rows are written as soon as they come, while the processor's cache has them: that takes a fifth of the time.
    """

    def __init__(self, shuffled: Shuffled, edge: int, up: int, partition: int) -> None:
        super().__init__(ChannelId(edge, up, partition))
        self._shuffled, self._partition = shuffled, partition
        self._columns: list[Batch] = []
        self._rows: list[bytes] = []
        """Messages. Of both lists one is empty."""
        self._bytes = 0

    @override
    def write(self, batch: Batch) -> None:
        self.records_out += len(batch)
        if isinstance(batch.values, pa.RecordBatch):
            if self._rows or (self._columns and not alike(self._columns[-1], batch)):
                self.flush()
            self._columns.append(batch)
            size = max(1, values_bytes(batch.values))
        else:
            message = _message(batch)
            if self._columns or (self._rows and not mergeable(self._rows[-1], message)):
                self.flush()
            self._rows.append(message)
            size = len(message)
        self._bytes += size
        self._shuffled.buffered(size)
        if self._bytes >= BLOB_BYTES:
            self.flush()

    def send(self, element: InBand) -> None:
        """Event time ends where input ends; nobody has to be told."""

    @override
    def flush(self) -> None:
        rows, self._rows = self._rows, []
        columns, self._columns = self._columns, []
        if not rows and not columns:
            return
        self._shuffled.buffered(-self._bytes)
        self._bytes = 0
        blob = _parted(rows) if rows else _message(merge(columns))
        self.bytes_out += len(blob)
        self._shuffled.bytes_out += len(blob)
        self._shuffled.emit(self._partition, blob)

    @override
    def end(self) -> None:
        self.flush()

    @override
    def close(self) -> None:
        self._columns, self._rows = [], []


def totals(records_in: int, bytes_in: int, records_out: int, bytes_out: int, spilled: int) -> Iterator[bytes]:
    """How far a task has come; it becomes metrics of Spark's task."""
    yield _TOTALS.to_bytes(_PARTITION_BYTES, "big", signed=True)
    yield struct.pack(">5q", records_in, bytes_in, records_out, bytes_out, spilled)


def plain_report(report: dict[str, Any]) -> bytes:
    """What a task says about itself."""
    import json

    return bytes((REPORT,)) + json.dumps(report, separators=(",", ":")).encode()
