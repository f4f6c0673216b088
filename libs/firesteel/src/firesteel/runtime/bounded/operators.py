"""Operators of batch mode: they emit only the last result of each key, and take partial results of senders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from typing_extensions import override

from firesteel.expressions.keys import ManyKeys
from firesteel.expressions.schema import schema_of
from firesteel.functions.functions import KeySelector
from firesteel.graph.specs import OperatorKind, OperatorSpec
from firesteel.runtime.bounded.window_parts import WindowPart, reader_of, takes_parts
from firesteel.runtime.columnar_windows.fixed import Pane
from firesteel.runtime.columnar_windows.keys import index_maker
from firesteel.runtime.columnar_windows.results import pieces
from firesteel.runtime.operator_base.base import Operator, method_of
from firesteel.runtime.operator_base.context import TaskRuntimeContext
from firesteel.runtime.operator_base.timed import TIMER_DONE, TimedTransform
from firesteel.runtime.operators import create_operator
from firesteel.runtime.operators.column_windows import ColumnWindowOperator, TimedColumns
from firesteel.runtime.operators.keyed import REDUCE_STATE, ReduceOperator
from firesteel.runtime.operators.windows import AlignedWindowOperator
from firesteel.runtime.records.batch import MAX_WATERMARK, Batch
from firesteel.runtime.records.columns import columns_of
from firesteel.state.backend import KeyedStateParameters, Timer
from firesteel.state.columnar.aggregate_kernels import Accumulators, Inputs, NotLongError
from firesteel.state.heap import HeapKeyedState
from firesteel.state.tables import MISSING
from firesteel.windowing.assigners import FixedTimeWindows

PARTS: Final = b"firesteel.parts"
"""Key in the metadata of batches whose rows are accumulators instead of records."""


class _Fields(list[Any]):
    """The fields of a tuple while one of them is combined in place; its class tells it from records of users."""


class LastReduce(ReduceOperator, TimedTransform):
    """A reduce that emits the result of each key when event time ends, with that timestamp, as Flink does."""

    one_to_one = False
    expands = True
    takes_slices = True
    sets_stamps = False  # only for its results, which it emits in ``advance_watermark``

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        self.tagged = False

    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        """Yield nothing, but reduce all records; exhaust the iterator to have that done."""
        yield from self.apply_slice(list(records), None, input_index)

    def apply_slice(self, values: Sequence[Any], stamps: Sequence[Any] | None, input_index: int) -> Iterator[Any]:
        """Yield nothing, but reduce all records.

        A result of the same class as the records is fitted to the declared type only at the end.
        """
        keys, table = self.keys_of(values, input_index), self.keyed.table(REDUCE_STATE)
        if getattr(self.function, "combines_one_field", False):
            self._combine_fields(self.function, table, keys, values)
            return
        function, coerce, get, keyed = self.function_of_two, self.coerce, table.get, self.keyed
        for key, value in zip(keys, values, strict=True):
            former = get(key, MISSING)
            if former is MISSING:
                table[key] = value
                continue
            keyed.key = key  # the function may have state of its own
            result = function(former, value)
            if coerce is not None and result.__class__ is not value.__class__:
                result = coerce(result)
            table[key] = result
        return
        yield

    def _combine_fields(self, function: Any, table: Any, keys: Sequence[Any], values: Sequence[Any]) -> None:
        """Reduce by ``sum``, ``min`` or ``max`` of one field, in place; a tuple is made only of the last result."""
        position, combine, get = function.position, function.combine, table.get
        for key, value in zip(keys, values, strict=True):
            former = get(key, MISSING)
            if former is MISSING:
                table[key] = _Fields(value) if value.__class__ is tuple and position.__class__ is int else value
            elif former.__class__ is _Fields:
                former[position] = combine(former[position], value[position])
            else:
                table[key] = function(former, value)

    def advance_watermark(self, watermark: int) -> Iterator[Any]:
        """Yield the results at the end of event time."""
        self.heap_timers.watermark = watermark
        if watermark < MAX_WATERMARK:
            return
        coerce = self.coerce
        for value in self.keyed.table(REDUCE_STATE).values():
            if value.__class__ is _Fields:
                value = tuple(value)
            self.stamp.value = MAX_WATERMARK
            yield value if coerce is None else coerce(value)
            yield TIMER_DONE

    @override
    def on_event_time(self, timer: Timer) -> Iterator[Any]:
        return iter(())

    @override
    def on_processing_time(self, timer: Timer) -> Iterator[Any]:
        return iter(())


def is_parts(values: Any) -> bool:
    """Whether the values of a batch are rows of accumulators, for ``add_parts`` of the operator."""
    return isinstance(values, pa.RecordBatch) and PARTS in (values.schema.metadata or {})


def _parts(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.replace_schema_metadata({PARTS: b""})


class LastAggregates(TimedColumns):
    """Aggregates that emit only the last row of each key, when event time ends; then they begin anew."""

    def __init__(self, spec: OperatorSpec) -> None:
        from firesteel.expressions.aggregates import bind_aggregates

        declared, wrap = schema_of(spec.extra["input_type"]), bool(spec.extra.get("wrap"))
        assert declared is not None
        self._bound = bind_aggregates("aggregate", spec.function, declared, wrap=wrap)
        self._inputs = Inputs(self._bound)
        self._rows_seen = 0
        super().__init__(spec)

    def make_state(self, parameters: KeyedStateParameters) -> Pane:
        """Create a pane for all time."""
        return Pane(0, index_maker(self.key_types)(), Accumulators(self._bound))

    @override
    def apply_columns(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        for incoming in batches:
            batch = columns_of(incoming)
            if batch.num_rows:
                order = np.arange(self._rows_seen, self._rows_seen + batch.num_rows)
                self._rows_seen += batch.num_rows
                self.state.add(
                    self.keys_of(batch), self._inputs.evaluate(self.columns_of(batch), batch.num_rows), order
                )
        return
        yield

    def size(self) -> tuple[int, int]:
        """Number of panes, and of rows of accumulators in all of them."""
        return 1, self.state.index.capacity

    def give_parts(self) -> Iterator[pa.RecordBatch]:
        """Yield the accumulators, which other operators like this one may add to theirs, and begin anew."""
        pane, self.state = self.state, self.make_state(KeyedStateParameters())
        for slots in pieces(pane.index.capacity):
            yield _parts(pane.dump(slots))

    def add_parts(self, rows: pa.RecordBatch) -> None:
        """Add accumulators from ``give_parts`` of other operators like this one."""
        self.state.add_parts(rows, len(self.key_types), Accumulators(self._bound))

    def on_event_time(self, watermark: int) -> Iterator[Any]:
        """Yield the results at the end of event time; nothing before."""
        if watermark < MAX_WATERMARK:
            return
        pane, self.state = self.state, self.make_state(KeyedStateParameters())
        for slots in pieces(pane.index.capacity):
            keys = pane.index.keys(slots)
            try:
                results = pane.accumulators.results(slots, keys)
            except NotLongError as error:
                raise error.with_key(self.key.names) from None
            rows = pa.RecordBatch.from_arrays([*keys, *results], schema=self.output.schema)
            yield Batch(rows, np.full(rows.num_rows, MAX_WATERMARK, np.int64))

    @override
    def on_processing_time(self, now: int) -> Iterator[Any]:
        return iter(())


class PartedWindows(ColumnWindowOperator):
    """Windows of fixed size over columns, whose contents may come as accumulators from the senders."""

    def size(self) -> tuple[int, int]:
        """Number of panes, and of rows of accumulators in all of them."""
        panes = self.state.panes
        return len(panes), sum(pane.index.capacity for pane in panes.values())

    def give_parts(self) -> Iterator[pa.RecordBatch]:
        """Yield the accumulators, which other operators like this one may add to theirs, and begin anew."""
        windows = self.state
        self._create_state(HeapKeyedState(), KeyedStateParameters())
        yield from map(_parts, windows.dump())

    def add_parts(self, rows: pa.RecordBatch) -> None:
        """Add accumulators from ``give_parts`` of other operators like this one."""
        self.state.add_parts(rows)


class GatheredWindows(AlignedWindowOperator):
    """Windows with accumulators that take ``WindowPart`` beside records. Slices without parts cost no look for them."""

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(reader_of(spec))
        self._of_records = spec

    def make(self, runtime_context: TaskRuntimeContext) -> None:
        """Create the core, with two sets of functions: one that takes parts as well, and one for records only."""
        super().make(runtime_context)
        function, selectors = self._of_records.function.gather_function, self._of_records.key_selectors
        keys = [
            of_both if isinstance(selector, ManyKeys) else method_of(selector, KeySelector, "get_key")
            for of_both, selector in zip(self.key_selectors, selectors, strict=True)
        ]
        self._for_parts = self.key_selectors, self._function, self._create
        self._for_records = keys, function.add, function.create_accumulator

    @override
    def apply_slice(self, values: Sequence[Any], stamps: Sequence[Any] | None, input_index: int) -> Iterator[Any]:
        chosen = self._for_parts if WindowPart in set(map(type, values)) else self._for_records
        self.key_selectors, self._function, self._create = chosen
        return super().apply_slice(values, stamps, input_index)


def create_bounded_operator(spec: OperatorSpec) -> Operator:
    """Create an operator for batch mode from its specification."""
    if spec.kind is OperatorKind.REDUCE:
        return LastReduce(spec)
    if spec.kind is OperatorKind.COLUMNS_AGGREGATE:
        return LastAggregates(spec)
    if spec.kind is OperatorKind.COLUMNS_WINDOW and isinstance(spec.function.assigner, FixedTimeWindows):
        return PartedWindows(spec)
    if takes_parts(spec):
        return GatheredWindows(spec)
    return create_operator(spec)
