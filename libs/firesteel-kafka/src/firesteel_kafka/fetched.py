"""Reads batches of records as brokers send them, without an object of our own for each record."""

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
"""Batches of older formats have records only: no transactions, and no control records."""


class Piece:
    """Some records of a partition, in order.

    Args:
        records: records of aiokafka, with growing offsets.
        next_offset: offset behind the last record, and behind what was left out, such as aborted transactions.
    """

    def __init__(self, records: list[Any], next_offset: int) -> None:
        self.records, self.next_offset = records, next_offset

    def __len__(self) -> int:
        return len(self.records)

    def timestamps(self) -> npt.NDArray[np.int64]:
        """Timestamp of each record in epoch milliseconds."""
        return np.fromiter((record.timestamp for record in self.records), np.int64, len(self.records))

    def until(self, stop: int) -> Piece:
        """The records before an offset."""
        if self.next_offset <= stop:
            return self
        return Piece([record for record in self.records if record.offset < stop], stop)


class Fetched:
    """The part of a broker's answer that belongs to one partition.

    Args:
        partition: partition of a topic.
        data: batches as bytes.
        aborted: producer id and first offset of aborted transactions in the batches.
        offset: offset that was asked for; the first batch may begin before it.
        read_committed: leave the records of aborted transactions out.
        check_crcs: refuse damaged batches.

    Attributes:
        next_offset: offset behind all batches.
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
        self._aborted = deque(sorted(aborted, key=lambda transaction: transaction[1]))
        """Aborted transactions that begin behind the batches read so far, by their first offset."""
        self._aborting: set[int] = set()
        """Producers whose transaction at this place is an aborted one."""
        self._batches: deque[Any] = deque()
        self._rest: list[Any] = []
        """Remaining records of a batch of which some were taken."""
        self._behind = offset
        """Offset behind that batch."""
        while data.has_next():
            batch = data.next_batch()
            self._batches.append(batch)
            self.next_offset = max(self.next_offset, int(batch.next_offset))

    @property
    def over(self) -> bool:
        """Whether all records were taken."""
        return not self._batches and not self._rest

    def take(self, most: int) -> Piece:
        """The next records; fewer than ``most`` where the next batch has more than fit.

        Raises:
            MalformedDataError: the next batch is damaged.
        """
        records: list[Any] = []
        while not self.over:
            if not self._rest:
                batch = self._batches[0]
                self._rest = self._opened(batch)
                self._batches.popleft()
                self._behind = int(batch.next_offset)
            room = most - len(records)
            if len(self._rest) > room:
                if room > 0:
                    records += self._rest[:room]
                    self._rest = self._rest[room:]
                break
            if records:
                records += self._rest
            else:
                records = self._rest
            self._rest = []
            self._offset = max(self._offset, self._behind)
        if self._rest:
            self._offset = max(self._offset, int(self._rest[0].offset))
        return Piece(records, self._offset)

    def _opened(self, batch: Any) -> list[Any]:
        """Records of a batch that the source shall see."""
        if self._check and not batch.validate_crc():
            raise self._damaged("its checksum is wrong", self._offset)
        if batch.magic >= _OLD_FORMAT and self._left_out(batch):
            return []
        try:
            records = list(batch)
        except Exception as error:  # decompression raises errors of many kinds
            raise self._damaged(f"{type(error).__name__}: {error}", self._offset) from error
        if records and records[0].offset < self._offset:
            return [record for record in records if record.offset >= self._offset]
        return records

    def _left_out(self, batch: Any) -> bool:
        """Whether a batch is invisible: control records, or records of an aborted transaction."""
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
