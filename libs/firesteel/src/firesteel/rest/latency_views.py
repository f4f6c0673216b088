"""The REST answer about latencies from sources to operators, from job archives. Pure functions."""

from __future__ import annotations

from firesteel.core.latency_histogram import LatencyHistogram, upper_ms
from firesteel.graph.job_archive import LATENCIES
from firesteel.rest import latency_types as t
from firesteel.rest.archive_cache import Archive


def has_latencies(archive: Archive) -> bool:
    """Whether latency markers have come anywhere."""
    return any(LATENCIES in vertex for vertex in archive["vertices"])


def latencies(archive: Archive) -> t.LatenciesInfo:
    """/jobs/:jobid/latencies: for each pair of a source and a vertex the latest latencies, over all subtasks."""
    names = {vertex["id"]: vertex["name"] for vertex in archive["vertices"]}
    senders = {sender["id"] for node in archive["plan"]["nodes"] for sender in node.get("inputs", ())}
    paths: list[t.LatencyPath] = []
    for vertex in archive["vertices"]:
        for row in vertex.get(LATENCIES, ()):
            histogram = LatencyHistogram((bucket, number) for bucket, number in row["buckets"])
            paths.append(
                {
                    "source-id": row["source"],
                    "source": names.get(row["source"], row["source"]),
                    "vertex-id": vertex["id"],
                    "vertex": vertex["name"],
                    "is-end": vertex["id"] not in senders,
                    "markers": row["markers"],
                    "p50": histogram.percentile(0.5),
                    "p95": histogram.percentile(0.95),
                    "p99": histogram.percentile(0.99),
                    "max": histogram.percentile(1),
                    "histogram": [
                        {"up-to": upper_ms(bucket), "count": number} for bucket, number in histogram.buckets()
                    ],
                }
            )
    return {"now": archive["now"], "paths": paths}
