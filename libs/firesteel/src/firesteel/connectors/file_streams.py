"""Files as streams of bytes, decompressed on the way."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zlib
from collections.abc import Callable
from functools import partial
from typing import IO, Any, Final

COMPRESSIONS: Final = {
    ".gz": "gzip", ".gzip": "gzip", ".bz2": "bzip2", ".xz": "xz", ".lzma": "xz", ".deflate": "deflate",
}  # fmt: skip
"""File ending -> how the file is compressed. Compressed files are never cut."""
BLOCK_BYTES: Final = 256 * 1024
DAMAGED: Final = (EOFError, zlib.error, lzma.LZMAError)
"""What decompressing a damaged file raises; besides an ``OSError`` without a number."""


def compression_of(path: str) -> str | None:
    """How a file is compressed, by its ending; None = not."""
    return COMPRESSIONS.get(os.path.splitext(path)[1].lower())


def open_file(path: str, compression: str | None) -> IO[bytes]:
    """A file's bytes, decompressed."""
    openers: dict[str | None, Callable[[str], Any]] = {
        None: partial(open, mode="rb"),
        "gzip": gzip.GzipFile,
        "bzip2": bz2.BZ2File,
        "xz": lzma.LZMAFile,
        "deflate": _DeflateFile,
    }
    stream: IO[bytes] = openers[compression](path)
    return stream


def damage(error: Exception) -> str | None:
    """What is wrong with compressed data, if this error says so; None = another error."""
    if isinstance(error, DAMAGED) or (isinstance(error, OSError) and error.errno is None):
        return f"the compressed data are damaged or end too early ({error})"
    return None


class _DeflateFile:
    """A zlib stream as a file that can be read and, from its start, sought forward."""

    def __init__(self, path: str) -> None:
        self._raw = open(path, "rb")  # noqa: SIM115 - closed by close()
        self._inflate = zlib.decompressobj()
        self._pending = b""

    def read1(self, size: int) -> bytes:
        """At most so many bytes, those that are at hand; none at the end."""
        while not self._pending and not self._inflate.eof:
            raw = self._raw.read(BLOCK_BYTES)
            if not raw:
                raise EOFError("the stream has no end")
            self._pending = self._inflate.decompress(raw)
        data, self._pending = self._pending[:size], self._pending[size:]
        return data

    def read(self, size: int) -> bytes:
        return self.read1(size)

    def seek(self, position: int) -> None:
        while position > 0:
            position -= len(self.read1(min(position, BLOCK_BYTES))) or position

    def close(self) -> None:
        self._raw.close()
