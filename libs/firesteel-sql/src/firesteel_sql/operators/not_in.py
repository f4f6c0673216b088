"""NOT IN: which rows of the right side exclude which of the left one.

``value NOT IN (...)`` is true if there is no row at all, or neither the value nor any of the rows is NULL and none is
equal. So a row excludes those of its group with an equal value and those without one, and a NULL excludes all of them.
Both tables are keyed by the group and the value, and rows by group are counted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from firesteel.state.columnar.key_index import KeyIndex
from firesteel.state.columnar.row_table import RowTable
from firesteel.state.columnar.slot_lists import spread
from firesteel.state.columnar.store import ColumnarState
from firesteel_sql.operators.changes import Ints, nulls_of


class ExcludedValues:
    """Finds the partners of rows, whose last key column is the value.

    Args:
        left: rows that may be excluded.
        right: rows that exclude.
        groups: state with one row for each group.
    """

    def __init__(self, left: RowTable, right: RowTable, groups: ColumnarState) -> None:
        self._left, self._right, self._groups = left, right, groups
        self._counts = groups.column("rows", pa.int64())
        right.on_expiry = lambda rows: self.count(right.index.keys(right.slots_of(rows)), -1)

    def degrees(self, keys: Sequence[pa.Array]) -> Ints:
        """How many right rows exclude each left one."""
        *group, value = keys
        degrees = self._right.lists.counts(self._right.find(keys))
        has_no_value = nulls_of(value)
        nulls = self._right.lists.counts(self._right.find([*group, pa.nulls(len(value), value.type)]))
        slots = self._groups.find(group)
        known = np.flatnonzero(slots >= 0)
        all_rows = np.zeros(len(slots), np.int64)
        all_rows[known] = self._counts.get(slots[known])
        return np.where(has_no_value, all_rows, degrees + nulls)

    def excluded(self, keys: Sequence[pa.Array]) -> tuple[Ints, Ints]:
        """Positions of right rows, and the left rows that each of them excludes."""
        *group, value = keys
        has_value = np.flatnonzero(~nulls_of(value))
        positions, rows = self._left.rows_of(self._left.find(keys))
        without = [column.take(pa.array(has_value)) for column in group]
        at, rows_without = self._left.rows_of(self._left.find([*without, pa.nulls(len(has_value), value.type)]))
        parts = [(positions, rows), (has_value[at], rows_without)]
        nulls = np.flatnonzero(nulls_of(value))
        if nulls.size:
            # A NULL is rare, and excludes the whole group: look at all rows. Those without a value are above already.
            left_rows = self._left.all_rows()
            *left_group, left_value = self._left.index.keys(self._left.slots_of(left_rows))
            valued = np.flatnonzero(~nulls_of(left_value))
            left_rows = left_rows[valued]
            numbers = KeyIndex([column.type for column in group])
            left_groups = numbers.slots([column.take(pa.array(valued)) for column in left_group])
            order = np.argsort(left_groups, kind="stable")
            null_groups = numbers.find([column.take(pa.array(nulls)) for column in group])
            first, last = (np.searchsorted(left_groups[order], null_groups, side) for side in ("left", "right"))
            parts.append((np.repeat(nulls, last - first), left_rows[order][spread(first, last - first)]))
        return np.concatenate([part for part, _ in parts]), np.concatenate([part for _, part in parts])

    def count(self, keys: Sequence[pa.Array], sign: int) -> None:
        """Count right rows that are stored or dropped."""
        slots = self._groups.slots(keys[:-1])
        self._groups.touch(slots)
        np.add.at(self._counts.array.values, slots, sign)
        slots = np.unique(slots)
        self._groups.release(slots[self._counts.get(slots) == 0])
