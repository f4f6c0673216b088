"""The store of a Dispatcher in the cell of its component, with graphs, blobs and archives as payloads.

Records::

    term                      see ``StoreContents.term``
    store                     id of this store; payloads of another store, whose cells are lost, are left alone
    job.<job id>              payload with graph and blobs of a job that has not ended, fingerprint, time
    jobmaster.<job id>        address of its JobMaster
    cancel.<job id>           exists if the job was cancelled
    ended.<job id>            payload with the archive of a job that has ended
    application               the program of a cluster in application mode, and how it ended
    marked                    id of the store, once the place of its payloads has its marker

A payload is written before the record that names it, and removed after it. A payload without a record that was written
under an epoch that is over belongs to nobody: whoever opens the store removes it.
"""

from __future__ import annotations

import functools
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from firesteel.core.errors import ConfigurationError, FencedError, GraphError
from firesteel.core.files import replace_file
from firesteel.graph.job_graph import FORMAT_VERSION, JobGraph
from firesteel.ha.blobs import BlobIndex, sha256_of
from firesteel.ha.cells import Cells, Change, Record, RemoveRecord, Unchanged, put, settle
from firesteel.ha.documents import DamagedEntryError, UnknownFormatError, decode, encode
from firesteel.ha.jobs import JobStore, JobsUnreadableError, StoreContents, StoredEnd, StoredJob, UnreadableJob
from firesteel.ha.payloads import Payloads, PayloadsAwayError
from firesteel.ha.retrieval import DISPATCHER

logger = logging.getLogger(__name__)
_JOB, _JOBMASTER, _CANCEL, _END = "job", "jobmaster", "cancel", "ended"
_OF_A_JOB: Final = (_JOB, _JOBMASTER, _CANCEL)
_TERM, _STORE, _MARKED, _APPLICATION = "term", "store", "marked", "application"
_GRAPH: Final = "graph.json"
_EARLIER_GRAPH: Final = "job.json"
"""Name of the graph in a folder that version 1 of high availability in a directory has stored."""
_DAMAGED: Final = (
    DamagedEntryError, GraphError, KeyError, TypeError, ValueError, FileNotFoundError, NotADirectoryError,
)  # fmt: skip
"""Errors of reading an entry that waiting does not mend; ``UnknownFormatError`` is caught before them."""


def _reason_of(error: Exception) -> str:
    """Reason why an entry is damaged, for people."""
    return str(error) if isinstance(error, DamagedEntryError | GraphError) else repr(error)


def _stored_graph(plain: Any) -> JobGraph:
    """Graph of a job, from its stored form.

    Raises:
        GraphError: it is malformed.
        UnknownFormatError: another version has stored it.
    """
    version = plain.get("format_version") if isinstance(plain, Mapping) else None
    if isinstance(version, int) and version != FORMAT_VERSION:
        raise UnknownFormatError(f"a job graph has the format {version}; this version reads format {FORMAT_VERSION}")
    return JobGraph.from_plain(plain)


def _other_version(place: str, error: Exception) -> str:
    """Message with which a Dispatcher refuses to lead."""
    return (
        f"The jobs in {place} were stored by another version of Firesteel ({error}): this Dispatcher does not lead; "
        "restart the version that stored them, and upgrade by savepoints"
    )


def _damaged_application(place: str, error: Exception) -> str:
    """Message of the error when it is unknown whether the application of the cluster has run."""
    return (
        f"The progress of this cluster's application can't be read: {place} is damaged: {error}. The application is "
        "not run again, which would repeat it; remove the damaged entry to have it run anew"
    )


def check_payloads(cells: Cells, payloads: Payloads) -> None:
    """Check that the payloads of a cluster are where they should be, before any are written or missed there.

    Args:
        cells: of the cluster, whose Dispatcher has marked the place.
        payloads: of the cluster.

    Raises:
        PayloadsAwayError: their place is away.
        OSError: it can't be checked for now.
    """
    marked = cells.read(DISPATCHER, _MARKED)
    if marked is not None:
        payloads.check_mounted(marked.value.decode("utf-8", "replace"))


