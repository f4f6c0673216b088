"""What a source needs of aiokafka: it reads partitions from offsets, takes whole answers, and translates errors."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import aiokafka
from aiokafka import errors
from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.protocol.commit import OffsetCommitRequest
from aiokafka.structs import TopicPartition
from typing_extensions import override

from firesteel.core.clock import SystemClock
from firesteel.core.errors import ProgramError
from firesteel_kafka.aiokafka_internals import answer_comes, answers, client_of, fetcher_failure, partition_state
from firesteel_kafka.fetched import Fetched
from firesteel_kafka.partitions import KafkaTopicPartition
from firesteel_kafka.refusals import REFUSALS, raise_if_refused

__all__ = ["AioConsumer", "KafkaSession", "OffsetGoneError", "PartitionConsumer"]

T = TypeVar("T")
Arguments = Callable[[], Mapping[str, Any]]
"""Makes the arguments of ``AIOKafkaConsumer`` in the slot, because TLS contexts can't be pickled."""


class OffsetGoneError(Exception):
    """There is no record at an offset: it was deleted, or the partition ends before the offset."""

    def __init__(self, partition: KafkaTopicPartition, offset: int) -> None:
        super().__init__(partition, offset)
        self.partition, self.offset = partition, offset


class PartitionConsumer(ABC):
    """Reads partitions from offsets on. All calls come from one asyncio loop.

    Coroutines raise ``ConnectionError`` when brokers do not answer; then they may be called again. They raise
    ``ProgramError`` when brokers refuse.
    """

    @abstractmethod
    async def start(self) -> None:
        """Connect. After an error ``stop`` is called, and another consumer is made."""

    @abstractmethod
    async def stop(self) -> None:
        """Disconnect from all brokers."""

    @abstractmethod
    def assign(self, offsets: Mapping[KafkaTopicPartition, int]) -> None:
        """Read these partitions from these offsets on, and no others. All are resumed."""

    @abstractmethod
    def seek(self, partition: KafkaTopicPartition, offset: int) -> None:
        """Fetch a partition from another offset on."""

    @abstractmethod
    def pause(self, partition: KafkaTopicPartition) -> None:
        """Fetch no records of a partition until it is resumed."""

    @abstractmethod
    def resume(self, partition: KafkaTopicPartition) -> None:
        """Fetch records of a partition again."""

    @abstractmethod
    async def fetch(
        self, partitions: Collection[KafkaTopicPartition], seconds: float, changed: asyncio.Event
    ) -> list[tuple[KafkaTopicPartition, Fetched]]:
        """Take the answers that have arrived for some partitions; wait for the first if there are none.

        Args:
            partitions: partitions to take answers of.
            seconds: longest wait.
            changed: ends the wait when it is set.

        Raises:
            OffsetGoneError: a partition has no record at its offset.
        """

    @abstractmethod
    def end(self, partition: KafkaTopicPartition) -> int | None:
        """Offset behind the last record that can be read; None if it is not known yet."""

    @abstractmethod
    async def look_up_ends(self, partitions: Collection[KafkaTopicPartition]) -> None:
        """Ask brokers for the ends of partitions, for ``end``."""

    @abstractmethod
    def answered(self, partition: KafkaTopicPartition) -> float | None:
        """Seconds since the partition's broker has answered, or since it was assigned; None = not known."""

    @abstractmethod
    async def bounds(self, partition: KafkaTopicPartition) -> tuple[int, int]:
        """Offset of the first record, and the one behind the last record."""

    @abstractmethod
    async def commit(self, offsets: Mapping[KafkaTopicPartition, int]) -> None:
        """Commit offsets for the group."""


def _tp(partition: KafkaTopicPartition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)


def _partition(tp: TopicPartition) -> KafkaTopicPartition:
    return KafkaTopicPartition(tp.topic, tp.partition)


async def _answer_of(call: Awaitable[T], request: str) -> T:
    """Await an answer; errors of aiokafka become those that ``PartitionConsumer`` promises.

    Args:
        call: coroutine of aiokafka.
        request: what is asked for, for messages.
    """
    try:
        return await call
    except REFUSALS as error:
        raise ProgramError(f"Kafka refuses {request}: {type(error).__name__}: {error}") from error
    except errors.KafkaError as error:
        if isinstance(error, (errors.KafkaConnectionError, errors.KafkaTimeoutError)) or error.retriable:
            raise ConnectionError(f"{request}: {type(error).__name__}: {error}") from error
        if type(error) is errors.KafkaError:  # no broker has given metadata
            raise ConnectionError(f"{request}: {error}") from error
        raise ProgramError(f"Kafka refuses {request}: {type(error).__name__}: {error}") from error
    except (OSError, TimeoutError) as error:
        raise ConnectionError(f"{request}: {type(error).__name__}: {error}") from error


