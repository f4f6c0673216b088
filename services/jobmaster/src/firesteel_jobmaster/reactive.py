"""Reactive mode: how many subtasks a job has in so many slots, and when a job that runs is rescaled. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from firesteel.config import Settings, options
from firesteel.config.derived import is_reactive
from firesteel.graph.job_graph import JobGraph, JobVertex
from firesteel.graph.specs import PartitionerKind

NOW: Final = 0.0


@dataclass(frozen=True)
class ReactiveSettings:
    """``jobmanager.adaptive-scheduler.*``; seconds.

    Attributes:
        wait: ``submission.resource-wait-timeout``; None = for ever.
        settle: ``submission.resource-stabilization-timeout``.
        cooldown: ``executing.cooldown-after-rescaling``.
        stabilization: ``executing.resource-stabilization-timeout``.
        max_failures: ``rescale-trigger.max-checkpoint-failures``.
        max_delay: ``rescale-trigger.max-delay``; None = it follows from the interval of checkpoints.
        history: ``web.adaptive-scheduler.rescale-history.size``.
    """

    wait: float | None = None
    settle: float = 2.0
    cooldown: float = 30.0
    stabilization: float = 60.0
    max_failures: int = 2
    max_delay: float | None = None
    history: int = 10

    @classmethod
    def read(cls, settings: Settings) -> ReactiveSettings | None:
        """Read the cluster's settings; None: it is not in reactive mode.

        Raises:
            ConfigurationError: a value is not valid, or this cluster can't be in reactive mode.
        """
        if not is_reactive(settings):
            return None
        wait, max_delay = settings.get(options.RESCALE_WAIT), settings.get(options.RESCALE_MAX_DELAY)
        return cls(
            wait=None if wait is None else wait.total_seconds(),
            settle=settings.get(options.RESCALE_SUBMISSION_STABILIZATION).total_seconds(),
            cooldown=settings.get(options.RESCALE_COOLDOWN).total_seconds(),
            stabilization=settings.get(options.RESCALE_STABILIZATION).total_seconds(),
            max_failures=settings.get(options.RESCALE_MAX_CHECKPOINT_FAILURES),
            max_delay=None if max_delay is None else max_delay.total_seconds(),
            history=settings.get(options.RESCALE_HISTORY_SIZE),
        )

    def longest_delay(self, interval: float) -> float:
        """Seconds for which a rescale waits for a checkpoint, if one is taken each ``interval`` seconds (0 = none)."""
        return interval * (self.max_failures + 1) if self.max_delay is None else self.max_delay


class Scale:
    """The parallelism of a job's vertices for any number of slots.

    A vertex has as many subtasks as its slot-sharing group has slots, up to its max parallelism. What its program says
    about its parallelism counts for nothing, but that some operators have one subtask only. Vertices that are joined by
    a FORWARD edge have the same parallelism.

    Args:
        job: as it was submitted.
    """

    def __init__(self, job: JobGraph) -> None:
        self._job = job
        self._joined = _joined(job)
        self.job_id = job.job_id
        self.limits: Mapping[str, int] = self._even({v.id: _limit(v) for v in job.vertices})
        """The largest parallelism of each vertex."""
        self.groups: dict[str, int] = {}
        """Slots that each slot-sharing group can use."""
        for vertex in job.vertices:
            limit = self.limits[vertex.id]
            self.groups[vertex.slot_sharing_group] = max(self.groups.get(vertex.slot_sharing_group, 1), limit)

    @property
    def least(self) -> int:
        """Slots without which the job can't run."""
        return len(self.groups)

    @property
    def most(self) -> int:
        """Slots that the job can use."""
        return sum(self.groups.values())

    def parallelism(self, slots: int) -> dict[str, int]:
        """Parallelism of each vertex when the job has ``slots`` slots, which are not fewer than ``least``."""
        slots_of_group = _shares(self.groups, slots)
        return self._even(
            {v.id: min(self.limits[v.id], slots_of_group[v.slot_sharing_group]) for v in self._job.vertices}
        )

    def job(self, slots: int) -> JobGraph:
        """The job graph, laid out for ``slots`` slots."""
        parallelism = self.parallelism(slots)
        return replace(self._job, vertices=tuple(replace(v, parallelism=parallelism[v.id]) for v in self._job.vertices))

    def _even(self, parallelism: Mapping[str, int]) -> dict[str, int]:
        return {id_: min(parallelism[joined_id] for joined_id in self._joined[id_]) for id_ in parallelism}


def _limit(vertex: JobVertex) -> int:
    return vertex.parallelism if vertex.fixed_parallelism else vertex.max_parallelism


def _joined(job: JobGraph) -> dict[str, set[str]]:
    """Vertex -> all vertices that FORWARD edges join it with, itself included."""
    joined = {vertex.id: {vertex.id} for vertex in job.vertices}
    for edge in job.edges:
        if edge.partitioner == PartitionerKind.FORWARD.value and joined[edge.source] is not joined[edge.target]:
            group = joined[edge.source] | joined[edge.target]
            joined.update(dict.fromkeys(group, group))
    return joined


def _shares(limits: Mapping[str, int], slots: int) -> dict[str, int]:
    """Slots of each group, as even as the groups' limits allow; the first groups get the rest."""
    shares = dict.fromkeys(limits, 0)
    while slots > 0:
        open_ = [group for group, limit in limits.items() if shares[group] < limit]
        if not open_:
            break
        each = max(1, min(slots // len(open_), *(limits[group] - shares[group] for group in open_)))
        for group in open_:
            if slots >= each:
                shares[group] += each
                slots -= each
    return shares


class RescaleTiming:
    """When a job that runs, and has more slots than it uses, is rescaled.

    First the cooldown since it was scaled last has to be over, and slots must have had time to come. Then the next
    checkpoint is waited for, so that little is done again; not for ever.

    Args:
        settings: of reactive mode.
        interval: seconds between checkpoints; 0 = there are none.
    """

    def __init__(self, settings: ReactiveSettings, interval: float) -> None:
        self._settings, self._longest_delay = settings, settings.longest_delay(interval)
        self._scaled = 0.0
        self._changed: float | None = None
        self._ready: tuple[float, int, int] | None = None
        """When the wait for a checkpoint began, the id of the last checkpoint and the number of failed ones by then.

        None: something else is waited for."""

    def scaled(self, now: float) -> None:
        """The job begins with the slots that it has."""
        self._scaled, self._changed, self._ready = now, None, None

    def look(self, now: float, all_there: bool, checkpoint: int, failed: int) -> float:
        """Seconds until the next look; ``NOW``: the job is to be rescaled.

        Args:
            now: monotonic seconds.
            all_there: the job has as many slots as it can use.
            checkpoint: id of the last checkpoint that is complete.
            failed: how many checkpoints have failed.
        """
        if self._changed is None:
            self._changed = now
        due = self._scaled + self._settings.cooldown
        if not all_there:
            due = max(due, self._changed + self._settings.stabilization)
        if now < due:
            return due - now
        if self._ready is None:
            self._ready = (now, checkpoint, failed)
        since, checkpoint_before, failed_before = self._ready
        late = since + self._longest_delay
        if checkpoint != checkpoint_before or failed - failed_before >= self._settings.max_failures or now >= late:
            return NOW
        return late - now
