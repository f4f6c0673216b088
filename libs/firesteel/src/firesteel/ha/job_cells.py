"""The store of a Dispatcher in the cell of its component, with graphs, blobs and archives as payloads.

Records::

    term                      see ``Contents.term``
    store                     id of this store: payloads of another one, whose cells are lost, are left alone
    job.<job id>              payload with graph and blobs of a job that has not ended, fingerprint, time
    jobmaster.<job id>        where its JobMaster is
    cancel.<job id>           it was cancelled
    ended.<job id>            payload with the archive of a job that has ended
    application               the program of a cluster in application mode, and how it ended
    set-aside.<n>.<name>      records that could not be read

A payload is written before the record that names it, and removed behind it. What lies there without a record, and was
written under an epoch that is over, belongs to nobody: whoever opens the store removes it.
"""

from __future__ import annotations

import functools
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from firesteel.core.errors import FencedError, GraphError
from firesteel.graph.job_graph import JobGraph
from firesteel.ha.blobs import BlobIndex, sha256_of
from firesteel.ha.cells import Cells, Change, Record, Remove, Unchanged, put, settle
from firesteel.ha.documents import DamagedEntryError, decode, encode
from firesteel.ha.jobs import Contents, JobStore, JobsUnreadableError, StoredEnd, StoredJob
from firesteel.ha.payloads import Payloads

logger = logging.getLogger(__name__)
_JOB, _JOBMASTER, _CANCEL, _END = "job", "jobmaster", "cancel", "ended"
_OF_A_JOB: Final = (_JOB, _JOBMASTER, _CANCEL)
_TERM, _STORE, _SET_ASIDE, _APPLICATION = "term", "store", "set-aside", "application"
_GRAPH: Final = "graph.json"
_DAMAGED: Final = (
    DamagedEntryError,
    GraphError,
    KeyError,
    TypeError,
    ValueError,
    FileNotFoundError,
    NotADirectoryError,
)
"""What makes an entry unreadable for good."""


