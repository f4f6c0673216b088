"""Facts about this machine."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Cores that this process may use, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1
