"""State of all kinds in real slots, at several parallelisms, beside plain Python."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from firesteel.common import Row, Time, Types
from firesteel.core.errors import ConfigurationError, JobFailedError, ProgramError
from firesteel.datastream import (
    BroadcastProcessFunction,
    CheckpointedFunction,
    DataStream,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
)
from firesteel.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from tests.integration.embedded.programs import new_environment

pytestmark = pytest.mark.usefixtures("cluster")
PARALLELISMS = pytest.mark.parametrize("parallelism", [pytest.param(1, marks=pytest.mark.long), 3])
_random = random.Random(11)
EVENTS = [(_random.choice("abcdefghij"), _random.choice("xyz"), _random.randrange(1000)) for _ in range(3000)]
EVENT = Types.TUPLE([Types.STRING(), Types.STRING(), Types.INT()])


def first(value: Any) -> Any:
    return value[0]


class Mean:
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class Everything(KeyedProcessFunction[str, Any, Any]):
    """Uses all kinds, some with a time-to-live that no test lives to see."""

    def open(self, runtime_context: RuntimeContext) -> None:
        ttl = StateTtlConfig.new_builder(Time.days(1)).cleanup_incrementally(3, True).build()
        last = ListStateDescriptor("last", Types.INT())
        counts = MapStateDescriptor("counts", Types.STRING(), Types.LONG())
        last.enable_time_to_live(ttl)
        counts.enable_time_to_live(ttl)
        self.row = runtime_context.get_state(
            ValueStateDescriptor("row", Types.ROW_NAMED(["n", "top"], [Types.LONG(), Types.INT()]))
        )
        self.last = runtime_context.get_list_state(last)
        self.counts = runtime_context.get_map_state(counts)
        self.total = runtime_context.get_reducing_state(
            ReducingStateDescriptor("total", lambda a, b: a + b, Types.LONG())
        )
        self.mean = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("mean", Mean(), Types.TUPLE([Types.LONG(), Types.LONG()]))
        )

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        key, kind, number = value
        row = self.row.value() or Row(n=0, top=-1)
        self.row.update(Row(n=row.n + 1, top=max(row.top, number)))
        self.last.add(number)
        self.last.update(list(self.last.get())[-3:])
        self.counts[kind] = (self.counts[kind] or 0) + 1
        self.total.add(number)
        self.mean.add(number)
        row = self.row.value()
        assert row is not None
        counts = tuple(sorted(self.counts.items()))
        yield key, row.n, row.top, tuple(self.last.get()), counts, self.total.get(), self.mean.get()


def expected_of_everything() -> list[Any]:
    numbers: dict[str, list[int]] = defaultdict(list)
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    results = []
    for key, kind, number in EVENTS:
        numbers[key].append(number)
        kinds[key][kind] += 1
        seen = numbers[key]
        counts = tuple(sorted(kinds[key].items()))
        results.append((key, len(seen), max(seen), tuple(seen[-3:]), counts, sum(seen), sum(seen) / len(seen)))
    return sorted(results, key=repr)


def collected(stream: DataStream) -> list[Any]:
    with stream.execute_and_collect() as results:
        return sorted(results, key=repr)


@pytest.mark.smoke
@PARALLELISMS
def test_all_kinds_of_keyed_state(parallelism: int) -> None:
    env = new_environment(parallelism)
    events = env.from_collection(EVENTS, EVENT)
    assert collected(events.key_by(first).process(Everything())) == expected_of_everything()


RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())


class Mark(BroadcastProcessFunction[Any, Any, Any]):
    """Gives each broadcast record once for each subtask, with what the state holds; and each record."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.index = runtime_context.get_index_of_this_subtask()

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        assert all(rule <= 5 for rule in ctx.get_broadcast_state(RULES).values())
        yield "record", value

    def process_broadcast_element(self, value: int, ctx: Any) -> Iterator[Any]:
        state = ctx.get_broadcast_state(RULES)
        state.put(str(value), value)
        yield "rule", self.index, sorted(state.keys())


