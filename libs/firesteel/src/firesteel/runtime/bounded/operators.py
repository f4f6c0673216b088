"""Operators that do something else where the input is bounded: only the last result of each key leaves them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from firesteel.graph.specs import OperatorKind, OperatorSpec
from firesteel.runtime.batch import MAX_WATERMARK, Batch
from firesteel.runtime.columns.columns import columns_of
from firesteel.runtime.operators import Operator, create_operator
from firesteel.runtime.operators.column_aggregates import RunningAggregates
from firesteel.runtime.operators.column_windows import TimedColumns
from firesteel.runtime.operators.keyed import REDUCE_STATE, ReduceOperator
from firesteel.runtime.operators.timed import TIMER_DONE, TimedTransform
from firesteel.state.backend import Timer


class LastReduce(ReduceOperator, TimedTransform):
    """A reduce that gives the result of each key when event time has ended, with that time, as Flink does."""

    one_to_one = False
    expands = True

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        self.tagged = False

    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        """Nothing; all records are reduced when it is exhausted."""
        for _ in super().apply(records, input_index):
            pass
        return
        yield

    def advance_watermark(self, watermark: int) -> Iterator[Any]:
        """The results, at the end of event time."""
        self.heap_timers.watermark = watermark
        if watermark < MAX_WATERMARK:
            return
        for result in self.keyed.table(REDUCE_STATE).values():
            self.stamp.value = MAX_WATERMARK
            yield result
            yield TIMER_DONE

    def on_event_time(self, timer: Timer) -> Iterator[Any]:
        """There are no timers."""
        return iter(())

    def on_processing_time(self, timer: Timer) -> Iterator[Any]:
        """There are no timers."""
        return iter(())


class LastAggregates(RunningAggregates, TimedColumns):
    """Running aggregates of which only the last row of each key is given, when event time has ended."""

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        self._rows: list[pa.RecordBatch] = []
        self._slots: list[Any] = []

    def apply_columns(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Nothing; the results wait."""
        for given in batches:
            if not len(given):
                continue
            (found,) = super().apply_columns(iter((given,)))
            keys = self.keys_of(columns_of(given))
            self._hold(found.values, np.asarray(self.state.slots(keys)))
        return
        yield

    def _hold(self, rows: Any, slots: Any) -> None:
        """Of these rows the last one of each key."""
        _, first = np.unique(slots[::-1], return_index=True)
        last = len(slots) - 1 - first
        self._rows.append(rows.take(pa.array(last)))
        self._slots.append(slots[last])

    def on_event_time(self, watermark: int) -> Iterator[Any]:
        """The results, at the end of event time."""
        if watermark < MAX_WATERMARK or not self._rows:
            return
        rows, slots, self._rows, self._slots = pa.concat_batches(self._rows), np.concatenate(self._slots), [], []
        self._hold(rows, slots)
        (last,), self._rows, self._slots = self._rows, [], []
        yield Batch(last, np.full(last.num_rows, MAX_WATERMARK, np.int64))

    def on_processing_time(self, now: int) -> Iterator[Any]:
        """There are no timers."""
        return iter(())


def create_bounded_operator(spec: OperatorSpec) -> Operator:
    """A new operator for a specification, where the input is bounded."""
    if spec.kind is OperatorKind.REDUCE:
        return LastReduce(spec)
    if spec.kind is OperatorKind.COLUMNS_AGGREGATE:
        return LastAggregates(spec)
    return create_operator(spec)
