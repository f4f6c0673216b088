"""REST answers about jobs, made from job archives: pure functions, with the names that Flink uses."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, cast, get_args

from firesteel.config import Settings, options
from firesteel.config.derived import restart_strategy_type
from firesteel.core.errors import FiresteelError
from firesteel.graph.job_archive import REACTIVE, TASK_METRICS
from firesteel.protocol.deployment import METRIC_RATES, POOL_USAGES
from firesteel.rest import types as t
from firesteel.rest.archive_cache import Archive
from firesteel.rest.findings import cause_of, findings, health
from firesteel.rest.job_settings import all_for_job
from firesteel.rest.latency_views import has_latencies
from firesteel.rest.picking import picked
from firesteel.rest.program_views import program_of
from firesteel.rest.stages import stages
from firesteel.rest.subtask_views import aggregated
from firesteel.rest.watermark_views import watermark_holds

_END_STATUS: Final[dict[str, t.EndStatus]] = {"FINISHED": "SUCCEEDED", "CANCELED": "CANCELED", "FAILED": "FAILED"}
_APPLICATION = options.APPLICATION_ID.key
_TASK_STATES: Final[tuple[t.TaskState, ...]] = get_args(t.TaskState)
_PARALLELISM = "parallelism.default"
_ID = re.compile(r"[0-9a-f]{32}")
_NOW = (*METRIC_RATES.values(), *POOL_USAGES, "currentInputWatermark", "currentOutputWatermark")


class UnknownVertexError(FiresteelError):
    """The job has no such vertex."""


def job_overview(archive: Archive) -> t.JobRow:
    """One item of /jobs/overview."""
    tasks: Counter[str] = sum((Counter(vertex["tasks"]) for vertex in archive["vertices"]), Counter())
    totals = {"total": sum(tasks.values()), **{state.lower(): tasks[state] for state in _TASK_STATES}}
    return picked(
        t.JobRow,
        {
            **archive,
            "jobType": archive.get("job-type", "STREAMING"),
            "schedulerType": _scheduler(archive),
            "last-modification": max([*archive["timestamps"].values(), archive["start-time"]]),
            "tasks": picked(t.JobTasks, totals),
            "pending-operators": 0,
            "firesteel-health": health(archive),
        },
    )


def _scheduler(archive: Archive) -> t.SchedulerType:
    """Jobs in reactive mode have what Flink calls the adaptive scheduler."""
    return "Adaptive" if REACTIVE in archive else "Default"


def application_id(archive: Archive) -> str:
    """The application that a job belongs to; one that was submitted by itself is its own."""
    return str(archive.get("firesteel-settings", {}).get(_APPLICATION, {}).get("value") or archive["jid"])


def job_details(archive: Archive) -> t.JobDetails:
    """/jobs/:jobid, without what has a path of its own: clients ask for this again and again."""
    warning = (archive.get("checkpoints") or {}).get("warning")
    holds = watermark_holds(archive)
    stage_of = stages(archive)
    return picked(
        t.JobDetails,
        {
            **archive,
            **({"firesteel-checkpoint-warning": warning} if warning else {}),
            **({"firesteel-watermark-holds": holds} if holds else {}),
            **_restarts(archive),
            **({"firesteel-has-latencies": True} if has_latencies(archive) else {}),
            **program_of(archive),
            "application-id": application_id(archive),
            "schedulerType": _scheduler(archive),
            "vertices": [
                picked(
                    t.Vertex,
                    {
                        **vertex,
                        **_sharing_group(archive, vertex),
                        **({"firesteel-stage": stage_of[vertex["id"]]} if stage_of else {}),
                    },
                )
                for vertex in archive["vertices"]
            ],
            "pending-operators": 0,
            "firesteel-findings": findings(archive),
        },
    )


def _restarts(archive: Archive) -> dict[str, Any]:
    """How often a job was restarted, and the first line of its last failure; nothing if it never was."""
    number = archive.get("restarts", {}).get("numRestarts", 0)
    if not number:
        return {}
    last = max(archive.get("exceptions", ()), key=lambda e: e["timestamp"], default=None)
    if last is None:
        return {"firesteel-restarts": number}
    return {"firesteel-restarts": number, "firesteel-last-failure": cause_of(last)}


def _sharing_group(archive: Archive, vertex: Mapping[str, Any]) -> dict[str, str]:
    """Flink's clients accept only an id of a slot sharing group; people have given it a name."""
    name = str(vertex["slotSharingGroupId"])
    if _ID.fullmatch(name):
        return {"slotSharingGroupId": name}
    group_id = hashlib.sha256(f"{archive['jid']} {name}".encode()).hexdigest()[:32]
    return {"slotSharingGroupId": group_id, "firesteel-slot-sharing-group": name}


def plan(archive: Archive) -> t.JobPlan:
    return {"plan": archive["plan"]}


def job_config(archive: Archive) -> t.JobConfig:
    """/jobs/:jobid/config; ``firesteel-config`` has every option in effect with the place where it was set."""
    was_set: Mapping[str, Mapping[str, str]] = archive.get("firesteel-settings", {})
    shown = {key: row["value"] for key, row in was_set.items()}
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
        "firesteel-vertices": [picked(t.VertexConfig, vertex) for vertex in archive["vertices"]],
    }


