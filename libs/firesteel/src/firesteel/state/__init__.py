"""State backends; and ``read_savepoint``, which looks into what they have written."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["read_savepoint"]


def read_savepoint(path: str) -> Any:
    """Opens a savepoint, or a retained checkpoint: ``firesteel.checkpoint.reader.read_savepoint``.

    Returns:
        a ``firesteel.checkpoint.reader.Savepoint``.
    """
    return import_module("firesteel.checkpoint.reader").read_savepoint(path)  # which stands on state, not under it
