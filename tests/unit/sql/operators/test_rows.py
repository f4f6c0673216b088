"""Upserts that become whole changes, elements that become rows, and rows in the order of time."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from firesteel_sql.operators.expansions import ElementRows, RepeatedRows
from firesteel_sql.operators.normalize import Normalization
from firesteel_sql.operators.plans import NormalizePlan, SortPlan, UnnestPlan
from firesteel_sql.operators.time_sort import SortedByTime
from firesteel_sql.plan.stateful_relations import SortKey
from tests.examples import examples
from tests.unit.sql.operators.changing_tables import OperatorRun, Record

SCHEMA = pa.schema([("key", pa.int64()), ("text", pa.string()), ("time", pa.int64())])


def test_upserts_become_changes_of_whole_rows() -> None:
    run = OperatorRun(lambda: Normalization(NormalizePlan(), [SCHEMA], SCHEMA), [SCHEMA], [[0]])
    run.push([(0, (1, "a", 1)), (2, (2, "b", 1)), (3, (3, None, None))])
    assert sorted(run.results) == [(0, (1, "a", 1)), (0, (2, "b", 1))]
    run.push([(2, (1, "a", 1)), (2, (2, "c", 1)), (2, (2, "d", 1))])
    assert run.results == [(1, (2, "b", 1)), (2, (2, "d", 1))]
    run.push([(1, (1, "a", 1)), (2, (1, "e", 1)), (3, (2, None, None))])
    assert run.results == [(3, (2, "d", 1)), (1, (1, "a", 1)), (2, (1, "e", 1))]
    run.push([(1, (1, "e", 1)), (2, (5, "e", 1))])
    assert run.results == [(3, (1, "e", 1)), (0, (5, "e", 1))]


def test_the_sum_of_all_changes_is_the_last_row_of_each_key() -> None:
    for seed in range(examples(10)):
        rng = random.Random(seed)
        run = OperatorRun(lambda: Normalization(NormalizePlan(), [SCHEMA], SCHEMA), [SCHEMA], [[0]])
        rows: dict[Any, Record] = {}
        for _ in range(12):
            changes: list[tuple[int, Record]] = []
            for _ in range(rng.randrange(1, 15)):
                key = rng.choice((None, 1, 2, 3, 4))
                if rng.random() < 0.3:
                    changes.append((3, (key, None, None)))
                    rows.pop(key, None)
                else:
                    rows[key] = (key, rng.choice("ab"), rng.randrange(2))
                    changes.append((rng.choice((0, 2)), rows[key]))
            run.push(changes)
            assert run.table == Counter(rows.values())
            if rng.random() < 0.3:
                run.restart(rng.randrange(1, 4))
        for _, _, function in run._subtasks:
            table = function._table  # type: ignore[attr-defined]
            table.slots([pa.array([1])])
            assert table.index.size <= table.size + 1  # keys that were deleted are forgotten


COLLECTION = pa.schema([("id", pa.int64()), ("items", pa.list_(pa.string()))])


def expanded(plan: UnnestPlan, collection: pa.Array, output: list[pa.DataType]) -> list[Record]:
    rows = pa.RecordBatch.from_arrays([pa.array(range(len(collection))), collection], names=["id", "items"])
    schema = pa.schema([("id", pa.int64()), ("items", collection.type), *((f"c{n}", t) for n, t in enumerate(output))])
    origins, result = ElementRows(plan, rows.schema, schema).expand(rows)
    assert origins.tolist() == result.column(0).to_pylist()
    return list(zip(*[result.column(at).to_pylist() for at in range(2, len(schema))], origins.tolist(), strict=True))


@pytest.mark.parametrize("is_outer", [False, True])
def test_elements_of_arrays(is_outer: bool) -> None:
    items = pa.array([["skipped"], ["a", None], [], None, ["b"]], pa.list_(pa.string())).slice(1)
    rows = expanded(UnnestPlan(1, is_outer, True, False, False), items, [pa.string(), pa.int32()])
    alone = [(None, None, 1), (None, None, 2)] if is_outer else []
    assert rows == [("a", 1, 0), (None, 2, 0), *alone, ("b", 1, 3)]


def test_elements_of_maps_and_multisets_and_fields_of_rows() -> None:
    pairs = pa.array([[("a", 2), ("b", 0)], None, [("c", 1)]], pa.map_(pa.string(), pa.int32()))
    assert expanded(UnnestPlan(1, False, False, False, False), pairs, [pa.string(), pa.int32()]) == [
        ("a", 2, 0), ("b", 0, 0), ("c", 1, 2),
    ]  # fmt: skip
    assert expanded(UnnestPlan(1, True, True, True, False), pairs, [pa.string(), pa.int32()]) == [
        ("a", 1, 0), ("a", 2, 0), (None, None, 1), ("c", 1, 2),
    ]  # fmt: skip
    fields = pa.struct([("x", pa.int64()), ("y", pa.string())])
    points = pa.array([[{"x": 1, "y": "a"}, None], [{"x": None, "y": "b"}]], pa.list_(fields))
    assert expanded(UnnestPlan(1, False, False, False, True), points, [pa.int64(), pa.string()]) == [
        (1, "a", 0), (None, None, 0), (None, "b", 1),
    ]  # fmt: skip


def test_rows_are_repeated() -> None:
    rows = pa.RecordBatch.from_pydict({"a": ["x", "y", "z", "n"], "n": [2, 0, 1, None]})
    origins, result = RepeatedRows(1, rows.schema, pa.schema([("a", pa.string())])).expand(rows)
    assert (origins.tolist(), result.to_pydict()) == ([0, 0, 2], {"a": ["x", "x", "z"]})


def test_rows_leave_in_the_order_of_time_and_late_ones_are_dropped() -> None:
    plan = SortPlan((SortKey(2), SortKey(1, ascending=False)), 3)
    run = OperatorRun(lambda: SortedByTime(plan, [SCHEMA], SCHEMA), [SCHEMA], [[0]])
    run.push([(0, (0, "a", 30)), (0, (0, "b", 10)), (0, (0, "c", 10)), (0, (0, "d", 40))])
    run.advance(9)
    assert run.results == []
    run.restart(1)
    run.push([(0, (0, "e", 20)), (3, (0, "d", 40)), (0, (0, "f", 9))])
    run.advance(35)
    assert [row for _, row in run.results] == [(0, "c", 10), (0, "b", 10), (0, "e", 20), (0, "a", 30)]
    assert run.metrics.counters["numLateRecordsDropped"].value == 1
    run.push([(3, (0, "a", 30))])
    assert run.results == [(3, (0, "a", 30))]
    run.advance(1000)
    assert run.results == []
