"""Joins of changing tables: the sum of all changes is the join of the tables as they are."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from firesteel.common import Types
from firesteel.core.errors import ProgramError
from firesteel.expressions import col
from firesteel_sql.operators import joins
from firesteel_sql.operators.joins import JoinChanges
from firesteel_sql.operators.plans import JoinPlan
from firesteel_sql.plan.stateful_relations import JoinKind, TimeBounds
from tests.examples import examples
from tests.unit.sql.operators.changing_tables import ChangingTable, OperatorRun, Record

LEFT = pa.schema([("key", pa.int64()), ("value", pa.int64()), ("name", pa.string())])
RIGHT = pa.schema([("key", pa.int64()), ("price", pa.int64())])
TYPES = {
    "key": Types.LONG(), "value": Types.LONG(), "name": Types.STRING(), "key0": Types.LONG(), "price": Types.LONG(),
}  # fmt: skip


def output_of(kind: JoinKind) -> pa.Schema:
    fields = [(f"left{place}", field.type) for place, field in enumerate(LEFT)]
    if kind in (JoinKind.SEMI, JoinKind.ANTI):
        return pa.schema(fields)
    return pa.schema(fields + [(f"right{place}", field.type) for place, field in enumerate(RIGHT)])


def run_of(plan: JoinPlan, keys: Sequence[Sequence[int]] = ((0,), (0,)), parallelism: int = 1) -> OperatorRun:
    output = output_of(plan.kind)
    return OperatorRun(lambda: JoinChanges(plan, [LEFT, RIGHT], output), [LEFT, RIGHT], keys, parallelism)


def expected(plan: JoinPlan, left: Sequence[Record], right: Sequence[Record], condition: Any) -> Counter[Record]:
    """The join, pair by pair."""
    kind, nulls_equal = plan.kind, plan.nulls_equal[0] if plan.nulls_equal else True
    rows: Counter[Record] = Counter()
    has_partner = [False] * len(right)
    for left_row in left:
        partners = [
            at
            for at, right_row in enumerate(right)
            if (left_row[0] == right_row[0] and (nulls_equal or left_row[0] is not None))
            and condition(left_row, right_row)
        ]
        for at in partners:
            has_partner[at] = True
        if (kind is JoinKind.SEMI and partners) or (kind is JoinKind.ANTI and not partners):
            rows[left_row] += 1
        if kind in (JoinKind.SEMI, JoinKind.ANTI):
            continue
        rows.update(left_row + right[at] for at in partners)
        if not partners and kind in (JoinKind.LEFT, JoinKind.FULL):
            rows[left_row + (None,) * len(RIGHT)] += 1
    if kind in (JoinKind.RIGHT, JoinKind.FULL):
        rows.update((None,) * len(LEFT) + row for row, known in zip(right, has_partner, strict=True) if not known)
    return rows


def is_more(left: Record, right: Record) -> bool:
    return bool(None not in (left[1], right[1]) and left[1] > right[1])


def always(left: Record, right: Record) -> bool:
    return True


def left_table(rng: random.Random, keys: int) -> ChangingTable:
    return ChangingTable(
        rng, lambda rng: (rng.choice((None, *range(keys))), rng.choice((None, 1, 2, 3, 4)), rng.choice("ab"))
    )


def right_table(rng: random.Random, keys: int) -> ChangingTable:
    return ChangingTable(rng, lambda rng: (rng.choice((None, *range(keys))), rng.choice((None, 1, 2, 3))))


@pytest.mark.parametrize("kind", JoinKind)
@pytest.mark.parametrize("has_condition", [False, True])
def test_the_sum_of_all_changes_is_the_join(
    kind: JoinKind, has_condition: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joins, "PAIRS", 40)
    monkeypatch.setattr(joins, "OUTPUT_ROWS", 16)
    for seed in range(examples(5)):
        rng = random.Random(seed)
        last = rng.randrange(1, 12)
        left, right = left_table(rng, last), right_table(rng, last)
        plan = JoinPlan(
            kind, (3, 2), (rng.random() < 0.3,), col("value") > col("price") if has_condition else None, TYPES
        )

        run = run_of(plan)
        for step in range(8):
            index = rng.randrange(2)
            run.push((left, right)[index].changes(), index)
            assert run.table == expected(plan, left.rows, right.rows, is_more if has_condition else always), (
                seed,
                step,
            )
            if step in (2, 5):
                run.restart(rng.randrange(1, 4))


def test_not_in_is_empty_once_there_is_a_null_and_whole_while_there_is_nothing() -> None:
    for seed in range(examples(8)):
        rng = random.Random(seed)
        left = ChangingTable(rng, lambda rng: (rng.randrange(3), rng.choice((None, 1, 2, 3, 4)), "a"))
        right = ChangingTable(rng, lambda rng: (rng.randrange(3), rng.choice((None, 1, 2, 3, 3, 3))))
        run = run_of(JoinPlan(JoinKind.ANTI, (3, 2), (False,), may_be_equal=(1, 1)))
        for step in range(12):
            index = rng.randrange(2)
            run.push((left, right)[index].changes(8), index)
            assert run.table == Counter(
                row for row in left.rows if not_in(row[1], [value for key, value in right.rows if key == row[0]])
            ), (seed, step)
            if step in (2, 5):
                run.restart(rng.randrange(1, 4))
        for _, _, function in run._subtasks:
            assert function._excluded._groups.size <= len({key for key, _ in right.rows})  # type: ignore[attr-defined]


def not_in(value: int | None, values: Sequence[int | None]) -> bool:
    """By the three values of logic."""
    if not values:
        return True
    return value is not None and None not in values and value not in values


def test_without_keys_all_rows_meet() -> None:
    """The constant column is the key, and no part of the tables."""
    left, right = LEFT.append(pa.field("all", pa.int32())), RIGHT.append(pa.field("all", pa.int32()))
    plan = JoinPlan(JoinKind.INNER, (3, 2), ())
    output = output_of(JoinKind.INNER)
    run = OperatorRun(lambda: JoinChanges(plan, [left, right], output), [left, right], [[3], [2]])
    run.push([(0, (1, 2, "a", 0)), (0, (None, 3, "b", 0))])
    run.push([(0, (7, 8, 0))], 1)
    assert run.table == Counter([(1, 2, "a", 7, 8), (None, 3, "b", 7, 8)])


def test_results_have_the_kinds_of_their_rows_and_paddings_are_deleted_first() -> None:
    run = run_of(JoinPlan(JoinKind.LEFT, (3, 2), (False,)))
    run.push([(0, (1, 5, "a"))])
    assert run.results == [(0, (1, 5, "a", None, None))]
    run.push([(0, (1, 9))], 1)
    assert run.results == [(3, (1, 5, "a", None, None)), (0, (1, 5, "a", 1, 9))]
    run.push([(1, (1, 9)), (2, (1, 10))], 1)
    assert run.results == [
        (1, (1, 5, "a", 1, 9)), (0, (1, 5, "a", None, None)), (3, (1, 5, "a", None, None)), (2, (1, 5, "a", 1, 10)),
    ]  # fmt: skip


def test_a_row_that_was_never_inserted_names_operator_and_key() -> None:
    run = run_of(JoinPlan(JoinKind.INNER, (3, 2), (False,)))
    run.push([(0, (4, 5, "a"))])
    with pytest.raises(ProgramError, match=r"Operator\[1\]: a row of the key 4 is deleted that was never inserted"):
        run.push([(3, (4, 6, "a"))])


BOUNDS = TimeBounds(1, 1, -5, 10)


def is_near(left: Record, right: Record) -> bool:
    return bool(-5 <= right[1] - left[1] <= 10)


@pytest.mark.parametrize("kind", JoinKind)
def test_rows_of_interval_joins_leave_state_when_no_partner_can_come(kind: JoinKind) -> None:
    for seed in range(examples(5)):
        rng = random.Random(seed)
        plan = JoinPlan(kind, (3, 2), (False,), bounds=BOUNDS)
        run = run_of(plan)
        now, tables = 0, ([], [])  # type: tuple[int, tuple[list[Record], list[Record]]]
        for step in range(12):
            index = rng.randrange(2)
            rows: list[Record] = [
                (rng.choice((None, 1, 2)), now + rng.randrange(1, 15), *["a"] * (1 - index))
                for _ in range(rng.randrange(8))
            ]
            tables[index].extend(rows)
            run.push([(0, row) for row in rows], index)
            assert all(kind_ == 0 for kind_, _ in run.results)
            now += rng.randrange(6)
            run.advance(now)
            assert all(kind_ == 0 for kind_, _ in run.results)
            if step in (4, 8):
                run.restart(rng.randrange(1, 4))
        run.advance(10_000)
        assert run.table == expected(plan, *tables, is_near), seed
        for _, _, function in run._subtasks:
            assert [side.table.size for side in function._sides] == [0, 0]  # type: ignore[attr-defined]


def test_a_row_leaves_an_interval_join_at_its_time_and_no_earlier() -> None:
    run = run_of(JoinPlan(JoinKind.LEFT, (3, 2), (False,), bounds=BOUNDS))
    run.push([(0, (1, 100, "a"))])
    run.advance(109)
    assert run.results == []
    run.advance(110)
    assert run.results == [(0, (1, 100, "a", None, None))]
    # A late row meets those that are still there, and is not stored.
    run.push([(0, (1, 120))], 1)
    run.push([(0, (1, 99, "late"))])
    assert run.results == [(0, (1, 99, "late", None, None))]
    run.push([(3, (1, 99, "late"))])
    assert run.results == []
    assert run.metrics.counters["numUnmatchedRetractions"].value == 1


def test_rows_of_windows_leave_with_their_window_and_late_ones_are_dropped() -> None:
    run = run_of(JoinPlan(JoinKind.FULL, (3, 2), (False, False), window_ends=(1, 1)), ((0, 1), (0, 1)))
    run.push([(0, (1, 100, "a")), (0, (2, 100, "b")), (0, (1, 200, "c"))])
    run.push([(0, (1, 100)), (0, (3, 100))], 1)
    assert run.results == [(0, (1, 100, "a", 1, 100))]
    run.advance(99)
    assert sorted(run.results, key=repr) == [(0, (2, 100, "b", None, None)), (0, (None, None, None, 3, 100))]
    run.push([(0, (2, 100))], 1)
    assert run.results == []
    assert run.metrics.counters["numLateRecordsDropped"].value == 1
