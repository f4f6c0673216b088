"""REST answers about checkpoints, from job archives. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from firesteel.core.errors import ConfigurationError, FiresteelError
from firesteel.graph.job_archive import acknowledgements
from firesteel.rest import checkpoint_types as c
from firesteel.rest import types as t
from firesteel.rest.archive_cache import Archive
from firesteel.rest.picking import picked
from firesteel.rest.views import find_vertex

_START_DELAY, _ALIGNMENT, _SYNC, _ASYNC, _STATE, _CHECKPOINTED, _PROCESSED, _PERSISTED, _UNALIGNED = range(1, 10)
"""Positions in the figures of an acknowledgement; the first is its time (``checkpoints.statistics``)."""
Figures = Sequence[int]
"""The figures of a subtask's acknowledgement."""

CHECKPOINTS_OFF: Final = "Checkpointing has not been enabled"
"""Flink's words for a job that takes no checkpoints and has none."""


class NoCheckpointsError(FiresteelError):
    """The job takes no checkpoints, has no such checkpoint, or nobody has requested one under this id."""


def checkpoints(archive: Archive) -> c.Checkpoints:
    """/jobs/:jobid/checkpoints.

    Raises:
        NoCheckpointsError: the job takes none.
    """
    statistics = checkpoint_statistics(archive)
    latest = statistics["latest"]
    completed = [
        _figures(record, record["tasks"].values())
        for record in statistics["history"]
        if record["status"] == "COMPLETED"
    ]
    return {
        "counts": statistics["counts"],
        "summary": {
            "checkpointed_size": summary(figures["checkpointed_size"] for figures in completed),
            "state_size": summary(figures["state_size"] for figures in completed),
            "end_to_end_duration": summary(figures["end_to_end_duration"] for figures in completed),
            "alignment_buffered": summary(figures["alignment_buffered"] for figures in completed),
            "processed_data": summary(figures["processed_data"] for figures in completed),
            "persisted_data": summary(figures["persisted_data"] for figures in completed),
        },
        "latest": {
            "completed": _checkpoint(latest["COMPLETED"]) if "COMPLETED" in latest else None,
            "savepoint": _checkpoint(latest["SAVEPOINT"]) if "SAVEPOINT" in latest else None,
            "failed": _checkpoint(latest["FAILED"]) if "FAILED" in latest else None,
            "restored": statistics["restored"],
        },
        "history": [_checkpoint(record) for record in statistics["history"]],
        "warning": statistics.get("warning") or None,
    }


def checkpoint_config(archive: Archive) -> c.CheckpointConfigInfo:
    """/jobs/:jobid/checkpoints/config: the settings in effect, not those that were set and have no effect here.

    Raises:
        NoCheckpointsError: the job takes none.
    """
    config = checkpoint_statistics(archive)["config"]
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


def checkpoint_details(archive: Archive, query: Mapping[str, str]) -> c.Checkpoint:
    """/jobs/:jobid/checkpoints/details/:checkpointid.

    Raises:
        NoCheckpointsError: there is no such checkpoint, or it is too old.
        ConfigurationError: the id is no number.
    """
    record = _record(archive, query["checkpoint_id"])
    checkpoint = _checkpoint(record)
    checkpoint["tasks"] = {vertex_id: _task(record, task) for vertex_id, task in record["tasks"].items()}
    return checkpoint


def checkpoint_subtasks(archive: Archive, query: Mapping[str, str]) -> c.CheckpointSubtasks:
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


def trigger_status(archive: Archive, query: Mapping[str, str]) -> c.CheckpointStatus:
    """/jobs/:jobid/checkpoints/:triggerid.

    Raises:
        NoCheckpointsError: nobody has requested a checkpoint under this id.
    """
    trigger = _trigger(archive, query["trigger_id"])
    if trigger["status"] == "IN_PROGRESS":
        return {"status": {"id": "IN_PROGRESS"}, "operation": None}
    if "checkpointId" not in trigger:
        return {"status": {"id": "COMPLETED"}, "operation": {"failure-cause": failure_cause(trigger["failure"])}}
    return {
        "status": {"id": "COMPLETED"},
        "operation": {"checkpointId": trigger["checkpointId"], "failureCause": None},
    }


def savepoint_status(archive: Archive, query: Mapping[str, str]) -> c.SavepointStatus:
    """/jobs/:jobid/savepoints/:triggerid, of savepoints and of stops.

    Raises:
        NoCheckpointsError: nobody has requested a savepoint under this id.
    """
    trigger = _trigger(archive, query["trigger_id"])
    if trigger["status"] == "IN_PROGRESS":
        return {"status": {"id": "IN_PROGRESS"}, "operation": None}
    if "checkpointId" not in trigger:
        return {"status": {"id": "COMPLETED"}, "operation": {"failure-cause": failure_cause(trigger["failure"])}}
    return {"status": {"id": "COMPLETED"}, "operation": {"location": trigger.get("location", "")}}


def _trigger(archive: Archive, trigger_id: str) -> Mapping[str, Any]:
    triggers: Mapping[str, Mapping[str, Any]] = (archive.get("checkpoints") or {}).get("triggers", {})
    if trigger_id not in triggers:
        raise NoCheckpointsError(f"There is no asynchronous operation with the trigger id {trigger_id[:80]!r}.")
    return triggers[trigger_id]


