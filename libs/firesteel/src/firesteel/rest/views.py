"""REST answers about jobs, made from job archives: pure functions, with the names that Flink uses."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from firesteel.config import Settings, options
from firesteel.config.restarts import restart_strategy_type
from firesteel.core.errors import FiresteelError
from firesteel.graph.job_archive import CLEAN_UP, COUNTERS, HISTORY, LOGS, REACTIVE, TASK_METRICS, TASKMANAGERS
from firesteel.protocol.deployment import METRIC_RATES, POOL_USAGES
from firesteel.rest.job_settings import all_for_job
from firesteel.rest.subtask_views import aggregated

Archive = Mapping[str, Any]
_APPLICATION_STATUS = {"FINISHED": "SUCCEEDED", "CANCELED": "CANCELED", "FAILED": "FAILED"}
_APPLICATION = options.APPLICATION_ID.key
_TASK_STATES = (
    "CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING", "FINISHED", "CANCELING", "CANCELED", "FAILED",
    "RECONCILING",
)  # fmt: skip
_PARALLELISM = "parallelism.default"
CHECKPOINT_WARNING = "firesteel-checkpoint-warning"
"""What is wrong with the pace of a job's checkpoints, if something is."""
_ID = re.compile(r"[0-9a-f]{32}")
_HIDDEN = frozenset({"timestamps", TASK_METRICS, COUNTERS, "attempts"})
"""Of a subtask: what has paths of its own."""
_NOW = (*METRIC_RATES.values(), *POOL_USAGES, "currentInputWatermark", "currentOutputWatermark")
_NOT_IN_DETAILS = frozenset(
    {
        "vertices", "failure", "exceptions", "exceptions-dropped", "config", "net-runtime", "firesteel-settings",
        "checkpoints", "restarts", CLEAN_UP, HISTORY, LOGS, REACTIVE, TASKMANAGERS,
    }
)  # fmt: skip


class UnknownVertexError(FiresteelError):
    """The job has no such vertex."""


def job_overview(archive: Archive) -> dict[str, Any]:
    """One item of /jobs/overview."""
    tasks: Counter[str] = sum((Counter(vertex["tasks"]) for vertex in archive["vertices"]), Counter())
    return {
        "jid": archive["jid"],
        "name": archive["name"],
        "jobType": archive.get("job-type", "STREAMING"),
        "schedulerType": _scheduler(archive),
        "start-time": archive["start-time"],
        "end-time": archive["end-time"],
        "duration": archive["duration"],
        "state": archive["state"],
        "last-modification": max([*archive["timestamps"].values(), archive["start-time"]]),
        "tasks": {"total": sum(tasks.values()), **{s.lower(): tasks[s] for s in _TASK_STATES}},
        "pending-operators": 0,
    }


def _scheduler(archive: Archive) -> str:
    """Jobs in reactive mode have what Flink calls the adaptive scheduler."""
    return "Adaptive" if REACTIVE in archive else "Default"


def application_id(archive: Archive) -> str:
    """The application that a job belongs to; one that was submitted by itself is its own."""
    return str(archive.get("firesteel-settings", {}).get(_APPLICATION, {}).get("value") or archive["jid"])


def job_details(archive: Archive) -> dict[str, Any]:
    """/jobs/:jobid, without what has a path of its own: clients ask for this again and again."""
    shown = {key: value for key, value in archive.items() if key not in _NOT_IN_DETAILS}
    vertices = [
        {**{k: v for k, v in vertex.items() if k != "subtasks"}, **_sharing_group(archive, vertex)}
        for vertex in archive["vertices"]
    ]
    warning = (archive.get("checkpoints") or {}).get("warning")
    return {
        **shown,
        **({CHECKPOINT_WARNING: warning} if warning else {}),
        "application-id": application_id(archive),
        "schedulerType": _scheduler(archive),
        "vertices": vertices,
        "pending-operators": 0,
    }


def _sharing_group(archive: Archive, vertex: Mapping[str, Any]) -> dict[str, str]:
    """Flink's clients take nothing but an id; people have given the group a name."""
    name = str(vertex["slotSharingGroupId"])
    if _ID.fullmatch(name):
        return {"slotSharingGroupId": name}
    found = hashlib.sha256(f"{archive['jid']} {name}".encode()).hexdigest()[:32]
    return {"slotSharingGroupId": found, "firesteel-slot-sharing-group": name}


