"""Run directories: a private place for sockets, logs and scratch files that goes away with its owner.

Each one lies under a common root and is named ``<pid>-<start time>-<n>`` (hexadecimal) after the process that owns it.
A process that ends in order removes its own; whoever creates the next one removes those of owners that were killed.
A directory counts as abandoned when no process with that pid and start time runs and nobody holds the lock on it
(the lock protects an owner in another pid namespace, and keeps age-based cleaners of ``/tmp`` away).
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from firesteel.core.errors import RunDirectoryError
from firesteel.core.process import identify, myself

if sys.platform != "win32":
    import fcntl

logger = logging.getLogger(__name__)

SOCKET_PATH_LIMIT = 107 if sys.platform.startswith("linux") else 103
"""Longest path of a Unix socket, in bytes (``sun_path`` without its final zero)."""
_ROOM_FOR_SOCKETS = 48
"""Bytes that a run directory leaves for what is below it: a folder with a short name and Spark's ``.<uuid>.sock``."""

_SEPARATOR = re.compile(r"[,\x00-\x1f\x7f]")
_NAME = re.compile(r"([0-9a-f]+)-([0-9a-f]+)-([0-9]+)")
_counter = itertools.count()


class RunDirectory:
    """A directory of mode 0700 owned by this process; made by `create`."""

    def __init__(self, path: Path, lock: int, root_lock: int) -> None:
        self._path, self._lock, self._root_lock, self._owner = path, lock, root_lock, os.getpid()

    @classmethod
    def create(cls, root: str | os.PathLike[str] | None = None) -> RunDirectory:
        """Make a new run directory and remove those of dead owners under the same root.

        Safe with several processes at once.

        Args:
            root: where run directories lie; by default ``firesteel-<uid>`` in the directory for temporary files.

        Raises:
            RunDirectoryError: the root belongs to somebody else, can't be made, or is too long for socket paths.
        """
        if sys.platform == "win32":
            raise RunDirectoryError("Run directories need Unix sockets and file locks; Windows has no slots.")
        base = Path(root).absolute() if root is not None else default_root()
        refuse_separators(base)
        _claim_root(base)
        me = myself()
        path = base / f"{me.pid:x}-{me.start:x}-{next(_counter)}"
        length = len(os.fsencode(path)) + _ROOM_FOR_SOCKETS
        if length > SOCKET_PATH_LIMIT:
            raise RunDirectoryError(
                f"The path {path} is too long by {length - SOCKET_PATH_LIMIT} bytes: socket files below it may have "
                f"{SOCKET_PATH_LIMIT} bytes at most; choose a shorter directory (TMPDIR, if it is the default one)."
            )
        try:
            with _root_lock(base):
                _remove_abandoned(base)
                path.mkdir(mode=0o700)
                handle = hold(path)
                # The root has files of its own, as of clusters that run, which no cleaner of /tmp may take either.
                root_handle = hold(base)
        except OSError as error:
            raise RunDirectoryError(f"Can't make a run directory in {base}: {error.strerror or error}.") from error
        return cls(path, handle, root_handle)

    @property
    def path(self) -> Path:
        return self._path

    def subdir(self, name: str) -> Path:
        """The sub-directory of that name, mode 0700; made if missing."""
        path = self._path / name
        path.mkdir(mode=0o700, exist_ok=True)
        return path

    def socket_path(self, name: str) -> Path:
        """A path for a Unix socket in this directory (``name`` may hold a sub-directory).

        Raises:
            RunDirectoryError: it is longer than the system allows.
        """
        path = self._path / name
        length = len(os.fsencode(path))
        if length > SOCKET_PATH_LIMIT:
            raise RunDirectoryError(
                f"The socket path {path} has {length} bytes, {SOCKET_PATH_LIMIT} are allowed; choose a shorter name."
            )
        return path

    def remove(self) -> None:
        """Remove the directory with all it holds, unless another process holds a lock on it, as one that outlives its
        owner and logs there does. May be called twice; does nothing in a forked child.
        """
        if os.getpid() != self._owner or self._lock < 0:
            return
        if self._is_used_by_others():  # whoever creates the next one after their end removes it
            logger.info("%s stays: processes that go on use it", self._path)
        else:
            shutil.rmtree(self._path, ignore_errors=True)
            if self._path.exists():  # something was still writing; whoever creates the next one tries again
                logger.warning("could not remove all of %s", self._path)
        os.close(self._lock)
        os.close(self._root_lock)
        self._lock = self._root_lock = -1

    def _is_used_by_others(self) -> bool:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        return False


