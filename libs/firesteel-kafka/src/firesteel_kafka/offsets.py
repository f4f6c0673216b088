"""Where a Kafka source begins and ends in each partition."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from firesteel.core.errors import ProgramError
from firesteel_kafka.partitions import KafkaTopicPartition, texts

__all__ = ["KafkaOffsetResetStrategy", "KafkaOffsetsInitializer", "OffsetLookup"]


class KafkaOffsetResetStrategy(Enum):
    """Where to go on if there is no offset to begin at, or no record at the offset any more.

    Examples:
        ```python
        from firesteel.datastream.connectors.kafka import KafkaOffsetResetStrategy, KafkaOffsetsInitializer

        start = KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.LATEST)  # where nothing is committed
        ```
    """

    LATEST = "latest"
    """Go on at the end."""
    EARLIEST = "earliest"
    """Go on at the first record that is still there."""
    NONE = "none"
    """Fail."""


class OffsetLookup(Protocol):
    """Looks offsets up in Kafka; each call blocks. Results leave out partitions that have no such offset."""

    def beginning(self, partitions: Collection[KafkaTopicPartition]) -> Mapping[KafkaTopicPartition, int]:
        """Offsets of the first records that exist."""

    def end(self, partitions: Collection[KafkaTopicPartition]) -> Mapping[KafkaTopicPartition, int]:
        """Offsets behind the last records; with ``read_committed`` before the first open transaction."""

    def at(self, partitions: Collection[KafkaTopicPartition], timestamp: int) -> Mapping[KafkaTopicPartition, int]:
        """Offsets of the first records that are not older than a time in epoch milliseconds."""

    def committed(self, partitions: Collection[KafkaTopicPartition]) -> Mapping[KafkaTopicPartition, int]:
        """Offsets that the group has committed."""


class _Kind(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"
    TIMESTAMP = "timestamp"
    OFFSETS = "offsets"


@dataclass(frozen=True)
class KafkaOffsetsInitializer:
    """Offsets to begin or to end at. Made by ``earliest()`` and the other factory methods.

    They are looked up once, when a partition is found for the first time, and are numbers in the checkpoint from then
    on. So a restart does not lose records that arrive behind "latest" before the first record was read.

    Examples:
        ```python
        from firesteel.datastream.connectors.kafka import KafkaOffsetResetStrategy, KafkaOffsetsInitializer

        start = KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.EARLIEST)
        since = KafkaOffsetsInitializer.timestamp(1_700_000_000_000)
        ```
    """

    _kind: _Kind
    reset: KafkaOffsetResetStrategy
    """Where to go on if an offset does not exist (any more)."""
    _timestamp: int = 0
    _offsets: Mapping[KafkaTopicPartition, int] = field(default_factory=dict)

    @staticmethod
    def earliest() -> KafkaOffsetsInitializer:
        """The first records that exist."""
        return KafkaOffsetsInitializer(_Kind.EARLIEST, KafkaOffsetResetStrategy.EARLIEST)

    @staticmethod
    def latest() -> KafkaOffsetsInitializer:
        """The ends of partitions, behind their last records."""
        return KafkaOffsetsInitializer(_Kind.LATEST, KafkaOffsetResetStrategy.LATEST)

    @staticmethod
    def committed_offsets(
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> KafkaOffsetsInitializer:
        """Offsets that the group has committed.

        Args:
            offset_reset_strategy: where partitions begin that have no committed offset.
        """
        return KafkaOffsetsInitializer(_Kind.COMMITTED, _strategy(offset_reset_strategy))

    @staticmethod
    def timestamp(timestamp: int) -> KafkaOffsetsInitializer:
        """The first records that are not older than a time; the end of a partition that has none.

        Args:
            timestamp: time to compare the timestamps of records with, in epoch milliseconds.
        """
        if type(timestamp) is not int or timestamp < 0:
            raise ProgramError(f"KafkaOffsetsInitializer.timestamp() takes epoch milliseconds, not {timestamp!r}")
        return KafkaOffsetsInitializer(_Kind.TIMESTAMP, KafkaOffsetResetStrategy.LATEST, timestamp)

    @staticmethod
    def offsets(
        offsets: Mapping[KafkaTopicPartition, int],
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST,
    ) -> KafkaOffsetsInitializer:
        """Offsets that the program names.

        Args:
            offsets: offset of each partition.
            offset_reset_strategy: where other partitions begin.
        """
        for partition, offset in offsets.items():
            if not isinstance(partition, KafkaTopicPartition) or type(offset) is not int or offset < 0:
                raise ProgramError(
                    "KafkaOffsetsInitializer.offsets() takes a dict of KafkaTopicPartition -> offset from 0 on, not "
                    f"{partition!r}: {offset!r}"
                )
        strategy = _strategy(offset_reset_strategy)
        return KafkaOffsetsInitializer(_Kind.OFFSETS, strategy, _offsets=dict(offsets))

    @property
    def needs_group(self) -> bool:
        """Whether offsets are those of a group, whose id the source then needs."""
        return self._kind is _Kind.COMMITTED

    @property
    def partitions(self) -> Collection[KafkaTopicPartition]:
        """Partitions whose offsets the program names."""
        return self._offsets.keys()

    def find(self, partitions: Collection[KafkaTopicPartition], lookup: OffsetLookup) -> dict[KafkaTopicPartition, int]:
        """Look up the offset of each partition. Blocks.

        Raises:
            ProgramError: a partition has no such offset, and the reset strategy is NONE.
            ConnectionError: Kafka has not answered for all partitions.
        """
        if self._kind is _Kind.EARLIEST:
            return _complete(partitions, lookup.beginning(partitions))
        if self._kind is _Kind.LATEST:
            return _complete(partitions, lookup.end(partitions))
        if self._kind is _Kind.TIMESTAMP:
            offsets = dict(lookup.at(partitions, self._timestamp))
        elif self._kind is _Kind.COMMITTED:
            offsets = dict(lookup.committed(partitions))
        else:
            offsets = {partition: offset for partition, offset in self._offsets.items() if partition in partitions}
        undecided = [partition for partition in partitions if partition not in offsets]
        if undecided:
            if self.reset is KafkaOffsetResetStrategy.NONE:
                missing = "committed offset" if self._kind is _Kind.COMMITTED else "given offset"
                raise ProgramError(
                    f"there is no {missing} for {texts(undecided)}, and the reset strategy is NONE: give "
                    "KafkaOffsetsInitializer another KafkaOffsetResetStrategy to begin there all the same"
                )
            earliest = self.reset is KafkaOffsetResetStrategy.EARLIEST
            offsets.update(_complete(undecided, lookup.beginning(undecided) if earliest else lookup.end(undecided)))
        return offsets


def _strategy(strategy: KafkaOffsetResetStrategy) -> KafkaOffsetResetStrategy:
    if not isinstance(strategy, KafkaOffsetResetStrategy):
        raise TypeError(f"the reset strategy is a KafkaOffsetResetStrategy, not {strategy!r}")
    return strategy


def _complete(
    partitions: Collection[KafkaTopicPartition], offsets: Mapping[KafkaTopicPartition, int]
) -> dict[KafkaTopicPartition, int]:
    """The offsets, after a check that there is one for each partition."""
    silent = [partition for partition in partitions if partition not in offsets]
    if silent:
        raise ConnectionError(f"Kafka gave no offsets for {texts(silent)}")
    return dict(offsets)
