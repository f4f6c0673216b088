"""Packs the packages of this command's environment into one archive, for nodes that only have a Python.

The archive is named by a hash of its content, so it is packed and uploaded once, and each node keeps it unpacked.
"""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from firesteel_yarn.gateway import YarnError

_LEFT_OUT: Final = frozenset({"pip", "setuptools", "wheel", "uv", "_distutils_hack", "pkg_resources"})
_CACHE_TAG: Final = f".{sys.implementation.cache_tag}."


@dataclass(frozen=True)
class Packages:
    """The packages to ship.

    Attributes:
        name: of the archive, with a hash of its content.
        files: of this host, by their names in the archive.
    """

    name: str
    files: dict[str, Path]

    def pack(self, path: Path) -> None:
        """Write the archive, uncompressed: most files are jars.

        Raises:
            YarnError: it can't be written.
        """
        try:
            with tarfile.open(path, "w", dereference=True) as archive:
                for name, file in self.files.items():
                    archive.add(file, name, recursive=False)
        except OSError as error:
            raise YarnError(f"the packages of this environment can't be packed into {path}: {error}") from error


def packages_here(folders: list[Path] | None = None) -> Packages:
    """The packages of this environment, and those that it uses from elsewhere (installed for development).

    Args:
        folders: with the packages; by default those of this interpreter.

    Raises:
        YarnError: they can't be read.
    """
    roots = folders or [Path(path) for path in dict.fromkeys(map(sysconfig.get_path, ("purelib", "platlib")))]
    digest = hashlib.sha256(f"{sys.version_info[:2]}\n".encode())
    files: dict[str, Path] = {}
    try:
        for root in roots:
            for folder in (root, *_added(root)):
                for name, file in _files(folder, ""):
                    files.setdefault(name, file)
        for name in sorted(files):
            status = files[name].stat()
            if "__pycache__" not in name:
                digest.update(f"{name} {status.st_size} {status.st_mtime_ns}\n".encode())
    except OSError as error:
        raise YarnError(f"the packages of this environment can't be read: {error}") from error
    return Packages(f"packages-{digest.hexdigest()[:16]}.tar", dict(sorted(files.items())))


def _added(root: Path) -> Iterator[Path]:
    """Folders that ``.pth`` files add to the path."""
    for listed in sorted(root.glob("*.pth")):
        for line in listed.read_text(errors="replace").splitlines():
            if line.startswith("/") and Path(line).is_dir():
                yield Path(line)


def _files(folder: Path, prefix: str) -> Iterator[tuple[str, Path]]:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda item: item.name):
            name = entry.name
            if not prefix and (name.partition("-")[0] in _LEFT_OUT or name.endswith(".pth")):
                continue
            if entry.is_dir():
                yield from _files(Path(entry.path), f"{prefix}{name}/")
            elif not name.endswith(".pyc") or _CACHE_TAG in name:
                yield f"{prefix}{name}", Path(entry.path)
