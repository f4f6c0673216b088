"""Jobs with their graphs and blobs, and how jobs ended: what a Dispatcher must not forget.

Layout of the directory (all of mode 0700)::

    incoming/<n>/…                a submission that is being received; where leaders are elected it is in the fence of
                                  the Dispatcher that leads (``directory``), out of which all writes are renamed
    jobs/<job id>/job.json        graph of a job that has not ended; the directory appears whole, by one rename
                 /blobs/<sha256>
                 /jobmaster.json  where its JobMaster is
                 /cancel.json     it was cancelled
    ended/<job id>.json           how a job ended
    application.json              the program of a cluster in application mode, and how it ended
"""

from __future__ import annotations

import itertools
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from firesteel.core.errors import ConfigurationError
from firesteel.core.files import MAY_PASS
from firesteel.ha.blobs import BlobIndex, sha256_of
from firesteel.ha.disk import Disk
from firesteel.ha.documents import DamagedEntryError, UnknownFormatError, read_document, write_document
from firesteel.ha.jobs import JobStore, JobsUnreadableError, StoreContents, StoredEnd, StoredJob, UnreadableJob
from firesteel.ha.stored_jobs import (
    DAMAGED,
    damaged_application,
    is_job_id,
    notes_of,
    other_version,
    reason_of,
    stored_graph,
)

logger = logging.getLogger(__name__)
_JOB: Final = "job"
_JOBMASTER: Final = "jobmaster"
_CANCEL: Final = "cancel"
_END: Final = "ended"
_APPLICATION: Final = "application"
_DAMAGED: Final = (*DAMAGED, IsADirectoryError)
"""What is missing, or something else, stays so; any other error of the disk may pass."""


