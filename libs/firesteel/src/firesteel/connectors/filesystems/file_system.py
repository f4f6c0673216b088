"""The contract of file systems, and how the file system of a path is found.

A path with a scheme (``s3://bucket/key``) belongs to the file system that is registered for the scheme in the entry
point group ``firesteel.file_systems``. A path without a scheme, or with ``file:``, belongs to the local disk. A file
system is made from the settings of the job where files are read or written: in slots, and in TaskManagers for temporary
files that slots leave behind. Coordinators look at local files only.

Sinks write by a *recoverable writer*, as in Flink: a checkpoint can hold a part that is being written, with which
another attempt goes on, and a committer makes finished parts visible, perhaps several times.
"""

from __future__ import annotations

import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, ClassVar, Final

from firesteel.checkpoint.places import S3_SCHEMES
from firesteel.config import Settings
from firesteel.core.errors import ConfigurationError, ProgramError
from firesteel.core.plugins import install_command, known_names, load
from firesteel.functions.sink import WriterContext
from firesteel.functions.two_phase import CommitResult

GROUP: Final = "firesteel.file_systems"
LOCAL: Final = "file"
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")

Refused = Callable[[OSError], None]
"""Called when a folder can't be listed; then it is left out, unless this raises."""
MakeDurable = Callable[[Callable[[], None]], None]
"""``WriterContext.make_durable``: takes a function that syncs what was written, and calls it before the checkpoint."""


def scheme_of(path: str) -> str:
    """The scheme of a path of a source or sink; ``file`` if it has none."""
    match = _SCHEME.match(path)
    return LOCAL if match is None else match[1].lower()


@dataclass(frozen=True)
class Persisted:
    """State of an unfinished part in a checkpoint.

    Attributes:
        plain: what a writer of the same file system needs to go on with the part, JSON-able. ``uri`` is the path of
            the part, by which a sink finds the file system.
        tail: bytes of the part that the file system does not have yet.
    """

    plain: dict[str, Any]
    tail: bytes = b""


@dataclass(frozen=True)
class RecoveredPart:
    """A part of a checkpoint with which an attempt goes on.

    Attributes:
        output: a part that begins with those bytes of the former one that are not in ``committable``; None if there are
            no such bytes.
        committable: the finished beginning of the former part, to be committed; None if there is none.
    """

    output: PartOutput | None
    committable: dict[str, Any] | None = None


class PartOutput(ABC):
    """A part file that is being written, and not visible yet.

    Attributes:
        stream: takes the bytes of the part. A checkpoint may be taken between two calls of ``write``, and the part may
            have to end there. So each call writes whole records, if the format can be appended to.
        path: path of the part when it is visible.
        kept: a checkpoint may need the part, so the task must not remove it any more.
    """

    stream: IO[bytes]
    path: str
    kept = False

    @abstractmethod
    def persist(self, make_durable: MakeDurable) -> Persisted:
        """Prepare a checkpoint; the bytes so far are durable when ``make_durable`` has done its work."""

    @abstractmethod
    def close(self, make_durable: MakeDurable) -> None:
        """Finish the part; all bytes are durable when ``make_durable`` has done its work."""

    @abstractmethod
    def committable(self) -> dict[str, Any] | None:
        """What a committer needs to make the file visible, JSON-able; None if there is no file. Called after ``close``.

        ``uri`` is the path of the part.
        """

    @abstractmethod
    def keep(self) -> None:
        """Note that the checkpoint of the current barrier refers to the part."""

    @abstractmethod
    def discard(self) -> None:
        """Release open files; what was written stays, because a checkpoint may need it."""

    @abstractmethod
    def abort(self) -> None:
        """Remove the part. Idempotent; if the file system is away, a later attempt removes it."""


class RecoverableWriter(ABC):
    """Makes the part files of one subtask of a sink, below one path."""

    @abstractmethod
    def begin(self, folder: str, name: str) -> PartOutput:
        """Begin a new part.

        Args:
            folder: folder relative to the base path; empty = the base path itself.
            name: name of the file, which is unique.
        """

    @abstractmethod
    def recover(self, folder: str, new_name: Callable[[], str], persisted: Persisted) -> RecoveredPart:
        """Go on from a part of a checkpoint, into which a former attempt may still be writing.

        Args:
            folder: folder relative to the base path.
            new_name: makes a name for a new part, if one is needed.
            persisted: result of ``PartOutput.persist``.

        Raises:
            StateRestoreError: bytes that the checkpoint refers to are gone.
        """

    @abstractmethod
    def remove_orphans(self) -> None:
        """Remove parts that former attempts began after the checkpoint that the task goes on from."""

    def prepare(self, make_durable: MakeDurable) -> None:  # noqa: B027 - most have nothing to do
        """Called at a barrier; what parts need besides bytes is durable when ``make_durable`` has done its work."""


