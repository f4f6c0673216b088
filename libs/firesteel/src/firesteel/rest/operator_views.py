"""REST answers about the operators inside a chain, from job archives: pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from firesteel.graph.job_archive import TASK_METRICS
from firesteel.rest import load_types as t
from firesteel.rest.archive_cache import Archive
from firesteel.rest.views import find_vertex

_OWN_TIME: Final = "accumulateOwnTimeMs"
_LATE: Final = "numLateRecordsDropped"
_SUMS: Final = {
    "records-in": "numRecordsIn",
    "records-out": "numRecordsOut",
    "records-in-per-second": "numRecordsInPerSecond",
    "records-out-per-second": "numRecordsOutPerSecond",
    "own-time-ms": _OWN_TIME,
    "own-time-ms-per-second": "ownTimeMsPerSecond",
}
_BUSY: Final = "busyTimeMsPerSecond"


def vertex_operators(archive: Archive, vertex_id: str) -> t.VertexOperators:
    """/jobs/:jobid/vertices/:vertexid/operators: sums over all subtasks, in the order of the chain.

    What is left of the busy time was spent on reading, partitioning and sending records.
    """
    vertex = find_vertex(archive, vertex_id)
    operators: dict[str, dict[str, Any]] = {}
    busy = 0.0
    for subtask in vertex["subtasks"]:
        metrics: Mapping[str, Any] = subtask.get(TASK_METRICS, {})
        busy += metrics.get(_BUSY, 0)
        for metric in metrics:
            name, dot, last = metric.rpartition(".")
            if dot and last == _OWN_TIME and "." not in name:
                _add(operators.setdefault(name, {}), name, metrics, subtask["subtask"])
    rows = [_row(name, sums) for name, sums in operators.items()]
    return {
        "id": vertex["id"],
        "name": vertex["name"],
        "now": archive["now"],
        "busy-time-ms-per-second": busy,
        "operators": rows,
    }


def _add(sums: dict[str, Any], name: str, metrics: Mapping[str, Any], subtask: int) -> None:
    for field, metric in _SUMS.items():
        sums[field] = sums.get(field, 0) + metrics.get(f"{name}.{metric}", 0)
    late = metrics.get(f"{name}.{_LATE}")
    if isinstance(late, int):
        sums["late-records"] = sums.get("late-records", 0) + late
    own = metrics.get(f"{name}.ownTimeMsPerSecond", 0)
    if "busiest" not in sums or own > sums["busiest"]["value"]:
        sums["busiest"] = {"value": own, "subtask": subtask}


def _row(name: str, sums: Mapping[str, Any]) -> t.OperatorRow:
    return {
        "name": name,
        "records-in": int(sums["records-in"]),
        "records-out": int(sums["records-out"]),
        "records-in-per-second": sums["records-in-per-second"],
        "records-out-per-second": sums["records-out-per-second"],
        "own-time-ms": sums["own-time-ms"],
        "own-time-ms-per-second": sums["own-time-ms-per-second"],
        "busiest": sums["busiest"],
        **({"late-records": sums["late-records"]} if "late-records" in sums else {}),  # type: ignore[typeddict-item]
    }
