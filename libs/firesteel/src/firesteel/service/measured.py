"""Metrics of a service: named values with labels, in Flink's scopes."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from firesteel.core.machine import physical_memory
from firesteel.metrics.reporter import Measured

__all__ = ["JOBMANAGER", "TASKMANAGER", "Measured", "ProcessUse", "numbers", "of_job", "summaries_of"]

JOBMANAGER: Final = ("jobmanager",)
TASKMANAGER: Final = ("taskmanager",)
QUANTILES: Final[Mapping[str, float]] = {
    "median": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p98": 0.98, "p99": 0.99, "p999": 0.999,
}  # fmt: skip
"""Suffixes of the names of a distribution's values -> their quantiles."""


def numbers(
    scope: tuple[str, ...], values: Mapping[str, Any], labels: Mapping[str, str], growing: Collection[str] = ()
) -> list[Measured]:
    """Metrics of those values that are numbers.

    Args:
        scope: of all metrics.
        values: by name.
        labels: of all metrics.
        growing: names of counters, whose values never become smaller.
    """
    return [
        Measured(scope, name, number, labels, grows=name in growing)
        for name, value in values.items()
        if (number := _number(value)) is not None
    ]


def of_job(job_id: str, name: str, values: Mapping[str, Any], labels: Mapping[str, str]) -> list[Measured]:
    """Metrics of a job that its JobMaster measures, such as restarts and checkpoints."""
    return numbers((*JOBMANAGER, "job"), values, {**labels, "job_id": job_id, "job_name": name})


def summaries_of(values: Mapping[str, Any]) -> tuple[dict[str, tuple[float, float, dict[float, float]]], set[str]]:
    """Distributions among the values of user functions.

    Returns:
        Name -> number of values, their sum, quantiles; and the names of all values that belong to distributions.
    """
    summaries: dict[str, tuple[float, float, dict[float, float]]] = {}
    used: set[str] = set()
    for name in values:
        base = name.removesuffix("_count")
        count, total = _number(values[name]), _number(values.get(f"{base}_sum"))
        if base == name or count is None or total is None:
            continue
        names = {f"{base}_{end}": quantile for end, quantile in QUANTILES.items()}
        read = {quantile: _number(values.get(key)) for key, quantile in names.items()}
        summaries[base] = count, total, {quantile: value for quantile, value in read.items() if value is not None}
        used |= {name, f"{base}_sum", *names}
    return summaries, used


def _number(value: Any) -> float | None:
    """The number that a value is, or None; numbers that JSON does not have come as texts."""
    if isinstance(value, int | float):
        return value
    return float(value) if value in ("inf", "-inf", "nan") else None


class ProcessUse:
    """Use of the machine by this process, under the names of Flink's ``Status.JVM``, although there is no JVM here."""

    def __init__(self) -> None:
        self._last = time.monotonic(), time.process_time()

    def measure(self, scope: tuple[str, ...], labels: Mapping[str, str]) -> list[Measured]:
        """The present use; the load is the average since the last call."""
        now, used = time.monotonic(), time.process_time()
        (measured_at, used_before), self._last = self._last, (now, used)
        values = {
            "CPU_Load": (used - used_before) / (now - measured_at) if now > measured_at else 0.0,
            "CPU_Time": int(used * 1e9),
            "Memory_Heap_Used": (resident := _resident_bytes()),
            "Memory_Heap_Committed": resident,
            "Memory_Heap_Max": physical_memory(),
            "ClassLoader_ClassesLoaded": len(sys.modules),
            "Threads_Count": threading.active_count(),
            "GarbageCollector_All_Count": sum(generation["collections"] for generation in gc.get_stats()),
        }
        return numbers((*scope, "Status", "JVM"), values, labels)


def _resident_bytes() -> int | None:
    try:
        lines: Iterable[str] = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:")), None)