def job_config(archive: Archive) -> dict[str, Any]:
    """/jobs/:jobid/config; ``firesteel-config`` has all that holds, and where each value comes from."""
    was_set: Mapping[str, Mapping[str, str]] = archive.get("firesteel-settings", {})
    shown = {key: row["value"] for key, row in was_set.items()}
    vertices = ("id", "name", "parallelism", "maxParallelism", "slotSharingGroupId")
    return {
        "jid": archive["jid"],
        "name": archive["name"],
        "execution-config": {
            "restart-strategy": restart_strategy_type(Settings(shown)),
            "job-parallelism": _int(shown.get(_PARALLELISM), 1),
            "object-reuse-mode": shown.get("pipeline.object-reuse", "false").lower() == "true",
            "user-config": shown,
        },
        "firesteel-config": all_for_job(was_set),
        "firesteel-vertices": [{key: vertex[key] for key in vertices} for vertex in archive["vertices"]],
    }


def job_exceptions(archive: Archive, most: int, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """/jobs/:jobid/exceptions, newest first; also the fields that Flink 1.x had.

    Args:
        archive: of the job.
        most: entries.
        labels: entries are left out that do not have these failure labels.
    """
    newest = sorted(archive["exceptions"], key=lambda e: e["timestamp"], reverse=True)
    if labels:
        newest = [e for e in newest if labels.items() <= _labels(e).items()]
    root = archive.get("failure")
    truncated = len(newest) > most or bool(archive.get("exceptions-dropped"))
    answer: dict[str, Any] = {
        "exceptionHistory": {
            "entries": [
                {
                    **_exception(e),
                    "concurrentExceptions": [_exception(one) for one in e.get("concurrent", [])],
                    "firesteel-answer": str(e.get("answer", "")),
                }
                for e in newest[:most]
            ],
            "truncated": truncated,
        },
        "all-exceptions": [
            {"exception": _stack(e), "task": e["taskName"], "location": e["endpoint"], "timestamp": e["timestamp"]}
            for e in newest[:most]
        ],
        "truncated": truncated,
    }
    if root is not None:
        answer["root-exception"] = _stack(root)
        answer["timestamp"] = max((e["timestamp"] for e in newest), default=archive["end-time"])
    return answer


def _labels(failure: Mapping[str, Any]) -> dict[str, str]:
    """Whose fault it is."""
    return {"kind": str(failure["kind"])}


def execution_result(archive: Archive) -> dict[str, Any]:
    """/jobs/:jobid/execution-result of a job that has ended."""
    result: dict[str, Any] = {
        "id": archive["jid"],
        "name": archive["name"],
        "application-id": application_id(archive),
        "application-status": _APPLICATION_STATUS.get(archive["state"], "UNKNOWN"),
        "accumulator-results": {},
        "net-runtime": archive.get("net-runtime", 0),
        "start-time": archive["start-time"],
        "end-time": archive["end-time"],
    }
    failure = archive.get("failure")
    if archive["state"] == "FAILED" and failure is not None:
        result["failure-cause"] = {"class": failure["error_class"], "stack-trace": _stack(failure)}
        result["firesteel-failure"] = failure
    return {"status": {"id": "COMPLETED"}, "job-execution-result": result}


def vertex_details(archive: Archive, vertex_id: str) -> dict[str, Any]:
    """/jobs/:jobid/vertices/:vertexid."""
    vertex = find_vertex(archive, vertex_id)
    return {
        **_head(archive, vertex),
        "parallelism": vertex["parallelism"],
        "maxParallelism": vertex["maxParallelism"],
        "subtasks": [_with_now(s) for s in vertex["subtasks"]],
        "aggregated": aggregated(vertex["subtasks"]),
    }


def _with_now(subtask: Mapping[str, Any]) -> dict[str, Any]:
    """``firesteel-now`` has what the subtask does at the moment, so that one question is enough for a large vertex."""
    metrics = subtask.get(TASK_METRICS, {})
    return {**_shown(subtask), "firesteel-now": {name: metrics[name] for name in _NOW if name in metrics}}


def _shown(subtask: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in subtask.items() if k not in _HIDDEN}


def subtask_attempt(archive: Archive, vertex_id: str, subtask: int, attempt: int | None = None) -> dict[str, Any]:
    """/jobs/:jobid/vertices/:vertexid/subtasks/:subtaskindex, and an attempt of it; the current one by default.

    Raises:
        UnknownVertexError: the job has no such vertex, subtask, or attempt that is remembered.
    """
    return {**_shown(find_attempt(archive, vertex_id, subtask, attempt)), "other-concurrent-attempts": []}


def find_attempt(archive: Archive, vertex_id: str, subtask: int, attempt: int | None = None) -> Mapping[str, Any]:
    """A subtask as one of its attempts left it; the current one by default.

    Raises:
        UnknownVertexError: the job has no such vertex, subtask, or attempt that is remembered.
    """
    subtasks = find_vertex(archive, vertex_id)["subtasks"]
    if not 0 <= subtask < len(subtasks):
        raise UnknownVertexError(f"vertex {vertex_id} has no subtask {subtask}, only 0 to {len(subtasks) - 1}")
    current: Mapping[str, Any] = subtasks[subtask]
    found: Mapping[str, Any]
    for found in (current, *current.get("attempts", ())):
        if attempt is None or found["attempt"] == attempt:
            return found
    raise UnknownVertexError(
        f"attempt {attempt} of subtask {subtask} is not known; the current one is {current['attempt']}, and of those "
        f"before it {len(current.get('attempts', ()))} are remembered"
    )


def job_values(archive: Archive) -> dict[str, Any]:
    """Metrics of a job by their names: those of restarts and checkpoints."""
    return {**archive.get("restarts", {}), **(archive.get("checkpoints") or {}).get("metrics", {})}


def subtask_times(archive: Archive, vertex_id: str) -> dict[str, Any]:
    """/jobs/:jobid/vertices/:vertexid/subtasktimes."""
    vertex = find_vertex(archive, vertex_id)
    wanted = ("subtask", "endpoint", "duration", "timestamps")
    return {**_head(archive, vertex), "subtasks": [{k: s[k] for k in wanted} for s in vertex["subtasks"]]}


def vertex_taskmanagers(archive: Archive, vertex_id: str) -> dict[str, Any]:
    """/jobs/:jobid/vertices/:vertexid/taskmanagers."""
    vertex = find_vertex(archive, vertex_id)
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for subtask in vertex["subtasks"]:
        groups.setdefault(subtask["taskmanager-id"], []).append(subtask)
    return {**_head(archive, vertex), "taskmanagers": [_group(t, subtasks) for t, subtasks in groups.items()]}


def jsonable(value: Any) -> Any:
    """NaN and infinities as text: JSON has no numbers for them."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {key: jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    return value


def find_vertex(archive: Archive, vertex_id: str) -> Mapping[str, Any]:
    """A vertex of a job.

    Raises:
        UnknownVertexError: there is none of this id.
    """
    for vertex in archive["vertices"]:
        if vertex["id"] == vertex_id:
            found: Mapping[str, Any] = vertex
            return found
    raise UnknownVertexError(f"Job {archive['jid']} has no vertex {vertex_id}")


def _head(archive: Archive, vertex: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": vertex["id"], "name": vertex["name"], "now": archive["now"]}


def _group(taskmanager_id: str, subtasks: list[Mapping[str, Any]]) -> dict[str, Any]:
    started = [s["start-time"] for s in subtasks if s["start-time"] >= 0]
    ended = all(s["end-time"] >= 0 for s in subtasks)
    counts = Counter(s["status"] for s in subtasks)
    return {
        "taskmanager-id": taskmanager_id,
        "endpoint": subtasks[0]["endpoint"],
        "status": counts.most_common(1)[0][0],
        "start-time": min(started, default=-1),
        "end-time": max(s["end-time"] for s in subtasks) if ended else -1,
        "duration": max(s["duration"] for s in subtasks),
        "metrics": {name: _combined([s["metrics"][name] for s in subtasks]) for name in subtasks[0]["metrics"]},
        "status-counts": {state: counts[state] for state in _TASK_STATES},
        "aggregated": aggregated(subtasks),
    }


def _combined(values: list[Any]) -> Any:
    return all(values) if isinstance(values[0], bool) else sum(values)


def _exception(record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "exceptionName": record["error_class"],
        "stacktrace": _stack(record),
        "timestamp": record["timestamp"],
        "failureLabels": _labels(record),
        "taskName": record["taskName"],
        "endpoint": record["endpoint"],
        "taskManagerId": record["taskManagerId"],
        "concurrentExceptions": [],
    }


def _stack(failure: Mapping[str, Any]) -> str:
    text = str(failure["traceback"] or f"{failure['error_class']}: {failure['message']}")
    record = failure.get("record")
    return text if record is None else f"{text.rstrip()}\nThe record at hand: {record}\n"


def _int(text: str | None, otherwise: int) -> int:
    try:
        return int(text) if text is not None else otherwise
    except ValueError:
        return otherwise