def job_exceptions(archive: Archive, most: int, labels: Mapping[str, str] | None = None) -> t.JobExceptions:
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
    answer: t.JobExceptions = {
        "exceptionHistory": {
            "entries": [_root_exception(e) for e in newest[:most]],
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
    """Labels of a failure: ``kind`` says whose fault it is."""
    return {"kind": str(failure["kind"])}


def execution_result(archive: Archive) -> t.ExecutionResult:
    """/jobs/:jobid/execution-result of a job that has ended."""
    result: t.JobResult = {
        "id": archive["jid"],
        "name": archive["name"],
        "application-id": application_id(archive),
        "application-status": _END_STATUS.get(archive["state"], "UNKNOWN"),
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


def vertex_details(archive: Archive, vertex_id: str) -> t.VertexDetails:
    """Subtasks of a vertex, and statistics of them: /jobs/:jobid/vertices/:vertexid."""
    vertex = find_vertex(archive, vertex_id)
    rows = vertex["subtasks"]
    shown = {"now": archive["now"], "subtasks": [_with_now(row) for row in rows], "aggregated": aggregated(rows)}
    return picked(t.VertexDetails, {**vertex, **shown})


def _with_now(row: Mapping[str, Any]) -> t.Subtask:
    """``firesteel-now`` has the subtask's current metrics, so that one request is enough for a large vertex."""
    metrics = row.get(TASK_METRICS, {})
    return picked(t.Subtask, {**row, "firesteel-now": {name: metrics[name] for name in _NOW if name in metrics}})


def subtask_attempt(archive: Archive, vertex_id: str, subtask: int, attempt: int | None = None) -> t.Subtask:
    """/jobs/:jobid/vertices/:vertexid/subtasks/:subtaskindex, and an attempt of it; the current one by default.

    Raises:
        UnknownVertexError: the job has no such vertex, subtask, or attempt that is remembered.
    """
    row = find_attempt(archive, vertex_id, subtask, attempt)
    return picked(t.Subtask, {**row, "other-concurrent-attempts": []})


def find_attempt(archive: Archive, vertex_id: str, subtask: int, attempt: int | None = None) -> Mapping[str, Any]:
    """A subtask as one of its attempts left it; the current one by default.

    Raises:
        UnknownVertexError: the job has no such vertex, subtask, or attempt that is remembered.
    """
    subtasks = find_vertex(archive, vertex_id)["subtasks"]
    if not 0 <= subtask < len(subtasks):
        raise UnknownVertexError(f"vertex {vertex_id} has no subtask {subtask}, only 0 to {len(subtasks) - 1}")
    current: Mapping[str, Any] = subtasks[subtask]
    row: Mapping[str, Any]
    for row in (current, *current.get("attempts", ())):
        if attempt is None or row["attempt"] == attempt:
            return row
    raise UnknownVertexError(
        f"attempt {attempt} of subtask {subtask} is not known; the current one is {current['attempt']}, and of those "
        f"before it {len(current.get('attempts', ()))} are remembered"
    )


def job_values(archive: Archive) -> dict[str, Any]:
    """Metrics of a job by their names: those of restarts and checkpoints."""
    return {**archive.get("restarts", {}), **(archive.get("checkpoints") or {}).get("metrics", {})}


def subtask_times(archive: Archive, vertex_id: str) -> t.SubtaskTimes:
    """When the subtasks entered their states: /jobs/:jobid/vertices/:vertexid/subtasktimes."""
    vertex = find_vertex(archive, vertex_id)
    rows = [picked(t.SubtaskTime, row) for row in vertex["subtasks"]]
    return {"id": vertex["id"], "name": vertex["name"], "now": archive["now"], "subtasks": rows}


def vertex_taskmanagers(archive: Archive, vertex_id: str) -> t.VertexTaskManagers:
    """A vertex by TaskManager: /jobs/:jobid/vertices/:vertexid/taskmanagers."""
    vertex = find_vertex(archive, vertex_id)
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for subtask in vertex["subtasks"]:
        groups.setdefault(subtask["taskmanager-id"], []).append(subtask)
    rows = [_group(taskmanager_id, subtasks) for taskmanager_id, subtasks in groups.items()]
    return {"id": vertex["id"], "name": vertex["name"], "now": archive["now"], "taskmanagers": rows}


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
            return cast(Mapping[str, Any], vertex)
    raise UnknownVertexError(f"Job {archive['jid']} has no vertex {vertex_id}")


def _group(taskmanager_id: str, subtasks: list[Mapping[str, Any]]) -> t.VertexTaskManager:
    started = [s["start-time"] for s in subtasks if s["start-time"] >= 0]
    ended = all(s["end-time"] >= 0 for s in subtasks)
    counts: Counter[t.TaskState] = Counter(s["status"] for s in subtasks)
    return {
        "taskmanager-id": taskmanager_id,
        "endpoint": subtasks[0]["endpoint"],
        "status": counts.most_common(1)[0][0],
        "start-time": min(started, default=-1),
        "end-time": max(s["end-time"] for s in subtasks) if ended else -1,
        "duration": max(s["duration"] for s in subtasks),
        "metrics": _combined([s["metrics"] for s in subtasks]),
        "status-counts": {state: counts[state] for state in _TASK_STATES},
        "aggregated": aggregated(subtasks),
    }


def _combined(metrics: list[t.IoMetrics]) -> t.IoMetrics:
    """Sums of numbers; flags hold if they hold for all."""
    columns = {name: [cast(Mapping[str, Any], row)[name] for row in metrics] for name in metrics[0]}
    totals = {name: all(column) if isinstance(column[0], bool) else sum(column) for name, column in columns.items()}
    return cast(t.IoMetrics, totals)


def _root_exception(record: Mapping[str, Any]) -> t.RootExceptionInfo:
    shown = cast(
        t.RootExceptionInfo,
        {
            **_exception(record),
            "concurrentExceptions": [_exception(concurrent) for concurrent in record.get("concurrent", [])],
            "firesteel-answer": str(record.get("answer", "")),
        },
    )
    if "repeats" in record:
        shown["firesteel-repeats"] = picked(t.FailureRepeatsInfo, record["repeats"])
    return shown


def _exception(record: Mapping[str, Any]) -> t.ExceptionInfo:
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
