"""Running aggregates of columns against plain Python, over random schemas, keys, batch sizes and parallelisms."""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from firesteel.common import Row, Types
from firesteel.common.typeinfo import RowTypeInfo, TypeInformation
from firesteel.core.errors import ProgramError
from firesteel.expressions import Aggregate, avg, col, count, first, last, max_, min_, sum_
from firesteel.expressions.aggregates import bind_aggregates
from firesteel.expressions.keys import ColumnKey
from firesteel.graph.key_groups import KeyGroupAssigner
from firesteel.graph.specs import OperatorKind
from firesteel.runtime.operator_base.context import TaskInfo
from firesteel.runtime.operator_base.keyed_base import state_parameters
from firesteel.runtime.operators.column_aggregates import RunningAggregates
from firesteel.runtime.records.batch import Batch
from firesteel.runtime.records.columns import StreamColumns, columns_of
from firesteel.runtime.records.rows import to_records
from firesteel.state.heap import HeapStateBackend
from tests.unit.runtime.support import ManualClock, spec
from tests.unit.runtime.test_columns import records as records_of
from tests.unit.runtime.test_columns import run as run_chain

NAN, INF = float("nan"), float("inf")
Make = Callable[[random.Random], Any]
KEYS: list[tuple[TypeInformation, Make]] = [
    (Types.LONG(), lambda r: r.randrange(50)),
    (Types.LONG(), lambda r: r.choice([r.getrandbits(63), -5, 2**63 - 1, -(2**63)])),
    (Types.INT(), lambda r: r.randrange(-(2**31), 2**31) // 2**24),
    (Types.SHORT(), lambda r: r.randrange(-300, 300)),
    (Types.BYTE(), lambda r: r.randrange(-128, 128)),
    (Types.BOOLEAN(), lambda r: r.random() < 0.5),
    (Types.STRING(), lambda r: r.choice(["", "ä", "𝄞", "\ud7ff", f"key {r.randrange(30)}"])),
    (Types.DOUBLE(), lambda r: r.choice([0.5, 1.0, -3.25, INF])),
    (Types.SQL_DATE(), lambda r: datetime.date(2020, 1, 1 + r.randrange(28))),
    (Types.SQL_TIMESTAMP(), lambda r: datetime.datetime(2020, 1, 1, r.randrange(24), microsecond=7)),
]
VALUES: list[tuple[TypeInformation, Make]] = [
    (Types.LONG(), lambda r: r.randrange(-1000, 1000)),
    (Types.LONG(), lambda r: r.randrange(-(2**50), 2**50)),
    (Types.INT(), lambda r: r.randrange(-(2**31), 2**31)),
    (Types.BYTE(), lambda r: r.randrange(-128, 128)),
    (Types.DOUBLE(), lambda r: r.choice([r.uniform(-1, 1), 1e300, -1e300, 1e-300, 0.1, -0.0])),
    (Types.DOUBLE(), lambda r: r.choice([r.uniform(-1, 1), NAN, INF, -INF])),
    (Types.FLOAT(), lambda r: r.choice([0.5, -0.25, NAN, 2.0**127])),
    (Types.STRING(), lambda r: r.choice(["", "a", "z", "ä", "𝄞", "\uffff", f"{r.randrange(1000)}"])),
    (Types.BOOLEAN(), lambda r: r.random() < 0.5),
    (Types.SQL_DATE(), lambda r: datetime.date(1969, 1, 1 + r.randrange(28))),
    (Types.SQL_TIME(), lambda r: datetime.time(r.randrange(24), 5, 6, 7)),
    (Types.SQL_TIMESTAMP(), lambda r: datetime.datetime(1950, 1, 1) + datetime.timedelta(r.randrange(9999), 1, 2)),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), lambda r: bytes(r.randrange(256) for _ in range(r.randrange(3)))),
]
NUMBERS = (Types.LONG(), Types.INT(), Types.BYTE(), Types.DOUBLE(), Types.FLOAT())


def above(value: Any, other: Any) -> bool:
    """With NaN above all other numbers."""
    if isinstance(value, float) and value != value:
        return not (isinstance(other, float) and other != other)
    return bool(value > other)


class Oracle:
    """The aggregate of one key in plain Python."""

    def __init__(self, function: str) -> None:
        self.function, self.rows = function, 0
        self.values: list[Any] = []
        self.total: Any = 0
        self.best: Any = None

    def add(self, value: Any, counts_rows: bool) -> Any:
        self.rows += 1
        if value is not None:
            self.values.append(value)
            if self.function in ("sum", "avg"):
                self.total = value + self.total if len(self.values) > 1 else value + 0
            elif self.function in ("min", "max"):
                self.best = self.better(value) if len(self.values) > 1 else value
        if self.function == "count":
            return self.rows if counts_rows else len(self.values)
        if not self.values:
            return None
        if self.function == "sum":
            return self.total
        if self.function == "avg":
            return float(self.total) / float(len(self.values))
        if self.function in ("min", "max"):
            return self.best
        return self.values[0] if self.function == "first" else self.values[-1]

    def better(self, value: Any) -> Any:
        wins = above(value, self.best) if self.function == "max" else above(self.best, value)
        return value if wins else self.best


