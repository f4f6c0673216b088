"""A sink that writes records to part files.

A part is written under a name that begins with a dot and is visible only when the job has finished: ``finish`` closes
and syncs all parts, ``commit`` gives them their names. When the job fails they are removed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from firesteel.common.serialization import BulkWriterFactory, Encoder
from firesteel.connectors.file_layout import BucketAssigner, OutputFileConfig, RollingPolicy
from firesteel.connectors.file_source import local_path
from firesteel.connectors.part_files import FileWriter
from firesteel.core.clock import SystemClock
from firesteel.core.errors import ProgramError, UnsupportedFeatureError
from firesteel.functions.sink import Sink, SinkWriter, WriterContext

__all__ = ["BulkFormatBuilder", "FileSink", "FileSinkBuilder", "RowFormatBuilder"]

Builder = TypeVar("Builder", bound="FileSinkBuilder")
_MINUTE_MS = 60_000


class FileSink(Sink[Any]):
    """Writes files below a base path.

    Made by ``FileSink.for_row_format(base_path, encoder).build()`` or ``FileSink.for_bulk_format(...)``.
    """

    def __init__(
        self,
        base_path: str,
        file_format: Encoder | BulkWriterFactory,
        buckets: BucketAssigner,
        rolling: RollingPolicy,
        files: OutputFileConfig,
        check_interval_ms: int = _MINUTE_MS,
    ) -> None:
        self._base_path, self._format = base_path, file_format
        self._buckets, self._rolling, self._files = buckets, rolling, files
        self._check_interval_ms = check_interval_ms

    @staticmethod
    def for_row_format(base_path: str | os.PathLike[str], encoder: Encoder) -> RowFormatBuilder:
        """A builder of a sink that writes one record after another.

        Raises:
            TypeError: no encoder.
            ProgramError: the path is on another file system.
        """
        if not isinstance(encoder, Encoder):
            hint = "; for_bulk_format() takes writer factories" if isinstance(encoder, BulkWriterFactory) else ""
            raise TypeError(f"for_row_format() takes an Encoder, not {type(encoder).__name__}{hint}")
        return RowFormatBuilder(base_path, encoder)

    @staticmethod
    def for_bulk_format(base_path: str | os.PathLike[str], writer_factory: BulkWriterFactory) -> BulkFormatBuilder:
        """A builder of a sink that writes files of a format such as Parquet.

        Raises:
            TypeError: no factory.
            ProgramError: the path is on another file system.
        """
        if not isinstance(writer_factory, BulkWriterFactory):
            hint = "; for_row_format() takes encoders" if isinstance(writer_factory, Encoder) else ""
            raise TypeError(f"for_bulk_format() takes a BulkWriterFactory, not {type(writer_factory).__name__}{hint}")
        return BulkFormatBuilder(base_path, writer_factory)

    def create_writer(self, context: WriterContext) -> SinkWriter[Any]:
        """A writer with part files of its own."""
        return FileWriter(
            Path(self._base_path),
            self._format,
            self._buckets,
            self._rolling,
            self._files,
            self._check_interval_ms,
            context,
            SystemClock(),
        )

    def check(self) -> None:
        """Make the base path, or find that it can't be written to.

        Raises:
            ProgramError: says which path, and why; or the format can't be written here.
        """
        if isinstance(self._format, BulkWriterFactory):
            self._format.check()
        try:
            os.makedirs(self._base_path, exist_ok=True)
        except OSError as error:
            raise ProgramError(f"file sink: can't make {self._base_path!r}: {error.strerror}") from error
        if not os.access(self._base_path, os.W_OK | os.X_OK):
            raise ProgramError(f"file sink: {self._base_path!r} can't be written to: permission denied")

    def describe(self) -> dict[str, Any]:
        """The base path."""
        return {"path": self._base_path}


class FileSinkBuilder:
    """Builds a ``FileSink``."""

    def __init__(self, base_path: str | os.PathLike[str], file_format: Encoder | BulkWriterFactory) -> None:
        self._base_path = local_path(base_path, "file sink", "writes")
        self._format = file_format
        self._buckets = BucketAssigner.date_time_bucket_assigner()
        self._rolling = RollingPolicy.default_rolling_policy()
        self._files = OutputFileConfig()
        self._check_interval_ms = _MINUTE_MS

    def with_bucket_assigner(self: Builder, bucket_assigner: BucketAssigner) -> Builder:
        """Choose folders by this; the default is one for each hour (``yyyy-MM-dd--HH``)."""
        if not isinstance(bucket_assigner, BucketAssigner):
            raise TypeError(f"with_bucket_assigner() takes a BucketAssigner, not {type(bucket_assigner).__name__}")
        self._buckets = bucket_assigner
        return self

    def with_rolling_policy(self: Builder, rolling_policy: RollingPolicy) -> Builder:
        """Begin new parts by this."""
        if not isinstance(rolling_policy, RollingPolicy):
            raise TypeError(f"with_rolling_policy() takes a RollingPolicy, not {type(rolling_policy).__name__}")
        self._rolling = rolling_policy
        return self

    def with_output_file_config(self: Builder, output_file_config: OutputFileConfig) -> Builder:
        """Name parts by this."""
        if not isinstance(output_file_config, OutputFileConfig):
            kind = type(output_file_config).__name__
            raise TypeError(f"with_output_file_config() takes an OutputFileConfig, not {kind}")
        self._files = output_file_config
        return self

    def with_bucket_check_interval(self: Builder, interval: int) -> Builder:
        """Look at the age of all open parts this often (milliseconds), when records come; the default is a minute.

        Raises:
            ProgramError: below 1.
        """
        if interval < 1:
            raise ProgramError(f"file sink: the bucket check interval is at least 1 ms, not {interval}")
        self._check_interval_ms = interval
        return self

    def enable_compact(self, strategy: Any, compactor: Any) -> NoReturn:
        """Refused in this version: UnsupportedFeatureError."""
        raise UnsupportedFeatureError(
            "enable_compact(): compaction happens at checkpoints, which are not in this version of firesteel; a later "
            "one brings them"
        )

    def disable_compact(self: Builder) -> Builder:
        """Do not compact; the default."""
        return self

    def build(self) -> FileSink:
        """The sink."""
        return FileSink(
            self._base_path, self._format, self._buckets, self._rolling, self._files, self._check_interval_ms
        )


class RowFormatBuilder(FileSinkBuilder):
    """Builds a ``FileSink`` of rows; new parts begin by default at 128 MiB, or after one minute."""


class BulkFormatBuilder(FileSinkBuilder):
    """Builds a ``FileSink`` of a bulk format; by default each writer has one part in each bucket."""

    def __init__(self, base_path: str | os.PathLike[str], writer_factory: BulkWriterFactory) -> None:
        super().__init__(base_path, writer_factory)
        self._rolling = RollingPolicy.on_checkpoint_rolling_policy()
