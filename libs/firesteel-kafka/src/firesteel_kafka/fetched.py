"""Batches of records as brokers send them, taken apart without an object for each record that nobody asks for."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from aiokafka.record.control_record import ABORT_MARKER, ControlRecord
from aiokafka.record.memory_records import MemoryRecords

from firesteel.core.errors import MalformedDataError
from firesteel_kafka.partitions import KafkaTopicPartition

__all__ = ["Fetched", "Piece"]

_LOG_APPEND_TIME: Final = 1
_OLD_FORMAT: Final = 2
"""Batches of an older format than this have records only, and none of the fields below."""


class Piece:
    """Some records of a partition, in order.

    Args:
        records: of aiokafka; their offsets grow.
        next_offset: behind the last one; also behind what was left out, such as aborted transactions.
    """

    def __init__(self, records: list[Any], next_offset: int) -> None:
        self.records, self.next_offset = records, next_offset

    def __len__(self) -> int:
        return len(self.records)

    def values(self) -> list[bytes | None]:
        """Of each record."""
        return [record.value for record in self.records]

    def timestamps(self) -> npt.NDArray[np.int64]:
        """Of each record, epoch milliseconds."""
        return np.fromiter((record.timestamp for record in self.records), np.int64, len(self.records))

    def until(self, stop: int) -> Piece:
        """The records below an offset."""
        if self.next_offset <= stop:
            return self
        return Piece([record for record in self.records if record.offset < stop], stop)


class Fetched:
    """What one answer of a broker has of a partition.

    Args:
        partition: of a topic.
        data: the batches as bytes.
        aborted: (producer id, first offset) of aborted transactions in it; counts with ``read_committed`` only.
        offset: first one that was asked for; batches may begin before it.
        read_committed: leave aborted transactions out.
        check_crcs: refuse damaged batches.

    Attributes:
        next_offset: behind all of it.
    """

    def __init__(
        self,
        partition: KafkaTopicPartition,
        data: MemoryRecords,
        aborted: Sequence[tuple[int, int]],
        offset: int,
        *,
        read_committed: bool,
        check_crcs: bool = True,
    ) -> None:
        self._partition, self._check = partition, check_crcs
        self._read_committed = read_committed
        self._offset = self.next_offset = offset
        self._aborted = deque(sorted(aborted, key=lambda one: one[1]))
        self._aborting: set[int] = set()
        self._batches: deque[Any] = deque()
        self._rest: list[Any] = []
        """Records of a batch of which some were taken."""
        self._behind = offset
        """Behind that batch."""
        while data.has_next():
            batch = data.next_batch()
            self._batches.append(batch)
            self.next_offset = max(self.next_offset, int(batch.next_offset))

    @property
    def over(self) -> bool:
        """Whether nothing is left."""
        return not self._batches and not self._rest

    def take(self, most: int) -> Piece:
        """The next records; fewer than ``most`` where the next batch has more than fit.

        Raises:
            MalformedDataError: the next batch is damaged.
        """
        taken: list[Any] = []
        while not self.over:
            if not self._rest:
                batch = self._batches[0]
                self._rest = self._opened(batch)
                self._batches.popleft()
                self._behind = int(batch.next_offset)
            room = most - len(taken)
            if len(self._rest) > room:
                if room > 0:
                    taken += self._rest[:room]
                    self._rest = self._rest[room:]
                break
            if taken:
                taken += self._rest
            else:
                taken = self._rest
            self._rest = []
            self._offset = max(self._offset, self._behind)
        if self._rest:
            self._offset = max(self._offset, int(self._rest[0].offset))
        return Piece(taken, self._offset)

    def _opened(self, batch: Any) -> list[Any]:
        """The records of a batch that somebody is to see."""
        if self._check and not batch.validate_crc():
            raise self._damaged("its checksum is wrong", self._offset)
        if batch.magic >= _OLD_FORMAT and self._left_out(batch):
            return []
        try:
            records = list(batch)
        except Exception as error:  # of the decompression, too
            raise self._damaged(f"{type(error).__name__}: {error}", self._offset) from error
        if records and records[0].offset < self._offset:
            return [record for record in records if record.offset >= self._offset]
        return records

    def _left_out(self, batch: Any) -> bool:
        if self._read_committed:
            while self._aborted and self._aborted[0][1] <= batch.base_offset:
                self._aborting.add(self._aborted.popleft()[0])
        if not batch.is_control_batch:
            return bool(self._read_committed and batch.is_transactional and batch.producer_id in self._aborting)
        markers = [ControlRecord.parse(record.key) for record in batch]
        if ABORT_MARKER in markers:
            self._aborting.discard(batch.producer_id)
        return True

    def _damaged(self, reason: str, offset: int) -> MalformedDataError:
        return MalformedDataError(place(self._partition, offset), None, None, f"the batch can't be read: {reason}")


def place(partition: KafkaTopicPartition, offset: int) -> str:
    """Where a record is, for messages."""
    return f"topic {partition.topic!r}, partition {partition.partition}, offset {offset}"
