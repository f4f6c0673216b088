"""Partitions of topics: how a source subscribes to them, splits that stand for them, and subtasks that read them."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from firesteel.core.errors import CheckpointVersionError, ProgramError
from firesteel.functions.splits import Split

__all__ = ["KafkaTopicPartition", "Subscription", "UnknownTopicError"]

SPLIT_VERSION: Final = 1


@dataclass(frozen=True, order=True)
class KafkaTopicPartition:
    """A partition of a topic.

    Raises:
        TypeError: the topic is no text, or is empty.
        ValueError: the partition is no number from 0 on.

    Examples:
        ```python
        from firesteel.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaTopicPartition

        start = KafkaOffsetsInitializer.offsets({KafkaTopicPartition("orders", 0): 42})
        ```
    """

    topic: str
    partition: int

    def __post_init__(self) -> None:
        if not isinstance(self.topic, str) or not self.topic:
            raise TypeError(f"the topic of a KafkaTopicPartition is a name, not {self.topic!r}")
        if type(self.partition) is not int or self.partition < 0:
            raise ValueError(f"the partition of a KafkaTopicPartition is a number from 0 on, not {self.partition!r}")

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class UnknownTopicError(ProgramError):
    """A topic or partition that the program names does not exist.

    Attributes:
        missing: descriptions of what does not exist.
        where: addresses of brokers.
    """

    def __init__(self, missing: Sequence[str], where: str) -> None:
        super().__init__(
            f"Kafka at {where} has no {', '.join(missing)}: create what is missing, or subscribe by "
            "set_topic_pattern(), which takes topics when they appear"
        )
        self.missing, self.where = tuple(missing), where

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.missing, self.where)


@dataclass(frozen=True)
class Subscription:
    """What a source reads: topics, or all topics whose names match a pattern, or partitions. Only one of these is set.

    Attributes:
        topics: names of topics.
        pattern: regular expression that whole names match.
        partitions: single partitions.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[KafkaTopicPartition, ...] = ()

    def __contains__(self, partition: KafkaTopicPartition) -> bool:
        if self.partitions:
            return partition in self.partitions
        if self.pattern is not None:
            return re.fullmatch(self.pattern, partition.topic) is not None
        return partition.topic in self.topics

    @property
    def wanted_topics(self) -> tuple[str, ...] | None:
        """Topics to look for in Kafka; None = all that exist."""
        if self.pattern is not None:
            return None
        return tuple(dict.fromkeys([*self.topics, *(partition.topic for partition in self.partitions)]))

    def subscribed(self, counts: Mapping[str, int]) -> list[KafkaTopicPartition]:
        """Existing partitions that the source reads, in order.

        Args:
            counts: topic -> number of its partitions.
        """
        every = (KafkaTopicPartition(topic, n) for topic, count in sorted(counts.items()) for n in range(count))
        return [partition for partition in every if partition in self]

    def missing(self, counts: Mapping[str, int]) -> list[str]:
        """Descriptions of topics and partitions that are subscribed to by name and do not exist.

        Args:
            counts: topic -> number of its partitions.
        """
        if self.pattern is not None:
            return []
        missing = [f"topic {topic!r}" for topic in self.wanted_topics or () if topic not in counts]
        for topic, number in ((partition.topic, partition.partition) for partition in self.partitions):
            if topic in counts and number >= counts[topic]:
                missing.append(f"partition {number} of topic {topic!r} (it has {counts[topic]})")
        return missing

    def __str__(self) -> str:
        if self.partitions:
            return f"partitions {', '.join(map(str, self.partitions))}"
        if self.pattern is not None:
            return f"topics like {self.pattern!r}"
        return f"topics {', '.join(self.topics)}"


def split_of(partition: KafkaTopicPartition, start: int, stop: int | None) -> Split:
    """The split that stands for a partition; its position is the next offset to read.

    Args:
        partition: partition of a topic.
        start: first offset to read.
        stop: offset behind the last one to read; None = the split has no end.
    """
    data = {"topic": partition.topic, "partition": partition.partition, "start": start, "stop": stop}
    return Split(str(partition), data, None, SPLIT_VERSION)


def partition_of(split: Split) -> KafkaTopicPartition:
    """The partition that a split stands for.

    Raises:
        CheckpointVersionError: another release wrote the split.
    """
    if split.version != SPLIT_VERSION:
        raise CheckpointVersionError(
            "Kafka source",
            f"split {split.id!r} has version {split.version}, and this release reads version {SPLIT_VERSION}: go on "
            "with the one that wrote it",
        )
    data: Any = split.data
    return KafkaTopicPartition(str(data["topic"]), int(data["partition"]))


def owner_of(partition: KafkaTopicPartition, parallelism: int) -> int:
    """The subtask that reads a new partition: partitions go round, and each topic begins at another subtask."""
    begin = zlib.crc32(partition.topic.encode())
    return (begin + partition.partition) % parallelism


def texts(partitions: Iterable[KafkaTopicPartition], most: int = 20) -> str:
    """Names of partitions for messages, at most so many."""
    listed = sorted(partitions)
    shown = ", ".join(map(str, listed[:most]))
    return shown if len(listed) <= most else f"{shown} and {len(listed) - most} more"
