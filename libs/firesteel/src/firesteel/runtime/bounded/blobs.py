"""The form in which batches, and reports for the driver, pass through Spark's shuffle."""

from __future__ import annotations

import os
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
"""First byte of a marker, which Spark's side puts in front of the blobs of an input (``StageInput.java``)."""
_PARTED: Final = 255
"""First byte of a blob with several messages; a blob with one begins with the format of that (``serialization``)."""
_PARTS: Final = struct.Struct("<BxxxI")
"""That byte, and the number of messages; then follow their sizes (uint64) and they, each at a multiple of 8 bytes."""
BLOB_BYTES: Final = 256 * 1024
"""Bytes of records at which a channel makes a blob."""
BUFFERED_BYTES: Final = 32 << 20
"""Bytes that wait in all channels of a task together, at which each of them makes a blob."""
_PARTITION_BYTES: Final = 8
_TOTALS: Final = -1
"""Stands in place of a partition in front of totals (``StageOutput.java``)."""
_STREAM_BUFFER: Final = 65536
"""PySpark's, unless ``spark.buffer.size`` says otherwise."""


def read_marker(element: bytes) -> int:
    """The input to which the blobs behind a marker belong; -1 if they begin another bucket of keys."""
    return int.from_bytes(element[1:5], "big", signed=True)


def read_tasks(element: bytes) -> int:
    """The number of tasks of a stage, from its first marker, if that number was chosen by size."""
    return -2 - int.from_bytes(element[1:5], "big", signed=True)


def read_batch(element: bytes, peer: str) -> Batch:
    """Deserialise a blob to one batch."""
    if element[0] != _PARTED:
        return MessageReader(peer).loads(bytearray(element))  # a bytearray, so that arrays in it stay writable
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
    """The output of a task to Spark: a partition and a blob in turn.

    Attributes:
        bytes_out: running total of bytes of all blobs of records.
    """

    def __init__(self) -> None:
        self._out: list[bytes] = []
        self.bytes_out = 0
        self._channels: list[ShuffleChannel] = []
        self._buffered = 0

    def channel(self, edge: int, up: int, partition: int) -> ShuffleChannel:
        """Open the channel for the records of a partition."""
        channel = ShuffleChannel(self, edge, up, partition)
        self._channels.append(channel)
        return channel

    def buffered(self, change: int) -> None:
        """Account for bytes that wait in a channel, or, if negative, have left it; flush if too many wait."""
        self._buffered += change
        if self._buffered > BUFFERED_BYTES:
            self.flush()

    def emit(self, partition: int, blob: bytes) -> None:
        self._out.append(partition.to_bytes(_PARTITION_BYTES, "big"))
        self._out.append(blob)

    def flush(self) -> None:
        """Make blobs of everything that waits."""
        for channel in self._channels:
            channel.flush()

    def take(self) -> Iterator[bytes]:
        """Take the output since the last call."""
        out, self._out = self._out, []
        return iter(out)


class ShuffleChannel(OutputChannel):
    """The channel to one partition of Spark's shuffle. It always has room, because Spark spills.

    Rows are serialised as soon as they come, while they are in the processor's cache: that takes a fifth of the time.
    """

    def __init__(self, shuffled: Shuffled, edge: int, up: int, partition: int) -> None:
        super().__init__(ChannelId(edge, up, partition))
        self._shuffled, self._partition = shuffled, partition
        self._columns: list[Batch] = []  # batches of columns that wait
        self._rows: list[bytes] = []  # messages of rows that wait; one of the two lists is always empty
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
        """Ignore the element: in batch mode event time ends with the input, and nobody has to be told."""

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
    """Yield the totals of a task so far, which become metrics of Spark's task.

    PySpark's stream to the executor has a buffer, in which the totals of a task with little output would wait until its
    end. So they come a second time, with as much padding as the buffer holds, which flushes the first ones.
    """
    partition = _TOTALS.to_bytes(_PARTITION_BYTES, "big", signed=True)
    plain = struct.pack(">5q", records_in, bytes_in, records_out, bytes_out, spilled)
    yield from (partition, plain)
    yield from (partition, plain.ljust(int(os.environ.get("SPARK_BUFFER_SIZE", _STREAM_BUFFER)), b"\0"))


def plain_report(report: dict[str, Any]) -> bytes:
    """Encode the report of a task for the driver."""
    import json

    return bytes((REPORT,)) + json.dumps(report, separators=(",", ":")).encode()
