"""Batches of records as a broker sends them, and a consumer that gives them without one."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Collection, Mapping, Sequence

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from firesteel_kafka.consumer import OffsetGoneError, PartitionConsumer
from firesteel_kafka.fetched import Fetched
from firesteel_kafka.partitions import KafkaTopicPartition

Message = tuple[bytes | None, bytes | None]
"""Key and value."""
ABORT, COMMIT = 0, 1
_BASE_OFFSET = slice(0, 8)


def batch(
    offset: int,
    values: Sequence[bytes | None],
    *,
    codec: int = 0,
    producer: int = -1,
    transactional: bool = False,
    timestamp: int = 1_000,
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[tuple[str, bytes]] = (),
) -> bytes:
    """A batch whose first record has this offset; timestamps go up by one."""
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=codec, is_transactional=int(transactional), producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1, base_sequence=0 if producer >= 0 else -1, batch_size=1 << 24,
    )  # fmt: skip
    for number, value in enumerate(values):
        key = None if keys is None else keys[number]
        builder.append(number, timestamp + number, key, value, list(headers))
    data = bytearray(builder.build())
    data[_BASE_OFFSET] = struct.pack(">q", offset)  # the checksum does not cover it
    return bytes(data)


def marker(offset: int, producer: int, kind: int) -> bytes:
    """The end of a transaction."""
    from aiokafka.record.util import calc_crc32c

    data = bytearray(
        batch(
            offset,
            [struct.pack(">hi", 0, 0)],
            keys=[struct.pack(">hh", 0, kind)],
            producer=producer,
            transactional=True,
        )
    )
    attributes = struct.unpack_from(">h", data, 21)[0] | 0x20
    struct.pack_into(">h", data, 21, attributes)
    struct.pack_into(">I", data, 17, calc_crc32c(bytes(data[21:])))
    return bytes(data)


def fetched(
    data: bytes,
    offset: int = 0,
    partition: KafkaTopicPartition | None = None,
    aborted: Sequence[tuple[int, int]] = (),
    *,
    read_committed: bool = True,
) -> Fetched:
    """What came for a request at an offset."""
    records = MemoryRecords(data)
    return Fetched(partition or KafkaTopicPartition("t", 0), records, aborted, offset, read_committed=read_committed)


class FakeConsumer(PartitionConsumer):
    """Partitions in memory: a list of batches each, which a fetch gives one of.

    Attributes:
        logs: partition -> batches.
        first: partition -> its first offset.
        away: no call is answered.
        commits: what was committed.
        grown: partition -> its end, where more was written than a fetch has told.
    """

    def __init__(self, logs: Mapping[KafkaTopicPartition, Sequence[bytes]]) -> None:
        self.logs = {partition: list(batches) for partition, batches in logs.items()}
        self.first: dict[KafkaTopicPartition, int] = {}
        self.at: dict[KafkaTopicPartition, int] = {}
        self.paused: set[KafkaTopicPartition] = set()
        self.away = self.refuses_commits = False
        self.commits: list[dict[KafkaTopicPartition, int]] = []
        self.started = self.stopped = 0
        self.silent: dict[KafkaTopicPartition, float] = {}
        self.grown: dict[KafkaTopicPartition, int] = {}
        self.known_ends: dict[KafkaTopicPartition, int] = {}
        self.fetches: list[set[KafkaTopicPartition]] = []

    async def start(self) -> None:
        self.started += 1
        if self.away:
            raise ConnectionError("nobody there")

    async def stop(self) -> None:
        self.stopped += 1

    def assign(self, offsets: Mapping[KafkaTopicPartition, int]) -> None:
        self.at = dict(offsets)
        self.paused = set()

    def seek(self, partition: KafkaTopicPartition, offset: int) -> None:
        self.at[partition] = offset

    def pause(self, partition: KafkaTopicPartition) -> None:
        self.paused.add(partition)

    def resume(self, partition: KafkaTopicPartition) -> None:
        self.paused.discard(partition)

    async def fetch(
        self, partitions: Collection[KafkaTopicPartition], seconds: float, changed: asyncio.Event
    ) -> list[tuple[KafkaTopicPartition, Fetched]]:
        self.fetches.append(set(partitions))
        answers = []
        for partition in partitions:
            assert partition not in self.paused
            at = self.at[partition]
            if at < self.first.get(partition, 0) or at > self.behind(partition):
                raise OffsetGoneError(partition, at)
            for data in self.logs.get(partition, ()):
                if next_offset(data) > at:
                    answer = fetched(data, at, partition)
                    self.at[partition] = answer.next_offset
                    answers.append((partition, answer))
                    break
        if not answers:
            await asyncio.sleep(0)
        return answers

    def behind(self, partition: KafkaTopicPartition) -> int:
        batches = self.logs.get(partition, ())
        return next_offset(batches[-1]) if batches else 0

    def end(self, partition: KafkaTopicPartition) -> int | None:
        return self.known_ends.get(partition, self.behind(partition))

    async def look_up_ends(self, partitions: Collection[KafkaTopicPartition]) -> None:
        if self.away:
            raise ConnectionError("nobody there")
        self.known_ends.update({partition: self.grown.get(partition, 0) for partition in partitions})

    def answered(self, partition: KafkaTopicPartition) -> float | None:
        return self.silent.get(partition, 0.0)

    async def bounds(self, partition: KafkaTopicPartition) -> tuple[int, int]:
        return self.first.get(partition, 0), self.behind(partition)

    async def commit(self, offsets: Mapping[KafkaTopicPartition, int]) -> None:
        if self.refuses_commits:
            raise RuntimeError("a stranger owns the group")
        self.commits.append(dict(offsets))


def next_offset(data: bytes) -> int:
    """Behind the last record of a batch."""
    base, delta = struct.unpack_from(">q", data, 0)[0], struct.unpack_from(">i", data, 23)[0]
    return int(base + delta + 1)