class DirectoryJobStore(JobStore):
    """Keeps jobs in a directory; see ``JobStore``.

    Args:
        directory: private to this store.
        disk: how files are written.
        guard: entered for each write; raises ``FencedError`` where the Dispatcher leads no more. Gives a folder of the
            same file system that is gone then, so that nothing can be renamed out of it; None = ``incoming`` will do.
            Default: nobody else uses the directory.
    """

    def __init__(
        self, directory: Path, disk: Disk, guard: Callable[[], AbstractContextManager[Path | None]] = nullcontext
    ) -> None:
        self.directory, self._disk, self._guard = directory, disk, guard
        self.where = str(directory)
        self._jobs, self._ended = directory / "jobs", directory / "ended"
        self._incoming = directory / "incoming"
        self._serial, self._id = itertools.count(), secrets.token_hex(4)
        self._blobs = BlobIndex()

    # -- life

    def open(self, now_ms: int = 0) -> StoreContents:
        """See ``JobStore``; takes the directory.

        Args:
            now_ms: epoch; the term is at least that, for the case that the directory was lost.

        Raises:
            ConfigurationError: the directory can't be used.
            JobsUnreadableError: not all in it can be read for now.
            FencedError: the Dispatcher leads no more.
        """
        with self._fenced() as drafts:
            self._prepare()
            term = self._next_term(now_ms, drafts)
            try:
                found = self._read_all(term, drafts)
            except UnknownFormatError as error:
                raise ConfigurationError(other_version(self.where, error)) from error
            except OSError as error:  # what can't be read is not damaged: the next start may read it
                raise JobsUnreadableError(
                    f"The Dispatcher can't read {error.filename or self.directory} for now: {error.strerror or error}"
                ) from error
        with self._fenced():  # reading takes its time, and holds nobody up who wants to lead
            return found

    @contextmanager
    def _fenced(self) -> Iterator[Path]:
        """What is renamed out of this folder, or into it, is refused where the Dispatcher leads no more."""
        with self._guard() as held:
            yield held or self._incoming

    def _prepare(self) -> None:
        try:
            self._disk.make_directory(self.directory)
            self._disk.remove_tree(self._incoming)
            for path in (self._jobs, self._ended, self._incoming):
                self._disk.make_directory(path)
            self._disk.sync(self.directory)
        except OSError as error:
            if error.errno in MAY_PASS:
                text = f"The Dispatcher can't use {self.directory} for now: {error.strerror or error}"
                raise JobsUnreadableError(text) from error
            raise ConfigurationError(
                f"The Dispatcher can't use the directory {self.directory}: {error.strerror or error}."
            ) from error

    def _read_all(self, term: int, drafts: Path) -> StoreContents:
        ends, over = [], set()
        for path in _entries(self._ended):
            over.add(path.stem)  # also where it is damaged: a job that has ended does not run again
            try:
                ends.append(_read_end(path))
            except _DAMAGED as error:
                logger.error("%s is damaged, and stays where it is: %s", path, reason_of(error))
        jobs, unreadable = [], []
        for path in _entries(self._jobs):
            if path.name in over:  # its end was stored, and then the power went
                self._discard(path, drafts)
                continue
            try:
                jobs.append(_read_job(path))
                self._blobs.add(path / "blobs")
            except _DAMAGED as error:
                reason = f"{path} is damaged: {reason_of(error)}"
                logger.error("%s; it stays where it is", reason)
                if is_job_id(path.name):
                    jobmaster, cancelled = notes_of(partial(_note_in, path))
                    unreadable.append(UnreadableJob(path.name, reason, jobmaster, cancelled))
        jobs.sort(key=lambda job: job.submitted_ms)
        ends.sort(key=lambda end: end.ended_ms)
        path = self.directory / f"{_APPLICATION}.json"
        try:
            application = _read_application(path) if path.exists() else None
        except DamagedEntryError as error:
            raise ConfigurationError(damaged_application(str(path), error)) from error
        return StoreContents(tuple(jobs), tuple(ends), tuple(unreadable), term, application)

    @override
    def read_again(self, job_id: str) -> StoredJob:
        path = self._jobs / job_id
        try:
            job = _read_job(path)
        except _DAMAGED as error:
            raise DamagedEntryError(f"{path} is damaged: {reason_of(error)}") from error
        self._blobs.add(path / "blobs")
        return job

    def _next_term(self, now_ms: int, drafts: Path) -> int:
        path, part = self.directory / "term", drafts / "term"
        try:
            last = int(path.read_text())
        except (OSError, ValueError):  # the first start, or damaged
            last = 0
        term = max(last + 1, now_ms)
        try:
            self._disk.write(part, f"{term}\n".encode())
            self._disk.sync(part)
            self._disk.rename(part, path)
            self._disk.sync(self.directory)
        except OSError as error:  # the clock orders Dispatchers then, unless it is set back
            logger.warning("the term of this Dispatcher could not be written to %s: %s", path, error)
        return term

    def close(self) -> None:
        """Nothing follows; a directory that is not durable is removed."""
        if not self._disk.durable:
            self._disk.remove_tree(self.directory)

    # -- jobs that have not ended

    def receive(self) -> Path:
        """A new directory for the parts of a submission; ``put`` or ``drop`` takes it away.

        Raises:
            OSError: it can't be made.
        """
        with self._fenced() as drafts:
            path = drafts / self._new_name()
            path.mkdir(mode=0o700)
        return path

    def drop(self, received: Path) -> None:
        """Delete what was received and is not wanted; nothing there is fine."""
        try:
            self._disk.remove_tree(received)
        except OSError as error:
            logger.warning("%s can't be removed: %s", received, error.strerror or error)

    def put(self, job: StoredJob, received: Path, blobs: Mapping[str, Path]) -> None:
        """Store a job; when this returns it is safe.

        Args:
            job: submitted just now.
            received: directory from ``receive``.
            blobs: SHA-256 -> file in ``received``.
        """
        disk, target = self._disk, self._jobs / job.graph.job_id
        folder = received / "blobs"
        content = {"graph": job.graph.to_plain(), "fingerprint": job.fingerprint, "submitted_ms": job.submitted_ms}
        with self._fenced() as drafts:
            folder.mkdir(mode=0o700, exist_ok=True)
            for name, path in blobs.items():
                disk.rename(path, folder / name)
                disk.sync(folder / name)
            disk.sync(folder)
            write_document(disk, received / "job.json", _JOB, content)
            if target.exists():
                self._discard(target, drafts)
            disk.rename(received, target)
            try:
                disk.sync(self._jobs)
            except OSError:
                self._discard(target, drafts)
                raise
        self._blobs.add(target / "blobs")

    def set_jobmaster(self, job_id: str, address: str, token: str) -> None:
        """Note where the JobMaster of a job is."""
        self._note(job_id, _JOBMASTER, {"address": address, "token": token})

    def set_cancelled(self, job_id: str) -> None:
        """Note that a job was cancelled."""
        self._note(job_id, _CANCEL, {})

    def _note(self, job_id: str, kind: str, value: Mapping[str, Any]) -> None:
        folder = self._jobs / job_id
        with self._fenced() as drafts:
            if folder.is_dir():  # else it has ended meanwhile, or is led without having been stored
                write_document(self._disk, folder / f"{kind}.json", kind, value, drafts)

    @override
    def set_application(self, value: Mapping[str, Any]) -> None:
        with self._fenced() as drafts:
            write_document(self._disk, self.directory / f"{_APPLICATION}.json", _APPLICATION, value, drafts)

    def blob(self, name: str) -> Path | None:
        """Where a blob of a job that has not ended lies; None = there is none of this name.

        Raises:
            DamagedBlobError: its content is not what its name says.
        """
        return self._blobs.find(name)

    # -- jobs that have ended

    def end(self, end: StoredEnd) -> None:
        """Store how a job ended, then delete its graph and blobs."""
        content = {"job_id": end.job_id, "name": end.name, "fingerprint": end.fingerprint, "ended_ms": end.ended_ms}
        rest = {"archive": end.archive, "config": dict(end.config)}
        with self._fenced() as drafts:
            write_document(self._disk, self._ended / f"{end.job_id}.json", _END, {**content, **rest}, drafts)
            self._remove_job(end.job_id, drafts)

    def archive(self, job_id: str) -> Mapping[str, Any] | None:
        """How a job ended; None = nothing is stored of it.

        Raises:
            DamagedEntryError: the file was damaged.
            OSError: it can't be read for now.
        """
        try:
            return _read_end(self._ended / f"{job_id}.json").archive
        except FileNotFoundError:
            return None

    def remove_job(self, job_id: str) -> None:
        """Delete graph and blobs of a job; nothing there is fine."""
        with self._fenced() as drafts:
            self._remove_job(job_id, drafts)

    def forget(self, job_id: str) -> None:
        """Delete all that is stored of a job."""
        with self._fenced() as drafts:
            if (path := self._ended / f"{job_id}.json").exists():
                self._discard(path, drafts)
            self._remove_job(job_id, drafts)

    # -- inside

    def _remove_job(self, job_id: str, drafts: Path) -> None:
        path = self._jobs / job_id
        self._blobs.remove(path)
        if path.exists():
            self._discard(path, drafts)

    def _new_name(self) -> str:
        """Of something under way; a former Dispatcher that does not know it yet may use the same directory."""
        return f"{self._id}-{next(self._serial)}"

    def _discard(self, path: Path, drafts: Path) -> None:
        """At once out of sight, so that half a job is never seen; then deleted."""
        trash = drafts / f"{self._new_name()}.trash"
        self._disk.rename(path, trash)
        self.drop(trash)


