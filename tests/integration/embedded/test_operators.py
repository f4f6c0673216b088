"""Every operator and partitioner in real slots, at several parallelisms, beside plain Python."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from firesteel.common import Row, Types
from firesteel.datastream import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    DataStream,
    FilterFunction,
    FlatMapFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
    ReduceFunction,
    RuntimeContext,
)
from firesteel.datastream.state import ValueStateDescriptor
from tests.integration.embedded.programs import ANYWHERE, new_environment

pytestmark = ANYWHERE
PARALLELISM = 3
"""More slots than one TaskManager of the cluster of processes has; other degrees are those of the unit tests."""
_random = random.Random(7)
PAIRS = [(_random.choice("abcdefghij"), _random.randrange(-1000, 1000)) for _ in range(5000)]


def collected(stream: DataStream) -> list[Any]:
    """All records, sorted by text: subtasks run side by side."""
    with stream.execute_and_collect() as results:
        return sorted(results, key=repr)


def in_order(values: Iterable[Any]) -> list[Any]:
    return sorted(values, key=repr)


class AddIndex(MapFunction):  # type: ignore[type-arg]
    def open(self, runtime_context: RuntimeContext) -> None:
        self.index = runtime_context.get_index_of_this_subtask()
        self.parallelism = runtime_context.get_number_of_parallel_subtasks()
        self.name = runtime_context.get_task_name_with_subtasks()

    def map(self, value: Any) -> Any:
        assert f"({self.index + 1}/{self.parallelism})#0" in self.name, self.name
        return self.index, value


class Digits(FlatMapFunction):  # type: ignore[type-arg]
    def flat_map(self, value: int) -> Iterable[str] | None:
        return list(str(abs(value))) if value % 3 else None


class Positive(FilterFunction):  # type: ignore[type-arg]
    def filter(self, value: Any) -> bool:
        return bool(value[1] > 0)


class First(KeySelector):  # type: ignore[type-arg]
    def get_key(self, value: Any) -> Any:
        return value[0]


class Add(ReduceFunction):  # type: ignore[type-arg]
    def reduce(self, value1: Any, value2: Any) -> Any:
        return value1[0], value1[1] + value2[1]


class Halves(ProcessFunction):  # type: ignore[type-arg]
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        assert ctx.timestamp() is None
        yield value, value[1] // 2
        if value[1] % 2:
            yield value, value[1] // 2 + 1


class Numbered(KeyedProcessFunction):  # type: ignore[type-arg]
    """Gives each record of a key its number; begins anew behind 100."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        assert ctx.get_current_key() == value[0]
        number = (self.count.value() or 0) + 1
        if number == 100:
            self.count.clear()
        else:
            self.count.update(number)
        yield value[0], number


class LeftRight(CoMapFunction):  # type: ignore[type-arg]
    def map1(self, value: Any) -> Any:
        return "left", value

    def map2(self, value: Any) -> Any:
        return ("right", value) if value[1] > 0 else None


class Both(CoFlatMapFunction):  # type: ignore[type-arg]
    def flat_map1(self, value: Any) -> Iterable[Any]:
        return [value] * 2

    def flat_map2(self, value: Any) -> Iterator[Any]:
        yield from value


class Sides(CoProcessFunction):  # type: ignore[type-arg]
    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any]:
        return [(1, value)]

    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any]:
        return [(2, value)]


