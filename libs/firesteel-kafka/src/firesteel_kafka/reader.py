"""Reads the partitions of one subtask. Runs on an asyncio loop in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import override

from firesteel.common.serialization import DeserializationSchema
from firesteel.connectors.malformed import MalformedPolicy, MalformedRecords
from firesteel.core.clock import Clock, SystemClock
from firesteel.core.errors import ProgramError, TaskInterrupt
from firesteel.functions.source import END, AsyncSourceReader, Plain, Polled, ReaderContext, SourceBatch, Split, Wait
from firesteel_kafka.consumer import OffsetGoneError, PartitionConsumer
from firesteel_kafka.deserialization import (
    ConsumerRecord,
    KafkaRecordDeserializationSchema,
    ValueOnly,
    several,
)
from firesteel_kafka.fetched import Fetched, Piece
from firesteel_kafka.offsets import KafkaOffsetResetStrategy
from firesteel_kafka.partitions import KafkaTopicPartition, Subscription, partition_of, texts
from firesteel_kafka.reader_metrics import ReaderMetrics

__all__ = ["KafkaReader", "ReaderPlan"]

logger = logging.getLogger(__name__)

FETCH_SECONDS: Final = 0.5
"""So long a fetch waits at most before everything is looked at again."""
FIRST_RETRY_SECONDS: Final = 0.25
LONGEST_RETRY_SECONDS: Final = 10.0


@dataclass(frozen=True)
class ReaderPlan:
    """What a reader does.

    Attributes:
        subscription: splits of other partitions are left out.
        schema: makes records.
        malformed: what becomes of records that it can't make.
        reset: what is done where an offset is not there any more.
        commits: offsets go to the group when checkpoints are complete.
        servers: for messages.
        most_records: in a batch; 0 = as the runtime says.
        silent_seconds: a broker that gives no answer for so long is reported.
    """

    subscription: Subscription
    schema: KafkaRecordDeserializationSchema
    malformed: MalformedPolicy
    reset: KafkaOffsetResetStrategy
    commits: bool
    servers: str
    most_records: int = 0
    silent_seconds: float = 15.0


@dataclass
class _AssignedPartition:
    """A partition that is read."""

    split: Split
    partition: KafkaTopicPartition
    next: int
    """Behind the last record that was given."""
    fetch_from: int
    """Behind the last one that was fetched."""
    stop: int | None
    paused: bool = False
    waited_since: float = 0.0
    fetched: deque[tuple[Fetched, int]] = field(default_factory=deque)
    """With the time of their arrival, epoch milliseconds."""

    @property
    def over(self) -> bool:
        return self.stop is not None and self.next >= self.stop


class KafkaReader(AsyncSourceReader[Any]):
    """See the module.

    Args:
        context: of the runtime.
        plan: what to do.
        connect: makes a consumer, on the loop.
    """

    def __init__(self, context: ReaderContext, plan: ReaderPlan, connect: Callable[[], PartitionConsumer]) -> None:
        self._context, self._plan, self._connect = context, plan, connect
        self._malformed = MalformedRecords(plan.malformed, context)
        self._value_schema: DeserializationSchema | None = None
        if isinstance(plan.schema, ValueOnly):
            self._value_schema = plan.schema.schema
        self._columns = self._value_schema is not None and self._value_schema.gives_columns
        if plan.malformed is MalformedPolicy.EMIT:
            self._columns = False
        self._parts: dict[str, _AssignedPartition] = {}
        self._ended: deque[SourceBatch[Any]] = deque()
        """What says that splits are at their ends already."""
        self._known: dict[str, KafkaTopicPartition] = {}
        self._consumer: PartitionConsumer | None = None
        self._changed = asyncio.Event()
        self._assignment_changed = self._no_more = False
        self._commits: dict[int, dict[KafkaTopicPartition, int]] = {}
        """Of checkpoints that are not complete."""
        self._to_commit: dict[KafkaTopicPartition, int] = {}
        self._committing: asyncio.Task[None] | None = None
        self._silent = False
        self._clock: Clock = SystemClock()
        self._metrics = ReaderMetrics(context.runtime_context())

    def open(self) -> None:
        """Open the user's schema."""
        self._plan.schema.open(self._context.runtime_context())
        self._metrics.pending = self._pending

    # -- splits

    def add_splits(self, splits: Sequence[Split]) -> None:
        """Read these partitions too."""
        for split in splits:
            partition = partition_of(split)
            data: Any = split.data
            start = int(data["start"] if split.position is None else split.position)  # type: ignore[arg-type]
            if partition not in self._plan.subscription:
                logger.warning("partition %s, read up to %d, is not subscribed to any more: left out", partition, start)
                self._ended.append(SourceBatch([], split.id, start, split_finished=True))
                continue
            stop = data["stop"]
            part = _AssignedPartition(split, partition, start, start, None if stop is None else int(stop))
            part.waited_since = self._context.monotonic()
            self._parts[split.id] = part
            self._known[split.id] = partition
            self._metrics.reads(partition, start)
            self._assignment_changed = True
        self._changed.set()

    def no_more_splits(self) -> None:
        """There will be none."""
        self._no_more = True
        self._changed.set()

    def pause_splits(self, split_ids: Sequence[str]) -> None:
        """Fetch nothing of them; what has arrived waits."""
        for part in (self._parts[split_id] for split_id in split_ids if split_id in self._parts):
            part.paused = True
            if self._consumer is not None and not self._assignment_changed:
                self._consumer.pause(part.partition)
        self._changed.set()

    @override
    def resume_splits(self, split_ids: Sequence[str]) -> None:
        for part in (self._parts[split_id] for split_id in split_ids if split_id in self._parts):
            part.paused, part.waited_since = False, self._context.monotonic()
            if self._consumer is not None and not self._assignment_changed:
                self._consumer.resume(part.partition)
        self._changed.set()

    def snapshot(self) -> list[Split]:
        """All partitions, at the offsets behind what was given."""
        return [part.split.at(part.next) for part in self._parts.values()]

    # -- reading

    async def poll(self, max_records: int) -> Polled[Any]:
        """Records of one partition."""
        most = min(max_records, self._plan.most_records or max_records)
        while True:
            if self._ended:
                return self._ended.popleft()
            given = self._give(most)
            if given is not None:
                return given
            if not self._parts:
                return END if self._no_more else Wait()
            wanted = [part for part in self._parts.values() if not part.paused]
            if not wanted:
                return Wait()
            self._changed.clear()
            await self._fetch(await self._connected(), wanted)

    def _give(self, max_records: int) -> SourceBatch[Any] | None:
        """What has arrived; the partitions take turns."""
        for part in list(self._parts.values()):
            if part.over:
                return self._finished(part, SourceBatch([], part.split.id, part.next))
            if part.paused or not part.fetched:
                continue
            fetched, arrived = part.fetched[0]
            piece = fetched.take(max_records)
            if fetched.over:
                part.fetched.popleft()
            if part.stop is not None:
                piece = piece.until(part.stop)
            if not len(piece) and piece.next_offset == part.next:
                continue
            batch = self._made(part, piece, arrived)
            part.next = piece.next_offset
            self._metrics.at(part.partition, part.next)
            if part.over:
                return self._finished(part, batch)
            del self._parts[part.split.id]
            self._parts[part.split.id] = part
            return batch
        return None

    def _finished(self, part: _AssignedPartition, batch: SourceBatch[Any]) -> SourceBatch[Any]:
        del self._parts[part.split.id]
        part.fetched.clear()
        if self._consumer is not None and not self._assignment_changed:
            self._consumer.pause(part.partition)
        return SourceBatch(batch.values, batch.split_id, batch.position, batch.timestamps, split_finished=True)

    async def _connected(self) -> PartitionConsumer:
        wait = FIRST_RETRY_SECONDS
        while self._consumer is None:
            consumer = self._connect()
            try:
                await consumer.start()
            except ConnectionError as error:
                await consumer.stop()
                self._metrics.failed_connections += 1
                logger.warning("Kafka at %s, again in %.3g s: %s", self._plan.servers, wait, error)
                await asyncio.sleep(wait)
                wait = min(2 * wait, LONGEST_RETRY_SECONDS)
            except BaseException:
                await consumer.stop()
                raise
            else:
                self._consumer, self._assignment_changed = consumer, True
        if self._assignment_changed:
            self._assignment_changed = False
            self._consumer.assign({part.partition: part.fetch_from for part in self._parts.values()})
            for part in self._parts.values():
                part.waited_since = self._context.monotonic()
                if part.paused:
                    self._consumer.pause(part.partition)
        return self._consumer

    async def _fetch(self, consumer: PartitionConsumer, wanted: Sequence[_AssignedPartition]) -> None:
        parts = {part.partition: part for part in wanted}
        try:
            arrived = await consumer.fetch(parts, FETCH_SECONDS, self._changed)
        except OffsetGoneError as gone:
            await self._reset(consumer, parts[gone.partition], gone.offset)
            return
        now = self._clock.epoch_ms()
        for partition, fetched in arrived:
            part = parts[partition]
            part.fetched.append((fetched, now))
            part.fetch_from = fetched.next_offset
        if not arrived or self._silent:
            self._look_for_silence(consumer, wanted)

    async def _reset(self, consumer: PartitionConsumer, part: _AssignedPartition, offset: int) -> None:
        """The next offset is not there: go where the strategy says, and say so."""
        try:
            begin, end = await consumer.bounds(part.partition)
        except ConnectionError as error:  # it is found out again by the next fetch
            logger.warning("partition %s has no offset %d; its bounds are not known: %s", part.partition, offset, error)
            await asyncio.sleep(FIRST_RETRY_SECONDS)
            return
        if begin <= offset <= end:
            return
        there = f"partition {part.partition} has no record at offset {offset}: it has those from {begin} up to {end}"
        why = "older ones were deleted" if offset < begin else "it was cut off, or the topic was made anew"
        if self._plan.reset is KafkaOffsetResetStrategy.NONE:
            raise ProgramError(
                f"{there}; {why}. The job can go on elsewhere with the property auto.offset.reset (earliest or "
                "latest), or begin anew with other starting offsets"
            )
        target = begin if self._plan.reset is KafkaOffsetResetStrategy.EARLIEST else end
        lost = max(0, target - offset)
        logger.warning(
            "%s; %s. As auto.offset.reset says (%s), it is read from %d on: %d offsets are passed over",
            there, why, self._plan.reset.value, target, lost,
        )  # fmt: skip
        self._metrics.reset(lost)
        part.fetch_from = target
        if not part.fetched:
            part.next = target
            if part.split.id in self._parts and not part.over:
                self._ended.append(SourceBatch([], part.split.id, target))
        if not self._assignment_changed:
            consumer.seek(part.partition, target)

    def _look_for_silence(self, consumer: PartitionConsumer, wanted: Sequence[_AssignedPartition]) -> None:
        """A broker that is away shows by nothing else: its clients try again without an end, as they should."""
        if self._assignment_changed:
            return
        now, limit = self._context.monotonic(), self._plan.silent_seconds
        silent: list[KafkaTopicPartition] = []
        for part in wanted:
            since = consumer.answered(part.partition)
            waited = now - part.waited_since
            if (waited if since is None else min(since, waited)) > limit:
                silent.append(part.partition)
        if silent and not self._silent:
            self._metrics.silences += 1
            logger.warning(
                "no broker of Kafka at %s has answered for %g s about %s: away, or the topic is deleted; waiting",
                self._plan.servers, limit, texts(silent),
            )  # fmt: skip
        elif self._silent and not silent:
            logger.info("Kafka at %s answers again", self._plan.servers)
        self._silent = bool(silent)

    # -- records

    def _made(self, part: _AssignedPartition, piece: Piece, arrived: int) -> SourceBatch[Any]:
        stamps = piece.timestamps()
        self._metrics.passed(stamps, arrived, self._clock.epoch_ms())
        split_id, position = part.split.id, piece.next_offset
        values: list[Any] | pa.RecordBatch | None = None
        if self._columns and len(piece):
            values, stamps = self._as_columns(piece, stamps)
        if values is not None:
            return SourceBatch(values, split_id, position, stamps)
        rows, times = self._as_rows(part, piece, stamps)
        return SourceBatch(rows, split_id, position, times)

    def _as_columns(
        self, piece: Piece, stamps: npt.NDArray[np.int64]
    ) -> tuple[pa.RecordBatch | None, npt.NDArray[np.int64]]:
        assert self._value_schema is not None
        values = piece.values()
        messages = [value for value in values if value is not None]
        batch = self._value_schema.deserialize_columns(messages) if messages else None
        if batch is not None and len(messages) < len(values):
            stamps = stamps[np.fromiter((value is not None for value in values), np.bool_, len(values))]
        return batch, stamps

    def _as_rows(
        self, part: _AssignedPartition, piece: Piece, stamps: npt.NDArray[np.int64]
    ) -> tuple[list[Any], list[int]]:
        rows: list[Any] = []
        times: list[int] = []
        listed = stamps.tolist()
        make = self._of_value(part) if self._value_schema is not None else self._of_record(part)
        for record, stamp in zip(piece.records, listed, strict=True):
            try:
                made = make(record)
            except ConnectionError:  # of a registry of schemas: nothing is wrong with the record
                raise
            except TaskInterrupt:
                raise
            except BaseException as error:  # of the user's schema: one record is malformed
                made = self._poisoned(part, record, error)
            if made:
                rows += made
                times += [stamp] * len(made)
        return rows, times

    def _of_value(self, part: _AssignedPartition) -> Callable[[Any], Sequence[Any]]:
        assert self._value_schema is not None
        deserialize = self._value_schema.deserialize

        def make(record: Any) -> Sequence[Any]:
            value = record.value
            made = None if value is None else deserialize(value)
            return () if made is None else (made,)

        return make

    def _of_record(self, part: _AssignedPartition) -> Callable[[Any], Sequence[Any]]:
        topic, number = part.partition.topic, part.partition.partition
        deserialize = self._plan.schema.deserialize

        def make(one: Any) -> Sequence[Any]:
            record = ConsumerRecord(
                topic, number, one.offset, one.timestamp, one.timestamp_type, one.key, one.value, tuple(one.headers)
            )
            return tuple(several(deserialize(record)))

        return make

    def _poisoned(self, part: _AssignedPartition, record: Any, error: BaseException) -> Sequence[Any]:
        reason = str(error) if isinstance(error, ValueError) and str(error) else f"{type(error).__name__}: {error}"
        path = f"topic {part.partition.topic!r}, partition {part.partition.partition}"
        data = record.value or b""
        return self._malformed.found(path, record.offset, reason, data, unit="offset", cause=error)

    # -- checkpoints

    def positions_in_checkpoint(self, checkpoint_id: int, positions: Mapping[str, Plain]) -> None:
        """What is to be committed if it becomes complete."""
        if self._plan.commits:
            self._commits[checkpoint_id] = {
                self._known[split_id]: int(position)  # type: ignore[arg-type]
                for split_id, position in positions.items()
                if position is not None and split_id in self._known
            }

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Commit its offsets: others see by them how far the job is. The job itself never reads them again."""
        done = [number for number in self._commits if number <= checkpoint_id]
        if not done:
            return
        offsets = self._commits[max(done)]
        for number in done:
            del self._commits[number]
        committed = self._metrics.committed
        self._to_commit = {one: offset for one, offset in offsets.items() if committed.get(one) != offset}
        if self._to_commit and self._consumer is not None and (self._committing is None or self._committing.done()):
            self._committing = asyncio.get_running_loop().create_task(self._commit(self._consumer))

    async def _commit(self, consumer: PartitionConsumer) -> None:
        while self._to_commit:
            offsets, self._to_commit = self._to_commit, {}
            try:
                await consumer.commit(offsets)
            except Exception as error:  # whatever it is: offsets in the group are for others to look at
                self._metrics.commits_failed += 1
                failed = self._metrics.commits_failed
                if failed & (failed - 1) == 0:  # 1, 2, 4, 8, ...
                    logger.warning("offsets can't be committed, %d times so far: %s", failed, error)
            else:
                self._metrics.commits_succeeded += 1
                self._metrics.committed.update(offsets)

    def _pending(self) -> int:
        """Records that wait in Kafka, as far as it is known; called by another thread."""
        consumer = self._consumer
        if consumer is None or self._assignment_changed:
            return 0
        waiting = 0
        for part in list(self._parts.values()):
            end = consumer.end(part.partition)
            if end is not None:
                waiting += max(0, end - part.next)
        return waiting

    @override
    async def close(self) -> None:  # type: ignore[override] # it runs on the loop
        if self._committing is not None:
            self._committing.cancel()
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.stop()
