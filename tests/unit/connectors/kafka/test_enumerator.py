"""Who reads which partitions: looks for them, checkpoints, brokers that are away, topics that come and go."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from firesteel.core.errors import ProgramError
from firesteel.functions.source import ReaderInfo, Split, SplitEnumeratorContext
from firesteel_kafka.enumerator import Discovery, KafkaEnumerator
from firesteel_kafka.offsets import KafkaOffsetsInitializer
from firesteel_kafka.partitions import KafkaTopicPartition, Subscription, UnknownTopicError
from tests.unit.connectors.kafka.lookups import FakeCluster


def partitions(topic: str, count: int) -> dict[KafkaTopicPartition, tuple[int, int]]:
    return {KafkaTopicPartition(topic, number): (number, 10 + number) for number in range(count)}


class Context(SplitEnumeratorContext):
    """Readers that a test stands for; what is done elsewhere waits until ``look``."""

    def __init__(self, parallelism: int, readers: int | None = None) -> None:
        self.parallelism = parallelism
        self.readers = {
            number: ReaderInfo(number, "here") for number in range(parallelism if readers is None else readers)
        }
        self.assigned: dict[int, list[Split]] = {}
        self.no_more: set[int] = set()
        self.waiting: deque[tuple[int, Callable[[], Any], Callable[..., None]]] = deque()

    def current_parallelism(self) -> int:
        return self.parallelism

    def registered_readers(self) -> Mapping[int, ReaderInfo]:
        return self.readers

    def assign_split(self, split: Split, subtask_id: int) -> None:
        assert subtask_id in self.readers
        assert subtask_id not in self.no_more
        self.assigned.setdefault(subtask_id, []).append(split)

    def signal_no_more_splits(self, subtask_id: int) -> None:
        self.no_more.add(subtask_id)

    def call_async(self, callable: Any, handler: Any, initial_delay_ms: int = 0, period_ms: int | None = None) -> None:
        assert period_ms is None
        self.waiting.append((initial_delay_ms, callable, handler))

    def run_in_coordinator_thread(self, runnable: Callable[[], None]) -> None:
        raise AssertionError

    def look(self) -> int:
        """Do what waits; returns the delay it was to have."""
        delay, work, handler = self.waiting.popleft()
        try:
            result = work()
        except Exception as error:
            handler(None, error)
        else:
            handler(result, None)
        return delay

    def ids(self) -> dict[int, list[str]]:
        return {subtask: [split.id for split in splits] for subtask, splits in sorted(self.assigned.items())}


def make(
    context: Context,
    cluster: FakeCluster,
    state: Any = None,
    *,
    subscription: Subscription = Subscription(topics=("t",)),  # noqa: B008 - it can't be changed
    starting: KafkaOffsetsInitializer = KafkaOffsetsInitializer.latest(),  # noqa: B008
    stopping: KafkaOffsetsInitializer | None = None,
    bounded: bool = False,
    interval: int = 1000,
) -> KafkaEnumerator:
    discovery = Discovery(subscription, starting, stopping, bounded, interval, lambda: cluster, "broker:9092")
    enumerator = KafkaEnumerator(context, discovery, state if state is None else json.loads(json.dumps(state)))
    enumerator.start()
    return enumerator


def test_partitions_go_round_with_their_offsets() -> None:
    context = Context(2)
    make(context, FakeCluster(partitions("t", 4)))
    assert context.look() == 0
    assert sorted(map(len, context.assigned.values())) == [2, 2]
    assigned = [split for splits in context.assigned.values() for split in splits]
    assert {split.id: (split.data["start"], split.data["stop"]) for split in assigned} == {
        "t-0": (10, None), "t-1": (11, None), "t-2": (12, None), "t-3": (13, None),
    }  # fmt: skip


def test_readers_that_come_later_get_theirs() -> None:
    context = Context(2, readers=0)
    enumerator = make(context, FakeCluster(partitions("t", 4)))
    context.look()
    assert not context.assigned
    for subtask in (1, 0):
        context.readers[subtask] = ReaderInfo(subtask, "here")
        enumerator.add_reader(subtask)
        assert len(context.assigned[subtask]) == 2
        assert not context.no_more


def test_new_partitions_are_found_and_read_from_their_first_record() -> None:
    context, cluster = Context(2), FakeCluster(partitions("t", 1))
    make(context, cluster)
    context.look()
    cluster.bounds = partitions("t", 3)
    assert context.look() == 1000
    starts = {split.id: split.data["start"] for splits in context.assigned.values() for split in splits}
    assert starts == {"t-0": 10, "t-1": 1, "t-2": 2}
    assert sum(map(len, context.assigned.values())) == 3


def test_without_an_interval_there_is_one_look() -> None:
    context = Context(1)
    make(context, FakeCluster(partitions("t", 1)), interval=0)
    context.look()
    assert not context.waiting
    assert not context.no_more, "only a bounded source ends"


def test_a_bounded_source_ends_and_looks_once() -> None:
    context = Context(2, readers=1)
    enumerator = make(
        context, FakeCluster(partitions("t", 1)), starting=KafkaOffsetsInitializer.earliest(),
        stopping=KafkaOffsetsInitializer.latest(), bounded=True,
    )  # fmt: skip
    context.look()
    assert not context.waiting
    context.readers[1] = ReaderInfo(1, "here")
    enumerator.add_reader(1)
    assert context.no_more == {0, 1}
    assert [(split.data["start"], split.data["stop"]) for splits in context.assigned.values() for split in splits] == [
        (0, 10)
    ]


def test_a_topic_that_does_not_exist_fails_the_job() -> None:
    context = Context(1)
    make(context, FakeCluster(partitions("other", 1)), subscription=Subscription(topics=("t", "other")))
    with pytest.raises(UnknownTopicError, match="Kafka at broker:9092 has no topic 't': create what is missing"):
        context.look()


def test_topics_of_a_pattern_may_come_later() -> None:
    context, cluster = Context(1), FakeCluster({})
    make(context, cluster, subscription=Subscription(pattern="t.*"))
    context.look()
    assert not context.assigned
    cluster.bounds = partitions("t1", 1)
    context.look()
    assert context.ids() == {0: ["t1-0"]}
    assert cluster.wanted == [None, None]


def test_brokers_that_are_away_are_asked_again_and_later_each_time(caplog: pytest.LogCaptureFixture) -> None:
    context, cluster = Context(1), FakeCluster(partitions("t", 1))
    make(context, cluster)
    cluster.trouble = ConnectionError("nobody there")
    context.look()
    assert [context.look() for _ in range(8)] == [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]
    assert "Kafka at broker:9092 can't be asked for partitions (9 times in a row), again in 30000 ms" in caplog.text
    cluster.trouble = None
    context.look()
    assert context.ids() == {0: ["t-0"]}
    assert context.look() == 1000


def test_a_refusal_fails_the_job() -> None:
    context, cluster = Context(1), FakeCluster(partitions("t", 1))
    make(context, cluster)
    cluster.trouble = ProgramError("wrong password")
    with pytest.raises(ProgramError, match="wrong password"):
        context.look()


def test_partitions_that_vanish_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    context, cluster = Context(1), FakeCluster(partitions("t", 2))
    make(context, cluster)
    context.look()
    cluster.bounds = partitions("t", 1)
    context.look()
    context.look()
    assert caplog.text.count("no longer has these partitions: t-1") == 1
    cluster.bounds = partitions("t", 2)
    context.look()
    assert sum(map(len, context.assigned.values())) == 2, "it is read by its reader already"


def test_state_has_what_is_known_and_what_waits() -> None:
    context, cluster = Context(2, readers=0), FakeCluster(partitions("t", 2))
    state = make(context, cluster).snapshot_state(1)
    first = Context(1)
    make(first, cluster, state)
    assert first.look() == 0
    assert {split.data["start"] for split in first.assigned[0]} == {10, 11}, "the first look is still to be made"

    enumerator = make(context, cluster)
    context.waiting.popleft()
    context.look()
    state = enumerator.snapshot_state(2)
    cluster.bounds = {partition: (0, 99) for partition in cluster.bounds}
    later = Context(1)
    restored = make(later, cluster, state)
    later.look()
    restored.add_reader(0)
    assert {split.data["start"] for split in later.assigned[0]} == {10, 11}, "latest was found out once"
    assert sum(map(len, later.assigned.values())) == 2
    again = Context(1)
    make(again, cluster, restored.snapshot_state(3))
    again.look()
    assert not again.assigned


def test_splits_that_come_back_are_given_out_again() -> None:
    context, cluster = Context(1), FakeCluster(partitions("t", 1))
    enumerator = make(context, cluster)
    context.look()
    state = enumerator.snapshot_state(1)
    (split,) = context.assigned[0]
    later = Context(1, readers=0)
    restored = make(later, cluster, state)
    restored.add_splits_back([split], 0)
    later.readers[0] = ReaderInfo(0, "here")
    restored.add_reader(0)
    assert later.assigned[0] == [split]


def test_other_topics_after_a_restore(caplog: pytest.LogCaptureFixture) -> None:
    context = Context(1, readers=0)
    cluster = FakeCluster({**partitions("t", 1), **partitions("u", 1)})
    enumerator = make(context, cluster)
    context.look()
    later = Context(1)
    restored = make(later, cluster, enumerator.snapshot_state(1), subscription=Subscription(topics=("u",)))
    restored.add_reader(0)
    later.look()
    assert later.ids() == {0: ["u-0"]}
    assert later.assigned[0][0].data["start"] == 0
    assert "partition t-0 of the checkpoint is not subscribed to any more" in caplog.text