class Join(KeyedCoProcessFunction):  # type: ignore[type-arg]
    """Sums both sides of a key in state that they share."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sums = runtime_context.get_state(ValueStateDescriptor("sums", Types.PICKLED_BYTE_ARRAY()))

    def _add(self, side: int, value: Any, key: Any) -> Iterator[Any]:
        sums = list(self.sums.value() or (0, 0))
        sums[side] += value[1]
        self.sums.update(tuple(sums))
        yield key, tuple(sums)

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterator[Any]:
        return self._add(0, value, ctx.get_current_key())

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterator[Any]:
        return self._add(1, value, ctx.get_current_key())


class ByLength(Partitioner):  # type: ignore[type-arg]
    def partition(self, key: str, num_partitions: int) -> int:
        return len(key) % num_partitions


def _named(name: str) -> Callable[[Any], Any]:
    return lambda value: (name, value)


def in_one_job(branches: Mapping[str, DataStream]) -> dict[str, list[Any]]:
    """Runs all branches of a program together; the records of each, in the order of arrival."""
    first, *others = (stream.map(_named(name)) for name, stream in branches.items())
    by_branch: dict[str, list[Any]] = {name: [] for name in branches}
    with first.union(*others).execute_and_collect() as results:
        for name, value in results:
            by_branch[name].append(value)
    return by_branch


def test_map_flat_map_filter_process() -> None:
    env = new_environment(PARALLELISM)
    pairs, numbers = env.from_collection(PAIRS).rebalance(), env.from_sequence(-500, 500)
    by_branch = in_one_job(
        {
            "map": pairs.filter(Positive()).map(lambda pair: pair[1] * 2),
            "flat_map": numbers.flat_map(Digits(), Types.STRING()),
            "process": pairs.process(Halves()),
        }
    )
    expected: dict[str, list[Any]] = {
        "map": [value * 2 for _, value in PAIRS if value > 0],
        "flat_map": [digit for number in range(-500, 501) if number % 3 for digit in str(abs(number))],
        "process": [(p, p[1] // 2) for p in PAIRS] + [(p, p[1] // 2 + 1) for p in PAIRS if p[1] % 2],
    }
    for name, values in expected.items():
        assert Counter(by_branch[name]) == Counter(values), name


def test_keyed_reduce_and_aggregations() -> None:
    typed = Types.TUPLE([Types.STRING(), Types.LONG()])
    groups: dict[str, list[int]] = defaultdict(list)
    for key, value in PAIRS:
        groups[key].append(value)
    keyed = new_environment(PARALLELISM).from_collection(PAIRS, typed).key_by(First(), Types.STRING())
    add: Callable[[int, int], int] = lambda a, b: a + b  # noqa: E731
    steps: dict[str, Callable[..., int]] = {
        "reduce": add,
        "lambda": add,
        "sum": add,
        "min": min,
        "max": max,
        "min_by": min,
        "max_by": max,
    }
    by_branch = in_one_job(
        {
            "reduce": keyed.reduce(Add()),
            "lambda": keyed.reduce(lambda a, b: (a[0], a[1] + b[1])),
            **{name: getattr(keyed, name)(1) for name in ("sum", "min", "max", "min_by", "max_by")},
        }
    )
    for name, results in by_branch.items():
        by_key: dict[str, list[int]] = defaultdict(list)
        for key, value in results:
            by_key[key].append(value)
        for key, values in groups.items():  # one source: a key's records keep their order, so all steps are known
            expected = values[:1]
            for value in values[1:]:
                expected.append(steps[name](expected[-1], value))
            assert by_key[key] == expected, (name, key)
        assert by_key.keys() == groups.keys()


def test_value_state_of_keys() -> None:
    stream = new_environment(PARALLELISM).from_collection(PAIRS).key_by(lambda pair: pair[0]).process(Numbered())
    seen: Counter[str] = Counter()
    expected = []
    for key, _ in PAIRS:
        expected.append((key, seen[key] % 100 + 1))
        seen[key] += 1
    assert collected(stream) == in_order(expected)


def test_union_and_connect() -> None:
    left, right = PAIRS[:1000], PAIRS[1000:2000]
    env = new_environment(PARALLELISM)
    first, second = env.from_collection(left).rebalance(), env.from_collection(right).rebalance()
    both = first.connect(second)
    by_key = both.key_by(lambda p: p[0], lambda p: p[0])
    by_branch = in_one_job(
        {
            "union": first.union(second, first),
            "map": both.map(LeftRight()),
            "flat_map": both.flat_map(Both()),
            "process": both.process(Sides()),
            "keyed map": by_key.map(LeftRight()),
            "joined": by_key.process(Join()),
        }
    )
    sided = [("left", p) for p in left] + [("right", p) for p in right if p[1] > 0]
    assert Counter(by_branch["union"]) == Counter(left + right + left)
    assert Counter(by_branch["map"]) == Counter(by_branch["keyed map"]) == Counter(sided)
    assert Counter(by_branch["flat_map"]) == Counter([*left, *left, *(part for pair in right for part in pair)])
    assert Counter(by_branch["process"]) == Counter([(1, p) for p in left] + [(2, p) for p in right])
    assert len(by_branch["joined"]) == 2000
    assert dict(by_branch["joined"]) == {
        key: (sum(v for k, v in left if k == key), sum(v for k, v in right if k == key)) for key in "abcdefghij"
    }


def test_partitioners() -> None:
    env = new_environment(PARALLELISM)
    source = env.from_sequence(0, 2999).set_parallelism(1).map(str).set_parallelism(1)
    wide = env.from_sequence(0, 2999).map(str)
    by_branch = in_one_job(
        {
            "shuffle": source.shuffle().map(AddIndex()),
            "rebalance": source.rebalance().map(AddIndex()),
            "rescale": source.rescale().map(AddIndex()),
            "global": wide.global_().map(AddIndex()),
            "forward": wide.forward().map(AddIndex()),
            "broadcast": source.broadcast().map(AddIndex()),
            "class": wide.partition_custom(ByLength(), lambda value: value).map(AddIndex()),
            "lambda": wide.partition_custom(lambda key, count: key % count, lambda value: int(value)).map(AddIndex()),
        }
    )
    everything = Counter(str(i) for i in range(3000))
    for name in ("shuffle", "rebalance", "rescale", "global", "forward"):
        assert Counter(value for _, value in by_branch[name]) == everything, name
    for name in ("shuffle", "rebalance", "rescale"):
        at = Counter(index for index, _ in by_branch[name])
        assert at.keys() == set(range(PARALLELISM)), (name, at)
    assert {index for index, _ in by_branch["global"]} == {0}
    assert Counter(by_branch["broadcast"]) == Counter(
        (index, value) for index in range(PARALLELISM) for value in everything
    )
    assert Counter(by_branch["class"]) == Counter((len(value) % PARALLELISM, value) for value in everything)
    assert Counter(by_branch["lambda"]) == Counter((int(value) % PARALLELISM, value) for value in everything)


def test_a_parallelism_that_changes_along_the_stream() -> None:
    env = new_environment(1)
    stream = env.from_sequence(1, 2000).set_parallelism(3).map(lambda i: (i % 17, i)).set_parallelism(2)
    total = stream.key_by(lambda p: p[0]).sum(1).set_parallelism(3).map(lambda p: p).set_parallelism(1)
    last: dict[int, int] = {}
    for key, value in total.execute_and_collect():
        last[key] = max(value, last.get(key, 0))
    assert last == {key: sum(i for i in range(1, 2001) if i % 17 == key) for key in range(17)}


def test_chains_and_sharing_groups_do_not_change_results() -> None:
    expected = in_order((key, value + 1) for key, value in PAIRS if value % 2)
    for change in ("none", "start_new_chain", "disable_chaining", "group", "environment"):
        env = new_environment(1)
        if change == "environment":
            env.disable_operator_chaining()
        stream = env.from_collection(PAIRS).filter(lambda pair: pair[1] % 2)
        if change in ("start_new_chain", "disable_chaining"):
            getattr(stream, change)()
        stream = stream.map(lambda pair: (pair[0], pair[1] + 1))
        if change == "group":
            stream.slot_sharing_group("other")
        assert collected(stream) == expected, change


@dataclass(frozen=True)
class Order:
    customer: str
    lines: tuple[int, ...]


def test_records_of_many_kinds_cross_the_exchange() -> None:
    values: list[Any] = [
        None, True, 2**70, 1.5, float("inf"), "ü" * 1000, b"\0" * 300_000, (1, "a"), [1, [2]], {"k": {1, 2}},
        Row(a=1, b=[None]), Order("x", (1, 2)), complex(1, 2), range(3),
    ]  # fmt: skip
    stream = new_environment(2).from_collection(values).rebalance().map(lambda value: (value, type(value).__name__))
    assert collected(stream) == in_order((value, type(value).__name__) for value in values)


def test_declared_types_are_kept() -> None:
    row = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.BYTE()])
    people = new_environment(2).from_collection([("ann", 200), Row("bob", 3)], row)
    assert people.get_type() == row
    out = people.rebalance().map(lambda person: Row(person.name, person["age"]), row)
    assert collected(out) == in_order([Row(name="ann", age=-56), Row(name="bob", age=3)])
