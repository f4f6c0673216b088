"""Files of the local disk, or of a network disk that all hosts have mounted."""

from __future__ import annotations

import logging
import os
import socket
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO, Final

from typing_extensions import override

from firesteel.connectors.file_patterns import is_pattern, matches, root_of
from firesteel.connectors.filesystems.file_system import (
    FileSystem,
    MakeDurable,
    PartCommitter,
    PartOutput,
    Persisted,
    RecoverableWriter,
    RecoveredPart,
    Refused,
)
from firesteel.connectors.hidden_files import HiddenFiles
from firesteel.core.errors import ProgramError, StateRestoreError
from firesteel.core.files import sync_directory
from firesteel.functions.sink import WriterContext
from firesteel.functions.two_phase import ALREADY_COMMITTED, COMMITTED, CommitOutcome, CommitResult

logger = logging.getLogger(__name__)

_COPIED: Final = 1 << 20
"""Bytes that are copied at once."""


class LocalFileSystem(FileSystem):
    """The local disk. Paths are absolute."""

    remote = False

    @classmethod
    @override
    def path_of(cls, text: str, what: str) -> str:
        return str(Path(text).absolute())

    # -- reading

    def check(self, path: str, refused: Refused, *, may_match_nothing: bool = False) -> None:
        """Refuse a path that does not exist on this host, or can't be read.

        Of a pattern the folder before the first wildcard has to exist.
        """
        if not is_pattern(path):
            _check(path)
            return
        _check(root_of(path), f" (of {path!r})")
        if not may_match_nothing and next(matches(path, refused), None) is None:
            raise ProgramError(f"file source: nothing matches {path!r} on {socket.gethostname()}")

    def find(self, path: str, refused: Refused) -> Iterator[tuple[str, int]]:
        """List files. Links are followed; each folder below a path is read once, however many links lead to it."""
        for match in matches(path, refused) if is_pattern(path) else (path,):
            if os.path.isdir(match):
                for folder, names in _folders(match, refused):
                    for name in sorted(names):
                        if not name.startswith((".", "_")):
                            yield from _file(os.path.join(folder, name))
            else:
                yield from _file(match)

    @override
    def size(self, path: str) -> int:
        return os.path.getsize(path)

    @override
    def open(self, path: str) -> IO[bytes]:
        return open(path, "rb")

    # -- writing

    def writer(self, base_path: str, context: WriterContext) -> RecoverableWriter:
        """Make a writer of hidden files beside the visible ones."""
        return _LocalWriter(Path(base_path), context)

    @override
    def committer(self, context: WriterContext) -> PartCommitter:
        return LocalCommitter(context)

    @override
    def remove_temporary(self, path: str) -> None:
        Path(path).unlink(missing_ok=True)


def unreadable_path(path: str) -> ProgramError:
    """Error for a path that this process may not read."""
    return ProgramError(f"file source: {path!r} can't be read on {socket.gethostname()}: permission denied")


def _check(path: str, context: str = "") -> None:
    if not os.path.exists(path):
        raise ProgramError(f"file source: {path!r}{context} does not exist on {socket.gethostname()}")
    if not os.access(path, os.R_OK):
        raise unreadable_path(path)


def _folders(path: str, refused: Refused) -> Iterator[tuple[str, list[str]]]:
    """Folders and the names in them. Linked folders come last, so that links change no paths of other folders."""
    visited: set[tuple[int, int]] = set()
    tops = deque([path])
    while tops:
        for folder, folders, names in os.walk(tops.popleft(), onerror=refused):
            try:
                status = os.stat(folder)
            except FileNotFoundError:
                continue
            shown = sorted(name for name in folders if not name.startswith((".", "_")))
            folders.clear()
            if (status.st_dev, status.st_ino) in visited:
                continue
            visited.add((status.st_dev, status.st_ino))
            for name in shown:
                full = os.path.join(folder, name)
                if os.path.islink(full):
                    tops.append(full)
                else:
                    folders.append(name)
            yield folder, names


