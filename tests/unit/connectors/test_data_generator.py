"""A generator with a rate."""

from __future__ import annotations

import math

import pytest

from firesteel.connectors.data_generator import DataGeneratorSource, RateLimiterStrategy
from firesteel.connectors.split_reader import Chunk, SplitCursor
from firesteel.core.errors import ProgramError
from firesteel.functions.source import Split, Wait
from firesteel.testing.clock import ManualClock
from firesteel.testing.source_conformance import ReaderStub


def cursor_of(rate: float, split: Split, clock: ManualClock, parallelism: int = 1) -> SplitCursor[int]:
    source = DataGeneratorSource(lambda i: i, None, RateLimiterStrategy.per_second(rate))
    return source.create_reader(ReaderStub(0, parallelism, clock)).open_split(split)


def times_of(rate: float, seconds: float) -> list[tuple[float, list[int]]]:
    """When a reader that is polled at once, and after each pause, gives which records."""
    clock = ManualClock()
    cursor = cursor_of(rate, Split("a", {"start": 0, "end": 10**6}), clock)
    emitted = []
    while clock.monotonic() < seconds:
        read = cursor.read(1000)
        if isinstance(read, Wait):
            assert read.seconds is not None
            assert read.seconds > 0
            clock.advance(read.seconds)
        else:
            assert isinstance(read, Chunk)
            emitted.append((round(clock.monotonic(), 3), list(read.values)))
    return emitted


def test_few_records_come_one_by_one() -> None:
    assert times_of(4, 1.0) == [(0.0, [0]), (0.25, [1]), (0.5, [2]), (0.75, [3])]


def test_of_many_records_those_of_ten_milliseconds_come_at_once() -> None:
    first, *others = times_of(1000, 1.0)
    assert first == (0.0, [0])
    assert len(others) <= 100, "else a reader looks a thousand times a second"
    records = [record for _, several in others for record in several]
    assert records == list(range(1, len(records) + 1))
    assert 980 <= len(records) <= 1000
    assert all(abs(at * 1000 - several[-1]) <= 1 for at, several in others), "none is late"


@pytest.mark.parametrize("rate", [0, -1, math.nan, -math.inf])
def test_a_rate_is_above_zero(rate: float) -> None:
    with pytest.raises(ProgramError, match="a rate must be above 0 records per second"):
        RateLimiterStrategy.per_second(rate)
    with pytest.raises(ProgramError, match="a rate must be above 0 records per second"):
        RateLimiterStrategy(rate)


@pytest.mark.parametrize("rate", [math.inf, 1e308, 1e9])
def test_a_rate_that_is_never_reached_is_no_limit(rate: float) -> None:
    clock = ManualClock()
    cursor = cursor_of(rate, Split("a", {"start": 2**62, "end": 2**63 - 1}), clock)
    clock.advance(100.0)
    assert [cursor.read(3), cursor.read(2)] == [
        Chunk([2**62, 2**62 + 1, 2**62 + 2], 2**62 + 3),
        Chunk([2**62 + 3, 2**62 + 4], 2**62 + 5),
    ]


def test_the_subtasks_share_a_low_rate_and_a_restored_split_goes_on_at_it() -> None:
    clock = ManualClock()
    cursor = cursor_of(0.001, Split("a", {"start": 0, "end": 8}, 6), clock, parallelism=4)
    assert cursor.read(10) == Chunk([6], 7)
    assert cursor.read(10) == Wait(4000.0)
    clock.advance(4000.0)
    assert cursor.read(10) == Chunk([7], 8, finished=True)
