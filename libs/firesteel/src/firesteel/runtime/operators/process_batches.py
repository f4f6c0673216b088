"""The operator of ``process_batches``: a user's function over whole record batches of a keyed stream."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from typing_extensions import override

from firesteel.functions.batch_functions import BatchValueState, KeyedBatchFunction
from firesteel.functions.state import ValueStateDescriptor
from firesteel.runtime.operator_base.columnar import MapBatches
from firesteel.runtime.operator_base.context import OperatorContext, Stamp, TaskRuntimeContext
from firesteel.runtime.operator_base.initialization import SnapshotContext
from firesteel.runtime.operators.column_aggregates import KeyedColumns
from firesteel.runtime.records.columns import Stamps
from firesteel.state.columnar.value_states import BatchStates


class BatchContext(KeyedBatchFunction.Context):
    """The context that the function gets with each batch."""

    def __init__(self, states: BatchStates, stamp: Stamp) -> None:
        self._states, self._stamp = states, stamp
        self._keys: Any = None
        self._timestamps: Stamps = None

    def set(self, keys: list[pa.Array], timestamps: Stamps) -> None:
        self._keys = keys[0] if len(keys) == 1 else tuple(keys)
        self._timestamps = timestamps
        self._states.forget()

    @property
    def keys(self) -> Any:
        return self._keys

    @property
    def timestamps(self) -> Stamps:
        return self._timestamps

    def current_watermark(self) -> int:
        return self._stamp.watermark

    def get_state(self, state_descriptor: ValueStateDescriptor) -> BatchValueState:
        state: BatchValueState = self._states.get_state(state_descriptor)
        return state


class ProcessBatches(KeyedColumns, MapBatches):
    """Runs a ``KeyedBatchFunction``, with keyed state in arrays."""

    METHOD = "process_batches"
    FUNCTION = (KeyedBatchFunction, "process_batch")
    STATE = "_batch_states"

    @override
    def runtime_context(self, context: OperatorContext) -> TaskRuntimeContext:
        return TaskRuntimeContext(context.info, self.name, self._states, context.metrics)

    def open(self, context: OperatorContext) -> None:
        """Create the states and the context, then open the function, which may use them."""
        self._states = BatchStates(self.state, self.name, context.clock)
        self._context = BatchContext(self._states, context.stamp)
        super().open(context)

    @override
    def call(self, value: pa.RecordBatch, stamps: Stamps) -> Any:
        self._context.set(self.keys_of(value), stamps)
        self._states.saw(value.num_rows)
        return self._function(value, self._context)

    def snapshot_state(self, context: SnapshotContext) -> None:
        """Take the function's state, then drop entries that need not be written to the checkpoint."""
        super().snapshot_state(context)
        self._states.prune()
