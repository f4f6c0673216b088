"""REST answers about TaskManagers, made from what the ResourceManager and the JobMasters say. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from firesteel.graph.job_archive import TASKMANAGERS

_RESOURCE: Final = {
    "cpuCores": 0.0, "taskHeapMemory": 0, "taskOffHeapMemory": 0, "managedMemory": 0, "networkMemory": 0,
    "extendedResources": {},
}  # fmt: skip
_ROW: Final[Mapping[str, Any]] = {
    "id": "", "path": "", "dataPort": -1, "jmxPort": -1, "timeSinceLastHeartbeat": 0, "slotsNumber": 0, "freeSlots": 0,
}  # fmt: skip
_HARDWARE: Final = {"cpuCores": 0, "physicalMemory": 0, "freeMemory": 0, "managedMemory": 0}
_MEMORY: Final = dict.fromkeys(
    (
        "frameworkHeap", "taskHeap", "frameworkOffHeap", "taskOffHeap", "networkMemory", "managedMemory",
        "jvmMetaspace", "jvmOverhead", "totalFlinkMemory", "totalProcessMemory",
    )
)  # fmt: skip
_METRICS: Final = {
    "heapUsed": "JVM.Memory.Heap.Used",
    "heapCommitted": "JVM.Memory.Heap.Committed",
    "heapMax": "JVM.Memory.Heap.Max",
    "nonHeapUsed": "JVM.Memory.NonHeap.Used",
    "nonHeapCommitted": "JVM.Memory.NonHeap.Committed",
    "nonHeapMax": "JVM.Memory.NonHeap.Max",
    "directCount": "JVM.Memory.Direct.Count",
    "directUsed": "JVM.Memory.Direct.MemoryUsed",
    "directMax": "JVM.Memory.Direct.TotalCapacity",
    "mappedCount": "JVM.Memory.Mapped.Count",
    "mappedUsed": "JVM.Memory.Mapped.MemoryUsed",
    "mappedMax": "JVM.Memory.Mapped.TotalCapacity",
    "nettyShuffleMemorySegmentsAvailable": "Shuffle.Netty.AvailableMemorySegments",
    "nettyShuffleMemorySegmentsUsed": "Shuffle.Netty.UsedMemorySegments",
    "nettyShuffleMemorySegmentsTotal": "Shuffle.Netty.TotalMemorySegments",
    "nettyShuffleMemoryAvailable": "Shuffle.Netty.AvailableMemory",
    "nettyShuffleMemoryUsed": "Shuffle.Netty.UsedMemory",
    "nettyShuffleMemoryTotal": "Shuffle.Netty.TotalMemory",
}
"""Names in the details of a TaskManager -> ends of the names of its metrics."""
UNKNOWN: Final = -1
"""Stands where Flink has a number that is not measured here."""


def tasks_by_taskmanager(archives: Iterable[Mapping[str, Any]]) -> Counter[tuple[str, str]]:
    """How many tasks of each job each TaskManager runs: (TaskManager id, job id) -> count."""
    return Counter(
        {
            (taskmanager_id, archive["jid"]): count
            for archive in archives
            for taskmanager_id, count in archive.get(TASKMANAGERS, {}).items()
        }
    )


def taskmanager_row(found: Mapping[str, Any], tasks: Mapping[tuple[str, str], int]) -> dict[str, Any]:
    """One item of /taskmanagers.

    Args:
        found: what the ResourceManager says of it.
        tasks: see ``tasks_by_taskmanager``.
    """
    row = {**_ROW, **{key: value for key, value in found.items() if key != "allocatedSlots"}}
    return {
        **row,
        "assignedTasks": sum(count for (where, _), count in tasks.items() if where == row["id"]),
        "totalResource": {**_RESOURCE, **found.get("totalResource", {})},
        "freeResource": {**_RESOURCE, **found.get("freeResource", {})},
        "hardware": {**_HARDWARE, **found.get("hardware", {})},
        "memoryConfiguration": {**_MEMORY, **found.get("memoryConfiguration", {})},
    }


def taskmanager_details(
    found: Mapping[str, Any], tasks: Mapping[tuple[str, str], int], measured: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """/taskmanagers/:taskmanagerid.

    Args:
        found: as in ``taskmanager_row``.
        tasks: as there.
        measured: what it measures of itself, by Flink's names.
    """
    row = taskmanager_row(found, tasks)
    slots = found.get("allocatedSlots", ())
    left = dict(tasks)
    shares: Counter[str] = Counter(slot["jobId"] for slot in slots)
    allocated = []
    for slot in slots:
        key = (row["id"], slot["jobId"])
        count = -(-left.get(key, 0) // shares[slot["jobId"]])  # as even as it goes: which slot runs which is not told
        left[key] = left.get(key, 0) - count
        shares[slot["jobId"]] -= 1
        resource = {**_RESOURCE, **slot.get("resource", {})}
        allocated.append({**slot, "resource": resource, "assignedTasks": slot.get("assignedTasks", count)})
    return {**row, "allocatedSlots": allocated, "metrics": _metrics(measured or {})}


def _metrics(values: Mapping[str, Any]) -> dict[str, Any]:
    found = {short: int(values.get(f"Status.{name}", UNKNOWN)) for short, name in _METRICS.items()}
    prefix, suffix = "Status.JVM.GarbageCollector.", ".Count"
    collectors = [
        {"name": name, "count": int(values[key]), "time": int(values.get(f"{prefix}{name}.Time", 0))}
        for key in values
        if key.startswith(prefix) and key.endswith(suffix) and (name := key[len(prefix) : -len(suffix)])
    ]
    return {**found, "garbageCollectors": collectors}
