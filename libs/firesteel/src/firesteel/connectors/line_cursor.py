"""Reads the lines of a range of a file, in blocks."""

from __future__ import annotations

import codecs
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from firesteel.common.types import make_row
from firesteel.connectors.file_streams import BLOCK_BYTES, compression_of, damage, open_file, unreadable
from firesteel.connectors.filesystems.file_system import FileSystems
from firesteel.connectors.malformed import MalformedPolicy, MalformedRecords
from firesteel.connectors.split_reader import Chunk, SplitCursor
from firesteel.core.errors import MalformedDataError
from firesteel.functions.source import Split, Wait

NOTHING: Final = object()
"""Result of a parser for a line without a record, such as an empty line."""
_WIDE_MARKS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)
"""Byte-order marks that no text in UTF-8 begins with. The mark of UTF-32 LE begins with that of UTF-16 LE."""
_LONGEST_ARRAY: Final = (1 << 31) - 1
"""Bytes that the texts of one array can have."""
_LINES_AT_ONCE: Final = 10_000
"""Lines without a record that one ``read`` skips before it returns, so that other splits are read, too."""
_LINES_COUNTED: Final = 256 * 1024 * 1024
"""Bytes that are read to find the number of a malformed line. Lines further back are reported without a number."""


def byte_order_mark(charset: str) -> bytes | None:
    """The bytes of the byte-order mark in a charset; None if the charset has none."""
    try:
        return "\ufeff".encode(charset)
    except UnicodeEncodeError:
        return None


