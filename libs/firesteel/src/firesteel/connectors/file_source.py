"""A source of files; this version reads lines of text."""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import os
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

from firesteel.common.typeinfo import TypeInformation, Types
from firesteel.connectors.file_splits import DEFAULT_SPLIT_BYTES, compression_of
from firesteel.connectors.split_reader import Chunk, SplitCursor, SplitQueueReader
from firesteel.core.errors import ProgramError
from firesteel.functions.source import Boundedness, EnumeratorSpec, ReaderContext, Source, Split

_BLOCK: Final = 256 * 1024


class StreamFormat:
    """How the records of a file are read. Made by its factory methods."""

    def __init__(self, charset: str) -> None:
        self.charset = charset

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> StreamFormat:
        """Lines of text; they end with LF or CR LF, which is not part of the record.

        Bytes that are not of the charset are replaced by U+FFFD.

        Raises:
            ProgramError: Python does not know the charset, or its newline is not the byte 0x0A.
        """
        try:
            newline = codecs.lookup(charset_name).encode("\n")[0]
        except LookupError as error:
            raise ProgramError(f"text lines: unknown charset {charset_name!r}") from error
        if newline != b"\n":
            raise ProgramError(
                f"text lines: in {charset_name!r} a newline is not the byte 0x0A; convert the files to UTF-8"
            )
        return StreamFormat(charset_name)


class FileSource(Source[str]):
    """Reads files and folders; large files are cut into ranges which several subtasks read.

    Made by ``FileSource.for_record_stream_format(StreamFormat.text_line_format(), *paths).build()``. Folders are read
    with all below them; names that begin with a dot or an underscore are left out. Files that end with .gz, .bz2, .xz
    or .deflate are decompressed and never cut.
    """

    def __init__(self, paths: tuple[str, ...], stream_format: StreamFormat, split_bytes: int) -> None:
        self._paths, self._format, self._split_bytes = paths, stream_format, split_bytes

    @staticmethod
    def for_record_stream_format(stream_format: StreamFormat, *paths: str | os.PathLike[str]) -> FileSourceBuilder:
        """A builder of a source that reads these files or folders.

        Raises:
            ProgramError: there are no paths.
        """
        return FileSourceBuilder(stream_format, paths)

    @property
    def boundedness(self) -> Boundedness:
        """Bounded."""
        return Boundedness.BOUNDED

    def enumerator(self) -> EnumeratorSpec:
        """Ranges of the files that are there, on the JobMaster's host, when the job starts."""
        return EnumeratorSpec("files", {"paths": list(self._paths), "split_bytes": self._split_bytes})

    def create_reader(self, context: ReaderContext) -> SplitQueueReader[str]:
        """A reader of ranges."""
        return _LineReader(self._format.charset)

    def produced_type(self) -> TypeInformation:
        """STRING."""
        return Types.STRING()


class FileSourceBuilder:
    """Builds a ``FileSource``."""

    def __init__(self, stream_format: StreamFormat, paths: tuple[str | os.PathLike[str], ...]) -> None:
        if not paths:
            raise ProgramError("file source: at least one path is needed")
        self._format = stream_format
        self._paths = tuple(_local_path(path) for path in paths)
        self._split_bytes = DEFAULT_SPLIT_BYTES

    def set_split_size(self, size_bytes: int) -> FileSourceBuilder:
        """Cut files into ranges of about this many bytes; 0 = do not cut them."""
        self._split_bytes = size_bytes
        return self

    def build(self) -> FileSource:
        """The source."""
        return FileSource(self._paths, self._format, self._split_bytes)


