"""An hour of the metrics of jobs, for charts that survive a reload: bounded rings of numbers. Pure."""

from __future__ import annotations

import math
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from firesteel.graph.job_archive import PENDING, WORST
from firesteel.rest import types as t
from firesteel.rest.findings import RECORDS_IN, job_rates
from firesteel.rest.views import job_values

JOB: Final = ""
"""Stands for the id of a vertex in series of the job itself."""
JOB_SERIES: Final = (
    "lastCheckpointDuration", "lastCheckpointSize", "lastCheckpointFullSize", "numberOfCompletedCheckpoints",
    "numberOfFailedCheckpoints", "numRestarts",
)  # fmt: skip
_RATES: Final = {
    "read-records": "numRecordsInPerSecond",
    "write-records": "numRecordsOutPerSecond",
    "read-bytes": "numBytesInPerSecond",
    "write-bytes": "numBytesOutPerSecond",
}
_TIMES: Final = {
    "accumulated-busy-time": "busyTimeMsPerSecond",
    "accumulated-backpressured-time": "backPressuredTimeMsPerSecond",
    "accumulated-idle-time": "idleTimeMsPerSecond",
}
_WORST: Final = {"busy": "maxBusyTimeMsPerSecond", "backPressured": "maxBackPressuredTimeMsPerSecond"}
SPARK_POINTS: Final = 30
SPARK_STEP: Final = 6
"""A line in a list of jobs has so many points, each of so many moments: a quarter of an hour of 5 s."""
WATERMARK_LAG: Final = "watermarkLag"
_NO_WATERMARK: Final = 1 << 62
"""A watermark beyond this number, on either side, means that there is none yet, or that none will come."""
_NAN: Final = float("nan")
Series = tuple[str, str]
"""A vertex (or ``JOB``) and a name."""


class _Rings:
    """Series of one job over the same moments, as ring buffers.

    Args:
        size: moments that are kept.

    Attributes:
        totals: the last moment (epoch ms), and the totals of all vertices at it; rates come from the difference.
        left_out: whether a series was left out, since there are too many.
    """

    def __init__(self, size: int) -> None:
        self._size, self._next = size, 0
        self._times = array("q")
        self._values: dict[Series, array[float]] = {}
        self.totals: tuple[int, Mapping[str, Mapping[str, Any]]] | None = None
        self.left_out = False

    def __len__(self) -> int:
        return len(self._values)

    def put(self, now_ms: int, values: Mapping[Series, float], most_series: int) -> None:
        """Add a moment; the oldest goes when there is no room."""
        for key in values:
            if key not in self._values:
                if len(self._values) >= most_series:
                    self.left_out = True
                else:
                    self._values[key] = array("d", [_NAN]) * len(self._times)
        if len(self._times) < self._size:
            self._times.append(now_ms)
            for key, ring in self._values.items():
                ring.append(values.get(key, _NAN))
            return
        self._times[self._next] = now_ms
        for key, ring in self._values.items():
            ring[self._next] = values.get(key, _NAN)
        self._next = (self._next + 1) % self._size

    def shown(self, vertex_id: str, since_ms: int) -> tuple[list[int], dict[str, list[float | None]]]:
        """The times after ``since_ms``, oldest first, and a vertex's series of values at them."""
        order = [*range(self._next, len(self._times)), *range(self._next)]
        order = [i for i in order if self._times[i] > since_ms]
        series = {
            name: [None if math.isnan(ring[i]) else ring[i] for i in order]
            for (vertex, name), ring in self._values.items()
            if vertex == vertex_id
        }
        return [self._times[i] for i in order], series

    def last(self, name: str, most: int) -> list[float]:
        """The last values of a series of the job itself, oldest first; NaN where there was none."""
        ring = self._values.get((JOB, name), array("d"))
        newest = ring[max(0, self._next - most) : self._next]  # slices of an array cost nothing, numbers of Python do
        older = ring[self._next :]
        return [*older[max(0, len(older) - (most - len(newest))) :], *newest]


