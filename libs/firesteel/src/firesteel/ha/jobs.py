"""The contract of the store of a Dispatcher: jobs that have not ended, with graphs and blobs, and how jobs ended."""

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
    """What a store of jobs keeps can't be read for now, as where its file system is not mounted: open it again."""


@dataclass(frozen=True)
class StoredJob:
    """A job that has not ended.

    Attributes:
        graph: of the job.
        fingerprint: of the graph.
        submitted_ms: epoch.
        jobmaster: address and token of its JobMaster, once there was one.
        cancel_wanted: somebody cancelled it.
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
        job_id, name: of the job.
        fingerprint: of its graph.
        ended_ms: epoch.
        archive: how it ended.
        config: its settings, for whoever cleans up behind it.
    """

    job_id: str
    name: str
    fingerprint: str
    ended_ms: int
    archive: Mapping[str, Any]
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RecordedEnd:
    """The end of a job in the job's own record, where its JobMaster writes it before it gives the slots back.

    Attributes:
        submitted_ms: epoch; tells the run of a job from another one that was submitted under the same id later.
        archive: how it ended.
    """

    submitted_ms: int
    archive: Mapping[str, Any]

    def to_plain(self) -> dict[str, Any]:
        """As JSON."""
        return {"submitted_ms": self.submitted_ms, "archive": dict(self.archive)}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> RecordedEnd:
        """Inverse of ``to_plain``.

        Raises:
            DamagedEntryError: it is something else.
        """
        try:
            return cls(int(plain["submitted_ms"]), dict(plain["archive"]))
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedEntryError(f"it holds no end of a job: {error!r}") from error


@dataclass(frozen=True)
class UnreadableJob:
    """A job that has not ended, and of which something that is stored is damaged. All of it stays where it is.

    Attributes:
        job_id: of the job.
        reason: what is damaged, and how.
        jobmaster: see ``StoredJob``; None also where that can't be read.
        cancel_wanted: somebody cancelled it.
    """

    job_id: str
    reason: str
    jobmaster: tuple[str, str] | None = None
    cancel_wanted: bool = False


@dataclass(frozen=True)
class StoreContents:
    """What a job store holds: jobs in the order of submission, ends in the order in which they came."""

    jobs: tuple[StoredJob, ...]
    ends: tuple[StoredEnd, ...]
    unreadable: tuple[UnreadableJob, ...] = ()
    term: int = 0
    """Larger than that of every Dispatcher that used this store before."""
    application: Mapping[str, Any] | None = None
    """What ``set_application`` was given last."""


class JobStore(ABC):
    """Keeps jobs. Its methods block; not safe for several threads at once, but for ``blob``.

    Whatever changes something raises ``FencedError`` where the Dispatcher leads no more, and ``OSError`` when it is not
    taken. Of a submission nothing is left then; anything else may have happened or not, and can be repeated.

    Attributes:
        where: jobs are kept, for people.
    """

    where: str

    @abstractmethod
    def open(self, now_ms: int = 0) -> StoreContents:
        """Read what there is. A job that is damaged stands in the way of no other, and is left as it is.

        Args:
            now_ms: epoch; the term is at least that, for the case that what was stored is lost.

        Raises:
            ConfigurationError: the store can't be used, or another version has written it.
            JobsUnreadableError: not all in it can be read for now.
            FencedError: the Dispatcher leads no more.
        """

    @abstractmethod
    def close(self) -> None:
        """Nothing follows; what is not durable is removed."""

    # -- jobs that have not ended

    @abstractmethod
    def read_again(self, job_id: str) -> StoredJob:
        """A job that was unreadable: somebody may have brought back what was missing.

        Raises:
            DamagedEntryError: it still is.
            OSError: it can't be read for now.
        """

    @abstractmethod
    def receive(self) -> Path:
        """A new directory for the parts of a submission; ``put`` or ``drop`` takes it away.

        Raises:
            OSError: it can't be made.
        """

    @abstractmethod
    def drop(self, received: Path) -> None:
        """Delete what was received and is not wanted; nothing there is fine."""

    @abstractmethod
    def put(self, job: StoredJob, received: Path, blobs: Mapping[str, Path]) -> None:
        """Store a job; when this returns it is safe.

        Args:
            job: submitted just now.
            received: directory from ``receive``.
            blobs: SHA-256 -> file in ``received``.
        """

    @abstractmethod
    def set_jobmaster(self, job_id: str, address: str, token: str) -> None:
        """Note where the JobMaster of a job is."""

    @abstractmethod
    def set_cancelled(self, job_id: str) -> None:
        """Note that a job was cancelled."""

    @abstractmethod
    def blob(self, name: str) -> Path | None:
        """Where a blob of a job that has not ended lies; None = there is none of this name.

        Raises:
            DamagedBlobError: its content is not what its name says.
        """

    # -- the application

    @abstractmethod
    def set_application(self, value: Mapping[str, Any]) -> None:
        """Note how the application of a cluster in application mode is: JSON."""

    # -- jobs that have ended

    @abstractmethod
    def end(self, end: StoredEnd) -> None:
        """Store how a job ended, then delete its graph and blobs."""

    @abstractmethod
    def archive(self, job_id: str) -> Mapping[str, Any] | None:
        """How a job ended; None = nothing is stored of it.

        Raises:
            DamagedEntryError: what is stored was damaged.
            OSError: it can't be read for now.
        """

    @abstractmethod
    def remove_job(self, job_id: str) -> None:
        """Delete graph and blobs of a job; nothing there is fine."""

    @abstractmethod
    def forget(self, job_id: str) -> None:
        """Delete all that is stored of a job."""
