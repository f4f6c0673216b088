"""TaskManagers that the ResourceManager's provider starts and stops: how many, when, and which go."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from firesteel.core.errors import IllegalTransitionError
from firesteel_resourcemanager.instructions import Instruction, StartWorker, StopWorker
from firesteel_resourcemanager.registry import ClusterRegistry
from firesteel_resourcemanager.settings import WorkerSettings
from firesteel_resourcemanager.slot_table import RegisteredTaskManager, SlotState

logger = logging.getLogger(__name__)

FAILURE_WINDOW = 60.0
"""Seconds for which a failed start counts."""
STOP_AGAIN = 15.0
"""Seconds after which a worker that has not ended is stopped once more."""


class WorkerState(Enum):
    """States of a worker, which is forgotten when it has ended."""

    STARTING = "STARTING"
    """The provider was asked to start it; its TaskManager has not registered."""
    REGISTERED = "REGISTERED"
    STOPPING = "STOPPING"
    """The provider was asked to stop it; it has not ended."""


MOVES: Final[Mapping[WorkerState, frozenset[WorkerState]]] = {
    WorkerState.STARTING: frozenset({WorkerState.REGISTERED, WorkerState.STOPPING}),
    WorkerState.REGISTERED: frozenset({WorkerState.STOPPING}),
    WorkerState.STOPPING: frozenset(),
}


@dataclass
class Worker:
    """A TaskManager process that a provider was asked to start."""

    id: str
    slots: int
    since: float
    """When the worker came into its state (monotonic seconds)."""
    state: WorkerState = WorkerState.STARTING
    idle_since: float | None = None
    """Time since when nobody uses the worker, while that is so."""
    jobs: frozenset[str] = frozenset()
    """Jobs that had slots there when its TaskManager was lost."""

    def move(self, to: WorkerState, now: float) -> None:
        """Go to a state.

        Raises:
            IllegalTransitionError: there is no such move.
        """
        if to not in MOVES[self.state]:
            raise IllegalTransitionError(f"worker {self.id}: no move {self.state.name} -> {to.name}")
        self.state, self.since = to, now


class Workers:
    """Decides how many workers there are. Does nothing with a provider that is not active.

    Args:
        registry: TaskManagers and jobs.
        new_id: makes ids of workers.
        active: whether the provider can start workers.
    """

    def __init__(self, registry: ClusterRegistry, new_id: Callable[[], str], active: bool) -> None:
        self._registry, self._new_id, self.is_active = registry, new_id, active
        self._settings: WorkerSettings = registry.settings.workers
        self._recovered = False
        self._workers: dict[str, Worker] = {}
        self._failures: deque[float] = deque()
        self._last_failure = ""
        self.waiting: dict[str, str] = {}
        """Worker -> why it does not run yet, by the provider's word."""
        self._not_before = 0.0

    def __contains__(self, worker_id: str) -> bool:
        return worker_id in self._workers

    def state(self, worker_id: str) -> WorkerState | None:
        """State of a worker; None if there is no worker of this id."""
        worker = self._workers.get(worker_id)
        return None if worker is None else worker.state

    def potential(self) -> int:
        """Slots that the cluster can have beside those of the TaskManagers that are registered."""
        if not self.is_active:
            return 0
        room = self._registry.settings.max_slots - self._registry.table.total()
        return max(0, room // self._settings.slots * self._settings.slots)

    # -- events

    def recovered(self, worker_ids: Iterable[str], now: float) -> None:
        """Workers of a former ResourceManager run still; from now on others may be started, too."""
        self._recovered = True
        for worker_id in worker_ids:
            worker = Worker(worker_id, self._settings.slots, now)
            self._workers.setdefault(worker_id, worker)
            if worker_id in self._registry.table.taskmanagers:
                self._workers[worker_id].move(WorkerState.REGISTERED, now)
        if self._workers:
            logger.info("workers of a former ResourceManager: %s", ", ".join(self._workers))

    def wait(self, reasons: Mapping[str, str]) -> None:
        """Note why workers do not run yet."""
        for worker_id, reason in reasons.items():
            if self.waiting.get(worker_id) != reason:
                logger.warning("worker %s does not run yet: %s", worker_id, reason)
        self.waiting = dict(reasons)

    def trouble(self, now: float) -> str:
        """Why workers that were asked for don't come; empty: nothing is known to be wrong."""
        for worker in self._workers.values():
            if worker.state is WorkerState.STARTING and worker.id in self.waiting:
                return self.waiting[worker.id]
        self._forget_failures(now)
        return self._last_failure if self._failures else ""

    def registered(self, taskmanager: RegisteredTaskManager, now: float) -> None:
        """A TaskManager has registered; perhaps it is a worker."""
        worker = self._workers.get(taskmanager.id)
        if worker is not None and worker.state is WorkerState.STARTING:
            worker.move(WorkerState.REGISTERED, now)
            worker.slots, worker.idle_since = len(taskmanager.slots), None

    def stop(self, worker_id: str, cause: str, now: float) -> list[Instruction]:
        """Have a worker end; nothing happens for a TaskManager that is no worker."""
        worker = self._workers.get(worker_id)
        if worker is None or worker.state is WorkerState.STOPPING:
            return []
        logger.info("worker %s is stopped: %s", worker_id, cause)
        worker.move(WorkerState.STOPPING, now)
        return [StopWorker(worker_id)]

    def failed(self, worker_id: str, cause: str, now: float) -> None:
        """A worker could not be started."""
        if self._workers.pop(worker_id, None) is not None:
            self._start_failed(worker_id, cause, now)

    def lost(self, worker_id: str, jobs: frozenset[str]) -> None:
        """The TaskManager of a worker is lost, and the worker has not ended yet, as far as is known."""
        worker = self._workers.get(worker_id)
        if worker is not None:
            worker.jobs |= jobs

    def ended(self, worker_id: str, cause: str, now: float) -> frozenset[str]:
        """A worker has ended; returns the jobs that had slots there when its TaskManager was lost before."""
        worker = self._workers.pop(worker_id, None)
        if worker is None or worker.state is WorkerState.STOPPING:
            logger.info("worker %s has ended: %s", worker_id, cause)
        elif worker.state is WorkerState.STARTING:
            self._start_failed(worker_id, f"it ended before it registered: {cause}", now)
        else:
            logger.warning("worker %s is lost: %s", worker_id, cause)
        return frozenset() if worker is None else worker.jobs

    def _start_failed(self, worker_id: str, cause: str, now: float) -> None:
        self._failures.append(now)
        self._last_failure = f"worker {worker_id} was not started: {cause}"
        self._forget_failures(now)
        logger.warning("worker %s was not started: %s", worker_id, cause)
        if len(self._failures) >= self._settings.max_failures:
            self._not_before = now + self._settings.retry_interval
            logger.warning(
                "%d workers were not started within a minute (resourcemanager.start-worker.max-failure-rate); the next "
                "one waits %g s", len(self._failures), self._settings.retry_interval,
            )  # fmt: skip

    def _forget_failures(self, now: float) -> None:
        while self._failures and now - self._failures[0] > FAILURE_WINDOW:
            self._failures.popleft()

    # -- decisions

    def plan(self, now: float) -> list[Instruction]:
        """Stop what is late, start what is missing."""
        if not (self.is_active and self._recovered):
            return []
        out: list[Instruction] = []
        for worker in list(self._workers.values()):
            if worker.state is WorkerState.STARTING and now >= worker.since + self._settings.registration_timeout:
                self._start_failed(
                    worker.id,
                    f"it did not register within {self._settings.registration_timeout:g} s "
                    "(resourcemanager.taskmanager-registration.timeout)",
                    now,
                )
                out += self.stop(worker.id, "it did not register in time", now)
            elif worker.state is WorkerState.STOPPING and now >= worker.since + STOP_AGAIN:
                worker.since = now
                out.append(StopWorker(worker.id))
        supply, target = self._supply(), self._target()
        while now >= self._not_before and supply < target and self._has_room(supply):
            worker = Worker(self._new_id(), self._settings.slots, now)
            self._workers[worker.id] = worker
            supply += worker.slots
            logger.info("worker %s with %d slots is started", worker.id, worker.slots)
            out.append(StartWorker(worker.id, worker.slots))
        return out

    def idle(self, now: float) -> list[str]:
        """Workers that nobody has used for too long and nobody needs; the longest idle one first."""
        if not (self.is_active and self._recovered):
            return []
        candidates: list[Worker] = []
        for worker in self._workers.values():
            taskmanager = self._registry.table.taskmanagers.get(worker.id)
            unused = worker.state is WorkerState.STARTING or (
                worker.state is WorkerState.REGISTERED and taskmanager is not None and taskmanager.is_idle
            )
            worker.idle_since = None if not unused else now if worker.idle_since is None else worker.idle_since
            if worker.idle_since is not None and now >= worker.idle_since + self._settings.idle_timeout:
                candidates.append(worker)
        spare = self._supply() - self._target()
        out: list[str] = []
        for worker in sorted(candidates, key=lambda w: (w.state is not WorkerState.STARTING, w.idle_since)):
            if worker.slots <= spare:
                spare -= worker.slots
                out.append(worker.id)
        return out

    def validate(self) -> None:
        """Check what must hold after every event (tests call it)."""
        for worker in self._workers.values():
            known = worker.id in self._registry.table.taskmanagers
            assert known == (worker.state is WorkerState.REGISTERED), f"{worker}, TaskManager registered: {known}"

    def _supply(self) -> int:
        coming = sum(w.slots for w in self._workers.values() if w.state is WorkerState.STARTING)
        return self._registry.table.total() + coming

    def _target(self) -> int:
        """Slots that the cluster should have: for all jobs that it can serve, and those kept for others."""
        most = self._registry.table.total() + self.potential()
        needed = 0
        for job in self._registry.jobs.values():
            in_use = self._registry.table.counting(job.id)
            needed += max(job.wanted, in_use) if job.wanted <= most else in_use
        for job_id in self._registry.kept:
            needed += sum(s.state is SlotState.ALLOCATED for s in self._registry.table.of_job(job_id))
        return min(self._registry.settings.max_slots, max(needed, self._settings.min_slots))

    def _has_room(self, supply: int) -> bool:
        return supply + self._settings.slots <= self._registry.settings.max_slots
