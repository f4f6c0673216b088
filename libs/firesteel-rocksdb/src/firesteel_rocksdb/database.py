"""One database of an operator: how it is opened, read, scanned, linked for a snapshot, and closed.

Errors of RocksDB are bare exceptions with a text; here they become ``StateDatabaseError``, with the operator and the
directory. A scan that meets a corrupt block ends as if there were no more entries, so each scan asks for its status.
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
    DbClosedError,
    IngestExternalFileOptions,
    Rdict,
    ReadOptions,
    SstFileWriter,
    WriteBatch,
    WriteOptions,
)

from firesteel.core.errors import StateDatabaseError
from firesteel.state.snapshots import StateAmount
from firesteel_rocksdb.settings import Memory, RocksDBSettings, database_options

Pair = tuple[bytes, bytes | None]
"""A key and its value; None = the key is removed."""
Entry = tuple[bytes, bytes]
"""A key and its value."""
_SCANNED: Final = 1024
"""Entries that are read at a time; between two reads no iterator is open."""
_MANY: Final = 4096
"""Keys that are looked up at a time."""
_INGESTED: Final = 1 << 18
"""Entries of one file that is written to be ingested."""
_WORTH_COMPACTING: Final = 256 << 10
"""Bytes of a database below which it is not compacted."""
_forked_behind = False
_opened = False


def _note_fork() -> None:
    global _forked_behind
    _forked_behind = _forked_behind or _opened


os.register_at_fork(after_in_child=_note_fork)


class RocksDatabase:
    """A database of RocksDB in a folder of its own.

    Args:
        directory: of the attempt; the database is a folder in it.
        operator: named in errors.
        settings: of the job.
        memory: shared with other databases.
        exists: the files are there already, and an empty database must not be created.
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
        with self.translated_errors():
            os.makedirs(directory, exist_ok=True)
            _opened = True
            # the options have to be said for the column family, too: else those of the last opening count
            self._db = Rdict(self.path, options=options, column_families={"default": options})
            self._db.set_write_options(self._no_log)
        self._counting = threading.Lock()
        """Held while entries are counted: the database can't be closed meanwhile."""
        self._is_closed = False

    @contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Turn errors of RocksDB and of the disk into ``StateDatabaseError``."""
        try:
            yield
        except StateDatabaseError:
            raise
        except Exception as error:
            raise StateDatabaseError(self.operator, self.directory, str(error)) from error

    def get(self, key: bytes) -> bytes | None:
        """Value of a key; None = it has none."""
        try:
            value: bytes | None = self._db.get(key)
        except Exception as error:
            raise StateDatabaseError(self.operator, self.directory, str(error)) from error
        return value

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """Values of keys, None for those without; sorted keys are read faster."""
        all_values: list[bytes | None] = []
        with self.translated_errors():
            for start in range(0, len(keys), _MANY):
                batch: Any = keys[start : start + _MANY]
                batch_values: Any = self._db.get(batch)
                all_values += batch_values
        return all_values

    def write(self, pairs: Sequence[Pair]) -> int:
        """Write entries, and return their bytes with their keys. They are sorted first, which is faster."""
        batch = WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        for key, value in sorted(pairs):
            if value is None:
                delete(key)
            else:
                put(key, value)
        size = batch.size_in_bytes()
        with self.translated_errors():
            self._db.write(batch, self._no_log)
        return size

    def ingest(self, entries: Iterable[Pair]) -> None:
        """Add many entries, in the order of their keys, where the database has none.

        They are written once, into files of their own, which become files of the database.
        """
        paths: list[str] = []
        move = IngestExternalFileOptions()
        move.set_move_files(True)
        remaining = iter(entries)
        try:
            for first in remaining:
                paths.append(os.path.join(self.directory, f"ingested-{len(paths)}"))
                writer = SstFileWriter(self._options)
                with self.translated_errors():
                    writer.open(paths[-1])
                    for key, value in chain((first,), islice(remaining, _INGESTED - 1)):
                        writer[key] = value
                    writer.finish()
            if paths:
                with self.translated_errors():
                    self._db.ingest_external_file(paths, move)
        finally:
            for path in paths:
                with suppress(FileNotFoundError):
                    os.unlink(path)

    def delete_range(self, start: bytes, stop: bytes) -> None:
        """Delete all keys from ``start`` to before ``stop``."""
        with self.translated_errors():
            self._db.delete_range(start, stop, write_opt=self._no_log)

    def forget_ranges(self, ranges: Sequence[tuple[bytes, bytes]]) -> None:
        """Delete ranges of keys, and free their disk at once.

        Files with nothing else are removed, and files across a border are rewritten. A small database is not compacted:
        each compaction waits for a thread and for the disk.
        """
        for start, stop in ranges:
            self.delete_range(start, stop)
        with self.translated_errors():
            if sum(file["size"] for file in self._db.live_files()) < _WORTH_COMPACTING:
                return
            for start, stop in ranges:
                self._db.compact_range(start, stop)

    def read_to(self, start: bytes, stop: bytes, end: bytes, most: int = _SCANNED) -> tuple[list[Entry], bool]:
        """Like ``read``; also returns whether this was all: nothing more up to ``stop``, nor from there to ``end``."""
        entries: list[Entry] = []
        limits = ReadOptions()
        limits.set_iterate_upper_bound(end)
        with self.translated_errors():
            iterator = self._db.iter(limits)
            iterator.seek(start)
            while len(entries) < most and iterator.valid():
                key = iterator.key()
                if key >= stop:
                    return entries, False
                entries.append((key, iterator.value()))
                iterator.next()
            iterator.status()
            return entries, not iterator.valid()

    def read(self, start: bytes, stop: bytes, most: int = _SCANNED) -> list[Entry]:
        """Entries with keys from ``start`` to before ``stop``, ``most`` of them at most."""
        return self.read_to(start, stop, stop, most)[0]

    def scan(self, start: bytes, stop: bytes) -> Iterator[Entry]:
        """All entries with keys from ``start`` to before ``stop``; those written meanwhile may be among them or not."""
        while entries := self.read(start, stop):
            yield from entries
            if len(entries) < _SCANNED:
                return
            start = entries[-1][0] + b"\0"

    def property(self, name: str) -> str | None:
        """A property of the database; None if it has no such property, or is closed. May be called on any thread."""
        try:
            value: str | None = self._db.property_value(name)
        except (DbClosedError, AttributeError):  # the task's thread closes it meanwhile, and then forgets it
            return None
        return value

    def count(self, start: bytes, stop: bytes, most: int) -> tuple[int, int, bool]:
        """Count the entries with keys from ``start`` to before ``stop``, ``most`` of them at most.

        May be called on any thread; a database that is closed has none.

        Returns:
            Their number, the bytes of their keys and values, and whether these are all.
        """
        limits = ReadOptions()
        limits.set_iterate_upper_bound(stop)
        entries = size = 0
        with self._counting:
            if self._is_closed:
                return 0, 0, True
            with self.translated_errors():
                iterator = self._db.iter(limits)
                iterator.seek(start)
                while entries < most and iterator.valid():
                    entries += 1
                    size += len(iterator.key()) + len(iterator.value())
                    iterator.next()
                iterator.status()
                is_whole = not iterator.valid()
                del iterator
        return entries, size, is_whole

    def link(self, path: str) -> None:
        """Flush everything written to disk, and link the current files into a new folder. Blocks."""
        with self.translated_errors():
            self._db.flush(wait=True)
            Checkpoint(self._db).create_checkpoint(path)

    def close(self) -> None:
        """Close the database and remove its folder."""
        with self._counting:
            self._is_closed = True
            with suppress(Exception):  # it may be broken; nobody needs what could not be written
                self._db.close()
            del self._db
        shutil.rmtree(self.path, ignore_errors=True)


class View:
    """A database as it is now, whatever is written to it later; read table by table, one key group after the other.

    The view is an open iterator: iterators of rocksdict ignore what rocksdict calls a snapshot. As long as it exists,
    its files stay and the database can't be closed, so it has to be dropped before.

    Args:
        database: whose keys begin with the number of a table (four bytes) and a key group (two bytes).
    """

    def __init__(self, database: RocksDatabase) -> None:
        self._database = database
        with database.translated_errors():
            self._at = database._db.iter(ReadOptions())
        self._number = 0

    def next(self, number: int, most: int) -> tuple[int, list[tuple[bytes, bytes]]]:
        """Key group and the next entries of it in a table, ``most`` of them at most; none at the end of the table."""
        iterator, entries, head = self._at, list[tuple[bytes, bytes]](), number.to_bytes(4, "big")
        with self._database.translated_errors():
            if number != self._number:
                self._number = number
                iterator.seek(head)
            while len(entries) < most and iterator.valid():
                key = iterator.key()
                if entries:
                    if key[:6] != head:
                        break
                elif key[:4] != head:
                    break
                else:
                    head = key[:6]
                entries.append((key, iterator.value()))
                iterator.next()
            iterator.status()
        return int.from_bytes(head[4:], "big"), entries


def _trim() -> None:
    """Give back memory that the C library keeps after RocksDB freed it: some 50 MB with ten million keys."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


