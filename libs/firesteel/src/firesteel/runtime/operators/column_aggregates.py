"""Running aggregates of keyed streams, by columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from firesteel.core.clock import Clock
from firesteel.expressions.keys import ColumnKey
from firesteel.graph.key_groups import key_group_range
from firesteel.graph.key_hash_columns import key_groups_of
from firesteel.graph.specs import OperatorSpec
from firesteel.runtime.batch import Batch
from firesteel.runtime.checkpoints.parts import KeyedPart
from firesteel.runtime.columns import StreamColumns, columns_of
from firesteel.runtime.context import TaskInfo
from firesteel.runtime.operators.columnar import ColumnTransform
from firesteel.state.columnar.aggregate_fields import KeyedFields
from firesteel.state.columnar.aggregate_kernels import Inputs, Kernel, NotLongError, make_kernel
from firesteel.state.columnar.groups import Groups
from firesteel.state.columnar.store import ColumnarState, GroupsOf, one_group

COLUMNS: Final = "columns"
"""Name of the part that is state in arrays."""


class KeyedColumns(ColumnTransform):
    """An operator over record batches with keyed state in arrays.

    Attributes:
        state: its state.
    """

    STATE = ""
    takes_changes = False

    state: Any

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        (key,) = spec.key_selectors
        assert isinstance(key, ColumnKey)
        self.key = key
        self.output = StreamColumns(spec.extra["result_type"])
        self.state = self.make_state(one_group, range(1))

    def make_state(self, groups_of: GroupsOf, key_groups: range) -> Any:
        """Its state, empty.

        Args:
            groups_of: the key groups of keys, given as columns.
            key_groups: the own ones.
        """
        return ColumnarState(self.STATE, self.key_types, groups_of, key_groups)

    @property
    def key_types(self) -> list[pa.DataType]:
        """The types of the key's columns."""
        return [field.type for field in self.key.fields(self.input.schema)]

    def use_key_groups(self, info: TaskInfo, clock: Clock) -> None:
        """Say which key groups are the own ones; before anything is opened."""
        first, last = key_group_range(info.subtask, info.parallelism, info.max_parallelism)
        self.key_groups = range(first, last + 1)

        def groups_of(columns: Sequence[pa.Array]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
            return key_groups_of(columns, info.max_parallelism)

        self.state = self.make_state(groups_of, self.key_groups)

    def keys_of(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The columns of the keys."""
        return self.key.arrays(batch)

    def snapshot_parts(self) -> Mapping[str, KeyedPart]:
        """Its state in arrays."""
        return {COLUMNS: self.state}

    def close(self) -> None:
        """Close the function, then forget the state."""
        try:
            super().close()
        finally:
            self.state.close()


class RunningAggregates(KeyedColumns):
    """For each row the aggregates of its key so far."""

    STATE = "_running_aggregates"

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        from firesteel.expressions.aggregates import bind_aggregates

        self._bound = bind_aggregates("aggregate", spec.function, self.declared, wrap=self.wrap)
        self._inputs = Inputs(self._bound)
        self._kernels: list[Kernel] = []
        self._make()

    def use_key_groups(self, info: TaskInfo, clock: Clock) -> None:
        super().use_key_groups(info, clock)
        self._make()

    def _make(self) -> None:
        self._kernels = [make_kernel(bound, KeyedFields(bound, self.state)) for bound in self._bound]

    def apply_columns(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The key's columns and the results so far."""
        for given in batches:
            batch = columns_of(given)
            if not batch.num_rows:
                continue
            keys, columns = self.keys_of(batch), self.columns_of(batch)
            slots = self.state.slots(keys)
            groups = Groups(slots)
            self.state.touch(groups.slots)
            inputs = self._inputs.of(columns, batch.num_rows)
            try:
                results = [kernel.running(groups, one) for kernel, one in zip(self._kernels, inputs, strict=True)]
            except NotLongError as error:
                error.keys = keys
                raise error.with_key(self.key.names) from None
            yield given.with_values(pa.RecordBatch.from_arrays([*keys, *results], schema=self.output.schema))
