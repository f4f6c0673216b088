"""Runs an operator over changing tables: on several subtasks, through snapshots, with the sum of its results."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from firesteel.runtime.operators.changelog import ChangelogContext, ChangelogFunction, ChangelogStates, weights_of
from firesteel.runtime.records.batch import MIN_WATERMARK, Batch
from firesteel.runtime.records.columns import columns_of
from firesteel.state.backend import KeyedStateBackend, KeyedStateParameters
from firesteel.state.heap import HeapKeyedState
from firesteel.testing.snapshots import take_snapshot

Record = tuple[Any, ...]
GROUPS = 8


def group_of(key: Record) -> int:
    return sum(repr(key).encode()) % GROUPS


def groups_of(columns: Sequence[pa.Array]) -> npt.NDArray[np.int32]:
    return np.array([group_of(key) for key in zip(*[column.to_pylist() for column in columns], strict=True)], np.int32)


def plain(row: Record) -> Record:
    """The row with a text for NaN, which is not equal to itself."""
    return tuple("NaN" if value != value else value for value in row)


class Count:
    def __init__(self) -> None:
        self.value = 0

    def inc(self, n: int = 1) -> None:
        self.value += n


class Metrics:
    """Counters by name."""

    def __init__(self) -> None:
        self.counters: dict[str, Count] = {}

    def counter(self, name: str) -> Count:
        return self.counters.setdefault(name, Count())


class OperatorRun:
    """An operator on some subtasks.

    Args:
        create: creates the function.
        inputs: columns of each input.
        keys: places of the key's columns in each input.

    Attributes:
        table: the sum of all results.
        results: rows with their kinds, of the last call of ``push`` or ``advance``.
    """

    def __init__(
        self,
        create: Callable[[], ChangelogFunction],
        inputs: Sequence[pa.Schema],
        keys: Sequence[Sequence[int]],
        parallelism: int = 1,
    ) -> None:
        self._create, self._inputs, self._keys = create, inputs, keys
        self.watermark, self.metrics = MIN_WATERMARK, Metrics()
        self.table: Counter[Record] = Counter()
        self.results: list[tuple[int, Record]] = []
        self._start(parallelism, [])

    def _start(self, parallelism: int, written: Sequence[Any]) -> None:
        self._subtasks: list[tuple[range, KeyedStateBackend, ChangelogFunction]] = []
        for number in range(parallelism):
            groups = range(number * GROUPS // parallelism, (number + 1) * GROUPS // parallelism)
            parameters = KeyedStateParameters(key_groups=groups, key_groups_of=groups_of, max_parallelism=GROUPS)
            backend, function = HeapKeyedState(parameters), self._create()
            types = [self._inputs[0].field(place).type for place in self._keys[0]]
            function.create_state(ChangelogStates(backend, types, parameters))
            if written:
                backend.restore([contents.of(groups) for contents in written])
            context = ChangelogContext(
                "Operator[1]",
                lambda: 0,
                lambda: self.watermark,
                lambda time: None,
                self.metrics,  # type: ignore[arg-type]
            )
            function.open(context)
            self._subtasks.append((groups, backend, function))

    def restart(self, parallelism: int) -> None:
        """Take a snapshot, and go on from it with another number of subtasks."""
        written = []
        for groups, backend, _ in self._subtasks:
            written.append(take_snapshot(backend.snapshot(), groups))
            backend.close()
        self._start(parallelism, written)

    def push(self, rows: Sequence[tuple[int, Record]], input_index: int = 0) -> None:
        """Take rows with their kinds."""
        self.results = []
        schema, places = self._inputs[input_index], self._keys[input_index]
        for groups, _, function in self._subtasks:
            own = [(kind, row) for kind, row in rows if group_of(tuple(row[place] for place in places)) in groups]
            if own:
                columns = [pa.array([row[at] for _, row in own], field.type) for at, field in enumerate(schema)]
                batch = pa.RecordBatch.from_arrays(columns, schema=schema)
                kinds = np.array([kind for kind, _ in own], np.int8)
                self._take(
                    function.process(
                        [columns[place] for place in places],
                        Batch(batch, None, kinds if kinds.any() else None),
                        input_index,
                    )
                )

    def advance(self, watermark: int) -> None:
        """Take a watermark."""
        self.results, self.watermark = [], watermark
        for _, _, function in self._subtasks:
            self._take(function.on_watermark(watermark))

    def _take(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            rows = [
                plain(row) for row in zip(*[column.to_pylist() for column in columns_of(batch).columns], strict=True)
            ]
            for row, weight in zip(rows, weights_of(batch).tolist(), strict=True):
                self.table[row] += weight
            kinds = [0] * len(batch) if batch.kinds is None else np.asarray(batch.kinds).tolist()
            self.results += list(zip(kinds, rows, strict=True))
        self.table = Counter({row: count for row, count in self.table.items() if count})


class ChangingTable:
    """Rows that are inserted, updated and deleted by chance.

    Args:
        rng: makes the choices.
        row: makes a random row.
        deletes: rows are updated and deleted, too.
    """

    def __init__(self, rng: random.Random, row: Callable[[random.Random], Record], deletes: bool = True) -> None:
        self._rng, self._row, self._deletes = rng, row, deletes
        self.rows: list[Record] = []

    def changes(self, most: int = 30) -> list[tuple[int, Record]]:
        """Some changes, with their row kinds."""
        return list(self._changes(self._rng.randrange(1, most)))

    def _changes(self, count: int) -> Iterator[tuple[int, Record]]:
        for _ in range(count):
            choice = self._rng.random() if self.rows and self._deletes else 1.0
            if choice < 0.25:
                yield 3, self.rows.pop(self._rng.randrange(len(self.rows)))
            elif choice < 0.5:
                before = self.rows.pop(self._rng.randrange(len(self.rows)))
                self.rows.append((before[0], *self._row(self._rng)[1:]))
                yield 1, before
                yield 2, self.rows[-1]
            else:
                self.rows.append(self._row(self._rng))
                yield 0, self.rows[-1]
