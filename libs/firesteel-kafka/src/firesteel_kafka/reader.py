"""Reads the partitions of one subtask, on an asyncio loop in its own thread."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from firesteel.common.serialization import DeserializationSchema
from firesteel.connectors.malformed import MalformedPolicy, MalformedRecords
from firesteel.core.clock import Clock, SystemClock
from firesteel.core.errors import ProgramError, TaskInterrupt
from firesteel.functions.source import END, AsyncSourceReader, Plain, Polled, ReaderContext, SourceBatch, Split, Wait
from firesteel_kafka.consumer import OffsetGoneError, PartitionConsumer
from firesteel_kafka.deserialization import (
    ConsumerRecord,
    ConsumerRecords,
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
"""Longest wait of one fetch; then paused partitions, silent brokers and the like are looked at again."""
ENDS_SECONDS: Final = 5.0
"""Age of an answer from which on a broker is asked where a partition ends, if nothing is fetched of it."""
FIRST_RETRY_SECONDS: Final = 0.25
LONGEST_RETRY_SECONDS: Final = 10.0


@dataclass(frozen=True)
class ReaderPlan:
    """Settings of a reader.

    Attributes:
        subscription: splits of other partitions are left out.
        schema: makes records of the stream.
        malformed: what becomes of records that the schema raises about.
        reset: where a partition goes on if its next offset does not exist any more.
        commits: offsets are committed for the group when checkpoints complete.
        servers: addresses of brokers, for messages.
        most_records: records in a batch at most; 0 = as the runtime says.
        silent_seconds: time without an answer after which a broker is reported.
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
    """A partition that this reader reads.

    Attributes:
        next: offset behind the last record that ``poll`` has returned.
        fetch_from: offset behind the last record that was fetched.
        stop: offset at which the partition ends; None = it has no end.
        paused: no records of it are returned or fetched.
        waited_since: when the reader began to wait for it (assigned, resumed, connected), by the monotonic clock.
        fetched: answers that have arrived and are not returned, with the time of their arrival in epoch milliseconds.
    """

    split: Split
    partition: KafkaTopicPartition
    next: int
    fetch_from: int
    stop: int | None
    paused: bool = False
    waited_since: float = 0.0
    fetched: deque[tuple[Fetched, int]] = field(default_factory=deque)

    @property
    def at_stop(self) -> bool:
        return self.stop is not None and self.next >= self.stop


