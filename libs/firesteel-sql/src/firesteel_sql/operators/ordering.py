"""The order of rows within partitions, and their ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from firesteel.state.columnar.key_columns import is_fixed, key_column
from firesteel.state.columnar.slot_lists import runs, spread
from firesteel_sql.operators.changes import Ints, nulls_of
from firesteel_sql.plan.stateful_relations import RankFunction, SortKey


def value_codes(column: pa.Array) -> Ints:
    """Numbers that are sorted as the values are, among these values; arbitrary for nulls. NaN is the greatest value."""
    if pt.is_floating(column.type):
        bits = key_column(column.type).words(column, add=False)[0]
        return np.where(bits < 0, bits ^ (0x7FFFFFFF if column.type == pa.float32() else 0x7FFFFFFFFFFFFFFF), bits)
    if is_fixed(column.type):
        return key_column(column.type).words(column, add=False)[0]
    ranks: Ints = pc.rank(column, tiebreaker="dense").to_numpy(zero_copy_only=False).astype(np.int64)
    return ranks


def sort_codes(columns: Sequence[pa.Array] | Mapping[int, pa.Array], order: Sequence[SortKey]) -> list[Ints]:
    """Numbers by which rows are sorted, the most significant first; equal for rows that are peers."""
    codes: list[Ints] = []
    for key in order:
        column = columns[key.place]
        numbers = value_codes(column)
        if not key.ascending:
            numbers = ~numbers
        if column.null_count:
            nulls = nulls_of(column)
            codes.append((nulls != key.nulls_first).astype(np.int64))
            numbers = np.where(nulls, 0, numbers)
        codes.append(numbers)
    return codes


class RowOrder(NamedTuple):
    """Rows of partitions in their order.

    Attributes:
        order: position of each row before.
        starts: where partitions begin.
        counts: their numbers of rows.
        is_first: rows that are no peers of the row before them.
    """

    order: Ints
    starts: Ints
    counts: Ints
    is_first: npt.NDArray[np.bool_]

    def numbers(self) -> Ints:
        """The number of each row in its partition, from 1."""
        return spread(np.ones(len(self.starts), np.int64), self.counts)

    def ranks(self, function: RankFunction) -> Ints:
        """The rank of each row in its partition, from 1."""
        numbers = self.numbers()
        if function is RankFunction.ROW_NUMBER:
            return numbers
        if function is RankFunction.RANK:
            first_peers = np.maximum.accumulate(np.where(self.is_first, np.arange(len(numbers)), 0))
            return numbers[first_peers]
        groups = np.cumsum(self.is_first)
        return groups - np.repeat(groups[self.starts] - 1, self.counts)


def sort_rows(partitions: Ints, codes: Sequence[Ints], arrivals: Ints) -> RowOrder:
    """Sort rows by partition, then by codes, and peers by their arrival."""
    order = np.lexsort((arrivals, *reversed(codes), partitions))
    starts, counts = runs(partitions[order])
    is_first = np.zeros(len(order), bool)
    is_first[starts] = True
    for code in codes:
        sorted_code = code[order]
        is_first[1:] |= sorted_code[1:] != sorted_code[:-1]
    return RowOrder(order, starts, counts, is_first)


def row_order(groups: Ints, keys: Sequence[tuple[pa.Array, SortKey]], positions: Ints) -> Ints:
    """The order of rows: by group, then by the sort keys, then by position."""
    codes = [code for column, key in keys for code in sort_codes({key.place: column}, [key])]
    return sort_rows(groups, codes, positions).order