def _file(path: str) -> Iterator[tuple[str, int]]:
    try:
        status = os.stat(path)
    except FileNotFoundError:  # it was removed in the meantime
        return
    if stat.S_ISREG(status.st_mode):
        yield path, status.st_size


# -- writing


class FileSync:
    """Syncs a file by a descriptor of its own, because the file may be closed by then.

    The descriptor is closed with this object: a task that fails forgets what had to be made durable.
    """

    def __init__(self, stream: BinaryIO, path: str) -> None:
        self._descriptor, self._path = os.dup(stream.fileno()), path

    def __call__(self) -> None:
        """Sync the file; blocks.

        Raises:
            OSError: what was written may be lost; the message names the file.
        """
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise OSError(error.errno, f"{error.strerror}: what was written may be lost", self._path) from error
        finally:
            self._close()

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    __del__ = _close


def sync_folders(folders: Iterable[Path]) -> None:
    """Make names in folders durable; folders that do not exist or may not be read are left out."""
    for folder in folders:
        try:
            sync_directory(folder)
        except (FileNotFoundError, PermissionError):
            continue
        except OSError as error:
            raise OSError(error.errno, f"{error.strerror}: names in it may be lost", str(folder)) from error


class LocalOutput(PartOutput):
    """A part that is a hidden file until it is committed.

    Args:
        hidden, visible: path of the file before and after the commit; there is no file at ``hidden`` yet.
        context: registers the hidden file as a temporary file; None = the file is not registered.
        replaces: paths of files that are removed when this one is visible.
    """

    def __init__(
        self, hidden: Path, visible: Path, context: WriterContext | None = None, replaces: tuple[str, ...] = ()
    ) -> None:
        self.stream: BinaryIO = open(hidden, "xb")  # noqa: SIM115 - closed by close(), discard() or abort()
        self.path = str(visible)
        self._hidden, self._context, self._replaces = hidden, context, replaces

    def copy(self, path: Path, size: int) -> None:
        """Begin with so many bytes of another file.

        Raises:
            StateRestoreError: the other file is shorter.
        """
        remaining = size
        with open(path, "rb") as stream:
            while remaining and (data := stream.read(min(remaining, _COPIED))):
                remaining -= self.stream.write(data)
        if remaining:
            raise StateRestoreError(f"file sink: {path} is shorter than {size} bytes")

    def _sync(self, make_durable: MakeDurable) -> None:
        self.stream.flush()
        make_durable(FileSync(self.stream, str(self._hidden)))

    def persist(self, make_durable: MakeDurable) -> Persisted:
        """Sync the file; returns its paths and size."""
        self._sync(make_durable)
        plain = {"hidden": str(self._hidden), "visible": self.path, "size": self.stream.tell()}
        return Persisted(plain | ({"former": self._replaces} if self._replaces else {}))

    def close(self, make_durable: MakeDurable) -> None:
        """Sync and close the file."""
        self._sync(make_durable)
        self.stream.close()

    def committable(self) -> dict[str, Any]:
        """Both paths, and the files to remove when the part is visible."""
        plain: dict[str, Any] = {"from": str(self._hidden), "to": self.path, "size": self._hidden.stat().st_size}
        return plain | ({"remove": self._replaces} if self._replaces else {})

    def keep(self) -> None:
        """Leave the file to the checkpoints of the job, which remove it when they do not need it."""
        if not self.kept and self._context is not None:
            self._context.keep_temporary_file(str(self._hidden))
        self.kept = True

    def discard(self) -> None:
        """Close the file, which stays hidden."""
        self.stream.close()

    def abort(self) -> None:
        """Close and remove the file."""
        self.stream.close()
        self._hidden.unlink(missing_ok=True)
        if self._context is not None:
            self._context.forget_temporary_file(str(self._hidden))


