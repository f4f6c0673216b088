"""Window table functions: each row with the windows that it belongs to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from typing_extensions import override

from firesteel.core.errors import ProgramError
from firesteel.runtime.operators.changelog import RowExpansion
from firesteel_sql.operators.group_results import Ints
from firesteel_sql.operators.plans import WindowPlan
from firesteel_sql.plan.stateful_relations import WindowKind


def times_of(column: pa.Array) -> Ints:
    """Times in epoch milliseconds.

    Raises:
        ProgramError: one is NULL.
    """
    if column.null_count:
        raise ProgramError("a row has no time (NULL in the column of its time attribute), so it belongs to no window")
    numbers: Ints = column.cast(pa.timestamp("ms", column.type.tz), safe=False).view(pa.int64()).to_numpy()
    return numbers


def time_column(times: Ints, data_type: pa.DataType) -> pa.Array:
    """A column of times in epoch milliseconds."""
    return pa.array(times, pa.timestamp("ms", data_type.tz)).cast(data_type)


def window_columns(starts: Ints, ends: Ints, schema: pa.Schema) -> list[pa.Array]:
    """``window_start``, ``window_end`` and ``window_time``, which are the last columns of a schema."""
    types = [field.type for field in list(schema)[-3:]]
    return [time_column(times, data_type) for times, data_type in zip((starts, ends, ends - 1), types, strict=True)]


class Windows(RowExpansion):
    """Tumbling, hopping and cumulating windows."""

    def __init__(self, parameters: WindowPlan, columns: pa.Schema, output: pa.Schema) -> None:
        self._plan, self._output = parameters, output

    @override
    def expand(self, rows: pa.RecordBatch) -> tuple[Any, pa.RecordBatch]:
        origins, starts, ends = self._windows(times_of(rows.column(self._plan.time)))
        chosen = rows if len(origins) == rows.num_rows else rows.take(pa.array(origins))
        columns = [*chosen.columns, *window_columns(starts, ends, self._output)]
        return origins, pa.RecordBatch.from_arrays(columns, schema=self._output)

    def _windows(self, times: Ints) -> tuple[Ints, Ints, Ints]:
        """For each window of each row the position of the row, and the window's start and end."""
        plan, rows = self._plan, np.arange(len(times))
        if plan.kind is WindowKind.TUMBLE:
            starts = times - (times - plan.offset) % plan.size
            return rows, starts, starts + plan.size
        if plan.kind is WindowKind.HOP:
            last = times - (times - plan.offset) % plan.step
            count = -(-plan.size // plan.step)
            starts = (last[:, None] - np.arange(count) * plan.step).ravel()
            origins = np.repeat(rows, count)
            inside = starts + plan.size > times[origins]  # not all, if the size is no multiple of the step
            origins, starts = origins[inside], starts[inside]
            return origins, starts, starts + plan.size
        first = times - (times - plan.offset) % plan.size
        passed = (times - first) // plan.step
        counts = -(-plan.size // plan.step) - passed
        origins = np.repeat(rows, counts)
        number = np.arange(len(origins)) - np.repeat(np.cumsum(counts) - counts, counts)
        starts = first[origins]
        ends = np.minimum(starts + (passed[origins] + number + 1) * plan.step, starts + plan.size)
        return origins, starts, ends
