"""Partitions of topics, as splits of a source, and which of them a source reads."""

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
        TypeError, ValueError: the topic is no name, or the partition no number from 0 on.
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
        missing: their names.
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
    """What a source reads: topics, or all topics whose whole names match a pattern, or partitions; one of these.

    Attributes:
        topics: names.
        pattern: a regular expression.
        partitions: some of some topics.
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
        """The topics to ask for; None = all that there are."""
        if self.pattern is not None:
            return None
        return tuple(dict.fromkeys([*self.topics, *(one.topic for one in self.partitions)]))

    def of(self, found: Mapping[str, int]) -> list[KafkaTopicPartition]:
        """The partitions to read, in order.

        Args:
            found: topic -> number of its partitions, of the topics that were asked for.
        """
        every = (KafkaTopicPartition(topic, n) for topic, count in sorted(found.items()) for n in range(count))
        return [partition for partition in every if partition in self]

    def missing(self, found: Mapping[str, int]) -> list[str]:
        """What is named and does not exist."""
        if self.pattern is not None:
            return []
        gone = [f"topic {topic!r}" for topic in self.wanted_topics or () if topic not in found]
        for one in self.partitions:
            if one.topic in found and one.partition >= found[one.topic]:
                gone.append(f"partition {one.partition} of topic {one.topic!r} (it has {found[one.topic]})")
        return gone

    def __str__(self) -> str:
        if self.partitions:
            return f"partitions {', '.join(map(str, self.partitions))}"
        if self.pattern is not None:
            return f"topics like {self.pattern!r}"
        return f"topics {', '.join(self.topics)}"


def split_of(partition: KafkaTopicPartition, start: int, stop: int | None) -> Split:
    """A partition as a split; its position is the next offset.

    Args:
        partition: of a topic.
        start: first offset.
        stop: behind the last one; None = it has no end.
    """
    data = {"topic": partition.topic, "partition": partition.partition, "start": start, "stop": stop}
    return Split(str(partition), data, None, SPLIT_VERSION)


def partition_of(split: Split) -> KafkaTopicPartition:
    """The partition of a split.

    Raises:
        CheckpointVersionError: the split is of another version of this source.
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
    """The subtask that reads a new partition: those of a topic go round, topics begin at different subtasks."""
    begin = zlib.crc32(partition.topic.encode())
    return (begin + partition.partition) % parallelism


def texts(partitions: Iterable[KafkaTopicPartition], most: int = 20) -> str:
    """Their names, for messages."""
    listed = sorted(partitions)
    shown = ", ".join(map(str, listed[:most]))
    return shown if len(listed) <= most else f"{shown} and {len(listed) - most} more"
