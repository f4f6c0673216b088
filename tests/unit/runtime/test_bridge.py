"""Hand-over between a task's own loop and the main loop."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from firesteel.core.errors import SerializationError
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.records.batch import END_OF_INPUT, Batch
from firesteel.runtime.task.bridge import LARGEST_QUEUE, BridgedInput, BridgedOutput
from tests.unit.runtime.support import FakeInput, FakeOutput, ManualClock


class Loops:
    """Two loops, run by hand."""

    def __init__(self) -> None:
        self.main, self.task = TaskLoop(ManualClock()), TaskLoop(ManualClock())

    def run(self) -> None:
        while self.main.run_once(block=False) or self.task.run_once(block=False):
            pass


@pytest.fixture
def loops() -> Iterator[Loops]:
    made = Loops()
    yield made
    made.main.close()
    made.task.close()


def test_batches_flushes_and_the_end_arrive_in_order(loops: Loops) -> None:
    channel = FakeOutput()
    bridge = BridgedOutput(channel, loops.main, loops.task)
    bridge.write(Batch([1]))
    bridge.flush()
    bridge.flush()
    bridge.write(Batch([2]))
    bridge.end()
    assert channel.values == []
    loops.run()
    assert (channel.values, channel.flushes, channel.ended) == ([1, 2], 1, True)
    assert (bridge.bytes_out, bridge.records_out) == (20, 2)


def test_a_full_channel_fills_the_bridge_and_then_opens_it_again(loops: Loops) -> None:
    woken: list[int] = []
    channel = FakeOutput()
    channel.writable = False
    bridge = BridgedOutput(channel, loops.main, loops.task)
    bridge.on_writable = lambda: woken.append(1)
    for i in range(LARGEST_QUEUE):
        assert bridge.writable
        bridge.write(Batch([i]))
    loops.run()
    assert not bridge.writable
    assert channel.values == []
    channel.open_up()
    loops.run()
    assert bridge.writable
    assert woken == [1]
    assert channel.values == list(range(LARGEST_QUEUE))


def test_an_error_of_the_channel_reaches_the_task(loops: Loops) -> None:
    class Refusing(FakeOutput):
        def write(self, batch: Batch) -> None:
            raise SerializationError("no")

    errors: list[Exception] = []
    bridge = BridgedOutput(Refusing(), loops.main, loops.task)
    bridge.on_error = errors.append
    bridge.write(Batch([1]))
    loops.run()
    assert [str(error) for error in errors] == ["no"]


def test_closing_drops_what_waits(loops: Loops) -> None:
    channel = FakeOutput()
    bridge = BridgedOutput(channel, loops.main, loops.task)
    bridge.write(Batch([1]))
    bridge.close()
    loops.run()
    assert (channel.values, channel.closed) == ([], True)


def test_an_input_runs_ahead_only_a_little(loops: Loops) -> None:
    woken: list[int] = []
    channel = FakeInput([Batch([i]) for i in range(10)] + [END_OF_INPUT])
    bridge = BridgedInput(channel, loops.main, loops.task)
    bridge.on_readable = lambda: woken.append(1)
    loops.run()
    assert woken
    assert len(channel.items) == 11 - LARGEST_QUEUE
    got: list[object] = []
    while not got or got[-1] is not END_OF_INPUT:
        item = bridge.poll()
        if item is None:
            loops.run()
        else:
            got.append(item.values if isinstance(item, Batch) else item)
    assert got == [[i] for i in range(10)] + [END_OF_INPUT]
    assert bridge.records_in == 10


def test_an_error_of_an_input_comes_out_of_poll_after_what_came_before(loops: Loops) -> None:
    class Broken(FakeInput):
        def poll(self) -> Batch:
            if self.items:
                got = self.items.popleft()
                assert isinstance(got, Batch)
                return got
            raise SerializationError("no")

    bridge = BridgedInput(Broken([Batch([1])]), loops.main, loops.task)
    loops.run()
    first = bridge.poll()
    assert isinstance(first, Batch)
    with pytest.raises(SerializationError, match="no"):
        bridge.poll()
