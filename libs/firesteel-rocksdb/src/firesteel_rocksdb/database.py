"""One database of an operator: how it is opened, read, scanned, linked for a snapshot, and given up.

Errors of RocksDB are bare exceptions whose text says what it was; here they become ``StateDatabaseError``, with the
operator and the directory. A scan that meets a corrupt block ends as if there were no more: so each asks how it ended.
"""

from __future__ import annotations

import ctypes
import os
import queue
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice
from typing import Any, Final

from rocksdict import (
    Checkpoint,
    IngestExternalFileOptions,
    Rdict,
    ReadOptions,
    SstFileWriter,
    WriteBatch,
    WriteOptions,
)

from firesteel.core.errors import StateDatabaseError
from firesteel_rocksdb.settings import Memory, RocksDBSettings, database_options

Pair = tuple[bytes, bytes | None]
"""A key and its value; None = it is removed."""
Entry = tuple[bytes, bytes]
"""A key and its value."""
_SCANNED: Final = 1024
"""Entries that are read at a time; no iterator is open between two such times."""
_MANY: Final = 4096
"""Keys that are looked up at a time."""
_INGESTED: Final = 1 << 18
"""Entries of a file that is made to be ingested."""
_WORTH_COMPACTING: Final = 256 << 10
"""Bytes of a database."""
_forked_behind = False
_opened = False


def _note_fork() -> None:
    global _forked_behind
    _forked_behind = _forked_behind or _opened


os.register_at_fork(after_in_child=_note_fork)


class RocksDatabase:
    """See the module.

    Args:
        directory: of the attempt; the database is a folder in it.
        operator: named in errors.
        settings: of the job.
        memory: that it shares with others.
        exists: files were put there: it must not be made anew.
        name: of its folder.
    """

    def __init__(
        self,
        directory: str,
        operator: str,
        settings: RocksDBSettings,
        memory: Memory,
        *,
        exists: bool = False,
        name: str = "db",
    ) -> None:
        global _opened
        if _forked_behind:
            raise StateDatabaseError(
                operator,
                directory,
                "this process was forked from one that had opened a RocksDB database, and RocksDB does not work in it",
            )
        self.directory, self.path, self.operator = directory, os.path.join(directory, name), operator
        options = self._options = database_options(settings, memory)
        options.create_if_missing(not exists)
        self._no_log = WriteOptions()
        self._no_log.disable_wal = True  # type: ignore[method-assign, assignment] # the stubs take it for a method
        with self.told():
            os.makedirs(directory, exist_ok=True)
            _opened = True
            # the options have to be said for the column family, too: else those of the last opening count
            self._db = Rdict(self.path, options=options, column_families={"default": options})
            self._db.set_write_options(self._no_log)

    @contextmanager
    def told(self) -> Iterator[None]:
        """Errors of RocksDB and of the disk in our words."""
        try:
            yield
        except StateDatabaseError:
            raise
        except Exception as error:
            raise StateDatabaseError(self.operator, self.directory, str(error)) from error

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, None if it has none."""
        try:
            found: bytes | None = self._db.get(key)
        except Exception as error:
            raise StateDatabaseError(self.operator, self.directory, str(error)) from error
        return found

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """The values of keys, which are best sorted; of each None if it has none."""
        found: list[bytes | None] = []
        with self.told():
            for start in range(0, len(keys), _MANY):
                some: Any = keys[start : start + _MANY]
                values: Any = self._db.get(some)
                found += values
        return found

    def write(self, pairs: Sequence[Pair]) -> int:
        """Write some values; sorted, which is faster. Returns their bytes, and those of their keys."""
        batch = WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        for key, value in sorted(pairs):
            if value is None:
                delete(key)
            else:
                put(key, value)
        size = batch.size_in_bytes()
        with self.told():
            self._db.write(batch, self._no_log)
        return size

    def ingest(self, entries: Iterable[Pair]) -> None:
        """Take over many entries, which come in the order of their keys, where the database has none: they are written
        once, into files of their own, which become the database's."""
        made: list[str] = []
        move = IngestExternalFileOptions()
        move.set_move_files(True)
        left = iter(entries)
        try:
            for first in left:
                made.append(os.path.join(self.directory, f"ingested-{len(made)}"))
                writer = SstFileWriter(self._options)
                with self.told():
                    writer.open(made[-1])
                    for key, value in chain((first,), islice(left, _INGESTED - 1)):
                        writer[key] = value
                    writer.finish()
            if made:
                with self.told():
                    self._db.ingest_external_file(made, move)
        finally:
            for path in made:
                with suppress(FileNotFoundError):
                    os.unlink(path)

    def delete_range(self, start: bytes, stop: bytes) -> None:
        """Forget all keys from one to before another."""
        with self.told():
            self._db.delete_range(start, stop, write_opt=self._no_log)

    def forget_ranges(self, ranges: Sequence[tuple[bytes, bytes]]) -> None:
        """The same of several, and the disk is free at once: files with nothing else go, those across a border are
        rewritten. A small database is left as it is: each compaction waits for a thread and for the disk.
        """
        for start, stop in ranges:
            self.delete_range(start, stop)
        with self.told():
            if sum(file["size"] for file in self._db.live_files()) < _WORTH_COMPACTING:
                return
            for start, stop in ranges:
                self._db.compact_range(start, stop)

    def read_to(self, start: bytes, stop: bytes, end: bytes, most: int = _SCANNED) -> tuple[list[Entry], bool]:
        """As ``read``, and whether nothing was left out: neither behind so many, nor between the stop and this end."""
        found: list[Entry] = []
        limits = ReadOptions()
        limits.set_iterate_upper_bound(end)
        with self.told():
            at = self._db.iter(limits)
            at.seek(start)
            while len(found) < most and at.valid():
                key = at.key()
                if key >= stop:
                    return found, False
                found.append((key, at.value()))
                at.next()
            at.status()
            return found, not at.valid()

    def read(self, start: bytes, stop: bytes, most: int = _SCANNED) -> list[Entry]:
        """Keys from one to before another with their values, so many at most."""
        return self.read_to(start, stop, stop, most)[0]

    def scan(self, start: bytes, stop: bytes) -> Iterator[Entry]:
        """Keys from one to before another with their values. What is written meanwhile may come or not."""
        while found := self.read(start, stop):
            yield from found
            if len(found) < _SCANNED:
                return
            start = found[-1][0] + b"\0"

    def property(self, name: str) -> str | None:
        """What it says about itself; None if it does not, or is closed. Any thread."""
        try:
            found: str | None = self._db.property_value(name)
        except Exception:
            return None
        return found

    def link(self, path: str) -> None:
        """Bring everything that was written to disk, and link the files of now into a new folder; blocks."""
        with self.told():
            self._db.flush(wait=True)
            Checkpoint(self._db).create_checkpoint(path)

    def close(self) -> None:
        """Close it and remove its folder."""
        with suppress(Exception):  # it may be broken; nobody needs what could not be written
            self._db.close()
        del self._db
        shutil.rmtree(self.path, ignore_errors=True)


