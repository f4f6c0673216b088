"""What CPython itself can do of w1, w2 and w4: loops written by hand, as a peer of ``./dev bench``.

    ./dev bench w2 --count 15000000 --runs 3 --peer 'python -m benchmarks.bare_loop w2 --count 15000000'
    ./dev bench w4 --text FILE --runs 3 --peer 'python -m benchmarks.bare_loop w4 --text FILE'
    python -m benchmarks.bare_loop w4-last --text FILE                 # beside batch_bench
    python -m benchmarks.bare_loop w2 --keys 10000000 --count 8000000 --rocksdb 201326592

Two processes do what the two slots of a job do, with the functions of the job's program and nothing around them: no
checkpoints, barriers or watermarks, no copies, no checks of types or keys, no metrics, no back pressure. State is a
``dict``, or RocksDB where its memory is given (of each process); the exchange is lists of 1,024 pickled records in
pipes, which a thread of each process reads; records of a process for itself go there as they are (``--processes 1``:
all of them). So no system that calls these functions in CPython is faster by much.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import pickle
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from benchmarks import events

from firesteel_rocksdb.database import RocksDatabase
from firesteel_rocksdb.settings import RocksDBSettings, memory_of

AT_ONCE = 1_024
_PACKED = struct.Struct(">q")
MADE_AT_ONCE = 20_000


class Count:
    """The state of a count by key, as a program sees it; on the heap."""

    def __init__(self) -> None:
        self._counts: dict[Any, int] = {}
        self.key: Any = None

    def value(self) -> int | None:
        """Of the current key."""
        return self._counts.get(self.key)

    def update(self, count: int) -> None:
        """Of the current key."""
        self._counts[self.key] = count

    def read(self, keys: Iterable[Any]) -> None:
        """These come next."""

    def write(self) -> None:
        """Those have been there."""


class StoredCount(Count):
    """The same in RocksDB, by a read and a write of many keys at once, and nothing in front of it."""

    def __init__(self, directory: str, memory: int) -> None:
        super().__init__()
        settings = RocksDBSettings()
        self._database = RocksDatabase(directory, "count", settings, memory_of(settings, memory))

    def read(self, keys: Iterable[Any]) -> None:
        """Their counts."""
        wanted = sorted(set(keys))
        places = list(map(_PACKED.pack, wanted))
        found = zip(wanted, self._database.get_many(places), strict=True)
        self._counts = {key: _PACKED.unpack(data)[0] for key, data in found if data is not None}

    def write(self) -> None:
        """What is there of them now."""
        pack = _PACKED.pack
        self._database.write([(pack(key), pack(count)) for key, count in self._counts.items()])


def count_of_auction(state: Count, value: Any) -> Iterator[Any]:
    """``programs.CountByKey``."""
    count = (state.value() or 0) + 1
    state.update(count)
    yield value[0], count


def count_of_word(state: Count, value: str) -> Iterator[Any]:
    """The same of words."""
    count = (state.value() or 0) + 1
    state.update(count)
    yield value, count


def made_events(number: int, given: argparse.Namespace) -> Iterator[list[Any]]:
    """Half of the events, at most 1,024 at once."""
    start, end = (edge * given.count // given.processes for edge in (number, number + 1))
    while start < end:
        made = events.tuples(start, min(end, start + MADE_AT_ONCE), given.keys)
        start += len(made)
        for first in range(0, len(made), AT_ONCE):
            yield made[first : first + AT_ONCE]


def split_lines(number: int, given: argparse.Namespace) -> Iterator[list[str]]:
    """The words of half of each file."""
    for name in given.text:
        size = os.path.getsize(name)
        with open(name, "rb", 1 << 20) as file:
            if number:
                file.seek(size // 2 - 1)
                file.readline()
            words: list[str] = []
            end = size if number else size // 2
            while (left := end - file.tell()) > 0 and (lines := file.readlines(min(left, 1 << 16))):
                for line in lines:
                    words.extend(line.decode().split())
                    while len(words) >= AT_ONCE:
                        yield words[:AT_ONCE]
                        del words[:AT_ONCE]
            if words:
                yield words


def w1(number: int, given: argparse.Namespace, *_: Connection) -> tuple[int, int]:
    """Map and filter."""
    to_euros: Callable[[Any], Any] = lambda b: (b[0], b[1], b[2] * 0.908, b[3], b[4])  # noqa: E731
    wanted: Callable[[Any], bool] = lambda b: b[0] % 123 == 0  # noqa: E731
    seen = rows = 0
    for values in made_events(number, given):
        seen += len(values)
        rows += len([one for one in values if wanted(to_euros(one))])
    return seen, rows


class _Keyed:
    """Count by key, of which half are the other process's."""

    def __init__(
        self,
        made: Callable[[int, argparse.Namespace], Iterator[list[Any]]],
        key_of: Callable[[Any], Any],
        count_of: Callable[[Count, Any], Iterator[Any]],
    ) -> None:
        self._made, self._key_of, self._count_of = made, key_of, count_of

    def __call__(self, number: int, given: argparse.Namespace, there: Connection, here: Connection) -> tuple[int, int]:
        """How many records it made, and the sum of the results of those that are its own."""
        arrived: SimpleQueue[bytes] = SimpleQueue()
        state = StoredCount(f"{given.directory}/{number}", given.rocksdb) if given.rocksdb else Count()
        work = partial(self._work, state)

        def read() -> None:
            while message := here.recv_bytes():
                arrived.put(message)
            arrived.put(b"")

        threading.Thread(target=read, daemon=True).start()
        key_of = self._key_of
        made = total = 0
        ended = False
        for values in self._made(number, given):
            made += len(values)
            if given.processes == 1:
                total += work(values)
                continue
            own: list[Any] = []
            other: list[Any] = []
            for value in values:
                (own if hash(key_of(value)) >> 2 & 1 == number else other).append(value)
            there.send_bytes(pickle.dumps(other, 5))
            total += work(own)
            while not ended and not arrived.empty():
                ended = not (message := arrived.get())
                total += 0 if ended else work(pickle.loads(message))
        there.send_bytes(b"")
        while given.processes == 2 and not ended and (message := arrived.get()):
            total += work(pickle.loads(message))
        return made, total

    def _work(self, state: Count, values: list[Any]) -> int:
        key_of, count_of = self._key_of, self._count_of
        results: list[Any] = []
        state.read(map(key_of, values))
        for value in values:
            state.key = key_of(value)
            results.extend(count_of(state, value))
        state.write()
        return sum([result[1] for result in results])


