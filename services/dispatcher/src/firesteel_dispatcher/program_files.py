"""Files of programs: which of them can be run, and what of an archive is run."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Final

from firesteel.connectors.filesystems.file_system import remote_path
from firesteel.core.errors import ConfigurationError, ProgramError

SUFFIXES: Final = (".py", ".zip", ".whl", ".pyz", ".jar")
"""Ends of the names of programs."""
MAIN: Final = "__main__"
"""The entry that runs an archive as ``python archive`` does."""
_MOST_ENTRY_POINTS: Final = 100_000
"""Bytes that are read of the list of a wheel's console scripts."""


def remote_program(text: str) -> str | None:
    """The path of a program in a file system; None: the program is a local file.

    Raises:
        ConfigurationError: there is no such file system, or the name is not that of a program.
    """
    try:
        path = remote_path(text, "program")
    except ProgramError as error:
        raise ConfigurationError(str(error)) from error
    if path is not None and not path.lower().endswith(SUFFIXES):
        raise ConfigurationError(f"{text} is no program: its name has to end in one of {', '.join(SUFFIXES)}")
    return path


def local_program(text: str) -> Path:
    """The path of a program on this host, absolute."""
    return Path(text.removeprefix("file://")).expanduser().absolute()


def check_program(path: Path, entry: str | None = None) -> None:
    """Refuse a program that can't be run.

    Args:
        path: of a file or a directory.
        entry: module or ``module:function`` that is to be run; None = the program's ``__main__``.

    Raises:
        ConfigurationError: the program can't be run; the text says why.
    """
    if path.is_dir():
        if entry is None and not (path / "__main__.py").is_file():
            raise ConfigurationError(f"the directory {path} has no __main__.py: say which module of it is to be run")
        return
    if not path.is_file():
        raise ConfigurationError(f"the program {path} is not there")
    if not path.name.lower().endswith(SUFFIXES):
        raise ConfigurationError(f"{path} is no program: its name has to end in one of {', '.join(SUFFIXES)}")
    check_content(path, path.name)
    if entry is None and path.suffix != ".py" and default_entry(path) is None and not entries_of(path):
        raise ConfigurationError(
            f"{path.name} has neither a __main__.py nor a console script: say which module of it is to be run"
        )


def check_content(path: Path, name: str) -> None:
    """Refuse a file that holds no program of Python.

    Args:
        path: of the file.
        name: the name that it will have, which says whether it is a module or an archive.

    Raises:
        ConfigurationError: the file is no module that compiles, or no archive with modules.
    """
    if name.lower().endswith(".py"):
        try:
            compile(path.read_bytes(), name, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            raise ConfigurationError(f"{name} is no program of Python: {error}") from error
        return
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError) as error:
        raise ConfigurationError(f"{name} is no archive: {error}") from error
    if not any(name.endswith(".py") for name in names):
        fault = (
            "holds Java classes, which nobody here can run" if any(n.endswith(".class") for n in names) else "is empty"
        )
        raise ConfigurationError(f"{name} {fault}: upload a .py, .zip or .whl with a program of Python")


def default_entry(program: Path) -> str | None:
    """The entry of an archive that is run by default: None = its ``__main__``, else its only console script.

    Raises:
        ConfigurationError: the archive has several console scripts.
        zipfile.BadZipFile: the file is no archive.
    """
    entries = entries_of(program)
    if MAIN in entries or not entries:
        return None
    if len(entries) > 1:
        raise ConfigurationError(
            f"{program.name} has several console scripts, so say which one is to be run (entry-class): "
            + ", ".join(entries)
        )
    return entries[0]


def entries_of(program: Path) -> list[str]:
    """The entries of an archive: its ``__main__``, and the console scripts of a wheel.

    Raises:
        zipfile.BadZipFile: the file is no archive.
    """
    with zipfile.ZipFile(program) as archive:
        names = archive.namelist()
        entries = [MAIN] if "__main__.py" in names else []
        for name in names:
            if name.endswith(".dist-info/entry_points.txt") and name.count("/") == 1:
                with archive.open(name) as file:
                    entries += _scripts(file.read(_MOST_ENTRY_POINTS).decode("utf-8", "replace"))
    return entries


def _scripts(text: str) -> list[str]:
    scripts, in_section = [], False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            in_section = line == "[console_scripts]"
        elif in_section and "=" in line:
            scripts.append(line.partition("=")[2].split("[")[0].replace(" ", ""))
    return scripts
