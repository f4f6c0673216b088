"""``cache()``: the results of an operator, kept for the next jobs. Refused, with the reason; PyFlink's names."""

from __future__ import annotations

from typing import Any, NoReturn

from firesteel.core.errors import UnsupportedFeatureError

__all__ = ["CachedDataStream", "Caching"]

_WHY = (
    "cache(): results can be kept only of jobs in BATCH mode, as in Flink, and this version runs all jobs as streams; "
    "write the stream to a file sink and read it from there"
)


class Caching:
    """Of all streams."""

    def cache(self) -> NoReturn:
        """Refused: only jobs in BATCH mode have results that can be kept, as in Flink.

        Raises:
            UnsupportedFeatureError: always.
        """
        raise UnsupportedFeatureError(_WHY)


class CachedDataStream:
    """Refused: what ``cache()`` would return."""

    def __init__(self, *arguments: Any) -> None:
        raise UnsupportedFeatureError(_WHY)

    def invalidate(self) -> NoReturn:
        """Refused: there is nothing to drop."""
        raise UnsupportedFeatureError(_WHY)
