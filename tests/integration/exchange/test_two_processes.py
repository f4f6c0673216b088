"""The exchange between real processes, over Unix sockets and TCP."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from firesteel.core.clock import SystemClock
from firesteel.core.errors import ProtocolError
from firesteel.runtime.exchange import Exchange, InputChannel, OutputChannel
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.records.batch import Batch, EndOfInput, InBand

PEER = Path(__file__).with_name("peer.py")
WINDOW = 256 * 1024


class Both:
    """This process as slot ``m`` and another one as slot ``name`` (who connects depends on the order of the names)."""

    def __init__(self, directory: Path, kind: str, name: str, stalled: bool = False) -> None:
        self.name = name
        self.failures: list[Exception] = []
        self.loop = TaskLoop(SystemClock())
        self.exchange = Exchange(self.loop, self.listen(directory, kind, "m"), SystemClock())
        self.exchange.on_failure = lambda error, _: self.failures.append(error)
        self.process = subprocess.Popen(
            [sys.executable, str(PEER), *self.listen(directory, kind, name)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        peers = {"m": self.exchange.address, name: self.hear()}
        if kind == "nodes":
            peers = {slot: {**address, "node": f"that of {slot}"} for slot, address in peers.items()}
        settings: dict[str, Any] = {
            "job_id": "0" * 32, "job_attempt": 0, "secret": "ab" * 32, "window": WINDOW,
            "peers": peers,
        }  # fmt: skip
        self.say({**settings, "my_allocation": name, "other": "m", "stalled": stalled})
        self.exchange.configure(**settings, my_allocation="m")
        self.output: OutputChannel = self.exchange.output(0, 0, 0, name, 100)
        self.input: InputChannel = self.exchange.input(1, 0, 0, name)

    @staticmethod
    def listen(directory: Path, kind: str, name: str) -> list[str]:
        """``nodes``: on both kinds of sockets, under a name that has to be resolved."""
        unix = f"unix:{directory}/{name}"
        return {"unix": [unix], "tcp": ["tcp:127.0.0.1"], "nodes": [unix, "tcp:127.0.0.1=localhost"]}[kind]

    def say(self, message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def run_until(self, condition: Callable[[], bool], seconds: float = 30, block: bool = False) -> None:
        late: list[bool] = []
        timer = self.loop.call_later(seconds, lambda: late.append(True))
        while not condition():
            assert not late, f"nothing came within {seconds} s; failures: {self.failures}"
            self.loop.run_once(block)
        timer.cancel()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            try:
                stream.close()
            except BrokenPipeError:
                pass
        self.exchange.close()
        self.loop.close()


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Callable[..., Both]]:
    made: list[Both] = []

    def make(kind: str = "unix", name: str = "z", stalled: bool = False) -> Both:
        made.append(Both(tmp_path, kind, name, stalled))
        return made[-1]

    yield make
    for pair in made:
        pair.close()


@pytest.mark.smoke
@pytest.mark.parametrize("kind", ["unix", "tcp", "nodes"])
@pytest.mark.parametrize("name", ["a", "z"])
def test_everything_comes_back_once_and_in_order(
    both: Callable[..., Both], kind: str, name: str, tmp_path: Path
) -> None:
    pair = both(kind, name)
    array = np.random.default_rng(1).random(300_000)  # 2.4 MB: far more than the window
    columns = pa.RecordBatch.from_pydict({"n": list(range(50_000)), "s": [f"word{i % 99}" for i in range(50_000)]})
    batches = [Batch([(f"word{i % 1000}", part, i) for i in range(4096)], list(range(4096))) for part in range(50)]
    batches += [Batch([array]), Batch(columns), Batch(["last"])]
    got: list[Batch | InBand] = []

    def exchange_all() -> bool:
        while batches and pair.output.writable:
            pair.output.write(batches.pop(0))
            if not batches:
                pair.output.end()
        batch = pair.input.poll()
        if batch is not None:
            got.append(batch)
        return isinstance(got[-1] if got else None, EndOfInput)

    pair.run_until(exchange_all)
    records = [batch for batch in got if isinstance(batch, Batch)]
    tuples = [value for batch in records if batch.timestamps is not None for value in batch.values]
    assert tuples == [(f"word{i % 1000}", part, i) for part in range(50) for i in range(4096)]
    assert [stamp for batch in records for stamp in batch.timestamps or ()] == list(range(4096)) * 50
    rest = [batch.values for batch in records if batch.timestamps is None]
    assert np.array_equal(rest[0][0], array)
    assert pa.Table.from_batches(rest[1:-1]).to_pydict() == columns.to_pydict()
    assert rest[-1] == ["last"]
    assert pair.failures == []
    (link,) = pair.exchange._links.values()
    assert link._sock is not None
    assert link._sock.family == (socket.AF_UNIX if kind == "unix" else socket.AF_INET)
    pair.hear()
    pair.say("go")
    assert pair.process.wait(60) == 0
    assert not (tmp_path / name).exists()
    pair.loop.run_once(block=False)
    assert pair.failures == []  # its end is none of our troubles: all channels had ended


@pytest.mark.parametrize("kind", ["unix", "tcp"])
@pytest.mark.parametrize("name", ["a", "z"])
def test_a_killed_process_is_an_error(both: Callable[..., Both], kind: str, name: str) -> None:
    pair = both(kind, name)

    def flow() -> bool:
        if pair.output.writable:
            pair.output.write(Batch(list(range(1000))))
            pair.output.flush()
        pair.input.poll()
        return pair.input.records_in > 10_000

    pair.run_until(flow)
    pair.process.send_signal(signal.SIGKILL)
    pair.run_until(lambda: bool(pair.failures))
    (error,) = pair.failures
    assert isinstance(error, ProtocolError)
    assert error.peer.startswith(f"slot {name} (")
    assert "connection" in error.reason


@pytest.mark.parametrize("kind", ["unix", "tcp", "nodes"])
def test_a_consumer_that_stands_still_stops_the_producer_and_goes_on_where_it_was(
    both: Callable[..., Both], kind: str
) -> None:
    pair = both(kind, stalled=True)
    written = 0
    record = os.urandom(1000)

    def write() -> None:
        nonlocal written
        if pair.output.writable:
            pair.output.write(Batch([(written, record, os.urandom(1000))]))
            written += 1

    quiet: list[bool] = []

    def settled() -> bool:
        write()
        if not pair.output.writable and not quiet:
            quiet.append(False)
            pair.loop.call_later(0.5, lambda: quiet.append(True))
        return quiet[-1:] == [True] and not pair.output.writable

    pair.run_until(settled)
    assert written * 1000 < 4 * WINDOW  # one window here, one there
    stopped = written
    pair.say("go on")
    got: list[int] = []

    def read() -> bool:
        write()
        batch = pair.input.poll()
        if isinstance(batch, Batch):
            got.extend(number for number, _, _ in batch.values)
        return len(got) > 3 * stopped

    pair.run_until(read)
    assert got == list(range(len(got)))


def test_connected_slots_with_nothing_to_do_take_no_cpu(both: Callable[..., Both]) -> None:
    pair = both()
    pair.output.write(Batch([1]))
    pair.output.flush()
    pair.run_until(lambda: pair.input.poll() is not None)
    over: list[bool] = []
    pair.loop.call_later(1, lambda: over.append(True))
    cpu = time.process_time()
    pair.run_until(lambda: bool(over), block=True)
    assert time.process_time() - cpu < 0.3  # a loop that spins takes about 1
    pair.output.end()
    pair.run_until(lambda: isinstance(pair.input.poll(), EndOfInput))
    assert pair.hear()["cpu"] < 0.4  # its whole life with the loop
