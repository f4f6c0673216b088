"""Operators over changing tables: what a computation gets of the operator, and what its results are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from firesteel.common import Types
from firesteel.common.types import Row, RowKind
from firesteel.core.errors import ProgramError
from firesteel.expressions.keys import ColumnKey
from firesteel.functions.changelog import ChangelogComputation
from firesteel.graph.specs import OperatorKind, OperatorSpec
from firesteel.runtime.chain.stages import ColumnStage
from firesteel.runtime.operators import create_operator
from firesteel.runtime.operators.changelog import (
    ChangelogFunction,
    ChangelogOperator,
    ChangelogStates,
    RowExpansion,
    weights_of,
)
from firesteel.runtime.records.batch import Batch
from firesteel.runtime.records.rows import to_rows

LEFT = Types.ROW_NAMED(["key", "amount"], [Types.STRING(), Types.LONG()])
RIGHT = Types.ROW_NAMED(["price", "key"], [Types.DOUBLE(), Types.STRING()])
COUNTS = Types.ROW_NAMED(["key", "left", "right"], [Types.STRING(), Types.LONG(), Types.LONG()])


class CountOfBoth(ChangelogFunction):
    """Counts the rows of each input by key."""

    def __init__(self, parameters: Any, inputs: Sequence[pa.Schema], output: pa.Schema) -> None:
        self.inputs, self.output = inputs, output
        self.seen: list[tuple[int, list[str]]] = []

    def create_state(self, states: ChangelogStates) -> None:
        self.state = states.columns("counts")
        self.counts = [self.state.column(f"count{index}", pa.int64()) for index in range(2)]

    def process(self, keys: Sequence[pa.Array], batch: Batch, input_index: int) -> Iterator[Batch]:
        self.seen.append((input_index, keys[0].to_pylist()))
        slots = self.state.slots(keys)
        self.state.touch(slots)
        np.add.at(self.counts[input_index].array.values, slots, weights_of(batch))
        touched = np.unique(slots)
        columns = [*self.state.index.keys(touched), *(pa.array(count.get(touched)) for count in self.counts)]
        rows = pa.RecordBatch.from_arrays(columns, schema=self.output)
        yield Batch(rows, None, np.full(len(touched), RowKind.UPDATE_AFTER.value, np.int8))


def _operator() -> ChangelogOperator:
    spec = OperatorSpec(
        "0" * 32,
        "counts",
        OperatorKind.COLUMNS_CO_CHANGELOG,
        ChangelogComputation(f"{__name__}:CountOfBoth", None),
        (ColumnKey(["key"], [0], ["key"]), ColumnKey(["key"], [1], ["key"])),
        extra={"input_type": LEFT, "other_input_types": (RIGHT,), "result_type": COUNTS, "wrap": True},
    )
    operator = create_operator(spec)
    assert isinstance(operator, ChangelogOperator)
    return operator


def _results(stage: ColumnStage) -> list[Batch]:
    batches = []
    while stage.pending:
        batches += [batch for _, batch in stage.step() if isinstance(batch, Batch)]
    return batches


def test_a_computation_over_two_inputs_reads_each_with_its_own_columns_and_key() -> None:
    operator = _operator()
    stage = ColumnStage([operator])
    stage.push(Batch([Row("a", 1), Row("b", 2)]), 0)
    stage.push(Batch([Row(1.5, "a")]), 1)
    results = _results(stage)
    assert operator.computation.seen == [(0, ["a", "b"]), (1, ["a"])]  # type: ignore[attr-defined]
    rows = [tuple(row) for batch in results for row in to_rows(batch).values]
    assert rows == [("a", 1, 0), ("b", 1, 0), ("a", 1, 1)]


def test_rows_of_results_know_their_kinds() -> None:
    stage = ColumnStage([_operator()])
    stage.push(Batch([Row("a", 1)]), 0)
    (batch,) = _results(stage)
    (row,) = to_rows(batch).values
    assert row.get_row_kind() is RowKind.UPDATE_AFTER


def test_rows_that_are_deleted_weigh_minus_one() -> None:
    kinds = np.array([0, 1, 2, 3], np.int8)
    rows = pa.RecordBatch.from_pydict({"n": [1, 2, 3, 4]})
    assert weights_of(Batch(rows, None, kinds)).tolist() == [1, -1, 1, -1]
    assert weights_of(Batch(rows)).tolist() == [1, 1, 1, 1]


def test_a_sink_that_does_not_look_at_kinds_refuses_changes() -> None:
    def forget(value: Any) -> None:
        """Take a record."""

    sink = create_operator(OperatorSpec("0" * 32, "forget", OperatorKind.SINK_FUNCTION, forget))
    with pytest.raises(ProgramError, match="takes rows that are inserted"):
        sink.refuse_changes(Batch([Row("a")], None, [3]))


class Repeated(RowExpansion):
    """Each row as often as its amount says."""

    def __init__(self, parameters: Any, columns: pa.Schema, output: pa.Schema) -> None:
        self.output = output

    def expand(self, rows: pa.RecordBatch) -> tuple[Any, pa.RecordBatch]:
        origins = np.repeat(np.arange(rows.num_rows), rows.column("amount").to_numpy())
        return origins, pa.RecordBatch.from_arrays(rows.take(pa.array(origins)).columns, schema=self.output)


def test_rows_of_an_expansion_keep_kind_and_timestamp_of_the_row_they_were_made_of() -> None:
    spec = OperatorSpec(
        "0" * 32,
        "repeat",
        OperatorKind.COLUMNS_EXPAND,
        ChangelogComputation(f"{__name__}:Repeated", None),
        extra={"input_type": LEFT, "result_type": LEFT, "wrap": True},
    )
    operator = create_operator(spec)
    stage = ColumnStage([operator])  # type: ignore[list-item]
    stage.push(Batch([Row("a", 2), Row("b", 0), Row("c", 1)], [10, 20, 30], [0, 3, 3]))
    (batch,) = _results(stage)
    assert [tuple(row) for row in to_rows(batch).values] == [("a", 2), ("a", 2), ("c", 1)]
    assert batch.timestamps is not None
    assert list(batch.timestamps) == [10, 10, 30]
    assert batch.kinds is not None
    assert list(batch.kinds) == [0, 0, 3]
    assert operator.fewer == 0