class PartCommitter(ABC):
    """Makes the finished parts of a file sink visible under their final names."""

    @abstractmethod
    def commit(self, committables: Sequence[Mapping[str, Any]], *, again: bool) -> list[CommitResult]:
        """Make parts visible; returns one result for each. Idempotent.

        Args:
            committables: results of ``PartOutput.committable``, perhaps of a former attempt.
            again: the committables are restored from a checkpoint, so they may have been committed before, and readers
                may have removed the visible files since then.
        """


class FileSystem(ABC):
    """The files of paths with one scheme. Made from the job's settings without I/O; used by several threads.

    Args:
        settings: settings of the job.

    Raises:
        ConfigurationError: the settings are wrong.

    Attributes:
        remote: calls may wait for a network, so tasks that use it have threads of their own, and files are listed in a
            slot.
    """

    remote: ClassVar[bool] = True

    def __init__(self, settings: Settings) -> None:  # noqa: B027 - most look at them
        ...

    @classmethod
    @abstractmethod
    def path_of(cls, text: str, what: str) -> str:
        """Normalize a path that a user wrote.

        Args:
            text: path with the scheme of this file system.
            what: beginning of errors, which names the source or sink.

        Raises:
            ProgramError: the text is no path of this file system.
        """

    @abstractmethod
    def check(self, path: str, refused: Refused, *, may_match_nothing: bool = False) -> None:
        """Refuse a path that can't be read.

        Args:
            path: a file, folder or pattern (``s3://bucket/2026-*/**/*.csv``).
            refused: called for folders that can't be listed.
            may_match_nothing: files that match a pattern may appear later.

        Raises:
            ProgramError: the path can't be read; the error says why.
            OSError, FileSystemError: the file system does not answer now.
        """

    @abstractmethod
    def find(self, path: str, refused: Refused) -> Iterator[tuple[str, int]]:
        """List all files at or below a path, or that match a pattern, as (path, bytes) in a fixed order.

        Files are left out if their name, or that of a folder above them, begins with ``.`` or ``_``.

        Raises:
            OSError, FileSystemError: the file system does not answer now.
        """

    @abstractmethod
    def size(self, path: str) -> int:
        """Size of a file in bytes.

        Raises:
            OSError, FileSystemError: the file does not exist (``FileNotFoundError``), or can't be looked at.
        """

    @abstractmethod
    def open(self, path: str) -> IO[bytes]:
        """Open a file as a seekable stream, which fetches only what is read, in growing blocks.

        Raises:
            OSError, FileSystemError: the file does not exist (``FileNotFoundError``), or can't be read.
        """

    @abstractmethod
    def writer(self, base_path: str, context: WriterContext) -> RecoverableWriter:
        """Make the writer of part files of a subtask of a sink."""

    @abstractmethod
    def committer(self, context: WriterContext) -> PartCommitter:
        """Make the committer of part files of a subtask of a sink."""

    @abstractmethod
    def remove_temporary(self, path: str) -> None:
        """Remove a temporary file that a writer has registered; no error if it is gone.

        Raises:
            OSError, FileSystemError: the file can't be removed.
        """


class FileSystems:
    """The file systems of a job, each made when it is needed first.

    Args:
        settings: settings of the job.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = Settings() if settings is None else settings
        self._by_scheme: dict[str, FileSystem] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return FileSystems, ()  # settings hold secrets; where it is unpickled, the job's settings are set anew

    def of(self, path: str) -> FileSystem:
        """The file system of a path.

        Raises:
            ConfigurationError: there is none for the scheme, or its settings are wrong.
        """
        scheme = scheme_of(path)
        with self._lock:
            if scheme not in self._by_scheme:
                self._by_scheme[scheme] = load(GROUP, scheme, extra=_extra_of(scheme))(self._settings)
            return self._by_scheme[scheme]


def kind_of(path: str) -> type[FileSystem]:
    """The class of the file system of a path.

    Raises:
        ConfigurationError: there is none for the scheme.
    """
    file_system: type[FileSystem] = load(GROUP, scheme_of(path), extra=_extra_of(scheme_of(path)))
    return file_system


def _extra_of(scheme: str) -> str:
    """The extra that installs the file system of a scheme, if one does: S3 has several schemes."""
    return "s3" if scheme in S3_SCHEMES else scheme


def remote_path(text: str, what: str) -> str | None:
    """The normalized path, if it belongs to another file system than the local one; None if it is local.

    Raises:
        ProgramError: there is no such file system, or the text is no path of it.
    """
    match = _SCHEME.match(text)
    if match is None or match[1].lower() == LOCAL:
        return None
    if match[1].lower() not in known_names(GROUP):
        command = install_command(_extra_of(match[1].lower()))
        if command is not None:
            raise ProgramError(f"{what}: {text!r}: the file system of {match[1]}:// is not installed: {command}")
        known = ", ".join(f"{name}://" for name in sorted(known_names(GROUP)))
        raise ProgramError(
            f"{what}: {text!r}: there is no file system for {match[1]}://; known: {known}. Others come as plug-ins of "
            f"the entry point group {GROUP}"
        )
    try:
        return kind_of(text).path_of(text, what)
    except ConfigurationError as error:
        raise ProgramError(str(error)) from error
