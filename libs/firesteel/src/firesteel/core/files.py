"""Files that are replaced as a whole: who reads one finds the old content or the new one, also after a crash."""

from __future__ import annotations

import errno
import os
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
