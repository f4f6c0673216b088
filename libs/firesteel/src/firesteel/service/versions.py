"""What has to be the same on all nodes: slots, executors and services of different versions do not go together."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import version

from firesteel import __version__


def own_versions() -> dict[str, str]:
    """Of this process: ``firesteel``, ``python`` (major and minor) and ``pyspark``."""
    return {
        "firesteel": __version__,
        "python": _minor(platform.python_version()),
        "pyspark": version("pyspark"),
    }


def differences(own: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """What differs on another node, as ``pyspark 4.0.0 instead of 4.3.0``; of Python only major and minor count."""
    found = []
    for name, ours in own.items():
        theirs = other.get(name, "")
        if name == "python":
            ours, theirs = _minor(ours), _minor(theirs)
        if ours != theirs:
            found.append(f"{name} {theirs or '(it does not say which)'} instead of {ours}")
    return found


def _minor(text: str) -> str:
    return ".".join(text.split(".")[:2])
