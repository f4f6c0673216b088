"""The contract of fleets, which run slots. Code above does not know which kind of fleet it has."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from firesteel.core.errors import FleetError
from firesteel.protocol.messages import ExecutorSpec
from firesteel.protocol.stages import Places, RunLook, StageRun


@dataclass(frozen=True)
class SlotLaunch:
    """The order that the Spark task of a slot gets; plain data."""

    allocation_id: str
    taskmanager_id: str
    executor_id: str
    """The executor on which the slot has to run; a task on another executor returns MISPLACED."""
    control_socket: str
    """Path of the Unix socket of the slot's TaskManager."""


class SlotOutcome(Enum):
    """How a slot ended."""

    RETURNED = "RETURNED"
    """The slot's function returned."""
    MISPLACED = "MISPLACED"
    """The task ran on the wrong executor, or was a second copy, and ended at once."""
    UNREGISTERED = "UNREGISTERED"
    """The slot ended before its TaskManager had accepted it; the message has the cause."""
    LOST = "LOST"
    """The slot raised, was cancelled, or was lost with its executor or driver."""


class WithoutStages:
    """The stage methods of a ``Fleet`` that runs no bounded stages."""

    def start_stages(self, run: StageRun) -> None:
        raise FleetError("this fleet runs no bounded stages")

    def look_at_stages(self, run_id: str, places: Places | None = None, known: Collection[str] = ()) -> RunLook:
        return RunLook("unknown")

    def stage_results(self, run_id: str) -> list[bytes]:
        raise FleetError("this fleet runs no bounded stages")

    def drop_stages(self, run_id: str) -> None:
        pass  # there are no runs

    def drop_stages_of(self, owner: str) -> None:
        pass  # there are no runs


class Fleet(Protocol):
    """Starts and ends slots. All methods block and may be called from any thread."""

    @property
    def slots_outlive_driver(self) -> bool:
        """Whether running slots go on when the fleet is lost; from then on only their TaskManagers know them."""

    def executor_for(self, taskmanager_id: str, cores: int) -> ExecutorSpec | None:
        """The executor that a TaskManager has to start for its slots; None where it needs none (embedded).

        Each call returns another executor.

        Raises:
            FleetError: the fleet does not run.
        """

    def attached_executors(self) -> frozenset[str] | None:
        """Ids of the executors that can run slots now; None where TaskManagers need no executors (embedded)."""

    def start(self) -> None:
        """Make the fleet ready for slots.

        Raises:
            FleetError: the fleet can't be started; the message says what to do.
        """

    def start_slot(self, launch: SlotLaunch) -> None:
        """Request a slot; returns once the request was accepted, before the slot runs.

        Raises:
            FleetError: the fleet does not run, or knows this allocation already.
        """

    def ended_slots(self) -> list[tuple[str, SlotOutcome, str]]:
        """(allocation id, outcome, message) of each slot that ended since the last call; each is reported once."""

    def cancel_slot(self, allocation_id: str) -> None:
        """Give a slot up, so that it is not started again. The caller has to kill its process *after* this call.

        Unknown allocations are ignored. `ended_slots` reports the slot as LOST unless it has ended before.
        """

    def start_stages(self, run: StageRun) -> None:
        """Submit a run of bounded stages; a run that was submitted before goes on.

        Raises:
            FleetError: the fleet does not run, or has no stages.
        """

    def look_at_stages(self, run_id: str, places: Places | None = None, known: Collection[str] = ()) -> RunLook:
        """The progress of a run, without the tasks of stages that are ``known``.

        From now on the tasks of the run may run at ``places``; None: as before.

        Raises:
            FleetError: the fleet does not run, or does not answer.
        """

    def stage_results(self, run_id: str) -> list[bytes]:
        """The results of the tasks of a run that is done, as ``firesteel.protocol.stages`` describes them, unordered.

        Raises:
            FleetError: the fleet does not run, or does not answer.
        """

    def drop_stages(self, run_id: str) -> None:
        """End a run that may still go on, and remove all that it has left; unknown runs are ignored."""

    def drop_stages_of(self, owner: str) -> None:
        """Like ``drop_stages``, for all runs of a job."""

    def is_alive(self) -> bool:
        """Whether slots can be started now; False before `start`, after `stop` and after the loss of the fleet."""

    def detach(self) -> None:
        """Leave the fleet and all slots to the next process that starts a fleet for this cluster; allowed at any time.

        Where slots can't outlive the process that started them (embedded), this is ``stop``.
        """

    def stop(self) -> None:
        """End all slots and the fleet, and leave no process or file behind. Idempotent, and allowed at any time."""
