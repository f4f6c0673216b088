"""The fleet: whatever runs slots. Code above it must not care which kind it is."""

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
    """What travels to the Spark task of a slot; plain data."""

    allocation_id: str
    taskmanager_id: str
    executor_id: str
    """The executor on which the slot has to run; a copy that finds itself elsewhere returns MISPLACED."""
    control_socket: str
    """Where the slot finds its TaskManager: path of a Unix socket."""


class SlotOutcome(Enum):
    """How a slot ended."""

    RETURNED = "RETURNED"
    """The slot's function came to its end."""
    MISPLACED = "MISPLACED"
    """It ran on the wrong executor, or was a second copy, and gave up at once."""
    UNREGISTERED = "UNREGISTERED"
    """It came to its end before its TaskManager had accepted it; the message says why."""
    LOST = "LOST"
    """It raised, was cancelled, or went down with its executor or driver."""


class WithoutStages:
    """The part of a ``Fleet`` that has slots only."""

    def start_stages(self, run: StageRun) -> None:
        """See ``Fleet``."""
        raise FleetError("this fleet runs no bounded stages")

    def look_at_stages(self, run_id: str, places: Places | None = None, known: Collection[str] = ()) -> RunLook:
        """See ``Fleet``."""
        return RunLook("unknown")

    def stage_results(self, run_id: str) -> list[bytes]:
        """See ``Fleet``."""
        raise FleetError("this fleet runs no bounded stages")

    def drop_stages(self, run_id: str) -> None:
        """See ``Fleet``."""

    def drop_stages_of(self, owner: str) -> None:
        """See ``Fleet``."""


class Fleet(Protocol):
    """Starts and ends slots. All methods block and may be called from any thread."""

    @property
    def slots_outlive_driver(self) -> bool:
        """Whether running slots go on when the fleet is lost; only their TaskManagers know them from then on."""

    def executor_for(self, taskmanager_id: str, cores: int) -> ExecutorSpec | None:
        """What a TaskManager has to start so that slots can run on it; None where it needs nothing (embedded).

        Each call names another executor.

        Raises:
            FleetError: the fleet does not run.
        """

    def attached_executors(self) -> frozenset[str] | None:
        """Ids of the executors that can take slots now; None where TaskManagers need none of their own (embedded)."""

    def start(self) -> None:
        """Make the fleet ready for slots.

        Raises:
            FleetError: it can't be started; the message says what to do.
        """

    def start_slot(self, launch: SlotLaunch) -> None:
        """Ask for a slot; returns once the request was accepted, before the slot runs.

        Raises:
            FleetError: the fleet does not run, or knows this allocation already.
        """

    def ended_slots(self) -> list[tuple[str, SlotOutcome, str]]:
        """(allocation id, outcome, message) of each slot that ended since the last call; each is reported once."""

    def cancel_slot(self, allocation_id: str) -> None:
        """Give up a slot: it is not started (again). Its process may live on: the caller has to kill it *after* this.

        Unknown allocations are ignored. The slot is reported by `ended_slots` as LOST unless it has ended before.
        """

    def start_stages(self, run: StageRun) -> None:
        """Submit a run of bounded stages; one that was submitted before goes on.

        Raises:
            FleetError: the fleet does not run, or has no stages.
        """

    def look_at_stages(self, run_id: str, places: Places | None = None, known: Collection[str] = ()) -> RunLook:
        """How a run goes; its tasks may be at these places from now on, None: as before.

        Of stages that are ``known`` tasks are not told.

        Raises:
            FleetError: the fleet does not run, or does not answer.
        """

    def stage_results(self, run_id: str) -> list[bytes]:
        """What the tasks of a run that is done have told, each as ``firesteel.protocol.stages`` says, in no order.

        Raises:
            FleetError: the fleet does not run, or does not answer.
        """

    def drop_stages(self, run_id: str) -> None:
        """End a run, if it goes on, and remove what it has left; unknown ones are ignored."""

    def drop_stages_of(self, owner: str) -> None:
        """The same with all runs of a job."""

    def is_alive(self) -> bool:
        """Whether slots can be started now; False before `start`, after `stop` and after the loss of the fleet."""

    def detach(self) -> None:
        """Leave the fleet and all slots to whoever starts one for the same cluster next; may be called at any time.

        Where slots can't outlive the process that started them (embedded), this is ``stop``.
        """

    def stop(self) -> None:
        """End all slots and the fleet, and leave no process or file behind. May be called at any time and again."""
