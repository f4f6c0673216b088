"""How a job looks that ended without its JobMaster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firesteel.checkpoint.closing import CleanUp
from firesteel.graph.job_archive import CLEAN_UP, IF_CANCELLED


def ended_archive(
    archive: Mapping[str, Any], cancelled: bool, error_class: str, message: str, now_ms: int
) -> dict[str, Any]:
    """The archive of a job that failed, or was cancelled, while nobody led it.

    Completed checkpoints of one that failed stay, whatever their retention is: that is for failures of the job, which
    its JobMaster counts.

    Args:
        archive: how the job looked last.
        cancelled: it ends as CANCELED, else as FAILED.
        error_class: qualified name of the class of the failure.
        message: why it failed.
        now_ms: epoch milliseconds.
    """
    state = "CANCELED" if cancelled else "FAILED"
    failure = {
        "kind": "external", "error_class": error_class, "message": message, "traceback": f"{error_class}: {message}",
        "operator": "", "vertex_name": "", "subtask": -1, "attempt": 0, "record": None, "pickled": None,
    }  # fmt: skip
    record = {**failure, "timestamp": now_ms, "taskName": "", "endpoint": "", "taskManagerId": ""}
    start = archive.get("start-time", now_ms)
    before = list(archive.get("exceptions", []))
    rest = {key: value for key, value in archive.items() if key != IF_CANCELLED}
    return {
        **rest,
        CLEAN_UP: archive.get(IF_CANCELLED) if cancelled else CleanUp.KEEP,
        "state": state,
        "end-time": now_ms,
        "now": now_ms,
        "duration": now_ms - start,
        "timestamps": {**archive.get("timestamps", {}), state: now_ms},
        "exceptions": before if cancelled else [*before, record],
        "failure": None if cancelled else failure,
    }
