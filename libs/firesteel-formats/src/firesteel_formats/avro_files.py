"""Reads and writes container files of Avro."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import IO, Any

from typing_extensions import override

from firesteel.common.io import InputFormat
from firesteel.common.serialization import BulkWriter, BulkWriterFactory
from firesteel.common.typeinfo import TypeInformation
from firesteel.connectors.file_format import BulkFormat, ContainerFormat, FileFormat
from firesteel.connectors.file_source import FileSource, file_path
from firesteel.connectors.filesystems.file_system import FileSystems
from firesteel.connectors.malformed import MalformedRecords
from firesteel.connectors.split_reader import Chunk, SplitCursor
from firesteel.functions.source import Split, Wait
from firesteel_formats.avro_blocks import MARKER_BYTES, Container, find_marker
from firesteel_formats.avro_schema import AvroSchema, GenericRecordAvroTypeInfo, fastavro_module

__all__ = ["AvroBulkWriters", "AvroFormat", "AvroInputFormat"]


class AvroFormat(ContainerFormat, BulkFormat):
    """Container files of Avro; records are dicts. Large files are split between blocks.

    Args:
        schema: schema to read records with, by Avro's rules of schema resolution; None = that of each file.

    Examples:
        ```python
        from firesteel.datastream.connectors.file_system import FileSource
        from firesteel.datastream.formats.avro import AvroFormat, AvroSchema

        text = '{"type": "record", "name": "Sale", "fields": [{"name": "amount", "type": "int"}]}'
        schema = AvroSchema.parse_string(text)
        source = FileSource.for_bulk_file_format(AvroFormat(schema), "file:///data/sales.avro").build()
        ```
    """

    def __init__(self, schema: AvroSchema | None = None) -> None:
        if schema is not None and not isinstance(schema, AvroSchema):
            raise TypeError(f"AvroFormat takes an AvroSchema, not {type(schema).__name__}")
        self._schema = schema

    def open_cursor(self, split: Split, malformed: MalformedRecords) -> SplitCursor[Any]:
        """Open a cursor over the blocks whose marker before them begins in the range."""
        return _AvroCursor(split, self._schema, malformed, self.files)

    def produced_type(self) -> TypeInformation | None:
        """Records of the schema; None if none was set."""
        return None if self._schema is None else GenericRecordAvroTypeInfo(self._schema)

    def check(self) -> None:
        """Check that fastavro is installed.

        Raises:
            ProgramError: fastavro is missing.
        """
        fastavro_module()


class AvroInputFormat(InputFormat):
    """Avro files for ``env.create_input()``.

    Args:
        path: path of a file or folder.
        schema: schema to read records with.

    Examples:
        ```python
        from firesteel.datastream import StreamExecutionEnvironment
        from firesteel.datastream.formats.avro import AvroInputFormat, AvroSchema

        schema = AvroSchema.parse_string(
            '{"type": "record", "name": "Sale", "fields": [{"name": "amount", "type": "int"}]}'
        )
        env = StreamExecutionEnvironment.get_execution_environment()
        sales = env.create_input(AvroInputFormat("file:///data/sales", schema)).map(lambda sale: sale["amount"])
        ```
    """

    def __init__(self, path: str | os.PathLike[str], schema: AvroSchema) -> None:
        self._path = file_path(path, "AvroInputFormat")
        self._schema = schema

    def get_produced_type(self) -> GenericRecordAvroTypeInfo:
        """Returns the type of the records."""
        return GenericRecordAvroTypeInfo(self._schema)

    def file_format(self) -> FileFormat:
        """Returns the format of the files."""
        return AvroFormat(self._schema)

    def source(self) -> FileSource:
        """Returns the source of all records."""
        return FileSource.for_bulk_file_format(AvroFormat(self._schema), self._path).build()


class _AvroCursor(SplitCursor[Any]):
    """Reads the blocks of a split: those whose marker before them begins in the split's range.

    The position is ``[byte at which a block begins, records of it that were returned]``; -1 behind the last block.
    """

    def __init__(
        self, split: Split, schema: AvroSchema | None, malformed: MalformedRecords, files: FileSystems
    ) -> None:
        self._path = str(split.data["path"])
        self._start, self._end = int(split.data["start"]), int(split.data["end"])  # type: ignore[arg-type]
        self._schema, self._malformed = schema, malformed
        self._stream: IO[bytes] = files.of(self._path).open(self._path)
        self._file: Container | None = None
        self._records: list[Any] = []
        """Records of the current block."""
        self._returned = 0
        """Number of these records that were returned."""
        self._block = self._next = 0
        """Bytes at which the current and the next block begin; the next is -1 if there is none."""
        self._resume = split.position if isinstance(split.position, list) else None
        self._began = False

    def _begin(self) -> list[Any]:
        """Read the header and find the first block; returns what stands for a file that can't be read."""
        self._began = True
        try:
            self._file = file = Container(self._stream, None if self._schema is None else self._schema.parsed)
        except ValueError as error:
            self._next = -1
            if self._start or self._resume is not None:
                return []  # the first range of the file reports it
            return list(self._malformed.found(self._path, 0, str(error)))
        if self._resume is not None:
            self._next, self._returned = self._resume
            skip = self._returned
            if self._next >= 0 and skip:
                instead = self._load()
                self._returned = skip
                return instead
            return []
        marker = find_marker(self._stream, max(self._start, file.length - MARKER_BYTES), file.marker)
        self._next = -1 if marker is None else marker + MARKER_BYTES
        return []

    def _load(self) -> list[Any]:
        """Read the next block; returns what stands for a block that is damaged."""
        assert self._file is not None
        self._records, self._returned, self._block = [], 0, self._next
        if self._block - MARKER_BYTES >= self._end:
            self._next = -1
            return []
        try:
            block = self._file.read(self._block)
            if block is None:
                self._next = -1
            else:
                self._records, self._next = block
            return []
        except ValueError as error:
            marker = find_marker(self._stream, self._block, self._file.marker)
            self._next = -1 if marker is None else marker + MARKER_BYTES
            end = "the end of the file" if marker is None else f"byte {self._next}"
            return list(self._malformed.found(self._path, self._block, f"{error}; it is left out up to {end}"))

    def read(self, max_records: int) -> Chunk[Any] | Wait:
        """Return the next records of the current block, at most so many."""
        instead = [] if self._began else self._begin()
        if not instead and self._returned >= len(self._records) and self._next >= 0:
            instead = self._load()
        if instead:
            return Chunk(instead, [self._next, 0], finished=self._next < 0)
        values = self._records[self._returned : self._returned + max_records]
        self._returned += len(values)
        if self._returned < len(self._records):
            return Chunk(values, [self._block, self._returned])
        if self._next < 0:
            return Chunk(values, [self._next, 0], finished=True)
        return Chunk(values, [self._next, 0]) if values else Wait(0.0)

    @override
    def close(self) -> None:
        self._stream.close()


