"""Payloads of JobMasters to the ResourceManager; part of ``firesteel.protocol.messages``.

Of two JobMasters of a job, the one with the larger epoch leads. The other one may live without knowing that: its calls
are refused with ``GONE``, and it stops.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from firesteel.protocol.message import Message


@dataclass(frozen=True)
class RegisterJobMaster(Message):
    """A JobMaster registers; slots will be offered to ``address`` with ``jobmaster_token``.

    Attributes:
        python: Python environment of its slots (``firesteel.protocol.python_environment``); empty: the cluster's own.
        epoch: orders the JobMasters of a job; 0 where JobMasters are not elected.
        former_taskmanagers: ids of TaskManagers where tasks of former JobMasters may run; None: not known.
    """

    job_id: str
    job_name: str
    address: str
    jobmaster_token: str
    python: Mapping[str, Any] = field(default_factory=dict)
    epoch: int = 0
    former_taskmanagers: tuple[str, ...] | None = None


@dataclass(frozen=True)
class JobMasterRegistered(Message):
    """The JobMaster is known.

    Attributes:
        token: fencing token of the ResourceManager.
        ends_within: seconds within which the ResourceManager reports the end of a TaskManager that it has started
            (``TaskManagerEnded``); 0: it does not.
    """

    token: str
    ends_within: float = 0.0


@dataclass(frozen=True)
class Requirement(Message):
    """A number of slots of a resource profile."""

    profile: str
    count: int


@dataclass(frozen=True)
class DeclareRequirements(Message):
    """All slots that a job needs now, including those that it has; empty = it gives all back.

    Attributes:
        returned: allocations that the job does not need any more; they are taken first if it has too many.
        most: number of slots up to which the job takes those that no other job needs; 0 = none.
        sender: token of the JobMaster; empty: the registered one. So in all messages.
    """

    job_id: str
    requirements: tuple[Requirement, ...]
    returned: tuple[str, ...] = ()
    sender: str = field(default="", repr=False)
    most: int = 0


@dataclass(frozen=True)
class DisconnectJobMaster(Message):
    """The job ended; its requirements are forgotten."""

    job_id: str
    sender: str = field(default="", repr=False)


@dataclass(frozen=True)
class JobMasterHeartbeat(Message):
    """The JobMaster of this job is alive."""

    job_id: str
    sender: str = field(default="", repr=False)
