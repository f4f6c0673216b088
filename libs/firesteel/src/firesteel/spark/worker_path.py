"""The module search path of workers: what the client can import, a worker can import, from the same place."""

from __future__ import annotations

import json
import os
import site
from collections.abc import Iterable, Mapping
from pathlib import Path

import firesteel

PATH_VARIABLE = "FIRESTEEL_PATH"
"""The client's search path as a JSON list; the daemon takes it over and removes the variable."""
SAFE_PATH_MARK = "firesteel"
"""Value of ``PYTHONSAFEPATH`` by which the daemon knows that it was set for itself only."""


def worker_path(entries: Iterable[str], leave_out: Iterable[str] = ()) -> list[str]:
    """The entries of a ``sys.path`` that exist, absolute and each once.

    Args:
        entries: the client's ``sys.path``; an empty entry stands for the current directory.
        leave_out: directories whose content is not for workers.
    """
    unwanted = tuple(os.path.realpath(directory) + os.sep for directory in leave_out)
    needed_paths: list[str] = []
    for entry in entries:
        path = os.path.abspath(entry)
        if (
            os.path.exists(path)
            and path not in needed_paths
            and not (os.path.realpath(path) + os.sep).startswith(unwanted)
        ):
            needed_paths.append(path)
    return needed_paths


def worker_environment(
    entries: Iterable[str], inherited: Mapping[str, str], leave_out: Iterable[str] = ()
) -> dict[str, str]:
    """Variables by which the daemon is found, and gets the client's search path instead of its own.

    ``PYTHONPATH`` comes before the standard library: of the client's path only what the daemon would not find without
    it goes there.
    """
    home = str(Path(firesteel.__file__).parent.parent)
    by_itself = {os.path.realpath(directory) for directory in (*site.getsitepackages(), site.getusersitepackages())}
    inherited_path = [inherited["PYTHONPATH"]] if inherited.get("PYTHONPATH") else []
    needed = [] if os.path.realpath(home) in by_itself else [home]
    variables = {PATH_VARIABLE: json.dumps(worker_path(entries, leave_out))}
    if inherited_path or needed:
        variables["PYTHONPATH"] = os.pathsep.join(inherited_path + needed)
    if not inherited.get("PYTHONSAFEPATH"):
        variables["PYTHONSAFEPATH"] = SAFE_PATH_MARK
    return variables