class AvroBulkWriters(BulkWriterFactory):
    """Writes container files of Avro. Made by ``AvroBulkWriters.for_generic_record(schema)``.

    Args:
        schema: schema of the records.
        codec: compression of the blocks: ``null``, ``deflate``, ``bzip2``, ``xz``, ``snappy`` or ``zstandard``.

    Examples:
        ```python
        from firesteel.datastream.connectors.file_system import FileSink
        from firesteel.datastream.formats.avro import AvroBulkWriters, AvroSchema

        text = '{"type": "record", "name": "Sale", "fields": [{"name": "amount", "type": "int"}]}'
        schema = AvroSchema.parse_string(text)
        sink = FileSink.for_bulk_format("file:///data/out", AvroBulkWriters.for_generic_record(schema)).build()
        ```
    """

    def __init__(self, schema: AvroSchema, codec: str = "null") -> None:
        self._schema, self._codec = schema, codec

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> AvroBulkWriters:
        """Make a factory of writers that take dicts."""
        if not isinstance(schema, AvroSchema):
            raise TypeError(f"AvroBulkWriters.for_generic_record() takes an AvroSchema, not {type(schema).__name__}")
        return AvroBulkWriters(schema)

    def create(self, stream: IO[bytes]) -> BulkWriter:
        """Make the writer of one file."""
        return _AvroWriter(self._schema, self._codec, stream)

    def check(self) -> None:
        """Check that fastavro is installed.

        Raises:
            ProgramError: fastavro is missing.
        """
        fastavro_module()


class _AvroWriter(BulkWriter):
    def __init__(self, schema: AvroSchema, codec: str, stream: IO[bytes]) -> None:
        from fastavro.write import Writer

        sequential: Any = _Sequential(stream)
        self._writer: Any = Writer(sequential, schema.parsed, codec=codec)

    def write(self, elements: Sequence[Any]) -> None:
        write = self._writer.write
        for value in elements:
            write(value)

    def finish(self) -> None:
        self._writer.flush()


class _Sequential:
    """A file that can only be appended to. fastavro would read files that it can seek in."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.write, self.flush = stream.write, stream.flush

    def seekable(self) -> bool:
        return False
