"""Runs a computation over changing tables in several subtasks without a job, and adds up the changes that it gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from firesteel.common.typeinfo import RowTypeInfo
from firesteel.common.types import Row
from firesteel.expressions.keys import ColumnKey
from firesteel.functions.changelog import ChangelogComputation
from firesteel.graph.key_groups import operator_index
from firesteel.graph.key_hash import key_group
from firesteel.graph.specs import OperatorKind, OperatorSpec
from firesteel.runtime.loop.metrics import MetricRegistry
from firesteel.runtime.operator_base.context import OperatorContext, TaskInfo
from firesteel.runtime.operator_base.keyed_base import state_parameters
from firesteel.runtime.operators import create_operator
from firesteel.runtime.operators.changelog import ChangelogOperator
from firesteel.runtime.records.batch import Batch
from firesteel.runtime.records.rows import to_records
from firesteel.state.backend import StateBackend
from firesteel.state.heap import HeapStateBackend
from firesteel.testing.snapshots import SnapshotContents, take_snapshot
from tests.unit.windowing.harness import Clock

MAX_PARALLELISM = 16
Change = tuple[int, tuple[Any, ...]]
"""A row that comes (+1) or goes (-1)."""


class ChangelogRig:
    """A computation.

    Args:
        implementation: the ``ChangelogFunction``, as ``module:Class``.
        parameters: of it.
        inputs: types of the rows of its inputs.
        keys: for each input the places of the key's columns.
        output: type of the rows of its results.
        parallelism: number of subtasks.
        backend: of the state.

    Attributes:
        table: how often each row is in the result, by the changes so far.
        changes: that the last call gave: kind and row.
    """

    def __init__(
        self,
        implementation: str,
        parameters: Any,
        inputs: Sequence[RowTypeInfo],
        keys: Sequence[Sequence[int]],
        output: RowTypeInfo,
        parallelism: int = 1,
        backend: StateBackend | None = None,
    ) -> None:
        self._inputs, self._keys, self._backend = inputs, keys, backend or HeapStateBackend()
        first, *others = inputs
        kind = OperatorKind.COLUMNS_CO_CHANGELOG if others else OperatorKind.COLUMNS_CHANGELOG
        selectors = tuple(
            ColumnKey([input_type.get_field_names()[place] for place in places], places)
            for input_type, places in zip(inputs, keys, strict=True)
        )
        extra: Mapping[str, Any] = {
            "input_type": first,
            "other_input_types": tuple(others),
            "result_type": output,
            "wrap": True,
        }
        self._spec = OperatorSpec(
            "a" * 32, "computed", kind, ChangelogComputation(implementation, parameters), selectors, extra=dict(extra)
        )
        self.table: Counter[tuple[Any, ...]] = Counter()
        self.changes: list[Change] = []
        self.operators: list[ChangelogOperator] = []
        self._start(parallelism, ())

    def _start(self, parallelism: int, written: Sequence[SnapshotContents]) -> None:
        self.operators = []
        for subtask in range(parallelism):
            info = TaskInfo("1" * 32, "job", "v_0_0", "computed", subtask, parallelism, MAX_PARALLELISM, 0)
            clock = Clock()
            operator = create_operator(self._spec)
            assert isinstance(operator, ChangelogOperator)
            operator.use_backend(self._backend, state_parameters(self._spec, info, clock))
            operator.backend.restore([contents.of(operator.key_groups) for contents in written])
            operator.open(OperatorContext(info, clock, metrics=MetricRegistry(clock)))
            self.operators.append(operator)

    def change(self, changes: Sequence[Change], input_index: int = 0) -> Counter[tuple[Any, ...]]:
        """Give changes of an input, as one batch for each subtask; returns the table."""
        self.changes = []
        for number, operator in enumerate(self.operators):
            own = [change for change in changes if self._subtask_of(change[1], input_index) == number]
            if own:
                rows = operator.columns_of_input(input_index).from_records([Row(*row) for _, row in own])
                kinds = np.array([0 if weight > 0 else 3 for weight, _ in own], np.int8)
                self._take(operator.apply_input(iter([Batch(rows, None, kinds)]), input_index))
        return self.table

    def watermark(self, watermark: int) -> Counter[tuple[Any, ...]]:
        """Event time has come so far (epoch ms); returns the table."""
        self.changes = []
        for operator in self.operators:
            self._take(operator.advance_watermark(watermark))
        return self.table

    def restart(self, parallelism: int) -> None:
        """Write, forget, and restore with another parallelism."""
        written = [take_snapshot(operator.backend.snapshot(), operator.key_groups) for operator in self.operators]
        for operator in self.operators:
            operator.close()
        self._start(parallelism, written)

    def _subtask_of(self, row: Sequence[Any], input_index: int) -> int:
        places = self._keys[input_index]
        key = row[places[0]] if len(places) == 1 else tuple(row[place] for place in places)
        return operator_index(key_group(key, MAX_PARALLELISM), len(self.operators), MAX_PARALLELISM)

    def _take(self, batches: Iterator[Batch]) -> None:
        for batch in batches:
            assert isinstance(batch.values, pa.RecordBatch)
            kinds = [0] * len(batch) if batch.kinds is None else list(batch.kinds)
            for kind, record in zip(kinds, to_records(batch.values), strict=True):
                row = tuple(_hashable(value) for value in record)
                self.changes.append((int(kind), row))
                self.table[row] += -1 if kind & 1 else 1
                if not self.table[row]:
                    del self.table[row]


def _hashable(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_hashable, value))
    if isinstance(value, dict):
        return frozenset((key, _hashable(item)) for key, item in value.items())
    if value != value:
        return "NaN"  # one NaN is not equal to another
    return value
