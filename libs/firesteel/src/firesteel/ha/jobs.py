"""The contract of a Dispatcher's store: jobs that have not ended, with graphs and blobs, and how jobs ended."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from firesteel.core.errors import FiresteelError
from firesteel.graph.job_graph import JobGraph
from firesteel.ha.documents import DamagedEntryError


class JobsUnreadableError(FiresteelError, OSError):
    """A store of jobs can't be read for now, as when its file system is not mounted: open it again later."""


@dataclass(frozen=True)
class StoredJob:
    """A job that has not ended.

    Attributes:
        graph: of the job.
        fingerprint: of the graph.
        submitted_ms: epoch.
        jobmaster: address and token of its JobMaster, once there is one.
        cancel_wanted: it was cancelled.
    """

    graph: JobGraph
    fingerprint: str
    submitted_ms: int
    jobmaster: tuple[str, str] | None = None
    cancel_wanted: bool = False


@dataclass(frozen=True)
class StoredEnd:
    """A job that has ended.

    Attributes:
        job_id: of the job.
        name: of the job.
        fingerprint: of its graph.
        ended_ms: epoch.
        archive: how it ended.
        config: its settings, for the clean-up after it.
    """

    job_id: str
    name: str
    fingerprint: str
    ended_ms: int
    archive: Mapping[str, Any]
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RecordedEnd:
    """The end of a job in the job's own record, which its JobMaster writes before it frees the slots.

    Attributes:
        submitted_ms: epoch; tells this run from one that is submitted under the same job id later.
        archive: how it ended.
    """

    submitted_ms: int
    archive: Mapping[str, Any]

    def to_plain(self) -> dict[str, Any]:
        """The end in a form for JSON."""
        return {"submitted_ms": self.submitted_ms, "archive": dict(self.archive)}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> RecordedEnd:
        """Inverse of ``to_plain``.

        Raises:
            DamagedEntryError: it has another form.
        """
        try:
            return cls(int(plain["submitted_ms"]), dict(plain["archive"]))
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedEntryError(f"it has no end of a job: {error!r}") from error


@dataclass(frozen=True)
class UnreadableJob:
    """A job that has not ended, some of whose stored data are damaged. All of it is left as it is.

    Attributes:
        job_id: of the job.
        reason: what is damaged, and how.
        jobmaster: see ``StoredJob``; None also if it can't be read.
        cancel_wanted: it was cancelled.
    """

    job_id: str
    reason: str
    jobmaster: tuple[str, str] | None = None
    cancel_wanted: bool = False


@dataclass(frozen=True)
class StoreContents:
    """Contents of a job store: jobs in the order of submission, ends in the order of their times."""

    jobs: tuple[StoredJob, ...]
    ends: tuple[StoredEnd, ...]
    unreadable: tuple[UnreadableJob, ...] = ()
    term: int = 0
    """Number larger than that of every earlier Dispatcher that used this store."""
    application: Mapping[str, Any] | None = None
    """Value that ``set_application`` last stored."""


class JobStore(ABC):
    """Stores jobs. Its methods block; only ``blob`` may be called on several threads at once.

    Methods that change something raise ``FencedError`` if the Dispatcher no longer leads, and ``OSError`` if the change
    fails. Nothing of a failed submission is left; any other change may have happened or not, and can be repeated.

    Attributes:
        where: place of the jobs, for people.
    """

    where: str

    @abstractmethod
    def open(self, now_ms: int = 0) -> StoreContents:
        """Read the contents. A damaged job does not affect others, and is left as it is.

        Args:
            now_ms: epoch; the term is at least that, in case the stored one is lost.

        Raises:
            ConfigurationError: the store can't be used, or another version has written it.
            JobsUnreadableError: not all of it can be read for now.
            FencedError: the Dispatcher no longer leads.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the store; contents that are not durable are removed."""

    # -- jobs that have not ended

    @abstractmethod
    def read_again(self, job_id: str) -> StoredJob:
        """Read a job again that was unreadable: somebody may have restored what was missing.

        Raises:
            DamagedEntryError: it still is damaged.
            OSError: it can't be read for now.
        """

    @abstractmethod
    def receive(self) -> Path:
        """Create a directory for the parts of a submission; ``put`` or ``drop`` takes it away.

        Raises:
            OSError: it can't be created.
        """

    @abstractmethod
    def drop(self, received: Path) -> None:
        """Delete a received submission that will not be stored, if it exists."""

    @abstractmethod
    def put(self, job: StoredJob, received: Path, blobs: Mapping[str, Path]) -> None:
        """Store a job; it is safe when this returns.

        Args:
            job: submitted just now.
            received: directory from ``receive``.
            blobs: files in ``received``, by SHA-256.
        """

    @abstractmethod
    def set_jobmaster(self, job_id: str, address: str, token: str) -> None:
        """Store the address of a job's JobMaster."""

    @abstractmethod
    def set_cancelled(self, job_id: str) -> None:
        """Store that a job was cancelled."""

    @abstractmethod
    def blob(self, name: str) -> Path | None:
        """File of a blob of a job that has not ended; None = there is no blob of this name.

        Raises:
            DamagedBlobError: its content does not have the SHA-256 of its name.
        """

    # -- the application

    @abstractmethod
    def set_application(self, value: Mapping[str, Any]) -> None:
        """Store the state of the application of a cluster in application mode, as JSON."""

    # -- jobs that have ended

    @abstractmethod
    def end(self, end: StoredEnd) -> None:
        """Store how a job ended, then delete its graph and blobs."""

    @abstractmethod
    def archive(self, job_id: str) -> Mapping[str, Any] | None:
        """How a job ended; None = nothing of it is stored.

        Raises:
            DamagedEntryError: the stored archive is damaged.
            OSError: it can't be read for now.
        """

    @abstractmethod
    def remove_job(self, job_id: str) -> None:
        """Delete graph and blobs of a job, if there are any."""

    @abstractmethod
    def forget(self, job_id: str) -> None:
        """Delete everything that is stored of a job."""
