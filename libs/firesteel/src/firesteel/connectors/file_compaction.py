"""When and how a file sink joins small files, with PyFlink's names."""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from firesteel.common.serialization import BulkWriterFactory, Encoder
from firesteel.connectors.file_format import FileFormat
from firesteel.connectors.filesystems.local import LocalOutput
from firesteel.connectors.malformed import MalformedRecords
from firesteel.connectors.part_files import part_maker
from firesteel.core.errors import ProgramError
from firesteel.expressions.values import records_of
from firesteel.functions.source import Split, Wait

__all__ = ["FileCompactStrategy", "FileCompactor"]

_AT_ONCE = 4096
"""Records that are read at once."""


@dataclass(frozen=True)
class FileCompactStrategy:
    """When files are joined. Made by ``FileCompactStrategy.builder()``.

    Attributes:
        size_threshold: bytes of finished parts at which they are joined; None = their size does not count.
        num_checkpoints_before_compaction: checkpoints after which parts are joined; None = checkpoints do not count.
        num_compact_threads: number of files that a subtask makes at the same time.

    Examples:
        ```python
        from firesteel.datastream.connectors.file_system import FileCompactStrategy

        strategy = FileCompactStrategy.builder().set_size_threshold(128 * 1024 * 1024).build()
        ```
    """

    size_threshold: int | None = None
    num_checkpoints_before_compaction: int | None = None
    num_compact_threads: int = 1

    @staticmethod
    def builder() -> FileCompactStrategy.Builder:
        """A builder, which needs a size or a number of checkpoints."""
        return FileCompactStrategy.Builder()

    class Builder:
        """Builds a ``FileCompactStrategy``. A size, a number of checkpoints or both are needed."""

        def __init__(self) -> None:
            self._size: int | None = None
            self._checkpoints: int | None = None
            self._threads = 1

        def set_size_threshold(self, size_threshold: int) -> FileCompactStrategy.Builder:
            """Join the finished parts of a folder when there are so many bytes of them."""
            self._size = _at_least_one("the size threshold", size_threshold)
            return self

        def enable_compaction_on_checkpoint(
            self, num_checkpoints_before_compaction: int
        ) -> FileCompactStrategy.Builder:
            """Join the finished parts of each folder after so many checkpoints."""
            count = _at_least_one("the number of checkpoints", num_checkpoints_before_compaction)
            self._checkpoints = count
            return self

        def set_num_compact_threads(self, num_compact_threads: int) -> FileCompactStrategy.Builder:
            """Set the number of files that a subtask makes at the same time."""
            self._threads = _at_least_one("the number of threads", num_compact_threads)
            return self

        def build(self) -> FileCompactStrategy:
            """Check the settings and make the strategy.

            Raises:
                ProgramError: neither a size nor a number of checkpoints is set.
            """
            if self._size is None and self._checkpoints is None:
                raise ProgramError(
                    "file compaction: say when, with set_size_threshold() or enable_compaction_on_checkpoint()"
                )
            return FileCompactStrategy(self._size, self._checkpoints, self._threads)


def _at_least_one(what: str, value: int) -> int:
    if value < 1:
        raise ProgramError(f"file compaction: {what} is at least 1, not {value}")
    return value


class FileCompactor(ABC):
    """How files are joined. Made by its factory methods; pickled into the job.

    Examples:
        ```python
        from firesteel.datastream.connectors.file_system import FileCompactor

        compactor = FileCompactor.concat_file_compactor()  # FileSink....enable_compact(strategy, compactor)
        ```
    """

    @staticmethod
    def concat_file_compactor(file_delimiter: bytes | None = None) -> FileCompactor:
        """Append the bytes of one file to those of another, with a delimiter between them."""
        return _Concat(bytes(file_delimiter or b""))

    @staticmethod
    def record_wise_file_compactor(file_format: FileFormat) -> FileCompactor:
        """Read files by this format, and write their records into one file as the sink does.

        This is for formats whose files can't be concatenated, such as Parquet and Avro.
        """
        if not isinstance(file_format, FileFormat):
            kind = type(file_format).__name__
            raise TypeError(f"record_wise_file_compactor() takes a StreamFormat or BulkFormat, not {kind}")
        return _RecordWise(file_format)

    @staticmethod
    def identical_file_compactor() -> FileCompactor:
        """Leave each file as it is."""
        return _Identical()

    joins: bool = True
    """Whether several files become one."""

    def check(self, file_format: Encoder | BulkWriterFactory) -> None:  # noqa: B027 - may be left out
        """Called when the sink is built.

        Raises:
            ProgramError: this compactor can't join files of the format.
        """

    @abstractmethod
    def compact(self, sources: Sequence[Path], target: Path, file_format: Encoder | BulkWriterFactory) -> None:
        """Join files into one, which is durable at the return. Called in a thread of its own.

        Args:
            sources: at least two finished files, which are left as they are.
            target: path of the joined file, which does not exist yet.
            file_format: format of the sink.

        Raises:
            Exception: the files can't be joined; the job fails.
        """


class _Identical(FileCompactor):
    joins = False

    def compact(self, sources: Sequence[Path], target: Path, file_format: Encoder | BulkWriterFactory) -> None:
        raise AssertionError("files stay as they are")


class _Concat(FileCompactor):
    def __init__(self, delimiter: bytes) -> None:
        self._delimiter = delimiter

    def check(self, file_format: Encoder | BulkWriterFactory) -> None:
        if isinstance(file_format, BulkWriterFactory) and not file_format.joinable:
            raise ProgramError(
                f"file compaction: files of {type(file_format).__name__} can't be put one after the other; take "
                "FileCompactor.record_wise_file_compactor() with the format that reads them"
            )

    def compact(self, sources: Sequence[Path], target: Path, file_format: Encoder | BulkWriterFactory) -> None:
        with open(target, "xb") as joined:
            for number, source in enumerate(sources):
                if number and self._delimiter:
                    joined.write(self._delimiter)
                with open(source, "rb") as stream:
                    shutil.copyfileobj(stream, joined, 1024 * 1024)
            joined.flush()
            os.fsync(joined.fileno())


class _RecordWise(FileCompactor):
    def __init__(self, reader: FileFormat) -> None:
        self._reader = reader

    def compact(self, sources: Sequence[Path], target: Path, file_format: Encoder | BulkWriterFactory) -> None:
        part = part_maker(file_format)(LocalOutput(target, target), 0.0)
        try:
            for source in sources:
                split = Split(str(source), {"path": str(source), "start": 0, "end": source.stat().st_size})
                cursor = self._reader.open_cursor(split, MalformedRecords())
                try:
                    finished = split.data["end"] == 0
                    while not finished:
                        chunk = cursor.read(_AT_ONCE)
                        if isinstance(chunk, Wait):
                            continue
                        finished, values = chunk.finished, chunk.values
                        if isinstance(values, pa.RecordBatch) and file_format.takes_columns:
                            part.write_columns(values, 0, None)
                        elif len(values):
                            part.write(self._records(values), 0, None)
                finally:
                    cursor.close()
            part.close()
        except BaseException:
            part.abort()
            raise

    def _records(self, values: object) -> Sequence[object]:
        if isinstance(values, pa.RecordBatch):
            return records_of(values, self._reader.produced_type())
        assert isinstance(values, list)
        return values