class CellJobStore(JobStore):
    """Jobs in the cell of the Dispatcher; the head of this module lists the records.

    Args:
        cells: with the records.
        payloads: everything that is too large for records.
        component: of the Dispatcher.
        epoch: of the Dispatcher that leads.
    """

    def __init__(self, cells: Cells, payloads: Payloads, component: str, epoch: int) -> None:
        self._cells, self._payloads, self._component, self._epoch = cells, payloads, component, epoch
        self.where, self._blobs = payloads.where, BlobIndex()
        self._folders: dict[str, tuple[str, Path]] = {}
        """Job -> name of its payload, and its folder on this host."""
        self._id = ""
        self._unsure: dict[str, str] = {}
        """Job -> payload of a submission that may be stored though its client was told that it failed."""

    # -- life

    @override
    def open(self, now_ms: int = 0) -> StoreContents:
        try:
            self._check()
            self._find_payloads()
            self._payloads.begin()
            term = self._next_term(now_ms)
            contents = self._read_all(term)
            self._sweep(contents)
        except UnknownFormatError as error:
            raise ConfigurationError(_other_version(self.where, error)) from error
        except FencedError:
            raise
        except (FileExistsError, NotADirectoryError, PermissionError) as error:
            raise ConfigurationError(
                f"The Dispatcher can't use the directory {self.where}: {error.strerror}: {error.filename}."
            ) from error
        except OSError as error:
            unreadable = "its jobs" if error.filename is None else str(error.filename)
            text = f"The Dispatcher can't read {unreadable} for now: {error.strerror or error}"
            raise JobsUnreadableError(text) from error
        self._check()  # the epoch may have ended during the read
        return contents

    def _check(self) -> None:
        self._cells.check(self._component, self._epoch)

    def _find_payloads(self) -> None:
        """Check that the place of the payloads is there, and mark it if the store is new or comes from an earlier
        version.

        Raises:
            PayloadsAwayError: the place is away.
        """
        store, marked = self._read(_STORE), self._read(_MARKED)
        self._id = secrets.token_hex(8) if store is None else store.value.decode("utf-8", "replace")
        if marked is not None:
            self._payloads.check(self._id)
            return
        # A store of an earlier version has no marker: there, payloads without a single one left mean that the place is
        # away.
        records = [name.partition(".") for name in self._cells.names(self._component)]
        payloads = [payload for kind, _, job_id in records for payload in self._payloads_of(job_id, [kind])]
        folders = {payload.rpartition("/")[0] for payload in payloads}
        if folders and not any(self._payloads.names(folder) for folder in folders):
            raise PayloadsAwayError(
                f"{self._payloads.where} holds none of the cluster's jobs: is the file system of "
                "high-availability.storageDir mounted on this host?"
            )
        self._payloads.mark(self._id)  # first, since the record says that the marker exists

        def plan() -> list[Change]:
            changes: list[Change] = [put(_MARKED, self._id.encode(), self._read(_MARKED))]
            if self._read(_STORE) is None:
                changes.append(put(_STORE, self._id.encode(), None))
            return changes

        self._settle(plan)

    def _next_term(self, now_ms: int) -> int:
        term = 0

        def plan() -> list[Change]:
            nonlocal term
            record = self._read(_TERM)
            try:
                last = int(record.value) if record is not None else 0
            except ValueError:
                last = 0
            term = max(last + 1, now_ms)
            return [put(_TERM, f"{term}".encode(), record)]

        self._settle(plan)
        return term

    def _read_all(self, term: int) -> StoreContents:
        names = self._cells.names(self._component)
        jobs, ends, unreadable, ended = [], [], [], set()
        for name in names:
            kind, _, job_id = name.partition(".")
            if kind != _END:
                continue
            ended.add(job_id)  # even if it is damaged: a job that has ended does not run again
            try:
                if (record := self._read(name)) is not None:
                    ends.append(self._end_of(job_id, record))
            except _DAMAGED as error:
                self._payloads.check(self._id)
                logger.error("the record %s is damaged, and is left as it is: %s", name, _reason_of(error))
        for name in names:
            kind, _, job_id = name.partition(".")
            if kind != _JOB:
                continue
            if job_id in ended:
                self.remove_job(job_id)
                continue
            try:
                jobs.append(self.read_again(job_id))
            except DamagedEntryError as error:
                logger.error("%s; it is left as it is", error)
                jobmaster, cancelled = self._notes_of(job_id)
                unreadable.append(UnreadableJob(job_id, str(error), jobmaster, cancelled))
        jobs.sort(key=lambda job: job.submitted_ms)
        ends.sort(key=lambda end: end.ended_ms)
        try:
            application = self._document(_APPLICATION, _APPLICATION)
        except DamagedEntryError as error:
            raise ConfigurationError(_damaged_application(f"the record {_APPLICATION}", error)) from error
        return StoreContents(tuple(jobs), tuple(ends), tuple(unreadable), term, application)

    def _notes_of(self, job_id: str) -> tuple[tuple[str, str] | None, bool]:
        """Address and token of a job's JobMaster, and whether the job was cancelled, as far as these can be read."""

        def note(kind: str) -> Mapping[str, Any] | None:
            try:
                return self._document(f"{kind}.{job_id}", kind)
            except _DAMAGED:
                return None

        jobmaster = note(_JOBMASTER)
        address = (str(jobmaster.get("address", "")), str(jobmaster.get("token", ""))) if jobmaster else None
        return address, note(_CANCEL) is not None

    @override
    def read_again(self, job_id: str) -> StoredJob:
        name = f"{_JOB}.{job_id}"
        try:
            record = self._read(name)
            if record is None:
                raise DamagedEntryError("it is missing")
            return self._job_of(job_id, record)
        except _DAMAGED as error:
            self._payloads.check(self._id)  # payloads whose place is away are not damaged
            raise DamagedEntryError(f"the record {name} is damaged: {_reason_of(error)}") from error

    def _job_of(self, job_id: str, record: Record) -> StoredJob:
        in_record = decode(_JOB, record.value)
        name = str(in_record["payload"])
        folder = self._payloads.fetch(name)
        document = folder / _GRAPH if (folder / _GRAPH).exists() else folder / _EARLIER_GRAPH
        plain = {**decode(_JOB, document.read_bytes()), **in_record}
        graph = _stored_graph(plain["graph"])
        if graph.job_id != job_id:
            raise DamagedEntryError(f"it holds the job {graph.job_id}")
        for blob, size in graph.blobs.items():
            path = folder / "blobs" / blob
            stored_size = path.stat().st_size if path.is_file() else None
            if stored_size != size:
                raise DamagedEntryError(f"the blob {blob} has {stored_size} bytes instead of {size}")
            if (content := sha256_of(path)) != blob:
                raise DamagedEntryError(f"the content of the blob {blob} has the SHA-256 {content}")
        jobmaster = self._document(f"{_JOBMASTER}.{job_id}", _JOBMASTER)
        job = StoredJob(
            graph,
            str(plain["fingerprint"]),
            int(plain["submitted_ms"]),
            (str(jobmaster["address"]), str(jobmaster["token"])) if jobmaster else None,
            self._document(f"{_CANCEL}.{job_id}", _CANCEL) is not None,
        )
        self._keep(job_id, name, folder)
        return job

    def _keep(self, job_id: str, name: str, folder: Path) -> None:
        former = self._folders.get(job_id)
        if former is not None and former[0] != name:
            self._blobs.remove(former[1])
        self._folders[job_id] = name, folder
        self._blobs.add(folder / "blobs")

    def _end_of(self, job_id: str, record: Record) -> StoredEnd:
        plain = decode(_END, record.value)
        content = decode(_END, self._payloads.read(str(plain["payload"])))
        for owner in (plain["job_id"], content.get("job_id", job_id)):
            if owner != job_id:
                raise DamagedEntryError(f"it holds the end of job {owner}")
        plain = {**content, **plain}
        config = {str(key): str(value) for key, value in content.get("config", {}).items()}  # missing in earlier ones
        name, fingerprint = str(plain["name"]), str(plain["fingerprint"])
        return StoredEnd(job_id, name, fingerprint, int(plain["ended_ms"]), content["archive"], config)

    def _sweep(self, contents: StoreContents) -> None:
        """Remove payloads without a record of leaders that can no longer write one."""
        named = {name for name, _ in self._folders.values()}
        damaged = {job.job_id for job in contents.unreadable}
        for record in self._cells.names(self._component):
            kind, _, job_id = record.partition(".")
            if kind == _END and (stored := self._read(record)) is not None:
                try:
                    named.add(str(decode(_END, stored.value)["payload"]))
                except _DAMAGED:
                    damaged.add(job_id)
        for kind in (_JOB, _END):
            for payload in self._payloads.names(f"{self._id}/{kind}"):
                job_id, _, suffix = payload.rpartition("/")[2].partition(".")
                epoch = suffix.partition(".")[0]
                if payload in named or job_id in damaged or not epoch.isdigit() or int(epoch) >= self._epoch:
                    continue
                logger.info("no record names the payload %s: it is removed", payload)
                self._forget_payload(payload)

    @override
    def close(self) -> None:
        self._payloads.close()

    # -- jobs that have not ended

    @override
    def receive(self) -> Path:
        self._check()
        self._payloads.check_mounted(self._id)
        return self._payloads.receive()

    @override
    def drop(self, received: Path) -> None:
        try:
            self._payloads.drop(received)
        except OSError as error:
            logger.warning("%s can't be removed: %s", received, error.strerror or error)

    @override
    def put(self, job: StoredJob, received: Path, blobs: Mapping[str, Path]) -> None:
        self._payloads.check_mounted(self._id)
        job_id, folder = job.graph.job_id, received / "blobs"
        folder.mkdir(mode=0o700, exist_ok=True)
        for blob, path in blobs.items():
            path.rename(folder / blob)
        replace_file(received / _GRAPH, encode(_JOB, {"graph": job.graph.to_plain()}), durable=False)
        # The payload first: a job whose record exists can be read as a whole.
        payload = self._new_name(_JOB, job_id)
        try:
            here = self._payloads.store(received, payload)
        except OSError:
            self._forget_payload(payload)
            raise
        name = f"{_JOB}.{job_id}"
        value = encode(_JOB, {"payload": payload, "fingerprint": job.fingerprint, "submitted_ms": job.submitted_ms})

        def plan() -> list[Change] | None:
            record = self._read(name)
            if record is not None and record.value == value:
                return None
            # Notes of an earlier run under the same job id must not count for this one.
            notes = [(note, self._read(note)) for note in (f"{_JOBMASTER}.{job_id}", f"{_CANCEL}.{job_id}")]
            return [
                put(name, value, record),
                *(RemoveRecord(note, note_record.version) for note, note_record in notes if note_record is not None),
            ]

        try:
            self._settle(plan)
        except FencedError:
            self._forget_unnamed(name, value, payload)
            raise
        except OSError:
            self._unsure[job_id] = payload
            raise
        self._unsure.pop(job_id, None)
        former = self._folders.get(job_id)
        self._keep(job_id, payload, here)
        if former is not None:
            self._forget_payload(former[0])

    def _take_back(self) -> None:
        """Remove submissions that may be stored though their clients were told that they failed."""
        for job_id, payload in list(self._unsure.items()):
            record = self._read(f"{_JOB}.{job_id}")
            if record is not None and decode(_JOB, record.value).get("payload") == payload:
                plan = functools.partial(self._removals, job_id, [_JOB])
                settle(self._cells, self._component, self._epoch, plan)
            del self._unsure[job_id]
            self._forget_payload(payload)

    @override
    def set_jobmaster(self, job_id: str, address: str, token: str) -> None:
        self._note(job_id, _JOBMASTER, {"address": address, "token": token})

    @override
    def set_cancelled(self, job_id: str) -> None:
        self._note(job_id, _CANCEL, {})

    def _note(self, job_id: str, kind: str, value: Mapping[str, Any]) -> None:
        name, content = f"{kind}.{job_id}", encode(kind, value)

        def plan() -> list[Change] | None:
            job, record = self._read(f"{_JOB}.{job_id}"), self._read(name)
            if job is None or (record is not None and record.value == content):
                return None  # the job has ended meanwhile, or is led without having been stored
            return [Unchanged(f"{_JOB}.{job_id}", job.version), put(name, content, record)]

        self._settle(plan)

    @override
    def blob(self, name: str) -> Path | None:
        return self._blobs.find(name)

    # -- the application

    @override
    def set_application(self, value: Mapping[str, Any]) -> None:
        content = encode(_APPLICATION, value)

        def plan() -> list[Change] | None:
            record = self._read(_APPLICATION)
            return None if record is not None and record.value == content else [put(_APPLICATION, content, record)]

        self._settle(plan)

    # -- jobs that have ended

    @override
    def end(self, end: StoredEnd) -> None:
        payload, name = self._new_name(_END, end.job_id), f"{_END}.{end.job_id}"
        self._payloads.check_mounted(self._id)
        self._payloads.write(payload, encode(_END, {"archive": end.archive, "config": dict(end.config)}))
        plain = {"job_id": end.job_id, "name": end.name, "fingerprint": end.fingerprint, "ended_ms": end.ended_ms}
        value = encode(_END, {**plain, "payload": payload})
        payloads = self._payloads_of(end.job_id)

        # One change: a job never has both an end and a record to run it from, or neither of them.
        def plan() -> list[Change] | None:
            record = self._read(name)
            if record is not None and record.value == value:
                return None
            return [put(name, value, record), *self._removals(end.job_id, _OF_A_JOB)]

        try:
            self._settle(plan)
        except FencedError:
            self._forget_unnamed(name, value, payload)
            raise
        self._gone(end.job_id, payloads)

    @override
    def archive(self, job_id: str) -> Mapping[str, Any] | None:
        record = self._read(f"{_END}.{job_id}")
        if record is None:
            return None
        try:
            return self._end_of(job_id, record).archive
        except FileNotFoundError as error:
            check_payloads(self._cells, self._payloads)
            raise DamagedEntryError(f"its archive is missing: {error}") from error

    @override
    def remove_job(self, job_id: str) -> None:
        self._remove(job_id, _OF_A_JOB)

    @override
    def forget(self, job_id: str) -> None:
        self._remove(job_id, (*_OF_A_JOB, _END))

    # -- inside

    def _remove(self, job_id: str, kinds: Sequence[str]) -> None:
        payloads = self._payloads_of(job_id, kinds)
        self._settle(lambda: self._removals(job_id, kinds))
        self._gone(job_id, payloads)

    def _removals(self, job_id: str, kinds: Sequence[str]) -> list[Change]:
        records = [(name, self._read(name)) for name in (f"{kind}.{job_id}" for kind in kinds)]
        return [RemoveRecord(name, record.version) for name, record in records if record is not None]

    def _payloads_of(self, job_id: str, kinds: Sequence[str] = (_JOB, _END)) -> list[str]:
        """Payloads that the records of a job name."""
        payloads = []
        for kind in (_JOB, _END):
            record = self._read(f"{kind}.{job_id}") if kind in kinds else None
            if record is not None:
                try:
                    payloads.append(str(decode(kind, record.value)["payload"]))
                except (DamagedEntryError, KeyError):
                    logger.error("the record of job %s is damaged; its payload may be left behind", job_id)
        return payloads

    def _gone(self, job_id: str, payloads: Sequence[str]) -> None:
        """Remove payloads that no record names any more."""
        folder = self._folders.pop(job_id, None)
        if folder is not None:
            self._blobs.remove(folder[1])
        for payload in payloads:
            self._forget_payload(payload)

    def _forget_unnamed(self, name: str, value: bytes, payload: str) -> None:
        """Remove the payload of a refused write, unless an earlier attempt, which was never answered, has stored it."""
        with suppress(OSError):  # unknown: the next leader removes payloads that no record names
            record = self._read(name)
            if record is None or record.value != value:
                self._forget_payload(payload)

    def _forget_payload(self, name: str) -> None:
        try:
            self._payloads.remove(name)
        except OSError as error:  # whoever opens the store next removes it
            logger.warning("the payload %s can't be removed: %s", name, error.strerror or error)

    def _new_name(self, kind: str, job_id: str) -> str:
        return f"{self._id}/{kind}/{job_id}.{self._epoch}.{secrets.token_hex(8)}"

    def _settle(self, plan: Callable[[], Sequence[Change] | None]) -> None:
        self._take_back()
        settle(self._cells, self._component, self._epoch, plan)

    def _read(self, name: str) -> Record | None:
        return self._cells.read(self._component, name)

    def _document(self, name: str, kind: str) -> dict[str, Any] | None:
        record = self._read(name)
        return None if record is None else decode(kind, record.value)