class LineBlocks:
    """Reads blocks of whole lines: the lines that *begin* in the split's range, also if the last one ends behind it.

    The position is ``[byte at which a block begins, lines of it that were returned]``. A byte-order mark at the
    beginning of the file is part of no line. A file with the mark of UTF-16 or UTF-32 is malformed as a whole.

    Args:
        split: split of a file.
        malformed: decides about input that can't be read.
        mark: byte-order mark in the file's encoding; None = the encoding has none.
        files: file systems of the job; None = those without settings.
        block_bytes: approximate size of a block; None = ``BLOCK_BYTES``.

    Attributes:
        path: path of the file.
        block: byte at which the current block begins.
        next: byte at which the next block begins.
        skip: lines of the first block that were returned before the split was continued.
    """

    def __init__(
        self,
        split: Split,
        malformed: MalformedRecords,
        mark: bytes | None = codecs.BOM_UTF8,
        files: FileSystems | None = None,
        block_bytes: int | None = None,
    ) -> None:
        self._block_bytes = block_bytes or BLOCK_BYTES
        self._system = (FileSystems() if files is None else files).of(str(split.data["path"]))
        self.path, self._mark = str(split.data["path"]), mark
        start, self._end = int(split.data["start"]), int(split.data["end"])  # type: ignore[arg-type]
        self.malformed = malformed
        self.instead: list[Any] = []
        """What the cursor returns instead of the damaged rest of the file."""
        self._rest = b""
        """Bytes that were read but belong to no block yet."""
        self.damaged = False
        """Whether the rest of the file can't be read."""
        self.skip = 0
        self.block = self.next = start
        reason = unreadable(self.path)
        compression = None if reason is not None else compression_of(self.path)
        self._stream = open_file(self.path, compression, self._system)
        if compression is not None:
            self._end = -1  # to the end of the stream
        try:
            if reason is not None:
                self._give_up(reason)
            elif isinstance(split.position, list):
                self.block, self.skip = split.position
                self.next = self.block
                self._guarded(lambda: self._stream.seek(self.block))
            elif start:
                # The range has the lines that begin in it. If one begins right at its start, a newline stands one byte
                # earlier; else the rest of that line is read over, which belongs to the range before.
                self._stream.seek(start - 1)
                self.block = self.next = start + len(self._stream.readline()) - 1
        except BaseException:
            self._stream.close()
            raise

    def load(self) -> bytes | None:
        """The next block; None when the range holds no more."""
        data = self._load()
        if data is None or self.block or self._mark is None:
            return data
        if self._mark == codecs.BOM_UTF8 and data.startswith(_WIDE_MARKS):
            self._give_up("the file begins as UTF-16 or UTF-32: write it as UTF-8")
            return None
        if data.startswith(self._mark):
            self.block = len(self._mark)
            return data[self.block :] or self.load()
        return data

    def _load(self) -> bytes | None:
        self.block = self.next
        if self.damaged or 0 <= self._end <= self.block:
            return None
        blocks = [self._rest]
        while True:  # until there is an end of a line: a block holds whole lines
            more = self._read()
            blocks.append(more)
            if not more or b"\n" in more:
                break
        data = b"".join(blocks)
        cut = data.rfind(b"\n") + 1
        if not data:
            return None
        if self.damaged:
            self._rest = b""
            self.next = self.block + cut
            return data[:cut] or None  # the piece of a line before the damage is part of it
        if not cut:
            cut = len(data)  # the last line has no newline
        if 0 <= self._end < self.block + cut:
            # lines that begin at or behind the end of the range belong to the next one
            cut = data.find(b"\n", self._end - self.block - 1) + 1 or len(data)
        self._rest = data[cut:]
        self.next = self.block + cut
        return data[:cut]

    def _read(self) -> bytes:
        """The next bytes; of a damaged file all that stand before the damage."""
        if self._end >= 0:
            return self._stream.read(self._block_bytes)
        stream: Any = self._stream  # decompresses: read() would lose what it had when it meets the damage
        pieces: list[bytes] = []
        room = self._block_bytes
        while room > 0:
            size = room
            piece = self._guarded(lambda: stream.read1(size))  # noqa: B023 - called at once
            if not piece:
                break
            pieces.append(piece)
            room -= len(piece)
        return b"".join(pieces)

    def _guarded(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except Exception as error:
            reason = damage(error)
            if reason is None:
                raise
            self._give_up(reason)
            return None

    def _give_up(self, reason: str) -> None:
        """Note that the rest of the file can't be read."""
        self.instead = list(self.malformed.found(self.path, self.block, reason))
        self.damaged = True

    def line_number(self, offset: int) -> int | None:
        """Number (from 1) of the line that begins at this byte; None if it is too far into the file."""
        if offset > _LINES_COUNTED:
            return None
        stream = open_file(self.path, compression_of(self.path), self._system)
        try:
            count, remaining = 1, offset
            while remaining > 0:
                data = stream.read(min(remaining, BLOCK_BYTES))
                if not data:
                    break
                count += data.count(b"\n")
                remaining -= len(data)
            return count
        finally:
            stream.close()

    def found(self, offset: int, reason: str, data: bytes) -> list[Any]:
        """Report a malformed line; returns what stands for it."""
        fails = self.malformed.policy is MalformedPolicy.FAIL
        line = self.line_number(offset) if fails else None
        return list(self.malformed.found(self.path, offset, reason, data, line=line))

    def close(self) -> None:
        """Close the file of the blocks."""
        self._stream.close()


class _BlockCursor(SplitCursor[Any]):
    """Returns the lines of blocks."""

    _lines: Any
    """Lines of the current block."""

    def __init__(self, blocks: LineBlocks) -> None:
        self._blocks = blocks
        self._lines = []
        self._returned = 0
        while blocks.skip and self._load():
            self._returned = min(blocks.skip, len(self._lines))
            blocks.skip -= self._returned

    def _load(self) -> bool:
        data = self._blocks.load()
        self._returned = 0
        self._lines = [] if data is None else self._split(data)
        return data is not None

    @abstractmethod
    def _split(self, data: bytes) -> Any:
        """The lines of a block: a list or an array."""

    def _position(self) -> list[int]:
        if self._returned >= len(self._lines):
            return [self._blocks.next, 0]
        return [self._blocks.block, self._returned]

    def _finished(self) -> Chunk[Any]:
        return Chunk(self._blocks.instead, [self._blocks.next, 0], finished=True)

    @override
    def close(self) -> None:
        self._blocks.close()


class TextCursor(_BlockCursor):
    """Reads lines as texts.

    Args:
        blocks: blocks of the split.
        charset: encoding of the file, whose newline is the byte 0x0A.
    """

    def __init__(self, blocks: LineBlocks, charset: str) -> None:
        self._charset = charset
        super().__init__(blocks)

    def _split(self, data: bytes) -> list[Any]:
        text = data.decode(self._charset, "replace")
        lines = text.split("\n")
        if not lines[-1]:
            lines.pop()
        if "\r" in text:
            lines = [line.removesuffix("\r") for line in lines]
        return lines

    def read(self, max_records: int) -> Chunk[Any]:
        """Return the next lines, at most so many."""
        if self._returned >= len(self._lines) and not self._load():
            return self._finished()
        values = self._lines[self._returned : self._returned + max_records]
        self._returned += len(values)
        return Chunk(values, self._position())


class TextRowCursor(TextCursor):
    """Reads lines as rows of one field.

    Args:
        name: name of the field.
    """

    def __init__(self, blocks: LineBlocks, charset: str, name: str) -> None:
        self._names = (name,)
        super().__init__(blocks, charset)

    def _split(self, data: bytes) -> list[Any]:
        return [make_row(self._names, (line,)) for line in super()._split(data)]


class TextColumnCursor(_BlockCursor):
    """Reads lines as a column. The text of a block becomes an array, without an object for each line.

    Args:
        name: name of the column.
    """

    def __init__(self, blocks: LineBlocks, charset: str, name: str) -> None:
        self._charset, self._name = charset, name
        self._is_utf8 = codecs.lookup(charset).name == "utf-8"
        super().__init__(blocks)

    def _split(self, data: bytes) -> pa.Array:
        text = data
        if not (self._is_utf8 and _is_valid(data)):
            text = data.decode(self._charset, "replace").encode("utf-8", "replace")
        ended = text.endswith(b"\n")
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n").removesuffix(b"\r")
        if len(text) > _LONGEST_ARRAY:
            raise MalformedDataError(
                self._blocks.path,
                self._blocks.block,
                None,
                f"a line of {len(text)} bytes, but a column of text takes 2 GiB",
            )
        lines = pc.list_flatten(pc.split_pattern(_array_of(text), "\n"))
        return lines.slice(0, len(lines) - 1) if ended else lines

    def read(self, max_records: int) -> Chunk[Any]:
        """Return the next lines, at most so many."""
        if self._returned >= len(self._lines) and not self._load():
            return self._finished()
        values = self._lines.slice(self._returned, max_records)
        self._returned += len(values)
        return Chunk(pa.RecordBatch.from_arrays([values], [self._name]), self._position())


def _array_of(text: bytes) -> pa.Array:
    """An array with one text."""
    ends = np.array([0, len(text)], np.int32)
    return pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(ends), pa.py_buffer(text)])


