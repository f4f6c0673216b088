"""What the core has the shell do."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class SendStartJob:
    """Have a JobMaster run a job; ``may_start`` before each attempt, ``started`` or ``unreachable`` after it.

    Attributes:
        job_id: of the job.
        delay: seconds until the first attempt.
    """

    job_id: str
    delay: float = 0.0


@dataclass(frozen=True)
class AskHost:
    """Ask the JobMaster host what runs, until it answers: ``host_lists``, or ``host_away`` after each failure."""


@dataclass(frozen=True)
class TakeOver:
    """A job runs that nobody knows: ``taken_over`` with the graph that the host told."""

    job_id: str
    address: str
    token: str = field(repr=False)


@dataclass(frozen=True)
class SendAdoptJob:
    """Tell a JobMaster that this Dispatcher leads: ``adopted``, ``jobmaster_lost`` or ``unreachable`` follows."""

    job_id: str
    address: str
    token: str = field(repr=False)


@dataclass(frozen=True)
class ProbeJobMaster:
    """Look whether anybody can be reached where a JobMaster is: ``jobmaster_lost`` follows if not, else nothing."""

    job_id: str
    address: str
    token: str = field(repr=False)


@dataclass(frozen=True)
class RememberJobMaster:
    """Store where the JobMaster of a job is."""

    job_id: str
    address: str
    token: str = field(repr=False)


@dataclass(frozen=True)
class ForgetJobMaster:
    """A JobMaster was lost: expect nothing of it any more."""

    job_id: str


@dataclass(frozen=True)
class CancelJob:
    """Tell the JobMaster to cancel its job."""

    job_id: str
    address: str
    token: str = field(repr=False)


@dataclass(frozen=True)
class StoreEnd:
    """The job has ended: store how, then delete its graph and blobs; ``end_stored`` follows."""

    job_id: str


@dataclass(frozen=True)
class CleanUpCheckpoints:
    """The JobMaster of a job that has ended is gone: remove what it has left of the job's checkpoints."""

    job_id: str


@dataclass(frozen=True)
class DeleteStoredJob:
    """The job ended long ago: delete what is stored of it."""

    job_id: str


Instruction = (
    SendStartJob
    | AskHost
    | TakeOver
    | SendAdoptJob
    | ProbeJobMaster
    | RememberJobMaster
    | ForgetJobMaster
    | CancelJob
    | StoreEnd
    | CleanUpCheckpoints
    | DeleteStoredJob
)
