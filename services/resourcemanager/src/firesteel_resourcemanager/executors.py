"""The executor of each TaskManager: which one it has, whether slots can run on it, and when it gets another one."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from firesteel.core.backoff import pause_after
from firesteel_resourcemanager.executor import Executor, ExecutorState
from firesteel_resourcemanager.instructions import Instruction, StartExecutor
from firesteel_resourcemanager.slot_table import RegisteredTaskManager

logger = logging.getLogger(__name__)

ATTACH_PATIENCE = 180.0
"""Seconds from the order to start an executor until it has to be attached to the fleet: machines may be busy."""
DETACHED_GRACE = 5.0
"""Seconds for which an executor may be missing in the fleet's list before it is given up."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds between two executors of a TaskManager when they fail again and again."""
STEADY = 60.0
"""Seconds after which the end of an executor says nothing about the next one."""
MOST_FAILURES = 5
"""Executors in a row that fail on a TaskManager before waiting jobs are told."""


class Executors:
    """Executors of all TaskManagers.

    Args:
        taskmanagers: those that are registered.
        spare_cores: of each executor, beside those of its slots.
    """

    def __init__(self, taskmanagers: Mapping[str, RegisteredTaskManager], spare_cores: int) -> None:
        self._taskmanagers, self._spare_cores = taskmanagers, spare_cores
        self._ready = self.are_needed = False
        """The fleet has started, and runs slots on executors of TaskManagers."""
        self._attempts = 0
        self._attached: frozenset[str] = frozenset()

    @property
    def is_waiting(self) -> bool:
        """Whether an executor is on its way, so that the fleet should be asked often."""
        return self.are_needed and any(
            t.executor.state in (ExecutorState.ASKED, ExecutorState.STARTED) for t in self._taskmanagers.values()
        )

    def is_usable(self, taskmanager: RegisteredTaskManager) -> bool:
        """Whether slots can be launched on a TaskManager, as far as executors matter."""
        executor = taskmanager.executor
        return not self.are_needed or (executor.state is ExecutorState.ATTACHED and executor.missing_since is None)

    def id_of(self, taskmanager: RegisteredTaskManager) -> str:
        """Id of the executor on which slots of a TaskManager are launched; empty if the fleet needs no executors."""
        return taskmanager.executor.id if self.are_needed else ""

    def failing(self) -> tuple[str, str] | None:
        """(TaskManager, cause) if executors fail again and again and slots can be launched nowhere."""
        if not self.are_needed or any(self.is_usable(t) for t in self._taskmanagers.values()):
            return None
        worst = [t for t in self._taskmanagers.values() if t.executor.failures >= MOST_FAILURES]
        return (worst[0].id, worst[0].executor.cause) if worst else None

    # -- events

    def fleet_started(self, attached: frozenset[str] | None, now: float) -> None:
        """Executors can be started; ``attached`` are those that are there already, None: the fleet needs none."""
        self._ready, self.are_needed, self._attached = True, attached is not None, attached or frozenset()
        for taskmanager in self._taskmanagers.values():
            self.registered(taskmanager, now)

    def fleet_lost(self, now: float) -> None:
        """The executors there are take no more slots; each TaskManager gets another one from the next fleet."""
        self._ready, self._attached = False, frozenset()
        for taskmanager in self._taskmanagers.values():
            executor = taskmanager.executor
            if executor.state is not ExecutorState.MISSING:
                executor.move(ExecutorState.MISSING, now)
            executor.id, executor.not_before, executor.failures = "", 0.0, 0

    def registered(self, taskmanager: RegisteredTaskManager, now: float) -> None:
        """A TaskManager is new, and may have an executor of this fleet already."""
        executor = taskmanager.executor
        if self.are_needed and executor.state is ExecutorState.MISSING and executor.id in self._attached:
            executor.move(ExecutorState.ATTACHED, now)

    def named(self, taskmanager_id: str, attempt: int, executor_id: str) -> bool:
        """The fleet has given the executor that was asked for an id; returns whether it is still wanted."""
        executor = self._awaited_executor(taskmanager_id, attempt)
        if executor is None:
            return False
        executor.id = executor_id
        return True

    def started(self, taskmanager_id: str, attempt: int, now: float) -> None:
        """A TaskManager has taken the order to start an executor."""
        executor = self._awaited_executor(taskmanager_id, attempt)
        if executor is not None:
            executor.move(ExecutorState.STARTED, now)

    def failed(self, taskmanager_id: str, attempt: int, cause: str, now: float) -> None:
        """The order to start an executor could not be given."""
        executor = self._awaited_executor(taskmanager_id, attempt)
        if executor is not None:
            self._fail(taskmanager_id, executor, cause, now)

    def lost(self, taskmanager_id: str, executor_id: str, cause: str, now: float) -> None:
        """A TaskManager says that an executor has ended; older ones than the newest do not matter."""
        taskmanager = self._taskmanagers.get(taskmanager_id)
        if taskmanager is None or taskmanager.executor.id != executor_id:
            return
        if taskmanager.executor.state is not ExecutorState.MISSING:
            self._fail(taskmanager_id, taskmanager.executor, cause, now)

    def listed(self, attached: frozenset[str], now: float) -> list[RegisteredTaskManager]:
        """The fleet says which executors it has; returns TaskManagers on which slots can be launched from now on."""
        if not (self._ready and self.are_needed):
            return []
        self._attached = attached
        usable: list[RegisteredTaskManager] = []
        for taskmanager in self._taskmanagers.values():
            executor, was_usable = taskmanager.executor, self.is_usable(taskmanager)
            if executor.id and executor.id in attached:
                if executor.state in (ExecutorState.ASKED, ExecutorState.STARTED):
                    executor.move(ExecutorState.ATTACHED, now)
                    logger.info("executor %s of TaskManager %s is attached", executor.id, taskmanager.id)
                executor.missing_since = None
            elif executor.state is ExecutorState.ATTACHED and executor.missing_since is None:
                executor.missing_since = now
            if self.is_usable(taskmanager) and not was_usable:
                usable.append(taskmanager)
        return usable

    def advance(self, now: float) -> list[Instruction]:
        """Give up executors that take too long, and ask for those that are missing."""
        if not (self._ready and self.are_needed):
            return []
        out: list[Instruction] = []
        for taskmanager in self._taskmanagers.values():
            executor = taskmanager.executor
            cause = _given_up(executor, now)
            if cause:
                self._fail(taskmanager.id, executor, cause, now)
            if executor.state is ExecutorState.MISSING and now >= executor.not_before:
                executor.move(ExecutorState.ASKED, now)
                self._attempts += 1
                executor.id, executor.attempt = "", self._attempts
                # Spark holds the core of a slot for seconds after its end, and slots of bounded jobs stand for cores
                # of their stages: three times as many as there are slots.
                cores = 3 * len(taskmanager.slots) + self._spare_cores
                out.append(StartExecutor(taskmanager.id, taskmanager.address, cores, executor.attempt))
        return out

    def validate(self) -> None:
        """Check what must hold after every event (tests call it)."""
        _all_different(t.executor.id for t in self._taskmanagers.values() if t.executor.state is ExecutorState.ATTACHED)
        for taskmanager in self._taskmanagers.values():
            executor = taskmanager.executor
            assert self._ready or executor.state is ExecutorState.MISSING, executor
            assert executor.id or executor.state in (ExecutorState.MISSING, ExecutorState.ASKED), executor
            assert executor.missing_since is None or executor.state is ExecutorState.ATTACHED, executor

    # -- inside

    def _awaited_executor(self, taskmanager_id: str, attempt: int) -> Executor | None:
        """The executor that was asked for in this attempt; None if that is over, so that its news comes too late."""
        taskmanager = self._taskmanagers.get(taskmanager_id)
        if taskmanager is None or taskmanager.executor.attempt != attempt:
            return None
        return taskmanager.executor if taskmanager.executor.state is ExecutorState.ASKED else None

    def _fail(self, taskmanager_id: str, executor: Executor, cause: str, now: float) -> None:
        steady = executor.state is ExecutorState.ATTACHED and now - executor.since >= STEADY
        executor.failures = 1 if steady else executor.failures + 1
        executor.cause = cause
        pause = pause_after(executor.failures, FIRST_PAUSE, LONGEST_PAUSE)
        logger.warning(
            "executor %s of TaskManager %s is lost (%d in a row): %s; the next one comes in %g s",
            executor.id or "(no id)", taskmanager_id, executor.failures, cause, pause,
        )  # fmt: skip
        executor.move(ExecutorState.MISSING, now)
        executor.id, executor.not_before = "", now + pause


def _given_up(executor: Executor, now: float) -> str:
    waits = executor.state in (ExecutorState.ASKED, ExecutorState.STARTED)
    if waits and now >= executor.since + ATTACH_PATIENCE:
        return f"it did not reach the Spark driver within {ATTACH_PATIENCE:g} s"
    if executor.missing_since is not None and now >= executor.missing_since + DETACHED_GRACE:
        return "the Spark driver has lost it"
    return ""


def _all_different(names: Iterable[str]) -> None:
    listed = list(names)
    assert len(set(listed)) == len(listed), f"two TaskManagers have one executor: {listed}"
