"""Packs the Python files that travel with a job: modules beside the program, and files that the program names.

Each becomes a zip archive that is the same for the same content, so that a job that is submitted again is the same job.
The standard library and installed packages do not travel: the cluster has its own.
"""

from __future__ import annotations

import io
import os
import sys
import sysconfig
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType
from typing import Final

from firesteel.config import options
from firesteel.config.settings import Settings
from firesteel.config.values import show_memory
from firesteel.core.errors import ProgramError

_SUFFIXES: Final = (".py", *EXTENSION_SUFFIXES)
_ARCHIVES: Final = (".zip", ".whl", ".egg")
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


def named_files(settings: Settings) -> list[Path]:
    """The paths in ``python.files``, made absolute.

    Raises:
        ProgramError: a path does not exist, or is neither directory, .py file nor zip archive.
    """
    paths = []
    for text in (settings.get(options.PYTHON_FILES) or "").split(","):
        if text.strip():
            paths.append(_checked(text.strip()))
    return paths


def _checked(text: str) -> Path:
    if "://" in text and not text.startswith("file://"):
        raise ProgramError(f"Python file {text!r}: only local files can be sent along in this version")
    path = Path(text.removeprefix("file://")).expanduser().absolute()
    if path.is_dir() or (path.is_file() and path.suffix == ".py"):
        return path
    if not path.exists():
        raise ProgramError(f"Python file {text!r}: {path} does not exist")
    if path.suffix in _ARCHIVES and zipfile.is_zipfile(path):
        return path
    raise ProgramError(f"Python file {text!r} is no directory, no .py file, and no zip archive (.zip, .whl, .egg)")


def archives(
    named: Iterable[Path], modules: Mapping[str, ModuleType], roots: Iterable[Path], limit: int
) -> list[bytes]:
    """The archives that a job takes along, in the order in which slots look into them.

    Args:
        named: from ``named_files``.
        modules: the loaded modules, by name.
        roots: directories of the program; of its modules those travel that were imported from there.
        limit: bytes of all archives together.

    Raises:
        ProgramError: they are larger than the limit, or a file can't be read.
    """
    packer = Packer(limit)
    for path in named:
        if path.is_dir():
            packer.pack(str(path), dict(_tree(path, path)))
        elif path.suffix == ".py":
            packer.pack(str(path), {path.name: path})
        else:
            packer.add(str(path), _read(path))
    for root in roots:
        files = imported_files(modules, root)
        if files:
            packer.pack(f"the modules that the program imports from {root}", files)
    return packer.made


def program_roots(main: ModuleType | None, path: Iterable[str]) -> list[Path]:
    """The directories that hold the program's own modules: that of its script, and the first of ``sys.path``.

    Args:
        main: the module ``__main__``.
        path: ``sys.path``.
    """
    roots: list[Path] = []
    script = getattr(main, "__file__", None)
    first = next(iter(path), None)
    for directory in (os.path.dirname(os.path.abspath(script)) if script else None, first):
        if directory is not None:
            root = Path(os.path.abspath(directory))
            if root.is_dir() and root not in roots and not _is_installed(root):
                roots.append(root)
    return roots


def imported_files(modules: Mapping[str, ModuleType], root: Path) -> dict[str, Path]:
    """Name in the archive -> file, of all modules that were imported from a directory; a package brings all its files.

    A module counts only if its file lies where its name says: what some other entry of ``sys.path`` below the
    directory brings is not the program's.
    """
    files_by_name: dict[str, Path] = {}
    for name, module in list(modules.items()):
        file = getattr(module, "__file__", None)
        if name in ("__main__", "__mp_main__") or not isinstance(file, str) or not file.endswith(_SUFFIXES):
            continue
        path = Path(os.path.abspath(file))
        if not path.is_relative_to(root) or _is_installed(path):
            continue
        inside = path.relative_to(root)
        stem = inside.parts[:-1] if path.name == "__init__.py" else (*inside.parts[:-1], path.name.partition(".")[0])
        if stem != tuple(name.split(".")) or not path.is_file():
            continue
        package = _package_of(path, root)
        files_by_name.update(_tree(package, root) if package else {inside.as_posix(): path})
    return files_by_name


def _package_of(path: Path, root: Path) -> Path | None:
    """The outermost directory around a module that is a package."""
    package = None
    folder = path.parent
    while folder != root and (folder / "__init__.py").is_file():
        package, folder = folder, folder.parent
    return package


def _tree(folder: Path, root: Path) -> Iterator[tuple[str, Path]]:
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__" and not name.startswith(".")]
        for name in files:
            path = Path(place, name)
            if not name.startswith(".") and not name.endswith((".pyc", ".pyo")) and path.is_file():
                yield path.relative_to(root).as_posix(), path


def _is_installed(path: Path) -> bool:
    if not _INSTALLED.isdisjoint(path.parts):
        return True
    places = sysconfig.get_paths()
    libraries = {places["stdlib"], places["platstdlib"], places["scripts"], os.path.dirname(sys.executable)}
    return any(path.is_relative_to(place) for place in libraries)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ProgramError(f"Python file {path} can't be read: {error.strerror or error}") from error


class Packer:
    """Makes zip archives of files: the same bytes for the same files, with a limit on the bytes of all together."""

    def __init__(self, limit: int) -> None:
        self._limit, self._size = limit, 0
        self.made: list[bytes] = []

    def pack(self, description: str, files: Mapping[str, Path]) -> None:
        """Make an archive of files by their names in it."""
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in sorted(files):
                entry = zipfile.ZipInfo(name, _EPOCH)
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, _read(files[name]), zipfile.ZIP_DEFLATED)
                if stream.tell() + self._size > self._limit:
                    self._refuse(description, files)
        self.add(description, stream.getvalue(), files)

    def add(self, description: str, content: bytes, files: Mapping[str, Path] | None = None) -> None:
        """Add a finished archive; one with the same content is added once.

        Raises:
            ProgramError: the archives are larger than the limit; names the largest of the files.
        """
        self._size += len(content)
        if self._size > self._limit:
            self._refuse(description, files or {})
        if content not in self.made:
            self.made.append(content)

    def _refuse(self, description: str, files: Mapping[str, Path]) -> None:
        largest = max(files.values(), key=lambda path: path.stat().st_size, default=None)
        example = f"; the largest file is {largest} with {largest.stat().st_size} bytes" if largest else ""
        raise ProgramError(
            f"the Python files of the program take more than {show_memory(self._limit)} "
            f"({options.PYTHON_FILES_MAX_BYTES.key}) together with {description}{example}: leave data out, "
            "install packages in the Python environment of the cluster, or raise the limit"
        )
