"""Faults at chosen steps of checkpoints: between any two of them somebody is killed, cut off, frozen, or raises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.checkpointed import CheckpointedTask
    from tests.simulation.story import Story
    from tests.simulation.world import Process

IN_TASKS = (
    "restore", "barrier", "before sync", "after sync", "before write", "after write", "after acknowledge",
    "before commit", "after commit",
)  # fmt: skip
IN_STORAGE = (
    "prepare", "before metadata", "after metadata", "before store", "after store", "before remove", "dispose",
    "between metadata and files", "discard", "close", "recover", "read metadata",
)  # fmt: skip
IN_CALLS = tuple(
    f"{end} {method}"
    for end in ("sent", "taken")
    for method in (
        "trigger_checkpoint", "acknowledge_checkpoints", "decline_checkpoint", "notify_checkpoint_complete",
        "notify_checkpoint_aborted", "end_of_data", "submit_tasks", "update_task_states", "job_finished",
    )
)  # fmt: skip
_VICTIMS = (
    "here", "here", "jobmaster", "jobmaster", "jobmaster", "taskmanager", "slot", "dispatcher", "resourcemanager",
    "task", "task", "cut", "freeze", "deposed", "deposed", "machine", "jobmaster-host", "stop", "stop",
)  # fmt: skip


@dataclass
class Ambush:
    """One of them.

    Attributes:
        point: name of the step.
        passes: so many others pass before.
        victim: whom it hits.
    """

    point: str
    passes: int
    victim: str


class Ambushes:
    """Those of one story.

    Args:
        story: whose cluster it is.
        count: how many.
    """

    def __init__(self, story: Story, count: int) -> None:
        self._story, self._cluster, self._world = story, story.cluster, story.world
        rng = self._world.rng
        points = [*IN_TASKS * 2, *IN_STORAGE * 2, *IN_CALLS]
        self._laid = [
            Ambush(rng.choice(points), rng.choice([0, 0, 1, 2, 5, 10, 20]), rng.choice(_VICTIMS)) for _ in range(count)
        ]
        self._cluster.on_step = self.passed
        self._world.watch = self._called

    def _called(self, end: str, method: str, job_id: str, caller: Process, callee: Process | None) -> None:
        self.passed(f"{end} {method}", job_id, None)

    def passed(self, point: str, job_id: str, task: CheckpointedTask | None) -> None:
        """A step is done."""
        if not self._laid or job_id not in self._cluster.checkpointed or not self._cluster.faults_go_on:
            return
        for ambush in [laid for laid in self._laid if laid.point == point]:
            ambush.passes -= 1
            if ambush.passes < 0:
                self._laid.remove(ambush)
                self._world.tell(f"{self._cluster.short(job_id)}: {point!r} hits {ambush.victim}")
                self._strike(ambush.victim, job_id, task)

    def _strike(self, victim: str, job_id: str, task: CheckpointedTask | None) -> None:
        cluster, story, world = self._cluster, self._story, self._world
        if victim == "here" and task is not None:
            cluster.kill_slot(task.slot.pid)
            return
        match victim:
            case "here" | "jobmaster":
                for process in cluster.job_processes.of_job(job_id):
                    process.doomed = True
                    world.after(0.0, process.kill)
            case "dispatcher" | "resourcemanager" | "jobmaster-host":
                world.after(0.0, lambda: story.kill_coordinator(victim))
            case "machine":
                world.after(0.0, story.kill_jobmaster_machine)
            case "stop":
                world.after(0.0, story.stop_coordinator)
            case "taskmanager":
                world.after(0.0, story.kill_taskmanager)
            case "slot":
                world.after(0.0, story.kill_slot)
            case "task":
                if task is not None:
                    task.fail()
                else:
                    world.after(0.0, story.fail_task)
            case "cut":
                world.after(0.0, story.cut_jobmaster)
            case "freeze":
                world.after(0.0, lambda: story.freeze_jobmaster(job_id))
            case "deposed":
                world.after(0.0, story.depose_jobmaster)
