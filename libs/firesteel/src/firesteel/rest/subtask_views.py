"""REST answers about the subtasks of a vertex, from job archives: statistics, back pressure, accumulators. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from firesteel.graph.job_archive import COUNTERS, TASK_METRICS
from firesteel.rest import load_types
from firesteel.rest import types as t

SubtaskRow = Mapping[str, Any]
"""A subtask, as archives hold it."""
_HIGH, _LOW = 0.5, 0.1
_IDLE_STATES: Final = frozenset({"CREATED", "SCHEDULED", "DEPLOYING"})


def aggregated(subtasks: Sequence[SubtaskRow]) -> t.Aggregated:
    """``aggregated`` of a vertex: statistics of its subtasks' totals and of the time that they spent in each state."""
    if not subtasks:
        return {"metrics": {}, "status-duration": {}}
    totals = [name for name, value in subtasks[0]["metrics"].items() if not isinstance(value, bool)]
    states = subtasks[0]["status-duration"]
    return {
        "metrics": {name: _statistics(subtask["metrics"][name] for subtask in subtasks) for name in totals},
        "status-duration": {
            state: _statistics(subtask["status-duration"][state] for subtask in subtasks) for state in states
        },
    }


def _statistics(numbers: Iterable[float]) -> t.Statistics:
    ordered = sorted(numbers)
    total = sum(ordered)

    def quantile(share: float) -> float:
        return float(ordered[max(0, math.ceil(share * len(ordered)) - 1)])

    return {
        "min": ordered[0],
        "max": ordered[-1],
        "avg": int(total / len(ordered)),
        "sum": total,
        "median": quantile(0.5),
        "p25": quantile(0.25),
        "p75": quantile(0.75),
        "p95": quantile(0.95),
    }


def level_of(ratio: float) -> load_types.Level:
    """Flink's words for a share of time spent back-pressured."""
    return "high" if ratio > _HIGH else "low" if ratio > _LOW else "ok"


def back_pressure(vertex: Mapping[str, Any], now: int) -> load_types.BackPressure:
    """/jobs/:jobid/vertices/:vertexid/backpressure: shares of the last minute; nothing before a subtask has run."""
    rows: list[load_types.SubtaskBackPressure] = []
    ratios = []
    for subtask in vertex["subtasks"]:
        metrics = subtask.get(TASK_METRICS, {})
        if subtask["status"] in _IDLE_STATES or "busyTimeMsPerSecond" not in metrics:
            continue
        ratio = _share(metrics, "backPressuredTimeMs")
        level = level_of(ratio)
        ratios.append(ratio)
        rows.append(
            {
                "subtask": subtask["subtask"],
                "attempt-number": subtask["attempt"],
                "backpressureLevel": level,
                "backpressure-level": level,
                "ratio": ratio,
                "idleRatio": _share(metrics, "idleTimeMs"),
                "busyRatio": _share(metrics, "busyTimeMs"),
                "other-concurrent-attempts": [],
            }
        )
    if not rows:
        return {"status": "deprecated"}
    worst = level_of(max(ratios))
    return {
        "status": "ok",
        "backpressureLevel": worst,
        "backpressure-level": worst,
        "end-timestamp": now,
        "subtasks": rows,
    }


def _share(metrics: Mapping[str, Any], time: str) -> float:
    """Share of the last minute (0 to 1) that one of a subtask's times took."""
    return round(min(max(float(metrics.get(f"{time}PerSecond", 0)) / 1000, 0.0), 1.0), 3)


# -- accumulators: the counters of user functions


def accumulators_of(subtasks: Iterable[SubtaskRow]) -> list[t.Accumulator]:
    """The counters of user functions, summed up by their names, which are unique in a job as Flink's are."""
    sums: dict[str, int] = {}
    for subtask in subtasks:
        for name, value in subtask.get(COUNTERS, {}).items():
            sums[name] = sums.get(name, 0) + value
    return [{"name": name, "type": "LongCounter", "value": str(value)} for name, value in sums.items()]


def job_accumulators(subtasks: Iterable[SubtaskRow]) -> t.JobAccumulators:
    """/jobs/:jobid/accumulators, of the subtasks of all vertices."""
    return {
        "job-accumulators": [],
        "user-task-accumulators": accumulators_of(subtasks),
        "serialized-user-task-accumulators": {},
    }


def attempt_accumulators(vertex_id: str, attempt: SubtaskRow) -> t.AttemptAccumulators:
    """/jobs/:jobid/vertices/:vertexid/subtasks/:subtaskindex/attempts/:attempt/accumulators."""
    return {
        "subtask": attempt["subtask"],
        "attempt": attempt["attempt"],
        "id": f"{vertex_id}_{attempt['subtask']}_{attempt['attempt']}",
        "user-accumulators": accumulators_of([attempt]),
    }


def vertex_accumulators(vertex: Mapping[str, Any]) -> t.VertexAccumulators:
    """/jobs/:jobid/vertices/:vertexid/accumulators."""
    return {"id": vertex["id"], "user-accumulators": accumulators_of(vertex["subtasks"])}


def subtasks_accumulators(vertex: Mapping[str, Any]) -> t.SubtasksAccumulators:
    """/jobs/:jobid/vertices/:vertexid/subtasks/accumulators."""
    return {
        "id": vertex["id"],
        "parallelism": vertex["parallelism"],
        "subtasks": [
            {
                "subtask": subtask["subtask"],
                "attempt": subtask["attempt"],
                "endpoint": subtask["endpoint"],
                "user-accumulators": accumulators_of([subtask]),
            }
            for subtask in vertex["subtasks"]
        ],
    }
