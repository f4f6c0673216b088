"""Where partitions begin and end, and which ones are read."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from firesteel.core.errors import CheckpointVersionError, ProgramError
from firesteel.functions.splits import Split
from firesteel_kafka.offsets import KafkaOffsetResetStrategy, KafkaOffsetsInitializer
from firesteel_kafka.partitions import KafkaTopicPartition, Subscription, owner_of, partition_of, split_of
from tests.unit.connectors.kafka.lookups import FakeCluster

P0, P1, P2 = (KafkaTopicPartition("t", number) for number in range(3))
EARLIEST, LATEST, NONE = (KafkaOffsetResetStrategy[name] for name in ("EARLIEST", "LATEST", "NONE"))
NO_PARTITION: Any = ("t", 0)
NO_STRATEGY: Any = "earliest"
CLUSTER = FakeCluster({P0: (5, 100), P1: (0, 7), P2: (3, 3)}, group={P1: 4}, by_time={P0: 50, P1: 6})


@pytest.mark.parametrize(
    ("initializer", "expected"),
    [
        (KafkaOffsetsInitializer.earliest(), {P0: 5, P1: 0, P2: 3}),
        (KafkaOffsetsInitializer.latest(), {P0: 100, P1: 7, P2: 3}),
        (KafkaOffsetsInitializer.timestamp(1234), {P0: 50, P1: 6, P2: 3}),
        (KafkaOffsetsInitializer.committed_offsets(EARLIEST), {P0: 5, P1: 4, P2: 3}),
        (KafkaOffsetsInitializer.committed_offsets(LATEST), {P0: 100, P1: 4, P2: 3}),
        (KafkaOffsetsInitializer.offsets({P0: 9}), {P0: 9, P1: 0, P2: 3}),
        (KafkaOffsetsInitializer.offsets({P0: 9, P1: 1, P2: 3}, NONE), {P0: 9, P1: 1, P2: 3}),
    ],
)
def test_offsets_are_found(initializer: KafkaOffsetsInitializer, expected: dict[KafkaTopicPartition, int]) -> None:
    assert pickle.loads(pickle.dumps(initializer)).find([P0, P1, P2], CLUSTER) == expected


@pytest.mark.parametrize(
    ("initializer", "reason"),
    [
        (
            KafkaOffsetsInitializer.committed_offsets(),
            "there is no committed offset for t-0, t-2, and the reset strategy",
        ),
        (KafkaOffsetsInitializer.offsets({P1: 1}, NONE), "there is no given offset for t-0, t-2"),
    ],
)
def test_without_an_offset_or_a_strategy_nothing_begins(initializer: KafkaOffsetsInitializer, reason: str) -> None:
    with pytest.raises(ProgramError, match=reason):
        initializer.find([P0, P1, P2], CLUSTER)


def test_partitions_without_an_answer_are_trouble_that_passes() -> None:
    with pytest.raises(ConnectionError, match="no offsets for t-2"):
        KafkaOffsetsInitializer.earliest().find([P0, P2], FakeCluster({P0: (0, 1)}))


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: KafkaOffsetsInitializer.timestamp(-1), ProgramError),
        (lambda: KafkaOffsetsInitializer.offsets({NO_PARTITION: 1}), ProgramError),
        (lambda: KafkaOffsetsInitializer.offsets({P0: -1}), ProgramError),
        (lambda: KafkaOffsetsInitializer.committed_offsets(NO_STRATEGY), TypeError),
        (lambda: KafkaTopicPartition("", 0), TypeError),
        (lambda: KafkaTopicPartition("t", -1), ValueError),
    ],
)
def test_what_is_no_offset_is_refused(make: Callable[[], object], error: type[Exception]) -> None:
    with pytest.raises(error):
        make()


def test_defaults_of_resets_are_flinks() -> None:
    assert KafkaOffsetsInitializer.earliest().reset is EARLIEST
    assert KafkaOffsetsInitializer.latest().reset is LATEST
    assert KafkaOffsetsInitializer.timestamp(0).reset is LATEST
    assert KafkaOffsetsInitializer.committed_offsets().reset is NONE
    assert KafkaOffsetsInitializer.offsets({}).reset is EARLIEST


FOUND = {"t": 2, "ta": 1, "u": 1}


@pytest.mark.parametrize(
    ("subscription", "partitions", "missing"),
    [
        (Subscription(topics=("t", "x")), ["t-0", "t-1"], ["topic 'x'"]),
        (Subscription(pattern="t.?"), ["t-0", "t-1", "ta-0"], []),
        (Subscription(pattern="a"), [], []),
        (Subscription(partitions=(P1, P2)), ["t-1"], ["partition 2 of topic 't' (it has 2)"]),
    ],
)
def test_subscriptions(subscription: Subscription, partitions: list[str], missing: list[str]) -> None:
    assert [str(partition) for partition in subscription.subscribed(FOUND)] == partitions
    assert subscription.missing(FOUND) == missing


def test_the_partitions_of_a_topic_go_round() -> None:
    owners = [owner_of(KafkaTopicPartition("orders", number), 4) for number in range(8)]
    assert sorted(owners[:4]) == [0, 1, 2, 3]
    assert owners[4:] == owners[:4]


def test_a_split_of_another_version_is_refused() -> None:
    split = split_of(P1, 3, None)
    assert partition_of(split) == P1
    with pytest.raises(CheckpointVersionError, match="split 't-1' has version 9"):
        partition_of(Split(split.id, split.data, None, 9))
