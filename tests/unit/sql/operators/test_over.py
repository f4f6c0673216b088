"""Results over the rows around each row equal those that are computed frame by frame."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from firesteel.table.types import DataTypes
from firesteel_sql.operators.over import OverRows
from firesteel_sql.operators.plans import OverPlan
from firesteel_sql.plan.stateful_relations import AggregateCall, OverCall, OverFrame, SortKey
from tests.examples import examples
from tests.unit.sql.operators.changing_tables import ChangingTable, OperatorRun, Record

INPUT = pa.schema(
    [
        ("id", pa.int64()),
        ("partition", pa.string()),
        ("order", pa.int64()),
        ("value", pa.int64()),
        ("name", pa.string()),
        ("amount", pa.decimal128(10, 2)),
        ("ratio", pa.float64()),
        ("chosen", pa.bool_()),
    ]
)
LONG, DOUBLE, DECIMAL, TEXT = pa.int64(), pa.float64(), pa.decimal128(38, 2), pa.string()
FRAMES = tuple(
    OverFrame(by_rows, preceding, following)
    for by_rows, preceding, following in (
        (True, None, 0), (False, None, 0), (True, 2, 0), (False, 3, 0), (True, 1, 2),
        (False, 2, 1), (True, None, None), (False, 0, 0), (True, 2, None), (False, None, 4),
    )
)  # fmt: skip
"""Frames of rows and of ranges, which reach back, ahead, and to both ends."""


def total(values: list[Any]) -> Any:
    return sum(values) if values else None


FUNCTIONS: dict[str, tuple[int | None, pa.DataType, Callable[[list[Any]], Any]]] = {
    "COUNT": (3, LONG, len),
    "COUNT *": (None, LONG, len),
    "SUM": (3, LONG, total),
    "SUM amount": (5, DECIMAL, total),
    "SUM ratio": (6, DOUBLE, total),
    "AVG": (3, LONG, lambda values: math.trunc(sum(values) / len(values)) if values else None),
    "AVG ratio": (6, DOUBLE, lambda values: sum(values) / len(values) if values else None),
    "MIN": (3, LONG, lambda values: min(values, default=None)),
    "MAX name": (4, TEXT, lambda values: max(values, default=None)),
    "MIN amount": (5, pa.decimal128(10, 2), lambda values: min(values, default=None)),
    "FIRST_VALUE": (3, LONG, lambda values: values[0] if values else None),
    "LAST_VALUE": (4, TEXT, lambda values: values[-1] if values else None),
    "COUNT distinct": (4, LONG, lambda values: len(set(values))),
    "LISTAGG": (4, TEXT, lambda values: ",".join(values) if values else None),
}


def call_of(name: str, frame: OverFrame, has_filter: bool = False) -> OverCall:
    place = FUNCTIONS[name][0]
    function, _, option = name.partition(" ")
    constants = (",",) if function == "LISTAGG" else ()
    arguments = () if place is None else (place,)
    call = AggregateCall(
        function, arguments, DataTypes.BIGINT(), option == "distinct", 7 if has_filter else None, (), constants
    )
    return OverCall(call, frame)


def in_frame(frame: OverFrame, rows: Sequence[Record], at: int) -> list[Record]:
    """The rows of a frame; NULL keys, which come first, have each other."""
    if frame.by_rows:
        low = 0 if frame.preceding is None else max(0, at - frame.preceding)
        return list(rows[low : len(rows) if frame.following is None else at + 1 + frame.following])
    key = rows[at][2]
    chosen = []
    for row in rows:
        if key is None or row[2] is None:
            behind = key is None and row[2] is not None
            ahead = key is not None and row[2] is None
            if (ahead and frame.preceding is None) or (behind and frame.following is None) or row[2] == key:
                chosen.append(row)
            continue
        distance = row[2] - key
        if (frame.preceding is None or distance >= -frame.preceding) and (
            frame.following is None or distance <= frame.following
        ):
            chosen.append(row)
    return chosen


def expected(names: Sequence[str], calls: Sequence[OverCall], rows: Sequence[Record]) -> Counter[Record]:
    """The results of rows, which are in the order of their arrival."""
    results: Counter[Record] = Counter()
    for partition in {row[1] for row in rows}:
        own = [row for row in rows if row[1] == partition]
        own.sort(key=lambda row: (row[2] is not None, row[2] or 0))
        for at, row in enumerate(own):
            values = []
            for name, over in zip(names, calls, strict=True):
                place, _, function = FUNCTIONS[name]
                frame = [other for other in in_frame(over.frame, own, at) if over.call.filter is None or other[7]]
                arguments = [1 if place is None else other[place] for other in frame]
                values.append(function([argument for argument in arguments if argument is not None]))
            results[(*row, *values)] += 1
    return results


def some_row(rng: random.Random) -> Record:
    """A row with a number of its own, so that the order of arrival is known."""
    return (
        rng.randrange(10**9),
        rng.choice(("a", "b", None)),
        rng.choice((None, 1, 2, 3, 4, 5, 8)),
        rng.choice((None, -7, 0, 5, 9)),
        rng.choice((None, "x", "y", "zz")),
        rng.choice((None, Decimal("1.25"), Decimal("-3.50"))),
        rng.choice((None, 0.5, -2.25)),
        rng.choice((None, True, True, False)),
    )


def run_of(plan: OverPlan, types: Sequence[pa.DataType]) -> OperatorRun:
    output = pa.schema([*INPUT, *(pa.field(f"result{at}", data_type) for at, data_type in enumerate(types))])
    return OperatorRun(lambda: OverRows(plan, [INPUT], output), [INPUT], [[1]])


@pytest.mark.parametrize("frame", FRAMES, ids=str)
def test_the_sum_of_all_changes_has_the_results_of_all_frames(frame: OverFrame) -> None:
    names = list(FUNCTIONS)
    for seed in range(examples(3)):
        rng = random.Random(seed)
        calls = tuple(call_of(name, frame, rng.random() < 0.3) for name in names)
        run = run_of(OverPlan((SortKey(2),), calls, 8), [FUNCTIONS[name][1] for name in names])
        table = ChangingTable(rng, some_row)
        arrivals: list[Record] = []
        for step in range(5):
            changes = table.changes(8)
            for kind, row in changes:
                arrivals.append(row) if kind in (0, 2) else arrivals.remove(row)
            run.push(changes)
            assert run.table == expected(names, calls, arrivals), (seed, step)
            if step == 2:
                run.restart(2)


def numbering(name: str, *constants: Any) -> OverCall:
    arguments = (3,) if name in ("LAG", "LEAD") else ()
    return OverCall(AggregateCall(name, arguments, DataTypes.BIGINT(), constants=constants), OverFrame(True, None, 0))


def test_numberings_and_neighbours() -> None:
    calls = (
        numbering("ROW_NUMBER"), numbering("RANK"), numbering("DENSE_RANK"), numbering("PERCENT_RANK"),
        numbering("CUME_DIST"), numbering("NTILE", 3), numbering("LAG", 1, None), numbering("LEAD", 2, -1),
    )  # fmt: skip
    run = run_of(OverPlan((SortKey(2),), calls, 8), [LONG, LONG, LONG, DOUBLE, DOUBLE, LONG, LONG, LONG])
    run.push([(0, (at, "a", order, at * 10, None, None, None, None)) for at, order in enumerate((1, 2, 2, 5))])
    assert sorted(row[:1] + row[8:] for row in run.table) == [
        (0, 1, 1, 1, 0.0, 0.25, 1, None, 20),
        (1, 2, 2, 2, 1 / 3, 0.75, 1, 0, 30),
        (2, 3, 2, 2, 1 / 3, 0.75, 2, 10, -1),
        (3, 4, 4, 3, 1.0, 1.0, 3, 20, -1),
    ]
    run.push([(0, (9, "a", 9, 90, None, None, None, None))])
    assert {row[0] for _, row in run.results} == {0, 1, 2, 3, 9}
    assert {kind for kind, row in run.results if row[0] == 9} == {0}
    assert {kind for kind, row in run.results if row[0] != 9} == {1, 2}


def test_rows_that_no_change_touches_do_not_come_again() -> None:
    run = run_of(OverPlan((SortKey(2),), (call_of("SUM", OverFrame(True, 1, 0)),), 8), [LONG])
    rows = [(at, "a", at, at, None, None, None, None) for at in range(6)]
    run.push([(0, row) for row in rows])
    run.push([(3, rows[2])])
    assert run.results == [(3, (*rows[2], 3)), (1, (*rows[3], 5)), (2, (*rows[3], 4))]


@pytest.mark.parametrize("frame", [frame for frame in FRAMES if frame.following == 0], ids=str)
def test_rows_in_the_order_of_time_leave_once_at_the_watermark(frame: OverFrame) -> None:
    bounded = call_of("SUM", OverFrame(True, 2, 0))
    for seed in range(examples(3)):
        rng = random.Random(seed)
        # LISTAGG needs all rows, what runs on needs none.
        names = [name for name in FUNCTIONS if frame.preceding is not None or rng.random() < 0.3 or name in RUNNING]
        calls = tuple(call_of(name, frame, rng.random() < 0.3) for name in names)
        plan = OverPlan((SortKey(2),), (bounded, *calls), 8, is_by_time=True)
        if frame.preceding is not None:
            keeps_millis = None if frame.by_rows else frame.preceding
            plan = replace(plan, keeps_rows=2, keeps_millis=keeps_millis)
        elif set(names) <= set(RUNNING):
            plan = replace(plan, running=tuple(range(1, len(calls) + 1)), keeps_rows=2)
        run = run_of(plan, [LONG, *(FUNCTIONS[name][1] for name in names)])
        rows: list[Record] = []
        for step in range(8):
            now = step * 10
            batch = []
            for _ in range(rng.randrange(12)):
                row = some_row(rng)
                batch.append((row[0], row[1], now + rng.randrange(1, 14), *row[3:]))
            rows += batch
            run.push([(0, row) for row in batch])
            assert run.results == []
            run.advance(now + 10)
            assert [kind for kind, _ in run.results] == [0] * len(run.results)
            times = [row[2] for _, row in run.results]
            assert len(run._subtasks) > 1 or times == sorted(times)
            if step == 3:
                run.restart(2)
        run.push([(0, (1, "a", 5, 1, None, None, None, None))])
        assert run.metrics.counters["numLateRecordsDropped"].value == 1
        run.advance(1000)
        assert run.table == expected(["SUM", *names], (bounded, *calls), rows), seed
        if plan.keeps_rows is not None:
            assert sum(function._table.size for _, _, function in run._subtasks) <= 3 * 3  # type: ignore[attr-defined]


RUNNING = [name for name in FUNCTIONS if name not in ("COUNT distinct", "LISTAGG")]


def test_what_runs_on_needs_no_rows() -> None:
    """Also for numberings, over rows that come by the clock."""
    calls = (
        numbering("ROW_NUMBER"),
        numbering("RANK"),
        numbering("DENSE_RANK"),
        call_of("SUM", OverFrame(False, None, 0)),
    )
    plan = OverPlan((SortKey(2),), calls, 8, is_by_clock=True, running=(0, 1, 2, 3), keeps_rows=0)
    run = run_of(plan, [LONG] * 4)
    numbers = [(at, "a", order, at, None, None, None, None) for at, order in enumerate((1, 2, 2, 5))]
    run.push([(0, row) for row in numbers])
    assert [row[:1] + row[8:] for _, row in run.results] == [
        (0, 1, 1, 1, 0),
        (1, 2, 2, 2, 3),
        (2, 3, 2, 2, 3),
        (3, 4, 4, 3, 6),
    ]
    run.restart(3)
    run.push([(0, (9, "a", 9, 4, None, None, None, None)), (0, (10, "b", 9, 1, None, None, None, None))])
    assert sorted(row[:1] + row[8:] for _, row in run.results) == [(9, 5, 5, 4, 10), (10, 1, 1, 1, 1)]
    assert sum(function._table.size for _, _, function in run._subtasks) == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("is_running", [False, True])
def test_sums_of_decimal_numbers_keep_all_their_digits(is_running: bool) -> None:
    wide = INPUT.set(5, pa.field("amount", pa.decimal128(38, 8)))
    output = wide.append(pa.field("result", pa.decimal128(38, 8)))
    plan = OverPlan((SortKey(2),), (call_of("SUM amount", OverFrame(True, None, 0)),), 8)
    if is_running:
        plan = replace(plan, is_by_clock=True, running=(0,), keeps_rows=0)
    run = OperatorRun(lambda: OverRows(plan, [wide], output), [wide], [[1]])
    amount, twice = (
        Decimal("123456789012345678901234567890.12345678"),
        Decimal("246913578024691357802469135780.24691356"),
    )
    run.push([(0, (at, "a", at, None, None, amount, None, None)) for at in range(2)])
    assert sorted(row[8] for row in run.table) == [amount, twice]
