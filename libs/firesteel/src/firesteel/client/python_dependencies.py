"""Packs the packages, archives and interpreter that a program names for its slots, to travel with its job."""

from __future__ import annotations

import tarfile
import zipfile
from functools import partial
from pathlib import Path
from typing import Final

from firesteel.client.python_files import Packer
from firesteel.config import options
from firesteel.config.settings import Settings
from firesteel.core.errors import ProgramError
from firesteel.graph.job_graph import add_blob
from firesteel.protocol.python_environment import PythonArchive, PythonEnvironment

__all__ = ["python_environment"]

_ELSEWHERE: Final = ("-r", "--requirement", "-c", "--constraint", "-e", "--editable", ".", "/", "file:")


def python_environment(settings: Settings) -> tuple[PythonEnvironment, dict[str, bytes]]:
    """The dependencies of a program, and the blobs that they consist of.

    Raises:
        ProgramError: a file is not there, is no archive, refers to other files, or all together is too large.
    """
    blobs: dict[str, bytes] = {}
    packer = Packer(settings.get(options.PYTHON_FILES_MAX_BYTES))

    added = partial(add_blob, blobs)
    requirements = packages = None
    text = settings.get(options.PYTHON_REQUIREMENTS)
    if text:
        file, _, directory = text.partition("#")
        requirements = added(_requirements(_existing("requirements file", file)))
        if directory:
            packages = added(_directory(packer, _existing("directory of packages", directory)))
    archives = []
    for entry in (settings.get(options.PYTHON_ARCHIVES) or "").split(","):
        if entry.strip():
            path, _, target = entry.strip().partition("#")
            archives.append(_archive(packer, _existing("archive", path), target, added))
    executable = settings.get(options.PYTHON_EXECUTABLE)
    return PythonEnvironment(requirements, packages, tuple(archives), executable), blobs


def _existing(what: str, text: str) -> Path:
    if "://" in text and not text.startswith("file://"):
        raise ProgramError(f"{what} {text!r}: only local files can be sent along in this version")
    path = Path(text.removeprefix("file://")).expanduser().absolute()
    if not path.exists():
        raise ProgramError(f"{what} {text!r}: {path} does not exist")
    return path


def _requirements(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        lines = content.decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ProgramError(f"requirements file {path} can't be read: {error}") from error
    for number, line in enumerate(lines, 1):
        first = line.strip().partition(" ")[0]
        if first.startswith(_ELSEWHERE):
            raise ProgramError(
                f"{path}:{number}: {line.strip()!r} refers to a file of this host, which does not travel: write what "
                "it holds into this file, put packages into the directory of set_python_requirements(), or use "
                "add_python_file()"
            )
    return content


def _directory(packer: Packer, path: Path) -> bytes:
    if not path.is_dir():
        raise ProgramError(f"{path} is no directory: it has to hold the packages of the requirements")
    files = {file.name: file for file in sorted(path.iterdir()) if file.is_file() and not file.name.startswith(".")}
    packer.pack(f"the packages in {path}", files)
    return packer.made[-1]


def _archive(packer: Packer, path: Path, target: str, added: object) -> PythonArchive:
    if zipfile.is_zipfile(path):
        kind = "zip"
    elif path.is_file() and tarfile.is_tarfile(path):
        kind = "tar"
    else:
        raise ProgramError(f"archive {path} is neither a zip nor a tar file")
    target = target or path.name
    if target in (".", "..") or "/" in target:
        raise ProgramError(f"archive {path}: its target is the name of a directory, not {target!r}")
    content = path.read_bytes()
    packer.add(str(path), content, {path.name: path})
    assert callable(added)
    return PythonArchive(added(content), target, kind)
