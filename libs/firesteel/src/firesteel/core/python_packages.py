"""Python packages of this interpreter, and a short hash of them by which hosts are compared."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from importlib import metadata


def installed() -> dict[str, str]:
    """Versions of all distributions by their names, in lower case with hyphens."""
    versions: dict[str, str] = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            versions.setdefault(name.lower().replace("_", "-"), distribution.version)
    return versions


@cache
def environment_id() -> str:
    """Twelve hex digits that differ where Python or a package has another version. Reads files on the first call."""
    lines = [platform.python_version(), *(f"{name}=={version}" for name, version in sorted(installed().items()))]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]
