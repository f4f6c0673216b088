"""Running aggregates of keyed streams, by columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from typing_extensions import override

from firesteel.expressions.keys import ColumnKey
from firesteel.graph.specs import OperatorSpec
from firesteel.runtime.operator_base.base import KeyedPart
from firesteel.runtime.operator_base.columnar import ColumnTransform
from firesteel.runtime.operator_base.context import OperatorContext
from firesteel.runtime.records.batch import Batch
from firesteel.runtime.records.columns import StreamColumns, columns_of
from firesteel.runtime.records.dictionaries import plain_columns
from firesteel.state.backend import KeyedStateBackend, KeyedStateParameters, StateBackend
from firesteel.state.columnar.aggregate_fields import KeyedFields
from firesteel.state.columnar.aggregate_kernels import Inputs, Kernel, NotLongError, make_kernel
from firesteel.state.columnar.groups import Groups
from firesteel.state.heap import HeapKeyedState

COLUMNS: Final = "columns"
"""Name of the part that is state in arrays."""


class KeyedColumns(ColumnTransform):
    """An operator over record batches with keyed state in arrays.

    Attributes:
        backend: state backend of the operator.
        state: the state in it, made by ``make_state``.
    """

    STATE = ""
    takes_changes = False

    state: Any

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        key = spec.key_selectors[0]
        assert isinstance(key, ColumnKey)
        self.key = key
        self.output = StreamColumns(spec.extra["result_type"])
        self._create_state(HeapKeyedState(), KeyedStateParameters())

    def _create_state(self, backend: KeyedStateBackend, parameters: KeyedStateParameters) -> None:
        self.backend = backend
        self.state = self.make_state(parameters)

    def make_state(self, parameters: KeyedStateParameters) -> Any:
        """Create the operator's state in the backend, empty."""
        return self.backend.columns(self.STATE, self.key_types)

    @property
    def key_types(self) -> list[pa.DataType]:
        """The types of the key's columns."""
        return [field.type for field in self.key.fields(self.input.schema)]

    def use_backend(self, backend: StateBackend, parameters: KeyedStateParameters) -> None:
        """Create the state in this backend, in place of the one on the heap; called before anything is opened."""
        self.key_groups = parameters.key_groups
        self._create_state(backend.create_keyed_state(parameters), parameters)

    @override
    def open(self, context: OperatorContext) -> None:
        self.backend.show_metrics(context.metrics.group(self.name))
        super().open(context)

    def keys_of(self, batch: pa.RecordBatch) -> list[pa.Array]:
        return self.key.arrays(batch)

    def snapshot_parts(self) -> Mapping[str, KeyedPart]:
        return {COLUMNS: self.backend}

    def close(self) -> None:
        """Close the function, then forget the state."""
        try:
            super().close()
        finally:
            self.backend.close()


class RunningAggregates(KeyedColumns):
    """Computes for each row the aggregates of its key so far."""

    STATE = "_running_aggregates"
    takes_dictionaries = True

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        from firesteel.expressions.aggregates import bind_aggregates

        self._bound = bind_aggregates("aggregate", spec.function, self.declared, wrap=self.wrap)
        self._inputs = Inputs(self._bound)
        self._kernels: list[Kernel] = []
        self._make()

    def use_backend(self, backend: StateBackend, parameters: KeyedStateParameters) -> None:
        super().use_backend(backend, parameters)
        self._make()

    def _make(self) -> None:
        self._kernels = [make_kernel(bound, KeyedFields(bound, self.state)) for bound in self._bound]

    def apply_columns(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The key's columns and the results so far."""
        for input_batch in batches:
            batch = columns_of(input_batch)
            if not batch.num_rows:
                continue
            slots = self.state.slots(self.keys_of(batch))
            batch = plain_columns(batch)
            keys, columns = self.keys_of(batch), self.columns_of(batch)
            groups = Groups(slots)
            self.state.touch(groups.slots)
            inputs = self._inputs.evaluate(columns, batch.num_rows)
            try:
                results = [kernel.running(groups, values) for kernel, values in zip(self._kernels, inputs, strict=True)]
            except NotLongError as error:
                error.keys = keys
                raise error.with_key(self.key.names) from None
            yield input_batch.with_values(pa.RecordBatch.from_arrays([*keys, *results], schema=self.output.schema))
