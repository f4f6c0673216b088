"""What the ResourceManager's core asks its shell to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class SendRequestSlot:
    """Tell a TaskManager that a slot now belongs to a job; answer by ``slot_granted`` or ``slot_refused``."""

    taskmanager_id: str
    taskmanager_address: str
    slot_index: int
    allocation_id: str
    job_id: str
    jobmaster_address: str
    jobmaster_token: str
    python: Mapping[str, Any] = field(default_factory=dict)
    jobmaster_epoch: int = 0


@dataclass(frozen=True)
class LaunchSlot:
    """Have the fleet start the slot's process; answer by ``launch_failed`` or ``launch_postponed`` if it does not.

    ``executor_id`` is where it has to run; empty: where its TaskManager said when it granted the slot.
    """

    taskmanager_id: str
    allocation_id: str
    executor_id: str = ""


@dataclass(frozen=True)
class CancelLaunch:
    """Have the fleet give up a slot, if it still runs it."""

    allocation_id: str


@dataclass(frozen=True)
class SendFreeSlot:
    """Tell a TaskManager to release a slot, then ask it for a slot report."""

    taskmanager_id: str
    taskmanager_address: str
    allocation_id: str
    cause: str


@dataclass(frozen=True)
class AskForReport:
    """Ask a TaskManager for a slot report now."""

    taskmanager_id: str


@dataclass(frozen=True)
class SendFailSlot:
    """Tell a JobMaster that a slot of its job is gone, or never came (then ``allocation_id`` may be empty)."""

    jobmaster_address: str
    jobmaster_token: str
    taskmanager_id: str
    allocation_id: str
    cause: str


@dataclass(frozen=True)
class TellTaskManagerEnded:
    """Tell a JobMaster how a TaskManager has ended at which it has, or had, slots."""

    jobmaster_address: str
    jobmaster_token: str
    taskmanager_id: str
    cause: str


@dataclass(frozen=True)
class SendNoResources:
    """Tell a JobMaster that its job needs more slots than there are; ``message`` says what to do."""

    jobmaster_address: str
    jobmaster_token: str
    needed: int
    total: int
    message: str


@dataclass(frozen=True)
class SendWaiting:
    """Tell a JobMaster why the slots do not come that it waits for; an empty reason: nothing is wrong any more."""

    jobmaster_address: str
    jobmaster_token: str
    reason: str


@dataclass(frozen=True)
class StartFleet:
    """Start the fleet, after stopping what is left of it; answer by ``fleet_started`` or ``fleet_failed``."""


@dataclass(frozen=True)
class StartExecutor:
    """Have a TaskManager start an executor of the fleet.

    Answer by ``executor_named`` once the fleet has given it an id, which says whether it is still wanted, then by
    ``executor_started``; or by ``executor_failed``. All of them carry ``attempt``.
    """

    taskmanager_id: str
    taskmanager_address: str
    cores: int
    attempt: int


@dataclass(frozen=True)
class StartWorker:
    """Have the driver start a worker; answer by ``worker_failed`` if that does not work."""

    worker_id: str
    slots: int


@dataclass(frozen=True)
class StopWorker:
    """Have the driver stop a worker; ``worker_ended`` follows. It is repeated from time to time until then."""

    worker_id: str


Instruction = (
    SendRequestSlot
    | LaunchSlot
    | CancelLaunch
    | SendFreeSlot
    | AskForReport
    | SendFailSlot
    | TellTaskManagerEnded
    | SendNoResources
    | SendWaiting
    | StartFleet
    | StartExecutor
    | StartWorker
    | StopWorker
)
