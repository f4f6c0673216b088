"""HDFS as an object store, through the client ``hdfs-native``: Hadoop's own protocol, without a JVM.

A folder of HDFS is a part of a key. What is written goes to a hidden file beside its place, and is renamed when it is
whole and synced; so nobody sees a half, and of several writers one is there in the end::

    <folder>/<name>                     an object
    <folder>/.<name>.<unique>.put       one that is being written
    <folder>/.<name>.<unique>.upload    an upload in parts: they are appended in their order, each is synced

An upload is written by the process that has begun it. Any process completes it: where the writer is another one, its
lease is taken away first, and what it has written behind the parts that are wanted is left out. Folders that only hold
checkpoints, state and the like go when they are empty.

Each request has a limit in time. One that was not answered, or could not be served for now (the NameNode starts, or is
in safe mode), is made again after a pause; a definite no is not.
"""

from __future__ import annotations

import os
import posixpath
import queue
import random
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from hdfs_native import FileStatus, WriteOptions
from hdfs_native._internal import RawClient
from typing_extensions import override

from firesteel.checkpoint.object_store import (
    PROBE,
    BeyondEndError,
    Listed,
    NoSuchObjectError,
    NoSuchUploadError,
    ObjectExistsError,
    ObjectStore,
    StoreAwayError,
    StoreRefusedError,
    StoreUnknownError,
)
from firesteel.checkpoint.places import HDFS, ObjectPlace
from firesteel.config import Settings, options
from firesteel.config.kerberos import login_keytab
from firesteel.core.clock import Clock, SystemClock
from firesteel.core.errors import CheckpointStorageError, ConfigurationError

if TYPE_CHECKING:
    from hdfs_native._internal import RawFileWriter

T = TypeVar("T")

_CLOCK: Final = SystemClock()
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 3.0
_FEW_SECONDS: Final = 5.0
"""For which something is tried that is only looked at."""
_LEASE_PAUSE: Final = 0.2
_COPIED: Final = 4 << 20
_MOST_THREADS: Final = 64
_IMPATIENT: Final = {
    "dfs.client.failover.max.attempts": "3",
    "dfs.client.failover.sleep.base.millis": "50",
    "dfs.client.failover.sleep.max.millis": "200",
}
"""How often the client itself asks the NameNodes again: whoever calls it does that."""
_HIDDEN: Final = re.compile(r"\.(.+)\.([0-9a-f]{32})\.(put|upload)")
_OURS: Final = re.compile(
    r"chk-\d+|shared|taskowned|savepoint-[0-9a-f]{6}-[0-9a-f]+|_inprogress|[0-9a-f]{16}|[0-9a-f]{32}([-_.].*)?"
)
"""Folders that nobody has made by hand."""
_CHECKPOINT: Final = re.compile(r"chk-\d+")
_JAVA: Final = re.compile(r'(?:\w+\()?"?(?:([\w.$]+(?:Exception|Error))", ")?(.*)', re.DOTALL)
_PASSING: Final = (
    "SafeModeException", "StandbyException", "RetriableException", "ConnectException", "NotReplicatedYetException",
    "ObserverRetryOnActiveException", "could only be written to", "could only be replicated to", "All nodes failed",
    "DataTransferError", "NoNamespaceException", "Unable to close file", "Lease recovery is in progress",
)  # fmt: skip
_DEFINITE: Final = (
    "AccessControlException", "ParentNotDirectoryException", "QuotaExceededException", "InvalidPathException",
    "AuthorizationException", "InvalidToken", "SaslException", "SASL", "Kerberos", "GSSAPI", "UnsupportedOperation",
)  # fmt: skip
_AWAY: Final = ("Connection refused", "IOError", "connection", "timed out", "NoRouteToHost", "lookup", "Os {")


class _Ticket:
    """A call that somebody waits for, and may give up."""

    def __init__(self) -> None:
        self.given_up = False
        self.done = threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None

    def go_on(self) -> None:
        """Between two steps.

        Raises:
            TimeoutError: nobody waits any more.
        """
        if self.given_up:
            raise TimeoutError


