"""The archive of a job that ended without its JobMaster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firesteel.checkpoint.closing import CleanUp
from firesteel.graph.job_archive import CLEAN_UP, IF_CANCELLED


def ended_archive(
    archive: Mapping[str, Any], cancelled: bool, error_class: str, message: str, now_ms: int
) -> dict[str, Any]:
    """The archive of a job that failed or was cancelled while no JobMaster led it.

    Completed checkpoints of a job that failed so stay, whatever their retention is. The retention is meant for failures
    of the job itself, which its JobMaster counts.

    Args:
        archive: last known archive of the job.
        cancelled: whether the job ends as CANCELED; else it ends as FAILED.
        error_class: qualified name of the class of the failure.
        message: cause of the failure.
        now_ms: epoch milliseconds.
    """
    state = "CANCELED" if cancelled else "FAILED"
    failure = {
        "kind": "external", "error_class": error_class, "message": message, "traceback": f"{error_class}: {message}",
        "operator": "", "vertex_name": "", "subtask": -1, "attempt": 0, "record": None, "pickled": None,
    }  # fmt: skip
    record = {**failure, "timestamp": now_ms, "taskName": "", "endpoint": "", "taskManagerId": ""}
    start = archive.get("start-time", now_ms)
    earlier_failures = list(archive.get("exceptions", []))
    shown = {key: value for key, value in archive.items() if key != IF_CANCELLED}
    return {
        **shown,
        CLEAN_UP: archive.get(IF_CANCELLED) if cancelled else CleanUp.KEEP,
        "state": state,
        "end-time": now_ms,
        "now": now_ms,
        "duration": now_ms - start,
        "timestamps": {**archive.get("timestamps", {}), state: now_ms},
        "exceptions": earlier_failures if cancelled else [*earlier_failures, record],
        "failure": None if cancelled else failure,
    }
