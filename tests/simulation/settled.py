"""What must be true of attempts at every moment, and of jobs with checkpoints long after the last fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.checkpointed_jobs import AMPLE
from tests.simulation.storage import METADATA

if TYPE_CHECKING:
    from firesteel_jobmaster.app import JobMasterService
    from tests.simulation.cluster import Cluster

SILENT_FOR = 100.0
"""Seconds in which a job that runs has to complete a checkpoint."""


def check_attempts(cluster: Cluster, service: JobMasterService) -> None:
    """Of every subtask one attempt runs at most, and slots are used once."""
    for job in service._jobs.values():
        graph = job.core.graph
        for vertex in graph.vertices.values():
            for subtask in vertex.subtasks:
                ended = [attempt.state.is_terminal for attempt in subtask.attempts]
                assert all(ended[:-1]), f"{cluster.short(job.job_id)}: two attempts of {subtask.current.task_name}"
        placed = [slot.allocation_id for slot in graph.placed_slots()]
        assert len(placed) == len(set(placed)), f"{cluster.short(job.job_id)}: a slot holds two shared slots"
        assert len(job.core.pool) <= len(graph.shared_slots), f"{cluster.short(job.job_id)} has too many slots"
        most = cluster.restarts.get(job.job_id, 0)
        assert graph.restarts - graph.job_attempt <= most, f"{cluster.short(job.job_id)} was restarted too often"


def check_checkpointed(cluster: Cluster, job_id: str, state: str) -> None:
    """One job.

    Args:
        cluster: whose job it is.
        job_id: its id.
        state: its state, as the Dispatcher knows it.
    """
    job, account, name = cluster.checkpointed[job_id], cluster.ledger.accounts[job_id], cluster.short(job_id)
    now = cluster.world.now
    if state == "FINISHED":
        assert not job.endless, f"{name} has no end and is FINISHED"
        cluster.ledger.check_finished(job_id)
    if state == "RUNNING" and not cluster.waits_in_vain(job_id):
        silent = now - account.completed_at
        assert silent < SILENT_FOR, f"{name} runs and has completed no checkpoint for {silent:.0f} s"
        shown, newest = account.committed_up_to, max(account.completed)
        assert shown <= newest
        for slot in cluster.slot_processes.values():
            for task in slot.checkpointed.values():
                if task.job_id == job_id and task.state == "RUNNING" and task.uncommitted:
                    assert task.uncommitted >= newest - 3, (
                        f"{name}: {task.execution_id} has not shown what it prepared for {task.uncommitted} "
                        f"(complete: {newest})"
                    )
    lasting = job.restarts >= AMPLE and job_id not in cluster.cancelled and not account.rots
    if lasting and state not in ("RUNNING", "RESTARTING"):
        reason = cluster.failures.get(job_id, "")
        assert state == "FINISHED" or "needs" in reason, f"{name} may be restarted and is {state}: {reason}"
    if state in ("FINISHED", "FAILED", "CANCELED"):
        _check_files(cluster, job_id, state)


def _check_files(cluster: Cluster, job_id: str, state: str) -> None:
    """Orphans are gone: what is left belongs to checkpoints that are to stay.

    A JobMaster that is killed when the end of its job is known leaves what it had not removed yet.
    """
    job, account, name = cluster.checkpointed[job_id], cluster.ledger.accounts[job_id], cluster.short(job_id)
    if account.epoch != 1 or not cluster.disk.is_fair:
        return
    left = cluster.disk.left_of(job_id)
    stays = {"FAILED": job.retention != "NO_EXTERNALIZED_CHECKPOINTS"}
    stays["CANCELED"] = job.retention == "RETAIN_ON_CANCELLATION"
    if not stays.get(state, False):
        assert not left, f"{name} is {state} and has left {left}"
    for path in left:
        directory = path.rpartition("/")[0]
        assert f"{directory}/{METADATA}" in left, f"{name} is {state} and has left {path}, which no checkpoint needs"
    assert not cluster.ha.left_of(job_id), f"{name} is {state} and its checkpoints are still in the store"
    assert not account.kept
