"""Keeps a notebook from waiting for slots that an earlier job of the same kernel will never give back.

In a script two such jobs are a decision; in a notebook it happens by running a cell again.
"""

from __future__ import annotations

from typing import Any

from firesteel.client.cell_console import CellConsole
from firesteel.common.job_status import JobStatus
from firesteel.common.submitted_jobs import LOCAL, SubmittedJob, submitted_jobs
from firesteel.config import options
from firesteel.core.errors import NoResourceAvailableError
from firesteel.core.notebook import current_cell
from firesteel.graph.bounded import is_batch, unbounded_source
from firesteel.graph.job_graph import JobGraph

_SHOWN = 3
"""Jobs that a message names."""
_ENDS_SOON = (JobStatus.CANCELLING, JobStatus.FAILING)


def check_slots(graph: JobGraph, cluster: tuple[str, ...], slots: int, free_slots: int | None = None) -> None:
    """Refuse a job whose slots are held by jobs of this kernel that never end; say so where they may end.

    Args:
        graph: that is to be submitted.
        cluster: where to, as in ``SubmittedJob.cluster``.
        slots: of that cluster.
        free_slots: of that cluster; None = those that no job of this kernel holds.

    Raises:
        NoResourceAvailableError: in a cluster inside this process, whose slots only its own jobs can free.
    """
    needed = graph.slots_needed()
    if is_batch(graph):  # its tasks run on Spark and need no slots
        return
    holders = [
        (job, job_graph, status)
        for job, status in submitted_jobs.running(lambda job: job.cluster == cluster)
        if (job_graph := getattr(job.client, "graph", None)) is not None and not is_batch(job_graph)
    ]
    used_slots = sum(job_graph.slots_needed() for _, job_graph, _ in holders)
    if not holders or (slots - used_slots if free_slots is None else free_slots) >= needed:
        return
    endless = [
        (job, job_graph)
        for job, job_graph, status in holders
        if unbounded_source(job_graph) is not None and status not in _ENDS_SOON
    ]
    never_free = sum(job_graph.slots_needed() for _, job_graph in endless)
    if cluster == LOCAL and slots - never_free < needed:
        raise NoResourceAvailableError(
            f"{_named(endless, slots)} and will not end by itself, and job {graph.name!r} needs {needed}: "
            f"`env.cancel_jobs()` cancels what this notebook has left running. To run both, give the cluster more "
            f"slots: {options.TASKMANAGER_SLOTS.key} = {never_free + needed} in the environment's Configuration"
        )
    text = _named([(job, job_graph) for job, job_graph, _ in holders], slots)
    CellConsole().note(
        f"{text}; job {graph.name!r} needs {needed} and waits until they are free. `env.cancel_jobs()` cancels all "
        "jobs of this notebook."
    )


def _named(jobs: list[tuple[SubmittedJob, Any]], slots: int) -> str:
    """Which jobs hold how many slots, as the beginning of a sentence."""
    cell = current_cell()
    parts = []
    for job, graph in jobs[:_SHOWN]:
        origin = ""
        if job.cell is not None:
            is_rerun = cell is not None and job.cell.place and job.cell.place == cell.place
            number = f"In[{job.cell.number}]"
            origin = f" of an earlier run of this cell, {number}," if is_rerun else f" of {number}"
        parts.append(f"job {graph.name!r} ({graph.job_id}){origin} holds {graph.slots_needed()} of {slots} slots")
    more = len(jobs) - len(parts)
    return ", ".join(parts) + (f", and {more} more jobs hold others" if more else "")
