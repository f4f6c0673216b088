"""REST answers about the subtasks of a vertex, from job archives: statistics, back pressure, accumulators. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from firesteel.graph.job_archive import COUNTERS, TASK_METRICS

Subtask = Mapping[str, Any]
_HIGH, _LOW = 0.5, 0.1
_SHARES: Final = {"ratio": "backPressuredTimeMs", "idleRatio": "idleTimeMs", "busyRatio": "busyTimeMs"}
_IDLE_STATES: Final = frozenset({"CREATED", "SCHEDULED", "DEPLOYING"})


def aggregated(subtasks: Sequence[Subtask]) -> dict[str, Any]:
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


def _statistics(numbers: Iterable[float]) -> dict[str, float]:
    ordered = sorted(numbers)
    total = sum(ordered)
    quantiles = {"median": 0.5, "p25": 0.25, "p75": 0.75, "p95": 0.95}
    return {
        "min": ordered[0],
        "max": ordered[-1],
        "avg": int(total / len(ordered)),
        "sum": total,
        **{name: float(ordered[max(0, math.ceil(q * len(ordered)) - 1)]) for name, q in quantiles.items()},
    }


def level_of(ratio: float) -> str:
    """Flink's words for a share of time spent back-pressured."""
    return "high" if ratio > _HIGH else "low" if ratio > _LOW else "ok"


def back_pressure(vertex: Mapping[str, Any], now: int) -> dict[str, Any]:
    """/jobs/:jobid/vertices/:vertexid/backpressure: shares of the last minute; nothing before a subtask has run."""
    rows = []
    for subtask in vertex["subtasks"]:
        metrics = subtask.get(TASK_METRICS, {})
        if subtask["status"] in _IDLE_STATES or "busyTimeMsPerSecond" not in metrics:
            continue
        shares = {name: _share(metrics.get(f"{total}PerSecond", 0)) for name, total in _SHARES.items()}
        level = level_of(shares["ratio"])
        rows.append(
            {
                "subtask": subtask["subtask"],
                "attempt-number": subtask["attempt"],
                "backpressureLevel": level,
                "backpressure-level": level,
                **shares,
                "other-concurrent-attempts": [],
            }
        )
    if not rows:
        return {"status": "deprecated"}
    worst = level_of(max(row["ratio"] for row in rows))
    return {
        "status": "ok",
        "backpressureLevel": worst,
        "backpressure-level": worst,
        "end-timestamp": now,
        "subtasks": rows,
    }


def _share(per_second: Any) -> float:
    return round(min(max(float(per_second) / 1000, 0.0), 1.0), 3)


# -- accumulators: the counters of user functions


def accumulators_of(subtasks: Iterable[Subtask]) -> list[dict[str, str]]:
    """The counters of user functions, summed up by their names, which are unique in a job as Flink's are."""
    sums: dict[str, int] = {}
    for subtask in subtasks:
        for name, value in _counters(subtask).items():
            sums[name] = sums.get(name, 0) + value
    return [{"name": name, "type": "LongCounter", "value": str(value)} for name, value in sums.items()]


def _counters(subtask: Subtask) -> Mapping[str, int]:
    found: Mapping[str, int] = subtask.get(COUNTERS, {})
    return found


def job_accumulators(subtasks: Iterable[Subtask]) -> dict[str, Any]:
    """/jobs/:jobid/accumulators, of the subtasks of all vertices."""
    return {
        "job-accumulators": [],
        "user-task-accumulators": accumulators_of(subtasks),
        "serialized-user-task-accumulators": {},
    }


def attempt_accumulators(vertex_id: str, attempt: Subtask) -> dict[str, Any]:
    """/jobs/:jobid/vertices/:vertexid/subtasks/:subtaskindex/attempts/:attempt/accumulators."""
    return {
        "subtask": attempt["subtask"],
        "attempt": attempt["attempt"],
        "id": f"{vertex_id}_{attempt['subtask']}_{attempt['attempt']}",
        "user-accumulators": accumulators_of([attempt]),
    }


def vertex_accumulators(vertex: Mapping[str, Any]) -> dict[str, Any]:
    """/jobs/:jobid/vertices/:vertexid/accumulators."""
    return {"id": vertex["id"], "user-accumulators": accumulators_of(vertex["subtasks"])}


def subtasks_accumulators(vertex: Mapping[str, Any]) -> dict[str, Any]:
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