def private_directory(path: Path | None, name: str = "") -> Path:
    """A directory of mode 0700 of this user, made if it is missing; nobody removes it.

    Args:
        path: where; None = ``name`` beside the run directories in the directory for temporary files.
        name: used if no path is given.

    Raises:
        RunDirectoryError: it can't be made, or is somebody else's.
    """
    if path is None:
        root = default_root()
        _claim_root(root)
        path = root / name
    path = path.absolute()
    refuse_separators(path)
    _claim_root(path)
    return path


def refuse_separators(path: Path) -> None:
    """Refuse a path that Spark would split into several.

    Raises:
        RunDirectoryError: it holds a comma (Spark's local directories are a list) or a control character.
    """
    bad = _SEPARATOR.search(str(path))
    if bad is not None:
        character = "a comma" if bad[0] == "," else f"the character {bad[0]!r}"
        raise RunDirectoryError(f"The directory {str(path)!r} has {character} in its name; choose another one.")


def default_root() -> Path:
    """``firesteel-<uid>`` in the temporary directory.

    It lies in /tmp where that one can't be used: its name is too long (as on macOS), or Spark would split it.

    Raises:
        RunDirectoryError: nobody may write into any directory for temporary files.
    """
    name = f"firesteel-{os.geteuid()}"
    longest_child = 1 + 8 + 1 + 16 + 1 + 4
    try:
        temporary = tempfile.gettempdir()
    except OSError as error:  # it names all that were tried
        raise RunDirectoryError(
            f"{error.strerror}; set TMPDIR to a directory that this user may write into."
        ) from error
    for parent in (temporary, "/tmp"):
        root = Path(parent).absolute() / name
        if (
            not _SEPARATOR.search(str(root))
            and len(os.fsencode(root)) + longest_child + _ROOM_FOR_SOCKETS <= SOCKET_PATH_LIMIT
            and root.parent.is_dir()
        ):
            return root
    return Path(temporary).absolute() / name


def _claim_root(root: Path) -> None:
    """Make the root, or check that the existing one is a directory of ours that nobody else can enter."""
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = root.lstat()
    except OSError as error:
        raise RunDirectoryError(f"Can't make the directory {root}: {error.strerror or error}.") from error
    if not stat.S_ISDIR(status.st_mode):
        raise RunDirectoryError(f"{root} is not a directory (or is a link to one); remove it or choose another one.")
    if status.st_uid != os.geteuid():
        raise RunDirectoryError(
            f"The directory {root} belongs to user {status.st_uid}, not to {os.geteuid()}; remove it or choose another."
        )
    if status.st_mode & 0o077:
        root.chmod(0o700)


@contextmanager
def _root_lock(root: Path) -> Iterator[None]:
    """Hold the lock of the root; the kernel releases it when the file is closed, or the process dies."""
    handle = os.open(root / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def remove_abandoned(root: str | os.PathLike[str] | None, patience: float) -> None:
    """Remove the run directories of dead owners.

    Args:
        root: where they lie; see ``RunDirectory.create``.
        patience: seconds to wait for processes that outlived the owners, and are just ending.

    Raises:
        RunDirectoryError: the root belongs to somebody else or can't be made.
    """
    base = Path(root).absolute() if root is not None else default_root()
    _claim_root(base)
    deadline = time.monotonic() + patience
    while True:
        with _root_lock(base):
            in_use = _remove_abandoned(base)
        if not in_use or time.monotonic() >= deadline:
            return
        time.sleep(0.05)


def _remove_abandoned(root: Path) -> list[Path]:
    """Remove run directories without an owner; those that another process uses stay, and are returned."""
    in_use = []
    for entry in root.iterdir():
        match = _NAME.fullmatch(entry.name)
        if match is None or entry.is_symlink() or not _is_gone(int(match[1], 16), int(match[2], 16)):
            continue
        if is_held(entry):
            in_use.append(entry)
        else:
            logger.info("removing %s, whose owner is gone", entry)
            shutil.rmtree(entry, ignore_errors=True)
    return in_use


def _is_gone(pid: int, start: int) -> bool:
    owner = identify(pid)
    return owner is None or owner.start != start


def hold(path: Path) -> int:
    """Mark a directory as in use, by a lock that lasts while this process lives and the returned file is open.

    Raises:
        OSError: it is not there.
    """
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(handle, fcntl.LOCK_SH)
    return handle


def is_held(path: Path) -> bool:
    """Whether a live process has marked the directory as in use (``hold``)."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:  # it is being removed, or is nothing that this user may look at
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(handle)
