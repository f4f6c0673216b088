"""What waits in front of a slow reader is bounded by the time that it needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from firesteel.runtime.exchange.channels import InputChannel, OutputChannel
from firesteel.runtime.exchange.flow_control import FIRST_BYTES, TimedLimit
from tests.unit.exchange.support import ManualClock, Slots, batch_of, slots

WINDOW = 1 << 20
RECORD = "x" * 90
"""About a hundred bytes on the wire."""


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Slots]:
    with slots(tmp_path) as three_slots:
        yield three_slots.configure(window=WINDOW, in_flight_seconds=1.0)


def ends(two: Slots, receiver: str) -> tuple[OutputChannel, InputChannel]:
    """A channel from slot a to itself, or to another one."""
    return two["a"].output(0, 0, 0, receiver, 100), two[receiver].input(0, 0, 0, "a")


def in_flight(two: Slots, receiver: str, seconds_per_record: float, records: int) -> int:
    """How many records wait when so many were read, while the sender writes whatever it may."""
    output, input_ = ends(two, receiver)
    written = read = 0
    two.run()
    while read < records:
        while output.writable:
            output.write(batch_of(*[RECORD] * 5))
            written += 5
        output.flush()
        two.run()
        batch = input_.poll()
        if batch is not None:
            count = len(batch)  # type: ignore[arg-type] # nothing but batches was sent
            read += count
            two.clock.now += count * seconds_per_record
        two.run()
    return written - read


@pytest.mark.parametrize("receiver", ["a", "b"])
@pytest.mark.parametrize("seconds_per_record", [0.012, 0.002])
def test_a_slow_reader_has_about_a_second_of_work_in_front_of_it(
    two: Slots, receiver: str, seconds_per_record: float
) -> None:
    waiting = in_flight(two, receiver, seconds_per_record, 4000) * seconds_per_record
    assert 0.1 < waiting < 2.5


def test_without_a_target_the_window_alone_counts(two: Slots) -> None:
    two.configure(window=WINDOW, in_flight_seconds=0.0)
    assert in_flight(two, "b", 0.012, 1) * 0.012 > 100


@pytest.mark.parametrize("receiver", ["a", "b"])
def test_a_fast_reader_gets_the_whole_window(two: Slots, receiver: str) -> None:
    output, input_ = ends(two, receiver)
    two.run()
    for _ in range(20):
        while output.writable:
            output.write(batch_of(*[RECORD] * 50))
        output.flush()
        two.run()
        while input_.poll() is not None:
            two.run()
    for _ in range(4):
        while output.writable:
            output.write(batch_of(*[RECORD] * 50))
        two.run()
    waiting = output.queued_bytes + (input_.queued_bytes if receiver == "b" else 0)
    assert waiting >= input_.window


def test_the_limit_follows_the_rate_and_grows_when_the_reader_finds_nothing() -> None:
    clock = ManualClock()
    limit = TimedLimit(clock, 1.0)
    assert limit.bytes == FIRST_BYTES
    for _ in range(100):
        clock.now += 0.1
        limit.took(10_000)
    assert limit.bytes == pytest.approx(50_000, rel=0.01), "half of what is read in a second, at each of both ends"
    for _ in range(100):
        clock.now += 0.1
        limit.took(1_000)
    assert limit.bytes == pytest.approx(5_000, rel=0.01)
    for _ in range(100):
        limit.took(1_000)
        clock.now += 0.01
        limit.starved()
        limit.starved()
        clock.now += 3600
    assert limit.bytes == pytest.approx(50_000, rel=0.15), "a time without records says nothing"


def test_a_reader_that_found_nothing_for_long_has_no_more_in_front_of_it_when_a_flood_comes() -> None:
    """Records that trickle are worked off at once: that says nothing about how many may wait."""
    clock = ManualClock()
    limit = TimedLimit(clock, 1.0)
    for _ in range(1000):
        limit.took(10)
        clock.now += 0.012
        limit.starved()
        clock.now += 0.05
    assert limit.bytes == pytest.approx(10 / 0.012 / 2, rel=0.05)


def test_a_few_quick_records_among_slow_ones_prove_nothing() -> None:
    clock = ManualClock()
    limit = TimedLimit(clock, 1.0)
    for number in range(2000):
        limit.took(10)
        clock.now += 0.00001 if number % 3 else 0.012
        limit.starved()
    assert limit.bytes < 2 * 10 * 3 / 0.012 / 2


def test_a_reader_that_stands_still_keeps_a_record_and_recovers() -> None:
    clock = ManualClock()
    limit = TimedLimit(clock, 1.0)
    limit.took(1000)
    clock.now += 6000
    limit.took(1000)
    assert limit.bytes == 1
    for _ in range(400):
        clock.now += 0.001
        limit.took(10_000)
        limit.starved()
    assert limit.bytes > WINDOW
