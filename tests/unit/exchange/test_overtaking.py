"""Barriers that overtake what is queued in a channel, at both of its ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from firesteel.core.errors import ProtocolError, SerializationError
from firesteel.runtime.checkpoints.in_flight import InFlightLog
from firesteel.runtime.exchange.channels import InputChannel, OutputChannel
from firesteel.runtime.exchange.input import RemoteInputChannel
from firesteel.runtime.exchange.local import LocalPipe
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.records.batch import END_OF_INPUT, Barrier, Batch, EndOfInput
from firesteel.runtime.task.bridge import BridgedInput, BridgedOutput
from firesteel.runtime.task.channel_inputs import ChannelInputs
from tests.unit.exchange.support import ManualClock, Slots, batch_of, drain, run_idle, slots

WINDOW = 1000
NOW = {"unaligned": True, "aligned_ms": 0}
RECORD = "x" * 100
Ends = tuple[OutputChannel, InputChannel, Callable[[], None]]


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Slots]:
    with slots(tmp_path) as three_slots:
        yield three_slots


@pytest.fixture(params=["remote", "local", "bridged"])
def ends(request: pytest.FixtureRequest, two: Slots) -> Iterator[Ends]:
    """Both ends of a channel, and what lets everything happen that can."""
    if request.param == "local":
        loop = TaskLoop(ManualClock())
        pipe = LocalPipe((0, 0, 0), loop, WINDOW)  # type: ignore[arg-type] # any name will do
        yield pipe.output, pipe.input, lambda: run_idle(loop)
        loop.close()
        return
    two.configure(window=WINDOW)
    output: OutputChannel = two["a"].output(0, 0, 0, "b", 100)
    input_: InputChannel = two["b"].input(0, 0, 0, "a")
    if request.param == "remote":
        yield output, input_, two.run
        return
    task = TaskLoop(two.clock)
    output, input_ = BridgedOutput(output, two.loop, task), BridgedInput(input_, two.loop, task)

    def run() -> None:
        for _ in range(4):
            two.run()
            run_idle(task)

    yield output, input_, run
    task.close()


def fill(output: OutputChannel, run: Callable[[], None]) -> int:
    """Write until there is no room; how many records."""
    count = 0
    run()
    while output.writable:
        output.write(batch_of(f"{count} {RECORD}"))
        output.flush()
        count += 1
        run()
        assert count < 1000
    return count


def numbers(batches: list[Batch]) -> list[int]:
    return [int(value.partition(" ")[0]) for batch in batches for value in batch.values]


def barrier(number: int, output: OutputChannel, run: Callable[[], None]) -> Barrier:
    sent = Barrier(number, 0, NOW)
    output.send(sent)
    output.flush()
    output.hurry()
    run()
    return sent


def test_a_barrier_and_all_in_front_of_it_arrive_though_there_is_no_room(ends: Ends) -> None:
    output, input_, run = ends
    seen: list[bool] = []
    input_.on_barrier = lambda: seen.append(True)
    count = fill(output, run)
    sent = barrier(1, output, run)
    output.write(batch_of("1000 behind"))
    run()
    assert seen
    ahead = input_.barrier_ahead()
    assert ahead == sent
    assert isinstance(ahead, Barrier)
    assert numbers(input_.overtaken(ahead)) == list(range(count))
    assert not isinstance(input_.barrier_ahead(), Barrier), "it is taken out"
    assert isinstance(output, BridgedOutput) or not output.writable, "the sender owes the room"
    left: list[str] = []
    for _ in range(count + 1):
        drain(input_, left)
        output.flush()
        run()
    assert [int(value.partition(" ")[0]) for value in left] == [*range(count), 1000], "what was overtaken stays"
    assert output.writable


def test_many_barriers_do_not_fill_the_memory_of_a_receiver_that_stands_still(ends: Ends) -> None:
    output, input_, run = ends
    fill(output, run)
    sizes = []
    for number in range(1, 8):
        barrier(number, output, run)
        ahead = input_.barrier_ahead()
        assert isinstance(ahead, Barrier)
        input_.overtaken(ahead)
        run()
        if output.writable:
            fill(output, run)
        sizes.append((input_._channel if isinstance(input_, BridgedInput) else input_).queued_bytes)
    assert sizes[-1] == sizes[1], sizes


def test_a_barrier_that_nobody_takes_holds_nothing_up(ends: Ends) -> None:
    output, input_, run = ends
    count = fill(output, run)
    sent = barrier(1, output, run)
    output.write(batch_of("1000 behind"))
    output.end()
    run()
    got: list[object] = []
    for _ in range(4 * count):
        item = input_.poll()
        got += [int(value.partition(" ")[0]) for value in item.values] if isinstance(item, Batch) else [item]
        run()
    assert [item for item in got if item is not None] == [*range(count), sent, 1000, END_OF_INPUT]


def test_the_reader_is_told_of_a_barrier_that_is_not_far_behind_it(ends: Ends) -> None:
    """A bridge has handed it over before: it waits with the task, behind a few batches."""
    output, input_, run = ends
    seen: list[bool] = []
    input_.on_barrier = lambda: seen.append(True)
    output.write(batch_of("0 first"))
    output.flush()
    run()
    sent = barrier(1, output, run)
    assert seen
    ahead = input_.barrier_ahead()
    assert ahead == sent
    assert isinstance(ahead, Barrier)
    assert numbers(input_.overtaken(ahead)) == [0]


def test_a_barrier_that_may_not_overtake_hides_what_follows(ends: Ends) -> None:
    output, input_, run = ends
    savepoint = Barrier(1, 0)
    output.write(batch_of("0 first"))
    output.send(savepoint)
    output.write(batch_of("1 second"))
    sent = barrier(2, output, run)
    assert input_.barrier_ahead() is None
    left: list[object] = []
    while savepoint not in left:
        left.append(input_.poll())
        run()
    ahead = input_.barrier_ahead()
    assert ahead == sent
    assert isinstance(ahead, Barrier)
    assert numbers(input_.overtaken(ahead)) == [1]


def test_a_barrier_that_is_discarded_shows_the_next(ends: Ends) -> None:
    output, input_, run = ends
    output.write(batch_of("0 first"))
    first = barrier(1, output, run)
    second = barrier(2, output, run)
    ahead = input_.barrier_ahead()
    assert ahead == first
    assert isinstance(ahead, Barrier)
    input_.discard(ahead)
    assert input_.barrier_ahead() == second


class Unreadable:
    """Can be pickled, and not unpickled."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def test_what_cannot_be_read_at_a_barrier_fails_its_reader_and_no_frame_is_lost(two: Slots) -> None:
    """The barrier comes in the middle of what the link reads, and so do frames of other channels behind it."""
    two.configure(window=WINDOW)
    output, others = two["a"].output(0, 0, 0, "b", 100), two["a"].output(1, 0, 0, "b", 100)
    channel, other = two["b"].input(0, 0, 0, "a"), two["b"].input(1, 0, 0, "a")
    woken: list[bool] = []
    inputs = ChannelInputs([(channel, 0)], lambda: woken.append(True), clock=two.clock)
    two.run()
    output.write(Batch([Unreadable()]))
    output.send(Barrier(1, 0, NOW))
    output.flush()
    output.hurry()
    for number in range(5):
        others.write(batch_of(f"{number} behind"))
        others.flush()
    two.run()
    assert [item for batch in polled(other) for item in numbers([batch])] == list(range(5))
    assert woken
    inputs.look_ahead()
    arrived = inputs.overtake()
    assert arrived is not None
    with pytest.raises(SerializationError, match="no number"):
        inputs.log_in_flight(InFlightLog(1, Out(), lambda: None), ())


