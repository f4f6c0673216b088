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
    """What to do where there is no offset to begin with, or none at the offset any more."""

    LATEST = "latest"
    """Go on at the end."""
    EARLIEST = "earliest"
    """Go on at the first record that is still there."""
    NONE = "none"
    """Fail."""


class OffsetLookup(Protocol):
    """Asks Kafka for offsets; each call blocks. Partitions without an answer are left out of it."""

    def beginning(self, partitions: Collection[KafkaTopicPartition]) -> Mapping[KafkaTopicPartition, int]:
        """Offsets of the first records that are there."""

    def end(self, partitions: Collection[KafkaTopicPartition]) -> Mapping[KafkaTopicPartition, int]:
        """Offsets behind the last records; with ``read_committed`` behind the last ones that are decided."""

    def at(self, partitions: Collection[KafkaTopicPartition], timestamp: int) -> Mapping[KafkaTopicPartition, int]:
        """Offsets of the first records that are not older; epoch milliseconds."""

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
    on: what arrives behind "latest" before the first record was read is not lost by a restart.
    """

    _kind: _Kind
    reset: KafkaOffsetResetStrategy
    """What is done at an offset that is not there (any more)."""
    _timestamp: int = 0
    _offsets: Mapping[KafkaTopicPartition, int] = field(default_factory=dict)

    @staticmethod
    def earliest() -> KafkaOffsetsInitializer:
        """The first records that are there."""
        return KafkaOffsetsInitializer(_Kind.EARLIEST, KafkaOffsetResetStrategy.EARLIEST)

    @staticmethod
    def latest() -> KafkaOffsetsInitializer:
        """Behind the last records."""
        return KafkaOffsetsInitializer(_Kind.LATEST, KafkaOffsetResetStrategy.LATEST)

    @staticmethod
    def committed_offsets(
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> KafkaOffsetsInitializer:
        """Offsets that the group has committed.

        Args:
            offset_reset_strategy: for partitions without one.
        """
        return KafkaOffsetsInitializer(_Kind.COMMITTED, _strategy(offset_reset_strategy))

    @staticmethod
    def timestamp(timestamp: int) -> KafkaOffsetsInitializer:
        """The first record that is not older, by the timestamps of records; the end where there is none.

        Args:
            timestamp: epoch milliseconds.
        """
        if type(timestamp) is not int or timestamp < 0:
            raise ProgramError(f"KafkaOffsetsInitializer.timestamp() takes epoch milliseconds, not {timestamp!r}")
        return KafkaOffsetsInitializer(_Kind.TIMESTAMP, KafkaOffsetResetStrategy.LATEST, timestamp)

    @staticmethod
    def offsets(
        offsets: Mapping[KafkaTopicPartition, int],
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST,
    ) -> KafkaOffsetsInitializer:
        """These offsets.

        Args:
            offsets: by partition.
            offset_reset_strategy: for partitions that are not among them.
        """
        for partition, offset in offsets.items():
            if not isinstance(partition, KafkaTopicPartition) or type(offset) is not int or offset < 0:
                raise ProgramError(
                    "KafkaOffsetsInitializer.offsets() takes a dict of KafkaTopicPartition -> offset from 0 on, not "
                    f"{partition!r}: {offset!r}"
                )
        kept = dict(offsets)
        return KafkaOffsetsInitializer(_Kind.OFFSETS, _strategy(offset_reset_strategy), _offsets=kept)

    @property
    def needs_group(self) -> bool:
        """Whether a group id is needed."""
        return self._kind is _Kind.COMMITTED

    @property
    def partitions(self) -> Collection[KafkaTopicPartition]:
        """Partitions that are named."""
        return self._offsets.keys()

    def find(self, partitions: Collection[KafkaTopicPartition], lookup: OffsetLookup) -> dict[KafkaTopicPartition, int]:
        """The offset of each partition. Blocks.

        Raises:
            ProgramError: there is none, and the strategy is NONE.
            ConnectionError: Kafka did not answer for some.
        """
        if self._kind is _Kind.EARLIEST:
            return _all(partitions, lookup.beginning(partitions))
        if self._kind is _Kind.LATEST:
            return _all(partitions, lookup.end(partitions))
        if self._kind is _Kind.TIMESTAMP:
            found = dict(lookup.at(partitions, self._timestamp))
        elif self._kind is _Kind.COMMITTED:
            found = dict(lookup.committed(partitions))
        else:
            found = {one: offset for one, offset in self._offsets.items() if one in partitions}
        rest = [one for one in partitions if one not in found]
        if rest:
            if self.reset is KafkaOffsetResetStrategy.NONE:
                what = "committed offset" if self._kind is _Kind.COMMITTED else "given offset"
                raise ProgramError(
                    f"there is no {what} for {texts(rest)}, and the reset strategy is NONE: give "
                    "KafkaOffsetsInitializer another KafkaOffsetResetStrategy to begin there all the same"
                )
            earliest = self.reset is KafkaOffsetResetStrategy.EARLIEST
            found.update(_all(rest, lookup.beginning(rest) if earliest else lookup.end(rest)))
        return found


def _strategy(strategy: KafkaOffsetResetStrategy) -> KafkaOffsetResetStrategy:
    if not isinstance(strategy, KafkaOffsetResetStrategy):
        raise TypeError(f"the reset strategy is a KafkaOffsetResetStrategy, not {strategy!r}")
    return strategy


def _all(
    partitions: Collection[KafkaTopicPartition], found: Mapping[KafkaTopicPartition, int]
) -> dict[KafkaTopicPartition, int]:
    silent = [one for one in partitions if one not in found]
    if silent:
        raise ConnectionError(f"Kafka gave no offsets for {texts(silent)}")
    return dict(found)
