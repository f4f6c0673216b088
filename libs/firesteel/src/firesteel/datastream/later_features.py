"""What PyFlink's streams have and this version does not: each method says so in one sentence."""

from __future__ import annotations

from typing import NoReturn

from firesteel.core.errors import UnsupportedFeatureError

__all__ = ["LaterStreamFeatures", "refuse"]


def refuse(what: str) -> NoReturn:
    """Say that this version does not have it.

    Raises:
        UnsupportedFeatureError: always.
    """
    raise UnsupportedFeatureError(f"{what} not in this version of firesteel; a later one brings it")


class LaterStreamFeatures:
    """Of all streams."""

    def cache(self) -> NoReturn:
        """Refused in this version: UnsupportedFeatureError."""
        refuse("cache(): cached streams are")
