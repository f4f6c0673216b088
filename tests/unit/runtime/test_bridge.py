"""Hand-over between a task's own loop and the main loop."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator

import pytest

from firesteel.core.errors import SerializationError
from firesteel.runtime.exchange.inbox import Inbox
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.records.batch import END_OF_INPUT, Barrier, Batch, InBand, Watermark
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
    loops = Loops()
    yield loops
    loops.main.close()
    loops.task.close()


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


def test_a_task_reads_what_its_channel_has_and_the_main_loop_gives_the_room_back(loops: Loops) -> None:
    woken: list[int] = []
    channel = FakeInput([Batch([i]) for i in range(10)] + [END_OF_INPUT])
    bridge = BridgedInput(channel, loops.main, loops.task)
    bridge.on_readable = lambda: woken.append(1)
    loops.run()
    assert woken, "of what had come before"
    got = [bridge.poll() for _ in range(3)]
    assert channel.released == 0, "the channel is the main loop's"
    loops.run()
    assert channel.released == 3
    while got[-1] is not None:
        got.append(bridge.poll())
    assert [item.values if isinstance(item, Batch) else item for item in got[:-1]] == [
        *([i] for i in range(10)),
        END_OF_INPUT,
    ]
    assert bridge.records_in == 10
    loops.run()
    woken.clear()
    channel.give(Batch([11]))
    loops.run()
    assert woken == [1]


def test_an_error_of_an_input_comes_out_of_poll_after_what_came_before(loops: Loops) -> None:
    class Unreadable(Inbox):
        def take(self) -> Batch | InBand | None:
            if not self.queue:
                raise SerializationError("no")
            return super().take()

    channel = FakeInput()
    channel.inbox = Unreadable(0)
    channel.inbox.put(Batch([1]))
    bridge = BridgedInput(channel, loops.main, loops.task)
    loops.run()
    first = bridge.poll()
    assert isinstance(first, Batch)
    with pytest.raises(SerializationError, match="no"):
        bridge.poll()


def test_two_threads_share_an_inbox_and_nothing_is_lost_or_changes_places() -> None:
    """One appends, with watermarks that supersede each other; the other takes out, looks for barriers, removes them."""
    inbox, count, before = Inbox(0), 3000, sys.getswitchinterval()
    seen: list[int] = []
    over: list[bool] = []
    barriers = 0

    def fill() -> None:
        for number in range(count):
            while len(inbox.queue) > 30 and not over:
                os.sched_yield()
            inbox.put(Batch([number]))
            inbox.put(Watermark(number))
            inbox.put(Watermark(number, idle=True))
            if number % 10 == 0:
                inbox.put(Barrier(number, 0, {"unaligned": True}))
        inbox.put(END_OF_INPUT)

    sys.setswitchinterval(1e-6)
    filling = threading.Thread(target=fill)
    filling.start()
    try:
        while True:
            ahead = inbox.barrier_ahead()
            if isinstance(ahead, Barrier):
                flight = [value for batch in inbox.in_flight(ahead) for value in batch.values]
                inbox.remove(ahead)
                barriers += 1
                assert flight == list(range(len(seen), ahead.checkpoint_id + 1))
            item = inbox.take()
            if isinstance(item, Batch):
                seen += item.values
            elif isinstance(item, Barrier):
                barriers += 1
            elif item is END_OF_INPUT:
                break
    finally:
        over.append(True)
        filling.join()
        sys.setswitchinterval(before)
    assert seen == list(range(count))
    assert barriers == count // 10
