"""aiokafka as a source needs it: partitions at offsets, whole answers of brokers, and errors that say what to do."""

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
"""Makes the arguments of ``AIOKafkaConsumer`` where they are needed: TLS contexts can't be pickled."""


class OffsetGoneError(Exception):
    """There is no record at an offset: it was deleted, or the partition ends before it."""

    def __init__(self, partition: KafkaTopicPartition, offset: int) -> None:
        super().__init__(partition, offset)
        self.partition, self.offset = partition, offset


class PartitionConsumer(ABC):
    """Reads partitions from offsets on. All calls come from one asyncio loop.

    Coroutines raise ``ConnectionError`` when brokers do not answer, and may be called again; ``ProgramError`` when they
    refuse.
    """

    @abstractmethod
    async def start(self) -> None:
        """Connect. When it has raised, ``stop`` is called, and another consumer is made."""

    @abstractmethod
    async def stop(self) -> None:
        """Disconnect."""

    @abstractmethod
    def assign(self, offsets: Mapping[KafkaTopicPartition, int]) -> None:
        """Read these partitions, from these offsets on, and no others. All are resumed."""

    @abstractmethod
    def seek(self, partition: KafkaTopicPartition, offset: int) -> None:
        """Go on there."""

    @abstractmethod
    def pause(self, partition: KafkaTopicPartition) -> None:
        """Do not fetch it."""

    @abstractmethod
    def resume(self, partition: KafkaTopicPartition) -> None:
        """Fetch it again."""

    @abstractmethod
    async def fetch(
        self, wanted: Collection[KafkaTopicPartition], seconds: float, changed: asyncio.Event
    ) -> list[tuple[KafkaTopicPartition, Fetched]]:
        """What has arrived of these partitions; waits so long, or until ``changed`` is set, for the first of it.

        Raises:
            OffsetGoneError: one of them has nothing at its offset.
        """

    @abstractmethod
    def end(self, partition: KafkaTopicPartition) -> int | None:
        """The offset behind the last record that can be read, as far as it is known."""

    @abstractmethod
    def answered(self, partition: KafkaTopicPartition) -> float | None:
        """Seconds since its broker has answered; None = it never did."""

    @abstractmethod
    async def bounds(self, partition: KafkaTopicPartition) -> tuple[int, int]:
        """Its first offset and the one behind its last record."""

    @abstractmethod
    async def commit(self, offsets: Mapping[KafkaTopicPartition, int]) -> None:
        """Commit them for the group."""


def _tp(partition: KafkaTopicPartition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)


def _partition(tp: TopicPartition) -> KafkaTopicPartition:
    return KafkaTopicPartition(tp.topic, tp.partition)


async def _asked(call: Awaitable[T], what: str) -> T:
    """The answer; errors as the callers know them."""
    try:
        return await call
    except REFUSALS as error:
        raise ProgramError(f"Kafka refuses {what}: {type(error).__name__}: {error}") from error
    except errors.KafkaError as error:
        if isinstance(error, (errors.KafkaConnectionError, errors.KafkaTimeoutError)) or error.retriable:
            raise ConnectionError(f"{what}: {type(error).__name__}: {error}") from error
        if type(error) is errors.KafkaError:  # metadata of no broker can be had
            raise ConnectionError(f"{what}: {error}") from error
        raise ProgramError(f"Kafka refuses {what}: {type(error).__name__}: {error}") from error
    except (OSError, TimeoutError) as error:
        raise ConnectionError(f"{what}: {type(error).__name__}: {error}") from error


async def _connect(consumer: aiokafka.AIOKafkaConsumer, arguments: Mapping[str, Any]) -> None:
    """Connect; says why a server refuses, which aiokafka only logs."""
    servers = arguments["bootstrap_servers"]
    try:
        await consumer.start()
    except errors.KafkaConnectionError as error:
        why = await raise_if_refused(arguments)
        raise ConnectionError(f"no broker answers at {servers}: {why or error}") from error
    except (errors.KafkaError, OSError, TimeoutError) as error:
        if isinstance(error, REFUSALS):
            raise ProgramError(f"Kafka at {servers} refuses: {type(error).__name__}: {error}") from error
        raise ConnectionError(f"Kafka at {servers}: {type(error).__name__}: {error}") from error


