"""What PyFlink's streams have and this version does not: each method says so in one sentence."""

from __future__ import annotations

from typing import Any, NoReturn

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

    def assign_timestamps_and_watermarks(self, watermark_strategy: Any) -> NoReturn:
        """Refused in this version: UnsupportedFeatureError."""
        refuse("assign_timestamps_and_watermarks(): event time and watermarks are")

    def get_side_output(self, output_tag: Any) -> NoReturn:
        """Refused in this version: UnsupportedFeatureError."""
        refuse("get_side_output(): side outputs are")

    def cache(self) -> NoReturn:
        """Refused in this version: UnsupportedFeatureError."""
        refuse("cache(): cached streams are")