def failure_cause(text: str) -> t.FailureCause:
    """Why an operation failed."""
    name = "firesteel.core.errors.CheckpointError"
    return {"class": name, "stack-trace": f"{name}: {text}", "serialized-throwable": ""}


def checkpoint_statistics(archive: Archive) -> Mapping[str, Any]:
    """What the archive has of the job's checkpoints.

    Raises:
        NoCheckpointsError: the job takes none, or they are not known yet.
    """
    statistics: Mapping[str, Any] | None = archive.get("checkpoints")
    if "checkpoints" not in archive or (statistics is not None and statistics.get("unread")):
        raise NoCheckpointsError("The checkpoints of the job are not known yet: no JobMaster has read their metadata")
    if statistics is None:
        raise NoCheckpointsError(CHECKPOINTS_OFF)
    return statistics


def _record(archive: Archive, text: str) -> Mapping[str, Any]:
    if not text.isdecimal() or len(text) > 18:
        raise ConfigurationError(f"Cannot resolve path parameter (checkpointid) from value {text[:80]!r}")
    statistics = checkpoint_statistics(archive)
    for record in (*statistics["history"], *statistics["latest"].values()):
        if record["id"] == int(text):
            return dict(record)
    raise NoCheckpointsError(f"Could not find checkpointing statistics for checkpoint {text}.")


def _checkpoint(record: Mapping[str, Any]) -> c.Checkpoint:
    outcome: dict[str, Any] = {}
    if record["status"] == "COMPLETED":
        outcome = {"external_path": record["location"], "discarded": record["discarded"]}
    elif record["status"] == "FAILED":
        outcome = {
            "failure_timestamp": record["ended"],
            "failure_message": record["message"],
            "end_to_end_duration": max(0, record["ended"] - record["trigger"]),  # not until its last acknowledgement
        }
    return picked(
        c.Checkpoint,
        {
            **_figures(record, record["tasks"].values()),
            "className": record["status"].lower(),
            "is_savepoint": record.get("savepoint") is not None,
            "savepointFormat": record.get("savepoint"),
            "trigger_timestamp": record["trigger"],
            "checkpoint_type": _type(record),
            "tasks": {},
            **outcome,
        },
    )


def _type(record: Mapping[str, Any]) -> c.CheckpointType:
    if record.get("savepoint") is None:
        return "CHECKPOINT"
    return "SYNC_SAVEPOINT" if record.get("stop") in ("suspend", "drain") else "SAVEPOINT"


def _task(record: Mapping[str, Any], task: Mapping[str, Any]) -> c.TaskCheckpoint:
    """The part of a checkpoint that one task took; it may be complete before the checkpoint is."""
    figures = _figures(record, [task])
    if figures["num_acknowledged_subtasks"] == figures["num_subtasks"]:
        figures["status"] = "COMPLETED"
    return figures


def _figures(record: Mapping[str, Any], tasks: Collection[Mapping[str, Any]]) -> c.TaskCheckpoint:
    """Figures of a checkpoint over some of its tasks."""
    sums = [_sums(task) for task in tasks]
    last = max((figures[0] for figures in sums), default=0)

    def total(position: int) -> int:
        return sum(figures[position] for figures in sums)

    return {
        "id": record["id"],
        "status": record["status"],
        "latest_ack_timestamp": last or -1,
        "checkpointed_size": total(_CHECKPOINTED),
        "state_size": total(_STATE),
        "end_to_end_duration": max(0, last - record["trigger"]),
        "alignment_buffered": 0,
        "processed_data": total(_PROCESSED),
        "persisted_data": total(_PERSISTED),
        "num_subtasks": sum(task["subtasks"] for task in tasks),
        "num_acknowledged_subtasks": sum(_acknowledged_count(task) for task in tasks),
    }


def _acknowledged_count(task: Mapping[str, Any]) -> int:
    """Number of subtasks that have acknowledged; archives of former versions have no ``count``."""
    return int(task["count"]) if "count" in task else len(task["acknowledged"])


def _sums(task: Mapping[str, Any]) -> list[int]:
    """Time of a task's latest acknowledgement (0 = none has come), and the sums of the other figures."""
    if "totals" in task:
        return [task["last"], *task["totals"]]
    values = list(task["acknowledged"].values())  # of a former version
    return [max((v[0] for v in values), default=0), *(sum(v[i] for v in values) for i in range(1, _UNALIGNED + 1))]


def _subtask(index: int, trigger: int, values: Figures | None) -> c.SubtaskCheckpoint:
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


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def summary(numbers: Iterable[int]) -> t.Summary:
    """Flink's statistics of numbers; without any the quantiles are NaN."""
    ordered = sorted(numbers)

    def quantile(share: float) -> t.Number:
        return float(ordered[math.ceil(share * len(ordered)) - 1]) if ordered else "NaN"

    return {
        "min": ordered[0] if ordered else 0,
        "max": ordered[-1] if ordered else 0,
        "avg": sum(ordered) // len(ordered) if ordered else 0,
        "p50": quantile(0.5),
        "p90": quantile(0.9),
        "p95": quantile(0.95),
        "p99": quantile(0.99),
        "p999": quantile(0.999),
    }
