"""Part files that are being written: rows that are appended, and bulk formats."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import pyarrow as pa

from firesteel.common.serialization import BulkWriter, BulkWriterFactory, Encoder
from firesteel.core.errors import StateRestoreError
from firesteel.core.files import sync_directory

_BULK_AT_ONCE: Final = 1000
"""After so many records of a bulk format its size is looked at."""
_COPIED: Final = 1 << 20


MakeDurable = Callable[[Callable[[], None]], None]
"""See ``WriterContext.make_durable``."""


def _at_once(work: Callable[[], None]) -> None:
    work()


def _sync(descriptor: int, path: str) -> None:
    """Sync by a descriptor of its own, since the file may be closed by now."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror}: what was written may be lost", path) from error
    finally:
        os.close(descriptor)


def sync_folders(folders: Iterable[Path]) -> None:
    """Make names in these folders durable; of those that are there and may be read."""
    for folder in folders:
        try:
            sync_directory(folder)
        except (FileNotFoundError, PermissionError):
            continue
        except OSError as error:
            raise OSError(error.errno, f"{error.strerror}: names in it may be lost", str(folder)) from error


class Former(NamedTuple):
    """What a checkpoint has of a part that was open: so many bytes of a file."""

    path: Path
    size: int


class Part(ABC):
    """A part file that is being written.

    Attributes:
        hidden, visible: its path until and after the commit.
        begun, written: when it was made, and written to last; seconds of the clock.
        kept: a checkpoint may need it: it is not removed here any more.
        replaces: paths of files that are of no use when this one is visible.
    """

    resumable = False
    """It can be cut at a position where it was synced, and goes on from there."""

    def __init__(self, hidden: Path, visible: Path, now: float) -> None:
        self.hidden, self.visible = hidden, visible
        self.stream: BinaryIO = open(hidden, "xb")  # noqa: SIM115 - closed by close() or abort()
        self.begun = self.written = now
        self.kept = False
        self.replaces: tuple[str, ...] = ()

    @property
    @abstractmethod
    def size(self) -> int:
        """Bytes, about."""

    @abstractmethod
    def write(self, values: Sequence[Any], start: int, limit: int | None) -> int:
        """Take values from this index on, until the size has reached the limit; the index behind the last one."""

    def write_columns(self, batch: pa.RecordBatch, start: int, limit: int | None) -> int:
        """The same for the rows of a batch of columns, of formats that take them."""
        raise TypeError(f"{type(self).__name__} takes no columns")

    @abstractmethod
    def finish(self) -> None:
        """Write the end of the format."""

    def sync(self, make_durable: MakeDurable = _at_once) -> None:
        """What was written is durable, or will be when the work is done that is handed over."""
        self.stream.flush()
        make_durable(partial(_sync, os.dup(self.stream.fileno()), str(self.hidden)))

    def close(self, make_durable: MakeDurable = _at_once) -> None:
        """Finish, sync and close the file."""
        self.finish()
        self.sync(make_durable)
        self.stream.close()

    def discard(self) -> None:
        """Close the file without an end of the format; it stays hidden."""
        self.stream.close()

    def abort(self) -> None:
        """Close and remove the file."""
        self.discard()
        self.hidden.unlink(missing_ok=True)


class _RowPart(Part):
    resumable = True
    _size = 0

    def __init__(self, encoder: Encoder, hidden: Path, visible: Path, now: float, former: Former | None) -> None:
        super().__init__(hidden, visible, now)
        self._encode, self._encoder = encoder.encode, encoder
        try:
            if former is not None:
                self._copy(former)
        except BaseException:
            self.abort()
            raise

    def _copy(self, former: Former) -> None:
        with open(former.path, "rb") as stream:
            while self._size < former.size and (data := stream.read(min(former.size - self._size, _COPIED))):
                self._size += self.stream.write(data)
        if self._size < former.size:
            raise StateRestoreError(f"file sink: {former.path} is shorter than {former.size} bytes")

    @property
    def size(self) -> int:
        return self._size

    def write(self, values: Sequence[Any], start: int, limit: int | None) -> int:
        encode = self._encode
        if limit is None:
            return self._append(list(map(encode, values[start:])), len(values))
        rows, room, stop = [], limit - self._size, start
        while stop < len(values) and room > 0:
            row = encode(values[stop])
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


MakePart = Callable[[Path, Path, float, Former | None], Part]
"""Of hidden path, visible path, time; what the part goes on from, None for a new one."""


def part_maker(file_format: Encoder | BulkWriterFactory) -> MakePart:
    """How parts of a format are made.

    Parts of bulk formats can't go on from others: what is made then raises a ``StateRestoreError``.
    """
    if isinstance(file_format, BulkWriterFactory):
        return partial(_bulk_part, file_format)
    return partial(_RowPart, file_format)


def _bulk_part(factory: BulkWriterFactory, hidden: Path, visible: Path, now: float, former: Former | None) -> Part:
    if former is not None:
        raise StateRestoreError(
            f"file sink: the checkpoint has an open part of rows, {former.path}, and the sink writes a bulk format now "
            f"({type(factory).__name__}), which can't go on with it: start with the format of the checkpoint, or give "
            "the sink another uid"
        )
    return _BulkPart(factory, hidden, visible, now)
