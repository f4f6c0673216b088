"""What JobMasters say to the ResourceManager.

Of two JobMasters of a job the one with the larger epoch leads. The other one may live and not know it: it is refused
with ``GONE``, and stops.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from firesteel.protocol.message import Message


@dataclass(frozen=True)
class RegisterJobMaster(Message):
    """A JobMaster presents itself; slots will be offered to ``address`` with ``jobmaster_token``.

    Attributes:
        python: what its slots need of Python (``firesteel.protocol.python_environment``); empty: nothing.
        epoch: orders it among the JobMasters of the job; 0 where nobody is elected.
        former_taskmanagers: ids of those where tasks of the JobMasters before may run; None: not known.
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
        token: the ResourceManager's.
        ends_within: seconds within which the ResourceManager learns how a TaskManager has ended that it has started,
            and says so (``TaskManagerEnded``); 0: it does not.
    """

    token: str
    ends_within: float = 0.0


@dataclass(frozen=True)
class Requirement(Message):
    """So many slots of a profile."""

    profile: str
    count: int


@dataclass(frozen=True)
class DeclareRequirements(Message):
    """All the slots that a job wants now, held ones included; nothing = it gives all back.

    Attributes:
        returned: allocations that the job has had and is done with; they are the ones to take if it holds too many.
        most: beyond what it wants the job takes all slots that nobody else wants, up to so many in all; 0 = none.
        sender: token of the JobMaster; empty: that which is registered. So in all messages.
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