def same(value: Any, other: Any) -> bool:
    if isinstance(value, float) and isinstance(other, float):
        return value == other or (math.isnan(value) and math.isnan(other))
    return type(value) is type(other) and bool(value == other)


def operator(
    input_type: RowTypeInfo, keys: Sequence[str], aggregates: Sequence[Aggregate], *, wrap: bool = False
) -> RunningAggregates:
    return RunningAggregates(described(input_type, keys, aggregates, wrap=wrap))


def described(
    input_type: RowTypeInfo, keys: Sequence[str], aggregates: Sequence[Aggregate], *, wrap: bool = False
) -> Any:
    names = list(input_type.field_names)
    columns = dict(zip(names, input_type.field_types, strict=True))
    bound = bind_aggregates("aggregate", aggregates, columns, keys, wrap=wrap)
    result = RowTypeInfo(
        [*(columns[name] for name in keys), *(aggregate.type_info for aggregate in bound)],
        [*keys, *(aggregate.name for aggregate in bound)],
    )
    return spec(
        OperatorKind.COLUMNS_AGGREGATE,
        tuple(aggregates),
        key_selectors=(ColumnKey(keys, [names.index(name) for name in keys]),),
        extra={"input_type": input_type, "result_type": result, "wrap": wrap},
    )


def at(aggregates: RunningAggregates, subtask: int, parallelism: int) -> RunningAggregates:
    info = TaskInfo("1" * 32, "job", "v", "t", subtask, parallelism, 128, 0, {})
    aggregates.use_backend(HeapStateBackend(), state_parameters(aggregates.spec, info, ManualClock()))
    return aggregates


def sizes(r: random.Random, total: int) -> Iterator[int]:
    while total > 0:
        size = min(total, r.choice([1, 2, 7, 100, 1000, 100_000]))
        total -= size
        yield size


LARGE_SEED = 40
"""Its rows come in one batch of 70,000."""


@pytest.mark.parametrize("seed", range(LARGE_SEED + 1))
def test_against_an_oracle(seed: int) -> None:
    r = random.Random(seed)
    keys = [r.choice(KEYS) for _ in range(r.choice([1, 1, 2, 3]))]
    values = [r.choice(VALUES) for _ in range(3)]
    names = [*(f"k{i}" for i in range(len(keys))), *(f"v{i}" for i in range(len(values)))]
    input_type = Types.ROW_NAMED(names, [kind for kind, _ in [*keys, *values]])
    key_names, key_nulls, nulls = names[: len(keys)], r.choice([0, 0.2]), r.choice([0, 0, 0.1, 0.9])
    aggregates: list[Aggregate] = [count()]
    for index, (kind, _) in enumerate(values):
        name = f"v{index}"
        aggregates += [count(name), min_(name), max_(name), first(name), last(name)]
        if kind in NUMBERS:
            aggregates += [sum_(name), avg(name)]
    r.shuffle(aggregates)
    aggregates = aggregates[: r.randrange(1, len(aggregates) + 1)]
    parallelism = r.randrange(1, 6)
    channel_of = KeyGroupAssigner(parallelism, 128)
    operators = [at(operator(input_type, key_names, aggregates), n, parallelism) for n in range(parallelism)]
    columns = StreamColumns(input_type)
    oracles: dict[Any, Oracle] = {}
    makers = [*keys, *values]
    few = r.random() < 0.3
    fixed_keys = [tuple(make(r) for _, make in keys) for _ in range(2)]
    for size in [70_000] if seed == LARGE_SEED else sizes(r, r.choice([10, 500, 3000])):
        records: list[tuple[Any, ...]] = []
        for _ in range(size):
            values_drawn = [
                None if r.random() < (key_nulls if name[0] == "k" else nulls) else make(r)
                for name, (_, make) in zip(names, makers, strict=True)
            ]
            if few:
                values_drawn[: len(keys)] = r.choice(fixed_keys)
            records.append(tuple(values_drawn))
        whole = columns.from_records(records)
        stamps = np.array([r.randrange(1 << 40) for _ in range(size)]) if r.random() < 0.5 else None
        channels = channel_of.assign_columns([whole.column(index) for index in range(len(keys))])
        for number, subtask in enumerate(operators):
            rows = np.flatnonzero(channels == number)
            part = whole.take(pa.array(rows))
            own_stamps = None if stamps is None else stamps[rows]
            for given_back in subtask.apply_columns(iter([Batch(part, own_stamps)])):
                result, result_stamps = columns_of(given_back), given_back.timestamps
                assert result.schema.equals(subtask.output.schema)
                if own_stamps is None:
                    assert result_stamps is None
                else:
                    assert isinstance(result_stamps, np.ndarray)
                    assert result_stamps.tolist() == own_stamps.tolist()
                answers = to_records(result)
                assert len(answers) == len(rows)
                for row, answer in zip(rows.tolist(), answers, strict=True):
                    record = records[row]
                    key = record[: len(keys)]
                    assert tuple(answer)[: len(keys)] == key
                    for place, aggregate in enumerate(aggregates):
                        oracle = oracles.setdefault((key, place), Oracle(aggregate.function))
                        of = aggregate.input
                        value = None if of is None else record[names.index(of.options["name"])]
                        expected = oracle.add(value, of is None)
                        if isinstance(expected, float) and aggregate.function in ("sum", "avg"):
                            expected = expected + 0.0
                        got = answer[len(keys) + place]
                        assert same(got, expected), (aggregate, got, expected, oracle.values)


