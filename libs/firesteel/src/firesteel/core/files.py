"""Files that are replaced as a whole: who reads one finds the old content or the new one, also after a crash."""

from __future__ import annotations

import errno
import os
import re
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Final

MAY_PASS: Final = frozenset({
    errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE,
    errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.EREMOTEIO,
})  # fmt: skip
"""What a disk says that is full, or away, for a while: a coordinator waits for it, and does not end. The second line is
of file systems over the network: NFS mounted ``softerr``, and FUSE whose process has died."""
ABANDONED_AFTER: Final = 86_400.0
"""Seconds without a change after which a draft is nobody's. Writing one takes seconds; hosts' clocks may differ."""
_DRAFT: Final = re.compile(r"\.(.+)\.[0-9a-f]{32}")
"""Name of a draft of ``replace_file``; the group is the name of the file."""
_NOT_FOR_DIRECTORIES: Final = (errno.EINVAL, errno.EBADF, errno.ENOTSUP)
"""What file systems answer that can't sync a directory, and need not."""


def replace_file(
    path: Path, content: bytes, *, mode: int = 0o600, durable: bool = True, drafts: Path | None = None
) -> None:
    """Write a file atomically, over what was there.

    Args:
        path: of the file; its directory is there.
        content: all of it.
        mode: of the file; the umask applies.
        durable: whether it has to outlive the loss of power once this returns; else it outlives this process only.
        drafts: a directory of the same file system, where it is written before it is renamed; None = beside it.

    Raises:
        OSError: it could not be written, or is not safe; nothing else is left in the directory.
    """
    part = (path.parent if drafts is None else drafts) / f".{path.name}.{uuid.uuid4().hex}"
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise
    if durable:
        sync_directory(path.parent)


def remove_abandoned_drafts(directory: Path, names: re.Pattern[str]) -> None:
    """Remove what ``replace_file`` has left beside files when its process or its host died; blocks, and never raises.

    Others may write there at this moment, on other hosts as well: nobody can tell whether they live. So a draft is
    removed when nobody has written to it for a day, by the file's own time.

    Args:
        directory: where the files are; it may be missing.
        names: of files that nobody but this program writes there. Drafts of others stay.
    """
    oldest = time.time() - ABANDONED_AFTER
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            draft = _DRAFT.fullmatch(entry.name)
            if draft is None or names.fullmatch(draft[1]) is None:
                continue
            with suppress(OSError):  # somebody else removes it, or it may not be removed
                if entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_mtime < oldest:
                    os.unlink(entry.path)


def make_private_directory(path: Path) -> None:
    """Make a directory, and what is missing above it, of mode 0700; it may exist.

    Raises:
        OSError: it can't be made.
    """
    if not path.parent.exists():
        make_private_directory(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)


def sync_directory(path: Path) -> None:
    """Make the names in a directory outlive the loss of power, where the file system offers that.

    Raises:
        OSError: they may be lost.
    """
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NOT_FOR_DIRECTORIES:
            raise
    finally:
        os.close(handle)
