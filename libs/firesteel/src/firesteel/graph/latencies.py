"""Latencies that tasks report, from sources to them, added up for a vertex. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from firesteel.core.latency_histogram import MOST_MS, LatencyHistogram, bucket_of

_MOST_SOURCES: Final = 100
"""Sources whose latencies to a task are looked at."""
_MOST_BUCKETS: Final = bucket_of(MOST_MS) + 1


class Latencies(NamedTuple):
    """Latencies from a source to a task.

    Attributes:
        source: id of the source's vertex.
        markers: number of markers that have come.
        buckets: of the latest latencies, each with their number (``firesteel.core.latency_histogram``).
    """

    source: str
    markers: int
    buckets: tuple[tuple[int, int], ...]


def latencies_in(report: Any) -> tuple[Latencies, ...]:
    """The latencies in a task's report, which comes from a slot, where user code runs: what does not fit is dropped."""
    rows: list[Latencies] = []
    for row in islice(report, _MOST_SOURCES) if isinstance(report, list) else ():
        if not isinstance(row, Mapping) or not isinstance(row.get("source"), str) or not _is_count(row.get("markers")):
            continue
        pairs = row.get("buckets")
        if isinstance(pairs, list | tuple) and len(pairs) <= _MOST_BUCKETS and all(map(_is_pair, pairs)):
            rows.append(Latencies(row["source"], row["markers"], tuple((bucket, number) for bucket, number in pairs)))
    return tuple(rows)


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, list | tuple) and len(pair) == 2 and all(map(_is_count, pair)) and pair[0] < _MOST_BUCKETS


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


class VertexLatencies:
    """The latencies to all subtasks of a vertex, by source."""

    def __init__(self) -> None:
        self._sources: dict[str, tuple[int, LatencyHistogram]] = {}

    def add(self, latencies: tuple[Latencies, ...]) -> None:
        """Add those of a subtask."""
        for row in latencies:
            markers, histogram = self._sources.get(row.source, (0, LatencyHistogram()))
            histogram.add(row.buckets)
            self._sources[row.source] = markers + row.markers, histogram

    def shown(self) -> list[dict[str, Any]]:
        """The latencies as JSON-able data."""
        return [
            {"source": source, "markers": markers, "buckets": [list(pair) for pair in histogram.buckets()]}
            for source, (markers, histogram) in self._sources.items()
        ]
