"""REST answers about TaskManagers, from the reports of the ResourceManager and the JobMasters. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from firesteel.graph.job_archive import TASKMANAGERS
from firesteel.rest import types as t
from firesteel.rest.picking import picked

UNKNOWN: Final = -1
"""Stands for a number that Flink has and that is not measured here."""


def tasks_by_taskmanager(archives: Iterable[Mapping[str, Any]]) -> Counter[tuple[str, str]]:
    """How many tasks of each job each TaskManager runs: (TaskManager id, job id) -> count."""
    return Counter(
        {
            (taskmanager_id, archive["jid"]): count
            for archive in archives
            for taskmanager_id, count in archive.get(TASKMANAGERS, {}).items()
        }
    )


def taskmanager_row(taskmanager: Mapping[str, Any], tasks: Mapping[tuple[str, str], int]) -> t.TaskManager:
    """One item of /taskmanagers.

    Args:
        taskmanager: the ResourceManager's report of it.
        tasks: see ``tasks_by_taskmanager``.
    """
    hardware, memory = taskmanager.get("hardware", {}), taskmanager.get("memoryConfiguration", {})
    return picked(
        t.TaskManager,
        {
            "path": "", "dataPort": UNKNOWN, "jmxPort": UNKNOWN, "timeSinceLastHeartbeat": 0, "slotsNumber": 0,
            "freeSlots": 0,
            **taskmanager,
            "totalResource": _resource(taskmanager.get("totalResource", {})),
            "freeResource": _resource(taskmanager.get("freeResource", {})),
            "hardware": picked(t.Hardware, {**dict.fromkeys(t.Hardware.__annotations__, 0), **hardware}),
            "memoryConfiguration": picked(
                t.MemoryConfiguration, {**dict.fromkeys(t.MemoryConfiguration.__annotations__), **memory}
            ),
            "assignedTasks": sum(count for (id_, _), count in tasks.items() if id_ == taskmanager["id"]),
        },
    )  # fmt: skip


def _resource(resource: Mapping[str, Any]) -> t.Resource:
    nothing = {**dict.fromkeys(t.Resource.__annotations__, 0), "cpuCores": 0.0, "extendedResources": {}}
    return picked(t.Resource, {**nothing, **resource})


def taskmanager_details(
    taskmanager: Mapping[str, Any],
    tasks: Mapping[tuple[str, str], int],
    measured: Mapping[str, Any] | None = None,
    slot_uses: Mapping[str, Mapping[str, Any]] | None = None,
) -> t.TaskManagerDetails:
    """/taskmanagers/:taskmanagerid.

    Args:
        taskmanager: as in ``taskmanager_row``.
        tasks: as in ``taskmanager_row``.
        measured: metrics of the TaskManager's process, by Flink's names.
        slot_uses: memory and processor that its slots use, by allocation.
    """
    slots = taskmanager.get("allocatedSlots", ())
    remaining_tasks = dict(tasks)
    remaining_slots: Counter[str] = Counter(slot["jobId"] for slot in slots)
    allocated: list[t.AllocatedSlot] = []
    for slot in slots:
        # Which slot runs which task is not reported: a job's tasks are spread over its slots as evenly as it goes.
        key = (taskmanager["id"], slot["jobId"])
        count = -(-remaining_tasks.get(key, 0) // remaining_slots[slot["jobId"]])
        remaining_tasks[key] = remaining_tasks.get(key, 0) - count
        remaining_slots[slot["jobId"]] -= 1
        resource = _resource(slot.get("resource", {}))
        use = (slot_uses or {}).get(str(slot.get("allocationId")), {})
        allocated.append(picked(t.AllocatedSlot, {"assignedTasks": count, **slot, **use, "resource": resource}))
    return {**taskmanager_row(taskmanager, tasks), "allocatedSlots": allocated, "metrics": _metrics(measured or {})}


def _metrics(values: Mapping[str, Any]) -> t.TaskManagerMetrics:
    def number(name: str) -> int:
        return int(values.get(f"Status.{name}", UNKNOWN))

    prefix, suffix = "Status.JVM.GarbageCollector.", ".Count"
    collectors: list[t.GarbageCollector] = [
        {"name": name, "count": int(values[key]), "time": int(values.get(f"{prefix}{name}.Time", 0))}
        for key in values
        if key.startswith(prefix) and key.endswith(suffix) and (name := key[len(prefix) : -len(suffix)])
    ]
    return {
        "heapUsed": number("JVM.Memory.Heap.Used"),
        "heapCommitted": number("JVM.Memory.Heap.Committed"),
        "heapMax": number("JVM.Memory.Heap.Max"),
        "nonHeapUsed": number("JVM.Memory.NonHeap.Used"),
        "nonHeapCommitted": number("JVM.Memory.NonHeap.Committed"),
        "nonHeapMax": number("JVM.Memory.NonHeap.Max"),
        "directCount": number("JVM.Memory.Direct.Count"),
        "directUsed": number("JVM.Memory.Direct.MemoryUsed"),
        "directMax": number("JVM.Memory.Direct.TotalCapacity"),
        "mappedCount": number("JVM.Memory.Mapped.Count"),
        "mappedUsed": number("JVM.Memory.Mapped.MemoryUsed"),
        "mappedMax": number("JVM.Memory.Mapped.TotalCapacity"),
        "nettyShuffleMemorySegmentsAvailable": number("Shuffle.Netty.AvailableMemorySegments"),
        "nettyShuffleMemorySegmentsUsed": number("Shuffle.Netty.UsedMemorySegments"),
        "nettyShuffleMemorySegmentsTotal": number("Shuffle.Netty.TotalMemorySegments"),
        "nettyShuffleMemoryAvailable": number("Shuffle.Netty.AvailableMemory"),
        "nettyShuffleMemoryUsed": number("Shuffle.Netty.UsedMemory"),
        "nettyShuffleMemoryTotal": number("Shuffle.Netty.TotalMemory"),
        "garbageCollectors": collectors,
    }