def test_what_cannot_be_read_at_the_barrier_of_a_second_channel_fails_its_reader_and_not_the_link(two: Slots) -> None:
    """It is read for the log of the first one's barrier, in a step of the task and not while frames are taken."""
    two.configure(window=WINDOW)
    first, second = two["a"].output(0, 0, 0, "b", 100), two["a"].output(1, 0, 0, "b", 100)
    channels = [(two["b"].input(0, 0, 0, "a"), 0), (two["b"].input(1, 0, 0, "a"), 0)]
    inputs = ChannelInputs(channels, lambda: None, clock=two.clock)
    two.run()
    barrier(1, first, two.run)
    inputs.look_ahead()
    assert inputs.overtake() is not None
    inputs.log_in_flight(InFlightLog(1, Out(), lambda: None), ())
    second.write(Batch([Unreadable()]))
    barrier(1, second, two.run)
    assert two.failures["b"] == []
    with pytest.raises(SerializationError, match="no number"):
        inputs.look_ahead()


def test_a_bug_in_the_code_that_takes_a_frame_is_reported_and_the_frames_behind_it_are_read(two: Slots) -> None:
    two.configure(window=WINDOW)
    output, others = two["a"].output(0, 0, 0, "b", 100), two["a"].output(1, 0, 0, "b", 100)
    channel, other = two["b"].input(0, 0, 0, "a"), two["b"].input(1, 0, 0, "a")
    two.run()
    channel.on_barrier = lambda: [][0]
    output.send(Barrier(1, 0, NOW))
    for number in range(5):
        others.write(batch_of(f"{number} behind"))
        others.flush()
    two.run()
    assert [item for batch in polled(other) for item in numbers([batch])] == list(range(5))
    assert [type(error) for error in two.failures["b"]] == [IndexError]


def polled(channel: InputChannel) -> list[Batch]:
    """The batches that are there."""
    return [item for item in iter(channel.poll, None) if isinstance(item, Batch)]


class Out:
    def data(self, part: int, data: bytes) -> None: ...


def test_the_end_is_hurried_as_a_barrier_is(ends: Ends) -> None:
    output, input_, run = ends
    count = fill(output, run)
    output.end()
    output.hurry()
    run()
    end = input_.barrier_ahead()
    assert isinstance(end, EndOfInput)
    assert numbers(input_.overtaken(end)) == list(range(count))
    left: list[object] = []
    for _ in range(count):
        drain(input_, left)
        run()
    assert len(left) == count


def test_an_overdraft_behind_the_end_is_refused(two: Slots) -> None:
    two.configure()
    output, input_ = two["a"].output(0, 0, 0, "b", 100), two["b"].input(0, 0, 0, "a")
    two.run()
    output.end()
    two.run()
    assert isinstance(input_, RemoteInputChannel)
    with pytest.raises(ProtocolError, match="an overdraft after the end"):
        input_.overdrawn(10)