class MetricHistory:
    """The metrics of running jobs over the last hour.

    Args:
        interval: seconds between two moments; shown with the answers.
        size: moments that are kept of each job.
        most_series: series of each job; those of further vertices are left out.
        most_in_all: series of all jobs together; beyond it the jobs that were silent for longest are dropped.
    """

    def __init__(self, interval: float, size: int, most_series: int = 2000, most_in_all: int = 6000) -> None:
        self.interval, self._size = interval, size
        self._most_series, self._most_in_all = most_series, most_in_all
        self._jobs: OrderedDict[str, _Rings] = OrderedDict()

    def record(self, archive: Mapping[str, Any], now_ms: int) -> None:
        """Add the present metrics of a job.

        Args:
            archive: of the job; it needs no rows of subtasks.
            now_ms: milliseconds since 1970.
        """
        rings = self._jobs.setdefault(archive["jid"], _Rings(self._size))
        self._jobs.move_to_end(archive["jid"])
        values: dict[Series, float] = {
            (JOB, name): float(value)
            for name, value in job_values(archive).items()
            if name in JOB_SERIES and isinstance(value, int | float) and value >= 0
        }
        values |= {(JOB, name): rate for name, rate in job_rates(archive).items()}
        last_totals, totals = rings.totals, {vertex["id"]: vertex["metrics"] for vertex in archive["vertices"]}
        for vertex in archive["vertices"]:
            then = None if last_totals is None else last_totals[1].get(vertex["id"])
            if then is not None and last_totals is not None and now_ms > last_totals[0]:
                rates = _rates(then, vertex["metrics"], (now_ms - last_totals[0]) / 1000, vertex["parallelism"])
                values |= {(vertex["id"], name): value for name, value in rates}
            values |= {(vertex["id"], name): value for name, value in _worst(vertex.get(WORST, {}), now_ms)}
        rings.totals = (now_ms, totals)
        rings.put(now_ms, values, self._most_series)
        while len(self._jobs) > 1 and sum(map(len, self._jobs.values())) > self._most_in_all:
            self._jobs.popitem(last=False)

    def keep(self, job_ids: Iterable[str]) -> None:
        """Forget all but these jobs."""
        for job_id in self._jobs.keys() - set(job_ids):
            del self._jobs[job_id]

    def of(self, job_id: str, vertex_id: str = JOB, since_ms: int = -1) -> t.MetricHistoryInfo:
        """Series of a vertex, or of the job itself: epoch ms, values or None, oldest first.

        There are none of a job that ended before this Dispatcher began, or that was dropped to make room.
        """
        rings = self._jobs.get(job_id)
        times, series = ([], {}) if rings is None else rings.shown(vertex_id, since_ms)
        return {
            "interval": round(self.interval * 1000),
            "size": self._size,
            "truncated": rings is not None and rings.left_out,
            "times": times,
            "series": series,
        }

    def sparkline(self, job_id: str) -> list[float | None]:
        """What a job's sources read in a second, as averages over ``SPARK_STEP`` moments each, oldest first."""
        rings = self._jobs.get(job_id)
        values = [] if rings is None else rings.last(RECORDS_IN, SPARK_STEP * SPARK_POINTS)
        averages: list[float | None] = []
        for first in range(0, len(values), SPARK_STEP):
            numbers = [value for value in values[first : first + SPARK_STEP] if not math.isnan(value)]
            averages.append(round(sum(numbers) / len(numbers), 1) if numbers else None)
        return averages


def _rates(
    then: Mapping[str, Any], now: Mapping[str, Any], seconds: float, parallelism: int
) -> Iterable[tuple[str, float]]:
    """Growth of totals per second; times as the average over subtasks. A total that fell has no rate: a restart has
    counted it anew."""
    for total, name in _RATES.items():
        if now[total] >= then[total]:
            yield name, (now[total] - then[total]) / seconds
    for total, name in _TIMES.items():
        if now[total] >= then[total]:
            yield name, min(1000.0, (now[total] - then[total]) / seconds / parallelism)


def _worst(worst: Mapping[str, Any], now_ms: int) -> Iterable[tuple[str, float]]:
    for key, name in _WORST.items():
        if key in worst:
            yield name, float(worst[key]["value"])
    if PENDING in worst:
        yield PENDING, float(worst[PENDING])
    watermark = worst.get("watermark", {}).get("value", _NO_WATERMARK)
    if -_NO_WATERMARK < watermark < _NO_WATERMARK:
        yield WATERMARK_LAG, float(now_ms - watermark)
