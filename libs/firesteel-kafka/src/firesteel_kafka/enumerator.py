"""Finds partitions and assigns them to subtasks. Runs in a slot, where credentials are and code may block."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol

from typing_extensions import override

from firesteel.core.errors import ProgramError
from firesteel.functions.metrics import Counter
from firesteel.functions.split_enumerator import SplitEnumerator, SplitEnumeratorContext
from firesteel.functions.splits import Split
from firesteel_kafka.offsets import KafkaOffsetsInitializer, OffsetLookup
from firesteel_kafka.partitions import (
    KafkaTopicPartition,
    Subscription,
    UnknownTopicError,
    owner_of,
    partition_of,
    split_of,
    texts,
)

__all__ = ["ClusterSession", "Discovery", "KafkaEnumerator"]

logger = logging.getLogger(__name__)

FIRST_RETRY_MS: Final = 500
LONGEST_RETRY_MS: Final = 30_000
STATE_VERSION: Final = 1


class ClusterSession(OffsetLookup, Protocol):
    """A connection to Kafka; each call blocks.

    Raises:
        ConnectionError: no broker answers in time; the call may be repeated.
        ProgramError: a broker refuses.
    """

    def topics(self, names: Sequence[str] | None) -> Mapping[str, int]:
        """Topics that exist -> number of their partitions.

        Args:
            names: topics to look for; None = all but internal ones.
        """


@dataclass(frozen=True)
class Discovery:
    """Settings of an enumerator.

    Attributes:
        subscription: partitions to read.
        starting: offsets at which partitions begin that exist when the job starts; partitions that are found later are
            read from their first record.
        stopping: offsets at which partitions end; None = they have no end.
        bounded: the source ends when its partitions have.
        interval_ms: pause between two looks for new partitions; 0 = one look.
        connect: makes a session.
        servers: addresses of brokers, for messages.
    """

    subscription: Subscription
    starting: KafkaOffsetsInitializer
    stopping: KafkaOffsetsInitializer | None
    bounded: bool
    interval_ms: int
    connect: Callable[[], AbstractContextManager[ClusterSession]]
    servers: str


@dataclass(frozen=True)
class _Discovered:
    """Result of one look: all partitions of the subscription, and splits of those that are new."""

    partitions: frozenset[KafkaTopicPartition]
    splits: tuple[Split, ...]


class KafkaEnumerator(SplitEnumerator):
    """Enumerator of a ``KafkaSource``.

    Each look runs on another thread (``_discover``); its result is handled on the enumerator's own. A partition is
    assigned to the subtask that its name decides (``owner_of``) as soon as that subtask has a reader.

    Args:
        context: of the runtime.
        discovery: settings.
        state: state of a checkpoint; None = the job starts without one.
    """

    def __init__(
        self, context: SplitEnumeratorContext, discovery: Discovery, state: Mapping[str, Any] | None = None
    ) -> None:
        self._context, self._discovery = context, discovery
        self._known: set[KafkaTopicPartition] = set()
        """Partitions that were assigned to a reader, or wait for one."""
        self._pending: dict[str, Split] = {}
        """Splits that wait for a reader, by id."""
        self._started = False
        """Whether a first look has succeeded."""
        self._missing: frozenset[KafkaTopicPartition] = frozenset()
        self._failures = 0
        self._failed: Counter | None = None
        if state is not None:
            self._restore(state)

    @override
    def start(self) -> None:
        runtime = self._context.runtime_context()
        if runtime is not None:
            self._failed = runtime.get_metrics_group().counter("partitionDiscoveryFailures")
        if not self._started or self._looks_repeatedly:
            self._schedule_look(0)

    @property
    def _looks_repeatedly(self) -> bool:
        return self._discovery.interval_ms > 0 and not self._discovery.bounded

    def _schedule_look(self, milliseconds: int) -> None:
        known_partitions, first = frozenset(self._known), not self._started
        self._context.call_async(
            lambda: _discover(self._discovery, known_partitions, first), self._handle_look, milliseconds
        )

    def _handle_look(self, discovered: _Discovered | None, error: BaseException | None) -> None:
        if error is not None:
            if not isinstance(error, ConnectionError):
                raise error
            self._failures += 1
            if self._failed is not None:
                self._failed.inc()
            wait = min(FIRST_RETRY_MS << min(self._failures - 1, 16), LONGEST_RETRY_MS)
            logger.warning(
                "Kafka at %s can't be asked for partitions (%d times in a row), again in %d ms: %s",
                self._discovery.servers,
                self._failures,
                wait,
                error,
            )
            self._schedule_look(wait)
            return
        assert discovered is not None
        self._failures = 0
        self._add(discovered)
        if self._looks_repeatedly:
            self._schedule_look(self._discovery.interval_ms)

    def _add(self, discovered: _Discovered) -> None:
        missing = frozenset(self._known) - discovered.partitions
        if missing - self._missing:
            logger.warning(
                "Kafka at %s no longer has these partitions: %s. Their unread records are lost; readers wait for them",
                self._discovery.servers,
                texts(missing - self._missing),
            )
        self._missing = missing
        for split in discovered.splits:
            partition = partition_of(split)
            if partition not in self._known:
                self._known.add(partition)
                self._pending[split.id] = split
        if discovered.splits or not self._started:
            logger.info("Kafka source of %s: %d partitions found", self._discovery.subscription, len(discovered.splits))
        self._started = True
        self._assign()

    def _assign(self) -> None:
        parallelism, readers = self._context.current_parallelism(), self._context.registered_readers()
        for split in list(self._pending.values()):
            owner = owner_of(partition_of(split), parallelism)
            if owner in readers:
                del self._pending[split.id]
                self._context.assign_split(split, owner)
        if self._started and self._discovery.bounded:
            waited_for = {owner_of(partition_of(split), parallelism) for split in self._pending.values()}
            for subtask in readers:
                if subtask not in waited_for:
                    self._context.signal_no_more_splits(subtask)

    def add_reader(self, subtask_id: int) -> None:
        """Assign the waiting partitions of a subtask."""
        self._assign()

    def handle_split_request(self, subtask_id: int, requester_hostname: str | None) -> None:
        """Assign what waits. Readers of Kafka do not request splits."""
        self._assign()

    def add_splits_back(self, splits: Sequence[Split], subtask_id: int) -> None:
        """Take back the splits of a reader that has failed; they are assigned again."""
        for split in splits:
            if self._is_subscribed(split):
                self._known.add(partition_of(split))
                self._pending[split.id] = split

    def snapshot_state(self, checkpoint_id: int) -> dict[str, Any]:
        """Partitions that are known, and splits that wait for a reader."""
        return {
            "version": STATE_VERSION,
            "started": self._started,
            "known": [[partition.topic, partition.partition] for partition in sorted(self._known)],
            "pending": [split.to_plain() for split in self._pending.values()],
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        version = state.get("version")
        if version != STATE_VERSION:
            raise ProgramError(
                f"the state of a Kafka source has version {version}, and this release reads version {STATE_VERSION}"
            )
        self._started = bool(state["started"])
        subscription = self._discovery.subscription
        partitions = (KafkaTopicPartition(str(topic), int(partition)) for topic, partition in state["known"])
        self._known = {partition for partition in partitions if partition in subscription}
        splits = (Split.from_plain(plain) for plain in state["pending"])
        self._pending = {split.id: split for split in splits if self._is_subscribed(split)}

    def _is_subscribed(self, split: Split) -> bool:
        if partition_of(split) in self._discovery.subscription:
            return True
        logger.warning("partition %s of the checkpoint is not subscribed to any more: left out", split.id)
        return False


def _discover(discovery: Discovery, known: frozenset[KafkaTopicPartition], first: bool) -> _Discovered:
    """Look for partitions, and for the offsets of new ones. Blocks; runs on another thread."""
    subscription = discovery.subscription
    with discovery.connect() as session:
        topics = session.topics(subscription.wanted_topics)
        missing = subscription.missing(topics)
        if missing and first:
            raise UnknownTopicError(missing, discovery.servers)
        partitions = subscription.subscribed(topics)
        new_partitions = [partition for partition in partitions if partition not in known]
        if not new_partitions:
            return _Discovered(frozenset(partitions), ())
        starting = discovery.starting if first else KafkaOffsetsInitializer.earliest()
        starts = starting.find(new_partitions, session)
        stops = {} if discovery.stopping is None else discovery.stopping.find(new_partitions, session)
    splits = tuple(split_of(partition, starts[partition], stops.get(partition)) for partition in new_partitions)
    return _Discovered(frozenset(partitions), splits)
