"""User code may keep a slot's one thread for a minute, at any moment: connections are made all the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from firesteel.runtime.exchange import Exchange
from firesteel.runtime.exchange.channels import InputChannel
from firesteel.runtime.loop.loop import TaskLoop
from tests.unit.exchange.support import JOB, SECRET, ManualClock, batch_of, drain, run_idle


class Pair:
    """Two slots, each with a loop of its own, and a clock that both see. ``a`` connects, ``b`` is connected to."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock()
        self.loops = {name: TaskLoop(self.clock) for name in "ab"}
        self.exchanges = {
            name: Exchange(loop, [f"unix:{directory}/{name}"], self.clock) for name, loop in self.loops.items()
        }
        self.failures: list[Exception] = []
        peers = {name: exchange.address for name, exchange in self.exchanges.items()}
        for name, exchange in self.exchanges.items():
            exchange.on_failure = lambda error, _: self.failures.append(error)
            exchange.configure(JOB, 0, SECRET, name, peers)
        there = self.exchanges["a"].output(0, 0, 0, "b", 0)
        back = self.exchanges["b"].output(1, 0, 0, "a", 0)
        self.inputs: list[InputChannel] = [
            self.exchanges["b"].input(0, 0, 0, "a"), self.exchanges["a"].input(1, 0, 0, "b"),
        ]  # fmt: skip
        there.write(batch_of("there"))
        back.write(batch_of("back"))

    def run(self, names: str = "ab") -> None:
        for _ in range(3):
            for name in names:
                run_idle(self.loops[name])

    def close(self) -> None:
        for name, exchange in self.exchanges.items():
            exchange.close()
            self.loops[name].close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    both_ends = Pair(tmp_path)
    yield both_ends
    both_ends.close()


@pytest.mark.parametrize("stalled", ["a", "b", "ab"])
@pytest.mark.parametrize("passes", range(12))
@pytest.mark.parametrize("first", ["ab", "ba"])
def test_a_stall_while_a_connection_is_made(pair: Pair, first: str, passes: int, stalled: str) -> None:
    for number in range(passes):
        pair.loops[first[number % 2]].run_once(block=False)
    for _ in range(90):
        pair.clock.now += 1
        pair.run("".join(name for name in "ab" if name not in stalled))
    for _ in range(3):
        pair.clock.now += 1
        pair.run()
    assert pair.failures == []
    assert [drain(channel) for channel in pair.inputs] == [["there"], ["back"]]