async def _connect(consumer: aiokafka.AIOKafkaConsumer, arguments: Mapping[str, Any]) -> None:
    """Connect; the error says why a broker refuses, which aiokafka only logs."""
    servers = arguments["bootstrap_servers"]
    try:
        await consumer.start()
    except errors.KafkaConnectionError as error:
        cause = await raise_if_refused(arguments)
        raise ConnectionError(f"no broker answers at {servers}: {cause or error}") from error
    except (errors.KafkaError, OSError, TimeoutError) as error:
        if isinstance(error, REFUSALS):
            raise ProgramError(f"Kafka at {servers} refuses: {type(error).__name__}: {error}") from error
        raise ConnectionError(f"Kafka at {servers}: {type(error).__name__}: {error}") from error


class AioConsumer(PartitionConsumer):
    """A ``PartitionConsumer`` by aiokafka. It is made on the loop that it is used on.

    Args:
        arguments: arguments of ``AIOKafkaConsumer``.
    """

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._arguments = {**arguments, "enable_auto_commit": False, "auto_offset_reset": "none"}
        # aiokafka would join the group, and Kafka would assign partitions. Our enumerator assigns them.
        self._group = self._arguments.pop("group_id", None)
        self._coordinator: int | None = None
        self._read_committed = arguments.get("isolation_level") == "read_committed"
        self._check_crcs = bool(arguments.get("check_crcs", True))
        self._consumer = aiokafka.AIOKafkaConsumer(**self._arguments)
        self._clock = SystemClock()
        self._ends: dict[KafkaTopicPartition, tuple[int, int]] = {}
        """Ends that were asked for, each with the time in epoch milliseconds."""
        self._assigned_at = self._clock.epoch_ms()

    @override
    async def start(self) -> None:
        await _connect(self._consumer, self._arguments)

    @override
    async def stop(self) -> None:
        await self._consumer.stop()

    @override
    def assign(self, offsets: Mapping[KafkaTopicPartition, int]) -> None:
        self._assigned_at = self._clock.epoch_ms()
        self._consumer.assign([_tp(partition) for partition in offsets])
        for partition, offset in offsets.items():
            self._consumer.seek(_tp(partition), offset)

    @override
    def seek(self, partition: KafkaTopicPartition, offset: int) -> None:
        self._consumer.seek(_tp(partition), offset)

    @override
    def pause(self, partition: KafkaTopicPartition) -> None:
        self._consumer.pause(_tp(partition))

    @override
    def resume(self, partition: KafkaTopicPartition) -> None:
        self._consumer.resume(_tp(partition))

    @override
    async def fetch(
        self, partitions: Collection[KafkaTopicPartition], seconds: float, changed: asyncio.Event
    ) -> list[tuple[KafkaTopicPartition, Fetched]]:
        arrived = self._arrived(partitions)
        if arrived or seconds <= 0:
            return arrived
        waiter = answer_comes(self._consumer)
        change: asyncio.Future[Any] = asyncio.get_running_loop().create_task(changed.wait())
        try:
            await asyncio.wait({waiter, change}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            change.cancel()
            if not waiter.done():
                waiter.cancel()
        error = fetcher_failure(self._consumer)
        if error is not None:
            raise ConnectionError(f"the fetcher has failed: {error}") from error
        return self._arrived(partitions)

    def _arrived(self, partitions: Collection[KafkaTopicPartition]) -> list[tuple[KafkaTopicPartition, Fetched]]:
        arrived: list[tuple[KafkaTopicPartition, Fetched]] = []
        for tp, answer in answers(self._consumer, lambda tp: _partition(tp) in partitions):
            partition = _partition(tp)
            if isinstance(answer, errors.OffsetOutOfRangeError):
                offsets: Mapping[TopicPartition, int] = answer.args[0]
                raise OffsetGoneError(partition, offsets[tp])
            if isinstance(answer, Exception):
                raise ProgramError(
                    f"partition {partition} can't be read: {type(answer).__name__}: {answer}"
                ) from answer
            fetched = Fetched(
                partition,
                answer.records,
                answer.aborted_transactions,
                answer.state.position,
                read_committed=self._read_committed,
                check_crcs=self._check_crcs,
            )
            answer.state.consumed_to(fetched.next_offset)
            arrived.append((partition, fetched))
        return arrived

    @override
    def end(self, partition: KafkaTopicPartition) -> int | None:
        state = partition_state(self._consumer, _tp(partition))
        if state is None:  # metrics ask at any time, also before the partition is assigned
            return None
        end: int | None = state.lso if self._read_committed and state.lso is not None else state.highwater
        looked_up = self._ends.get(partition)
        if looked_up is not None and (state.timestamp is None or state.timestamp < looked_up[1]):
            return looked_up[0]
        return end

    @override
    async def look_up_ends(self, partitions: Collection[KafkaTopicPartition]) -> None:
        now = self._clock.epoch_ms()
        offsets = await _answer_of(self._consumer.end_offsets([*map(_tp, partitions)]), "the last offsets")
        self._ends.update({_partition(tp): (int(offset), now) for tp, offset in offsets.items()})

    @override
    def answered(self, partition: KafkaTopicPartition) -> float | None:
        state = partition_state(self._consumer, _tp(partition))
        stamp = None if state is None else state.timestamp
        return (self._clock.epoch_ms() - (self._assigned_at if stamp is None else stamp)) / 1000

    @override
    async def bounds(self, partition: KafkaTopicPartition) -> tuple[int, int]:
        tp = _tp(partition)
        begins = await _answer_of(self._consumer.beginning_offsets([tp]), f"the first offset of {partition}")
        ends = await _answer_of(self._consumer.end_offsets([tp]), f"the last offset of {partition}")
        return int(begins[tp]), int(ends[tp])

    @override
    async def commit(self, offsets: Mapping[KafkaTopicPartition, int]) -> None:
        request_text = f"offsets of group {self._group!r}"
        node = await self._group_coordinator(request_text)
        topics: dict[str, list[tuple[int, int, str]]] = {}
        for partition, offset in offsets.items():
            topics.setdefault(partition.topic, []).append((partition.partition, offset, ""))
        # Generation -1 and no member id: a client that is not a member of the group commits.
        request = OffsetCommitRequest(self._group, -1, "", -1, list(topics.items()))
        self._coordinator = None  # if this broker does not answer, the next commit looks the coordinator up again
        client = client_of(self._consumer)
        answer: Any = await _answer_of(client.send(node, request, group=ConnectionGroup.COORDINATION), request_text)
        for topic, partitions in answer.topics:
            for partition, code in partitions:
                if code:
                    kind = errors.for_code(code)
                    raise ConnectionError(f"{request_text}, {topic}-{partition}: {kind.__name__}: {kind.description}")
        self._coordinator = node

    async def _group_coordinator(self, request_text: str) -> int:
        if self._coordinator is None:
            client = client_of(self._consumer)
            lookup = client.coordinator_lookup(CoordinationType.GROUP, self._group)
            self._coordinator = int(await _answer_of(lookup, request_text))
        return self._coordinator


class KafkaSession:
    """A blocking ``enumerator.ClusterSession`` by aiokafka, for one thread.

    Args:
        arguments: makes the arguments of ``AIOKafkaConsumer``.
    """

    def __init__(self, arguments: Arguments) -> None:
        self._make = arguments
        self._runner = asyncio.Runner()
        self._consumer: aiokafka.AIOKafkaConsumer

    def __enter__(self) -> KafkaSession:
        self._runner.__enter__()
        try:
            self._runner.run(self._open())
        except BaseException:
            self._runner.close()
            raise
        return self

    async def _open(self) -> None:
        arguments = {**self._make(), "enable_auto_commit": False}
        self._consumer = aiokafka.AIOKafkaConsumer(**arguments)
        try:
            await _connect(self._consumer, arguments)
        except BaseException:
            await self._consumer.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._runner.run(self._consumer.stop())
        finally:
            self._runner.close()

    def _ask(self, call: Awaitable[T], request: str) -> T:
        return self._runner.run(_answer_of(call, request))

    def topics(self, names: Sequence[str] | None) -> Mapping[str, int]:
        """Topics that exist -> number of their partitions."""
        # Metadata of all topics: a request for named topics would create those that do not exist.
        metadata: Any = self._ask(client_of(self._consumer).fetch_all_metadata(), "the list of topics")
        if names is None:
            names = metadata.topics(exclude_internal_topics=True)
        counts = {name: len(metadata.partitions_for_topic(name) or ()) for name in names}
        return {name: count for name, count in counts.items() if count}

    def beginning(self, partitions: Collection[KafkaTopicPartition]) -> Mapping[KafkaTopicPartition, int]:
        """Offsets of the first records that exist."""
        offsets = self._ask(self._consumer.beginning_offsets([*map(_tp, partitions)]), "the first offsets")
        return {_partition(tp): int(offset) for tp, offset in offsets.items()}

    def end(self, partitions: Collection[KafkaTopicPartition]) -> Mapping[KafkaTopicPartition, int]:
        """Offsets behind the last records."""
        offsets = self._ask(self._consumer.end_offsets([*map(_tp, partitions)]), "the last offsets")
        return {_partition(tp): int(offset) for tp, offset in offsets.items()}

    def at(self, partitions: Collection[KafkaTopicPartition], timestamp: int) -> Mapping[KafkaTopicPartition, int]:
        """Offsets of the first records that are not older than a time in epoch milliseconds."""
        times = dict.fromkeys(map(_tp, partitions), timestamp)
        records = self._ask(self._consumer.offsets_for_times(times), "offsets by time")
        return {_partition(tp): int(record.offset) for tp, record in records.items() if record is not None}

    def committed(self, partitions: Collection[KafkaTopicPartition]) -> Mapping[KafkaTopicPartition, int]:
        """Offsets that were committed for the group."""
        offsets = {
            partition: self._ask(self._consumer.committed(_tp(partition)), f"committed offset of {partition}")
            for partition in partitions
        }
        return {partition: int(offset) for partition, offset in offsets.items() if offset is not None}
