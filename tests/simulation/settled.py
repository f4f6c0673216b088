"""What must be true of attempts at every moment, and of all jobs long after the last fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.attempts import check_counted
from tests.simulation.checkpointed_jobs import AMPLE
from tests.simulation.savepoints import check_stopped
from tests.simulation.storage import METADATA

if TYPE_CHECKING:
    from firesteel_jobmaster.app import JobMasterService
    from firesteel_jobmaster.shell import JobMaster
    from tests.simulation.cluster import Cluster

SILENT_FOR = 100.0
"""Seconds in which a job that runs has to complete a checkpoint."""


def check_attempts(cluster: Cluster, service: JobMasterService) -> None:
    """Of every subtask one attempt runs at most, slots are used once, and no strategy allows more than it may."""
    names = [name for name in service.background.names() if "heartbeats to" in name]
    assert len(names) == len(set(names)), f"two exchanges of heartbeats with one TaskManager: {names}"
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
        often = graph.restarts - graph.job_attempt > most
        # Losses while it commits count for no strategy, and with its end the job forgets the checkpoint that says so.
        if job.core.checkpoints.is_committing:
            cluster.committing.add(job.job_id)
        assert not often or job.job_id in cluster.committing, f"{cluster.short(job.job_id)} was restarted too often"


def check_settled(cluster: Cluster) -> None:
    """Every job has ended or runs, and nothing is held for nobody."""
    running: set[str] = set()
    for job_id in cluster.submitted:
        state, name = cluster.job_state(job_id), cluster.short(job_id)
        if state in ("RUNNING", "RESTARTING") and waits_in_vain(cluster, job_id):
            running.add(job_id)
        elif state == "RUNNING" and job_id in cluster.endless:
            running.add(job_id)
            acting = [e for s in cluster.slot_processes.values() if s.job_id == job_id for e in s.acting]
            assert acting, f"{name} is RUNNING and nothing of it runs"
        else:
            assert state in ("FINISHED", "FAILED", "CANCELED"), f"{name} is {state} for ever"
        if job_id in cluster.checkpointed:
            _check_checkpointed(cluster, job_id, state)
        elif state == "FINISHED" and job_id in cluster.shown_by:
            read = _splits_read(cluster, job_id)
            assert read == cluster.splits[job_id], f"{name}: {read} of {cluster.splits[job_id]} splits"
        if job_id in cluster.sinks:
            shown = sum(job == job_id for job, _ in cluster.commits)
            assert shown in (0, cluster.sinks[job_id]), f"{name} is {state}: {shown} parts of it are shown"
            assert shown or state != "FINISHED", f"{name} is FINISHED and readers see nothing"
        _check_end(cluster, job_id, state)
    cluster.ledger.check_savepoints(cluster.disk.files)
    for slot in cluster.resourcemanager.service.core.table:
        assert not slot.job_id or slot.job_id in running, f"ResourceManager holds {slot} for a job that has ended"
    for process in cluster.taskmanagers.values():
        for task_slot in process.service.core.slots:
            assert not task_slot.job_id or task_slot.job_id in running, (
                f"{process} holds {task_slot} for a job that has ended"
            )
    job_by_allocation = {slot.allocation_id: slot.job_id for slot in cluster.resourcemanager.service.core.table}
    for slot_process in cluster.slot_processes.values():
        job_id = slot_process.job_id or job_by_allocation.get(
            slot_process.launch.allocation_id, ""
        )  # that waits for more slots
        assert job_id in running, f"slot process {slot_process.pid} is left over"


def _splits_read(cluster: Cluster, job_id: str) -> int:
    """By the last attempts under the JobMaster whose results are shown."""
    last = cluster.shown_by[job_id]
    read: dict[str, int] = {}
    for (job, secret, subtask, _), count in sorted(cluster.processed.items(), key=lambda item: item[0][3]):
        if (job, secret) == (job_id, last):
            read[subtask] = count
    return sum(read.values())


def _led_by(cluster: Cluster, job_id: str) -> JobMaster | None:
    """The JobMaster that the Dispatcher knows, if it lives."""
    record = cluster.dispatcher.service.core.job(job_id)
    token = record.jobmaster[1] if record.jobmaster is not None else ""
    return next((job for job in cluster.jobmasters(job_id) if job.token == token), None)


def waits_in_vain(cluster: Cluster, job_id: str) -> bool:
    """Whether a job that may be restarted, or is committing, needs slots which endless jobs will never give back."""
    led = {id_: job.core for id_ in cluster.submitted if (job := _led_by(cluster, id_)) is not None}
    waiting = [id_ for id_, core in led.items() if core.waits_for_slots]
    needed = sum(led[id_].pool.needed for id_ in waiting)  # what one of them has, another one lacks
    left = sum(not slot.job_id or slot.job_id in waiting for slot in cluster.resourcemanager.service.core.table)
    restarts = job_id in waiting and (cluster.restarts[job_id] or led[job_id].checkpoints.is_committing)
    return bool(restarts and left < needed)


def _check_end(cluster: Cluster, job_id: str, state: str) -> None:
    """A job that failed for a reason that another attempt may mend had used up its restarts."""
    archive = cluster.archives.get(job_id, {})
    jobmasters = cluster.led.get(job_id, [])
    if state in ("FINISHED", "FAILED", "CANCELED"):
        check_counted(cluster.short(job_id), archive, jobmasters, cluster.attempts)
    failure = archive.get("failure")
    name = cluster.short(job_id)
    assert state != "CANCELED" or job_id in cluster.cancelled, f"{name} is CANCELED, and no user wanted that"
    if state == "FAILED" and job_id not in cluster.cancelled:
        reason = cluster.failures.get(job_id, "")
        assert "told-by" not in archive, f"{name} has FAILED by no fault of its own: {reason}"
    if state != "FAILED" or failure is None or "told-by" in archive or not failure.get("recoverable", True):
        return
    used, most = archive["restarts"]["numRestarts"] - jobmasters[-1].core.graph.job_attempt, cluster.restarts[job_id]
    assert used >= most, f"{cluster.short(job_id)} failed after {used} of {most} restarts: {failure['message']}"


def _check_checkpointed(cluster: Cluster, job_id: str, state: str) -> None:
    job, account, name = cluster.checkpointed[job_id], cluster.ledger.accounts[job_id], cluster.short(job_id)
    now = cluster.world.now
    if state == "FINISHED" and account.stopped:
        check_stopped(cluster, job_id)
    elif state == "FINISHED":
        assert not job.endless, f"{name} has no end and is FINISHED"
        cluster.ledger.check_finished(job_id)
    if state == "RUNNING" and not waits_in_vain(cluster, job_id):
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
