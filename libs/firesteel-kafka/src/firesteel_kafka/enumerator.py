"""Finds partitions and hands them to subtasks. Runs in a slot: it has the program's credentials, and may wait."""

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
        ConnectionError: nobody answers, or not in time; it may be asked again.
        ProgramError: it refuses.
    """

    def topics(self, wanted: Sequence[str] | None) -> Mapping[str, int]:
        """Topics that exist -> number of their partitions.

        Args:
            wanted: of these only; None = all but internal ones.
        """


@dataclass(frozen=True)
class Discovery:
    """What the enumerator is to do.

    Attributes:
        subscription: what is read.
        starting: where partitions begin that are there when the job starts; those that are found later are read from
            their first record.
        stopping: where they end; None = nowhere.
        bounded: the source ends when its partitions have.
        interval_ms: between two looks for new partitions; 0 = one look.
        connect: makes a session.
        servers: for messages.
    """

    subscription: Subscription
    starting: KafkaOffsetsInitializer
    stopping: KafkaOffsetsInitializer | None
    bounded: bool
    interval_ms: int
    connect: Callable[[], AbstractContextManager[ClusterSession]]
    servers: str


@dataclass(frozen=True)
class _Found:
    partitions: frozenset[KafkaTopicPartition]
    missing: tuple[str, ...]
    splits: tuple[Split, ...]


class KafkaEnumerator(SplitEnumerator):
    """See the module.

    Args:
        context: of the runtime.
        discovery: what to do.
        state: of a checkpoint; None = the job begins anew.
    """

    def __init__(
        self, context: SplitEnumeratorContext, discovery: Discovery, state: Mapping[str, Any] | None = None
    ) -> None:
        self._context, self._discovery = context, discovery
        self._known: set[KafkaTopicPartition] = set()
        """Given to a reader once, or waiting for one."""
        self._pending: dict[str, Split] = {}
        self._started = False
        """Whether the first look was successful."""
        self._gone: frozenset[KafkaTopicPartition] = frozenset()
        self._failures = 0
        self._failed: Counter | None = None
        if state is not None:
            self._restore(state)

    @override
    def start(self) -> None:
        runtime = self._context.runtime_context()
        if runtime is not None:
            self._failed = runtime.get_metrics_group().counter("partitionDiscoveryFailures")
        if not self._started or self._looks_again:
            self._look_in(0)

    @property
    def _looks_again(self) -> bool:
        return self._discovery.interval_ms > 0 and not self._discovery.bounded

    def _look_in(self, milliseconds: int) -> None:
        known, first = frozenset(self._known), not self._started
        self._context.call_async(lambda: _look(self._discovery, known, first), self._looked, milliseconds)

    def _looked(self, found: _Found | None, error: BaseException | None) -> None:
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
            self._look_in(wait)
            return
        assert found is not None
        self._failures = 0
        self._take(found)
        if self._looks_again:
            self._look_in(self._discovery.interval_ms)

    def _take(self, found: _Found) -> None:
        gone = frozenset(self._known) - found.partitions
        if gone - self._gone:
            logger.warning(
                "Kafka at %s has these partitions no more: %s. What was not read is lost; readers wait for them",
                self._discovery.servers,
                texts(gone - self._gone),
            )
        self._gone = gone
        for split in found.splits:
            partition = partition_of(split)
            if partition not in self._known:
                self._known.add(partition)
                self._pending[split.id] = split
        if found.splits or not self._started:
            logger.info("Kafka source of %s: %d partitions found", self._discovery.subscription, len(found.splits))
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
        """Give it what is its own."""
        self._assign()

    def handle_split_request(self, subtask_id: int, requester_hostname: str | None) -> None:
        """Readers do not ask; what is theirs is given to them."""
        self._assign()

    def add_splits_back(self, splits: Sequence[Split], subtask_id: int) -> None:
        """To be given out again."""
        for split in splits:
            if self._wanted(split):
                self._known.add(partition_of(split))
                self._pending[split.id] = split

    def snapshot_state(self, checkpoint_id: int) -> dict[str, Any]:
        """What is known and what waits."""
        return {
            "version": STATE_VERSION,
            "started": self._started,
            "known": [[one.topic, one.partition] for one in sorted(self._known)],
            "pending": [split.to_plain() for split in self._pending.values()],
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        if state.get("version") != STATE_VERSION:
            found = state.get("version")
            raise ProgramError(f"the state of a Kafka source has version {found}; this one reads {STATE_VERSION}")
        self._started = bool(state["started"])
        subscription = self._discovery.subscription
        known = (KafkaTopicPartition(str(topic), int(partition)) for topic, partition in state["known"])
        self._known = {partition for partition in known if partition in subscription}
        splits = (Split.from_plain(plain) for plain in state["pending"])
        self._pending = {split.id: split for split in splits if self._wanted(split)}

    def _wanted(self, split: Split) -> bool:
        if partition_of(split) in self._discovery.subscription:
            return True
        logger.warning("partition %s of the checkpoint is not subscribed to any more: left out", split.id)
        return False


def _look(discovery: Discovery, known: frozenset[KafkaTopicPartition], first: bool) -> _Found:
    """On another thread."""
    subscription = discovery.subscription
    with discovery.connect() as session:
        topics = session.topics(subscription.wanted_topics)
        missing = subscription.missing(topics)
        if missing and first:
            raise UnknownTopicError(missing, discovery.servers)
        partitions = subscription.of(topics)
        new = [partition for partition in partitions if partition not in known]
        if not new:
            return _Found(frozenset(partitions), tuple(missing), ())
        starting = discovery.starting if first else KafkaOffsetsInitializer.earliest()
        starts = starting.find(new, session)
        stops = {} if discovery.stopping is None else discovery.stopping.find(new, session)
    splits = tuple(split_of(partition, starts[partition], stops.get(partition)) for partition in new)
    return _Found(frozenset(partitions), tuple(missing), splits)
