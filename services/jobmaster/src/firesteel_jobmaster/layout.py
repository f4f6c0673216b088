"""How a job is laid out: how many subtasks it has, where they run, and when they begin."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from firesteel.common.job_status import JobStatus
from firesteel.graph.execution_graph import Execution, LogicalSlot
from firesteel.protocol import messages as m

SlotTasks = tuple[LogicalSlot, list[Execution]]


class JobLayout(ABC):
    """Strategy of a JobMaster's core; deploying, failover and ending ask it, and know nothing of its kind.

    Methods without a body are about what only some layouts want to hear.
    """

    runs_in_slots = True
    """Whether tasks run in the job's slots; if not, slots only stand for cores."""
    returns_idle_slots = True
    """Whether slots go back all of whose tasks have finished."""

    # -- slots

    @property
    @abstractmethod
    def waits_for_slots(self) -> bool:
        """Whether slots are missing without which tasks can't be deployed."""

    @property
    def is_laid_out(self) -> bool:
        """Whether it is decided what runs in which slots; until then no slot is missed that is lost."""
        return True

    @property
    @abstractmethod
    def slots_timeout(self) -> float | None:
        """Seconds for which a new job waits for its slots; None: for ever."""

    @abstractmethod
    def slots_needed(self) -> int:
        """How many slots the job uses."""

    @abstractmethod
    def slots_declared(self) -> tuple[int, int]:
        """How many slots the ResourceManager is asked for, and how many are taken if nobody else wants them (0: no
        more)."""

    def slots_offered(self, offer: m.OfferSlots) -> bool:
        """Slots are about to be taken; returns whether any of them may be."""
        return True

    @abstractmethod
    def no_resources(self, message: m.NotifyNoResources) -> None:
        """The cluster can't give what the job asks for."""

    # -- from its start to its end

    @abstractmethod
    def prepare(self) -> bool:
        """Find out what has to run, before the job asks for slots; returns False if the job fails by that."""

    @abstractmethod
    def settled(self) -> None:
        """The job knows from which checkpoint it goes on."""

    @abstractmethod
    def schedule(self, regions: Iterable[int] = ()) -> None:
        """Deploy what has its slots: some have come, or these regions may begin."""

    @abstractmethod
    def submit(self, by_slot: Sequence[SlotTasks]) -> Iterable[None]:
        """Have SCHEDULED tasks run, in slices if they are many."""

    @abstractmethod
    def cancel(self, executions: Iterable[Execution], cause: str) -> None:
        """Have these tasks end, as they are cancelled."""

    @abstractmethod
    def restart(self, ended: Execution | None) -> None:
        """A task of a job that is RESTARTING has ended, or time has passed (None): start again what can be."""

    def may_cancel(self) -> bool:
        """Whether users may still cancel the job."""
        return True

    def job_ended(self) -> None:  # noqa: B027 - most layouts have nothing to do
        """The job gives its slots back."""

    # -- events

    def timer_fired(self, name: str) -> bool:
        """A timer is up; returns whether it was one of this layout's."""
        return False

    def task_failed(self, execution: Execution, error: Mapping[str, Any]) -> None:  # noqa: B027 - most layouts have nothing to do
        """A slot reports how a task has failed."""

    def job_moved(self, to: JobStatus, cause: str) -> None:  # noqa: B027 - most layouts have nothing to do
        """The job has entered a state."""

    def checkpoint_work_done(self) -> None:  # noqa: B027 - most layouts have nothing to do
        """The coordinator has heard of the storage."""

    def after_event(self) -> None:  # noqa: B027 - most layouts have nothing to do
        """An event was dealt with, and what follows from it is about to be done."""

    def validate(self) -> None:  # noqa: B027 - most layouts have no state of their own
        """Check what must hold after every event (tests call it)."""

    # -- what others ask

    def metrics(self) -> dict[str, int]:
        """Metrics of the job that only this layout has."""
        return {}

    def in_archive(self) -> dict[str, Any]:
        """Members of the job's archive that only this layout has."""
        return {}