class CellJobStore(JobStore):
    """See ``JobStore`` and the head of this module.

    Args:
        cells: where records are.
        payloads: where the rest is.
        component: whose cell it is: that of the Dispatcher.
        epoch: of the Dispatcher that leads.
    """

    def __init__(self, cells: Cells, payloads: Payloads, component: str, epoch: int) -> None:
        self._cells, self._payloads, self._component, self._epoch = cells, payloads, component, epoch
        self.where, self._blobs = payloads.where, BlobIndex()
        self._folders: dict[str, tuple[str, Path]] = {}
        """Job -> its payload, and where that is on this host."""
        self._id = ""
        self._unsure: dict[str, str] = {}
        """Job -> the payload of a submission that was not taken, as its client was told, and may be stored."""

    # -- life

    def open(self, now_ms: int = 0) -> Contents:
        """See ``JobStore``."""
        try:
            self._check()
            self._payloads.begin()
            term = self._next_term(now_ms)
            found = self._read_all(term)
            self._sweep(found)
        except OSError as error:
            raise JobsUnreadableError(
                f"The Dispatcher can't read its jobs for now: {error.strerror or error}. Nothing was set aside; start "
                "it again when they can be read."
            ) from error
        self._check()  # reading takes its time
        return found

    def _check(self) -> None:
        self._cells.check(self._component, self._epoch)

    def _next_term(self, now_ms: int) -> int:
        term = 0

        def plan() -> list[Change]:
            nonlocal term
            there, store = self._read(_TERM), self._read(_STORE)
            try:
                last = int(there.value) if there is not None else 0
            except ValueError:
                last = 0
            term = max(last + 1, now_ms)
            changes: list[Change] = [put(_TERM, f"{term}".encode(), there)]
            if store is None:
                self._id = secrets.token_hex(8)
                changes.append(put(_STORE, self._id.encode(), None))
            else:
                self._id = store.value.decode()
            return changes

        self._settle(plan)
        return term

    def _read_all(self, term: int) -> Contents:
        names = self._cells.names(self._component)
        bad: list[str] = []
        ends, jobs = [], []
        for name in names:
            kind, _, job_id = name.partition(".")
            try:
                if kind == _END and (record := self._read(name)) is not None:
                    ends.append(self._end_of(job_id, record))
            except _DAMAGED as error:
                self._put_aside(name, error, bad)
        over = {end.job_id for end in ends}
        for name in names:
            kind, _, job_id = name.partition(".")
            if kind == _JOB and job_id in over:
                self.remove_job(job_id)
                continue
            try:
                if kind == _JOB and (record := self._read(name)) is not None:
                    jobs.append(self._job_of(job_id, record))
            except _DAMAGED as error:
                self._put_aside(name, error, bad)
        jobs.sort(key=lambda job: job.submitted_ms)
        ends.sort(key=lambda end: end.ended_ms)
        application = None
        try:
            application = self._document(_APPLICATION, _APPLICATION)
        except _DAMAGED as error:
            self._put_aside(_APPLICATION, error, bad)
        return Contents(tuple(jobs), tuple(ends), tuple(bad), term, application)

    def _job_of(self, job_id: str, record: Record) -> StoredJob:
        plain = decode(_JOB, record.value)
        name = str(plain["payload"])
        folder = self._payloads.fetch(name)
        graph = JobGraph.from_plain(decode(_JOB, (folder / _GRAPH).read_bytes())["graph"])
        if graph.job_id != job_id:
            raise DamagedEntryError(f"it holds the job {graph.job_id}")
        for blob, size in graph.blobs.items():
            path = folder / "blobs" / blob
            found = path.stat().st_size if path.is_file() else None
            if found != size:
                raise DamagedEntryError(f"the blob {blob} has {found} bytes instead of {size}")
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
        before = self._folders.get(job_id)
        if before is not None and before[0] != name:
            self._blobs.remove(before[1])
        self._folders[job_id] = name, folder
        self._blobs.add(folder / "blobs")

    def _end_of(self, job_id: str, record: Record) -> StoredEnd:
        plain = decode(_END, record.value)
        content = decode(_END, self._payloads.read(str(plain["payload"])))
        if plain["job_id"] != job_id:
            raise DamagedEntryError(f"it holds the end of job {plain['job_id']}")
        config = {str(key): str(value) for key, value in content["config"].items()}
        name, fingerprint = str(plain["name"]), str(plain["fingerprint"])
        return StoredEnd(job_id, name, fingerprint, int(plain["ended_ms"]), content["archive"], config)

    def _put_aside(self, name: str, error: Exception, bad: list[str]) -> None:
        reason = str(error) if isinstance(error, DamagedEntryError | GraphError) else repr(error)
        bad.append(name.partition(".")[2] or name)
        aside = f"{_SET_ASIDE}.{self._epoch}.{name}"

        def plan() -> list[Change] | None:
            there = self._read(name)
            return None if there is None else [Remove(name, there.version), put(aside, there.value, self._read(aside))]

        self._settle(plan)
        logger.error("the record %s is damaged: %s; it is now called %s, and its payload is kept", name, reason, aside)

    def _sweep(self, found: Contents) -> None:
        """Remove payloads without a record, of leaders that can't write one any more."""
        named = {name for name, _ in self._folders.values()}
        for record in self._cells.names(self._component):
            kind, _, _ = record.partition(".")
            if kind == _END and (there := self._read(record)) is not None:
                named.add(str(decode(_END, there.value)["payload"]))
        kept = {name.rpartition(".")[2] for name in self._cells.names(self._component) if name.startswith(_SET_ASIDE)}
        for kind in (_JOB, _END):
            for payload in self._payloads.names(f"{self._id}/{kind}"):
                job_id, _, rest = payload.rpartition("/")[2].partition(".")
                epoch = rest.partition(".")[0]
                if payload in named or job_id in kept or not epoch.isdigit() or int(epoch) >= self._epoch:
                    continue
                logger.info("the payload %s is in no record: it is removed", payload)
                self._forget_payload(payload)

    def close(self) -> None:
        """See ``JobStore``."""
        self._payloads.close()

    # -- jobs that have not ended

    def receive(self) -> Path:
        """See ``JobStore``."""
        self._check()
        return self._payloads.receive()

    def drop(self, received: Path) -> None:
        """See ``JobStore``."""
        try:
            self._payloads.drop(received)
        except OSError as error:
            logger.warning("%s can't be removed: %s", received, error.strerror or error)

    def put(self, job: StoredJob, received: Path, blobs: Mapping[str, Path]) -> None:
        """See ``JobStore``."""
        job_id, folder = job.graph.job_id, received / "blobs"
        folder.mkdir(mode=0o700, exist_ok=True)
        for blob, path in blobs.items():
            path.rename(folder / blob)
        (received / _GRAPH).write_bytes(encode(_JOB, {"graph": job.graph.to_plain()}))
        payload = self._new_name(_JOB, job_id)
        here = self._payloads.store(received, payload)
        name = f"{_JOB}.{job_id}"
        value = encode(_JOB, {"payload": payload, "fingerprint": job.fingerprint, "submitted_ms": job.submitted_ms})

        def plan() -> list[Change] | None:
            there = self._read(name)
            if there is not None and there.value == value:
                return None
            notes = [(note, self._read(note)) for note in (f"{_JOBMASTER}.{job_id}", f"{_CANCEL}.{job_id}")]
            return [put(name, value, there), *(Remove(note, old.version) for note, old in notes if old is not None)]

        try:
            self._settle(plan)
        except FencedError:
            self._forget_payload(payload)
            raise
        except OSError:
            self._unsure[job_id] = payload
            raise
        self._unsure.pop(job_id, None)
        before = self._folders.get(job_id)
        self._keep(job_id, payload, here)
        if before is not None:
            self._forget_payload(before[0])

    def _take_back(self) -> None:
        """Submissions that may be stored though nobody was told so go."""
        for job_id, payload in list(self._unsure.items()):
            there = self._read(f"{_JOB}.{job_id}")
            if there is not None and decode(_JOB, there.value).get("payload") == payload:
                plan = functools.partial(self._removals, job_id, [_JOB])
                settle(self._cells, self._component, self._epoch, plan)
            del self._unsure[job_id]
            self._forget_payload(payload)

    def set_jobmaster(self, job_id: str, address: str, token: str) -> None:
        """See ``JobStore``."""
        self._note(job_id, _JOBMASTER, {"address": address, "token": token})

    def set_cancelled(self, job_id: str) -> None:
        """See ``JobStore``."""
        self._note(job_id, _CANCEL, {})

    def _note(self, job_id: str, kind: str, value: Mapping[str, Any]) -> None:
        name, content = f"{kind}.{job_id}", encode(kind, value)

        def plan() -> list[Change] | None:
            job, there = self._read(f"{_JOB}.{job_id}"), self._read(name)
            if job is None or (there is not None and there.value == content):
                return None  # it has ended meanwhile, or is led without having been stored
            return [Unchanged(f"{_JOB}.{job_id}", job.version), put(name, content, there)]

        self._settle(plan)

    def blob(self, name: str) -> Path | None:
        """See ``JobStore``."""
        return self._blobs.find(name)

    # -- the application

    def set_application(self, value: Mapping[str, Any]) -> None:
        """See ``JobStore``."""
        content = encode(_APPLICATION, value)

        def plan() -> list[Change] | None:
            there = self._read(_APPLICATION)
            return None if there is not None and there.value == content else [put(_APPLICATION, content, there)]

        self._settle(plan)

    # -- jobs that have ended

    def end(self, end: StoredEnd) -> None:
        """See ``JobStore``."""
        payload, name = self._new_name(_END, end.job_id), f"{_END}.{end.job_id}"
        self._payloads.write(payload, encode(_END, {"archive": end.archive, "config": dict(end.config)}))
        plain = {"job_id": end.job_id, "name": end.name, "fingerprint": end.fingerprint, "ended_ms": end.ended_ms}
        value = encode(_END, {**plain, "payload": payload})
        before = self._payloads_of(end.job_id)

        def plan() -> list[Change] | None:
            there = self._read(name)
            if there is not None and there.value == value:
                return None
            return [put(name, value, there), *self._removals(end.job_id, _OF_A_JOB)]

        try:
            self._settle(plan)
        except FencedError:
            self._forget_payload(payload)
            raise
        self._gone(end.job_id, before)

    def archive(self, job_id: str) -> Mapping[str, Any] | None:
        """See ``JobStore``."""
        there = self._read(f"{_END}.{job_id}")
        if there is None:
            return None
        try:
            return self._end_of(job_id, there).archive
        except FileNotFoundError as error:
            raise DamagedEntryError(f"its archive is missing: {error}") from error

    def remove_job(self, job_id: str) -> None:
        """See ``JobStore``."""
        self._remove(job_id, _OF_A_JOB)

    def forget(self, job_id: str) -> None:
        """See ``JobStore``."""
        self._remove(job_id, (*_OF_A_JOB, _END))

    # -- inside

    def _remove(self, job_id: str, kinds: Sequence[str]) -> None:
        payloads = self._payloads_of(job_id, kinds)
        self._settle(lambda: self._removals(job_id, kinds))
        self._gone(job_id, payloads)

    def _removals(self, job_id: str, kinds: Sequence[str]) -> list[Change]:
        found = [(name, self._read(name)) for name in (f"{kind}.{job_id}" for kind in kinds)]
        return [Remove(name, there.version) for name, there in found if there is not None]

    def _payloads_of(self, job_id: str, kinds: Sequence[str] = (_JOB, _END)) -> list[str]:
        """Those that are named now, and by no record after the change."""
        found = []
        for kind in (_JOB, _END):
            there = self._read(f"{kind}.{job_id}") if kind in kinds else None
            if there is not None:
                try:
                    found.append(str(decode(kind, there.value)["payload"]))
                except (DamagedEntryError, KeyError):
                    logger.error("the record of job %s is damaged; its payload may be left", job_id)
        return found

    def _gone(self, job_id: str, payloads: Sequence[str]) -> None:
        """No record names these payloads any more."""
        folder = self._folders.pop(job_id, None)
        if folder is not None:
            self._blobs.remove(folder[1])
        for payload in payloads:
            self._forget_payload(payload)

    def _forget_payload(self, name: str) -> None:
        try:
            self._payloads.remove(name)
        except OSError as error:  # whoever opens the store next finds it
            logger.warning("the payload %s can't be removed: %s", name, error.strerror or error)

    def _new_name(self, kind: str, job_id: str) -> str:
        return f"{self._id}/{kind}/{job_id}.{self._epoch}.{secrets.token_hex(8)}"

    def _settle(self, plan: Callable[[], Sequence[Change] | None]) -> None:
        self._take_back()
        settle(self._cells, self._component, self._epoch, plan)

    def _read(self, name: str) -> Record | None:
        return self._cells.read(self._component, name)

    def _document(self, name: str, kind: str) -> dict[str, Any] | None:
        there = self._read(name)
        return None if there is None else decode(kind, there.value)
