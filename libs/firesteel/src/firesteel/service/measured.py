"""What a service measures: named values with labels, in Flink's scopes."""

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
"""Ends of the names of a distribution's values -> the quantiles that they are."""


def numbers(
    scope: tuple[str, ...], values: Mapping[str, Any], labels: Mapping[str, str], growing: Collection[str] = ()
) -> list[Measured]:
    """All of the values that are numbers.

    Args:
        scope: of all of them.
        values: by name.
        labels: of all of them.
        growing: names of those that count something, and never become smaller.
    """
    return [
        Measured(scope, name, number, labels, grows=name in growing)
        for name, value in values.items()
        if (number := _number(value)) is not None
    ]


def of_job(job_id: str, name: str, values: Mapping[str, Any], labels: Mapping[str, str]) -> list[Measured]:
    """What a JobMaster knows of its job: restarts, checkpoints."""
    return numbers((*JOBMANAGER, "job"), values, {**labels, "job_id": job_id, "job_name": name})


def summaries_of(values: Mapping[str, Any]) -> tuple[dict[str, tuple[float, float, dict[float, float]]], set[str]]:
    """Distributions among the values of user functions.

    Returns:
        Name -> number of values, their sum, quantiles; and the names of the values that are in these.
    """
    found: dict[str, tuple[float, float, dict[float, float]]] = {}
    used: set[str] = set()
    for name in values:
        base = name.removesuffix("_count")
        count, total = _number(values[name]), _number(values.get(f"{base}_sum"))
        if base == name or count is None or total is None:
            continue
        names = {f"{base}_{end}": quantile for end, quantile in QUANTILES.items()}
        read = {quantile: _number(values.get(one)) for one, quantile in names.items()}
        found[base] = count, total, {quantile: value for quantile, value in read.items() if value is not None}
        used |= {name, f"{base}_sum", *names}
    return found, used


def _number(value: Any) -> float | None:
    """Numbers that JSON has no place for come as texts."""
    if isinstance(value, int | float):
        return value
    return float(value) if value in ("inf", "-inf", "nan") else None


class ProcessUse:
    """What this process takes of the machine, under the names of Flink's ``Status.JVM``: there is no JVM here."""

    def __init__(self) -> None:
        self._before = time.monotonic(), time.process_time()

    def measure(self, scope: tuple[str, ...], labels: Mapping[str, str]) -> list[Measured]:
        """Now; the load is that since the last time."""
        now, used = time.monotonic(), time.process_time()
        (before, used_before), self._before = self._before, (now, used)
        values = {
            "CPU_Load": (used - used_before) / (now - before) if now > before else 0.0,
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