def _is_valid(data: bytes) -> bool:
    """Whether bytes are valid UTF-8."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


class ParsedLineCursor(_BlockCursor):
    """Reads lines, and parses each as a record.

    Args:
        blocks: blocks of the split.
        parse: function of a line without its end that gives the record or ``NOTHING``; raises ``ValueError`` for a
            malformed line.
    """

    def __init__(self, blocks: LineBlocks, parse: Callable[[bytes], Any]) -> None:
        self._parse = parse
        super().__init__(blocks)

    def _split(self, data: bytes) -> list[Any]:
        lines = data.split(b"\n")
        if not lines[-1]:
            lines.pop()
        return lines

    def read(self, max_records: int) -> Chunk[Any] | Wait:
        """Return the next records, at most so many."""
        values: list[Any] = []
        looked = 0
        while not values:
            if self._returned >= len(self._lines) and not self._load():
                return self._finished()
            for line in self._lines[self._returned : self._returned + max_records]:
                looked += 1
                if line.endswith(b"\r"):
                    line = line[:-1]
                try:
                    record = self._parse(line)
                except ValueError as error:
                    values += self._malformed(error)
                else:
                    if record is not NOTHING:
                        values.append(record)
                self._returned += 1
            if looked >= _LINES_AT_ONCE and not values:
                return Wait(0.0)
        return Chunk(values, self._position())

    def _malformed(self, error: ValueError) -> list[Any]:
        before = self._lines[: self._returned]
        offset = self._blocks.block + sum(map(len, before)) + len(before)
        return self._blocks.found(offset, str(error), self._lines[self._returned])
