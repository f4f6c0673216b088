"""A sink that writes records as rows of part files.

A part is written under a name that begins with a dot and is visible only when the job has finished: ``finish`` closes
and syncs all parts, ``commit`` gives them their names. When the job fails they are removed.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from firesteel.common.serialization import Encoder
from firesteel.connectors.file_layout import BucketAssigner, OutputFileConfig, RollingPolicy
from firesteel.core.clock import Clock, SystemClock
from firesteel.core.errors import ProgramError
from firesteel.functions.sink import Sink, SinkWriter, WriterContext
from firesteel.functions.source import Plain


class FileSink(Sink[Any]):
    """Writes files below a base path. Made by ``FileSink.for_row_format(base_path, encoder).build()``."""

    def __init__(
        self,
        base_path: str,
        encoder: Encoder,
        buckets: BucketAssigner,
        rolling: RollingPolicy,
        files: OutputFileConfig,
    ) -> None:
        self._base_path, self._encoder = base_path, encoder
        self._buckets, self._rolling, self._files = buckets, rolling, files

    @staticmethod
    def for_row_format(base_path: str | os.PathLike[str], encoder: Encoder) -> RowFormatBuilder:
        """A builder of a sink that writes one record after another."""
        return RowFormatBuilder(base_path, encoder)

    def create_writer(self, context: WriterContext) -> SinkWriter[Any]:
        """A writer with part files of its own."""
        return FileWriter(
            Path(self._base_path), self._encoder, self._buckets, self._rolling, self._files, context, SystemClock()
        )

    def check(self) -> None:
        """Make the base path, or find that it can't be written to.

        Raises:
            ProgramError: says which path, and why.
        """
        try:
            os.makedirs(self._base_path, exist_ok=True)
        except OSError as error:
            raise ProgramError(f"file sink: can't make {self._base_path!r}: {error.strerror}") from error
        if not os.access(self._base_path, os.W_OK | os.X_OK):
            raise ProgramError(f"file sink: {self._base_path!r} can't be written to: permission denied")

    def describe(self) -> dict[str, Any]:
        """The base path."""
        return {"path": self._base_path}


class RowFormatBuilder:
    """Builds a ``FileSink`` of rows."""

    def __init__(self, base_path: str | os.PathLike[str], encoder: Encoder) -> None:
        text = os.fspath(base_path)
        scheme, separator, rest = text.partition("://")
        if separator and scheme != "file":
            raise ProgramError(f"file sink: {text!r}: this version writes local files only, not {scheme}://")
        self._base_path = str(Path(rest if separator else text).absolute())
        self._encoder = encoder
        self._buckets = BucketAssigner.date_time_bucket_assigner()
        self._rolling = RollingPolicy.default_rolling_policy()
        self._files = OutputFileConfig()

    def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> RowFormatBuilder:
        """Choose folders by this; the default is one for each hour (``yyyy-MM-dd--HH``)."""
        self._buckets = bucket_assigner
        return self

    def with_rolling_policy(self, rolling_policy: RollingPolicy) -> RowFormatBuilder:
        """Begin new parts by this; the default is 128 MiB, or one minute."""
        self._rolling = rolling_policy
        return self

    def with_output_file_config(self, output_file_config: OutputFileConfig) -> RowFormatBuilder:
        """Name parts by this."""
        self._files = output_file_config
        return self

    def build(self) -> FileSink:
        """The sink."""
        return FileSink(self._base_path, self._encoder, self._buckets, self._rolling, self._files)


class _Part:
    def __init__(self, hidden: Path, visible: Path, stream: BinaryIO, now: float) -> None:
        self.hidden, self.visible, self.stream = hidden, visible, stream
        self.size = 0
        self.begun = self.written = now


class FileWriter(SinkWriter[Any]):
    """Part files of one subtask."""

    def __init__(
        self,
        base_path: Path,
        encoder: Encoder,
        buckets: BucketAssigner,
        rolling: RollingPolicy,
        files: OutputFileConfig,
        context: WriterContext,
        clock: Clock,
    ) -> None:
        self._base_path, self._encode = base_path, encoder.encode
        self._buckets, self._rolling, self._files = buckets, rolling, files
        self._context, self._clock = context, clock
        self._id = uuid.uuid4()
        self._count = 0
        self._open: dict[str, _Part] = {}
        self._closed: list[_Part] = []

    def write(self, values: Sequence[Any], timestamps: Sequence[int] | None) -> None:
        """Append the records to the parts of their buckets."""
        bucket_of, encode, now_ms = self._buckets.bucket_of, self._encode, self._clock.epoch_ms()
        rows: dict[str, list[bytes]] = {}
        for value in values:
            rows.setdefault(bucket_of(value, now_ms), []).append(encode(value))
        now = self._clock.monotonic()
        for bucket, encoded in rows.items():
            self._append(bucket, encoded, now)

    def _append(self, bucket: str, rows: list[bytes], now: float) -> None:
        part = self._open.get(bucket)
        start = 0
        limit = self._rolling.part_size
        while start < len(rows):
            if part is not None and self._rolling.is_full(
                part.size, (now - part.begun) * 1000, (now - part.written) * 1000
            ):
                self._close_part(bucket)
                part = None
            if part is None:
                part = self._open[bucket] = self._new_part(bucket, now)
            stop = len(rows)
            if limit is not None:
                room, stop = limit - part.size, start
                while stop < len(rows) and room > 0:
                    room -= len(rows[stop])
                    stop += 1
            data = b"".join(rows[start:stop])
            part.stream.write(data)
            part.size += len(data)
            part.written = now
            start = stop

    def _new_part(self, bucket: str, now: float) -> _Part:
        folder = self._base_path / bucket
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{self._files.prefix}-{self._id}-{self._count}{self._files.suffix}"
        self._count += 1
        hidden = folder / f".{name}.inprogress"
        self._context.register_temporary_file(str(hidden))
        return _Part(hidden, folder / name, open(hidden, "xb"), now)

    def _close_part(self, bucket: str) -> None:
        part = self._open[bucket]
        part.stream.flush()
        os.fsync(part.stream.fileno())
        part.stream.close()
        del self._open[bucket]
        self._closed.append(part)

    def finish(self) -> list[Plain]:
        """Close and sync all parts."""
        for bucket in list(self._open):
            self._close_part(bucket)
        return [{"from": str(part.hidden), "to": str(part.visible)} for part in self._closed]

    def commit(self, committables: Sequence[Plain]) -> None:
        """Give the parts their names.

        Raises:
            FileNotFoundError: a part has vanished.
        """
        for committable in committables:
            assert isinstance(committable, dict)
            hidden, visible = committable["from"], committable["to"]
            if os.path.exists(hidden) or not os.path.exists(visible):
                os.replace(hidden, visible)
            self._context.forget_temporary_file(hidden)
        self._closed.clear()

    def abort(self) -> None:
        """Remove all parts that are not visible."""
        parts = [*self._open.values(), *self._closed]
        self._open.clear()
        self._closed.clear()
        for part in parts:
            part.stream.close()
            part.hidden.unlink(missing_ok=True)
            self._context.forget_temporary_file(str(part.hidden))

    def close(self) -> None:
        """Close the files that are still open; they stay hidden."""
        for part in self._open.values():
            part.stream.close()
