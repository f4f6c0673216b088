"""Blobs of jobs: files that are named by the SHA-256 of their content."""

from __future__ import annotations

import hashlib
from pathlib import Path

from firesteel.core.errors import FiresteelError


class DamagedBlobError(FiresteelError):
    """A blob's content does not have the SHA-256 of its name; it must not be used."""


class BlobIndex:
    """Finds blobs by name, in the folders of the jobs that need them.

    A blob that several jobs have can be read as long as one of them exists. Its content is compared with the name when
    it is read for the first time, and again when the file has changed since.
    """

    def __init__(self) -> None:
        self._paths: dict[str, tuple[Path, ...]] = {}
        self._checked: dict[Path, tuple[int, int, int]] = {}

    def add(self, folder: Path) -> None:
        """Make the files of a folder readable."""
        for path in folder.iterdir():
            self._paths[path.name] = (*self._paths.get(path.name, ()), path)

    def remove(self, folder: Path) -> None:
        """Forget the files of a folder, which are about to be removed."""
        remaining = {name: tuple(p for p in paths if folder not in p.parents) for name, paths in self._paths.items()}
        self._paths = {name: paths for name, paths in remaining.items() if paths}
        self._checked = {path: stamp for path, stamp in self._checked.items() if folder not in path.parents}

    def find(self, name: str) -> Path | None:
        """File with this content; None = there is no blob of this name.

        Raises:
            DamagedBlobError: all files of this name have other content, or can't be read.
        """
        faults = []
        for path in self._paths.get(name, ()):
            fault = self._fault(path, name)
            if fault is None:
                return path
            faults.append(fault)
        if faults:
            raise DamagedBlobError(f"the blob {name} is damaged: {'; '.join(faults)}. Submit its job again")
        return None

    def _fault(self, path: Path, name: str) -> str | None:
        try:
            status = path.stat()
            stamp = status.st_ino, status.st_size, status.st_mtime_ns
            if self._checked.get(path) == stamp:
                return None
            digest = sha256_of(path)
        except OSError as error:
            return f"{path} can't be read: {error.strerror or error}"
        if digest != name:
            return f"the content of {path} has the SHA-256 {digest}"
        self._checked[path] = stamp
        return None


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content, as hexadecimal digits.

    Raises:
        OSError: it can't be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
