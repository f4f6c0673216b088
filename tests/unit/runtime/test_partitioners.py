"""Each record reaches the channel that Flink's rules say."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel.core.errors import KeyTypeError, ProgramError
from firesteel.functions.functions import KeySelector, Partitioner
from firesteel.graph.key_groups import KeyGroupAssigner
from firesteel.graph.specs import OutputSpec, PartitionerKind
from firesteel.runtime.chain.partitioners import Output, bucket, create_output
from firesteel.runtime.operator_base.failures import find_site
from firesteel.runtime.records.batch import Batch
from tests.unit.runtime.support import FakeOutput


def output_of(kind: PartitionerKind, count: int, **more: Any) -> tuple[Output, list[FakeOutput]]:
    """An output with so many fake channels."""
    channels = [FakeOutput(i) for i in range(count)]
    return create_output(OutputSpec(0, 0, kind, **more), "op", channels, 128, random.Random(1)), channels


def send(output: Output, values: list[Any], stamps: list[int] | None = None) -> None:
    """As the chain does."""
    for channel, batch in output.route(Batch(values, stamps)):
        channel.write(batch)


@given(st.lists(st.lists(st.integers(), max_size=20), max_size=10), st.integers(1, 5))
def test_rebalance_is_round_robin_over_batches_and_keeps_order(batches: list[list[int]], count: int) -> None:
    output, channels = output_of(PartitionerKind.REBALANCE, count)
    for batch in batches:
        send(output, batch)
    everything = [value for batch in batches for value in batch]
    lengths = [len(channel.values) for channel in channels]
    assert sum(lengths) == len(everything)
    assert max(lengths) - min(lengths) <= 1
    starts = [channel.values for channel in channels]
    assert any(starts == [everything[(c - start) % count :: count] for c in range(count)] for start in range(count))


@pytest.mark.parametrize("count", [2, 3, 5])
def test_hash_sends_a_key_to_its_key_group_in_order_with_timestamps(count: int) -> None:
    output, channels = output_of(PartitionerKind.HASH, count, key_selector=lambda v: v[0])
    values = [(f"key {i % 40}", i) for i in range(1000)]
    send(output, values[:300], list(range(300)))
    send(output, values[300:], list(range(300, 1000)))
    assigner = KeyGroupAssigner(count, 128)
    for position, channel in enumerate(channels):
        mine = [value for value in values if assigner(value[0]) == position]
        assert channel.values == mine
        assert channel.timestamps == [i for _, i in mine]
        assert mine


def test_hash_names_the_record_whose_key_is_refused() -> None:
    output, _ = output_of(PartitionerKind.HASH, 2, key_selector=lambda v: v)
    with pytest.raises(KeyTypeError, match="dict") as caught:
        send(output, [1, "a", {}, 2])
    assert find_site(caught.value.__traceback__) == ("op", "{}")


def test_a_failing_key_selector_names_its_record() -> None:
    output, _ = output_of(PartitionerKind.HASH, 2, key_selector=lambda v: v[0])
    with pytest.raises(IndexError) as caught:
        send(output, ["a", "b", "", "c"])
    assert find_site(caught.value.__traceback__) == ("op", "''")


def test_broadcast_reaches_all() -> None:
    output, channels = output_of(PartitionerKind.BROADCAST, 3)
    send(output, [1, 2], [10, 20])
    assert [channel.values for channel in channels] == [[1, 2]] * 3
    assert [channel.timestamps for channel in channels] == [[10, 20]] * 3


def test_global_reaches_the_first() -> None:
    output, channels = output_of(PartitionerKind.GLOBAL, 3)
    send(output, [1, 2])
    assert [channel.values for channel in channels] == [[1, 2], [], []]


def test_shuffle_reaches_all_about_equally() -> None:
    output, channels = output_of(PartitionerKind.SHUFFLE, 4)
    send(output, list(range(4000)))
    assert sorted(value for channel in channels for value in channel.values) == list(range(4000))
    assert all(850 < len(channel.values) < 1150 for channel in channels)


class ByRemainder(Partitioner[int]):
    def partition(self, key: int, num_partitions: int) -> int:
        return key % num_partitions


class Self(KeySelector[int, int]):
    def get_key(self, value: int) -> int:
        return value


@pytest.mark.parametrize("partition", [ByRemainder(), lambda key, n: key % n])
def test_custom(partition: Any) -> None:
    output, channels = output_of(PartitionerKind.CUSTOM, 3, key_selector=Self(), partition=partition)
    send(output, list(range(7)))
    assert [channel.values for channel in channels] == [[0, 3, 6], [1, 4], [2, 5]]


@pytest.mark.parametrize("wrong", [3, -1, None, "0", True, 1.0])
def test_custom_checks_what_the_partitioner_says(wrong: Any) -> None:
    output, _ = output_of(PartitionerKind.CUSTOM, 3, key_selector=lambda v: v, partition=lambda key, n: wrong)
    with pytest.raises(ProgramError, match="int from 0 to 2") as caught:
        send(output, [7])
    assert repr(wrong) in str(caught.value)
    assert find_site(caught.value.__traceback__) == ("op", "7")


def test_custom_takes_numbers_of_other_libraries() -> None:
    import numpy

    output, channels = output_of(
        PartitionerKind.CUSTOM, 2, key_selector=lambda v: v, partition=lambda key, n: numpy.int64(1)
    )
    send(output, [7])
    assert channels[1].values == [7]


@given(st.lists(st.integers(0, 2)), st.integers(3, 6))
def test_buckets_hold_what_targets_say(targets: list[int], count: int) -> None:
    values = list(range(len(targets)))
    for n in (count, *([2] if max(targets, default=0) < 2 else [])):
        parts = bucket(values, targets, n)
        assert parts == [[v for v, t in zip(values, targets, strict=True) if t == p] for p in range(n)]


def test_one_channel_takes_everything_without_asking_for_keys() -> None:
    output, channels = output_of(PartitionerKind.HASH, 1, key_selector=lambda v: 1 / 0)
    send(output, [1, 2])
    assert channels[0].values == [1, 2]
    assert Counter(type(output).__name__ for _ in range(1)) == {"SingleOutput": 1}
