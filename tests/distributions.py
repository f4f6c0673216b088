"""Distributions of single modules: those of pages, and how to install one without a build backend and a network."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

FILE = re.compile(r"^<!-- file: (?P<name>[\w.]+) -->\n+^```\w*\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def files_of(page: str) -> dict[str, str]:
    """The files that a page shows, by name: each in a block behind ``<!-- file: name -->``."""
    return {match["name"]: match["text"] for match in FILE.finditer(page)}


def install(project: Path, target: Path) -> str:
    """Install a project into a directory that is, or comes to be, on the path of Python, as its wheel would be.

    Args:
        project: a folder with a ``pyproject.toml`` and modules beside it, as ``tool.setuptools.py-modules`` names them.
        target: the modules go there, with the metadata by which their entry points are found.

    Returns:
        The distribution's name.
    """
    described: dict[str, Any] = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    name, version = described["project"]["name"], described["project"]["version"]
    info = target / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    groups = described["project"].get("entry-points", {})
    lines = [
        line
        for group, points in groups.items()
        for line in (f"[{group}]", *(f"{point} = {value}" for point, value in points.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for module in described["tool"]["setuptools"]["py-modules"]:
        if project != target:
            shutil.copy(project / f"{module}.py", target)
        assert (target / f"{module}.py").exists(), f"{name} names the module {module}, which is not there"
    return str(name)
