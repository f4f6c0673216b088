"""REST answers about checkpoints, from job archives: pure functions, with the shapes that Flink uses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from firesteel.core.errors import ConfigurationError, FiresteelError
from firesteel.graph.job_archive import acknowledgements
from firesteel.rest.views import Archive, find_vertex

_START_DELAY, _ALIGNMENT, _SYNC, _ASYNC, _STATE, _CHECKPOINTED, _PROCESSED, _PERSISTED, _UNALIGNED = range(1, 10)
"""Positions in what is kept of an acknowledgement; the first is its time (``checkpoints.statistics``)."""
_QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
_NAMES: Final = {"COMPLETED": "completed", "FAILED": "failed", "IN_PROGRESS": "in_progress"}
Subtask = Sequence[int]


CHECKPOINTS_OFF: Final = "Checkpointing has not been enabled"
"""What is said, as by Flink, of a job that takes none and has none."""


class NoCheckpointsError(FiresteelError):
    """The job takes no checkpoints, has no such one, or nobody has asked for one under this id."""


def checkpoints(archive: Archive) -> dict[str, Any]:
    """/jobs/:jobid/checkpoints.

    Raises:
        NoCheckpointsError: the job takes none.
    """
    found = _of(archive)
    completed = [record for record in found["history"] if record["status"] == "COMPLETED"]
    every = [_totals(record["trigger"], record["tasks"].values()) for record in completed]
    summaries = {
        name: summary(totals[name] for totals in every)
        for name in (
            "checkpointed_size",
            "state_size",
            "end_to_end_duration",
            "alignment_buffered",
            "processed_data",
            "persisted_data",
        )
    }
    latest = found["latest"]
    return {
        "counts": found["counts"],
        "summary": summaries,
        "latest": {
            "completed": _checkpoint(latest["COMPLETED"]) if "COMPLETED" in latest else None,
            "savepoint": _checkpoint(latest["SAVEPOINT"]) if "SAVEPOINT" in latest else None,
            "failed": _checkpoint(latest["FAILED"]) if "FAILED" in latest else None,
            "restored": found["restored"],
        },
        "history": [_checkpoint(record) for record in found["history"]],
        "warning": found.get("warning") or None,
    }


def checkpoint_config(archive: Archive) -> dict[str, Any]:
    """/jobs/:jobid/checkpoints/config: what is in effect, not what was asked for and is in no version yet.

    Raises:
        NoCheckpointsError: the job takes none.
    """
    config = _of(archive)["config"]
    retention = config["retention"]
    return {
        "mode": "at_least_once" if config["at_least_once"] else "exactly_once",
        "interval": _ms(config["interval"]) or 2**63 - 1,
        "timeout": _ms(config["timeout"]),
        "min_pause": _ms(config["min_pause"]),
        "max_concurrent": config["max_concurrent"],
        "externalization": {
            "enabled": retention != "NO_EXTERNALIZED_CHECKPOINTS",
            "delete_on_cancellation": retention != "RETAIN_ON_CANCELLATION",
        },
        "state_backend": config["backend"],
        "checkpoint_storage": config["storage"],
        "unaligned_checkpoints": config["unaligned"],
        "tolerable_failed_checkpoints": config["tolerable_failures"],
        "aligned_checkpoint_timeout": _ms(config["aligned_timeout"]),
        "checkpoints_after_tasks_finish": config["after_tasks_finish"],
        "state_changelog_enabled": False,
        "changelog_periodic_materialization_interval": 0,
        "changelog_storage": "",
    }


def checkpoint_details(archive: Archive, query: Mapping[str, str]) -> dict[str, Any]:
    """/jobs/:jobid/checkpoints/details/:checkpointid.

    Raises:
        NoCheckpointsError: there is no such checkpoint, or it is too old.
        ConfigurationError: the id is no number.
    """
    record = _record(archive, query["checkpoint_id"])
    tasks = {id_: _task(record, task) for id_, task in record["tasks"].items()}
    return {**_checkpoint(record), "tasks": tasks}


def checkpoint_subtasks(archive: Archive, query: Mapping[str, str]) -> dict[str, Any]:
    """/jobs/:jobid/checkpoints/details/:checkpointid/subtasks/:vertexid.

    Raises:
        NoCheckpointsError: there is no such checkpoint, or it is too old.
        ConfigurationError: the id is no number.
        UnknownVertexError: the job has no such vertex.
    """
    record = _record(archive, query["checkpoint_id"])
    vertex = find_vertex(archive, query["vertex_id"])
    task = record["tasks"].get(vertex["id"], {"subtasks": 0, "acknowledged": {}})
    acknowledged = acknowledgements(task["acknowledged"])
    values = list(acknowledged.values())
    trigger = record["trigger"]
    return {
        **_task(record, task),
        "summary": {
            "checkpointed_size": summary(v[_CHECKPOINTED] for v in values),
            "state_size": summary(v[_STATE] for v in values),
            "end_to_end_duration": summary(v[0] - trigger for v in values),
            "checkpoint_duration": {
                "sync": summary(v[_SYNC] for v in values),
                "async": summary(v[_ASYNC] for v in values),
            },
            "alignment": {
                "buffered": summary(0 for _ in values),
                "processed": summary(v[_PROCESSED] for v in values),
                "persisted": summary(v[_PERSISTED] for v in values),
                "duration": summary(v[_ALIGNMENT] for v in values),
            },
            "start_delay": summary(v[_START_DELAY] for v in values),
        },
        "subtasks": [_subtask(index, trigger, acknowledged.get(index)) for index in range(vertex["parallelism"])],
    }


def trigger_status(archive: Archive, query: Mapping[str, str]) -> dict[str, Any]:
    """/jobs/:jobid/checkpoints/:triggerid.

    Raises:
        NoCheckpointsError: nobody has asked for a checkpoint under this id.
    """
    trigger_id = query["trigger_id"]
    found = (archive.get("checkpoints") or {}).get("triggers", {}).get(trigger_id)
    if found is None:
        raise NoCheckpointsError(f"There is no asynchronous operation with the trigger id {trigger_id[:80]!r}.")
    if found["status"] == "IN_PROGRESS":
        return {"status": {"id": "IN_PROGRESS"}, "operation": None}
    if "checkpointId" in found:
        operation: dict[str, Any] = {"checkpointId": found["checkpointId"], "failureCause": None}
    else:
        operation = {"failure-cause": failure_cause(found["failure"])}
    return {"status": {"id": "COMPLETED"}, "operation": operation}


def failure_cause(text: str) -> dict[str, str]:
    """Why an operation failed."""
    name = "firesteel.core.errors.CheckpointError"
    return {"class": name, "stack-trace": f"{name}: {text}", "serialized-throwable": ""}


def savepoint_status(archive: Archive, query: Mapping[str, str]) -> dict[str, Any]:
    """/jobs/:jobid/savepoints/:triggerid, of savepoints and of stops.

    Raises:
        NoCheckpointsError: nobody has asked for one under this id.
    """
    status = trigger_status(archive, query)
    found = (archive.get("checkpoints") or {})["triggers"][query["trigger_id"]]
    if "checkpointId" in found:
        status["operation"] = {"location": found.get("location", "")}
    return status


def _of(archive: Archive) -> Mapping[str, Any]:
    found: Mapping[str, Any] | None = archive.get("checkpoints")
    if "checkpoints" not in archive or (found is not None and found.get("unread")):
        raise NoCheckpointsError(
            "The checkpoints of the job are not known: no JobMaster has read what there is of them"
        )
    if found is None:
        raise NoCheckpointsError(CHECKPOINTS_OFF)
    return found


def _record(archive: Archive, text: str) -> Mapping[str, Any]:
    if not text.isdecimal() or len(text) > 18:
        raise ConfigurationError(f"Cannot resolve path parameter (checkpointid) from value {text[:80]!r}")
    found = _of(archive)
    for record in (*found["history"], *found["latest"].values()):
        if record["id"] == int(text):
            return dict(record)
    raise NoCheckpointsError(f"Could not find checkpointing statistics for checkpoint {text}.")


def _checkpoint(record: Mapping[str, Any]) -> dict[str, Any]:
    tasks = record["tasks"].values()
    shown = {
        "className": _NAMES[record["status"]],
        "id": record["id"],
        "status": record["status"],
        "is_savepoint": record.get("savepoint") is not None,
        "savepointFormat": record.get("savepoint"),
        "trigger_timestamp": record["trigger"],
        **_totals(record["trigger"], tasks),
        "num_subtasks": sum(task["subtasks"] for task in tasks),
        "num_acknowledged_subtasks": sum(_count(task) for task in tasks),
        "checkpoint_type": _type(record),
        "tasks": {},
    }
    if record["status"] == "COMPLETED":
        shown |= {"external_path": record["location"], "discarded": record["discarded"]}
    elif record["status"] == "FAILED":
        shown |= {"failure_timestamp": record["ended"], "failure_message": record["message"]}
    return shown


def _type(record: Mapping[str, Any]) -> str:
    if record.get("savepoint") is None:
        return "CHECKPOINT"
    return "SYNC_SAVEPOINT" if record.get("stop") in ("suspend", "drain") else "SAVEPOINT"


def _task(record: Mapping[str, Any], task: Mapping[str, Any]) -> dict[str, Any]:
    done = _count(task) == task["subtasks"]
    return {
        "id": record["id"],
        "status": "COMPLETED" if done else record["status"],
        **_totals(record["trigger"], [task]),
        "num_subtasks": task["subtasks"],
        "num_acknowledged_subtasks": _count(task),
    }


def _count(task: Mapping[str, Any]) -> int:
    """How many subtasks have acknowledged; archives of former versions do not say it apart."""
    return int(task["count"]) if "count" in task else len(task["acknowledged"])


def _figures(task: Mapping[str, Any]) -> list[int]:
    """Of the acknowledgements of a vertex: when the latest came, 0 = none has, and the sums of the others."""
    if "totals" in task:
        return [task["last"], *task["totals"]]
    values = list(task["acknowledged"].values())  # of a former version
    return [max((v[0] for v in values), default=0), *(sum(v[i] for v in values) for i in range(1, _UNALIGNED + 1))]


def _totals(trigger: int, tasks: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    figures = [_figures(task) for task in tasks]
    last = max((f[0] for f in figures), default=0)
    return {
        "latest_ack_timestamp": last or -1,
        "checkpointed_size": _sum(figures, _CHECKPOINTED),
        "state_size": _sum(figures, _STATE),
        "end_to_end_duration": max(0, last - trigger),
        "alignment_buffered": 0,
        "processed_data": _sum(figures, _PROCESSED),
        "persisted_data": _sum(figures, _PERSISTED),
    }


def _subtask(index: int, trigger: int, values: Subtask | None) -> dict[str, Any]:
    if values is None:
        return {"className": "pending_or_failed", "index": index, "status": "pending_or_failed"}
    return {
        "className": "completed",
        "index": index,
        "status": "completed",
        "ack_timestamp": values[0],
        "end_to_end_duration": max(0, values[0] - trigger),
        "checkpointed_size": values[_CHECKPOINTED],
        "state_size": values[_STATE],
        "checkpoint": {"sync": values[_SYNC], "async": values[_ASYNC]},
        "alignment": {
            "buffered": 0,
            "processed": values[_PROCESSED],
            "persisted": values[_PERSISTED],
            "duration": values[_ALIGNMENT],
        },
        "start_delay": values[_START_DELAY],
        "unaligned_checkpoint": bool(values[_UNALIGNED]),
        "aborted": False,
    }


def _sum(values: Iterable[Subtask], index: int) -> int:
    return sum(v[index] for v in values)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def summary(numbers: Iterable[int]) -> dict[str, Any]:
    """Flink's statistics of numbers."""
    ordered = sorted(numbers)
    if not ordered:
        return {"min": 0, "max": 0, "avg": 0, **dict.fromkeys(_QUANTILES, "NaN")}
    quantiles = {name: float(ordered[math.ceil(q * len(ordered)) - 1]) for name, q in _QUANTILES.items()}
    return {"min": ordered[0], "max": ordered[-1], "avg": sum(ordered) // len(ordered), **quantiles}
