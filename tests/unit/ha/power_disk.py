"""A disk that loses power: what was not synced is gone afterwards, as the rules of file systems allow."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from firesteel.ha.disk import Disk


class PowerCut(BaseException):  # nothing that code may catch
    """The machine is off."""


@dataclass
class _Created:
    folder: int
    file: int


@dataclass
class _Renamed:
    folder: int
    moved: int
    source_folder: int
    source_name: str
    target_name: str
    overwritten: bytes | None


class PowerDisk(Disk):
    """Counts operations and fails at one of them.

    Args:
        root: everything happens below it.
        fail_at: number of the operation, from 1; 0 = none.
        error: None = the power goes; else an ``OSError`` with this number is raised once.
    """

    def __init__(self, root: Path, fail_at: int = 0, error: int | None = None) -> None:
        super().__init__(durable=True)
        self._root, self._fail_at, self._error = root, fail_at, error
        self._journal: list[_Created | _Renamed] = []
        self._unsynced: set[int] = set()
        self.operations = 0

    def _operation(self) -> None:
        self.operations += 1
        if self.operations == self._fail_at:
            if self._error is None:
                raise PowerCut
            raise OSError(self._error, os.strerror(self._error))

    def write(self, path: Path, content: bytes) -> None:
        self._operation()
        is_new = not path.exists()
        if self._error == errno.ENOSPC and self.operations + 1 == self._fail_at:
            content = content[: len(content) // 2]  # a full disk takes a part, and then fails at the sync
        super().write(path, content)
        self._unsynced.add(_inode(path))
        if is_new:
            self._journal.append(_Created(_inode(path.parent), _inode(path)))

    def sync(self, path: Path) -> None:
        self._operation()
        number = _inode(path)
        self._unsynced.discard(number)
        here = {_inode(entry) for entry in path.iterdir()} if path.is_dir() else set()
        self._journal = [  # a file that was created elsewhere and renamed to here is safe by its name here
            entry
            for entry in self._journal
            if entry.folder != number and not (isinstance(entry, _Created) and entry.file in here)
        ]

    def rename(self, source: Path, target: Path) -> None:
        self._operation()
        moved, overwritten = _inode(source), target.read_bytes() if target.is_file() else None
        source_folder = _inode(source.parent)
        super().rename(source, target)
        self._journal.append(
            _Renamed(_inode(target.parent), moved, source_folder, source.name, target.name, overwritten)
        )

    def remove_tree(self, path: Path) -> None:
        self._operation()
        gone = {_inode(found) for found in (path, *path.rglob("*")) if found.exists()}
        super().remove_tree(path)
        self._unsynced -= gone  # their numbers will be given to other files
        self._journal = [
            e
            for e in self._journal
            if (e.file if isinstance(e, _Created) else e.moved) not in gone and e.folder not in gone
        ]

    def lose(self) -> None:
        """What was not synced is gone."""
        for entry in reversed(self._journal):
            paths = self._paths()
            if isinstance(entry, _Created):
                if entry.file in paths:
                    paths[entry.file].unlink()
            elif entry.moved in paths and entry.source_folder in paths:
                os.rename(paths[entry.moved], paths[entry.source_folder] / entry.source_name)
                if entry.overwritten is not None and entry.folder in paths:
                    (paths[entry.folder] / entry.target_name).write_bytes(entry.overwritten)
        paths = self._paths()
        for number in self._unsynced & paths.keys():
            if paths[number].is_file():
                os.truncate(paths[number], 0)

    def _paths(self) -> dict[int, Path]:
        return {_inode(path): path for path in (self._root, *self._root.rglob("*"))}


def _inode(path: Path) -> int:
    return path.stat().st_ino
