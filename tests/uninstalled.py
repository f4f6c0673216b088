"""What it is like where a distribution of ours is not installed."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest


def uninstall(distribution: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide a distribution until the test ends: neither its entry points nor its package are there."""
    package = distribution.replace("-", "_")
    for module in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if not (Path(entry) / package).is_dir()])
    all_points = metadata.entry_points

    def entry_points(*, group: str) -> list[metadata.EntryPoint]:
        return [point for point in all_points(group=group) if point.value.partition(".")[0] != package]

    monkeypatch.setattr(metadata, "entry_points", entry_points)
