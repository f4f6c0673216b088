"""What the answer about latencies is made of; see ``types``."""

from __future__ import annotations

from typing import TypedDict

from firesteel.rest.types import Id

LatencyBucket = TypedDict("LatencyBucket", {"up-to": int, "count": int})
LatencyPath = TypedDict(
    "LatencyPath",
    {
        "source-id": Id,
        "source": str,
        "vertex-id": Id,
        "vertex": str,
        "is-end": bool,
        "markers": int,
        "p50": int,
        "p95": int,
        "p99": int,
        "max": int,
        "histogram": list[LatencyBucket],
    },
)
"""Latencies in ms from a source to a vertex, ``is-end``: to which no further ones follow. Percentiles are those of the
latest markers, at most 1/16 too large."""


class LatenciesInfo(TypedDict):
    """How long latency markers took; empty where the job sends none (``metrics.latency.interval``)."""

    now: int
    paths: list[LatencyPath]
