"""Window table functions: each row with the windows that it belongs to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from firesteel.core.errors import ProgramError
from firesteel.runtime.operators.changelog import RowExpansion
from firesteel_sql.operators.group_results import Ints
from firesteel_sql.operators.plans import WindowPlan
from firesteel_sql.plan.stateful_relations import WindowKind


def times_of(column: pa.Array, zone: str = "UTC") -> Ints:
    """Times in milliseconds since 1970, as clocks of a zone show them; times without a zone as they are.

    Raises:
        ProgramError: one is NULL.
    """
    if column.null_count:
        raise ProgramError("a row has no time (NULL in the column of its time attribute), so it belongs to no window")
    if column.type.tz is not None:
        column = pc.local_timestamp(column.cast(pa.timestamp(column.type.unit, zone)))
    numbers: Ints = column.cast(pa.timestamp("ms"), safe=False).view(pa.int64()).to_numpy()
    return numbers


def window_columns(starts: Ints, ends: Ints, schema: pa.Schema, zone: str = "UTC") -> list[pa.Array]:
    """``window_start``, ``window_end`` and ``window_time``, which are the last columns of a schema."""
    columns = []
    for times, field in zip((starts, ends, ends - 1), list(schema)[-3:], strict=True):
        column = pa.array(times, pa.timestamp("ms"))
        columns.append((column if field.type.tz is None else _instants(column, zone)).cast(field.type))
    return columns


def session_columns(firsts: Ints, ends: Ints, schema: pa.Schema, zone: str) -> list[pa.Array]:
    """The same columns for sessions, whose bounds are points in time (epoch ms)."""
    columns = []
    for times, field in zip((firsts, ends, ends - 1), list(schema)[-3:], strict=True):
        column = pa.array(times, pa.timestamp("ms", zone))
        columns.append((pc.local_timestamp(column) if field.type.tz is None else column).cast(field.type))
    return columns


def last_moments(ends: pa.Array, zone: str) -> Ints:
    """The last milliseconds (epoch ms) of windows that end when clocks of a zone show this; arbitrary for NULL."""
    moments = _instants(ends.cast(pa.timestamp("ms"), safe=False), zone)
    numbers: Ints = moments.view(pa.int64()).fill_null(0).to_numpy() - 1
    return numbers


def _instants(local: pa.Array, zone: str) -> pa.Array:
    """Points in time at which clocks show this: the later one, if they are set back."""
    if zone == "UTC":
        return local.view(pa.timestamp("ms", zone))
    moments = local.dictionary_encode()  # the bounds of windows are few
    points = pc.assume_timezone(moments.dictionary, zone, ambiguous="latest", nonexistent="latest")
    return points.take(moments.indices)


class Windows(RowExpansion):
    """Tumbling, hopping and cumulating windows."""

    def __init__(self, parameters: WindowPlan, columns: pa.Schema, output: pa.Schema) -> None:
        self._plan, self._output = parameters, output

    @override
    def expand(self, rows: pa.RecordBatch) -> tuple[Any, pa.RecordBatch]:
        origins, starts, ends = self._windows(times_of(rows.column(self._plan.time), self._plan.zone))
        chosen = rows if len(origins) == rows.num_rows else rows.take(pa.array(origins))
        columns = [*chosen.columns, *window_columns(starts, ends, self._output, self._plan.zone)]
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
