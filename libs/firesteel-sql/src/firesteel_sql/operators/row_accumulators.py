"""Aggregate functions that need the rows themselves: MIN and MAX of rows that may go, LISTAGG, ARRAY_AGG, COLLECT."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from typing_extensions import override

from firesteel.core.errors import ProgramError
from firesteel.runtime.operators.changelog import ChangelogStates
from firesteel.state.columnar.store import ColumnarState
from firesteel_sql.operators.accumulators import (
    ArgumentChanges,
    Extreme,
    GroupAccumulator,
    Storage,
    exceeds,
    extremes_by_run,
)
from firesteel_sql.operators.group_results import Ints
from firesteel_sql.operators.ordering import row_order
from firesteel_sql.plan.stateful_relations import AggregateCall

_POSITION: Final = "position"
"""The number beside each row that says in which order rows came."""


class StoredRows:
    """The arguments of all rows of each group.

    Args:
        state: of the groups.
        states: of the operator.
        name: of the call.
        types: of the arguments, and of what they are sorted by.
        ttl: ms after which a row is forgotten; 0 = never.

    Attributes:
        unmatched: number of rows that have gone, and that had been forgotten.
    """

    def __init__(
        self, state: ColumnarState, states: ChangelogStates, name: str, types: Sequence[pa.DataType], ttl: int = 0
    ) -> None:
        self.unmatched = 0
        self._state, self._name = state, name
        schema = pa.schema([pa.field(f"argument{place}", data_type) for place, data_type in enumerate(types)])
        self.table = states.rows(f"rows of {name}", schema, [_POSITION], ttl=ttl)
        self._next: int | None = None

    def change(self, changes: ArgumentChanges) -> None:
        """Add the rows that come, and drop those that go."""
        rows = np.flatnonzero(changes.weights)
        slots = changes.groups.spread(changes.slots)[rows]
        picks = pa.array(changes.groups.order.take(rows))
        columns = [column.take(picks) for column in changes.arguments]
        comes = changes.weights[rows] > 0
        # Rows that come and go within a batch are there before they go.
        self._add(slots[comes], [column.filter(pa.array(comes)) for column in columns])
        if not comes.all():
            self._drop(slots[~comes], [column.filter(pa.array(~comes)) for column in columns])

    def _add(self, slots: Ints, columns: Sequence[pa.Array]) -> None:
        if self._next is None:
            self._next = self.table.highest(_POSITION) + 1
        rows = self.table.add(self.table.slots(self._state.index.keys(slots)), columns)
        self.table.numbers[_POSITION].set(rows, np.arange(self._next, self._next + len(rows)))
        self._next += len(rows)

    def _drop(self, slots: Ints, columns: Sequence[pa.Array]) -> None:
        rows = self.table.match(self.table.find(self._state.index.keys(slots)), columns)
        if self.table.life is not None:
            self.unmatched += int(np.count_nonzero(rows < 0))
            rows = rows[rows >= 0]
        elif rows.min() < 0:
            value = columns[0][int(np.argmin(rows))].as_py() if columns else None
            raise ProgramError(f"{self._name}: a row with {value!r} goes that never came")
        self.table.drop(rows)

    def of(self, slots: Ints) -> tuple[Ints, Ints, list[pa.Array]]:
        """The rows of groups: for each the position of its group in ``slots``, its place in the order, its columns."""
        groups, rows = self.table.rows_of(self.table.find(self._state.index.keys(slots)))
        return groups, self.table.numbers[_POSITION].get(rows), self.table.take(rows)

    def forget(self, slots: Ints) -> None:
        """Drop all rows of groups."""
        _, rows = self.table.rows_of(self.table.find(self._state.index.keys(slots)))
        self.table.drop(rows)


class RowAccumulator(GroupAccumulator):
    """A function whose result is computed from all rows of a group.

    Args:
        call: the aggregate.
        storage: of the groups.
        rows: stores the arguments.
    """

    def __init__(self, call: AggregateCall, storage: Storage, rows: StoredRows) -> None:
        self._call, self._result, self.rows = call, storage.result, rows
        self._fold = FOLDS[call.function]
        self._keeps_nulls = call.function in ("ARRAY_AGG", "SINGLE_VALUE", "JSON_OBJECTAGG")
        self._of_none = {"JSON_ARRAYAGG": "[]", "JSON_OBJECTAGG": "{}"}.get(call.function)

    @override
    def add(self, changes: ArgumentChanges) -> None:
        self.rows.change(changes)

    @override
    def results(self, slots: Ints) -> pa.Array:
        groups, positions, columns = self.rows.of(slots)
        width = len(self._call.arguments)
        keys = list(zip(columns[width:], self._call.order, strict=True))
        order = row_order(groups, keys, positions)
        lists: list[list[Any]] = [[] for _ in range(len(slots))]
        values = zip(*(column.take(pa.array(order)).to_pylist() for column in columns[:width]), strict=True)
        for group, arguments in zip(groups[order].tolist(), values, strict=True):
            if self._keeps_nulls or None not in arguments:
                lists[group].append(arguments[0] if width == 1 else arguments)
        constants = self._call.constants
        return pa.array([self._fold(part, constants) if part else self._of_none for part in lists], self._result)

    def forget(self, slots: Ints) -> None:
        """Drop all rows of groups."""
        self.rows.forget(slots)


class ChangingExtreme(Extreme):
    """MIN or MAX of rows that may go: the rows are looked at only when the extreme one has gone."""

    def __init__(self, storage: Storage, rows: StoredRows, *, largest: bool) -> None:
        super().__init__(storage, largest=largest)
        self.rows = rows

    @override
    def add(self, changes: ArgumentChanges) -> None:
        changes = changes.without_nulls()
        self.rows.change(changes)
        column, slots, weights = changes.counted(changes.arguments[0])
        values = self.value.codec.numbers(column)
        comes = weights > 0
        self._combine_runs(slots[comes], values[comes])
        goes = np.flatnonzero(~comes)
        if goes.size:
            slots, values = slots[goes], values[goes]
            current = self.value.get(slots)
            gone = ~exceeds(current, values, largest=self._largest)  # the extreme itself, or nothing is right any more
            self._look(np.unique(slots[gone]))

    def _combine_runs(self, slots: Ints, values: Any) -> None:
        if slots.size:
            starts = np.flatnonzero(np.r_[True, slots[1:] != slots[:-1]])
            self.combine(slots[starts], extremes_by_run(values, starts, largest=self._largest))

    def _look(self, slots: Ints) -> None:
        """Find the extremes of groups among their rows."""
        if not slots.size:
            return
        self.clear(slots)
        groups, _, columns = self.rows.of(slots)
        order = np.argsort(groups, kind="stable")
        self._combine_runs(slots[groups[order]], self.value.codec.numbers(columns[0])[order])

    def forget(self, slots: Ints) -> None:
        """Drop all rows of groups."""
        self.rows.forget(slots)


def accumulator_over_rows(
    call: AggregateCall, storage: Storage, types: Sequence[pa.DataType], states: ChangelogStates, ttl: int = 0
) -> RowAccumulator | ChangingExtreme:
    """The accumulator of a function that needs rows.

    Args:
        call: the aggregate.
        storage: of the groups.
        types: of the arguments, and of what they are sorted by.
        states: of the operator.
        ttl: ms after which a row is forgotten; 0 = never.
    """
    rows = StoredRows(storage.state, states, storage.name, types, ttl)
    if call.function in ("MIN", "MAX"):
        return ChangingExtreme(storage, rows, largest=call.function == "MAX")
    return RowAccumulator(call, storage, rows)


def _first(values: list[Any], constants: Sequence[Any]) -> Any:
    return values[0]


def _last(values: list[Any], constants: Sequence[Any]) -> Any:
    return values[-1]


def _listed(values: list[Any], constants: Sequence[Any]) -> str:
    separator = constants[0] if constants else ","
    return str(separator).join(values)


def _collected(values: list[Any], constants: Sequence[Any]) -> list[tuple[Any, int]]:
    try:
        return list(Counter(values).items())
    except TypeError:  # values that are lists or maps
        counts: list[tuple[Any, int]] = []
        for value in values:
            place = next((place for place, (other, _) in enumerate(counts) if other == value), None)
            if place is None:
                counts.append((value, 1))
            else:
                counts[place] = (value, counts[place][1] + 1)
        return counts


def _array(values: list[Any], constants: Sequence[Any]) -> list[Any]:
    return values


def _single(values: list[Any], constants: Sequence[Any]) -> Any:
    if len(values) > 1:
        raise ProgramError(f"a query as a value has {len(values)} rows, where it may have one: {values[:3]}")
    return values[0]


def _percentile(values: list[Any], constants: Sequence[Any]) -> float | list[float] | None:
    """Between two values the result is on the line from the one to the other."""
    pairs = sorted(
        (float(value[0]), int(value[1])) if isinstance(value, tuple) else (float(value), 1) for value in values
    )
    pairs = [(value, frequency) for value, frequency in pairs if frequency > 0]
    if not pairs:
        return None
    ends = list(itertools.accumulate(frequency for _, frequency in pairs))

    def at(share: float) -> float:
        place = share * (ends[-1] - 1)
        below = pairs[bisect_right(ends, int(place))][0]
        above = pairs[bisect_right(ends, min(int(place) + 1, ends[-1] - 1))][0]
        return below + (above - below) * (place - int(place))

    (shares,) = constants
    return [at(share) for share in shares] if isinstance(shares, tuple) else at(shares)


def _json_array(values: list[str], constants: Sequence[Any]) -> str:
    """Each value is a JSON array of one element, or of none, which is left out."""
    return f"[{','.join(value[1:-1] for value in values if value != '[]')}]"


def _json_object(values: list[tuple[str | None, str]], constants: Sequence[Any]) -> str:
    """Keys with values as in ``_json_array``."""
    entries: dict[str, str] = {}
    for key, value in values:
        if key is None:
            raise ProgramError("JSON_OBJECTAGG: a key is NULL")
        if key in entries:
            raise ProgramError(f"JSON_OBJECTAGG: several rows of a group have the key {key}")
        entries[key] = value
    return f"{{{','.join(f'{key}:{value[1:-1]}' for key, value in entries.items() if value != '[]')}}}"


FOLDS: Final[Mapping[str, Callable[[list[Any], Sequence[Any]], Any]]] = {
    "FIRST_VALUE": _first,
    "LAST_VALUE": _last,
    "LISTAGG": _listed,
    "STRING_AGG": _listed,
    "COLLECT": _collected,
    "ARRAY_AGG": _array,
    "SINGLE_VALUE": _single,
    "PERCENTILE": _percentile,
    "JSON_ARRAYAGG": _json_array,
    "JSON_OBJECTAGG": _json_object,
}
"""What computes the result from the arguments of a group's rows, in their order."""
