"""A source of files in any format."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from firesteel.common.time import Span, duration_of
from firesteel.common.typeinfo import TypeInformation
from firesteel.connectors.file_format import BulkFormat, FileFormat, StreamFormat
from firesteel.connectors.file_splits import DEFAULT_SPLIT_BYTES
from firesteel.connectors.filesystems.file_system import FileSystems, kind_of, remote_path
from firesteel.connectors.malformed import MalformedPolicy, MalformedRecords
from firesteel.connectors.slot_file_enumerator import SlotFileEnumerator
from firesteel.connectors.split_reader import SplitCursor, SplitQueueReader
from firesteel.core.errors import ProgramError
from firesteel.functions.source import (
    Boundedness,
    EnumeratorSpec,
    ReaderContext,
    Source,
    Split,
    SplitEnumerator,
    SplitEnumeratorContext,
)

_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=/)(?://([^/]*))?(/.*)?$", re.DOTALL)
"""Scheme, host, path; Java prints ``file:/tmp``. A name that begins like this is written as ``./name:/...``."""

__all__ = [
    "BulkFormat",
    "FileEnumeratorProvider",
    "FileSource",
    "FileSourceBuilder",
    "FileSplitAssignerProvider",
    "StreamFormat",
]


class FileEnumeratorProvider:
    """Whether files are split. Made by its factory methods.

    Examples:
        ```python
        from firesteel.datastream.connectors.file_system import FileEnumeratorProvider, FileSource, StreamFormat

        builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "file:///data/logs")
        builder.set_file_enumerator(FileEnumeratorProvider.default_non_splittable_file_enumerator())
        ```
    """

    def __init__(self, *, splits: bool) -> None:
        self.splits = splits

    @staticmethod
    def default_splittable_file_enumerator() -> FileEnumeratorProvider:
        """Read large files in ranges, if the format can be split; folders are read with everything below them."""
        return FileEnumeratorProvider(splits=True)

    @staticmethod
    def default_non_splittable_file_enumerator() -> FileEnumeratorProvider:
        """Read each file in one subtask; folders are read with everything below them."""
        return FileEnumeratorProvider(splits=False)


class FileSplitAssignerProvider:
    """How ranges are assigned to subtasks. Made by its factory methods.

    Examples:
        ```python
        from firesteel.datastream.connectors.file_system import FileSource, FileSplitAssignerProvider, StreamFormat

        builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "file:///data/logs")
        builder.set_split_assigner(FileSplitAssignerProvider.locality_aware_split_assigner())
        ```
    """

    @staticmethod
    def locality_aware_split_assigner() -> FileSplitAssignerProvider:
        """Assign ranges to the subtasks that request them; all hosts count as equally near."""
        return FileSplitAssignerProvider()


class FileSource(Source[Any]):
    r"""Reads files and folders; large files are split into ranges that several subtasks read.

    Made by ``FileSource.for_record_stream_format(StreamFormat.text_line_format(), *paths).build()`` or by
    ``FileSource.for_bulk_file_format(...)``. Folders are read with all below them; names that begin with a dot or an
    underscore are left out. Paths may have wildcards: ``*``, ``?``, ``[...]``, and ``**`` for any number of folders.
    They may be in an object store (``s3://bucket/folder``), or on any file system that a plug-in reaches.
    Files of stream formats that end with .gz, .bz2, .xz, .zst, .lz4 or .deflate are decompressed and never split.

    Args:
        paths: files, folders, and patterns of them (``/data/2026-*/**/*.csv``).
        file_format: reads the records of a file.
        split_bytes: approximate length of ranges; 0 = files are not split.
        interval_ms: time between two looks for new files; None = only files that exist at the start are read.
        malformed: what to do with input that can't be read.

    Examples:
        ```python
        import pathlib

        from firesteel.common import WatermarkStrategy
        from firesteel.datastream import StreamExecutionEnvironment
        from firesteel.datastream.connectors.file_system import FileSource, StreamFormat

        pathlib.Path("words.txt").write_text("tea\nmilk\n")
        path = pathlib.Path("words.txt").absolute().as_uri()
        source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), path).build()
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        print(list(env.from_source(source, WatermarkStrategy.no_watermarks(), "words").execute_and_collect()))
        ```

        ```text
        ['tea', 'milk']
        ```
    """

    def __init__(
        self,
        paths: tuple[str, ...],
        file_format: FileFormat,
        split_bytes: int = DEFAULT_SPLIT_BYTES,
        interval_ms: int | None = None,
        malformed: MalformedPolicy = MalformedPolicy.FAIL,
    ) -> None:
        self._paths, self._format = paths, file_format
        self._split_bytes = split_bytes if file_format.splittable else 0
        self._interval_ms, self._malformed = interval_ms, malformed

    @staticmethod
    def for_record_stream_format(stream_format: StreamFormat, *paths: str | os.PathLike[str]) -> FileSourceBuilder:
        """A builder of a source that reads these files or folders.

        Raises:
            ProgramError: there are no paths.
        """
        if not isinstance(stream_format, StreamFormat):
            raise TypeError(f"for_record_stream_format() takes a StreamFormat, not {type(stream_format).__name__}")
        return FileSourceBuilder(stream_format, paths)

    @staticmethod
    def for_bulk_file_format(bulk_format: BulkFormat, *paths: str | os.PathLike[str]) -> FileSourceBuilder:
        """A builder of a source that reads these files or folders.

        Raises:
            ProgramError: there are no paths.
        """
        if not isinstance(bulk_format, BulkFormat):
            raise TypeError(f"for_bulk_file_format() takes a BulkFormat, not {type(bulk_format).__name__}")
        return FileSourceBuilder(bulk_format, paths)

    @property
    def boundedness(self) -> Boundedness:
        """Bounded, unless the source watches for new files."""
        return Boundedness.BOUNDED if self._interval_ms is None else Boundedness.CONTINUOUS_UNBOUNDED

    @property
    def _remote(self) -> bool:
        return any(kind_of(path).remote for path in self._paths)

    def _config(self) -> dict[str, Any]:
        config = {
            "paths": list(self._paths),
            "split_bytes": self._split_bytes,
            "decompress": self._format.decompresses,
            "empty_is_damaged": self._format.empty_is_damaged,
        }
        return config if self._interval_ms is None else {**config, "interval_ms": self._interval_ms}

    def enumerator(self) -> EnumeratorSpec | None:
        """Enumerator of local files, which runs in the JobMaster; files of other file systems are listed in a slot."""
        if self._remote:
            return None
        return EnumeratorSpec("files" if self._interval_ms is None else "watched-files", self._config())

    def create_enumerator(self, context: SplitEnumeratorContext) -> SplitEnumerator:
        """Make the enumerator of other file systems. It runs in a slot, where code may block and credentials are."""
        return SlotFileEnumerator(context, self._config())

    def restore_enumerator(self, context: SplitEnumeratorContext, checkpoint: Any) -> SplitEnumerator:
        """Make the enumerator, which goes on from a checkpoint."""
        return SlotFileEnumerator(context, self._config(), checkpoint)

    def create_reader(self, context: ReaderContext) -> SplitQueueReader[Any]:
        """Make the reader of one subtask."""
        reads = copy.copy(self._format)
        reads.files = FileSystems(context.settings)
        return _FileReader(reads, MalformedRecords(self._malformed, context), blocking=self._remote)

    def produced_type(self) -> TypeInformation | None:
        """Type of the format's records; None (any object) if malformed records are emitted among them."""
        return None if self._malformed is MalformedPolicy.EMIT else self._format.produced_type()

    def with_columns(self, names: Sequence[str]) -> FileSource | None:
        """The source with these columns only; None if the format can't, or malformed records are emitted."""
        narrow = None if self._malformed is MalformedPolicy.EMIT else self._format.with_columns(names)
        if narrow is None:
            return None
        return FileSource(self._paths, narrow, self._split_bytes, self._interval_ms, self._malformed)


class FileSourceBuilder:
    """Builds a ``FileSource``; every setting has a default.

    Examples:
        ```python
        from firesteel.common import Duration
        from firesteel.datastream.connectors.file_system import FileSource, StreamFormat

        builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "file:///data/incoming")
        source = builder.monitor_continuously(Duration.of_seconds(10)).build()  # looks for new files for ever
        print(source.boundedness.name)
        ```

        ```text
        CONTINUOUS_UNBOUNDED
        ```
    """

    def __init__(self, file_format: FileFormat, paths: tuple[str | os.PathLike[str], ...]) -> None:
        if not paths:
            raise ProgramError("file source: at least one path is needed")
        self._format = file_format
        self._paths = tuple(file_path(path, "file source") for path in paths)
        self._split_bytes = DEFAULT_SPLIT_BYTES
        self._interval_ms: int | None = None
        self._malformed = MalformedPolicy.FAIL

    def monitor_continuously(self, discovery_interval: Span) -> FileSourceBuilder:
        """Look for new files again and again; the source never ends.

        Each file is read once. It has to be complete when it appears: write it under a name that begins with a dot
        or underscore, then rename it.

        Raises:
            ProgramError: the interval is below a millisecond.
        """
        millis = duration_of("the discovery interval", discovery_interval).to_millis()
        if millis < 1:
            raise ProgramError("file source: the discovery interval is at least a millisecond")
        self._interval_ms = millis
        return self

    def process_static_file_set(self) -> FileSourceBuilder:
        """Read the files that exist when the job starts, and end. The default.

        They are listed once: a restart from a checkpoint goes on with those of the checkpoint.
        """
        self._interval_ms = None
        return self

    def set_file_enumerator(self, file_enumerator: FileEnumeratorProvider) -> FileSourceBuilder:
        """Set whether files are split; by default files of splittable formats are."""
        if not isinstance(file_enumerator, FileEnumeratorProvider):
            raise TypeError(f"set_file_enumerator() takes a FileEnumeratorProvider, not {file_enumerator!r}")
        if not file_enumerator.splits:
            self._split_bytes = 0
        elif not self._split_bytes:
            self._split_bytes = DEFAULT_SPLIT_BYTES
        return self

    def set_split_assigner(self, split_assigner: FileSplitAssignerProvider) -> FileSourceBuilder:
        """Set how ranges are assigned; there is only one way."""
        if not isinstance(split_assigner, FileSplitAssignerProvider):
            raise TypeError(f"set_split_assigner() takes a FileSplitAssignerProvider, not {split_assigner!r}")
        return self

    def set_split_size(self, size_bytes: int) -> FileSourceBuilder:
        """Split files into ranges of about this many bytes; 0 = do not split them.

        Raises:
            ProgramError: below 0.
        """
        if size_bytes < 0:
            raise ProgramError(f"file source: the size of a split is at least 1 byte, or 0 = not cut, not {size_bytes}")
        self._split_bytes = size_bytes
        return self

    def on_malformed(self, policy: MalformedPolicy) -> FileSourceBuilder:
        """Say what becomes of lines and blocks that can't be read; by default the job fails."""
        if not isinstance(policy, MalformedPolicy):
            raise TypeError(f"on_malformed() takes a MalformedPolicy, not {policy!r}")
        self._malformed = policy
        return self

    def build(self) -> FileSource:
        """The source.

        Raises:
            ProgramError: the format can't be read here.
        """
        self._format.check()
        return FileSource(self._paths, self._format, self._split_bytes, self._interval_ms, self._malformed)


def file_path(path: str | os.PathLike[str], what: str) -> str:
    """Normalize a path or URI of a user: it becomes absolute, or has the scheme of its file system.

    Raises:
        ProgramError: there is no such file system, or the text is no path of it.
    """
    return remote_path(os.fspath(path), what) or local_path(path, what, "reads and writes")


def local_path(path: str | os.PathLike[str], what: str, does: str) -> str:
    """The absolute path that a path or ``file:`` URI names; ``~`` is the home directory of the program's user.

    Raises:
        ProgramError: the path is empty, or on another file system or host, or there is no such home directory.
    """
    text = os.fspath(path)
    if not text:
        raise ProgramError(f"{what}: the path is empty")
    uri = _URI.match(text)
    if uri is None and not text.startswith("file:"):
        try:
            return str(Path(text).expanduser().absolute())
        except RuntimeError as error:
            raise ProgramError(f"{what}: {text!r}: {error}; write ./{text} for a name that begins so") from None
    scheme, host, rest = uri.groups() if uri is not None else ("file", None, None)
    if scheme != "file":
        raise ProgramError(f"{what}: {text!r}: this version {does} local files only, not {scheme}://")
    if host not in (None, "", "localhost") or not rest:
        raise ProgramError(
            f"{what}: {text!r} names no directory of this host; write file:///directory, or a plain path"
        )
    return str(Path(rest).absolute())


class _FileReader(SplitQueueReader[Any]):
    def __init__(self, file_format: FileFormat, malformed: MalformedRecords, *, blocking: bool) -> None:
        super().__init__()
        self.blocking = blocking
        self._format, self._malformed = file_format, malformed

    def open_split(self, split: Split) -> SplitCursor[Any]:
        return self._format.open_cursor(split, self._malformed)
