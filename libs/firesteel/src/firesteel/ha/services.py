"""The contract of high-availability services: all durable facts of a cluster stand behind it.

``firesteel.testing.check_high_availability`` holds an implementation against what follows.

* **Leadership.** A *component* is what is led (``firesteel.ha.retrieval``). ``campaign`` gives a ``Leadership`` with an
  *epoch* that is larger than every one before, also over the death of all processes; or None, while somebody else
  leads. A leadership ends by ``release``, by the death of its process, or when it is taken away (a lease that ran out;
  ``depose``, for somebody who knows that the leader is gone).
* **Retrieval.** ``leader`` says who leads a component now, as far as is known: its epoch, and what it ``announce``d:
  its address and fencing token; ``watch`` tells each change. Nobody reads the address of a peer elsewhere.
* **Fencing.** Every write is made by a leadership. One that has ended is refused with ``FencedError``, and has changed
  nothing: checking and writing are one step, as others see it.
* **Durability.** What a call that returned has written is there for whoever leads next. A call that raised
  ``OSError`` or ``CheckpointStorageError`` may have had its effect or not, and can be repeated.
* **Jobs** (``job_store``, for the Dispatcher that leads): the graph of a job with its blobs, which appears whole or not
  at all; where its JobMaster is; that it was cancelled. Results: ``end`` stores how a job ended while its graph is
  still there, then removes graph and blobs; whoever finds both removes them, and does not run it again. The result is
  dirty as long as ``remembers_job``, and clean when the checkpoints that are to go are gone and ``forget_job`` was
  called: by the job's JobMaster, or by the Dispatcher where that one has died before.
* **Ends** (``record_end``, ``recorded_end``): the JobMaster of a job writes how the job ended into the job's own
  record, while no Dispatcher may be up. Whoever would start a JobMaster reads it first: a job that has ended never runs
  again.
* **Blobs** are named by their SHA-256, compared with it when they are read, and there as long as a job needs them.
* **Attempts** (``note_attempts``): how far the numbers of a job's attempts have come, which are never used again, and
  at which TaskManagers they may run.
* **Completed checkpoints** (``completed_checkpoints``, led by the job's JobMaster): a short list and a counter of ids
  (``firesteel.checkpoint.store``).

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
        component: what is led.
        epoch: larger than that of every leadership of it before.
        attempts: of the tasks of a job, as the leader before noted them.
    """

    component: str
    epoch: int
    attempts: Attempts

    @abstractmethod
    def announce(self, address: str, token: str) -> None:
        """Say where the leader is.

        Raises:
            FencedError: it leads no more.
        """

    @abstractmethod
    def note_attempts(self, attempts: Attempts) -> None:
        """The ``attempts`` of the leadership that follows are these, but numbers never fall.

        Raises:
            FencedError: it leads no more.
        """

    @abstractmethod
    def check(self) -> None:
        """Raises:
        FencedError: it leads no more.
        OSError: whether it does can't be told for now.
        """

    def poll(self) -> None:
        """Like ``check``, for those that look all the time: the answer may be some seconds old."""
        self.check()

    def holds(self) -> bool:
        """Whether it still leads; only a write is sure to know."""
        try:
            self.check()
        except FencedError:
            return False
        return True

    @abstractmethod
    def release(self) -> None:
        """Lead no more. Idempotent."""


class HighAvailabilityServices(LeaderRetrieval):
    """See the head of this module.

    Attributes:
        has_standbys: processes on several hosts see the same; one that does not lead waits for its turn. Else a second
            process that wants to lead is a mistake.
        campaign_seconds: least time between two campaigns of a process that stands by, which campaigns at once when
            ``watch`` says that nobody leads.
    """

    has_standbys: bool = True
    campaign_seconds: float = 0.0

    def join(self) -> None:  # a coordination service tells an empty cluster from one that is away
        """This process is started by a cluster that has leaders: where nothing of it is found, its storage is away."""

    @abstractmethod
    def campaign(self, component: str) -> Leadership | None:
        """Lead a component, if nobody else does."""

    @abstractmethod
    def depose(self, component: str) -> None:
        """Take the leadership of a component away from whoever has it: its process is known to be gone, or must not
        write any more. When this returns, ``campaign`` gives it to somebody else, also while that process lives."""

    @abstractmethod
    def job_store(self, leadership: Leadership) -> JobStore:
        """The jobs of the cluster; for the Dispatcher that leads."""

    @abstractmethod
    def completed_checkpoints(self, job_id: str, leadership: Leadership) -> CompletedCheckpointStore:
        """The completed checkpoints of a job, and the counter of their ids; for its JobMaster that leads."""

    @abstractmethod
    def record_end(self, leadership: Leadership, end: RecordedEnd) -> None:
        """Write how a job ended; for its JobMaster that leads. Safe when this returns, until ``forget_job``.

        Raises:
            FencedError: it leads no more.
            OSError: it may be written or not, and can be written again.
        """

    @abstractmethod
    def recorded_end(self, job_id: str) -> RecordedEnd | None:
        """How a job ended, as one of its JobMasters has written it; None: none has.

        Raises:
            OSError: it can't be read for now.
            DamagedEntryError: it is not what was written.
        """

    @abstractmethod
    def forget_job(self, job_id: str) -> None:
        """A job has ended for good, and its checkpoints are removed: nothing of it is kept here. Idempotent."""

    @abstractmethod
    def remembers_job(self, job_id: str) -> bool:
        """Whether something is kept of a job's leadership or checkpoints: ``forget_job`` was not called, or did not
        come to its end."""

    @abstractmethod
    def close(self) -> None:
        """Release all that this object holds; what is durable stays. Idempotent."""


def load_high_availability(settings: Settings, cluster_directory: Path | None) -> HighAvailabilityServices:
    """The services that settings ask for.

    Args:
        settings: of the cluster.
        cluster_directory: of a cluster that runs as processes; None: embedded.

    Raises:
        ConfigurationError: the type is unknown, or its directory can't be used.
    """
    kind = settings.get(HA_TYPE)
    if kind is None:
        kind = NONE if cluster_directory is None else _DIRECTORY
    made: HighAvailabilityServices = load(GROUP, _name(kind))(settings, cluster_directory)
    return made


def _name(kind: str) -> str:
    """Flink reads its types in any case."""
    return {NONE.lower(): NONE, _KUBERNETES: _KUBERNETES, _ZOOKEEPER: _ZOOKEEPER}.get(kind.lower(), kind)


def load_retrieval(settings: Settings) -> LeaderRetrieval:
    """For a process that leads nothing, on any host of a cluster: how it finds the services.

    Where high availability is shared by the hosts, by what the leaders announced there; else where settings say.

    Raises:
        ConfigurationError: as in ``load_high_availability``.
    """
    if not addresses.leaders_are_announced(settings):
        return ConfiguredLeaders(settings)
    made: LeaderRetrieval = load(GROUP, _name(settings.get(HA_TYPE) or _DIRECTORY))(settings, None)
    return made


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
