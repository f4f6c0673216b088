"""Unpacking archives that somebody else has made: nothing lands outside of the directory, and not more than fits."""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from firesteel.core.errors import UnsafeArchiveError

MOST_BYTES: Final = 64 << 30
"""An archive may unpack to so much, where the disk has room for it. A packed conda environment with CUDA has 10 GiB."""
MOST_ENTRIES: Final = 1_000_000
_SHARE_OF_FREE: Final = 0.95
"""Share of the free space; the rest is for what other processes write meanwhile."""


def unpack_zip(path: str | os.PathLike[str], target: Path) -> None:
    """Unpack a zip archive; files that could be run where it was made can be run here.

    Args:
        path: of the archive.
        target: a directory, made where it is missing; empty, or holding what may be replaced.

    Raises:
        UnsafeArchiveError: an entry lies outside of the target, or it is too large. Nothing was unpacked.
        zipfile.BadZipFile: it is no zip archive, or damaged.
        OSError: it can't be read, or the target can't be written.
    """
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        _check(path, target, ((entry.filename, entry.file_size) for entry in entries))
        for entry in entries:
            # zipfile stops at the size that the entry names, so the check above holds for what is really in there.
            unpacked = archive.extract(entry, target)
            mode = entry.external_attr >> 16
            if mode & 0o111 and not entry.is_dir() and stat.S_IFMT(mode) in (0, stat.S_IFREG):
                os.chmod(unpacked, os.stat(unpacked).st_mode | mode & 0o111)


def unpack_tar(path: str | os.PathLike[str], target: Path) -> None:
    """Unpack a tar archive, compressed or not, by Python's ``data`` filter: no devices, no links that lead outside.

    Args:
        path: of the archive.
        target: a directory, made where it is missing; empty, or holding what may be replaced.

    Raises:
        UnsafeArchiveError: an entry lies outside of the target or links there, or it is too large. Links are found
            while it is unpacked: the target is to be removed then.
        tarfile.TarError: it is no tar archive, or damaged.
        OSError: it can't be read, or the target can't be written.
    """
    with tarfile.open(path) as archive:
        _check(path, target, ((member.name, member.size) for member in archive))
        try:
            archive.extractall(target, filter="data")
        except tarfile.FilterError as error:
            raise UnsafeArchiveError(f"{os.path.basename(path)}: {error}") from error


def _check(path: str | os.PathLike[str], target: Path, entries: Iterable[tuple[str, int]]) -> None:
    archive = os.path.basename(path)
    room = min(MOST_BYTES, int(shutil.disk_usage(_existing(target)).free * _SHARE_OF_FREE))
    total = 0
    # Entries of a compressed tar are read as they come, so one that is too large is not inflated to its end.
    for count, (name, size) in enumerate(entries, 1):
        parts = name.replace("\\", "/").split("/")
        if ".." in parts or name.startswith(("/", "\\")) or "\0" in name:
            raise UnsafeArchiveError(f"{archive}: its entry {name[:200]!r} lies outside of the archive")
        total += size
        if total > room:
            raise UnsafeArchiveError(
                f"{archive} unpacks to more than {room >> 20} MiB, which is all that {target} has room for"
                if room < MOST_BYTES
                else f"{archive} unpacks to more than {MOST_BYTES >> 30} GiB, and no archive may"
            )
        if count > MOST_ENTRIES:
            raise UnsafeArchiveError(f"{archive} has more than {MOST_ENTRIES:,} entries, and no archive may")


def _existing(path: Path) -> Path:
    """The nearest directory above a path that is there already."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path