def _entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _read_job(path: Path) -> StoredJob:
    plain = read_document(path / "job.json", _JOB)
    graph = stored_graph(plain["graph"])
    if graph.job_id != path.name:
        raise DamagedEntryError(f"it holds the job {graph.job_id}")
    for name, size in graph.blobs.items():
        blob = path / "blobs" / name
        found = blob.stat().st_size if blob.is_file() else None
        if found != size:
            raise DamagedEntryError(f"the blob {name} has {found} bytes instead of {size}")
        if (content := sha256_of(blob)) != name:
            raise DamagedEntryError(f"the content of the blob {name} has the SHA-256 {content}")
    jobmaster = _note_in(path, _JOBMASTER)
    return StoredJob(
        graph,
        str(plain["fingerprint"]),
        int(plain["submitted_ms"]),
        (str(jobmaster["address"]), str(jobmaster["token"])) if jobmaster else None,
        _note_in(path, _CANCEL) is not None,
    )


def _read_application(path: Path) -> dict[str, Any]:
    return read_document(path, _APPLICATION)


def _note_in(path: Path, kind: str) -> dict[str, Any] | None:
    try:
        return read_document(path / f"{kind}.json", kind)
    except FileNotFoundError:
        return None


def _read_end(path: Path) -> StoredEnd:
    plain = read_document(path, _END)
    end = StoredEnd(
        str(plain["job_id"]),
        str(plain["name"]),
        str(plain["fingerprint"]),
        int(plain["ended_ms"]),
        plain["archive"],
        {str(key): str(value) for key, value in plain.get("config", {}).items()},  # earlier ones have none
    )
    if path.name != f"{end.job_id}.json":
        raise DamagedEntryError(f"it holds the end of job {end.job_id}")
    return end
