"""The contract of high-availability services, which store all durable facts of a cluster.

``firesteel.testing.check_high_availability`` checks an implementation against this contract.

* **Leadership.** A *component* is led by one process at a time (``firesteel.ha.retrieval``). ``campaign`` returns a
  ``Leadership`` with an *epoch* larger than all before, even after all processes have died; or None, while somebody
  else leads. A leadership ends by ``release``, by the death of its process, or when it is taken away (an expired lease;
  ``depose``, by somebody who knows that the leader is gone).
* **Retrieval.** ``leader`` returns the current leader of a component, as far as is known: its epoch, and the address
  and fencing token that it has ``announce``d; ``watch`` reports each change. Peers learn addresses nowhere else.
* **Fencing.** Every write belongs to a leadership. A write of one that has ended is refused with ``FencedError`` and
  has changed nothing: for others, checking and writing are one step.
* **Durability.** The write of a call that returned is there for the next leader. A call that raised ``OSError`` or
  ``CheckpointStorageError`` may have had its effect or not, and can be repeated.
* **Jobs** (``job_store``, for the leading Dispatcher): the graph of a job with its blobs, which appears whole or not at
  all; the address of its JobMaster; whether it was cancelled. Results: ``end`` stores how a job ended while its graph
  is still there, then removes graph and blobs; whoever finds both removes them, and does not run the job again. The
  result is dirty as long as ``remembers_job``, and clean once the checkpoints that have to be removed are gone and
  ``forget_job`` was called: by the job's JobMaster, or by the Dispatcher if that one died before.
* **Ends** (``record_end``, ``recorded_end``): the JobMaster of a job writes how the job ended into the job's own
  record, since no Dispatcher may be up at that time. Whoever wants to start a JobMaster reads it first: a job that has
  ended never runs again.
* **Blobs** are named by their SHA-256, compared with it when they are read, and exist as long as a job needs them.
* **Attempts** (``note_attempts``): the numbers of a job's attempts up to now, which are never used again, and the
  TaskManagers where attempts may run.
* **Completed checkpoints** (``completed_checkpoints``, for the job's leading JobMaster): a short list and a counter of
  ids (``firesteel.checkpoint.store``).

All methods may block. Objects are used by one thread at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final

from firesteel.checkpoint.store import CompletedCheckpointStore
from firesteel.config import Settings, addresses
from firesteel.config.recovery_options import HA_TYPE
from firesteel.core.errors import FencedError
from firesteel.core.plugins import load
from firesteel.ha.jobs import JobStore, RecordedEnd
from firesteel.ha.retrieval import (
    DISPATCHER,
    JOBMASTER_HOST,
    RESOURCEMANAGER,
    Attempts,
    ConfiguredLeaders,
    Leader,
    LeaderRetrieval,
    of_job,
)

GROUP: Final = "firesteel.high_availability"
NONE: Final = "NONE"
_DIRECTORY: Final = "directory"
_KUBERNETES: Final = "kubernetes"
_ZOOKEEPER: Final = "zookeeper"


class Leadership(ABC):
    """The right to write for a component.

    Attributes:
        component: that is led.
        epoch: larger than that of every earlier leadership of the component.
        attempts: of a job's tasks, as the former leader noted them.
    """

    component: str
    epoch: int
    attempts: Attempts

    @abstractmethod
    def announce(self, address: str, token: str) -> None:
        """Publish the address and fencing token of the leader.

        Raises:
            FencedError: it no longer leads.
        """

    @abstractmethod
    def note_attempts(self, attempts: Attempts) -> None:
        """Leave these ``attempts`` to the next leadership; numbers never fall.

        Raises:
            FencedError: it no longer leads.
        """

    @abstractmethod
    def check(self) -> None:
        """Raise an error unless this still leads.

        Raises:
            FencedError: it no longer leads.
            OSError: it is not known for now.
        """

    def poll(self) -> None:
        """Like ``check``, for frequent calls: the answer may be some seconds old."""
        self.check()

    def holds(self) -> bool:
        """Whether this still leads; only a write knows for certain."""
        try:
            self.check()
        except FencedError:
            return False
        return True

    @abstractmethod
    def release(self) -> None:
        """End the leadership. May be called twice."""


class HighAvailabilityServices(LeaderRetrieval):
    """Leadership, leaders and durable facts of a cluster, as described at the head of this module.

    Attributes:
        has_standbys: processes on several hosts share the services, and one that does not lead waits for its turn. If
            False, a second process that wants to lead is a mistake.
        campaign_seconds: least time between two campaigns of a standby, which campaigns at once when ``watch`` reports
            that nobody leads.
    """

    has_standbys: bool = True
    campaign_seconds: float = 0.0

    def join(self) -> None:  # a coordination service tells an empty cluster from one that is away
        """Note that this process belongs to a cluster that has leaders: if nothing of it is found, its storage is
        away.
        """

    @abstractmethod
    def campaign(self, component: str) -> Leadership | None:
        """Try to lead a component; None while somebody else leads."""

    @abstractmethod
    def depose(self, component: str) -> None:
        """Take the leadership of a component away from its leader, whose process is gone or must not write any more.

        When this returns, ``campaign`` gives it to somebody else, even while that process lives.
        """

    @abstractmethod
    def job_store(self, leadership: Leadership) -> JobStore:
        """Jobs of the cluster; for the leading Dispatcher."""

    @abstractmethod
    def completed_checkpoints(self, job_id: str, leadership: Leadership) -> CompletedCheckpointStore:
        """Completed checkpoints of a job, and the counter of their ids; for its leading JobMaster."""

    @abstractmethod
    def record_end(self, leadership: Leadership, end: RecordedEnd) -> None:
        """Write how a job ended; for its leading JobMaster. Safe when this returns, until ``forget_job``.

        Raises:
            FencedError: it no longer leads.
            OSError: it may be written or not, and can be written again.
        """

    @abstractmethod
    def recorded_end(self, job_id: str) -> RecordedEnd | None:
        """How a job ended, as one of its JobMasters has recorded it; None = none has.

        Raises:
            OSError: it can't be read for now.
            DamagedEntryError: it is damaged.
        """

    @abstractmethod
    def forget_job(self, job_id: str) -> None:
        """Remove all that is stored of a job, which has ended and has no checkpoints any more. May be called twice."""

    @abstractmethod
    def remembers_job(self, job_id: str) -> bool:
        """Whether anything of a job's leadership or checkpoints is stored: ``forget_job`` has not been completed."""

    @abstractmethod
    def close(self) -> None:
        """Release all that this object holds; durable facts remain. May be called twice."""


