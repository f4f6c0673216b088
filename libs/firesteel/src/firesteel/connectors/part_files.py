"""The open part files of a file sink: where records go, and when a part is full."""

from __future__ import annotations

import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

from firesteel.common.serialization import BulkWriter, BulkWriterFactory, Encoder
from firesteel.connectors.file_layout import BucketAssigner, OutputFileConfig, RollingPolicy
from firesteel.core.clock import Clock
from firesteel.functions.sink import SinkWriter, WriterContext
from firesteel.functions.source import Plain

_BULK_AT_ONCE: Final = 1000
"""After so many records of a bulk format its size is looked at."""


class Part(ABC):
    """A part file that is being written.

    Attributes:
        hidden, visible: its path until and after the commit.
        begun, written: when it was made, and written to last; seconds of the clock.
    """

    def __init__(self, hidden: Path, visible: Path, now: float) -> None:
        self.hidden, self.visible = hidden, visible
        self.stream: BinaryIO = open(hidden, "xb")  # noqa: SIM115 - closed by close() or abort()
        self.begun = self.written = now

    @property
    @abstractmethod
    def size(self) -> int:
        """Bytes, about."""

    @abstractmethod
    def write(self, values: Sequence[Any], start: int, limit: int | None) -> int:
        """Take values from this index on, until the size has reached the limit; the index behind the last one."""

    @abstractmethod
    def finish(self) -> None:
        """Write the end of the format."""

    def close(self) -> None:
        """Finish, sync and close the file."""
        self.finish()
        self.stream.flush()
        os.fsync(self.stream.fileno())
        self.stream.close()

    def discard(self) -> None:
        """Close the file without an end of the format; it stays hidden."""
        self.stream.close()

    def abort(self) -> None:
        """Close and remove the file."""
        self.discard()
        self.hidden.unlink(missing_ok=True)


class _RowPart(Part):
    _size = 0

    def __init__(self, encoder: Encoder, hidden: Path, visible: Path, now: float) -> None:
        super().__init__(hidden, visible, now)
        self._encode = encoder.encode

    @property
    def size(self) -> int:
        return self._size

    def write(self, values: Sequence[Any], start: int, limit: int | None) -> int:
        encode = self._encode
        if limit is None:
            rows = list(map(encode, values[start:]))
            stop = len(values)
        else:
            rows, room, stop = [], limit - self._size, start
            while stop < len(values) and room > 0:
                row = encode(values[stop])
                rows.append(row)
                room -= len(row)
                stop += 1
        data = b"".join(rows)
        self.stream.write(data)
        self._size += len(data)
        return stop

    def finish(self) -> None:
        pass


class _BulkPart(Part):
    def __init__(self, factory: BulkWriterFactory, hidden: Path, visible: Path, now: float) -> None:
        super().__init__(hidden, visible, now)
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

    def finish(self) -> None:
        assert self._writer is not None
        self._writer.finish()


MakePart = Callable[[Path, Path, float], Part]


def part_maker(file_format: Encoder | BulkWriterFactory) -> MakePart:
    """How parts of a format are made."""
    if isinstance(file_format, BulkWriterFactory):
        factory = file_format
        return lambda hidden, visible, now: _BulkPart(factory, hidden, visible, now)
    encoder = file_format
    return lambda hidden, visible, now: _RowPart(encoder, hidden, visible, now)


class FileWriter(SinkWriter[Any]):
    """Part files of one subtask.

    Args:
        base_path: of the sink.
        file_format: how records are written.
        buckets: which folder a record goes to.
        rolling: when a part is full.
        files: names of parts.
        check_interval_ms: how often all parts are looked at for their age.
        context: of the subtask.
        clock: for ages and buckets.
    """

    def __init__(
        self,
        base_path: Path,
        file_format: Encoder | BulkWriterFactory,
        buckets: BucketAssigner,
        rolling: RollingPolicy,
        files: OutputFileConfig,
        check_interval_ms: int,
        context: WriterContext,
        clock: Clock,
    ) -> None:
        self._base_path, self._make_part = base_path, part_maker(file_format)
        self._buckets, self._rolling, self._files = buckets, rolling, files
        self._context, self._clock = context, clock
        self._check_seconds = check_interval_ms / 1000
        self._checked = clock.monotonic()
        self._id = uuid.uuid4()
        self._count = 0
        self._open: dict[str, Part] = {}
        self._closed: list[Part] = []

    def write(self, values: Sequence[Any], timestamps: Sequence[int] | None) -> None:
        """Append the records to the parts of their buckets."""
        bucket_of, now_ms = self._buckets.bucket_of, self._clock.epoch_ms()
        buckets: dict[str, list[Any]] = {}
        for value in values:
            buckets.setdefault(bucket_of(value, now_ms), []).append(value)
        now = self._clock.monotonic()
        if now - self._checked >= self._check_seconds:
            self._checked = now
            self._close_full(now)
        for bucket, records in buckets.items():
            self._append(bucket, records, now)

    def _close_full(self, now: float) -> None:
        """Buckets that get no more records must not keep their files open."""
        for bucket in [bucket for bucket, part in self._open.items() if self._is_full(part, now)]:
            self._close_part(bucket)

    def _is_full(self, part: Part, now: float) -> bool:
        return self._rolling.is_full(part.size, (now - part.begun) * 1000, (now - part.written) * 1000)

    def _append(self, bucket: str, records: list[Any], now: float) -> None:
        part = self._open.get(bucket)
        start = 0
        while start < len(records):
            if part is not None and self._is_full(part, now):
                self._close_part(bucket)
                part = None
            if part is None:
                part = self._open[bucket] = self._new_part(bucket, now)
            start = part.write(records, start, self._rolling.part_size)
            part.written = now

    def _new_part(self, bucket: str, now: float) -> Part:
        folder = self._base_path / bucket
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{self._files.prefix}-{self._id}-{self._count}{self._files.suffix}"
        self._count += 1
        hidden = folder / f".{name}.inprogress.{uuid.uuid4()}"
        self._context.register_temporary_file(str(hidden))
        return self._make_part(hidden, folder / name, now)

    def _close_part(self, bucket: str) -> None:
        part = self._open[bucket]
        part.close()
        del self._open[bucket]
        self._closed.append(part)

    def finish(self) -> list[Plain]:
        """Close and sync all parts."""
        for bucket in list(self._open):
            self._close_part(bucket)
        return [{"from": str(part.hidden), "to": str(part.visible)} for part in self._closed]

    def commit(self, committables: Sequence[Plain]) -> None:
        """Give the parts their names.

        Raises:
            FileNotFoundError: a part has vanished.
        """
        for committable in committables:
            assert isinstance(committable, dict)
            hidden, visible = committable["from"], committable["to"]
            if os.path.exists(hidden) or not os.path.exists(visible):
                os.replace(hidden, visible)
            self._context.forget_temporary_file(hidden)
        self._closed.clear()

    def abort(self) -> None:
        """Remove all parts that are not visible."""
        parts = [*self._open.values(), *self._closed]
        self._open.clear()
        self._closed.clear()
        for part in parts:
            part.abort()
            self._context.forget_temporary_file(str(part.hidden))

    def close(self) -> None:
        """Close the files that are still open; they stay hidden."""
        for part in self._open.values():
            part.discard()
