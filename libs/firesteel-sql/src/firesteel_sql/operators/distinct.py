"""DISTINCT arguments: each different value of a group counts once, as long as a row has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from firesteel.runtime.operators.changelog import ChangelogStates
from firesteel.state.columnar.groups import Groups
from firesteel.state.columnar.nested_bytes import bytes_of
from firesteel_sql.operators.accumulators import ArgumentChanges
from firesteel_sql.operators.group_results import Ints, Mask
from firesteel_sql.operators.slot_life import SlotLife


class TurnedValues(NamedTuple):
    """Values that have come to a group, or are gone from it.

    Attributes:
        rows: positions in the batch of a row with each value.
        groups: these rows by group.
        weights: +1 for values that have come, -1 for those that are gone, in grouped order.
    """

    rows: Ints
    groups: Groups
    weights: Ints


class DistinctValues:
    """How many rows of each group have each value, for all calls with the same arguments.

    Args:
        states: of the operator.
        name: of the state.
        types: of the arguments.
        ttl: ms after which a value that does not come again is forgotten; 0 = never.

    Attributes:
        unmatched: number of rows that have gone, and whose value had been forgotten.
    """

    def __init__(self, states: ChangelogStates, name: str, types: Sequence[pa.DataType], ttl: int = 0) -> None:
        self.state = states.columns(
            name, [pa.binary() if pt.is_nested(data_type) else data_type for data_type in types]
        )
        self.life = SlotLife(states, self.state, ttl)
        self.unmatched = 0
        self._counts: dict[str, Any] = {}

    def counts_for(self, name: str) -> None:
        """Count the rows of a filter of this name."""
        self._counts[name] = self.state.column(name, pa.int64())

    def first_and_last(
        self, keys: Sequence[pa.Array], slots: Ints, changes: ArgumentChanges, filters: Mapping[str, Mask | None]
    ) -> dict[str, TurnedValues | None]:
        """For each filter the values that have come to a group, and those that are gone from it; None = there are none.

        Args:
            keys: of the rows, in the order of the batch.
            slots: of the rows' groups, in the order of the batch.
            changes: the arguments, and the weights of all rows.
            filters: which rows count, in the order of the batch; None = all.
        """
        turned_values: dict[str, TurnedValues | None] = dict.fromkeys(filters)
        changes = changes.without_nulls()
        weights = changes.groups.to_rows(changes.weights)
        masks = [mask for mask in filters.values() if mask is not None]
        counts_row = weights != 0
        if len(masks) == len(filters):
            counts_row &= np.logical_or.reduce(masks)
        rows = np.flatnonzero(counts_row)
        if not rows.size:
            return turned_values
        picks = pa.array(rows)
        values = [column.take(picks) for column in changes.arguments]
        comparable = [bytes_of(column) if pt.is_nested(column.type) else column for column in values]
        value_slots = self.state.slots([*(key.take(picks) for key in keys), *comparable])
        self.state.touch(value_slots)
        by_value = Groups(value_slots)
        self._restart(by_value.slots[self.life.expired(by_value.slots)])
        ordered_rows = rows.take(by_value.order)
        ordered_weights = weights.take(ordered_rows)
        for name, mask in filters.items():
            counted = ordered_weights if mask is None else np.where(mask.take(ordered_rows), ordered_weights, 0)
            counts = self._counts[name]
            before = counts.get(by_value.slots)
            after = before + np.add.reduceat(counted, by_value.starts)
            if self.life.ttl:
                self.unmatched -= int(np.minimum(after, 0).sum())
                after = np.maximum(after, 0)
            counts.set(by_value.slots, after)
            turned = np.flatnonzero((before > 0) != (after > 0))
            if turned.size:
                examples = ordered_rows.take(by_value.starts[turned])
                groups = Groups(slots.take(examples))
                steps = np.where(after[turned] > 0, 1, -1)
                turned_values[name] = TurnedValues(examples, groups, steps.take(groups.order))
        self.life.written(by_value.slots)
        self._release(by_value.slots)
        return turned_values

    def begin_batch(self, rows: int) -> int:
        """Forget some values that have expired; returns how many."""
        expired = self.life.begin_batch(rows)
        self.state.release(expired)
        return len(expired)

    def _restart(self, slots: Ints) -> None:
        """Count values that have expired from 0 again."""
        for column in self._counts.values():
            column.set(slots, 0)

    def _release(self, slots: Ints) -> None:
        """Forget those values that no row has, under any filter."""
        empty = np.ones(len(slots), bool)
        for column in self._counts.values():
            empty &= column.get(slots) == 0
        self.state.release(slots[empty])

    def forget(self, is_over: Any) -> None:
        """Forget the values of all groups whose key is over.

        Args:
            is_over: says of key columns which are.
        """
        for slots in self.state.pieces():
            over: Mask = is_over(self.state.index.keys(slots))
            self.state.release(slots[over])
