"""An ExecutionGraph as plain data, from which REST answers about the job are made, also after its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from firesteel.common.job_status import JobStatus
from firesteel.core.state_machine import StateMachine
from firesteel.graph.execution_graph import Execution, ExecutionGraph, ExecutionJobVertex, FailureRecord
from firesteel.graph.execution_states import ExecutionState
from firesteel.graph.plan import job_plan

_COUNTERS = {
    "read-bytes": "numBytesIn",
    "write-bytes": "numBytesOut",
    "read-records": "numRecordsIn",
    "write-records": "numRecordsOut",
}
_TIMES = {
    "accumulated-backpressured-time": "backPressuredTimeMs",
    "accumulated-idle-time": "idleTimeMs",
    "accumulated-busy-time": "busyTimeMs",
}
TASK_METRICS = "task-metrics"
"""Of a subtask: all metrics by their ids, for the paths below ``/metrics``."""
CLEAN_UP = "checkpoint-clean-up"
"""Of a job that has ended: what becomes of its checkpoints (``firesteel.checkpoint.closing``); None = nothing."""
IF_CANCELLED = "checkpoint-clean-up-if-cancelled"
"""Of a job that nobody leads: the same for the case that it is cancelled before somebody does."""
_DOWN = (JobStatus.FAILING, JobStatus.RESTARTING, JobStatus.CANCELLING)
_FAILED = (JobStatus.FAILING, JobStatus.FAILED)
_TIMED_STATES = (
    ExecutionState.CREATED,
    ExecutionState.SCHEDULED,
    ExecutionState.DEPLOYING,
    ExecutionState.INITIALIZING,
    ExecutionState.RUNNING,
)


def archive_of(graph: ExecutionGraph, plan: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Everything about a job, in Flink's names: epoch milliseconds; -1 = not yet, 0 in ``timestamps`` = never.

    Args:
        graph: of the job.
        plan: of its JobGraph, if it was made before.
    """
    now = graph.clock.epoch_ms()
    job = graph.job_graph
    stamps = job_timestamps(graph)
    end = stamps[graph.state.name] if graph.is_terminal else -1
    start = stamps[JobStatus.INITIALIZING.name]
    root = graph.root_failure
    return {
        "jid": job.job_id,
        "name": job.name,
        "state": graph.state.name,
        "isStoppable": False,
        "job-type": "STREAMING",
        "start-time": start,
        "end-time": end,
        "duration": (end if end >= 0 else now) - start,
        "net-runtime": _net_runtime(stamps, end if end >= 0 else now),
        "now": now,
        "maxParallelism": _max_parallelism(job.config),
        "timestamps": stamps,
        "plan": dict(plan if plan is not None else job_plan(job)),
        "vertices": [_vertex(v, now) for v in graph.vertices.values()],
        "status-counts": _counts(v.state for v in graph.vertices.values()),
        "exceptions": [
            {**_failure(f.root), "concurrent": [_failure(one) for one in f.concurrent]} for f in graph.failures
        ],
        "exceptions-dropped": graph.failures_dropped,
        "failure": dict(root.failure) if root is not None and graph.state in _FAILED else None,
        "restarts": restart_times(graph, end if end >= 0 else now),
        "config": dict(job.config),
    }


def job_timestamps(graph: ExecutionGraph) -> dict[str, int]:
    """For every job state the epoch ms of its last entry; 0 = never."""
    return {state.name: graph.job.entered_ms.get(state, 0) for state in JobStatus}


def restart_times(graph: ExecutionGraph, now: int) -> dict[str, int]:
    """Metrics of a job about its restarts, by Flink's names; times in ms."""
    stamps, state = job_timestamps(graph), graph.state
    up = now - stamps[JobStatus.RUNNING.name] if state is JobStatus.RUNNING else 0 if not graph.is_terminal else -1
    since = max((stamps[s.name] for s in _DOWN), default=0)
    down = now - since if state in _DOWN and since else 0 if not graph.is_terminal else -1
    return {
        "numRestarts": graph.restarts,
        "fullRestarts": graph.restarts,
        "uptime": up,
        "downtime": down,
        "restartingTime": graph.restarting_ms(now),
    }


