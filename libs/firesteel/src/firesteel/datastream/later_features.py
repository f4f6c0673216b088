"""What PyFlink's streams have and this version does not: each method says so in one sentence."""

from __future__ import annotations

from typing import Any, NoReturn

from firesteel.core.errors import UnsupportedFeatureError

__all__ = ["LaterKeyedStreamFeatures", "LaterStreamFeatures", "refuse"]


def refuse(what: str) -> NoReturn:
    """Say that this version does not have it.

    Raises:
        UnsupportedFeatureError: always.
    """
    raise UnsupportedFeatureError(f"{what} not in this version of firesteel; a later one brings it")


class LaterStreamFeatures:
    """Of all streams."""

    def window_all(self, window_assigner: Any) -> NoReturn:
        """Refused in this version: UnsupportedFeatureError."""
        refuse("window_all(): windows are")


class LaterKeyedStreamFeatures(LaterStreamFeatures):
    """Of keyed streams."""

    def window(self, window_assigner: Any) -> NoReturn:
        """Refused in this version: UnsupportedFeatureError."""
        refuse("window(): windows are")

    def count_window(self, size: int, slide: int = 0) -> NoReturn:
        """Refused in this version: UnsupportedFeatureError."""
        refuse("count_window(): windows are")