def _local_path(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    scheme, separator, rest = text.partition("://")
    if separator:
        if scheme != "file":
            raise ProgramError(f"file source: {text!r}: this version reads local files only, not {scheme}://")
        text = rest
    return str(Path(text).absolute())


class _LineReader(SplitQueueReader[str]):
    def __init__(self, charset: str) -> None:
        super().__init__()
        self._charset = charset

    def open_split(self, split: Split) -> SplitCursor[str]:
        return _LineCursor(split, self._charset)


class _LineCursor(SplitCursor[str]):
    """Reads the lines that *begin* in the split's range, also where the last one ends behind it.

    The position is ``[byte at which a block of whole lines begins, lines of it that were given out]``.
    """

    def __init__(self, split: Split, charset: str) -> None:
        path = str(split.data["path"])
        start, self._end = int(split.data["start"]), int(split.data["end"])  # type: ignore[arg-type]
        self._charset = charset
        compression = compression_of(path)
        self._stream = _open(path, compression)
        if compression is not None:
            self._end = -1  # to the end of the stream
        self._rest = b""
        """Bytes that were read but belong to no block yet."""
        self._lines: list[str] = []
        self._given = 0
        skip = 0
        if isinstance(split.position, list):
            start, skip = split.position
            self._stream.seek(start)
        elif start:
            self._stream.seek(start - 1)
            start += len(self._stream.readline()) - 1  # a line that begins before the range is not ours
        self._block = self._next = start
        while skip and self._load():
            self._given = min(skip, len(self._lines))
            skip -= self._given

    def _load(self) -> bool:
        """Read the next block of whole lines; False when the range holds no more."""
        self._block, self._given, self._lines = self._next, 0, []
        if 0 <= self._end <= self._block:
            return False
        blocks = [self._rest]
        while True:
            more = self._stream.read(_BLOCK)
            blocks.append(more)
            if not more or b"\n" in more:
                break
        data = b"".join(blocks)
        cut = data.rfind(b"\n") + 1
        if not data:
            return False
        if not cut:
            cut = len(data)  # the last line has no newline
        if 0 <= self._end < self._block + cut:
            # lines that begin at or behind the end of the range belong to the next one
            cut = data.find(b"\n", self._end - self._block - 1) + 1 or len(data)
        self._rest = data[cut:]
        self._next = self._block + cut
        text = data[:cut].decode(self._charset, "replace")
        self._lines = text.split("\n")
        if not self._lines[-1]:
            self._lines.pop()
        if "\r" in text:
            self._lines = [line.removesuffix("\r") for line in self._lines]
        return True

    def read(self, max_records: int) -> Chunk[str]:
        if self._given >= len(self._lines) and not self._load():
            return Chunk([], [self._next, 0], finished=True)
        values = self._lines[self._given : self._given + max_records]
        self._given += len(values)
        if self._given >= len(self._lines):
            return Chunk(values, [self._next, 0])
        return Chunk(values, [self._block, self._given])

    def close(self) -> None:
        self._stream.close()


def _open(path: str, compression: str | None) -> IO[bytes]:
    openers: dict[str | None, Callable[[str], Any]] = {
        None: partial(open, mode="rb"),
        "gzip": gzip.GzipFile,
        "bzip2": bz2.BZ2File,
        "xz": lzma.LZMAFile,
        "deflate": _DeflateFile,
    }
    stream: IO[bytes] = openers[compression](path)
    return stream


class _DeflateFile:
    """A zlib stream as a file that can be read and sought forward."""

    def __init__(self, path: str) -> None:
        self._raw = open(path, "rb")  # noqa: SIM115 - closed by close()
        self._inflate = zlib.decompressobj()
        self._pending = b""

    def read(self, size: int) -> bytes:
        while len(self._pending) < size and not self._inflate.eof:
            raw = self._raw.read(_BLOCK)
            if not raw:
                raise EOFError(f"{self._raw.name}: the compressed file ends too early")
            self._pending += self._inflate.decompress(raw)
        data, self._pending = self._pending[:size], self._pending[size:]
        return data

    def seek(self, position: int) -> None:
        while position > 0:
            position -= len(self.read(min(position, _BLOCK))) or position

    def close(self) -> None:
        self._raw.close()
