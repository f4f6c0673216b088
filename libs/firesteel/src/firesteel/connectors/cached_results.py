"""Results that are kept in files for the next jobs of a program: the sink that writes them, the source that reads.

Each subtask of the sink writes one file, also when it had no records, and shows it under its own name at the end of
the job: results are complete when all files exist. A file is a sequence of pickles, each of a list of records and their
timestamps. Only the owner of the directory can read it (mode 0700).
"""

from __future__ import annotations

import json
import os
import pickle
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

from typing_extensions import override

from firesteel.common.typeinfo import TypeInformation
from firesteel.connectors.filesystems.local import FileSync
from firesteel.connectors.kept_results import part_name
from firesteel.connectors.split_reader import Chunk, SplitCursor, SplitQueueReader
from firesteel.core.errors import ProgramError, StateRestoreError
from firesteel.core.pickling import dumps
from firesteel.functions.sink import WriterContext
from firesteel.functions.source import Boundedness, EnumeratorSpec, ReaderContext, Source, Split
from firesteel.functions.two_phase import (
    ALREADY_COMMITTED,
    COMMITTED,
    CommitOutcome,
    CommitResult,
    Committable,
    Committer,
    TwoPhaseCommitSink,
    TwoPhaseWriter,
    WriterState,
)

_COPIED: Final = 1 << 20
SHARED: Final = "all hosts of the cluster and the program have to see firesteel.cache.directory"


