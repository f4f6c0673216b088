"""The contract of file systems, and which one a path is of.

A path with a scheme (``s3://bucket/key``) is of the file system that is registered under the scheme: ``s3`` is
built in, others come by the entry point group ``firesteel.file_systems``. A path without one, or with ``file:``, is of
the local disk. A file system is made from the settings of the job where files are read or written: in slots, and in
TaskManagers for what slots leave behind. Only local files are looked at by coordinators.

Sinks write by a *recoverable writer*, as in Flink: a part that is being written can be kept in a checkpoint and gone on
with by another attempt, and what is finished is shown by a committer, which may be asked for the same several times.
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
"""See ``WriterContext.make_durable``."""


def scheme_of(path: str) -> str:
    """The scheme of a path as sources and sinks keep it; ``file`` if it has none."""
    match = _SCHEME.match(path)
    return LOCAL if match is None else match[1].lower()


@dataclass(frozen=True)
class Persisted:
    """What a checkpoint has of a part that is not finished.

    Attributes:
        plain: what a writer of the same file system needs to go on with it, JSON-able; with the path of the part as
            ``uri``, by which a sink finds that file system.
        tail: bytes behind what the file system has already.
    """

    plain: dict[str, Any]
    tail: bytes = b""


@dataclass(frozen=True)
class RecoveredPart:
    """What goes on from a part of a checkpoint.

    Attributes:
        output: begins with what the checkpoint has of the part, as far as ``committable`` has not; None = with nothing.
        committable: what is finished of it by that.
    """

    output: PartOutput | None
    committable: dict[str, Any] | None = None


class PartOutput(ABC):
    """A part file that is being written; nobody sees it yet.

    Attributes:
        stream: takes its bytes. A checkpoint may be taken between two calls of ``write``, and the part may have to end
            there: so each call holds whole records, of formats that are appended to.
        path: that it will have.
        kept: a checkpoint may need it: it is not removed here any more.
    """

    stream: IO[bytes]
    path: str
    kept = False

    @abstractmethod
    def persist(self, make_durable: MakeDurable) -> Persisted:
        """What was written so far is durable when ``make_durable`` has done its work."""

    @abstractmethod
    def close(self, make_durable: MakeDurable) -> None:
        """No more comes: all is durable when ``make_durable`` has done its work."""

    @abstractmethod
    def committable(self) -> dict[str, Any] | None:
        """What a committer needs to show the file, JSON-able; None = there is nothing to show. Behind ``close``.

        It has the path of the part as ``uri``.
        """

    @abstractmethod
    def keep(self) -> None:
        """The checkpoint whose barrier is here speaks of it."""

    @abstractmethod
    def discard(self) -> None:
        """Release what is open; what was written stays, for a checkpoint may need it."""

    @abstractmethod
    def abort(self) -> None:
        """Remove it. Idempotent; where that is not possible for now, whoever follows does it."""


class RecoverableWriter(ABC):
    """Makes the part files of one subtask of a sink, below one path."""

    @abstractmethod
    def begin(self, folder: str, name: str) -> PartOutput:
        """A new part.

        Args:
            folder: relative to the base path; empty = the base path itself.
            name: that nobody else gives.
        """

    @abstractmethod
    def recover(self, folder: str, new_name: Callable[[], str], persisted: Persisted) -> RecoveredPart:
        """Go on from a part of a checkpoint, into which a former attempt may still be writing.

        Args:
            folder: as of ``begin``.
            new_name: a name for a new part, if one is needed.
            persisted: what ``PartOutput.persist`` gave.

        Raises:
            StateRestoreError: what the checkpoint needs is gone.
        """

    @abstractmethod
    def remove_orphans(self) -> None:
        """Remove what former attempts began behind the checkpoint that the task goes on from."""

    def prepare(self, make_durable: MakeDurable) -> None:  # noqa: B027 - most have nothing to do
        """A barrier is here: what parts need beside their bytes is durable when ``make_durable`` has done its work."""


class PartCommitter(ABC):
    """Makes the finished parts of a file sink visible under their final names."""

    @abstractmethod
    def commit(self, committables: Sequence[Mapping[str, Any]], *, again: bool) -> list[CommitResult]:
        """Show parts; one answer for each.

        Args:
            committables: what ``PartOutput.committable`` gave, perhaps in a former attempt. Idempotent.
            again: they are out of the checkpoint that the task goes on from: whoever reads visible files may have taken
                them away since they were committed.
        """


class FileSystem(ABC):
    """Files of one kind of paths. Made of the job's settings, without I/O; used by several threads.

    Args:
        settings: of the job.

    Raises:
        ConfigurationError: the settings are wrong.

    Attributes:
        remote: what it does may wait for a network: tasks that use it have threads of their own, and listing is done
            in a slot.
    """

    remote: ClassVar[bool] = True

    def __init__(self, settings: Settings) -> None:  # noqa: B027 - most look at them
        ...

    @classmethod
    @abstractmethod
    def path_of(cls, text: str, what: str) -> str:
        """The path as it is kept, of one with this scheme that a user wrote.

        Args:
            text: the user's.
            what: named in errors.

        Raises:
            ProgramError: it is none.
        """

    @abstractmethod
    def check(self, path: str, refused: Refused, *, may_match_nothing: bool = False) -> None:
        """Refuse a path that can't be read.

        Args:
            path: a file, folder or pattern (``s3://bucket/2026-*/**/*.csv``).
            refused: see there.
            may_match_nothing: files that a pattern means may come later.

        Raises:
            ProgramError: names the path and what is wrong with it.
            OSError, FileSystemError: it can't be told for now.
        """

    @abstractmethod
    def find(self, path: str, refused: Refused) -> Iterator[tuple[str, int]]:
        """(path, bytes) of all files at or below a path, or that a pattern means, in a fixed order.

        Those with a name, or below a folder with a name, that begins with ``.`` or ``_`` are left out.

        Raises:
            OSError, FileSystemError: it can't be told for now.
        """

    @abstractmethod
    def size(self, path: str) -> int:
        """Bytes of a file.

        Raises:
            OSError, FileSystemError: it is not there (``FileNotFoundError``), or can't be looked at.
        """

    @abstractmethod
    def open(self, path: str) -> IO[bytes]:
        """A stream over a file that can be sought: only what is read is fetched, in growing blocks.

        Raises:
            OSError, FileSystemError: it is not there (``FileNotFoundError``), or can't be read.
        """

    @abstractmethod
    def writer(self, base_path: str, context: WriterContext) -> RecoverableWriter:
        """Makes the part files of a subtask of a sink."""

    @abstractmethod
    def committer(self, context: WriterContext) -> PartCommitter:
        """Shows the part files of sinks."""

    @abstractmethod
    def remove_temporary(self, path: str) -> None:
        """Remove what a writer has registered as a temporary file; no error if it is gone.

        Raises:
            OSError, FileSystemError: it can't be done.
        """


class FileSystems:
    """The file systems that a job's settings give, each made when it is needed first.

    Args:
        settings: of the job.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = Settings() if settings is None else settings
        self._made: dict[str, FileSystem] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return FileSystems, ()  # settings are those of where it is used, and hold secrets

    def of(self, path: str) -> FileSystem:
        """The one that a path is of.

        Raises:
            ConfigurationError: there is none for its scheme, or its settings are wrong.
        """
        scheme = scheme_of(path)
        with self._lock:
            if scheme not in self._made:
                self._made[scheme] = load(GROUP, scheme, extra=_extra_of(scheme))(self._settings)
            return self._made[scheme]


def kind_of(path: str) -> type[FileSystem]:
    """The class of the file system that a path is of.

    Raises:
        ConfigurationError: there is none for its scheme.
    """
    file_system: type[FileSystem] = load(GROUP, scheme_of(path), extra=_extra_of(scheme_of(path)))
    return file_system


def _extra_of(scheme: str) -> str:
    """The extra that installs the file system of a scheme, if one does: S3 has several schemes."""
    return "s3" if scheme in S3_SCHEMES else scheme


def remote_path(text: str, what: str) -> str | None:
    """The path as it is kept, if its scheme is that of a file system other than the local one; None = it is local.

    Raises:
        ProgramError: there is no such file system, or it is no path of it.
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
