"""State backends; and ``read_savepoint``, which looks into what they have written."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from firesteel.state.savepoint_reader import Savepoint

__all__ = ["read_savepoint"]


def read_savepoint(path: str) -> Savepoint:
    """Opens a savepoint, or a retained checkpoint; see ``firesteel.state.savepoint_reader``."""
    from firesteel.state import savepoint_reader  # operators import this package, and need none of it

    return savepoint_reader.read_savepoint(path)
