"""Looking at folders in which other processes work."""

from __future__ import annotations

import os
from pathlib import Path


def files_below(folder: Path) -> list[Path]:
    """Everything below a folder that is no folder; what vanishes meanwhile is left out."""
    return [Path(parent, name) for parent, _, names in os.walk(folder) for name in names]
