"""HDFS as an object store, through the client ``hdfs-native``: Hadoop's own protocol, without a JVM.

A folder of HDFS is a part of a key. Content is written to a hidden file in the same folder, which is renamed when it is
complete and synced. So no reader sees half an object, and of several writers the last one wins::

    <folder>/<name>                     an object
    <folder>/.<name>.<unique>.put       an object that is being written
    <folder>/.<name>.<unique>.upload    an upload in parts, which are appended in their order and synced one by one

The process that has begun an upload writes it. Any process may complete it: if that is not the writer, it takes the
lease away first, and leaves out what is written behind the parts that it completes. Folders that only Firesteel makes
(checkpoints, state) are removed when they are empty.

Each request has a time-out. A request without an answer, or one that can't be served now (the NameNode starts, or is in
safe mode), is repeated after a pause; a definite refusal is not.
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
from firesteel.config.derived import login_keytab
from firesteel.core.clock import Clock, SystemClock
from firesteel.core.errors import CheckpointStorageError, ConfigurationError

if TYPE_CHECKING:
    from hdfs_native._internal import RawFileWriter

T = TypeVar("T")

_CLOCK: Final = SystemClock()
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 3.0
_FEW_SECONDS: Final = 5.0
"""Time for which a check is repeated, whose user waits for the answer."""
_LEASE_PAUSE: Final = 0.2
_COPIED: Final = 4 << 20
"""Bytes that are copied at once."""
_MOST_THREADS: Final = 64
"""Threads of a process; when all of them hang, further requests fail at once."""
_FEW_RETRIES: Final = {
    "dfs.client.failover.max.attempts": "3",
    "dfs.client.failover.sleep.base.millis": "50",
    "dfs.client.failover.sleep.max.millis": "200",
}
"""Few retries of hdfs-native itself, because ``_call`` repeats requests."""
_HIDDEN: Final = re.compile(r"\.(.+)\.([0-9a-f]{32})\.(put|upload)")
_OWN_FOLDERS: Final = re.compile(
    r"chk-\d+|shared|taskowned|savepoint-[0-9a-f]{6}-[0-9a-f]+|_inprogress|[0-9a-f]{16}|[0-9a-f]{32}([-_.].*)?"
)
"""Names of folders that only Firesteel makes."""
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


class _Call:
    """A call that a caller waits for, until its time-out."""

    def __init__(self) -> None:
        self.given_up = False
        self.done = threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None

    def go_on(self) -> None:
        """Called between two steps of the call.

        Raises:
            TimeoutError: the caller has given up, so the next step must not be done.
        """
        if self.given_up:
            raise TimeoutError


class _CallThreads:
    """Threads for calls that can hang as long as a server does. Threads are reused, and their number is bounded."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process_id = 0
        self._idle: list[queue.SimpleQueue[Callable[[], None]]] = []
        self._count = 0

    def run(self, call: Callable[[_Call], T], seconds: float) -> T:
        """Make a call on another thread, and return its result.

        Raises:
            TimeoutError: the call has not ended in time, and may still run; or too many calls hang already.
        """
        waiting = _Call()

        def carry_out() -> None:
            try:
                waiting.result = call(waiting)
            except BaseException as error:  # the waiting caller raises it
                waiting.error = error
            waiting.done.set()

        self._idle_thread().put(carry_out)
        if not waiting.done.wait(seconds):
            waiting.given_up = True
            raise TimeoutError
        if waiting.error is not None:
            try:
                raise waiting.error
            finally:
                waiting.error = None  # its traceback refers to this frame
        return waiting.result  # type: ignore[no-any-return]

    def _idle_thread(self) -> queue.SimpleQueue[Callable[[], None]]:
        with self._lock:
            if self._process_id != os.getpid():  # a forked process has none of the threads of its parent
                self._process_id, self._idle, self._count = os.getpid(), [], 0
            if self._idle:
                return self._idle.pop()
            if self._count >= _MOST_THREADS:
                raise TimeoutError
            self._count += 1
        calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        try:
            threading.Thread(target=self._work, args=(calls,), name="firesteel-hdfs", daemon=True).start()
        except BaseException:  # the process may have no more threads; it is not one that hangs
            with self._lock:
                self._count -= 1
            raise
        return calls

    def _work(self, calls: queue.SimpleQueue[Callable[[], None]]) -> None:
        while True:
            calls.get()()
            with self._lock:
                self._idle.append(calls)


_CALL_THREADS: Final = _CallThreads()


@dataclass
class _Stream:
    """An upload that this process writes. ``turn`` lets parts wait for those before them."""

    path: str
    writer: RawFileWriter
    written: int = 0
    next_part: int = 1
    failed: bool = False
    turn: threading.Condition = field(default_factory=threading.Condition)


