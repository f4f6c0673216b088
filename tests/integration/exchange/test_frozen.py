"""A slot that stood still while its job went on elsewhere delivers nothing when it wakes up: its allocation is over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from firesteel.core.clock import SystemClock
from firesteel.runtime.exchange import Exchange, InputChannel, OutputChannel
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.records.batch import Batch

PEER = Path(__file__).with_name("peer.py")
PATIENCE = 100.0
Peer = subprocess.Popen[str]


class World:
    """This process as slot ``m``; other processes send back whatever it sends them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.loop = TaskLoop(SystemClock())
        self.failures: list[Exception] = []
        self.exchange = Exchange(self.loop, [f"unix:{directory}/m"], SystemClock())
        self.exchange.on_failure = lambda error, _: self.failures.append(error)
        self.peers: dict[str, Peer] = {}
        self.addresses: dict[str, Any] = {"m": self.exchange.address}

    def start(self, name: str) -> Peer:
        process = subprocess.Popen(
            [sys.executable, str(PEER), f"unix:{self.directory}/{name}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self.peers[name] = process
        assert process.stdout is not None
        self.addresses[name] = json.loads(process.stdout.readline())
        return process

    def attempt(self, number: int, name: str) -> tuple[OutputChannel, InputChannel]:
        """The job runs with this peer now; the channels to it and from it."""
        settings: dict[str, Any] = {
            "job_id": "0" * 32, "job_attempt": 0, "secret": "ab" * 32, "window": 1 << 18,
            "peers": {slot: self.addresses[slot] for slot in ("m", name)},
        }  # fmt: skip
        stdin = self.peers[name].stdin
        assert stdin is not None
        stdin.write(
            json.dumps({**settings, "my_allocation": name, "other": "m", "attempt": number, "stalled": False}) + "\n"
        )
        stdin.flush()
        self.exchange.configure(**settings, my_allocation="m")
        return self.exchange.output(0, 0, 0, name, 0, number), self.exchange.input(1, 0, 0, name, number)

    def run_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"never came true; failures: {self.failures}"
            self.loop.run_once(block=False)

    def close(self) -> None:
        for process in self.peers.values():
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                stream.close()
        self.exchange.close()
        self.loop.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def echo(world: World, output: OutputChannel, channel: InputChannel, values: list[Any]) -> list[Any]:
    """Send values one by one and wait until they are back; all that came meanwhile."""
    got: list[Any] = []
    waiting = list(values)

    def move() -> bool:
        if waiting and output.writable:
            output.write(Batch([waiting.pop(0)]))
            output.flush()
        batch = channel.poll()
        if isinstance(batch, Batch):
            got.extend(batch.values)
        return len(got) >= len(values)

    world.run_until(move)
    return got


@pytest.mark.parametrize("old", ["a", "z"])
def test_a_thawed_slot_of_an_older_attempt_is_not_heard(world: World, old: str) -> None:
    """Whoever of the two connects."""
    frozen = world.start(old)
    output, channel = world.attempt(0, old)
    assert echo(world, output, channel, ["before"]) == ["before"]
    os.kill(frozen.pid, signal.SIGSTOP)
    for number in range(50):  # it will send these back when it wakes up
        output.write(Batch([f"old {number}"]))
    output.flush()
    for _ in range(100):
        world.loop.run_once(block=False)
    world.start("q")
    output, channel = world.attempt(1, "q")
    assert echo(world, output, channel, ["new 1"]) == ["new 1"]
    os.kill(frozen.pid, signal.SIGCONT)
    world.run_until(lambda: frozen.poll() is not None)  # its connection is gone, and it is not let in again
    values = [f"new {number}" for number in range(2, 200)]
    assert echo(world, output, channel, values) == values
    assert world.exchange.statistics().connections == 1
    assert world.failures == []


def test_a_copy_with_an_allocation_that_the_job_does_not_use_is_not_let_in(world: World) -> None:
    """It knows the job's secret; as long as nobody names its allocation it waits, and gets nothing."""
    world.start("q")
    output, channel = world.attempt(1, "q")
    copy = world.start("a")
    stdin = copy.stdin
    assert stdin is not None
    settings = {
        "job_id": "0" * 32, "job_attempt": 0, "secret": "ab" * 32, "window": 1 << 18, "peers": world.addresses,
        "my_allocation": "a", "other": "m", "attempt": 1, "stalled": False,
    }  # fmt: skip
    stdin.write(json.dumps(settings) + "\n")
    stdin.flush()
    world.run_until(lambda: world.exchange._acceptor.waiting == 1)
    assert echo(world, output, channel, ["only q"]) == ["only q"]
    assert world.exchange.statistics().connections == 1
    assert copy.poll() is None
    assert world.failures == []
