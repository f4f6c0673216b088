"""Reads container files of Avro by fastavro: a header, then blocks of records with a marker behind each."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import IO, Any, Final

from firesteel.core.errors import ProgramError
from firesteel_formats.avro_schema import check_field_names, fastavro_module

MARKER_BYTES: Final = 16
_MAGIC: Final = b"Obj\x01"
_CODECS: Final = ("bzip2", "deflate", "null", "snappy", "xz", "zstandard")
_CHECKSUM_BYTES: Final = 4
_SEARCHED: Final = 64 * 1024
"""Bytes that are searched for a marker at once."""


class Container:
    """A container file.

    Args:
        stream: the file, whose position this object changes.
        schema: parsed schema to read records with; None = the file's own.

    Attributes:
        marker: bytes behind the header and behind each block.
        length: length of the header in bytes; its last 16 bytes are the marker.

    Raises:
        ValueError: the file is no container file of Avro.
    """

    def __init__(self, stream: IO[bytes], schema: Any) -> None:
        self._stream, self._schema = stream, schema
        self._file = _EndDetector(stream)
        try:
            if stream.read(len(_MAGIC)) != _MAGIC:
                raise ValueError("it does not begin with Obj and 1")
            self._blocks = self._reader()
            self.length = stream.tell()
        except Exception as error:  # fastavro raises errors of any kind, here and below
            raise ValueError(f"no container file of Avro: {error or type(error).__name__}") from error
        if self._codec not in _CODECS:
            raise ValueError(f"the compression {self._codec!r} is not one of {', '.join(_CODECS)}")
        stream.seek(self.length - MARKER_BYTES)
        self.marker = stream.read(MARKER_BYTES)

    def _reader(self) -> Iterator[Any]:
        self._stream.seek(0)
        reader: Any = fastavro_module().block_reader(self._file, self._schema)
        check_field_names(reader.writer_schema)
        self._codec: str = reader.codec
        return iter(reader)

    def read(self, begin: int) -> tuple[list[Any], int] | None:
        """The records of the block that begins at this byte, and the byte behind it; None at the end of the file.

        Raises:
            ValueError: the block is damaged, or can't be read.
            ProgramError: the package that decompresses the block is not installed.
        """
        self._stream.seek(begin)
        self._file.ended = False
        try:
            block = next(self._blocks, None)
        except Exception as error:
            if "need to install" in str(error):
                raise ProgramError(f"Avro: {error}: pip install 'firesteel[avro]'") from error
            reason = self._reason(error)
            self._blocks = self._reader()  # an iterator that has raised gives no more blocks
            raise ValueError(reason) from error
        if block is None:
            self._blocks = self._reader()
            return None
        end = self._stream.tell()
        if self._codec == "snappy":
            self._check(block.bytes_.getvalue(), end)
        records: list[Any] = []
        try:
            records.extend(block)
        except Exception as error:
            record = f"record {len(records) + 1} of the block's {block.num_records}"
            raise ValueError(f"{record} can't be read: {type(error).__name__}: {error}") from error
        if block.bytes_.read(1):
            raise ValueError(f"the block holds more than its {block.num_records} records")
        return records, end

    def _reason(self, error: Exception) -> str:
        if self._file.ended:
            return "the file ends inside a block"
        if "sync marker" in str(error):
            return "the marker behind the block is not that of the file"
        return f"the block can't be read ({self._codec}): {type(error).__name__}: {error}"

    def _check(self, data: bytes, end: int) -> None:
        """Check the checksum behind a block of Snappy, which fastavro skips."""
        self._stream.seek(end - MARKER_BYTES - _CHECKSUM_BYTES)
        if zlib.crc32(data) != int.from_bytes(self._stream.read(_CHECKSUM_BYTES), "big"):
            raise ValueError("the checksum of the block is wrong")


class _EndDetector:
    """A stream that notes whether it ended before a read was complete; fastavro raises various errors then."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._read, self.tell = stream.read, stream.tell
        self.ended = False

    def read(self, size: int) -> bytes:
        data = self._read(size)
        self.ended = self.ended or len(data) < size
        return data


def find_marker(stream: IO[bytes], start: int, marker: bytes) -> int | None:
    """Position of the first marker that begins at ``start`` or behind it; None if there is none."""
    stream.seek(start)
    base, tail = start, b""
    while True:
        block = stream.read(_SEARCHED)
        if not block:
            return None
        data = tail + block
        index = data.find(marker)
        if index >= 0:
            return base + index
        kept_bytes = min(len(data), MARKER_BYTES - 1)
        base += len(data) - kept_bytes
        tail = data[len(data) - kept_bytes :]
