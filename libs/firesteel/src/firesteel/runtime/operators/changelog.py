"""Operators over changing tables: rows that are inserted and deleted come in, and rows of the result go out.

A table is the sum of its changes. Each row of a batch has a kind (+I, -U, +U, -D), and with it a weight: +1 for a row
that is there from now on, -1 for one that is not any more. An operator takes the changes of its inputs in any order and
gives the changes of its result, so operators can be put behind each other in any way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import override

from firesteel.core.plugins import import_target
from firesteel.expressions.keys import ColumnKey
from firesteel.functions.changelog import ChangelogComputation
from firesteel.functions.metrics import MetricGroup
from firesteel.graph.specs import OperatorSpec
from firesteel.runtime.operator_base.columnar import ColumnTransform
from firesteel.runtime.operator_base.context import OperatorContext
from firesteel.runtime.operators.column_windows import TimedColumns
from firesteel.runtime.records.batch import Batch
from firesteel.runtime.records.columns import StreamColumns, as_array, columns_of
from firesteel.state.backend import KeyedStateBackend, KeyedStateParameters
from firesteel.state.columnar.row_table import RowLife, RowTable, unique_names
from firesteel.state.columnar.store import ColumnarState, by_first

Kinds = npt.NDArray[np.int8]
Weights = npt.NDArray[np.int64]
INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)
"""Row kinds, in the numbers of batches."""


def weights_of(batch: Batch) -> Weights:
    """+1 for each row that is inserted, -1 for each that is deleted."""
    if batch.kinds is None:
        return np.ones(len(batch), np.int64)
    weights: Weights = 1 - 2 * (np.asarray(batch.kinds, np.int64) & 1)
    return weights


@dataclass(frozen=True)
class ChangelogStates:
    """Creates the state of a computation in the backend of its operator.

    Args:
        backend: of the operator.
        key_types: of the columns by which the inputs are keyed.
        parameters: the key groups of the subtask, and the clock of time-to-live.

    Attributes:
        created: all state so far, by name.
    """

    backend: KeyedStateBackend
    key_types: Sequence[pa.DataType]
    parameters: KeyedStateParameters
    created: dict[str, ColumnarState | RowTable] = field(default_factory=dict)

    def columns(self, name: str, more_key_types: Sequence[pa.DataType] = ()) -> ColumnarState:
        """State with one row for each key, or for each key with values of these further types."""
        state = self.backend.columns(name, [*self.key_types, *more_key_types], len(self.key_types))
        self.created[name] = state
        return state

    def drop_undeclared(self) -> None:
        """Drop restored columns that the computation does not have any more: nobody would keep them up to date."""
        for state in self.created.values():
            if isinstance(state, ColumnarState):
                state.drop_undeclared()

    def rows(
        self,
        name: str,
        schema: pa.Schema,
        numbers: Sequence[str] = (),
        more_key_types: Sequence[pa.DataType] = (),
        ttl: int = 0,
        *,
        stays: bool = False,
    ) -> RowTable:
        """State with any number of rows for each key.

        Args:
            name: of the state.
            schema: of the rows.
            numbers: names of the numbers beside each row.
            more_key_types: of further columns of the key.
            ttl: ms after its last write at which a row expires; 0 = never.
            stays: numbers of rows are remembered from one batch to the next, so rows stay in memory on all backends.
        """
        life = RowLife(ttl, self.parameters.clock.epoch_ms) if ttl else None
        key_types, parameters = [*self.key_types, *more_key_types], self.parameters
        groups_of = by_first(parameters.key_groups_of, len(self.key_types))
        if stays:
            table = RowTable(name, key_types, schema, numbers, groups_of, parameters.key_groups, life)
            self.backend.attach(table)
        else:
            table = self.backend.rows(name, key_types, schema, numbers, groups_of, parameters.key_groups, life)
        self.created[name] = table
        return table


@dataclass(frozen=True)
class ChangelogContext:
    """What a computation needs while it runs.

    Attributes:
        operator: name of the operator, for errors.
        now: the clock, epoch ms.
        watermark: the current watermark, epoch ms.
        wake_at: asks for ``on_processing_time`` at a time of the clock (epoch ms).
        metrics: of the operator.
    """

    operator: str
    now: Callable[[], int]
    watermark: Callable[[], int]
    wake_at: Callable[[int], None]
    metrics: MetricGroup


class ChangelogFunction(ABC):
    """Computes the changes of a table from those of its inputs.

    A subclass takes the parameters of the plan, the columns of the inputs (``Sequence[pa.Schema]``), and those of the
    results (``pa.Schema``). ``create_state`` is called before anything is restored, and may be called again for another
    backend: what it created before does not count any more.
    """

    context: ChangelogContext

    @abstractmethod
    def create_state(self, states: ChangelogStates) -> None:
        """Create all state, empty, under names that stay the same."""

    def open(self, context: ChangelogContext) -> None:
        """Begin to run, with restored state; the state may be read and written."""
        self.context = context

    def begin_batch(self, rows: int) -> int:
        """Prepare for a batch of rows; returns how many rows of other state than ``RowTable`` have expired."""
        return 0

    @abstractmethod
    def process(self, keys: Sequence[pa.Array], batch: Batch, input_index: int) -> Iterator[Batch]:
        """Yield the changes of the result that follow from those of an input.

        Args:
            keys: columns of the rows' keys.
            batch: rows in columns, at least one, with their kinds.
            input_index: which input they belong to.
        """

    def on_watermark(self, watermark: int) -> Iterator[Batch]:
        """Yield the changes that are due at this watermark (epoch ms); most have none."""
        return iter(())

    def on_processing_time(self, now: int) -> Iterator[Batch]:
        """Yield the changes that are due at this time of the clock (epoch ms); most have none."""
        return iter(())


class ChangelogOperator(TimedColumns):
    """Runs a ``ChangelogFunction`` with keyed state in arrays, over one input or two."""

    takes_changes = True

    def __init__(self, spec: OperatorSpec) -> None:
        computation: ChangelogComputation = spec.function
        types = [spec.extra["input_type"], *spec.extra["other_input_types"]]
        self._inputs = [StreamColumns(input_type) for input_type in types]
        self.computation: ChangelogFunction = import_target(computation.implementation)(
            computation.parameters,
            self._named_schemas(computation.input_names),
            StreamColumns(spec.extra["result_type"]).schema,
        )
        self._keys = [selector for selector in spec.key_selectors if isinstance(selector, ColumnKey)]
        super().__init__(spec)

    def _named_schemas(self, names_of_inputs: Sequence[Sequence[str]]) -> list[pa.Schema]:
        """The columns of the inputs under the names by which their state is found again."""
        schemas = [columns.schema for columns in self._inputs]
        for number, names in enumerate(names_of_inputs):
            fields = list(schemas[number])
            renamed = [column.with_name(name) for column, name in zip(fields, unique_names(names), strict=False)]
            schemas[number] = pa.schema([*renamed, *fields[len(renamed) :]])
        return schemas

    @override
    def make_state(self, parameters: KeyedStateParameters) -> Any:
        self.backend.drops_unknown_columns = True
        self._states = ChangelogStates(self.backend, self.key_types, parameters)
        self.computation.create_state(self._states)
        self._tables = [state for state in self._states.created.values() if isinstance(state, RowTable)]

    @property
    def computed_states(self) -> Mapping[str, ColumnarState | RowTable]:
        """The state of the computation, by name."""
        return self._states.created

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._states.drop_undeclared()
        self.computation.open(
            ChangelogContext(
                self.name,
                context.clock.epoch_ms,
                lambda: self.heap_timers.watermark,
                self.wake_at,
                context.metrics.group(self.name),
            )
        )
        self._expired = context.metrics.group(self.name).counter("numExpiredStateRows")

    @override
    def columns_of_input(self, input_index: int) -> StreamColumns:
        return self._inputs[input_index]

    @override
    def apply_input(self, batches: Iterator[Batch], input_index: int) -> Iterator[Batch]:
        key = self._keys[input_index]
        for batch in batches:
            if len(batch):
                self._begin_batch(len(batch))
                yield from self.computation.process(key.arrays(columns_of(batch)), batch, input_index)

    def _begin_batch(self, rows: int) -> None:
        expired = self.computation.begin_batch(rows)
        for table in self._tables:
            before = table.expired
            table.begin_batch(rows)
            expired += table.expired - before
        if expired:
            self._expired.inc(expired)

    @override
    def apply_columns(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        return self.apply_input(batches, 0)

    @override
    def on_event_time(self, watermark: int) -> Iterator[Batch]:
        return self.computation.on_watermark(watermark)

    @override
    def on_processing_time(self, now: int) -> Iterator[Batch]:
        return self.computation.on_processing_time(now)


class RowExpansion(ABC):
    """Makes any number of rows of each row, without state.

    A subclass takes the parameters of the plan, the columns of the input, and those of the results (``pa.Schema``).

    Attributes:
        blocking: ``expand`` may wait for another system, so its task has a thread of its own.
    """

    blocking: bool = False

    def open(self) -> None:  # noqa: B027 # most have nothing to open
        """Begin to run; called once, before the first batch."""

    def close(self) -> None:  # noqa: B027
        """Give back what was opened. Called once, also after a failure."""

    @abstractmethod
    def expand(self, rows: pa.RecordBatch) -> tuple[npt.NDArray[np.int64], pa.RecordBatch]:
        """The results, and for each of them the position of the row that it was made of, ascending."""


class ExpandColumns(ColumnTransform):
    """Runs a ``RowExpansion``; results have the kind and the timestamp of the row they were made of."""

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        computation: ChangelogComputation = spec.function
        self._expansion: RowExpansion = import_target(computation.implementation)(
            computation.parameters, self.input.schema, StreamColumns(spec.extra["result_type"]).schema
        )

    @property
    @override
    def blocking(self) -> bool:
        return self._expansion.blocking

    @override
    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._expansion.open()

    @override
    def close(self) -> None:
        try:
            self._expansion.close()
        finally:
            super().close()

    @override
    def apply_columns(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        for batch in batches:
            origins, rows = self._expansion.expand(columns_of(batch))
            self.fewer += len(batch) - rows.num_rows
            stamps, kinds = as_array(batch.timestamps), batch.kinds
            yield Batch(
                rows,
                None if stamps is None else stamps[origins],
                None if kinds is None else np.asarray(kinds, np.int8)[origins],
            )