def load_high_availability(settings: Settings, cluster_directory: Path | None) -> HighAvailabilityServices:
    """Create the services that the settings ask for.

    Args:
        settings: of the cluster.
        cluster_directory: of a cluster that runs as processes; None = an embedded cluster.

    Raises:
        ConfigurationError: the type is unknown, or its directory can't be used.
    """
    kind = settings.get(HA_TYPE)
    if kind is None:
        kind = NONE if cluster_directory is None else _DIRECTORY
    services: HighAvailabilityServices = load(GROUP, _name(kind))(settings, cluster_directory)
    return services


def _name(kind: str) -> str:
    """Name of a type, which Flink reads in upper or lower case."""
    return {NONE.lower(): NONE, _KUBERNETES: _KUBERNETES, _ZOOKEEPER: _ZOOKEEPER}.get(kind.lower(), kind)


def load_retrieval(settings: Settings) -> LeaderRetrieval:
    """Create the retrieval of leaders for a process that leads nothing, on any host of a cluster.

    Where hosts share high availability, leaders are found by their announcements; else at configured addresses.

    Raises:
        ConfigurationError: as in ``load_high_availability``.
    """
    if not addresses.leaders_are_announced(settings):
        return ConfiguredLeaders(settings)
    retrieval: LeaderRetrieval = load(GROUP, _name(settings.get(HA_TYPE) or _DIRECTORY))(settings, None)
    return retrieval


__all__ = [
    "DISPATCHER",
    "JOBMASTER_HOST",
    "RESOURCEMANAGER",
    "HighAvailabilityServices",
    "Leader",
    "LeaderRetrieval",
    "Leadership",
    "load_high_availability",
    "load_retrieval",
    "of_job",
]
