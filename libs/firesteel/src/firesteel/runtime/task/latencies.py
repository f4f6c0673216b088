"""Latency from sources to a task, which markers measure that travel among the records (Flink's latency markers)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from firesteel.core.clock import Clock
from firesteel.core.latency_histogram import bucket_of
from firesteel.runtime.chain.partitioners import Output
from firesteel.runtime.records.batch import LatencyMarker


class LatencyTracker:
    """Measures the markers that come to a task, and passes them on: over each edge to one subtask, chosen at random.

    A marker keeps its place among the records of its channels. It goes past the functions of a chain when no record is
    inside, so it measures queues, network, and the time that earlier records took, as in Flink.

    Args:
        outputs: outputs of the task, over which markers go on.
        clock: tells when a marker arrives; the marker has the time of the host of its source.
        interval: seconds between two markers of a source.
        history: latest latencies that count, for each source.
        vertex_id, subtask: identify the task in the markers that it sends as a source.
    """

    def __init__(
        self, outputs: Sequence[Output], clock: Clock, interval: float, history: int, vertex_id: str, subtask: int
    ) -> None:
        self._outputs, self._clock, self.interval, self._history = outputs, clock, interval, history
        self._vertex_id, self._subtask = vertex_id, subtask
        self._random = random.Random()
        self._counts: dict[str, int] = {}
        self._latest: dict[str, list[int]] = {}
        """Source -> buckets of its latest latencies; a ring, whose next place follows from the count."""

    def mark(self, marked_ms: int) -> None:
        """Send a marker, as this is a source.

        Args:
            marked_ms: epoch ms at which it was due; a record that came then has waited since.
        """
        self.passed(LatencyMarker(self._vertex_id, self._subtask, marked_ms))

    def passed(self, marker: LatencyMarker) -> None:
        """Count the latency of a marker that has come, and pass the marker on."""
        count, latest = self._counts.get(marker.source, 0), self._latest.setdefault(marker.source, [])
        bucket = bucket_of(self._clock.epoch_ms() - marker.marked_ms)
        if len(latest) < self._history:
            latest.append(bucket)
        else:
            latest[count % self._history] = bucket
        self._counts[marker.source] = count + 1
        for output in self._outputs:
            self._random.choice(output.channels).send(marker)

    def rows(self) -> list[dict[str, Any]]:
        """The latencies from each source (``firesteel.functions.metrics.LATENCIES``); may be called from any thread."""
        return [
            {"source": source, "markers": count, "buckets": sorted(Counter(list(self._latest[source])).items())}
            for source, count in list(self._counts.items())
        ]