class CachedResultsSink(TwoPhaseCommitSink[Any]):
    """Writes the records of a job.

    Args:
        directory: directory of the files, which is created if needed.
    """

    commits_quickly = True
    """A commit only renames files."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)

    @override
    def create_writer(self, context: WriterContext) -> TwoPhaseWriter[Any]:
        return _Writer(self._directory, context)

    def create_committer(self, context: WriterContext) -> Committer:
        """Make the committer, which renames complete files to their visible names."""
        return _Committer(context)

    @override
    def describe(self) -> dict[str, Any]:
        return {"path": str(self._directory)}


class _Writer(TwoPhaseWriter[Any]):
    def __init__(self, directory: Path, context: WriterContext) -> None:
        name = part_name(context.subtask_index, context.parallelism)
        self._context = context
        self._visible = directory / name
        self._hidden = directory / f".{name}.{context.attempt}.{uuid.uuid4().hex}"
        self._stream: BinaryIO | None = None
        self._restored: list[tuple[Path, int]] = []
        self._kept = False
        self._whole: int | None = None  # bytes of the file; the input has ended

    def restore_state(self, states: Sequence[WriterState]) -> None:
        """Go on behind the bytes in the checkpoint; what was written after it is left out."""
        self._restored = [(Path(path), size) for path, size in (json.loads(state.data) for state in states)]

    def open(self) -> None:
        try:
            for directory in (self._hidden.parent.parent, self._hidden.parent):  # parents= would give them another mode
                directory.mkdir(mode=0o700, exist_ok=True)
            self._context.register_temporary_file(str(self._hidden))
            self._stream = self._hidden.open("wb")
            for path, size in self._restored:  # the attempt before may still write; the checkpoint may be needed again
                with path.open("rb") as former:
                    remaining = size
                    while remaining and (data := former.read(min(remaining, _COPIED))):
                        remaining -= self._stream.write(data)
                if remaining:
                    raise StateRestoreError(f"cache(): {path} is shorter than the {size} bytes in the checkpoint")
            _remove_former(self._hidden, self._visible, {path for path, _ in self._restored})
        except OSError as error:
            raise ProgramError(f"cache(): {self._hidden.parent} can't be written to: {error}; {SHARED}") from error

    def write(self, values: Sequence[Any], timestamps: Sequence[int] | None) -> None:
        assert self._stream is not None
        self._stream.write(_dumps((list(values), None if timestamps is None else [int(stamp) for stamp in timestamps])))

    def prepare_commit(self, *, end_of_input: bool) -> Sequence[bytes]:
        """Commit the file at the end of the input."""
        if not end_of_input:
            return ()
        assert self._stream is not None
        self._whole = self._stream.tell()
        if self._context.checkpointing:
            self._sync(self._stream)
            self._keep()
        self._close()
        return (json.dumps([str(self._hidden), str(self._visible)]).encode(),)

    def snapshot_state(self) -> Sequence[bytes]:
        """The file and its length; after the end of the input the visible file, which a restore has committed."""
        self._keep()
        if self._whole is not None:
            return (json.dumps([str(self._visible), self._whole]).encode(),)
        assert self._stream is not None
        self._sync(self._stream)
        return (json.dumps([str(self._hidden), self._stream.tell()]).encode(),)

    def _sync(self, stream: BinaryIO) -> None:
        """Have the bytes so far outlive the host: a restore refuses a file that is shorter than its checkpoint says."""
        stream.flush()
        self._context.make_durable(FileSync(stream, str(self._hidden)))

    def _keep(self) -> None:
        """Leave the file to checkpoints, which may be savepoints in a job that takes none by itself."""
        if not self._kept:
            self._kept = True
            self._context.forget_temporary_file(str(self._hidden))

    def abort(self) -> None:
        self._close()
        if self._kept:
            return
        self._hidden.unlink(missing_ok=True)
        self._context.forget_temporary_file(str(self._hidden))

    def close(self) -> None:
        self._close()

    def _close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()


class _Committer(Committer):
    def __init__(self, context: WriterContext) -> None:
        self._context = context

    def commit(self, committables: Sequence[Committable]) -> Sequence[CommitResult]:
        return [self._commit(*json.loads(committable.data)) for committable in committables]

    def _commit(self, hidden: str, visible: str) -> CommitResult:
        try:
            os.replace(hidden, visible)
        except FileNotFoundError:
            result = ALREADY_COMMITTED  # or the program has ended, and nobody will read it
        except OSError as error:
            return CommitResult(CommitOutcome.UNKNOWN, f"cache(): {hidden} could not be renamed: {error}")
        else:
            result = COMMITTED
        self._context.forget_temporary_file(hidden)
        _remove_former(Path(hidden), Path(visible), set())
        return result


def _remove_former(hidden: Path, visible: Path, needed: set[Path]) -> None:
    """Remove what attempts before this one have left of the file."""
    attempt = _attempt_of(hidden)
    for path in visible.parent.glob(f".{visible.name}.*"):
        if _attempt_of(path) < attempt and path not in needed:
            path.unlink(missing_ok=True)


def _attempt_of(hidden: Path) -> int:
    return int(hidden.name.split(".")[2])


def _dumps(message: tuple[list[Any], list[int] | None]) -> bytes:
    return dumps(message, lambda reason: f"cache(): a record can't be pickled: {reason}")


class CachedResultsSource(Source[Any]):
    """Reads what a `CachedResultsSink` has written.

    Args:
        parts: the files.
        type_info: of the records; None = any Python object.
    """

    def __init__(self, parts: Sequence[Path], type_info: TypeInformation | None) -> None:
        self._parts, self._type_info = [str(path) for path in parts], type_info

    @property
    @override
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def enumerator(self) -> EnumeratorSpec:
        """A split for each file."""
        return EnumeratorSpec("static", {"splits": [Split(path, {}).to_plain() for path in self._parts]})

    def create_reader(self, context: ReaderContext) -> SplitQueueReader[Any]:
        """A reader of files."""
        return _Reader()

    @override
    def produced_type(self) -> TypeInformation | None:
        return self._type_info


class _Reader(SplitQueueReader[Any]):
    def open_split(self, split: Split) -> SplitCursor[Any]:
        position = split.position or [0, 0]
        assert isinstance(position, list)
        offset, skip = position
        assert isinstance(offset, int)
        assert isinstance(skip, int)
        return _Cursor(split.id, offset, skip)


class _Cursor(SplitCursor[Any]):
    """The position is that of a pickle, and how many of its records were given."""

    def __init__(self, path: str, offset: int, skip: int) -> None:
        try:
            self._stream = open(path, "rb")  # noqa: SIM115 - closed by close()
        except OSError as error:
            raise ProgramError(f"cache(): {path} can't be read: {error}; {SHARED}") from error
        self._path, self._offset, self._given = path, offset, skip
        self._size = os.fstat(self._stream.fileno()).st_size
        self._values: list[Any] | None = None
        self._stamps: list[int] | None = None
        self._next = offset
        self._stream.seek(offset)

    def read(self, max_records: int) -> Chunk[Any]:
        if self._values is None and self._next < self._size:
            self._load()
        values = self._values or []
        first, last = self._given, min(len(values), self._given + max_records)
        stamps = None if self._stamps is None else self._stamps[first:last]
        self._given = last
        if last >= len(values):
            self._values, self._offset, self._given = None, self._next, 0
        return Chunk(values[first:last], [self._offset, self._given], self._offset >= self._size, stamps)

    def _load(self) -> None:
        try:
            self._values, self._stamps = pickle.load(self._stream)
        except (EOFError, pickle.UnpicklingError) as error:
            where = f"{self._path} is cut off behind byte {self._offset}"
            raise ProgramError(f"cache(): {where}: call invalidate()") from error
        self._next = self._stream.tell()

    def close(self) -> None:
        self._stream.close()
