"""The checkpoints of a job, as its core knows them."""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from typing import Any

from firesteel.checkpoint.restore_point import RestorePoint
from firesteel.core.clock import Clock
from firesteel.core.errors import CheckpointCorruptedError, class_name
from firesteel.graph.execution_graph import Execution
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.checkpoints.completed import CompletedCheckpoints
from firesteel_jobmaster.checkpoints.coordinator import CheckpointCoordinator
from firesteel_jobmaster.checkpoints.job import CoordinatedJob
from firesteel_jobmaster.checkpoints.settings import CheckpointSettings

logger = logging.getLogger(__name__)
_CORRUPTED = class_name(CheckpointCorruptedError)


class JobCheckpoints:
    """What tasks go on from, and what their reports mean for checkpoints; the coordinator decides about these.

    Args:
        job: what the coordinator needs of the job.
        settings: of the job's checkpoints.
        clock: of the core.
        may_recover: there may be checkpoints of an earlier JobMaster of the job.
        follows: there was an earlier JobMaster of the job.
    """

    def __init__(
        self, job: CoordinatedJob, settings: CheckpointSettings, clock: Clock, may_recover: bool, follows: bool
    ) -> None:
        self.graph, self.settings = job.graph, settings
        self._follows = follows
        self._may_recover = may_recover or settings.restore_path is not None or settings.needs_look
        self._restored_from: dict[str, int] = {}
        """Task -> id of the checkpoint that it was deployed with."""
        completed = CompletedCheckpoints(job.graph.job_graph, settings, lambda work: job.emit(do.CheckpointWork(work)))
        self.coordinator = CheckpointCoordinator(job, settings, clock, completed)

    # -- what tasks go on from

    @property
    def is_settled(self) -> bool:
        """Whether tasks may be deployed: it is known from which checkpoint they go on."""
        return self.coordinator.is_settled

    @property
    def commits_at_end(self) -> bool:
        """Whether the last results are committed by a checkpoint."""
        return self.coordinator.commits_at_end

    def restore_point(self) -> RestorePoint | None:
        """What tasks that are started now go on from."""
        return self.coordinator.completed.latest()

    @property
    def waits_for_releases(self) -> bool:
        """Whether state of another release is waited for, by going on once the cluster's version was rolled on or back.

        What the user begins a job with is refused instead.
        """
        return self._follows or self.coordinator.completed.has_own

    def restore_of(self, execution: Execution) -> Mapping[str, Any] | None:
        """What a task that is deployed now goes on from, as plain data."""
        point = self.restore_point()
        if point is None:
            return None
        self._restored_from[execution.id] = point.checkpoint_id
        return point.task(execution).to_plain()

    def has_finished(self, execution: Execution) -> bool:
        """Whether a task had come to its end in the checkpoint that it goes on from."""
        point = self.restore_point()
        return point is not None and point.has_finished(execution.vertex.id)

    @property
    def is_committing(self) -> bool:
        """Whether all that is left of the job is to commit what its last checkpoint holds; some of it may be shown."""
        point = self.restore_point()
        workers = [v.id for v in self.graph.job_graph.vertices if v.enumerates is None]
        return point is not None and all(map(point.has_finished, workers))

    def in_slices(self) -> Generator[None, None, dict[str, Any] | None]:
        """Statistics of the job's checkpoints for people, in slices; None = the job takes none."""
        statistics = self.coordinator.statistics
        unread = self.coordinator.is_unread
        if (
            not unread
            and not self.coordinator.is_periodic
            and statistics.is_empty
            and self.coordinator.requests.is_empty
        ):
            return None
        return {
            **(yield from statistics.in_slices()),
            "metrics": statistics.metrics(),
            "triggers": self.coordinator.requests.to_plain(),
            "config": self.settings.to_plain(),
            "operators": {
                operator.id: [vertex.id, operator.name, operator.uid]
                for vertex in self.graph.job_graph.vertices
                for operator in vertex.operators
            },
            **({"unread": True} if unread else {}),
        }

    # -- what happens

    def start(self) -> None:
        """The job begins; before it does, it is looked what there is, and whether checkpoints can be written."""
        if self._may_recover:
            self.coordinator.recover(follows=self._follows)

    def restarting(self) -> RestorePoint | None:
        """Tasks are started again now, from this checkpoint."""
        point = self.restore_point()
        self._restored_from = {id_: n for id_, n in self._restored_from.items() if self.graph.execution(id_)}
        if point is not None:
            self.coordinator.restored(point)
        return point

    def task_reported(self, execution: Execution) -> None:
        """A task runs, or has finished."""
        self.coordinator.tasks_changed(execution)

    def failure_reported(self, execution: Execution, plain: Mapping[str, Any]) -> bool:
        """A task has failed; returns whether that means that all have to be restarted, from another checkpoint."""
        checkpoint_id = self._restored_from.pop(execution.id, None)
        if checkpoint_id is None or plain.get("error_class") != _CORRUPTED:
            return False
        logger.error("%s can't read its state: %s", execution.task_name, plain.get("message"))
        self.coordinator.damaged(checkpoint_id, str(plain.get("message")))
        return True