def _net_runtime(stamps: Mapping[str, int], end: int) -> int:
    began = stamps[JobStatus.RUNNING.name]
    return max(0, end - began) if began else 0


def _max_parallelism(config: Mapping[str, str]) -> int:
    try:
        return int(config.get("pipeline.max-parallelism", -1))
    except ValueError:
        return -1


def _counts(states: Iterable[ExecutionState]) -> dict[str, int]:
    counted = Counter(states)
    return {state.value: counted[state] for state in ExecutionState}


def _failure(record: FailureRecord) -> dict[str, Any]:
    return {
        **record.failure,
        "timestamp": record.timestamp_ms,
        "taskName": record.task_name,
        "endpoint": record.endpoint,
        "taskManagerId": record.taskmanager_id,
    }


def _vertex(job_vertex: ExecutionJobVertex, now: int) -> dict[str, Any]:
    vertex = job_vertex.vertex
    subtasks = [
        {**_subtask(one.current, now), "attempts": [_subtask(e, now) for e in one.attempts[:-1]]}
        for one in job_vertex.subtasks
    ]
    started = [s["start-time"] for s in subtasks if s["start-time"] >= 0]
    start = min(started, default=-1)
    end = max(s["end-time"] for s in subtasks) if all(e.state.is_terminal for e in job_vertex.executions()) else -1
    return {
        "id": vertex.id,
        "name": vertex.name,
        "parallelism": vertex.parallelism,
        "maxParallelism": vertex.max_parallelism,
        "slotSharingGroupId": vertex.slot_sharing_group,
        "status": job_vertex.state.value,
        "start-time": start,
        "end-time": end,
        "duration": _duration(start, end, now),
        "tasks": _counts(e.state for e in job_vertex.executions()),
        "metrics": _sum_metrics([s["metrics"] for s in subtasks]),
        "subtasks": subtasks,
    }


def _subtask(execution: Execution, now: int) -> dict[str, Any]:
    machine = execution.machine
    start = machine.entered_ms.get(ExecutionState.DEPLOYING, -1)
    end = machine.entered_ms[execution.state] if execution.state.is_terminal else -1
    slot = execution.slot
    return {
        "subtask": execution.subtask,
        "status": execution.state.value,
        "attempt": execution.attempt,
        "endpoint": slot.endpoint if slot else "(unassigned)",
        "taskmanager-id": slot.taskmanager_id if slot else "(unassigned)",
        "start-time": start,
        "start_time": start,
        "end-time": end,
        "duration": _duration(start, end, now),
        "metrics": _metrics(execution),
        TASK_METRICS: {**execution.metrics, **execution.user_metrics},
        "status-duration": _status_durations(machine, now),
        "timestamps": {state.value: machine.entered_ms.get(state, 0) for state in ExecutionState},
    }


def _duration(start: int, end: int, now: int) -> int:
    return -1 if start < 0 else (end if end >= 0 else now) - start


def _status_durations(machine: StateMachine[ExecutionState], now: int) -> dict[str, int]:
    left = {t.before: t.at_ms for t in machine.history}
    return {
        state.value: left.get(state, now) - machine.entered_ms[state] if state in machine.entered_ms else -1
        for state in _TIMED_STATES
    }


def _metrics(execution: Execution) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, ours in _COUNTERS.items():
        values[name] = int(execution.metrics.get(ours, 0))
        values[f"{name}-complete"] = execution.metrics_complete
    for name, ours in _TIMES.items():
        total = execution.metrics.get(ours, 0)
        values[name] = float(total) if name == "accumulated-busy-time" else int(total)
    return values


def _sum_metrics(parts: list[dict[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name in _COUNTERS:
        result[name] = sum(p[name] for p in parts)
        result[f"{name}-complete"] = all(p[f"{name}-complete"] for p in parts)
    for name in _TIMES:
        result[name] = sum(p[name] for p in parts)
    return result