class View:
    """A database as it is now, whatever is written to it later; the entries of a table one key group after the other.

    An iterator is one; what rocksdict calls a snapshot is not heeded by the iterators that it makes. As long as there
    is a view its files stay, and the database is not closed: it has to be dropped before.

    Args:
        database: whose; its keys begin with the number of a table (four bytes) and a key group (two bytes).
    """

    def __init__(self, database: RocksDatabase) -> None:
        self._database = database
        with database.told():
            self._at = database._db.iter(ReadOptions())
        self._number = 0

    def next(self, number: int, most: int) -> tuple[int, list[tuple[bytes, bytes]]]:
        """The next entries of a table, so many at most, and their key group; none at the end of the table."""
        at, found, head = self._at, list[tuple[bytes, bytes]](), number.to_bytes(4, "big")
        with self._database.told():
            if number != self._number:
                self._number = number
                at.seek(head)
            while len(found) < most and at.valid():
                key = at.key()
                if found:
                    if key[:6] != head:
                        break
                elif key[:4] != head:
                    break
                else:
                    head = key[:6]
                found.append((key, at.value()))
                at.next()
            at.status()
        return int.from_bytes(head[4:], "big"), found


def _trim() -> None:
    """Give back memory that the C library has kept of what RocksDB freed: some 50 MB with ten million keys."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


class _LinkThread:
    """Flushes and links, one database after the other: all of them have one disk below."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def submit(self, work: Callable[[], None]) -> None:
        self._queue.put(work)
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="firesteel-rocksdb", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            self._queue.get()()


_links = _LinkThread()


class Linking:
    """Files of a database on their way into a folder of their own.

    Args:
        database: whose; nothing is written to it until ``done``.
        path: of the folder.
    """

    def __init__(self, database: RocksDatabase, path: str) -> None:
        self.path = path
        self._error: BaseException | None = None
        self._done = threading.Event()
        self._idle = threading.Event()  # nobody is removing them
        self._idle.set()
        self._database: RocksDatabase | None = database
        _links.submit(self._link)

    def _link(self) -> None:
        assert self._database is not None
        try:
            self._database.link(self.path)
        except BaseException as error:
            self._error = error
        self._database = None
        self._done.set()
        _trim()

    @property
    def done(self) -> bool:
        """The database may be written to again."""
        return self._done.is_set()

    @property
    def removed(self) -> bool:
        """Nobody is removing the files, or is about to."""
        return self._idle.is_set()

    def wait(self) -> None:
        """Until it is done, however it ended; and until the files are removed, if they are to be."""
        self._done.wait()
        self._idle.wait()

    def files(self) -> list[str]:
        """Names of the files that a restore needs; waits for them.

        Raises:
            StateDatabaseError: they could not be linked.
        """
        self._done.wait()
        if self._error is not None:
            raise self._error
        wanted: list[Any] = [name for name in os.listdir(self.path) if name.endswith(".sst")]
        return sorted([*wanted, *(name for name in os.listdir(self.path) if name.startswith(("MANIFEST-", "CURRENT")))])

    def remove(self) -> None:
        """They are not needed any more; any thread, and waits for the linking."""
        self._done.wait()
        shutil.rmtree(self.path, ignore_errors=True)

    def remove_later(self, removed: Callable[[], None]) -> None:
        """The same without waiting; calls that then, on another thread."""
        self._idle.clear()

        def remove() -> None:
            self.remove()
            self._idle.set()
            removed()

        _links.submit(remove)
