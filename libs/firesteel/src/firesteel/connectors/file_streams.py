"""Opens files as streams of bytes that are decompressed while they are read."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from firesteel.connectors.filesystems.file_system import FileSystem

COMPRESSIONS: Final = {
    ".gz": "gzip", ".gzip": "gzip", ".bz2": "bzip2", ".xz": "xz", ".lzma": "xz", ".deflate": "deflate", ".zst": "zstd",
    ".lz4": "lz4",
}  # fmt: skip
"""File ending -> compression of the file. Compressed files are never split."""
UNREADABLE: Final = {
    ".zip": "zip", ".7z": "7-Zip", ".rar": "RAR", ".tar": "tar", ".tgz": "tar", ".tbz2": "tar", ".txz": "tar",
    ".tzst": "tar", ".snappy": "Snappy", ".sz": "Snappy", ".lzo": "LZO", ".br": "Brotli", ".z": "compress",
}  # fmt: skip
"""File ending -> kind of a file that can't be read, and is no text either."""
_INNER: Final = (".tar",)
"""Such endings before the ending of a compression."""
BLOCK_BYTES: Final = 256 * 1024
DAMAGED: Final = (EOFError, zlib.error, lzma.LZMAError)
"""Errors of decompressing a damaged file, besides an ``OSError`` without a number."""


def compression_of(path: str) -> str | None:
    """Compression of a file, by its ending; None = it is not compressed."""
    return COMPRESSIONS.get(os.path.splitext(path)[1].lower())


def unreadable(path: str) -> str | None:
    """Why a file of this name can't hold records; None = it can."""
    stem, ending = os.path.splitext(path.lower())
    inner = os.path.splitext(stem)[1]
    kind = UNREADABLE.get(ending) or (UNREADABLE[inner] if ending in COMPRESSIONS and inner in _INNER else None)
    if kind is None:
        return None
    known = ", ".join(ending for ending in COMPRESSIONS if ending not in (".gzip", ".lzma"))
    return (
        f"files of the kind {kind} ({ending}) can't be read: unpack it, or compress the files in it one by one "
        f"({known})"
    )


def open_file(path: str, compression: str | None, system: FileSystem) -> IO[bytes]:
    """Open a file as a stream of decompressed bytes.

    Raises:
        OSError, FileSystemError: the file can't be opened.
    """
    raw = system.open(path)
    if compression is None:
        return raw
    openers: dict[str, Callable[[IO[bytes]], Any]] = {
        "gzip": lambda stream: gzip.GzipFile(fileobj=stream),
        "bzip2": bz2.BZ2File,
        "xz": lzma.LZMAFile,
        "deflate": _DeflateFile,
        "zstd": partial(_ArrowFile, codec="zstd"),
        "lz4": partial(_ArrowFile, codec="lz4"),
    }
    try:
        return _Unpacked(openers[compression](raw), raw)  # type: ignore[return-value] # what is used of one
    except BaseException:
        raw.close()
        raise


class _Unpacked:
    """A stream that decompresses, with the file below it."""

    def __init__(self, stream: Any, raw: IO[bytes]) -> None:
        self._stream, self._raw = stream, raw
        self.read1, self.read, self.seek = stream.read1, stream.read, stream.seek

    def close(self) -> None:
        try:
            self._stream.close()
        finally:
            self._raw.close()


def damage(error: Exception) -> str | None:
    """What is wrong with compressed data, if the error says so; None for other errors."""
    if isinstance(error, DAMAGED) or (isinstance(error, OSError) and error.errno is None):
        return f"the compressed data are damaged or end too early ({error})"
    return None


class _Forward(ABC):
    """A stream that can be read, and whose position can be moved forward from its start."""

    @abstractmethod
    def read1(self, size: int) -> bytes:
        """Return available bytes, at most so many; none at the end."""

    def read(self, size: int) -> bytes:
        return self.read1(size)

    def seek(self, position: int) -> None:
        while position > 0:
            position -= len(self.read1(min(position, BLOCK_BYTES))) or position


class _ArrowFile(_Forward):
    """A file with a compression that Arrow has and Python does not have."""

    _AT_ONCE = 4096
    """Bytes before damaged data that may be lost with them."""

    def __init__(self, raw: IO[bytes], codec: str) -> None:
        import pyarrow as pa  # coordinators look at names of files only, and do not pay for it

        self._stream = pa.CompressedInputStream(pa.PythonFile(raw, "r"), codec)

    def read1(self, size: int) -> bytes:
        data: bytes = self._stream.read(min(size, self._AT_ONCE))
        return data

    def close(self) -> None:
        self._stream.close()


class _DeflateFile(_Forward):
    """Reads the inflated bytes of a zlib stream."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._inflate = zlib.decompressobj()
        self._pending = b""

    def read1(self, size: int) -> bytes:
        while not self._pending and not self._inflate.eof:
            raw = self._raw.read(BLOCK_BYTES)
            if not raw:
                raise EOFError("the stream has no end")
            self._pending = self._inflate.decompress(raw)
        data, self._pending = self._pending[:size], self._pending[size:]
        return data

    def close(self) -> None:
        self._pending = b""
