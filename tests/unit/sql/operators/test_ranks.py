"""The first rows of each partition, after each change."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from firesteel_sql.operators.plans import RankPlan
from firesteel_sql.operators.ranks import RankChanges
from firesteel_sql.plan.stateful_relations import RankFunction, SortKey
from tests.examples import examples
from tests.unit.sql.operators.changing_tables import ChangingTable, OperatorRun, Record, plain

INPUT = pa.schema(
    [
        ("id", pa.int64()),
        ("partition", pa.string()),
        ("price", pa.float64()),
        ("name", pa.string()),
        ("d", pa.decimal128(9, 1)),
    ]
)
BY_PRICE = (SortKey(2, ascending=False, nulls_first=False), SortKey(3), SortKey(4))


def run_of(plan: RankPlan, parallelism: int = 1) -> OperatorRun:
    fields = [*INPUT, *([pa.field("rank", pa.int64())] if plan.with_rank else [])]
    return OperatorRun(lambda: RankChanges(plan, [INPUT], pa.schema(fields)), [INPUT], [[1]], parallelism)


def sort_key(row: Record) -> tuple[Any, ...]:
    """By the price, descending, with NaN before all and NULL behind; then by name and decimal, where NULL is first."""
    price = row[2]
    number = (1, 0) if price is None else (0, float("-inf") if price in (NAN, "NaN") else -price)
    return number, row[3] is not None, row[3] or "", row[4] is not None, row[4] or 0


def expected(plan: RankPlan, rows: Sequence[Record]) -> Counter[Record]:
    found: Counter[Record] = Counter()
    for partition in {row[1] for row in rows}:
        own = sorted((row for row in rows if row[1] == partition), key=sort_key)
        keys = [sort_key(row) for row in own]
        for number, row in enumerate(own, 1):
            rank = number
            if plan.function is RankFunction.RANK:
                rank = keys.index(keys[number - 1]) + 1
            elif plan.function is RankFunction.DENSE_RANK:
                rank = len(set(keys[:number]))
            if rank >= plan.first and (plan.last is None or rank <= plan.last):
                found[plain((*row, rank) if plan.with_rank else row)] += 1
    return found


def some_row(rng: random.Random) -> Record:
    return (
        rng.randrange(10**6),
        rng.choice(("a", "b", None)),
        rng.choice((None, NAN, 1.0, 2.0, -3.5)),
        rng.choice((None, "x", "yy")),
        rng.choice((None, Decimal("1.5"), Decimal("-2.0"))),
    )


NAN = float("nan")


@pytest.mark.parametrize("function", RankFunction)
@pytest.mark.parametrize(("first", "last"), [(1, 1), (1, 3), (2, 4), (3, None)])
def test_the_sum_of_all_changes_is_the_first_rows(function: RankFunction, first: int, last: int | None) -> None:
    for seed in range(examples(4)):
        rng = random.Random(seed)
        is_insert_only, with_rank = rng.random() < 0.4, rng.random() < 0.5
        table = ChangingTable(rng, some_row, deletes=not is_insert_only)
        plan = RankPlan(function, BY_PRICE, first, last, with_rank, 5, is_insert_only)
        run = run_of(plan)
        for step in range(10):
            run.push(table.changes(12))
            wanted = expected(plan, table.rows)
            assert not +Counter({row: -count for row, count in run.table.items()})
            if function is RankFunction.ROW_NUMBER:  # which of some peers it is, is a matter of arrival
                assert without_ids(run.table) == without_ids(wanted), (seed, step)
            else:
                assert run.table == wanted, (seed, step)
            if step in (3, 6):
                run.restart(rng.randrange(1, 4))
        if is_insert_only and last is not None and function is RankFunction.ROW_NUMBER:
            for _, _, operator in run._subtasks:
                assert operator._table.size <= 3 * last  # type: ignore[attr-defined]


def without_ids(table: Counter[Record]) -> Counter[Record]:
    rows: Counter[Record] = Counter()
    for row, count in table.items():
        rows[row[1:]] += count
    return rows


SIMPLE = pa.schema([("key", pa.int64()), ("time", pa.int64()), ("text", pa.string())])


def simple(partition: Sequence[int] = (0,), **options: Any) -> OperatorRun:
    settings = {"function": RankFunction.ROW_NUMBER, "first": 1, "last": 1, "with_rank": False, "width": 3, **options}
    plan = RankPlan(**settings)
    fields = [*SIMPLE, *([pa.field("rank", pa.int64())] if plan.with_rank else [])]
    return OperatorRun(lambda: RankChanges(plan, [SIMPLE], pa.schema(fields)), [SIMPLE], [partition])


def test_peers_have_the_order_of_their_arrival() -> None:
    first = simple(order=(SortKey(1),), is_insert_only=True)
    last = simple(order=(SortKey(1, ascending=False),), is_insert_only=True, last_of_peers=True)
    for run in (first, last):
        run.push([(0, (1, 10, "a")), (0, (1, 10, "b"))])
        run.restart(1)
        run.push([(0, (1, 10, "c"))])
    assert first.table == Counter([(1, 10, "a")])
    assert last.table == Counter([(1, 10, "c")])
    assert last.results == [(1, (1, 10, "b")), (2, (1, 10, "c"))]


def test_rows_behind_others_of_their_batch_never_enter_the_state() -> None:
    run = simple(order=(SortKey(1, ascending=False),), last=2, is_insert_only=True)
    run.push([(0, (time % 3, time, str(time))) for time in range(900)])
    assert run.table == Counter([(time % 3, time, str(time)) for time in range(894, 900)])
    ((_, _, operator),) = run._subtasks
    assert operator._table._capacity == 6  # type: ignore[attr-defined]


def test_a_rank_that_passes_to_another_row_is_an_update() -> None:
    run = simple(order=(SortKey(1, ascending=False),), last=2, with_rank=True)
    run.push([(0, (1, 10, "a"))])
    assert run.results == [(0, (1, 10, "a", 1))]
    run.push([(0, (1, 20, "b"))])
    assert sorted(run.results) == [(0, (1, 10, "a", 2)), (1, (1, 10, "a", 1)), (2, (1, 20, "b", 1))]
    run.push([(3, (1, 20, "b"))])
    assert sorted(run.results) == [(1, (1, 20, "b", 1)), (2, (1, 10, "a", 1)), (3, (1, 10, "a", 2))]


def test_a_row_that_is_not_among_the_first_ones_moves_up() -> None:
    run = simple(order=(SortKey(1),), last=2)
    run.push([(0, (1, time, str(time))) for time in (30, 10, 20, 40)])
    run.push([(3, (1, 30, "30"))])
    assert run.results == []
    run.push([(3, (1, 10, "10"))])
    assert run.results == [(3, (1, 10, "10")), (0, (1, 40, "40"))]


def test_limit_without_an_order_takes_the_rows_that_came_first() -> None:
    run = simple(order=(), last=2, is_insert_only=True)
    run.push([(0, (1, 3, "a"))])
    run.push([(0, (1, 2, "b")), (0, (1, 1, "c"))])
    run.push([(0, (1, 0, "d"))])
    assert run.results == []
    assert run.table == Counter([(1, 3, "a"), (1, 2, "b")])


@pytest.mark.parametrize("is_insert_only", [True, False])
def test_the_first_rows_of_a_window_leave_at_its_end_and_late_rows_are_dropped(is_insert_only: bool) -> None:
    run = simple(
        order=(SortKey(2),), last=2, with_rank=True, is_insert_only=is_insert_only, window_end=1, partition=[0, 1]
    )
    run.push([(0, (1, 100, text)) for text in "dcab"] + [(0, (1, 200, "z")), (0, (2, 100, "y"))])
    assert run.results == []
    run.advance(98)
    assert run.results == []
    run.restart(2)
    run.advance(99)
    assert sorted(run.results) == [(0, (1, 100, "a", 1)), (0, (1, 100, "b", 2)), (0, (2, 100, "y", 1))]
    run.push([(0, (1, 100, "late"))])
    assert run.metrics.counters["numLateRecordsDropped"].value == 1
    run.advance(1000)
    assert run.results == [(0, (1, 200, "z", 1))]
    assert sum(operator._table.size for _, _, operator in run._subtasks) == 0  # type: ignore[attr-defined]
