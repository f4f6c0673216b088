"""The few file operations that the store is made of; tests put failing ones in their place."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from firesteel.core.files import make_private_directory, sync_directory


class Disk:
    """A file system.

    Args:
        durable: what was written survives the loss of power once ``sync`` has returned; else ``sync`` does nothing,
            which is enough for files that need not outlive their process.
    """

    def __init__(self, durable: bool = True) -> None:
        self.durable = durable

    def make_directory(self, path: Path) -> None:
        """See ``make_private_directory``."""
        make_private_directory(path)

    def write(self, path: Path, content: bytes) -> None:
        """A file of mode 0600, or new content of one that nobody reads; not safe before ``sync``."""
        # Cut to its length at the end, not to nothing before: ext4 flushes files that are closed after the latter.
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
        """Atomically, over an existing file; not safe before ``sync`` of the directories."""
        os.rename(source, target)

    def remove_tree(self, path: Path) -> None:
        """A file, or a directory with all it holds; nothing there is fine."""
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
