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
        cut_at: number of the operation at which the power goes, from 1; 0 = none.
    """

    def __init__(self, root: Path, cut_at: int = 0) -> None:
        super().__init__(durable=True)
        self._root, self._fail_at = root, cut_at
        self._error: int | None = None
        self._journal: list[_Created | _Renamed] = []
        self._safe: set[int] = set()
        self.operations, self._is_off = 0, False

    def fail_at(self, number: int, error: int) -> None:
        """From now on count anew; that operation fails once, with an ``OSError`` of this number."""
        self.operations, self._fail_at, self._error = 0, number, error

    def _operation(self) -> None:
        self.operations += 1
        if self.operations == self._fail_at:
            if self._error is None:
                self._is_off = True
                raise PowerCut
            raise OSError(self._error, os.strerror(self._error))

    def write(self, path: Path, content: bytes) -> None:
        self._operation()
        is_new = not path.exists()
        if self._error == errno.ENOSPC and self.operations + 1 == self._fail_at:
            content = content[: len(content) // 2]  # a full disk takes a part, and then fails at the sync
        super().write(path, content)
        self._safe.discard(_inode(path))
        if is_new:
            self._journal.append(_Created(_inode(path.parent), _inode(path)))

    def sync(self, path: Path) -> None:
        if self._is_off:
            return  # of a process that ends
        self._operation()
        number = _inode(path)
        self._safe.add(number)
        here = {_inode(entry) for entry in path.iterdir()} if path.is_dir() else set()
        self._journal = [  # what was created elsewhere, or came from elsewhere, is safe by its name here
            entry
            for entry in self._journal
            if entry.folder != number and (entry.file if isinstance(entry, _Created) else entry.moved) not in here
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
        gone = {_inode(place) for place in (path, *path.rglob("*")) if place.exists()}
        super().remove_tree(path)
        self._safe -= gone  # their numbers will be given to other files
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
        for number, path in paths.items():
            if number not in self._safe and path.is_file():  # also what was written past this disk
                os.truncate(path, 0)

    def _paths(self) -> dict[int, Path]:
        return {_inode(path): path for path in (self._root, *self._root.rglob("*"))}


def _inode(path: Path) -> int:
    return path.stat().st_ino
