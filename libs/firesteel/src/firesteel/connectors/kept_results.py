"""Where the results are that ``cache()`` keeps: a directory for each program, and in it one for each stream."""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_ROOT: Final = "firesteel-cache-"
_ID: Final = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True)
class KeptResults:
    """The kept results of one stream.

    Attributes:
        id: identifies the results, by 32 hex digits.
        directory: directory of their files.
        is_complete: all files exist, so a job can read them.
    """

    id: str
    directory: Path
    is_complete: bool


def new_root(configured: str | None, name: str) -> Path:
    """The directory of a program, which does not exist yet.

    Args:
        configured: ``firesteel.cache.directory``.
        name: name that no other program has.
    """
    return (Path(place_of(configured)) / f"{_ROOT}{name}").absolute()


def place_of(configured: str | None) -> str:
    """The directory that holds the directories of programs."""
    return configured or tempfile.gettempdir()


def kept_in(place: str) -> list[KeptResults]:
    """Results that this user's programs keep in a place now; none if the place does not exist."""
    results = []
    for root in _own_directories(place):
        if root.name.startswith(_ROOT):
            results += [
                KeptResults(entry.name, Path(entry.path), parts_of(Path(entry.path)) is not None)
                for entry in _own_directories(root.path)
                if _ID.fullmatch(entry.name)
            ]
    return results


def _own_directories(path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return [
                entry
                for entry in entries
                if entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
            ]
    except OSError:  # it is not there, or goes just now
        return []


def parts_of(directory: Path) -> list[Path] | None:
    """The files of complete results, in the order of the subtasks; None while some are missing."""
    try:
        path_by_name = {name: directory / name for name in os.listdir(directory) if name.startswith("part-")}
    except OSError:
        return None
    counts = {name.rpartition("-of-")[2] for name in path_by_name}
    if len(counts) != 1:
        return None
    count = int(counts.pop())
    names = [part_name(subtask, count) for subtask in range(count)]
    return [path_by_name[name] for name in names] if path_by_name.keys() == set(names) else None


def part_name(subtask: int, count: int) -> str:
    """Name of the file that a subtask writes."""
    return f"part-{subtask}-of-{count}"
