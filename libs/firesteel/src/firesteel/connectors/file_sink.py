"""A sink that writes records to part files.

A part is hidden until a checkpoint is complete that holds all of it; in jobs without checkpoints, until the job has
finished. So each record is visible exactly once. What a failed attempt has written after its last checkpoint is cut off
or removed. Hidden local files have names that begin with a dot; in an object store they are uploads that
were not completed (``firesteel.connectors.filesystems``).
"""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from typing_extensions import override

from firesteel.common.serialization import BulkWriterFactory, Encoder
from firesteel.common.typeinfo import TypeInformation
from firesteel.connectors.compacting import (
    CompactingWriter,
    Compaction,
    PartFiles,
    PartGathering,
)
from firesteel.connectors.file_committer import FileCommitter
from firesteel.connectors.file_compaction import FileCompactor, FileCompactStrategy
from firesteel.connectors.file_layout import BucketAssigner, OutputFileConfig, RollingPolicy
from firesteel.connectors.file_source import file_path
from firesteel.connectors.file_writer import FileWriter
from firesteel.connectors.filesystems.file_system import kind_of
from firesteel.core.clock import SystemClock
from firesteel.core.errors import ProgramError
from firesteel.functions.sink import WriterContext
from firesteel.functions.sink_stages import StageFactory
from firesteel.functions.two_phase import Committer, TwoPhaseCommitSink, TwoPhaseWriter

__all__ = ["BulkFormatBuilder", "FileSink", "FileSinkBuilder", "RowFormatBuilder"]

_MINUTE_MS = 60_000


class FileSink(TwoPhaseCommitSink[Any]):
    """Writes files below a base path.

    Made by ``FileSink.for_row_format(base_path, encoder).build()`` or ``FileSink.for_bulk_format(...)``.

    Examples:
        ```python
        import pathlib

        from firesteel.common import Encoder
        from firesteel.datastream import StreamExecutionEnvironment
        from firesteel.datastream.connectors.file_system import FileSink

        folder = pathlib.Path("out").absolute()
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        sink = FileSink.for_row_format(folder.as_uri(), Encoder.simple_string_encoder()).build()
        env.from_collection(["tea", "milk"]).sink_to(sink)
        env.execute()
        print("".join(part.read_text() for part in folder.rglob("part-*")), end="")
        ```

        ```text
        tea
        milk
        ```
    """

    def __init__(
        self,
        base_path: str,
        file_format: Encoder | BulkWriterFactory,
        buckets: BucketAssigner,
        rolling: RollingPolicy,
        files: OutputFileConfig,
        check_interval_ms: int = _MINUTE_MS,
        compaction: Compaction | None = None,
    ) -> None:
        self._base_path, self._format = base_path, file_format
        self.commits_quickly = not kind_of(base_path).remote
        self._buckets, self._rolling, self._files = buckets, rolling, files
        self._check_interval_ms, self._compaction = check_interval_ms, compaction

    def for_type(self, type_info: TypeInformation | None) -> FileSink:
        """Returns the sink for a stream of this type: typed records are written as Flink writes them."""
        if not isinstance(self._format, Encoder):
            return self
        typed_sink = copy.copy(self)
        typed_sink._format = self._format.for_type(type_info)
        return typed_sink

    @staticmethod
    def for_row_format(base_path: str | os.PathLike[str], encoder: Encoder) -> RowFormatBuilder:
        """A builder of a sink that writes one record after another.

        Raises:
            TypeError: the argument is no encoder.
            ProgramError: there is no file system for the path.
        """
        if not isinstance(encoder, Encoder):
            hint = "; for_bulk_format() takes writer factories" if isinstance(encoder, BulkWriterFactory) else ""
            raise TypeError(f"for_row_format() takes an Encoder, not {type(encoder).__name__}{hint}")
        return RowFormatBuilder(base_path, encoder)

    @staticmethod
    def for_bulk_format(base_path: str | os.PathLike[str], writer_factory: BulkWriterFactory) -> BulkFormatBuilder:
        """A builder of a sink that writes files of a format such as Parquet.

        Raises:
            TypeError: the argument is no factory.
            ProgramError: there is no file system for the path.
        """
        if not isinstance(writer_factory, BulkWriterFactory):
            hint = "; for_row_format() takes encoders" if isinstance(writer_factory, Encoder) else ""
            raise TypeError(f"for_bulk_format() takes a BulkWriterFactory, not {type(writer_factory).__name__}{hint}")
        return BulkFormatBuilder(base_path, writer_factory)

    def stages(self) -> Sequence[StageFactory]:
        """Operators before the sink: with compaction those that write parts and collect them."""
        if self._compaction is None:
            return ()
        return PartFiles(self.create_part_writer), PartGathering(self._compaction)

    def create_writer(self, context: WriterContext) -> TwoPhaseWriter[Any]:
        """Make the writer of one subtask; with compaction it joins the parts of other operators."""
        if self._compaction is not None:
            return CompactingWriter(Path(self._base_path), self._format, self._compaction, context)
        return self.create_part_writer(context)

    def create_part_writer(self, context: WriterContext) -> FileWriter:
        """Make a writer of part files."""
        return FileWriter(
            self._base_path,
            self._format,
            self._buckets,
            self._rolling,
            self._files,
            self._check_interval_ms,
            context,
            SystemClock(),
        )

    def create_committer(self, context: WriterContext) -> Committer:
        """Make the committer, which makes finished parts visible."""
        return FileCommitter(context)

    def check(self) -> None:
        """Create the base path. For file systems other than the local one, errors show in slots.

        Raises:
            ProgramError: the base path can't be written to, or the format can't be written here.
        """
        if isinstance(self._format, BulkWriterFactory):
            self._format.check()
        if kind_of(self._base_path).remote:
            return
        try:
            os.makedirs(self._base_path, exist_ok=True)
        except OSError as error:
            raise ProgramError(f"file sink: can't make {self._base_path!r}: {error.strerror}") from error
        if not os.access(self._base_path, os.W_OK | os.X_OK):
            raise ProgramError(f"file sink: {self._base_path!r} can't be written to: permission denied")

    @override
    def describe(self) -> dict[str, Any]:
        return {"path": self._base_path}