class AioConsumer(PartitionConsumer):
    """A ``PartitionConsumer`` by aiokafka. Made on the loop that it is used on.

    Args:
        arguments: of ``AIOKafkaConsumer``.
    """

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._arguments = {**arguments, "enable_auto_commit": False, "auto_offset_reset": "none"}
        self._group = self._arguments.pop("group_id", None)  # whom aiokafka would join: it reads, and commits, alone
        self._coordinator: int | None = None
        self._read_committed = arguments.get("isolation_level") == "read_committed"
        self._check_crcs = bool(arguments.get("check_crcs", True))
        self._consumer = aiokafka.AIOKafkaConsumer(**self._arguments)
        self._clock = SystemClock()
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

    def pause(self, partition: KafkaTopicPartition) -> None:
        """Do not fetch it."""
        self._consumer.pause(_tp(partition))

    @override
    def resume(self, partition: KafkaTopicPartition) -> None:
        self._consumer.resume(_tp(partition))

    @override
    async def fetch(
        self, wanted: Collection[KafkaTopicPartition], seconds: float, changed: asyncio.Event
    ) -> list[tuple[KafkaTopicPartition, Fetched]]:
        found = self._arrived(wanted)
        if found or seconds <= 0:
            return found
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
        return self._arrived(wanted)

    def _arrived(self, wanted: Collection[KafkaTopicPartition]) -> list[tuple[KafkaTopicPartition, Fetched]]:
        arrived: list[tuple[KafkaTopicPartition, Fetched]] = []
        for tp, answer in answers(self._consumer, lambda tp: _partition(tp) in wanted):
            partition = _partition(tp)
            if isinstance(answer, Exception):
                raise self._translated(partition, answer)
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

    def _translated(self, partition: KafkaTopicPartition, error: Exception) -> Exception:
        if isinstance(error, errors.OffsetOutOfRangeError):
            offsets: Mapping[TopicPartition, int] = error.args[0]
            return OffsetGoneError(partition, offsets[_tp(partition)])
        reason = ProgramError(f"partition {partition} can't be read: {type(error).__name__}: {error}")
        reason.__cause__ = error
        return reason

    def end(self, partition: KafkaTopicPartition) -> int | None:
        """As the last answer had it."""
        state = partition_state(self._consumer, _tp(partition))
        if state is None:  # not assigned yet; metrics ask at any time
            return None
        end: int | None = state.lso if self._read_committed and state.lso is not None else state.highwater
        return end

    def answered(self, partition: KafkaTopicPartition) -> float | None:
        """Seconds since the last answer."""
        state = partition_state(self._consumer, _tp(partition))
        stamp = None if state is None else state.timestamp
        return (self._clock.epoch_ms() - (self._assigned_at if stamp is None else stamp)) / 1000

    async def bounds(self, partition: KafkaTopicPartition) -> tuple[int, int]:
        """First and last offset."""
        tp = _tp(partition)
        begins = await _asked(self._consumer.beginning_offsets([tp]), f"the first offset of {partition}")
        ends = await _asked(self._consumer.end_offsets([tp]), f"the last offset of {partition}")
        return int(begins[tp]), int(ends[tp])

    async def commit(self, offsets: Mapping[KafkaTopicPartition, int]) -> None:
        """For the group, as one that is in no group does it."""
        what = f"offsets of group {self._group!r}"
        node = await self._group_coordinator(what)
        topics: dict[str, list[tuple[int, int, str]]] = {}
        for partition, offset in offsets.items():
            topics.setdefault(partition.topic, []).append((partition.partition, offset, ""))
        request = OffsetCommitRequest(self._group, -1, "", -1, list(topics.items()))
        self._coordinator = None  # if it does not answer, another one may be it
        client = client_of(self._consumer)
        answer: Any = await _asked(client.send(node, request, group=ConnectionGroup.COORDINATION), what)
        for topic, partitions in answer.topics:
            for partition, code in partitions:
                if code:
                    kind = errors.for_code(code)
                    raise ConnectionError(f"{what}, {topic}-{partition}: {kind.__name__}: {kind.description}")
        self._coordinator = node

    async def _group_coordinator(self, what: str) -> int:
        if self._coordinator is None:
            client = client_of(self._consumer)
            lookup = client.coordinator_lookup(CoordinationType.GROUP, self._group)
            self._coordinator = int(await _asked(lookup, what))
        return self._coordinator


class KafkaSession:
    """Asks Kafka and waits for the answer (``enumerator.ClusterSession``). For a thread that may block.

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

    def _ask(self, call: Awaitable[T], what: str) -> T:
        return self._runner.run(_asked(call, what))

    def topics(self, wanted: Sequence[str] | None) -> Mapping[str, int]:
        """Topics that exist -> number of their partitions. It asks for all: to ask for one would create it."""
        metadata: Any = self._ask(client_of(self._consumer).fetch_all_metadata(), "the list of topics")
        names = metadata.topics(exclude_internal_topics=True) if wanted is None else wanted
        counts = {name: len(metadata.partitions_for_topic(name) or ()) for name in names}
        return {name: count for name, count in counts.items() if count}

    def beginning(self, partitions: Collection[KafkaTopicPartition]) -> Mapping[KafkaTopicPartition, int]:
        """First offsets."""
        found = self._ask(self._consumer.beginning_offsets([*map(_tp, partitions)]), "the first offsets")
        return {_partition(tp): int(offset) for tp, offset in found.items()}

    def end(self, partitions: Collection[KafkaTopicPartition]) -> Mapping[KafkaTopicPartition, int]:
        """Offsets behind the last records."""
        found = self._ask(self._consumer.end_offsets([*map(_tp, partitions)]), "the last offsets")
        return {_partition(tp): int(offset) for tp, offset in found.items()}

    def at(self, partitions: Collection[KafkaTopicPartition], timestamp: int) -> Mapping[KafkaTopicPartition, int]:
        """Offsets by time."""
        asked = dict.fromkeys(map(_tp, partitions), timestamp)
        found = self._ask(self._consumer.offsets_for_times(asked), "offsets by time")
        return {_partition(tp): int(one.offset) for tp, one in found.items() if one is not None}

    def committed(self, partitions: Collection[KafkaTopicPartition]) -> Mapping[KafkaTopicPartition, int]:
        """Offsets of the group."""
        found = {one: self._ask(self._consumer.committed(_tp(one)), f"committed offset of {one}") for one in partitions}
        return {one: int(offset) for one, offset in found.items() if offset is not None}
