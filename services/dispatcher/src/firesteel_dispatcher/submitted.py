"""The archive of a job before a JobMaster runs it."""

from __future__ import annotations

from typing import Any

from firesteel.checkpoint.closing import clean_up_of
from firesteel.config import Settings
from firesteel.graph.execution_graph import ExecutionGraph
from firesteel.graph.job_archive import IF_CANCELLED, archive_of
from firesteel.graph.job_graph import JobGraph
from firesteel.rest.job_settings import set_for_job


class _Standing:
    """A clock that stands still at the moment of the submission."""

    def __init__(self, epoch_ms: int) -> None:
        self._epoch_ms = epoch_ms

    def monotonic(self) -> float:
        return 0.0

    def epoch_ms(self) -> int:
        return self._epoch_ms


def submitted_archive(graph: JobGraph, cluster: Settings, submitted_ms: int) -> dict[str, Any]:
    """The archive of a job just after its submission; ``firesteel-settings`` has the settings of the job."""
    archive = archive_of(ExecutionGraph(graph, _Standing(submitted_ms)))
    settings = cluster.with_layer("program", dict(graph.config))
    if_cancelled = str(clean_up_of(settings, "CANCELED"))
    return {**archive, "firesteel-settings": set_for_job(cluster, graph), IF_CANCELLED: if_cancelled}


def unreadable_archive(job_id: str, now_ms: int) -> dict[str, Any]:
    """The archive of a job whose stored graph is damaged, so that only the job's id is known."""
    archive = archive_of(ExecutionGraph(JobGraph(job_id, "(its graph can't be read)", (), ()), _Standing(now_ms)))
    return {**archive, "firesteel-settings": {}}
