"""The file operations of the stores in one class, so that tests can let them fail."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from firesteel.core.files import make_private_directory, sync_directory


class Disk:
    """A file system.

    Args:
        durable: written files survive a loss of power once ``sync`` has returned; else ``sync`` does nothing, which is
            enough for files that need not outlive their process.
    """

    def __init__(self, durable: bool = True) -> None:
        self.durable = durable

    def make_directory(self, path: Path) -> None:
        """Create a directory with its parents, private to the user."""
        make_private_directory(path)

    def write(self, path: Path, content: bytes) -> None:
        """Write a file of mode 0600, new or not read by anybody; it is safe only after ``sync``."""
        # Truncated at the end, not at the beginning: ext4 flushes files on close that were truncated to nothing.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.truncate()

    def sync(self, path: Path) -> None:
        """Make the content of a file, or the names in a directory, safe."""
        if not self.durable:
            return
        if path.is_dir():
            sync_directory(path)
            return
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def rename(self, source: Path, target: Path) -> None:
        """Rename atomically, over an existing file; safe only after ``sync`` of the directories."""
        os.rename(source, target)

    def remove_tree(self, path: Path) -> None:
        """Remove a file, or a directory with its contents, if it exists."""
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