class _Reduced:
    """The last count of each key, as batch mode gives it: each process reduces its own records, then its own keys."""

    def __init__(
        self,
        made: Callable[[int, argparse.Namespace], Iterator[list[Any]]],
        pair_of: Callable[[Any], tuple[Any, int]],
        key_of: Callable[[Any], Any],
    ) -> None:
        self._made, self._pair_of, self._key_of = made, pair_of, key_of

    def __call__(self, number: int, given: argparse.Namespace, there: Connection, here: Connection) -> tuple[int, int]:
        """How many records it made, and the sum of the counts of its own keys."""
        pair_of = self._pair_of
        made = 0
        counts: dict[Any, Any] = {}
        for values in self._made(number, given):
            made += len(values)
            self._reduce(counts, [pair_of(value) for value in values])
        parts: list[list[Any]] = [[], []]
        for key, pair in counts.items():
            parts[hash(key) >> 2 & 1].append(pair)
        sending = threading.Thread(target=lambda: there.send_bytes(pickle.dumps(parts[1 - number], 5)))
        sending.start()
        own: dict[Any, Any] = {}
        self._reduce(own, parts[number])
        self._reduce(own, pickle.loads(here.recv_bytes()))
        sending.join()
        return made, sum([pair[1] for pair in own.values()])

    def _reduce(self, counts: dict[Any, Any], pairs: list[Any]) -> None:
        key_of = self._key_of
        for pair in pairs:
            key = key_of(pair)
            before = counts.get(key)
            counts[key] = pair if before is None else _added(before, pair)


def _added(one: Any, other: Any) -> Any:
    return one[0], one[1] + other[1]


LOOPS: dict[str, Callable[[int, argparse.Namespace, Connection, Connection], tuple[int, int]]] = {
    "w1": w1,
    "w2": _Keyed(made_events, lambda bid: bid[0], count_of_auction),
    "w4": _Keyed(split_lines, lambda word: word, count_of_word),
    "w2-last": _Reduced(made_events, lambda bid: (bid[0], 1), lambda pair: pair[0]),
    "w4-last": _Reduced(split_lines, lambda word: (word, 1), lambda pair: pair[0]),
}


def _process(number: int, given: argparse.Namespace, ends: Any, results: Any) -> None:
    began = time.monotonic()
    made, total = LOOPS[given.what](number, given, *ends)
    results.put((made, total, began, time.monotonic()))


def loop(given: argparse.Namespace) -> dict[str, float]:
    """Two processes; the records of both, the sum of their results, and the rate."""
    context = multiprocessing.get_context("fork")  # so both hash texts alike
    (to_second, at_second), (to_first, at_first) = [context.Pipe() for _ in range(2)]
    results = context.SimpleQueue()
    ends = [(to_second, at_first), (to_first, at_second)]
    own = [(number, given, ends[number], results) for number in range(given.processes)]
    processes = [context.Process(target=_process, args=each) for each in own]
    for process in processes:
        process.start()
    notes = [results.get() for _ in processes]
    for process in processes:
        process.join()
    made = sum(note[0] for note in notes)
    seconds = max(note[3] for note in notes) - min(note[2] for note in notes)
    return {"made": made, "sum": sum(note[1] for note in notes), "rate": made / seconds}


def main() -> None:
    """Prints a line that ``./dev bench`` reads."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=list(LOOPS))
    parser.add_argument("--count", type=int, default=20_000_000, help="w1, w2: events")
    parser.add_argument("--processes", type=int, choices=[1, 2], default=2, help="1: w1 and w2")
    parser.add_argument("--keys", type=int, default=events.KEYS, help="w2: different auctions")
    parser.add_argument("--rocksdb", type=int, default=0, metavar="BYTES", help="w2: state is there, with this memory")
    parser.add_argument("--text", action="append", default=[], help="w4: a file; may stand several times")
    given = parser.parse_args()
    if given.what.startswith("w4") and not given.text:
        parser.error(f"{given.what} needs --text FILE")
    if given.processes == 1 and given.what not in ("w1", "w2"):
        parser.error(f"{given.what} takes two processes")
    with tempfile.TemporaryDirectory() as given.directory:
        found = loop(given)
    rows, total = events.expected(given.what, given.count, given.keys)
    if found["sum"] != {"w1": rows, "w2": total, "w2-last": given.count}.get(given.what, found["sum"]):
        sys.exit(f"wrong result: {found}")
    print("RESULT " + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
