"""Operators over columns that act at times: windows of aggregates that are computed by columns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from typing_extensions import override

from firesteel.expressions.schema import schema_of
from firesteel.graph.specs import OperatorSpec
from firesteel.runtime.operator_base.context import OperatorContext
from firesteel.runtime.operator_base.side_outputs import SideBatch
from firesteel.runtime.operator_base.timers import KeyedTimerService
from firesteel.runtime.operators.column_aggregates import KeyedColumns
from firesteel.runtime.operators.late_records import LateRecords
from firesteel.runtime.records.batch import Batch
from firesteel.runtime.records.columns import columns_of, take
from firesteel.runtime.records.rows import to_records
from firesteel.state.backend import KeyedStateParameters
from firesteel.state.columnar.aggregate_kernels import Inputs, NotLongError
from firesteel.state.heap import HeapKeyedState
from firesteel.windowing.assigners import no_timestamp
from firesteel.windowing.columnar import ColumnWindowSpec

Output = Batch | SideBatch


class TimedColumns(KeyedColumns):
    """An operator over columns that acts when event time or the clock reaches a point.

    The chain calls ``advance_watermark`` and ``advance_processing_time`` between batches, and pulls their results one
    part at a time; a part without rows ends a slice.

    Attributes:
        heap_timers: the watermark, and the next time of the clock at which the operator acts.
    """

    expands = True
    sets_stamps: ClassVar[bool] = False

    def open(self, context: OperatorContext) -> None:
        self.clock, self._on_timer = context.clock, context.on_processing_timer
        self.heap_timers = KeyedTimerService(HeapKeyedState(), context.clock, context.on_processing_timer)
        super().open(context)

    def wake_at(self, time: int) -> None:
        """Request that ``advance_processing_time`` is called at this time of the clock (epoch ms)."""
        if self.heap_timers.processing.add(time, None, None):
            self._on_timer(time)

    def advance_watermark(self, watermark: int) -> Iterator[Any]:
        """Take a new watermark (epoch ms); yields the results that it makes due."""
        self.heap_timers.watermark = watermark
        return self.on_event_time(watermark)

    def advance_processing_time(self, now: int) -> Iterator[Any]:
        """Take a new time of the clock (epoch ms); yields the results that it makes due."""
        for _ in self.heap_timers.processing.due(now):  # removes the timers that have fired
            pass
        return self.on_processing_time(now)

    @abstractmethod
    def on_event_time(self, watermark: int) -> Iterator[Output]:
        """Yield the results that are due at this watermark (epoch ms)."""

    @abstractmethod
    def on_processing_time(self, now: int) -> Iterator[Output]:
        """Yield the results that are due at this time of the clock (epoch ms)."""


class ColumnWindowOperator(TimedColumns):
    """Tumbling, sliding and session windows of aggregates, around the cores in ``firesteel.runtime.columnar_windows``.

    Attributes:
        late_records: counts the rows that came too late and were dropped.
    """

    def __init__(self, spec: OperatorSpec) -> None:
        from firesteel.expressions.aggregates import bind_aggregates

        self.windows: ColumnWindowSpec = spec.function
        declared, wrap = schema_of(spec.extra["input_type"]), bool(spec.extra.get("wrap"))
        assert declared is not None
        self._bound = bind_aggregates("aggregate", self.windows.aggregates, declared, wrap=wrap)
        super().__init__(spec)
        self._empty_batch = pa.RecordBatch.from_pylist([], self.output.schema)
        self._event_time = self.windows.assigner.is_event_time()
        self._rows_seen = 0

    def make_state(self, parameters: KeyedStateParameters) -> Any:
        from firesteel.runtime.columnar_windows.make import make_windows

        groups_of, key_groups = parameters.key_groups_of, parameters.key_groups
        windows = make_windows(self.windows, self.key_types, self._bound, groups_of, key_groups)
        self.backend.attach(windows)
        return windows

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._inputs = Inputs(self._bound)
        self._rows_seen = self.state.rows_seen  # restored with the state
        self.late_records = LateRecords(self.name, context, self.runtime_context(context))
        self._wake_up()

    def apply_columns(self, batches: Iterator[Batch]) -> Iterator[Any]:
        """Add rows to their windows; yields results only of ended windows that are kept for late rows."""
        for incoming in batches:
            batch, stamps = columns_of(incoming), incoming.timestamps
            if not batch.num_rows:
                continue
            if not self._event_time:
                # Time never goes back, even if the clock is set back: a window that was evaluated gets no more rows.
                stamps = np.full(batch.num_rows, max(self.clock.epoch_ms(), self.state.latest + 1), np.int64)
            elif stamps is None:
                raise no_timestamp(self.windows.assigner)
            keys = self.keys_of(batch) or [batch.column(0)]
            inputs = self._inputs.evaluate(self.columns_of(batch), batch.num_rows)
            # Each row gets its position in the input: aggregates like the first value compare these.
            order = np.arange(self._rows_seen, self._rows_seen + batch.num_rows)
            self._rows_seen += batch.num_rows
            for late_rows_or_results in self._checked(self.state.add(keys, inputs, stamps, order)):
                if isinstance(late_rows_or_results, np.ndarray):
                    yield from self._late(batch, stamps, late_rows_or_results)
                else:
                    yield self._results(late_rows_or_results)
            self._wake_up()

    def _checked(self, work: Iterator[Any]) -> Iterator[Any]:
        """Pass results through; adds the key to the error about a result that does not fit its type."""
        try:
            yield from work
        except NotLongError as error:
            raise error.with_key(self.key.names) from None

    def _late(self, batch: pa.RecordBatch, stamps: Any, rows: Any) -> Iterator[SideBatch]:
        """Send late rows to the side output, or count and drop them if there is none."""
        tag = self.windows.late_tag
        if tag is None:
            self.late_records.drop(int(stamps[rows[-1]]), self.heap_timers.watermark, len(rows))
            return
        late = take(Batch(batch), rows).values
        times = stamps[rows]
        if tag.type_info == self.spec.extra["input_type"]:
            yield SideBatch(tag.tag_id, Batch(late, times))
        else:
            records = [self.side_record((tag, record)).value for record in to_records(late)]
            yield SideBatch(tag.tag_id, Batch(records, times.tolist()))

    def _results(self, results: Any) -> Batch:
        if results is None:
            return Batch(self._empty_batch)
        keys = results.keys if self.key.names else []
        window = [pa.array(results.starts), pa.array(results.ends)]
        batch = pa.RecordBatch.from_arrays([*keys, *window, *results.values], schema=self.output.schema)
        return Batch(batch, results.ends - 1)

    @override
    def on_event_time(self, watermark: int) -> Iterator[Output]:
        if self._event_time:
            for results in self._checked(self.state.advance(watermark)):
                yield self._results(results)

    def on_processing_time(self, now: int) -> Iterator[Output]:
        """Yield the results of windows whose last millisecond is over."""
        if not self._event_time:
            for results in self._checked(self.state.advance(now - 1)):
                yield self._results(results)
            self._wake_up()

    def _wake_up(self) -> None:
        if not self._event_time:
            time = self.state.next_time
            if time is not None:
                self.wake_at(time + 1)
