"""SESSION windows: rows of a key that are not farther from each other than the gap, given as their session ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from typing_extensions import override

from firesteel.core.errors import ProgramError
from firesteel.runtime.operators.changelog import (
    ChangelogContext,
    ChangelogFunction,
    ChangelogStates,
    weights_of,
)
from firesteel.runtime.records.batch import Batch
from firesteel.runtime.records.columns import columns_of
from firesteel_sql.operators.group_results import Ints, Mask, inserted
from firesteel_sql.operators.plans import SessionPlan
from firesteel_sql.operators.windows import session_columns, times_of

_TIME = "time"


class SessionRows(ChangelogFunction):
    """Keeps the rows of open sessions; once the watermark has passed a session, its rows leave with its bounds."""

    def __init__(self, parameters: SessionPlan, inputs: Sequence[pa.Schema], output: pa.Schema) -> None:
        self._plan, self._output = parameters, output
        (self._input,) = inputs
        self._width = len(output) - 3  # the key of rows without a partition is a column more

    @override
    def create_state(self, states: ChangelogStates) -> None:
        self._rows = states.rows("sessions", self._input, [_TIME], stays=True)
        self._first: int | None = None

    @override
    def open(self, context: ChangelogContext) -> None:
        super().open(context)
        self._late = context.metrics.counter("numLateRecordsDropped")
        self._find_first()

    def _find_first(self) -> None:
        times = self._rows.numbers[_TIME].get(self._rows.all_rows())
        self._first = int(times.min()) if times.size else None

    @override
    def process(self, keys: Sequence[pa.Array], batch: Batch, input_index: int) -> Iterator[Batch]:
        rows, weights = columns_of(batch), weights_of(batch)
        times = times_of(rows.column(self._plan.time))
        if (times + self._plan.gap - 1 <= self.context.watermark()).any():
            chosen = np.flatnonzero(~self._too_late(keys, times))
            self._late.inc(len(times) - len(chosen))
            picks = pa.array(chosen)
            rows, weights, times = rows.take(picks), weights[chosen], times[chosen]
            keys = [key.take(picks) for key in keys]
        if not len(times):
            return
        comes = weights > 0
        self._add([key.filter(pa.array(comes)) for key in keys], rows.filter(pa.array(comes)), times[comes])
        if not comes.all():
            self._drop([key.filter(pa.array(~comes)) for key in keys], rows.filter(pa.array(~comes)))
        return
        yield

    def _too_late(self, keys: Sequence[pa.Array], times: Ints) -> Mask:
        """Which rows belong to a session that has ended, and touch none that is open."""
        gap = self._plan.gap
        late: Mask = times + gap - 1 <= self.context.watermark()
        rows = np.flatnonzero(late)
        owners, stored = self._rows.rows_of(self._rows.find([key.take(pa.array(rows)) for key in keys]))
        near = np.abs(self._rows.numbers[_TIME].get(stored) - times[rows][owners]) <= gap
        late[rows[owners[near]]] = False
        return late

    def _add(self, keys: Sequence[pa.Array], rows: pa.RecordBatch, times: Ints) -> None:
        if not len(times):
            return
        numbers = self._rows.add(self._rows.slots(keys), rows.columns)
        self._rows.numbers[_TIME].set(numbers, times)
        first = int(times.min())
        self._first = first if self._first is None else min(first, self._first)

    def _drop(self, keys: Sequence[pa.Array], rows: pa.RecordBatch) -> None:
        numbers = self._rows.match(self._rows.find(keys), rows.columns)
        if numbers.min() < 0:
            raise ProgramError(f"{self.context.operator}: a row goes that never came, or whose session has ended")
        self._rows.drop(numbers)

    @override
    def on_watermark(self, watermark: int) -> Iterator[Batch]:
        if self._first is None or self._first + self._plan.gap - 1 > watermark:
            return
        rows = self._rows.all_rows()
        slots, times = self._rows.slots_of(rows), self._rows.numbers[_TIME].get(rows)
        order = np.lexsort([times, slots])
        rows, slots, times = rows[order], slots[order], times[order]
        begins = np.r_[True, (slots[1:] != slots[:-1]) | (times[1:] - times[:-1] > self._plan.gap)]
        starts = np.flatnonzero(begins)
        session = np.cumsum(begins) - 1
        ends = times[np.r_[starts[1:], len(times)] - 1] + self._plan.gap
        ended = (ends - 1 <= watermark)[session]
        if ended.any():
            columns = self._rows.take(rows[ended])[: self._width]
            bounds = session_columns(times[starts][session[ended]], ends[session[ended]], self._output, self._plan.zone)
            yield inserted(self._output, [*columns, *bounds])
            self._rows.drop(rows[ended])
        self._find_first()