class _LinkThread:
    """Flushes and links databases one after the other, since they share one disk."""

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
    """A snapshot's files on their way into a folder of their own.

    Args:
        database: theirs; nothing may be written to it until ``done``.
        path: of the folder.
        look: looks at the database when its files are linked, for people, and returns what it has seen.
    """

    def __init__(
        self, database: RocksDatabase, path: str, look: Callable[[], Sequence[StateAmount]] = lambda: ()
    ) -> None:
        self.path, self._look = path, look
        self._seen: Sequence[StateAmount] = ()
        self._has_looked = threading.Event()
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
        if self._error is None:
            with suppress(StateDatabaseError):  # who reads or writes next hears of it
                self._seen = self._look()
        self._has_looked.set()
        _trim()

    def seen(self) -> Sequence[StateAmount]:
        """What ``look`` has returned, after waiting for it."""
        self._has_looked.wait()
        return self._seen

    @property
    def done(self) -> bool:
        """Whether the database may be written to again."""
        return self._done.is_set()

    @property
    def removed(self) -> bool:
        """Whether no removal of the files is running or planned."""
        return self._idle.is_set()

    def wait(self) -> None:
        """Wait until linking has ended, well or not, and until the files are removed if they are to be."""
        self._done.wait()
        self._idle.wait()

    def files(self) -> list[str]:
        """Names of the files that a restore needs; waits until they are linked.

        Raises:
            StateDatabaseError: they could not be linked.
        """
        self._done.wait()
        if self._error is not None:
            raise self._error
        tables: list[Any] = [name for name in os.listdir(self.path) if name.endswith(".sst")]
        return sorted([*tables, *(name for name in os.listdir(self.path) if name.startswith(("MANIFEST-", "CURRENT")))])

    def remove(self) -> None:
        """Remove the files, after waiting for the linking. May be called on any thread."""
        self._done.wait()
        shutil.rmtree(self.path, ignore_errors=True)

    def remove_later(self, removed: Callable[[], None]) -> None:
        """Remove the files on another thread, which then calls ``removed``."""
        self._idle.clear()

        def remove() -> None:
            self.remove()
            self._idle.set()
            removed()

        _links.submit(remove)
