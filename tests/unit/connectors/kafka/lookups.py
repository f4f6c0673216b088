"""A Kafka that answers what a test says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from types import TracebackType

from firesteel_kafka.partitions import KafkaTopicPartition


class FakeCluster:
    """Partitions with their first offset and the one behind the last, offsets of a group and by time.

    Attributes:
        trouble: raised when it is asked for topics.
    """

    def __init__(
        self,
        bounds: Mapping[KafkaTopicPartition, tuple[int, int]],
        group: Mapping[KafkaTopicPartition, int] | None = None,
        by_time: Mapping[KafkaTopicPartition, int] | None = None,
    ) -> None:
        self.bounds = dict(bounds)
        self._group, self._by_time = group or {}, by_time or {}
        self.trouble: BaseException | None = None
        self.wanted: list[Sequence[str] | None] = []

    def __enter__(self) -> FakeCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def topics(self, names: Sequence[str] | None) -> Mapping[str, int]:
        self.wanted.append(names)
        if self.trouble is not None:
            raise self.trouble
        return dict(Counter(partition.topic for partition in self.bounds))

    def beginning(self, partitions: Collection[KafkaTopicPartition]) -> Mapping[KafkaTopicPartition, int]:
        return {partition: self.bounds[partition][0] for partition in partitions if partition in self.bounds}

    def end(self, partitions: Collection[KafkaTopicPartition]) -> Mapping[KafkaTopicPartition, int]:
        return {partition: self.bounds[partition][1] for partition in partitions if partition in self.bounds}

    def at(self, partitions: Collection[KafkaTopicPartition], timestamp: int) -> Mapping[KafkaTopicPartition, int]:
        return {partition: self._by_time[partition] for partition in partitions if partition in self._by_time}

    def committed(self, partitions: Collection[KafkaTopicPartition]) -> Mapping[KafkaTopicPartition, int]:
        return {partition: self._group[partition] for partition in partitions if partition in self._group}
