"""What the ResourceManager's core asks its shell to do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RequestSlot:
    """Tell a TaskManager that a slot now belongs to a job; answer by ``slot_granted`` or ``slot_refused``."""

    taskmanager_id: str
    taskmanager_address: str
    slot_index: int
    allocation_id: str
    job_id: str
    jobmaster_address: str
    jobmaster_token: str


@dataclass(frozen=True)
class LaunchSlot:
    """Have the fleet start the slot's process; answer by ``launched`` or ``launch_failed``."""

    taskmanager_id: str
    allocation_id: str


@dataclass(frozen=True)
class CancelLaunch:
    """Have the fleet give up a slot, if it still runs it."""

    allocation_id: str


@dataclass(frozen=True)
class FreeSlot:
    """Tell a TaskManager to release a slot, then ask it for a slot report."""

    taskmanager_id: str
    taskmanager_address: str
    allocation_id: str
    cause: str


@dataclass(frozen=True)
class FailSlot:
    """Tell a JobMaster that a slot of its job is gone, or never came (then ``allocation_id`` may be empty)."""

    jobmaster_address: str
    jobmaster_token: str
    taskmanager_id: str
    allocation_id: str
    cause: str


@dataclass(frozen=True)
class NotifyNoResources:
    """Tell a JobMaster that its job needs more slots than there are; ``message`` says what to do."""

    jobmaster_address: str
    jobmaster_token: str
    needed: int
    total: int
    message: str


@dataclass(frozen=True)
class StartFleet:
    """Start the fleet, after stopping what is left of it; answer by ``fleet_started`` or ``fleet_failed``."""


Instruction = RequestSlot | LaunchSlot | CancelLaunch | FreeSlot | FailSlot | NotifyNoResources | StartFleet