@PARALLELISMS
def test_each_subtask_gets_each_broadcast_record(parallelism: int) -> None:
    env = new_environment(parallelism)
    rules = env.from_collection([1, 2, 3], Types.INT()).broadcast(RULES)
    numbers = env.from_sequence(1, 100)
    results = collected(numbers.connect(rules).process(Mark()))
    assert sorted(value for kind, *value in results if kind == "record") == [[n] for n in range(1, 101)]
    seen = [["1"], ["1", "2"], ["1", "2", "3"]]
    rules_seen = [tuple(value) for kind, *value in results if kind == "rule"]
    assert sorted(rules_seen) == sorted((index, keys) for index in range(parallelism) for keys in seen)


class Totals(KeyedBroadcastProcessFunction[str, Any, Any, Any]):
    """Sums for each key; whatever comes first, key by key the sums end the same."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.descriptor = ValueStateDescriptor("sum", Types.LONG())
        self.sum = runtime_context.get_state(self.descriptor)

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        assert ctx.get_current_key() == value[0]
        self.sum.update((self.sum.value() or 0) + value[2])
        yield "sum", value[0], self.sum.value()

    def process_broadcast_element(self, value: int, ctx: Any) -> Any:
        totals: list[Any] = []
        ctx.apply_to_keyed_state(self.descriptor, lambda key, state: totals.append((key, state.value())))
        return [("keys", key, total > 0) for key, total in totals]


@PARALLELISMS
def test_keyed_state_beside_broadcast_state(parallelism: int) -> None:
    env = new_environment(parallelism)
    rules = env.from_collection([1], Types.INT()).broadcast(RULES)
    events = env.from_collection([e for e in EVENTS if e[2] > 0], EVENT)
    results = collected(events.key_by(first).connect(rules).process(Totals()))
    sums: Counter[str] = Counter()
    expected = []
    for key, _, number in EVENTS:
        if number > 0:
            sums[key] += number
            expected.append(("sum", key, sums[key]))
    assert [value for value in results if value[0] == "sum"] == sorted(expected, key=repr)
    keys_seen = [value for value in results if value[0] == "keys"]
    assert all(positive for _, _, positive in keys_seen)
    assert len(set(keys_seen)) == len(keys_seen), "a key was told of by two subtasks"


class Numbered(MapFunction[Any, Any], CheckpointedFunction):
    def initialize_state(self, context: Any) -> None:
        assert not context.is_restored()
        self.seen = context.get_operator_state_store().get_list_state(ListStateDescriptor("seen", Types.LONG()))

    def snapshot_state(self, context: Any) -> None:
        raise AssertionError("there are no checkpoints")

    def map(self, value: int) -> int:
        self.seen.add(value)
        return len(list(self.seen.get()))


def test_operator_state() -> None:
    assert collected(new_environment().from_sequence(1, 5).map(Numbered())) == [1, 2, 3, 4, 5]


class OffKey(MapFunction[Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        if runtime_context is not None:  # what no condition stands in front of is refused before the job runs
            self.state = runtime_context.get_list_state(ListStateDescriptor("mine", Types.INT()))

    def map(self, value: Any) -> Any:
        return value


class TwoTypes(KeyedProcessFunction[Any, Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        name = "prices"
        runtime_context.get_state(ValueStateDescriptor(name, Types.INT()))
        runtime_context.get_list_state(ListStateDescriptor(name, Types.INT()))

    def process_element(self, value: Any, ctx: Any) -> Any: ...


def test_wrong_programs_fail_with_names() -> None:
    env = new_environment()
    with pytest.raises(JobFailedError) as off_key:
        collected(env.from_sequence(1, 3).map(OffKey()).name("Lone wolf"))
    assert "operator 'Lone wolf' asks for keyed state but is not on a keyed stream" in str(off_key.value)
    with pytest.raises(JobFailedError) as two_types:
        collected(env.from_sequence(1, 3).key_by(lambda n: n).process(TwoTypes()))
    assert "state 'prices' was asked for as ValueStateDescriptor" in str(two_types.value)
    assert isinstance(two_types.value.__cause__, ProgramError)


def test_an_unknown_state_backend_fails_with_those_that_are_known() -> None:
    env = new_environment(state__backend__type="floppy")
    with pytest.raises((JobFailedError, ConfigurationError)) as refused:
        collected(env.from_sequence(1, 3).key_by(lambda n: n).map(str))
    assert "no firesteel.state_backends plug-in is called 'floppy'; known: filesystem, hashmap" in str(refused.value)
