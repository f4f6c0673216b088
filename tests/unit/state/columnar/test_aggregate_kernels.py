"""Kernels of aggregates: what is so far behind each row, and what slots hold in the end, are the same numbers."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from firesteel.common import Types
from firesteel.expressions import Aggregate, avg, count, first, last, max_, min_, sum_
from firesteel.expressions.aggregates import BoundAggregate, bind_aggregates
from firesteel.state.columnar import aggregate_kernels as kernels
from firesteel.state.columnar.aggregate_fields import KeyedFields
from firesteel.state.columnar.aggregate_kernels import Accumulators, Inputs, NotLongError, make_kernel
from firesteel.state.columnar.groups import Groups
from firesteel.state.columnar.store import ColumnarState

COLUMNS = {"number": Types.LONG(), "price": Types.DOUBLE(), "flag": Types.BOOLEAN(), "word": Types.STRING()}
ALL = (
    count(),
    *(
        function(name).alias(f"{function.__name__}{name}")
        for name in ("number", "price")
        for function in (count, sum_, avg, min_, max_, first, last)
    ),
    *(
        function(name).alias(f"{function.__name__}{name}")
        for name in ("flag", "word")
        for function in (min_, max_, first, last)
    ),
)
SLOTS = 7


def batch(r: random.Random, rows: int, nulls: float) -> dict[str, pa.Array]:
    def column(make: Any, data_type: pa.DataType) -> pa.Array:
        return pa.array([None if r.random() < nulls else make() for _ in range(rows)], data_type)

    return {
        "number": column(lambda: r.randrange(-(2**40), 2**40), pa.int64()),
        "price": column(lambda: r.choice([0.0, -0.0, 0.5, -8.25, float("nan"), float("inf")]), pa.float64()),
        "flag": column(lambda: r.random() < 0.5, pa.bool_()),
        "word": column(lambda: r.choice(["", "a", "ä", "𝄞"]), pa.string()),
    }


def bound(*aggregates: Aggregate, wrap: bool = False) -> list[BoundAggregate]:
    return bind_aggregates("aggregate", aggregates, COLUMNS, wrap=wrap)


def texts(column: pa.Array) -> list[str]:
    return [repr(value) for value in column.to_pylist()]  # NaN equals nothing, and 0.0 equals -0.0


@pytest.mark.parametrize("seed", range(12))
def test_what_is_so_far_behind_the_last_row_is_what_windows_give(seed: int) -> None:
    r = random.Random(seed)
    nulls = r.choice([0.0, 0.3, 1.0])
    aggregates = bound(*ALL)
    state = ColumnarState("aggregates", [pa.int64()])
    running = [make_kernel(aggregate, KeyedFields(aggregate, state)) for aggregate in aggregates]
    whole, halves, inputs = (
        Accumulators(aggregates),
        [Accumulators(aggregates, sparse=True) for _ in "ab"],
        Inputs(aggregates),
    )
    so_far: dict[int, list[str]] = {}
    order = 0
    for turn in range(4):
        rows = r.randrange(1, 40)
        input_columns = inputs.evaluate(batch(r, rows, nulls), rows)
        keys = np.array([r.randrange(SLOTS) for _ in range(rows)])
        slots = state.slots([pa.array(keys)])
        groups = Groups(slots)
        state.touch(groups.slots)
        results = [texts(kernel.running(groups, column)) for kernel, column in zip(running, input_columns, strict=True)]
        so_far.update((key, [column[row] for column in results]) for row, key in enumerate(keys.tolist()))
        came = np.arange(order, order + rows)
        order += rows
        whole.add(slots, input_columns, came, state.index.capacity)
        some = np.flatnonzero(np.arange(rows) % 2 == turn % 2)
        rest = np.setdiff1d(np.arange(rows), some)
        for half, chosen in zip(halves, (some, rest), strict=True):
            half.add(
                slots[chosen], [column.take(chosen) for column in input_columns], came[chosen], state.index.capacity
            )
    keys = np.array(sorted(so_far))
    slots = state.slots([pa.array(keys)])
    merged = Accumulators(aggregates, sparse=True)
    for half in halves[::-1]:
        merged.merge(slots, half, slots, state.index.capacity)
    restored = Accumulators(aggregates)
    restored.load(slots, merged.dump(slots), state.index.capacity)
    expected = [so_far[key] for key in keys.tolist()]
    for accumulators in (whole, merged, restored):
        columns = [texts(column) for column in accumulators.results(slots, [pa.array(keys)])]
        assert [list(row) for row in zip(*columns, strict=True)] == expected


@pytest.mark.parametrize("carry", [3, 1 << 30])
@pytest.mark.parametrize("seed", range(8))
def test_sums_on_their_way_may_be_of_any_size(seed: int, carry: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_CARRY", carry)
    r = random.Random(seed)
    aggregates = bound(sum_("number"))
    inputs = Inputs(aggregates)
    parts = [Accumulators(aggregates) for _ in range(3)]
    totals = [0] * SLOTS
    every = np.arange(SLOTS)
    for part in parts:
        for large in (False, r.random() < 0.8):
            numbers = [r.randrange(-(2**63), 2**63) if large else r.randrange(-9, 9) for _ in range(5 * SLOTS)]
            columns = inputs.evaluate({"number": pa.array(numbers)}, len(numbers))
            part.add(np.tile(every, 5), columns, np.arange(len(numbers)), SLOTS)
            totals = [sum(numbers[slot::SLOTS], total) for slot, total in enumerate(totals)]
        again = Accumulators(aggregates)
        again.load(every, part.dump(every), SLOTS)
        if part is not parts[0]:
            parts[0].merge(every, again, every, SLOTS)
    assert [int(text) for text in parts[0].dump(every)["0.sum"].to_pylist()] == totals
    back = [max(min(-total, 2**63 - 1), -(2**63)) for total in totals]
    left = [total + number for total, number in zip(totals, back, strict=True)]
    parts[0].add(every, inputs.evaluate({"number": pa.array(back)}, SLOTS), every, SLOTS)
    if all(-(2**63) <= number < 2**63 for number in left):
        assert parts[0].results(every, [])[0].to_pylist() == left
    else:
        with pytest.raises(NotLongError, match="does not fit LONG"):
            parts[0].results(every, [])


def test_texts_of_sums_that_checkpoints_hold_are_read_also_where_sums_wrap_around() -> None:
    columns = {"0.sum": pa.array([str(2**64 + 5), "-3"]), "0.seen": pa.array([True, True])}
    for wrap in (False, True):
        accumulators = Accumulators(bound(sum_("number"), wrap=wrap))
        accumulators.load(np.arange(2), columns, 2)
        assert accumulators.results(np.array([1]), [])[0].to_pylist() == [-3]
        if wrap:
            assert accumulators.results(np.arange(2), [])[0].to_pylist() == [5, -3]
        else:
            with pytest.raises(NotLongError, match=f"the sum {2**64 + 5} does not fit"):
                accumulators.results(np.arange(2), [])


@pytest.mark.parametrize("aggregate", [sum_("number"), avg("number")])
def test_both_ways_say_the_same_of_a_sum_that_does_not_fit(aggregate: Aggregate) -> None:
    (kernel_aggregate,) = aggregates = bound(aggregate)
    columns = Inputs(aggregates).evaluate({"number": pa.array([2**63 - 1, 4])}, 2)
    said = []
    state = ColumnarState("aggregates", [pa.int64()])
    groups = Groups(state.slots([pa.array([8, 8])]))
    with pytest.raises(NotLongError) as raised:
        make_kernel(kernel_aggregate, KeyedFields(kernel_aggregate, state)).running(groups, columns[0])
    said.append(str(raised.value).replace(" when 4 is added", ""))
    accumulators = Accumulators(aggregates)
    accumulators.add(np.zeros(2, np.int64), columns, np.arange(2), 1)
    with pytest.raises(NotLongError) as raised:
        accumulators.results(np.zeros(1, np.int64), [pa.array([8])])
    said.append(str(raised.value))
    assert said[0] == said[1]
    assert f"{aggregate}: the sum {2**63 + 3} does not fit LONG" in said[0]
    assert str(raised.value.with_key(["user"])).startswith("for the key user = 8: ")