class KafkaReader(AsyncSourceReader[Any]):
    """Reader of a ``KafkaSource``.

    The partitions take turns: ``poll`` returns what has arrived of the first one in ``_assigned``, and moves it to the
    end. While something has arrived nothing is awaited; else one fetch waits for all partitions at once.

    Args:
        context: gives clocks and metrics.
        plan: settings.
        connect: makes a consumer; called on the loop.
    """

    def __init__(self, context: ReaderContext, plan: ReaderPlan, connect: Callable[[], PartitionConsumer]) -> None:
        self._context, self._plan, self._connect = context, plan, connect
        self._malformed = MalformedRecords(plan.malformed, context)
        self._value_schema: DeserializationSchema | None = None
        if isinstance(plan.schema, ValueOnly):
            self._value_schema = plan.schema.schema
        self._makes_columns = plan.schema.gives_columns and plan.malformed is not MalformedPolicy.EMIT
        self._assigned: dict[str, _AssignedPartition] = {}
        self._parts: dict[KafkaTopicPartition, _AssignedPartition] = {}
        """All partitions that were ever assigned."""
        self._empty_batches: deque[SourceBatch[Any]] = deque()
        """Batches without records, which say that a split has ended, or that its offset was reset."""
        self._partition_of_split: dict[str, KafkaTopicPartition] = {}
        self._consumer: PartitionConsumer | None = None
        self._changed = asyncio.Event()
        self._assignment_changed = self._no_more = False
        self._commits: dict[int, dict[KafkaTopicPartition, int]] = {}
        """Checkpoint that is not complete -> offsets to commit when it is."""
        self._to_commit: dict[KafkaTopicPartition, int] = {}
        self._committing: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._next_look: asyncio.TimerHandle | None = None
        self._silent = False
        self._clock: Clock = SystemClock()
        self._metrics = ReaderMetrics(context.runtime_context())

    def open(self) -> None:
        """Open the user's schema."""
        self._plan.schema.open(self._context.runtime_context())
        self._metrics.lag = self._lag

    # -- splits

    def add_splits(self, splits: Sequence[Split]) -> None:
        """Read these partitions, too."""
        for split in splits:
            partition = partition_of(split)
            data: Any = split.data
            start = int(data["start"] if split.position is None else split.position)  # type: ignore[arg-type]
            if partition not in self._plan.subscription:
                logger.warning("partition %s, read up to %d, is not subscribed to any more: left out", partition, start)
                self._empty_batches.append(SourceBatch([], split.id, start, split_finished=True))
                continue
            stop = data["stop"]
            part = _AssignedPartition(split, partition, start, start, None if stop is None else int(stop))
            part.waited_since = self._context.monotonic()
            self._assigned[split.id] = part
            self._partition_of_split[split.id] = partition
            self._parts[partition] = part
            self._metrics.reads(partition, start)
            self._assignment_changed = True
        self._changed.set()

    def no_more_splits(self) -> None:
        """End when the partitions that are assigned have ended."""
        self._no_more = True
        self._changed.set()

    def pause_splits(self, split_ids: Sequence[str]) -> None:
        """Stop fetching these partitions; records that have arrived wait."""
        for part in (self._assigned[split_id] for split_id in split_ids if split_id in self._assigned):
            part.paused = True
            if self._consumer is not None and not self._assignment_changed:
                self._consumer.pause(part.partition)
        self._changed.set()

    @override
    def resume_splits(self, split_ids: Sequence[str]) -> None:
        for part in (self._assigned[split_id] for split_id in split_ids if split_id in self._assigned):
            part.paused, part.waited_since = False, self._context.monotonic()
            if self._consumer is not None and not self._assignment_changed:
                self._consumer.resume(part.partition)
        self._changed.set()

    def snapshot(self) -> list[Split]:
        """All partitions, at the offsets behind the last records that were returned."""
        return [part.split.at(part.next) for part in self._assigned.values()]

    # -- reading

    async def poll(self, max_records: int) -> Polled[Any]:
        """Return records of one partition; wait for them if none have arrived."""
        limit = min(max_records, self._plan.most_records or max_records)
        while True:
            if self._empty_batches:
                return self._empty_batches.popleft()
            batch = self._next_batch(limit)
            if batch is not None:
                return batch
            if not self._assigned:
                return END if self._no_more else Wait()
            resumed = [part for part in self._assigned.values() if not part.paused]
            if not resumed:
                return Wait()
            self._changed.clear()
            await self._fetch(await self._connected(), resumed)

    def _next_batch(self, limit: int) -> SourceBatch[Any] | None:
        """The next batch of what has arrived; None if nothing has."""
        for part in list(self._assigned.values()):
            if part.at_stop:
                return self._finish(part, SourceBatch([], part.split.id, part.next))
            if part.paused or not part.fetched:
                continue
            fetched, arrived = part.fetched[0]
            piece = fetched.take(limit)
            if fetched.over:
                part.fetched.popleft()
            if part.stop is not None:
                piece = piece.until(part.stop)
            if not len(piece) and piece.next_offset == part.next:
                continue  # neither records nor progress; aborted transactions alone are progress
            batch = self._make_batch(part, piece, arrived)
            part.next = piece.next_offset
            self._metrics.at(part.partition, part.next)
            if part.at_stop:
                return self._finish(part, batch)
            # To the end of the dict: the next poll begins with another partition.
            del self._assigned[part.split.id]
            self._assigned[part.split.id] = part
            return batch
        return None

    def _finish(self, part: _AssignedPartition, batch: SourceBatch[Any]) -> SourceBatch[Any]:
        del self._assigned[part.split.id]
        part.fetched.clear()
        if self._consumer is not None and not self._assignment_changed:
            self._consumer.pause(part.partition)
        return SourceBatch(batch.values, batch.split_id, batch.position, batch.timestamps, split_finished=True)

    async def _connected(self) -> PartitionConsumer:
        """The consumer, connected and with all partitions assigned; tries again while brokers are away."""
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
                self._look_later()
        if self._assignment_changed:
            self._assignment_changed = False
            self._consumer.assign({part.partition: part.fetch_from for part in self._assigned.values()})
            for part in self._assigned.values():
                part.waited_since = self._context.monotonic()
                if part.paused:
                    self._consumer.pause(part.partition)
        return self._consumer

    async def _fetch(self, consumer: PartitionConsumer, resumed: Sequence[_AssignedPartition]) -> None:
        parts = {part.partition: part for part in resumed}
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
            self._look_for_silence(consumer, resumed)

    async def _reset(self, consumer: PartitionConsumer, part: _AssignedPartition, offset: int) -> None:
        """Go where the reset strategy says, because the next offset does not exist, and log it."""
        try:
            begin, end = await consumer.bounds(part.partition)
        except ConnectionError as error:  # the next fetch notices the missing offset again
            logger.warning("partition %s has no offset %d; its bounds are not known: %s", part.partition, offset, error)
            await asyncio.sleep(FIRST_RETRY_SECONDS)
            return
        if begin <= offset <= end:
            return
        missing = f"partition {part.partition} has no record at offset {offset}: it has those from {begin} up to {end}"
        cause = "older ones were deleted" if offset < begin else "it was cut off, or the topic was created again"
        if self._plan.reset is KafkaOffsetResetStrategy.NONE:
            raise ProgramError(
                f"{missing}; {cause}. The job can go on elsewhere with the property auto.offset.reset (earliest or "
                "latest), or start again without a checkpoint, with other starting offsets"
            )
        target = begin if self._plan.reset is KafkaOffsetResetStrategy.EARLIEST else end
        skipped = max(0, target - offset)
        logger.warning(
            "%s; %s. As auto.offset.reset says (%s), it is read from %d on: %d offsets are passed over",
            missing, cause, self._plan.reset.value, target, skipped,
        )  # fmt: skip
        self._metrics.reset(skipped)
        part.fetch_from = target
        if not part.fetched:
            part.next = target
            if part.split.id in self._assigned and not part.at_stop:
                self._empty_batches.append(SourceBatch([], part.split.id, target))
        if not self._assignment_changed:
            consumer.seek(part.partition, target)

    def _look_for_silence(self, consumer: PartitionConsumer, resumed: Sequence[_AssignedPartition]) -> None:
        """Log when no broker answers: clients try again without an end, so nothing else shows it."""
        if self._assignment_changed:
            return
        now, limit = self._context.monotonic(), self._plan.silent_seconds
        silent: list[KafkaTopicPartition] = []
        for part in resumed:
            since = consumer.answered(part.partition)
            waited = now - part.waited_since
            # The answers before a pause or a new assignment say nothing about the wait since then.
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

    def _make_batch(self, part: _AssignedPartition, piece: Piece, arrived: int) -> SourceBatch[Any]:
        timestamps = piece.timestamps()
        self._metrics.passed(timestamps, arrived, self._clock.epoch_ms())
        split_id, position = part.split.id, piece.next_offset
        if self._makes_columns and len(piece):
            topic, number = part.partition.topic, part.partition.partition
            columns = self._plan.schema.deserialize_columns(ConsumerRecords(topic, number, piece.records, timestamps))
            if columns is not None:
                values, origins = columns
                return SourceBatch(values, split_id, position, timestamps if origins is None else timestamps[origins])
        rows, row_timestamps = self._as_rows(part, piece, timestamps)
        return SourceBatch(rows, split_id, position, row_timestamps)

    def _as_rows(
        self, part: _AssignedPartition, piece: Piece, timestamps: npt.NDArray[np.int64]
    ) -> tuple[list[Any], list[int]]:
        rows: list[Any] = []
        row_timestamps: list[int] = []
        stamps = timestamps.tolist()
        make_values = self._value_maker(part) if self._value_schema is not None else self._record_maker(part)
        for record, stamp in zip(piece.records, stamps, strict=True):
            try:
                values = make_values(record)
            except (ConnectionError, TaskInterrupt):  # a schema registry is away, or the task ends: the record is fine
                raise
            except BaseException as error:  # raised by the user's schema: this record is malformed
                if type(error) is ProgramError:  # unless the program is wrong, or a registry refuses its credentials
                    raise
                values = self._malformed_record(part, record, error)
            if values:
                rows += values
                row_timestamps += [stamp] * len(values)
        return rows, row_timestamps

    def _value_maker(self, part: _AssignedPartition) -> Callable[[Any], Sequence[Any]]:
        assert self._value_schema is not None
        deserialize = self._value_schema.deserialize

        def make_values(record: Any) -> Sequence[Any]:
            value = record.value
            element = None if value is None else deserialize(value)
            return () if element is None else (element,)

        return make_values

    def _record_maker(self, part: _AssignedPartition) -> Callable[[Any], Sequence[Any]]:
        topic, number = part.partition.topic, part.partition.partition
        deserialize = self._plan.schema.deserialize

        def make_values(fetched_record: Any) -> Sequence[Any]:
            record = ConsumerRecord(
                topic, number, fetched_record.offset, fetched_record.timestamp, fetched_record.timestamp_type,
                fetched_record.key, fetched_record.value, tuple(fetched_record.headers),
            )  # fmt: skip
            return tuple(several(deserialize(record)))

        return make_values

    def _malformed_record(self, part: _AssignedPartition, record: Any, error: BaseException) -> Sequence[Any]:
        reason = str(error) if isinstance(error, ValueError) and str(error) else f"{type(error).__name__}: {error}"
        path = f"topic {part.partition.topic!r}, partition {part.partition.partition}"
        data = record.value or b""
        return self._malformed.found(path, record.offset, reason, data, unit="offset", cause=error)

    # -- checkpoints

    def positions_in_checkpoint(self, checkpoint_id: int, positions: Mapping[str, Plain]) -> None:
        """Remember the offsets to commit when the checkpoint is complete."""
        if self._plan.commits:
            self._commits[checkpoint_id] = {
                self._partition_of_split[split_id]: int(position)  # type: ignore[arg-type]
                for split_id, position in positions.items()
                if position is not None and split_id in self._partition_of_split
            }

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Commit the offsets of a checkpoint, for monitoring of the group; the job itself never reads them again."""
        completed = [checkpoint for checkpoint in self._commits if checkpoint <= checkpoint_id]
        if not completed:
            return
        offsets = self._commits[max(completed)]
        for checkpoint in completed:
            del self._commits[checkpoint]
        committed = self._metrics.committed
        self._to_commit = {
            partition: offset for partition, offset in offsets.items() if committed.get(partition) != offset
        }
        if self._to_commit and self._consumer is not None and (self._committing is None or self._committing.done()):
            self._committing = asyncio.get_running_loop().create_task(self._commit(self._consumer))

    async def _commit(self, consumer: PartitionConsumer) -> None:
        while self._to_commit:
            offsets, self._to_commit = self._to_commit, {}
            try:
                await consumer.commit(offsets)
            except Exception as error:  # nothing depends on committed offsets but monitoring
                self._metrics.commits_failed += 1
                failed = self._metrics.commits_failed
                if failed & (failed - 1) == 0:  # the log has failures 1, 2, 4, 8, ...
                    logger.warning("offsets can't be committed, %d times so far: %s", failed, error)
            else:
                self._metrics.commits_succeeded += 1
                self._metrics.committed.update(offsets)

    # -- lag

    def _lag(self, partition: KafkaTopicPartition) -> int | None:
        """Records that wait in a partition; None = not known yet. Called by the thread that reports metrics."""
        consumer, part = self._consumer, self._parts[partition]
        if part.at_stop:
            return 0
        end = None if consumer is None or self._assignment_changed else consumer.end(partition)
        if end is None:
            return None
        return max(0, (end if part.stop is None else min(end, part.stop)) - part.next)

    def _look_later(self) -> None:
        self._next_look = asyncio.get_running_loop().call_later(ENDS_SECONDS, self._begin_to_look)

    def _begin_to_look(self) -> None:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self.look_at_ends())
        self._look_later()

    async def look_at_ends(self) -> None:
        """Ask for the ends of partitions that nothing is fetched of.

        Answers to fetches tell the ends. But what has arrived waits until the job takes it, and nothing more is
        fetched meanwhile: a job that falls behind would see its lag shrink.
        """
        consumer = self._consumer
        if consumer is None or self._assignment_changed:
            return
        partitions = [part.partition for part in self._assigned.values()]
        old = [partition for partition in partitions if (consumer.answered(partition) or 0) >= ENDS_SECONDS]
        if old:
            try:
                await consumer.look_up_ends(old)
            except (ConnectionError, ProgramError) as error:  # nothing depends on it but monitoring
                logger.debug("the ends of %s are not known: %s", texts(old), error)

    @override
    async def close(self) -> None:  # type: ignore[override] # it runs on the loop
        if self._committing is not None:
            self._committing.cancel()
        if self._next_look is not None:
            self._next_look.cancel()
        if self._looking is not None:
            self._looking.cancel()
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.stop()