class _LocalWriter(RecoverableWriter):
    def __init__(self, base_path: Path, context: WriterContext) -> None:
        self._base_path, self._context = base_path, context
        self._hidden = HiddenFiles(context)
        self._begun_in: set[Path] = set()
        """Folders with new names that are not synced yet."""

    def begin(self, folder: str, name: str) -> PartOutput:
        return self._begin(self._base_path / folder, name, ())

    def _begin(self, folder: Path, name: str, replaces: tuple[str, ...]) -> LocalOutput:
        output = LocalOutput(self._hidden.begin(folder, name), folder / name, self._context, replaces)
        self._begun_in |= {folder, *(parent for parent in folder.parents if parent.is_relative_to(self._base_path))}
        return output

    def recover(self, folder: str, new_name: Callable[[], str], persisted: Persisted) -> RecoveredPart:
        """Begin a part with a copy of what the checkpoint has of the former part.

        The former part is left as it is until the new one is visible, because the attempt before may still be alive,
        and write into its file.
        """
        plain = persisted.plain
        hidden, visible, size = Path(plain["hidden"]), Path(plain["visible"]), int(plain["size"])
        if not hidden.exists() or hidden.stat().st_size < size:
            raise StateRestoreError(
                f"file sink: {hidden}, of which the checkpoint needs {size} bytes, is missing or too short"
            )
        self._hidden.keep_restored(hidden)
        foreign_paths = self._hidden.remove_own(plain.get("former", ()))
        output = self._begin(visible.parent, visible.name, (str(hidden), *foreign_paths))
        try:
            output.copy(hidden, size)
        except BaseException:
            output.abort()
            raise
        return RecoveredPart(output)

    def remove_orphans(self) -> None:
        self._hidden.remove_orphans(self._base_path)

    def prepare(self, make_durable: MakeDurable) -> None:
        if self._begun_in:
            make_durable(partial(sync_folders, frozenset(self._begun_in)))
            self._begun_in.clear()


class LocalCommitter(PartCommitter):
    """Renames parts to their visible names, then removes the files that they replace.

    A committable has ``from`` and ``to``; ``size``, if it is known; and ``remove``, paths of files whose records the
    part holds: parts that were joined, or that it goes on from. Renaming is atomic, and these files exist until the
    part is visible.

    Args:
        context: context of the subtask.
    """

    def __init__(self, context: WriterContext) -> None:
        self._context = context

    @override
    def commit(self, committables: Sequence[Mapping[str, Any]], *, again: bool) -> list[CommitResult]:
        renamed: set[Path] = set()
        results = [self._commit(plain, renamed, again=again) for plain in committables]
        if renamed:
            self._context.make_durable(partial(sync_folders, renamed))
        return results

    def _commit(self, plain: Mapping[str, Any], renamed: set[Path], *, again: bool) -> CommitResult:
        hidden, visible, size = plain["from"], plain["to"], plain.get("size", 0)
        try:
            if os.stat(hidden).st_size < size:
                return CommitResult(CommitOutcome.FAILED, f"part file {hidden} is shorter than {size} bytes")
            os.replace(hidden, visible)
        except FileNotFoundError:
            result = ALREADY_COMMITTED
            if not os.path.exists(visible):
                if not again:
                    return CommitResult(CommitOutcome.FAILED, f"part file {hidden} has vanished")
                logger.warning(
                    "part file %s is gone, and %s is hidden no more: it was committed before the restart, and somebody "
                    "has taken it away",
                    visible, hidden,
                )  # fmt: skip
        except OSError as error:
            return CommitResult(CommitOutcome.UNKNOWN, f"{hidden} could not be renamed: {error}")
        else:
            result = COMMITTED
        renamed.add(Path(visible).parent)
        self._context.forget_temporary_file(hidden)
        try:
            for path in plain.get("remove", ()):
                Path(path).unlink(missing_ok=True)
                self._context.forget_temporary_file(path)
        except OSError as error:
            return CommitResult(CommitOutcome.UNKNOWN, f"{error.filename} could not be removed: {error.strerror}")
        return result
