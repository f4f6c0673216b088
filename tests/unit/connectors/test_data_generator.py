"""A generator with a rate."""

from __future__ import annotations

from firesteel.connectors.data_generator import DataGeneratorSource, RateLimiterStrategy
from firesteel.connectors.split_reader import Chunk
from firesteel.functions.source import Split, Wait
from firesteel.testing.clock import ManualClock
from firesteel.testing.source_conformance import ReaderStub


def times_of(rate: float, seconds: float) -> list[tuple[float, list[int]]]:
    """When a reader that is polled at once, and after each pause, gives which records."""
    clock = ManualClock()
    source = DataGeneratorSource(lambda i: i, None, RateLimiterStrategy.per_second(rate))
    cursor = source.create_reader(ReaderStub(0, 1, clock)).open_split(Split("a", {"start": 0, "end": 10**6}))
    given = []
    while clock.monotonic() < seconds:
        read = cursor.read(1000)
        if isinstance(read, Wait):
            assert read.seconds is not None
            assert read.seconds > 0
            clock.advance(read.seconds)
        else:
            assert isinstance(read, Chunk)
            given.append((round(clock.monotonic(), 3), list(read.values)))
    return given


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
