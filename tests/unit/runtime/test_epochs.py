"""Changes that are held back until the next barrier."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from firesteel.common.typeinfo import Types
from firesteel.common.types import Row
from firesteel.graph.specs import OperatorKind
from firesteel.runtime.operator_base.initialization import SnapshotContext
from firesteel.runtime.operators import epochs
from firesteel.runtime.operators.epochs import EpochOperator
from firesteel.runtime.records.batch import MAX_WATERMARK, Batch, Watermark
from firesteel.runtime.records.columns import StreamColumns, columns_of
from tests.unit.runtime.support import line, opened, spec

ROW = Types.ROW_NAMED(["k", "v"], [Types.LONG(), Types.STRING()])
INSERT, BEFORE, AFTER, DELETE = range(4)
Record = tuple[Any, ...]


def epoch_operator(key: Sequence[int] | None = (0,)) -> EpochOperator:
    described = spec(OperatorKind.COLUMNS_EPOCH, extra={"input_type": ROW, "result_type": ROW, "key": key})
    (operator,) = opened(line(described)).operators
    assert isinstance(operator, EpochOperator)
    return operator


def put(operator: EpochOperator, *changes: tuple[int, Record]) -> None:
    rows = StreamColumns(ROW).from_records([Row(*row) for _, row in changes])
    operator.put(Batch(rows, None, np.array([kind for kind, _ in changes], np.int8)))


def taken(operator: EpochOperator) -> list[tuple[int, Record] | int]:
    """What leaves: changes, and times of watermarks."""
    items: list[tuple[int, Record] | int] = []
    while operator.ready:
        item = operator.take()
        if isinstance(item, Watermark):
            items.append(item.timestamp)
        else:
            rows = columns_of(item).to_pylist()
            assert item.kinds is not None
            items += [(int(kind), tuple(row.values())) for kind, row in zip(item.kinds, rows, strict=True)]
    return items


def test_only_the_difference_of_an_epoch_leaves_and_watermarks_stay_behind_their_rows() -> None:
    operator = epoch_operator()
    put(operator, (INSERT, (1, "a")), (INSERT, (2, "b")))
    put(operator, (BEFORE, (1, "a")), (AFTER, (1, "c")), (DELETE, (2, "b")))
    operator.put_watermark(Watermark(5))
    operator.put_watermark(Watermark(9))
    assert not operator.ready
    operator.before_barrier(1)
    assert taken(operator) == [(INSERT, (1, "c")), 9]
    put(operator, (BEFORE, (1, "c")), (AFTER, (1, "d")), (BEFORE, (1, "d")), (AFTER, (1, "e")), (INSERT, (3, None)))
    operator.before_barrier(2)
    assert taken(operator) == [(BEFORE, (1, "c")), (AFTER, (1, "e")), (INSERT, (3, None))]
    put(operator, (BEFORE, (1, "e")), (AFTER, (1, "f")), (DELETE, (1, "f")))
    operator.put_watermark(Watermark(MAX_WATERMARK))
    assert taken(operator) == [(DELETE, (1, "e")), MAX_WATERMARK], "the input ends the last epoch"
    operator.before_barrier(3)
    assert not operator.ready, "an epoch without changes gives none"


def test_without_a_key_rows_come_and_go() -> None:
    operator = epoch_operator(None)
    put(operator, (BEFORE, (1, "a")), (AFTER, (1, "b")))
    operator.before_barrier(1)
    assert taken(operator) == [(DELETE, (1, "a")), (INSERT, (1, "b"))]


def test_the_only_row_of_a_table_is_updated() -> None:
    operator = epoch_operator(())
    put(operator, (BEFORE, (1, "a")), (AFTER, (2, "b")))
    operator.before_barrier(1)
    assert taken(operator) == [(BEFORE, (1, "a")), (AFTER, (2, "b"))]


@pytest.mark.parametrize("seed", range(5))
def test_the_sum_of_the_changes_is_the_table_after_each_epoch(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where many rows are held, and those that cancel each other go meanwhile."""
    monkeypatch.setattr(epochs, "_FEWEST", 16)
    monkeypatch.setattr(epochs, "_PIECE", 5)
    rng = random.Random(seed)
    operator = epoch_operator()
    operator._limit = 16
    table: dict[int, Record] = {}
    output: Counter[Record] = Counter()
    for step in range(600):
        key = rng.randrange(12)
        old, new = table.pop(key, None), (key, rng.choice(("a", "b", None)))
        changes = [] if old is None else [(DELETE, old)]
        if rng.random() < 0.7:
            table[key] = new
            changes.append((INSERT, new))
        if changes:
            put(operator, *changes)
        assert sum(len(weights) for _, weights in operator._held) < 16 + 2 * 24
        if rng.random() < 0.05:
            operator.before_barrier(step)
            changed = taken(operator)
            for item in changed:
                assert isinstance(item, tuple)
                output[item[1]] += -1 if item[0] & 1 else 1
            assert {row for row, count in output.items() if count} == set(table.values())
            assert all(0 <= count <= 1 for count in output.values())
            keys = Counter(item[1][0] for item in changed if isinstance(item, tuple))
            assert max(keys.values(), default=0) <= 2, "a key leaves once, or as one update"


def test_rows_behind_the_last_epoch_are_in_the_snapshot() -> None:
    operator = epoch_operator()
    put(operator, (INSERT, (1, "a")))
    operator.before_barrier(1)
    put(operator, (INSERT, (2, "b")))  # from a source with a thread of its own
    operator.snapshot_state(SnapshotContext(1, 0))
    held = list(operator.operator_state.get_list_state(epochs._HELD).get())
    other = epoch_operator()
    for rows, weights in held:
        other._hold(rows, weights)
    other.before_barrier(2)
    assert taken(other) == [(INSERT, (1, "a")), (INSERT, (2, "b"))]
