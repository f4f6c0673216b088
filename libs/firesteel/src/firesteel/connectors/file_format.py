"""The contract of file formats, which read the records of files."""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final

from typing_extensions import override

from firesteel.common.typeinfo import TypeInformation, Types
from firesteel.connectors.filesystems.file_system import FileSystems
from firesteel.connectors.line_cursor import (
    LineBlocks,
    TextColumnCursor,
    TextCursor,
    TextRowCursor,
    byte_order_mark,
)
from firesteel.connectors.malformed import MalformedPolicy, MalformedRecords
from firesteel.connectors.split_reader import SplitCursor
from firesteel.core.errors import ProgramError
from firesteel.functions.source import Split

__all__ = ["BulkFormat", "ContainerFormat", "FileFormat", "StreamFormat"]

_COLUMN_BLOCK: Final = 1024 * 1024
"""Bytes of text in one batch of columns. With so many lines the fixed cost of a batch does not matter."""


class FileFormat(ABC):
    """Reads the records of one file, or of a range of it.

    A format is pickled into the job, so it holds configuration only. A file that may be split is read in ranges
    ``start`` to ``end`` (bytes): a cursor returns the records that *begin* in its range, so each record of the file is
    in exactly one of them. A cursor is opened at the split's ``position``, which an earlier cursor of the same
    format has returned, or at the start of the range if the position is None.

    Attributes:
        files: file systems to open files by: ``self.files.of(path).open(path)``. In slots they have the job's settings.

    Examples:
        ```python
        from firesteel.datastream.connectors.base import Chunk, SplitCursor
        from firesteel.datastream.connectors.file_system import FileFormat


        class FileSizes(FileFormat):
            def open_cursor(self, split, malformed):
                return SizeCursor(split)


        class SizeCursor(SplitCursor):
            def __init__(self, split):
                self.split = split

            def read(self, max_records):
                sizes = [] if self.split.position else [(self.split.data["path"], self.split.data["end"])]
                return Chunk(sizes, position=1, finished=True)


        print(FileSizes().splittable)  # so each file is read in one subtask
        ```

        ```text
        False
        ```
    """

    files: FileSystems = FileSystems()

    @property
    def splittable(self) -> bool:
        """Whether several subtasks may read parts of one file."""
        return False

    @property
    def decompresses(self) -> bool:
        """Whether files that end with .gz, .bz2, .xz, .zst, .lz4 or .deflate hold the format compressed.

        Such files are never split.
        """
        return True

    @property
    def empty_is_damaged(self) -> bool:
        """Whether a file of no bytes is damaged; otherwise it is a file without records."""
        return False

    @abstractmethod
    def open_cursor(self, split: Split, malformed: MalformedRecords) -> SplitCursor[Any]:
        """Open a cursor over the split's range, at its position.

        Args:
            split: split with the data ``path``, ``start`` and ``end``.
            malformed: decides about input that can't be read, and what the cursor returns instead. If its policy is
                ``EMIT`` the cursor returns lists, no record batches.
        """

    def produced_type(self) -> TypeInformation | None:
        """Type of the records; None = any Python object."""
        return None

    def with_columns(self, names: Sequence[str]) -> FileFormat | None:
        """The same format with these columns only, in this order; None if it can't leave any out."""
        return None

    def check(self) -> None:  # noqa: B027 - may be left out
        """Called at the client when the source is built.

        Raises:
            ProgramError: the format can't be read here, for instance because a package is not installed.
        """


class StreamFormat(FileFormat):
    """A format that is read record by record. Derive from it, or use an existing one.

    Examples:
        ```python
        from firesteel.datastream.connectors.file_system import FileSource, StreamFormat

        source = FileSource.for_record_stream_format(StreamFormat.text_line_format("latin-1"), "file:///data/old.txt").build()
        ```
    """

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8", *, column: str | None = None) -> StreamFormat:
        """A format of lines of text; LF or CR LF at their end and a byte-order mark are not part of the records.

        Bytes that are not of the charset are replaced by U+FFFD.

        Args:
            charset_name: encoding of the files.
            column: None = records are ``str``. Else they are rows of one field of this name, which come as columns:
                for operators over columns (``map_batches``, expressions) no Python object is made for a line.

        Raises:
            ProgramError: Python does not know the charset, or its newline is not the byte 0x0A.
        """
        try:
            charset = codecs.lookup(charset_name)
        except LookupError as error:
            raise ProgramError(f"text lines: unknown charset {charset_name!r}") from error
        if charset.name == "utf-8-sig":
            charset_name, charset = "utf-8", codecs.lookup("utf-8")
        newline = charset.encode("\n")[0]
        if newline != b"\n":
            raise ProgramError(
                f"text lines: in {charset_name!r} a newline is not the byte 0x0A; convert the files to UTF-8"
            )
        if column is not None and not (isinstance(column, str) and column):
            raise ProgramError(f"text lines: the name of a column is a str that is not empty, not {column!r}")
        return _TextLines(charset_name) if column is None else _TextColumn(charset_name, column)


class BulkFormat(FileFormat):
    """A format that is read in blocks of many records. Derive from it, or use an existing one.

    Examples:
        ```python
        from firesteel.datastream.connectors.base import Chunk, SplitCursor
        from firesteel.datastream.connectors.file_system import BulkFormat


        class WholeFile(BulkFormat):
            def open_cursor(self, split, malformed):
                return WholeFileCursor(self.files.of(split.data["path"]), split)


        class WholeFileCursor(SplitCursor):
            def __init__(self, file_system, split):
                self.file_system, self.path, self.is_read = file_system, split.data["path"], split.position == "read"

            def read(self, max_records):
                if self.is_read:
                    return Chunk([], "read", finished=True)
                with self.file_system.open(self.path) as stream:
                    return Chunk([stream.read()], "read", finished=True)
        ```
    """


class ContainerFormat(FileFormat):
    """A format of files with a header or a footer around blocks that are compressed one by one: Avro, Parquet."""

    @property
    @override
    def splittable(self) -> bool:
        return True

    @property
    @override
    def decompresses(self) -> bool:
        return False

    @property
    @override
    def empty_is_damaged(self) -> bool:
        return True


class _TextLines(StreamFormat):
    def __init__(self, charset: str) -> None:
        self.charset = charset

    @property
    def splittable(self) -> bool:
        return True

    def open_cursor(self, split: Split, malformed: MalformedRecords) -> SplitCursor[Any]:
        return TextCursor(LineBlocks(split, malformed, byte_order_mark(self.charset), self.files), self.charset)

    def produced_type(self) -> TypeInformation:
        return Types.STRING()


class _TextColumn(_TextLines):
    def __init__(self, charset: str, column: str) -> None:
        super().__init__(charset)
        self.column = column

    def open_cursor(self, split: Split, malformed: MalformedRecords) -> SplitCursor[Any]:
        blocks = LineBlocks(split, malformed, byte_order_mark(self.charset), self.files, _COLUMN_BLOCK)
        if malformed.policy is MalformedPolicy.EMIT:
            return TextRowCursor(blocks, self.charset, self.column)
        return TextColumnCursor(blocks, self.charset, self.column)

    def produced_type(self) -> TypeInformation:
        return Types.ROW_NAMED([self.column], [Types.STRING()])
