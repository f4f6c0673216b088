"""Which Python packages this interpreter has, as a short name by which hosts are compared."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from importlib import metadata


def installed() -> dict[str, str]:
    """Versions of all distributions by their names, in lower case with hyphens."""
    found: dict[str, str] = {}
    for one in metadata.distributions():
        name = one.metadata["Name"]
        if name:
            found.setdefault(name.lower().replace("_", "-"), one.version)
    return found


@cache
def environment_id() -> str:
    """Twelve hex digits: others where Python or a package has another version. Reads files the first time."""
    lines = [platform.python_version(), *(f"{name}=={version}" for name, version in sorted(installed().items()))]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]