StreamingFileSink = FileSink
"""Its name in PyFlink 1.x, where it goes to ``add_sink``."""


class FileSinkBuilder:
    """Builds a ``FileSink``; every setting has a default."""

    def __init__(self, base_path: str | os.PathLike[str], file_format: Encoder | BulkWriterFactory) -> None:
        self._base_path = file_path(base_path, "file sink")
        self._format = file_format
        self._buckets = BucketAssigner.date_time_bucket_assigner()
        self._rolling = RollingPolicy.default_rolling_policy()
        self._files = OutputFileConfig()
        self._check_interval_ms = _MINUTE_MS
        self._compaction: Compaction | None = None

    def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> Self:
        """Set what chooses the folder of a record; by default there is one for each hour (``yyyy-MM-dd--HH``)."""
        if not isinstance(bucket_assigner, BucketAssigner):
            raise TypeError(f"with_bucket_assigner() takes a BucketAssigner, not {type(bucket_assigner).__name__}")
        self._buckets = bucket_assigner
        return self

    def with_rolling_policy(self, rolling_policy: RollingPolicy) -> Self:
        """Set when a part is full."""
        if not isinstance(rolling_policy, RollingPolicy):
            raise TypeError(f"with_rolling_policy() takes a RollingPolicy, not {type(rolling_policy).__name__}")
        self._rolling = rolling_policy
        return self

    def with_output_file_config(self, output_file_config: OutputFileConfig) -> Self:
        """Set the names of parts."""
        if not isinstance(output_file_config, OutputFileConfig):
            kind = type(output_file_config).__name__
            raise TypeError(f"with_output_file_config() takes an OutputFileConfig, not {kind}")
        self._files = output_file_config
        return self

    def with_bucket_check_interval(self, interval: int) -> Self:
        """Set the time between two looks at the age of open parts, in milliseconds; the default is a minute.

        Raises:
            ProgramError: below 1.
        """
        if interval < 1:
            raise ProgramError(f"file sink: the bucket check interval is at least 1 ms, not {interval}")
        self._check_interval_ms = interval
        return self

    def enable_compact(self, strategy: FileCompactStrategy, compactor: FileCompactor) -> Self:
        """Join small files before they become visible; names of joined files begin with ``compacted-``.

        Raises:
            TypeError: an argument is of another type.
        """
        if not isinstance(strategy, FileCompactStrategy):
            raise TypeError(f"enable_compact() takes a FileCompactStrategy first, not {type(strategy).__name__}")
        if not isinstance(compactor, FileCompactor):
            raise TypeError(f"enable_compact() takes a FileCompactor second, not {type(compactor).__name__}")
        self._compaction = Compaction(strategy, compactor)
        return self

    def disable_compact(self) -> Self:
        """Do not join files; the default."""
        self._compaction = None
        return self

    def build(self) -> FileSink:
        """Check the settings and make the sink.

        Raises:
            ProgramError: the compactor can't join files of the format, or not on this file system.
        """
        if self._compaction is not None:
            if kind_of(self._base_path).remote:
                raise ProgramError(
                    f"file sink: parts below {self._base_path} can't be read before they are visible, so there is no "
                    "compaction: take a rolling policy with larger parts, or longer checkpoint intervals"
                )
            self._compaction.compactor.check(self._format)
        return FileSink(
            self._base_path,
            self._format,
            self._buckets,
            self._rolling,
            self._files,
            self._check_interval_ms,
            self._compaction,
        )


class RowFormatBuilder(FileSinkBuilder):
    """Builds a ``FileSink`` of rows; new parts begin by default at 128 MiB, or after one minute.

    Examples:
        ```python
        from firesteel.common import Encoder
        from firesteel.datastream.connectors.file_system import FileSink, RollingPolicy

        builder = FileSink.for_row_format("file:///data/out", Encoder.simple_string_encoder())
        sink = builder.with_rolling_policy(RollingPolicy.default_rolling_policy()).build()
        ```
    """


class BulkFormatBuilder(FileSinkBuilder):
    """Builds a ``FileSink`` of a bulk format; by default each writer has one part in each bucket.

    Examples:
        ```python
        from firesteel.datastream.connectors.file_system import FileSink
        from firesteel.datastream.formats.csv import CsvBulkWriters, CsvSchema

        schema = CsvSchema.builder().add_string_column("name").build()
        builder = FileSink.for_bulk_format("file:///data/out", CsvBulkWriters.for_schema(schema))
        sink = builder.build()
        ```
    """

    def __init__(self, base_path: str | os.PathLike[str], writer_factory: BulkWriterFactory) -> None:
        super().__init__(base_path, writer_factory)
        self._rolling = RollingPolicy.on_checkpoint_rolling_policy()
