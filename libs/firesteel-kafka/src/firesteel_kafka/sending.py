"""Sends records in batches of one partition each. The caller's thread fills batches; a loop sends them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    InvalidProducerEpoch,
    KafkaError,
    KafkaTimeoutError,
    ProducerFenced,
    UnknownTopicOrPartitionError,
)
from aiokafka.partitioner import murmur2
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from firesteel.core.errors import FiresteelError, ProgramError
from firesteel_kafka.loop_thread import KafkaLoopThread
from firesteel_kafka.serialization import KafkaProducerRecord

__all__ = ["KafkaSendError", "Sending", "Sent"]

_WAIT_SECONDS: Final = 0.5
"""Longest wait for a notification, after which the age of the oldest batch is looked at."""
_MOST_KEYS: Final = 100_000
"""Keys whose partitions are remembered: murmur2 in Python costs more than the look-up."""
_NO_HEADERS: Final[list[tuple[str, bytes]]] = []


class KafkaSendError(FiresteelError):
    """Records could not be written to Kafka; the job goes on from its last checkpoint."""


@dataclass
class Sent:
    """Numbers for metrics.

    Attributes:
        records: records that were acknowledged, or sent if the guarantee asks for no acknowledgements.
        bytes: bytes of these records, as they went over the network.
        errors: batches that failed.
        last_ms: time until the last batch was acknowledged.
    """

    records: int = 0
    bytes: int = 0
    errors: int = 0
    last_ms: float = 0


@dataclass
class _Lane:
    """The batches of one partition.

    Attributes:
        open: batch that takes records; None = the next record opens one.
        full: closed batches that wait to be sent, each with its number.
        pumping: a coroutine sends the batches of this partition.
    """

    open: Any = None
    full: deque[tuple[Any, int]] = field(default_factory=deque)
    pumping: bool = False


class Sending:
    """Sends the records of one subtask.

    The caller's thread and the loop share the batches under the lock of ``_changed``. At most one coroutine sends the
    batches of a partition, so they are sent in order.

    Attributes:
        sent: totals since the start.
        first: topic, partition and offset of the record that was acknowledged first since ``use``. It is the first
            record that the producer has written to this partition.

    Args:
        thread: runs the loop of the producers.
        delivery_seconds: time after which a batch that is not acknowledged is an error.
        linger_seconds: time for which a batch that is not full waits for more records.
        memory: bytes that may wait to be acknowledged.
        largest: bytes of a record at most.
    """

    def __init__(
        self,
        thread: KafkaLoopThread,
        delivery_seconds: float,
        linger_seconds: float = 0,
        memory: int = 32 << 20,
        largest: int = 1 << 20,
    ) -> None:
        self._thread, self._delivery_seconds, self._linger_seconds = thread, delivery_seconds, linger_seconds
        self._memory, self._largest = memory, largest
        self.sent = Sent()
        self.first: tuple[str, int, int] | None = None
        self._changed = threading.Condition()
        self._producer: AIOKafkaProducer | None = None
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._partitions: dict[str, tuple[int, ...]] = {}
        self._partition_of_key: OrderedDict[tuple[str, bytes], int] = OrderedDict()
        self._sticky: dict[str, int] = {}
        """Topic -> partition that takes records without a key until its batch is closed."""
        self._outstanding: dict[int, tuple[int, float]] = {}
        """Number of a batch that is closed and not acknowledged -> its bytes, and when it was closed."""
        self._number = 0
        self._bytes = 0
        """Bytes of outstanding batches."""
        self._error: BaseException | None = None
        self._flushing = False

    @property
    def producer(self) -> AIOKafkaProducer | None:
        """The producer that records go through now."""
        return self._producer

    def use(self, producer: AIOKafkaProducer | None) -> None:
        """Send by another producer, or by none. All records of the one before have been flushed."""
        assert not self._outstanding
        assert all(lane.open is None for lane in self._lanes.values())
        self._producer, self.first = producer, None

    def partitions_for(self, topic: str) -> Sequence[int]:
        """Numbers of a topic's partitions; brokers are asked once for each topic.

        Raises:
            KafkaSendError: there is no such topic, or the brokers do not answer.
        """
        partitions = self._partitions.get(topic)
        if partitions is None:
            assert self._producer is not None
            try:
                numbers = self._thread.call(self._producer.partitions_for(topic))
            except UnknownTopicOrPartitionError:
                raise KafkaSendError(
                    f"topic {topic!r} is not known: it does not exist, or the brokers have not answered for "
                    "request.timeout.ms"
                ) from None
            except KafkaError as error:
                raise KafkaSendError(f"topic {topic!r} can't be written to: {_words(error)}") from error
            partitions = self._partitions[topic] = tuple(sorted(numbers))
        return partitions

    def write(self, records: Iterable[KafkaProducerRecord | None]) -> int:
        """Add records to batches; blocks while too many bytes wait to be acknowledged.

        Args:
            records: records to send; None is left out.

        Returns:
            Number of records.

        Raises:
            KafkaSendError: an earlier record was not delivered.
            ProgramError: a record is too large.
        """
        assert self._producer is not None
        # Before the lock is taken: the generator runs the user's serializer, and partitions_for waits for the loop,
        # whose coroutines take the lock.
        present = [record for record in records if record is not None]
        for topic in {record.topic for record in present}:
            self.partitions_for(topic)
        touched: dict[tuple[str, int], _Lane] = {}
        with self._changed:
            for record in present:
                topic, value, key, partition, timestamp, record_headers = record
                headers = list(record_headers) if record_headers else _NO_HEADERS
                while True:  # until a batch has room for the record
                    chosen = self._choose(topic, key) if partition is None else partition
                    lane = touched.get((topic, chosen))
                    if lane is None:
                        lane = touched[topic, chosen] = self._lanes.setdefault((topic, chosen), _Lane())
                    batch = lane.open
                    if batch is None:
                        self._check_size(record)
                        batch = lane.open = self._producer.create_batch()
                    if batch.append(timestamp=timestamp, key=key, value=value, headers=headers) is not None:
                        break
                    self._close_batch(lane)
                    self._sticky.pop(topic, None)
                    self._pump((topic, chosen))
                    if self._bytes > self._memory:
                        self._await(lambda: self._bytes <= self._memory)
        for lane_key in touched:
            self._pump(lane_key)
        self.check()
        return len(present)

    def flush(self, *, waits: bool = True) -> None:
        """Send all batches, also those that linger.

        Args:
            waits: return when all records are acknowledged.

        Raises:
            KafkaSendError: a record was not delivered.
        """
        with self._changed:
            self._flushing = True
            for lane in self._lanes.values():
                if lane.open is not None:
                    self._close_batch(lane)
            lanes = list(self._lanes)
        try:
            for lane_key in lanes:
                self._pump(lane_key)
            if waits:
                self._await(lambda: not self._outstanding)
            self.check()
        finally:
            self._flushing = False

    def check(self) -> None:
        """Raise what has gone wrong so far.

        Raises:
            KafkaSendError: a record was not delivered, or is not acknowledged in time.
        """
        if self._error is not None:
            raise KafkaSendError(f"records were not written to Kafka: {_words(self._error)}") from self._error
        with self._changed:
            oldest = min((since for _, since in self._outstanding.values()), default=None)
        if oldest is not None and time.monotonic() - oldest > self._delivery_seconds:
            raise KafkaSendError(
                f"records were not acknowledged by Kafka within delivery.timeout.ms ({self._delivery_seconds:g} s): "
                "its brokers are away, or too few of a partition's replicas are there"
            )

    # -- inside, on the caller's thread

    def _choose(self, topic: str, key: bytes | None) -> int:
        """Partition of a record: by its key as Java's client does; without a key, another one for each batch."""
        if key is None:
            chosen = self._sticky.get(topic)
            if chosen is None:
                partitions = self.partitions_for(topic)
                self._number += 1
                chosen = self._sticky[topic] = partitions[self._number % len(partitions)]
            return chosen
        partition_of_key = self._partition_of_key.get((topic, key))
        if partition_of_key is None:
            partitions = self.partitions_for(topic)
            partition_of_key = partitions[(murmur2(key) & 0x7FFFFFFF) % len(partitions)]
            self._partition_of_key[topic, key] = partition_of_key
            if len(self._partition_of_key) > _MOST_KEYS:
                self._partition_of_key.popitem(last=False)
        return partition_of_key

    def _check_size(self, record: KafkaProducerRecord) -> None:
        size = DefaultRecordBatchBuilder.estimate_size_in_bytes(record.key, record.value, list(record.headers))
        if size > self._largest:
            raise ProgramError(
                f"Kafka sink: a record for topic {record.topic} has {size:,} bytes, and max.request.size is "
                f"{self._largest:,}; raise it, and max.message.bytes of the topic"
            )

    def _close_batch(self, lane: _Lane) -> None:
        batch, lane.open = lane.open, None
        batch.close()
        self._number += 1
        now = time.monotonic()
        self._outstanding[self._number] = batch.size(), now
        self._bytes += batch.size()
        lane.full.append((batch, self._number))

    def _pump(self, lane_key: tuple[str, int]) -> None:
        """Start the coroutine that sends a partition's batches, unless it runs already or there are none."""
        with self._changed:
            lane = self._lanes[lane_key]
            if lane.pumping or (lane.open is None and not lane.full):
                return
            lane.pumping = True
        asyncio.run_coroutine_threadsafe(self._send(lane_key, lane), self._thread.loop)

    def _await(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition, but no longer than ``delivery.timeout.ms`` for any batch.

        Raises:
            KafkaSendError: a record was not delivered, or is not acknowledged in time.
        """
        with self._changed:
            while not condition() and self._error is None:
                self._changed.wait(_WAIT_SECONDS)
                oldest = min((since for _, since in self._outstanding.values()), default=None)
                if oldest is not None and time.monotonic() - oldest > self._delivery_seconds:
                    break
        self.check()

    # -- on the loop

    async def _send(self, lane_key: tuple[str, int], lane: _Lane) -> None:
        topic, partition = lane_key
        producer = self._producer
        assert producer is not None
        if self._linger_seconds and not self._flushing and not lane.full:
            await asyncio.sleep(self._linger_seconds)
        while True:
            with self._changed:
                # The network is idle for this partition: a batch that is not full gains nothing by waiting longer.
                if not lane.full and lane.open is not None:
                    self._close_batch(lane)
                    self._sticky.pop(topic, None)
                if not lane.full or self._error is not None:
                    lane.pumping = False
                    return
                batch, number = lane.full.popleft()
            records, began = batch.record_count(), time.monotonic()
            try:
                delivery = await self._enqueue(producer, batch, topic, partition)
            except BaseException as error:
                self._failed(error, lane)
                if not isinstance(error, Exception):
                    raise
                return
            delivery.add_done_callback(partial(self._delivered, number, records, began))

    async def _enqueue(self, producer: AIOKafkaProducer, batch: Any, topic: str, partition: int) -> asyncio.Future[Any]:
        while True:
            try:
                return await producer.send_batch(batch, topic, partition=partition)  # type: ignore[no-any-return]
            except KafkaTimeoutError:  # the batch before still waits for its broker; `check` limits the time
                continue

    def _failed(self, error: BaseException, lane: _Lane | None = None) -> None:
        with self._changed:
            self._error = self._error or error
            self.sent.errors += 1
            if lane is not None:
                lane.pumping = False
            self._changed.notify_all()

    def _delivered(self, number: int, records: int, began: float, delivery: asyncio.Future[Any]) -> None:
        error = asyncio.CancelledError() if delivery.cancelled() else delivery.exception()
        if error is not None:
            self._failed(error)
            return
        metadata = delivery.result()  # None with acks=0
        with self._changed:
            if self.first is None and metadata is not None and metadata.offset >= 0:
                self.first = metadata.topic, metadata.partition, metadata.offset
            size, _ = self._outstanding.pop(number)
            self._bytes -= size
            self.sent.records += records
            self.sent.bytes += size
            self.sent.last_ms = (time.monotonic() - began) * 1000
            self._changed.notify_all()


def _words(error: BaseException) -> str:
    """Name and text of an error, with advice if a transaction was fenced off."""
    while error.__cause__ is not None and type(error) is KafkaError:
        error = error.__cause__
    words = f"{type(error).__name__}: {error}"
    if isinstance(error, ProducerFenced | InvalidProducerEpoch):
        words += (
            " (the transaction ran out, see transaction.timeout.ms; or another job, or another attempt of this one, "
            "uses the same transactional id prefix)"
        )
    return words
