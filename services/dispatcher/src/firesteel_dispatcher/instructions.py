"""Instructions of the core, which ``ClusterJobs.perform`` carries out."""

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
class _OfJobMaster:
    """An instruction about the JobMaster of a job, with its address and fencing token."""

    job_id: str
    address: str
    token: str = field(repr=False)


@dataclass(frozen=True)
class AskHost:
    """Ask the JobMaster host which JobMasters it has, until it answers: ``host_lists`` follows, and ``host_away`` after
    each failure."""


@dataclass(frozen=True)
class TakeOver(_OfJobMaster):
    """A job runs that has no record: ``taken_over`` follows, with the graph from the host's list."""


@dataclass(frozen=True)
class SendAdoptJob(_OfJobMaster):
    """Tell a JobMaster that this Dispatcher leads: ``adopted``, ``jobmaster_lost`` or ``unreachable`` follows."""


@dataclass(frozen=True)
class ProbeJobMaster(_OfJobMaster):
    """Look whether a connection to the JobMaster can be made: if not, ``jobmaster_lost`` follows."""


@dataclass(frozen=True)
class RememberJobMaster(_OfJobMaster):
    """Store where the JobMaster of a job is."""


@dataclass(frozen=True)
class ForgetJobMaster:
    """A JobMaster was lost: expect no heartbeats of it."""

    job_id: str


@dataclass(frozen=True)
class SendCancelJob(_OfJobMaster):
    """Tell a JobMaster to cancel its job."""


@dataclass(frozen=True)
class StoreEnd:
    """The job has ended: store its archive, then delete its graph and blobs; ``end_stored`` follows."""

    job_id: str


@dataclass(frozen=True)
class CleanUpCheckpoints:
    """The JobMaster of a job that has ended is gone, or may be: remove what is left of the job's checkpoints."""

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
    | SendCancelJob
    | StoreEnd
    | CleanUpCheckpoints
    | DeleteStoredJob
)