class _Threads:
    """Threads for calls, which hang as long as a server does. Each is used again; so many at once, and no more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of = 0
        self._idle: list[queue.SimpleQueue[Callable[[], None]]] = []
        self._count = 0

    def run(self, call: Callable[[_Ticket], T], seconds: float) -> T:
        """What the call gives.

        Raises:
            TimeoutError: it has not ended in time; it may go on. Or too many hang already.
        """
        ticket = _Ticket()

        def carry_out() -> None:
            try:
                ticket.result = call(ticket)
            except BaseException as error:  # raised where it is waited for
                ticket.error = error
            ticket.done.set()

        self._thread().put(carry_out)
        if not ticket.done.wait(seconds):
            ticket.given_up = True
            raise TimeoutError
        if ticket.error is not None:
            try:
                raise ticket.error
            finally:
                ticket.error = None
        return ticket.result  # type: ignore[no-any-return]

    def _thread(self) -> queue.SimpleQueue[Callable[[], None]]:
        with self._lock:
            if self._of != os.getpid():  # threads are not forked
                self._of, self._idle, self._count = os.getpid(), [], 0
            if self._idle:
                return self._idle.pop()
            if self._count >= _MOST_THREADS:
                raise TimeoutError
            self._count += 1
        own: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._work, args=(own,), name="firesteel-hdfs", daemon=True).start()
        return own

    def _work(self, own: queue.SimpleQueue[Callable[[], None]]) -> None:
        while True:
            own.get()()
            with self._lock:
                self._idle.append(own)


_THREADS: Final = _Threads()


@dataclass
class _Stream:
    """An upload that this process writes."""

    path: str
    writer: RawFileWriter
    written: int = 0
    next_part: int = 1
    failed: bool = False
    turn: threading.Condition = field(default_factory=threading.Condition)


class HdfsClient(ObjectStore):
    """HDFS, with the rights of one user; see the module and ``ObjectStore``.

    Who that is: the user of ``security.kerberos.login.*``, else of the delegation tokens in the file that
    ``HADOOP_TOKEN_FILE_LOCATION`` names, which is read again when it has changed, else of the ticket cache; without
    Kerberos ``HADOOP_USER_NAME``, or the process's own.

    Args:
        settings: ``firesteel.hdfs.*``, ``security.kerberos.*`` and ``env.hadoop.conf.dir`` of the job.
        clock: tells how long a request has been tried.
        pause: waits so many seconds between two attempts.

    Raises:
        ConfigurationError: the settings are wrong, which shows without I/O.
    """

    scheme = HDFS
    endpoint = "HDFS"

    def __init__(self, settings: Settings, clock: Clock = _CLOCK, pause: Callable[[float], None] = time.sleep) -> None:
        self.clock, self._pause = clock, pause
        self._timeout = settings.get(options.HDFS_REQUEST_TIMEOUT).total_seconds()
        self._patience = settings.get(options.HDFS_RETRY_TIMEOUT).total_seconds()
        self.part_size, self.concurrent = settings.get(options.HDFS_PART_SIZE), 2
        self._conf = settings.get(options.HADOOP_CONF_DIR)
        self._keytab = login_keytab(settings)
        self._principal = settings.get(options.KERBEROS_PRINCIPAL)
        self._krb5_conf = settings.get(options.KRB5_CONF)
        self._cache = None
        if self._keytab is None and not settings.get(options.KERBEROS_TICKET_CACHE):
            self._cache = f"FILE:{os.devnull}"
        if (self._keytab is None) != (self._principal is None):
            one, other = options.KERBEROS_KEYTAB.key, options.KERBEROS_PRINCIPAL.key
            raise ConfigurationError(
                f"{other if self._keytab else one} is missing: {one} and {other} are set both, or none of them"
            )
        self._making = threading.Lock()
        self._clients: dict[str, tuple[tuple[int, float], RawClient]] = {}
        self._streams: dict[str, _Stream] = {}

    def __repr__(self) -> str:
        return "HdfsClient()"

    @override
    def check(self, place: ObjectPlace) -> None:
        probe = place / f"{PROBE}{uuid.uuid4().hex}"
        self._put(probe, b"", new=False, what=f"nothing can be written to {place}", patience=_FEW_SECONDS)
        self.delete(place.bucket, [probe.key])

    # -- objects

    @override
    def put(self, place: ObjectPlace, data: bytes, *, new: bool = False) -> None:
        self._put(place, data, new=new, what=f"{place} can't be written")

    def _put(self, place: ObjectPlace, data: bytes, *, new: bool, what: str, patience: float | None = None) -> None:
        def ask(client: RawClient, call: _Ticket) -> None:
            if new and _status(client, _path(place)) is not None:
                raise ObjectExistsError
            part = _hidden(place, "put")
            try:
                _write(client, part, data)
                call.go_on()
                try:
                    client.rename(part, _path(place), not new)
                except FileExistsError:
                    raise ObjectExistsError from None
            except BaseException:
                with suppress(Exception):
                    client.delete(part, False)
                raise

        try:
            self._call(what, ask, place, patience=patience)
        except NoSuchObjectError:  # somebody has removed the hidden file with its folder
            raise CheckpointStorageError(f"{what}: its folder was removed meanwhile") from None

    @override
    def get(self, place: ObjectPlace, start: int = 0, length: int | None = None) -> tuple[bytes, int]:
        def ask(client: RawClient, call: _Ticket) -> tuple[bytes, int]:
            reader = client.read(_path(place))
            whole = reader.file_length()
            if start and start >= whole:
                raise BeyondEndError
            wanted = whole - start if length is None else min(length, whole - start)
            return (bytes(reader.read_range(start, wanted)) if wanted else b""), whole

        return self._call(f"{place} can't be read", ask, place)

    @override
    def size(self, place: ObjectPlace) -> int | None:
        def ask(client: RawClient, call: _Ticket) -> int | None:
            found = _status(client, _path(place))
            return None if found is None or found.isdir else found.length

        return self._call(f"{place} can't be looked at", ask, place)

    def find(self, place: ObjectPlace, delimiter: str = "", after: str = "") -> Iterator[Listed]:
        """See ``ObjectStore``; a folder is listed at once."""
        for one in self._find(place, deep=not delimiter):
            if one.key > after and _HIDDEN.fullmatch(posixpath.basename(one.key)) is None:
                yield one

    def _find(self, place: ObjectPlace, *, deep: bool) -> Iterator[Listed]:
        """What is there, hidden files too."""
        folder, _, begin = place.key.rpartition("/")
        for one in self._list(place.at(folder)):
            name = posixpath.basename(one.path.rstrip("/"))
            key = f"{folder}/{name}" if folder else name
            if not name.startswith(begin):
                continue
            if not one.isdir:
                yield Listed(key, one.length)
            elif deep:
                yield from self._find(place.at(f"{key}/"), deep=True)
            else:
                yield Listed(f"{key}/", 0)

    def _list(self, folder: ObjectPlace) -> list[FileStatus]:
        def ask(client: RawClient, call: _Ticket) -> list[FileStatus]:
            found = _status(client, _path(folder))
            if found is None or not found.isdir:
                return []
            try:
                listed = list(client.list_status(_path(folder), False))
            except FileNotFoundError:
                return []
            return sorted(listed, key=lambda one: one.path + "/" * one.isdir)

        return self._call(f"{folder} can't be listed", ask, folder)

    def delete(self, bucket: str, keys: Collection[str]) -> None:
        """See ``ObjectStore``; folders of ours that are empty then go, too."""
        ordered = sorted(keys)
        if not ordered:
            return
        first = ObjectPlace(bucket, ordered[0], HDFS)
        what = f"{first} can't be removed" if len(ordered) == 1 else f"{first} and others can't be removed"

        def remove(client: RawClient, path: str) -> None:
            found = _status(client, path)
            if found is not None and not found.isdir:
                client.delete(path, False)

        for key in ordered:
            path = _path(first.at(key))
            self._call(what, lambda client, _, path=path: remove(client, path), first)  # type: ignore[misc]
        self._prune(first, {posixpath.dirname(_path(first.at(key))) for key in ordered})

    def _prune(self, place: ObjectPlace, folders: Collection[str]) -> None:
        """Remove folders that are empty, as far as they are ours; what can't be removed does no harm."""

        def climb(client: RawClient, folder: str) -> None:
            while _OURS.fullmatch(posixpath.basename(folder)):
                # What is being written for a checkpoint that has nothing else any more was given up.
                of_checkpoint = _CHECKPOINT.fullmatch(posixpath.basename(folder)) is not None
                alone = of_checkpoint and all(map(_is_hidden, client.list_status(folder, False)))
                client.delete(folder, alone)  # else it is not done where something is in it
                folder = posixpath.dirname(folder)

        for folder in sorted(folders, reverse=True):
            with suppress(Exception):
                _THREADS.run(lambda _, folder=folder: climb(self._client(place.bucket), folder), self._timeout)  # type: ignore[misc]

    # -- uploads in parts

    def begin_upload(self, place: ObjectPlace) -> tuple[str, bool]:
        """See ``ObjectStore``; no other one can have been begun: each has a name of its own."""
        path = _hidden(place, "upload")

        def ask(client: RawClient, call: _Ticket) -> RawFileWriter:
            return client.create(path, WriteOptions(create_parent=True, overwrite=True))

        writer = self._call(f"{place} can't be written", ask, place)
        upload = path.rpartition("/")[2]
        self._streams[upload] = _Stream(path, writer)
        return upload, True

    def upload_part(self, place: ObjectPlace, upload: str, number: int, data: bytes) -> str:
        """See ``ObjectStore``; the tag is where the part ends. Parts wait for those before them."""
        stream = self._streams.get(upload)
        if stream is None:
            raise NoSuchUploadError
        with stream.turn:
            stream.turn.wait_for(lambda: stream.failed or stream.next_part == number)
            if stream.failed:
                raise CheckpointStorageError(f"part {number} of {place} can't be written: one before it could not be")
            try:

                def ask(client: RawClient, call: _Ticket) -> None:
                    stream.writer.write(data)
                    stream.writer.hsync()

                # What was written of it nobody knows: it is not tried again.
                self._call(f"part {number} of {place} can't be written", ask, place, patience=0.0)
                stream.written += len(data)
                stream.next_part += 1
                return str(stream.written)
            except NoSuchObjectError:
                stream.failed = True
                raise NoSuchUploadError from None
            except BaseException:
                stream.failed = True
                raise
            finally:
                stream.turn.notify_all()

    @override
    def complete_upload(self, place: ObjectPlace, upload: str, tags: Sequence[str]) -> None:
        path = posixpath.join(posixpath.dirname(_path(place)), upload)
        size = int(tags[-1]) if tags else 0
        stream = self._streams.pop(upload, None)

        def ask(client: RawClient, call: _Ticket) -> None:
            nonlocal stream
            closing, stream = stream, None
            if closing is not None:
                with suppress(Exception):  # what has a tag is synced: then it is closed as that of somebody else
                    closing.writer.close()
            try:
                while not client.recover_lease(path):
                    time.sleep(_LEASE_PAUSE)
                    call.go_on()
            except FileNotFoundError:
                raise NoSuchUploadError from None
            found = _status(client, path)
            if found is None:
                raise NoSuchUploadError
            if found.length < size:
                raise CheckpointStorageError(f"{place}: {found.length} bytes of the upload are there of {size}")
            source = path
            if found.length > size:
                source = _hidden(place, "put")
                _copy(client, path, source, size)
            call.go_on()
            try:
                client.rename(source, _path(place), True)
            except FileNotFoundError:
                raise NoSuchUploadError from None
            if source != path:
                client.delete(path, False)

        self._call(f"{place} can't be written", ask, place)

    @override
    def abort_uploads(self, place: ObjectPlace) -> None:
        for key, upload in self.uploads(place):
            if key == place.key:
                self.abort_upload(place, upload)

    @override
    def abort_upload(self, place: ObjectPlace, upload: str) -> None:
        self._streams.pop(upload, None)  # not closed: its file goes, and its lease with it
        path = posixpath.join(posixpath.dirname(_path(place)), upload)

        def ask(client: RawClient, call: _Ticket) -> None:
            client.delete(path, False)

        with suppress(NoSuchObjectError):
            self._call(f"the parts of {place} can't be removed", ask, place)
        self._prune(place, [posixpath.dirname(path)])

    def uploads(self, place: ObjectPlace) -> list[tuple[str, str]]:
        """See ``ObjectStore``; with hidden files of writers that were killed."""
        folder, _, begin = place.key.rpartition("/")
        found = []
        for one in self._find(place.at(f"{folder}/" if folder else ""), deep=not begin):
            above, _, name = one.key.rpartition("/")
            hidden = _HIDDEN.fullmatch(name)
            if hidden is not None and (above != folder or hidden[1].startswith(begin)):
                found.append((f"{above}/{hidden[1]}" if above else hidden[1], name))
        return found

    # -- the way there

    def _client(self, authority: str) -> RawClient:
        """Made anew when the file of tokens has changed, and in a process that was forked."""
        stamp = os.getpid(), 0.0
        with suppress(OSError, KeyError):
            stamp = os.getpid(), os.stat(os.environ["HADOOP_TOKEN_FILE_LOCATION"]).st_mtime
        with self._making:
            known = self._clients.get(authority)
            if known is None or known[0] != stamp:
                if self._krb5_conf is not None:
                    os.environ["KRB5_CONFIG"] = self._krb5_conf
                made = RawClient(
                    f"{HDFS}://{authority}" if authority else None, dict(_IMPATIENT), self._conf,
                    self._principal, self._keytab, self._cache,
                )  # fmt: skip
                known = self._clients[authority] = stamp, made
            return known[1]

    def _call(
        self,
        what: str,
        ask: Callable[[RawClient, _Ticket], T],
        place: ObjectPlace,
        *,
        patience: float | None = None,
    ) -> T:
        began = self.clock.monotonic()
        limit = self._patience if patience is None else patience
        attempt = 1

        def bounded(call: _Ticket) -> T:
            return ask(self._client(place.bucket), call)

        while True:
            try:
                return _THREADS.run(bounded, self._timeout)
            except (NoSuchObjectError, ObjectExistsError, NoSuchUploadError, BeyondEndError):
                raise
            except FileNotFoundError:
                raise NoSuchObjectError from None
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # a panic of the client is no Exception
                if isinstance(error, CheckpointStorageError):
                    raise
                kind, reason, passing = self._told(error, place)
                pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (attempt - 1)) * random.uniform(0.5, 1.0)
                if not passing or self.clock.monotonic() + pause - began > limit:
                    if attempt > 1:
                        reason += f" ({attempt} attempts in {self.clock.monotonic() - began:.1f} s)"
                    raise kind(f"{what}: {reason}") from None
                self._pause(pause)
                attempt += 1

    def _told(self, error: BaseException, place: ObjectPlace) -> tuple[type[CheckpointStorageError], str, bool]:
        """Which error it is to callers, in our words, and whether another attempt may succeed."""
        where = f"HDFS at {place.bucket}" if place.bucket else "HDFS"
        host = socket.gethostname()
        if isinstance(error, TimeoutError):
            return StoreAwayError, f"{where} has not answered within {self._timeout:g} s (asked from {host})", True
        text = str(error)
        words = _JAVA.match(text)
        java, said = (words[1] or "", words[2]) if words is not None else ("", text)
        said = said.replace("\\n", "\n").replace("\\'", "'").partition("\n")[0].rstrip('")') or type(error).__name__
        name = java.rpartition(".")[2]
        if isinstance(error, PermissionError) or name == "AccessControlException":
            return StoreRefusedError, f"{where} refuses it: {said}. Give the user the right, or use another path", False
        if "No NameNode hosts found" in text or "No fs.defaultFS" in text:
            reason = f"the configuration of Hadoop on {host} does not say where it is ({said})"
            known = "set env.hadoop.conf.dir or HADOOP_CONF_DIR, or name host and port: hdfs://namenode:8020/path"
            return StoreUnknownError, f"{where}: {reason}; {known}", False
        if "could only be written to" in text or "could only be replicated to" in text:
            return CheckpointStorageError, f"no DataNode of {where} takes it: they are full, or away ({said})", True
        if "QuotaExceeded" in text:
            return CheckpointStorageError, f"a quota of {where} is used up: {said}", False
        if "SafeMode" in text:
            return StoreAwayError, f"{where} is in safe mode: {said}", True
        if any(word in text for word in _PASSING):
            return StoreAwayError, f"{where} has trouble: {said}", True
        if any(word in text for word in _DEFINITE):
            return StoreRefusedError, f"{where} refuses it: {name and f'{name}: '}{said}", False
        if isinstance(error, OSError) or any(word in text for word in _AWAY):
            return StoreAwayError, f"{where} can't be reached: {said} (asked from {host})", True
        return CheckpointStorageError, f"{where} says {name and f'{name}: '}{said}", False


def _path(place: ObjectPlace) -> str:
    return f"/{place.key}".rstrip("/") or "/"


def _hidden(place: ObjectPlace, kind: str) -> str:
    folder, name = posixpath.split(_path(place))
    return posixpath.join(folder, f".{name}.{uuid.uuid4().hex}.{kind}")


def _is_hidden(found: FileStatus) -> bool:
    return not found.isdir and _HIDDEN.fullmatch(posixpath.basename(found.path)) is not None


def _status(client: RawClient, path: str) -> FileStatus | None:
    try:
        return client.get_file_info(path)
    except FileNotFoundError:
        return None


def _write(client: RawClient, path: str, data: bytes) -> None:
    writer = client.create(path, WriteOptions(create_parent=True, overwrite=True))
    if data:
        writer.write(data)
        writer.hsync()
    writer.close()


def _copy(client: RawClient, source: str, target: str, size: int) -> None:
    """The first bytes of a file."""
    reader = client.read(source)
    writer = client.create(target, WriteOptions(create_parent=True, overwrite=True))
    for start in range(0, size, _COPIED):
        writer.write(reader.read_range(start, min(_COPIED, size - start)))
    writer.hsync()
    writer.close()