BID = Types.ROW_NAMED(["auction", "price"], [Types.LONG(), Types.LONG()])


def run(aggregates: RunningAggregates, *batches: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    parts = [Batch(aggregates.input.from_records(batch)) for batch in batches]
    return [tuple(row) for batch in aggregates.apply_columns(iter(parts)) for row in to_records(batch.values)]


def test_expressions_are_aggregated() -> None:
    bids = operator(BID, ["auction"], [sum_(col("price") * 2).alias("twice"), max_(-col("price")).alias("low")])
    assert run(bids, [(1, 5), (2, 1)], [(1, 6)]) == [(1, 10, -5), (2, 2, -1), (1, 22, -5)]


@pytest.mark.parametrize("aggregate", [sum_("price"), avg("price")])
def test_an_overflow_names_key_value_and_aggregate(aggregate: Aggregate) -> None:
    largest = operator(BID, ["auction"], [aggregate])
    with pytest.raises(ProgramError) as raised:
        run(largest, [(1, 2**62)], [(2, 7), (1, 2**62 - 1), (1, 2), (1, -9)])
    assert f"auction = 1: {aggregate}" in str(raised.value)
    assert "when 2 is added" in str(raised.value)


def test_the_first_overflow_is_told_and_order_matters() -> None:
    sums = operator(BID, ["auction"], [sum_("price")])
    top = 2**63 - 1
    assert run(sums, [(1, top), (1, -1), (1, 1), (2, -(2**63)), (2, top)])[-1] == (2, -1)
    with pytest.raises(ProgramError, match=r"for the key auction = 1: .* when 3 is added"):
        run(sums, [(2, 1), (1, -2), (1, 3), (1, 4)])


def test_sums_wrap_around_if_asked_for() -> None:
    sums = operator(BID, ["auction"], [sum_("price")], wrap=True)
    assert run(sums, [(1, 2**63 - 1), (1, 1)], [(1, -1)])[1:] == [(1, -(2**63)), (1, 2**63 - 1)]


def test_one_group_of_floating_point_beside_small_ones() -> None:
    input_type = Types.ROW_NAMED(["k", "x"], [Types.INT(), Types.DOUBLE()])
    r = random.Random(4)
    records = [
        (0 if r.random() < 0.7 else r.randrange(1, 300), r.uniform(-1, 1) * 10 ** r.randrange(20)) for _ in range(5000)
    ]
    totals: dict[int, float] = {}
    expected = []
    for key, value in records:
        totals[key] = totals.get(key, 0.0) + value
        expected.append((key, totals[key]))
    sums = operator(input_type, ["k"], [sum_("x")])
    assert run(sums, records[:3000], records[3000:]) == expected


def test_rows_of_a_chain_become_columns_and_keep_their_timestamps() -> None:
    rows = [Row(auction=n % 3, price=n) for n in range(10)]
    batches = [Batch(rows[:4], list(range(4))), Batch(rows[4:], list(range(4, 10)))]
    channel = run_chain(batches, described(BID, ["auction"], [count().alias("n")]))
    assert [tuple(row) for row in records_of(channel)] == [(n % 3, n // 3 + 1) for n in range(10)]
    assert channel.timestamps == list(range(10))


def test_counts_are_those_of_the_row_path() -> None:
    r = random.Random(9)
    rows = [Row(auction=r.choice([None, *range(7)]), price=1) for _ in range(400)]
    key = ColumnKey(["auction"], [0])
    reduce = spec(
        OperatorKind.REDUCE,
        lambda row, other: Row(auction=row.auction, price=row.price + other.price),
        key_selectors=(key,),
    )
    by_rows = run_chain([Batch(rows)], reduce)
    by_columns = run_chain([Batch(rows)], described(BID, ["auction"], [sum_("price").alias("price")]))
    assert records_of(by_columns) == by_rows.values