class HdfsClient(ObjectStore):
    """An ``ObjectStore`` on HDFS, with the rights of one user.

    The user is that of ``security.kerberos.login.*``; else that of the delegation tokens in the file that
    ``HADOOP_TOKEN_FILE_LOCATION`` names, which is read again when it has changed; else that of the ticket cache.
    Without Kerberos it is ``HADOOP_USER_NAME``, or the user of the process.

    Args:
        settings: ``firesteel.hdfs.*``, ``security.kerberos.*`` and ``env.hadoop.conf.dir`` of the job.
        clock: measures how long a request has been repeated.
        pause: waits so many seconds between two attempts.

    Raises:
        ConfigurationError: a setting is wrong; that is found without I/O.
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
            keytab, principal = options.KERBEROS_KEYTAB.key, options.KERBEROS_PRINCIPAL.key
            raise ConfigurationError(
                f"{principal if self._keytab else keytab} is missing: set both {keytab} and {principal}, or none of "
                "them"
            )
        self._connecting = threading.Lock()
        self._clients: dict[str, tuple[tuple[int, float], RawClient]] = {}
        """Authority of a URL -> process and age of the tokens that its client was made with, and the client."""
        self._streams: dict[str, _Stream] = {}
        """Uploads of this process, by their ids."""

    def __repr__(self) -> str:
        return "HdfsClient()"

    @override
    def check(self, place: ObjectPlace) -> None:
        probe = place / f"{PROBE}{uuid.uuid4().hex}"
        self._put(probe, b"", new=False, failure=f"nothing can be written to {place}", patience=_FEW_SECONDS)
        self.delete(place.bucket, [probe.key])

    # -- objects

    @override
    def put(self, place: ObjectPlace, data: bytes, *, new: bool = False) -> None:
        self._put(place, data, new=new, failure=f"{place} can't be written")

    def _put(self, place: ObjectPlace, data: bytes, *, new: bool, failure: str, patience: float | None = None) -> None:
        def ask(client: RawClient, call: _Call) -> None:
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
            self._call(failure, ask, place, patience=patience)
        except NoSuchObjectError:  # another process has removed the folder with the hidden file
            raise CheckpointStorageError(f"{failure}: its folder was removed meanwhile") from None

    @override
    def get(self, place: ObjectPlace, start: int = 0, length: int | None = None) -> tuple[bytes, int]:
        def ask(client: RawClient, call: _Call) -> tuple[bytes, int]:
            reader = client.read(_path(place))
            total = reader.file_length()
            if start and start >= total:
                raise BeyondEndError
            size = total - start if length is None else min(length, total - start)
            return (bytes(reader.read_range(start, size)) if size else b""), total

        return self._call(f"{place} can't be read", ask, place)

    @override
    def size(self, place: ObjectPlace) -> int | None:
        def ask(client: RawClient, call: _Call) -> int | None:
            status = _status(client, _path(place))
            return None if status is None or status.isdir else status.length

        return self._call(f"{place} can't be looked at", ask, place)

    @override
    def find(self, place: ObjectPlace, delimiter: str = "", after: str = "") -> Iterator[Listed]:
        for entry in self._find(place, deep=not delimiter):
            if entry.key > after and _HIDDEN.fullmatch(posixpath.basename(entry.key)) is None:
                yield entry

    def _find(self, place: ObjectPlace, *, deep: bool) -> Iterator[Listed]:
        """Entries whose keys begin with that of the place, also hidden files; each folder is listed at once."""
        folder, _, prefix = place.key.rpartition("/")
        for status in self._list(place.at(folder)):
            name = posixpath.basename(status.path.rstrip("/"))
            key = f"{folder}/{name}" if folder else name
            if not name.startswith(prefix):
                continue
            if not status.isdir:
                yield Listed(key, status.length)
            elif deep:
                yield from self._find(place.at(f"{key}/"), deep=True)
            else:
                yield Listed(f"{key}/", 0)

    def _list(self, folder: ObjectPlace) -> list[FileStatus]:
        def ask(client: RawClient, call: _Call) -> list[FileStatus]:
            status = _status(client, _path(folder))
            if status is None or not status.isdir:
                return []
            try:
                listed = list(client.list_status(_path(folder), False))
            except FileNotFoundError:
                return []
            return sorted(listed, key=lambda entry: entry.path + "/" * entry.isdir)

        return self._call(f"{folder} can't be listed", ask, folder)

    @override
    def delete(self, bucket: str, keys: Collection[str]) -> None:
        ordered = sorted(keys)
        if not ordered:
            return
        first = ObjectPlace(bucket, ordered[0], HDFS)
        failure = f"{first} can't be removed" if len(ordered) == 1 else f"{first} and others can't be removed"

        def remove(client: RawClient, path: str) -> None:
            status = _status(client, path)
            if status is not None and not status.isdir:
                client.delete(path, False)

        for key in ordered:
            path = _path(first.at(key))
            self._call(failure, lambda client, _, path=path: remove(client, path), first)  # type: ignore[misc]
        self._prune(first, {posixpath.dirname(_path(first.at(key))) for key in ordered})

    def _prune(self, place: ObjectPlace, folders: Collection[str]) -> None:
        """Remove empty folders that only Firesteel makes. A folder that can't be removed does no harm."""

        def climb(client: RawClient, folder: str) -> None:
            while _OWN_FOLDERS.fullmatch(posixpath.basename(folder)):
                # The files of this checkpoint are removed, so what is still being written for it was given up.
                of_checkpoint = _CHECKPOINT.fullmatch(posixpath.basename(folder)) is not None
                alone = of_checkpoint and all(map(_is_hidden, client.list_status(folder, False)))
                client.delete(folder, alone)  # raises if the folder is not empty, unless `alone`
                folder = posixpath.dirname(folder)

        for folder in sorted(folders, reverse=True):
            with suppress(Exception):
                _CALL_THREADS.run(lambda _, folder=folder: climb(self._client(place.bucket), folder), self._timeout)  # type: ignore[misc]

    # -- uploads in parts

    @override
    def begin_upload(self, place: ObjectPlace) -> tuple[str, bool]:
        path = _hidden(place, "upload")

        def ask(client: RawClient, call: _Call) -> RawFileWriter:
            return client.create(path, WriteOptions(create_parent=True, overwrite=True))

        writer = self._call(f"{place} can't be written", ask, place)
        upload = path.rpartition("/")[2]
        self._streams[upload] = _Stream(path, writer)
        return upload, True  # a repeated request overwrites the same file, so this call has begun no other upload

    @override
    def upload_part(self, place: ObjectPlace, upload: str, number: int, data: bytes) -> str:
        stream = self._streams.get(upload)
        if stream is None:
            raise NoSuchUploadError
        # Parts are appended in their order, and the tag of a part is the position of its end.
        with stream.turn:
            stream.turn.wait_for(lambda: stream.failed or stream.next_part == number)
            if stream.failed:
                raise CheckpointStorageError(
                    f"part {number} of {place} can't be written, because an earlier part could not be"
                )
            try:

                def ask(client: RawClient, call: _Call) -> None:
                    stream.writer.write(data)
                    stream.writer.hsync()

                # Not repeated: after an error nobody knows how much of the part was written.
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

        def ask(client: RawClient, call: _Call) -> None:
            nonlocal stream
            closing, stream = stream, None
            if closing is not None:
                # Parts with a tag are synced. If closing fails, the lease is taken away as from another process.
                with suppress(Exception):
                    closing.writer.close()
            try:
                while not client.recover_lease(path):
                    time.sleep(_LEASE_PAUSE)
                    call.go_on()
            except FileNotFoundError:
                raise NoSuchUploadError from None
            status = _status(client, path)
            if status is None:
                raise NoSuchUploadError
            if status.length < size:
                raise CheckpointStorageError(f"{place}: the upload has {status.length} of {size} bytes")
            source = path
            if status.length > size:  # the writer has gone on behind the parts that are completed
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
        self._streams.pop(upload, None)  # not closed: the file is removed, and its lease with it
        path = posixpath.join(posixpath.dirname(_path(place)), upload)

        def ask(client: RawClient, call: _Call) -> None:
            client.delete(path, False)

        with suppress(NoSuchObjectError):
            self._call(f"the parts of {place} can't be removed", ask, place)
        self._prune(place, [posixpath.dirname(path)])

    @override
    def uploads(self, place: ObjectPlace) -> list[tuple[str, str]]:
        # Hidden files of `put` are among them, which are left where their writer was killed.
        folder, _, prefix = place.key.rpartition("/")
        uploads = []
        for entry in self._find(place.at(f"{folder}/" if folder else ""), deep=not prefix):
            parent, _, name = entry.key.rpartition("/")
            hidden = _HIDDEN.fullmatch(name)
            if hidden is not None and (parent != folder or hidden[1].startswith(prefix)):
                uploads.append((f"{parent}/{hidden[1]}" if parent else hidden[1], name))
        return uploads

    # -- requests

    def _client(self, authority: str) -> RawClient:
        """The client of a NameNode or name service; another one when the tokens have changed, and after a fork."""
        stamp = os.getpid(), 0.0
        with suppress(OSError, KeyError):
            stamp = os.getpid(), os.stat(os.environ["HADOOP_TOKEN_FILE_LOCATION"]).st_mtime
        with self._connecting:
            entry = self._clients.get(authority)
            if entry is None or entry[0] != stamp:
                if self._krb5_conf is not None:
                    os.environ["KRB5_CONFIG"] = self._krb5_conf
                client = RawClient(
                    f"{HDFS}://{authority}" if authority else None, dict(_FEW_RETRIES), self._conf,
                    self._principal, self._keytab, self._cache,
                )  # fmt: skip
                entry = self._clients[authority] = stamp, client
            return entry[1]

    def _call(
        self,
        failure: str,
        ask: Callable[[RawClient, _Call], T],
        place: ObjectPlace,
        *,
        patience: float | None = None,
    ) -> T:
        """Make a request, and repeat it while its error may pass.

        Args:
            failure: what has not worked if the request fails; begins the message.
            ask: makes the request.
            place: what the request is about.
            patience: seconds for which the request is repeated; None = as the options say.
        """
        began = self.clock.monotonic()
        limit = self._patience if patience is None else patience
        attempt = 1

        def bounded(call: _Call) -> T:
            return ask(self._client(place.bucket), call)

        while True:
            try:
                return _CALL_THREADS.run(bounded, self._timeout)
            except (NoSuchObjectError, ObjectExistsError, NoSuchUploadError, BeyondEndError):
                raise
            except FileNotFoundError:
                raise NoSuchObjectError from None
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # a panic of hdfs-native is no Exception
                if isinstance(error, CheckpointStorageError):
                    raise
                kind, reason, may_pass = self._classified(error, place)
                pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (attempt - 1)) * random.uniform(0.5, 1.0)
                if not may_pass or self.clock.monotonic() + pause - began > limit:
                    if attempt > 1:
                        reason += f" ({attempt} attempts in {self.clock.monotonic() - began:.1f} s)"
                    raise kind(f"{failure}: {reason}") from None
                self._pause(pause)
                attempt += 1

    def _classified(self, error: BaseException, place: ObjectPlace) -> tuple[type[CheckpointStorageError], str, bool]:
        """The error that callers get, its reason for people, and whether another attempt may succeed."""
        store = f"HDFS at {place.bucket}" if place.bucket else "HDFS"
        host = socket.gethostname()
        if isinstance(error, TimeoutError):
            return StoreAwayError, f"{store} has not answered within {self._timeout:g} s (asked from {host})", True
        text = str(error)
        parsed = _JAVA.match(text)
        java_class, detail = (parsed[1] or "", parsed[2]) if parsed is not None else ("", text)
        detail = detail.replace("\\n", "\n").replace("\\'", "'").partition("\n")[0].rstrip('")') or type(error).__name__
        name = java_class.rpartition(".")[2]
        if isinstance(error, PermissionError) or name == "AccessControlException":
            reason = f"{store} refuses it: {detail}. Give the user the right, or use another path"
            return StoreRefusedError, reason, False
        if "No NameNode hosts found" in text or "No fs.defaultFS" in text:
            reason = f"the configuration of Hadoop on {host} does not say where it is ({detail})"
            remedy = "set env.hadoop.conf.dir or HADOOP_CONF_DIR, or name host and port: hdfs://namenode:8020/path"
            return StoreUnknownError, f"{store}: {reason}; {remedy}", False
        if "could only be written to" in text or "could only be replicated to" in text:
            return CheckpointStorageError, f"no DataNode of {store} takes it: they are full, or away ({detail})", True
        if "QuotaExceeded" in text:
            return CheckpointStorageError, f"a quota of {store} is used up: {detail}", False
        if "SafeMode" in text:
            return StoreAwayError, f"{store} is in safe mode: {detail}", True
        if any(word in text for word in _PASSING):
            return StoreAwayError, f"{store} has trouble: {detail}", True
        if any(word in text for word in _DEFINITE):
            return StoreRefusedError, f"{store} refuses it: {name and f'{name}: '}{detail}", False
        if isinstance(error, OSError) or any(word in text for word in _AWAY):
            return StoreAwayError, f"{store} can't be reached: {detail} (asked from {host})", True
        return CheckpointStorageError, f"{store} says {name and f'{name}: '}{detail}", False


def _path(place: ObjectPlace) -> str:
    return f"/{place.key}".rstrip("/") or "/"


def _hidden(place: ObjectPlace, kind: str) -> str:
    folder, name = posixpath.split(_path(place))
    return posixpath.join(folder, f".{name}.{uuid.uuid4().hex}.{kind}")


def _is_hidden(status: FileStatus) -> bool:
    return not status.isdir and _HIDDEN.fullmatch(posixpath.basename(status.path)) is not None


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
    """Copy the first bytes of a file to another one."""
    reader = client.read(source)
    writer = client.create(target, WriteOptions(create_parent=True, overwrite=True))
    for start in range(0, size, _COPIED):
        writer.write(reader.read_range(start, min(_COPIED, size - start)))
    writer.hsync()
    writer.close()
