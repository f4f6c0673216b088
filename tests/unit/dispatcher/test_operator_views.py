"""The operators inside a chain, over all subtasks of a vertex."""

from __future__ import annotations

from typing import Any

from firesteel.graph.job_archive import TASK_METRICS
from firesteel.rest.operator_views import vertex_operators


def subtask(number: int, **operators: tuple[int, int, float, float]) -> dict[str, Any]:
    metrics: dict[str, Any] = {"busyTimeMsPerSecond": 400.0, "Window.group.accumulateOwnTimeMs": 7, "numRecordsIn": 9}
    for name, (records_in, records_out, total, rate) in operators.items():
        metrics |= {
            f"{name}.numRecordsIn": records_in, f"{name}.numRecordsOut": records_out,
            f"{name}.numRecordsInPerSecond": 2.0, f"{name}.numRecordsOutPerSecond": 1.0,
            f"{name}.accumulateOwnTimeMs": total, f"{name}.ownTimeMsPerSecond": rate,
        }  # fmt: skip
    return {"subtask": number, TASK_METRICS: metrics}


def test_operators_are_summed_in_the_order_of_the_chain() -> None:
    second = subtask(1, Map=(5, 5, 30.0, 20.0), Window=(5, 2, 70.0, 300.0))
    second[TASK_METRICS]["Window.numLateRecordsDropped"] = 3
    subtasks = [subtask(0, Map=(10, 10, 50.0, 40.0), Window=(10, 1, 5.0, 30.0)), second]
    archive = {"jid": "j", "now": 5, "vertices": [{"id": "v", "name": "Map -> Window", "subtasks": subtasks}]}
    answer = vertex_operators(archive, "v")
    assert answer["busy-time-ms-per-second"] == 800
    assert answer["operators"] == [
        {
            "name": "Map", "records-in": 15, "records-out": 15, "records-in-per-second": 4.0,
            "records-out-per-second": 2.0, "own-time-ms": 80.0, "own-time-ms-per-second": 60.0,
            "busiest": {"value": 40.0, "subtask": 0},
        },
        {
            "name": "Window", "records-in": 15, "records-out": 3, "records-in-per-second": 4.0,
            "records-out-per-second": 2.0, "own-time-ms": 75.0, "own-time-ms-per-second": 330.0,
            "busiest": {"value": 300.0, "subtask": 1}, "late-records": 3,
        },
    ]  # fmt: skip


def test_a_vertex_whose_tasks_have_reported_nothing_has_none() -> None:
    archive = {"jid": "j", "now": 5, "vertices": [{"id": "v", "name": "Map", "subtasks": [{"subtask": 0}]}]}
    assert vertex_operators(archive, "v")["operators"] == []
