"""Archives of jobs without a JobMaster: before one runs the job, and where the job ended without it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firesteel.checkpoint.closing import CleanUp, clean_up_of
from firesteel.config import Settings, options
from firesteel.graph.execution_graph import ExecutionGraph
from firesteel.graph.job_archive import CLEAN_UP, EVENTS, IF_CANCELLED, archive_of
from firesteel.graph.job_events import EventType, JobEvents
from firesteel.graph.job_graph import JobGraph
from firesteel.rest.job_settings import set_for_job


class _StandingClock:
    """A clock that stands still at the moment of the submission."""

    def __init__(self, epoch_ms: int) -> None:
        self._epoch_ms = epoch_ms

    def monotonic(self) -> float:
        return 0.0

    def epoch_ms(self) -> int:
        return self._epoch_ms


def submitted_archive(graph: JobGraph, cluster: Settings, submitted_ms: int, by: str = "") -> dict[str, Any]:
    """The archive of a job just after its submission; ``firesteel-settings`` has the settings of the job.

    Args:
        graph: of the job.
        cluster: settings of the cluster.
        submitted_ms: epoch ms of the submission.
        by: who has submitted it, and from which address; empty = that is not known any more.
    """
    events = JobEvents(lambda: submitted_ms)
    upload = graph.config.get(options.APPLICATION_UPLOAD.key, "").partition("_")[2]
    events.add(EventType.SUBMITTED, f"submitted by the uploaded program {upload}" if upload else "submitted", by)
    archive = archive_of(ExecutionGraph(graph, _StandingClock(submitted_ms)))
    settings = cluster.with_layer("program", dict(graph.config))
    if_cancelled = str(clean_up_of(settings, "CANCELED"))
    return {
        **archive,
        "firesteel-settings": set_for_job(cluster, graph),
        IF_CANCELLED: if_cancelled,
        EVENTS: events.plain(),
    }


def unreadable_archive(job_id: str, now_ms: int) -> dict[str, Any]:
    """The archive of a job whose stored graph is damaged, so that only the job's id is known."""
    archive = archive_of(ExecutionGraph(JobGraph(job_id, "(its graph can't be read)", (), ()), _StandingClock(now_ms)))
    return {**archive, "firesteel-settings": {}}


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
