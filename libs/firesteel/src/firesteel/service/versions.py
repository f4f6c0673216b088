"""Versions that have to be the same on all nodes, since slots, executors and services exchange pickles and messages."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import version

from firesteel import __version__


def own_versions() -> dict[str, str]:
    """Versions of this process: ``firesteel``, ``python`` (major and minor) and ``pyspark``."""
    return {
        "firesteel": __version__,
        "python": _minor(platform.python_version()),
        "pyspark": version("pyspark"),
    }


def differences(here: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    """Versions that differ on another node, as ``pyspark 4.0.0 instead of 4.3.0``; of Python major and minor count."""
    lines = []
    for name, ours in here.items():
        theirs = there.get(name, "")
        if name == "python":
            ours, theirs = _minor(ours), _minor(theirs)
        if ours != theirs:
            lines.append(f"{name} {theirs or '(it does not say which)'} instead of {ours}")
    return lines


def _minor(text: str) -> str:
    return ".".join(text.split(".")[:2])
