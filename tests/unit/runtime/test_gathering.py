"""Records on an edge with very many partitions are divided many at a time."""

from __future__ import annotations

import pyarrow as pa

from firesteel.graph.key_groups import KeyGroupAssigner
from firesteel.runtime.bounded import gathering
from firesteel.runtime.bounded.gathering import OF_A_PART, GatheringOutput
from firesteel.runtime.chain.partitioners import HashOutput, Routed
from firesteel.runtime.records.batch import Batch
from tests.unit.runtime.support import FakeOutput

CHANNELS = 8


def identity(value: int) -> int:
    return value


class Edge:
    def __init__(self) -> None:
        self.channels = [FakeOutput(number) for number in range(CHANNELS)]
        self.whole = [FakeOutput(number) for number in range(CHANNELS)]
        self.gathering = GatheringOutput(self.hashed(self.channels))
        self.direct = self.hashed(self.whole)

    def hashed(self, channels: list[FakeOutput]) -> HashOutput:
        return HashOutput("Map", channels, identity, KeyGroupAssigner(CHANNELS, 128))

    def feed(self, batch: Batch) -> int:
        """How many parts came of it."""
        for channel, part in self.direct.route(batch):
            channel.write(part)
        return self.written(self.gathering.route(batch))

    def written(self, routed: Routed) -> int:
        parts = list(routed)
        for channel, part in parts:
            channel.write(part)
        return len(parts)

    def check(self) -> None:
        self.written(self.gathering.drain())
        assert [channel.values for channel in self.channels] == [channel.values for channel in self.whole]
        assert [channel.timestamps for channel in self.channels] == [channel.timestamps for channel in self.whole]


def test_small_batches_are_divided_together() -> None:
    edge = Edge()
    most = OF_A_PART * CHANNELS
    parts = [edge.feed(Batch(list(range(start, start + 16)))) for start in range(0, 2 * most, 16)]
    assert sorted(parts)[-3:] == [0, CHANNELS, CHANNELS]
    edge.check()
    assert sum(len(channel.batches) for channel in edge.channels) == 2 * CHANNELS


def test_what_is_held_goes_before_batches_of_another_form() -> None:
    edge = Edge()
    edge.feed(Batch([1, 2, 3]))
    edge.feed(Batch([4, 5, 6], [40, 50, 60]))
    edge.feed(Batch([7, 8, 9]))
    edge.check()


def test_large_records_are_not_held_in_great_number() -> None:
    edge = Edge()
    large = b"x" * (gathering.MOST_BYTES // 4)
    texts = GatheringOutput(HashOutput("Map", edge.channels, len, KeyGroupAssigner(CHANNELS, 128)))
    parts = [edge.written(texts.route(Batch([large]))) for _ in range(8)]
    assert parts == [0, 0, 0, 1, 0, 0, 0, 1]


def test_columns_pass_behind_what_is_held() -> None:
    channel = FakeOutput()
    edge = Edge()
    single = GatheringOutput(HashOutput("Map", [channel, FakeOutput(1)], identity, KeyGroupAssigner(2, 128)))
    assert edge.written(single.route(Batch([1, 2, 3]))) == 0
    columns = Batch(pa.RecordBatch.from_pydict({"n": [4]}))
    routed = [part.values for _, part in single.route(columns)]
    assert sorted(value for part in routed[:-1] for value in part) == [1, 2, 3]
    assert len(routed[-1]) == 1
    assert not list(single.drain())


def test_nothing_is_left_of_a_task_that_ends() -> None:
    edge = Edge()
    edge.gathering.route(Batch([1, 2, 3]))
    edge.gathering.close()
    assert not list(edge.gathering.drain())
