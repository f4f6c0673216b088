"""Runs the operator of windows over columns without a chain, and says what should come out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from firesteel.common.typeinfo import RowTypeInfo, Types
from firesteel.expressions import avg, count, first, last, max_, min_, sum_
from firesteel.expressions.keys import ColumnKey
from firesteel.expressions.schema import schema_of
from firesteel.graph.key_groups import operator_index
from firesteel.graph.key_hash import key_group
from firesteel.graph.specs import OperatorKind, OperatorSpec
from firesteel.runtime.loop.metrics import MetricRegistry
from firesteel.runtime.operator_base.context import OperatorContext, TaskInfo
from firesteel.runtime.operator_base.keyed_base import state_parameters
from firesteel.runtime.operator_base.side_outputs import SideBatch
from firesteel.runtime.operators import create_operator
from firesteel.runtime.records.batch import Batch
from firesteel.runtime.records.rows import to_records
from firesteel.state.heap import HeapStateBackend
from firesteel.testing.snapshots import SnapshotContents, take_snapshot
from firesteel.windowing.columnar import ColumnWindowSpec, result_type
from tests.unit.windowing.harness import INFO, LATE, Clock
from tests.unit.windowing.oracle import Result

INPUT = Types.ROW_NAMED(
    ["key", "number", "price", "word", "place"],
    [Types.STRING(), Types.LONG(), Types.DOUBLE(), Types.STRING(), Types.LONG()],
)
AGGREGATES = (
    count(),
    count("number"),
    sum_("number"),
    min_("number"),
    max_("number"),
    avg("number"),
    sum_("price"),
    min_("price"),
    max_("price"),
    first("word"),
    last("word"),
    min_("word"),
    max_("word"),
    last("number").alias("latest"),
)
MAX_PARALLELISM = 16
WORDS = ("", "ale", "tea", "wine", "été")


def expected_values(records: Sequence[Any]) -> tuple[Any, ...]:
    """What ``AGGREGATES`` give for records in the order of arrival."""
    numbers = [record[1] for record in records if record[1] is not None]
    prices = [record[2] for record in records if record[2] is not None]
    words = [record[3] for record in records if record[3] is not None]
    return (
        len(records),
        len(numbers),
        sum(numbers) if numbers else None,
        min(numbers, default=None),
        max(numbers, default=None),
        sum(numbers) / len(numbers) if numbers else None,
        sum(prices) if prices else None,
        min(prices, default=None),
        max(prices, default=None),
        words[0] if words else None,
        words[-1] if words else None,
        min(words, default=None),
        max(words, default=None),
        numbers[-1] if numbers else None,
    )


def expected_row(result: Result) -> tuple[Any, ...]:
    """The row of a window of the oracle, whose records end with their number."""
    key, (start, end), records = result
    return (key, start, end, *expected_values(sorted(records, key=lambda record: record[4])))


class ColumnRig:
    """One operator.

    Args:
        assigner: of the windows.
        lateness: allowed.
        keys: columns of the key.
        aggregates: over ``INPUT``.
        info: of the subtask.
        late_tag: side output of late rows.
        input_type: of the rows.
        written: snapshots to restore: what they say about states, and chunks.
    """

    def __init__(
        self,
        assigner: Any,
        lateness: int = 0,
        *,
        keys: tuple[str, ...] = ("key",),
        aggregates: tuple[Any, ...] = AGGREGATES,
        info: TaskInfo = INFO,
        late_tag: Any = LATE,
        input_type: RowTypeInfo = INPUT,
        written: Sequence[SnapshotContents] = (),
    ) -> None:
        from firesteel.expressions.aggregates import bind_aggregates

        declared = schema_of(input_type)
        assert declared is not None
        bound = bind_aggregates("aggregate", aggregates, declared)
        spec = OperatorSpec(
            "a" * 32,
            "WINDOW",
            OperatorKind.COLUMNS_WINDOW,
            ColumnWindowSpec(assigner, aggregates, lateness, late_tag),
            (ColumnKey(keys, [list(declared).index(name) for name in keys]),),
            extra={
                "input_type": input_type,
                "result_type": result_type({name: declared[name] for name in keys}, bound),
            },
        )
        self.clock = Clock()
        self.woken: list[int] = []
        operator: Any = create_operator(spec)
        self.operator = operator
        operator.use_backend(HeapStateBackend(), state_parameters(spec, info, self.clock))
        operator.backend.restore([state.of(operator.key_groups) for state in written])
        self.metrics = MetricRegistry(self.clock)
        operator.open(OperatorContext(info, self.clock, on_processing_timer=self.woken.append, metrics=self.metrics))
        self.late: list[Any] = []

    def records(self, records: Sequence[Any], stamps: Sequence[int] | None) -> list[tuple[Any, ...]]:
        """Give a batch; the rows that come out."""
        batch = self.operator.input.from_records(records)
        times = None if stamps is None else np.array(stamps, np.int64)
        return self._rows(self.operator.apply_columns(iter([Batch(batch, times)])))

    def watermark(self, time: int) -> list[tuple[Any, ...]]:
        """Event time has come so far."""
        return self._rows(self.operator.advance_watermark(time))

    def time(self, now: int) -> list[tuple[Any, ...]]:
        """The clock has come so far."""
        self.clock.now = now
        return self._rows(self.operator.advance_processing_time(now))

    def _rows(self, parts: Iterator[Any]) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        for part in parts:
            if isinstance(part, SideBatch):
                late, times = part.batch.values, part.batch.timestamps
                assert times is not None
                self.late += zip(map(tuple, to_records(late)), [int(time) for time in times], strict=True)
                continue
            batch, stamps = part.values, part.timestamps
            records = [tuple(row) for row in to_records(batch)]
            if records:
                ends = batch.column("window_end").to_pylist()
                assert stamps.tolist() == [end - 1 for end in ends]
            rows += records
        return rows


class Subtasks:
    """The operator with a parallelism of its own, which may change."""

    def __init__(self, parallelism: int, make: Any) -> None:
        self.make = make
        self.rigs: list[ColumnRig] = []
        self.late: list[Any] = []
        self._start(parallelism, ())

    def _start(self, parallelism: int, written: Sequence[SnapshotContents]) -> None:
        infos = [
            TaskInfo("1" * 32, "job", "v_0_0", "WINDOW", subtask, parallelism, MAX_PARALLELISM, 0)
            for subtask in range(parallelism)
        ]
        self.rigs = [self.make(info=info, written=written) for info in infos]

    def records(self, records: Sequence[Any], stamps: Sequence[int]) -> list[tuple[Any, ...]]:
        """Give each subtask its rows; rows that come out, those of one subtask behind those of the other."""
        rows = []
        for subtask, rig in enumerate(self.rigs):
            mine = [
                (record, time)
                for record, time in zip(records, stamps, strict=True)
                if self.subtask_of(record[0]) == subtask
            ]
            if mine:
                rows += rig.records([record for record, _ in mine], [time for _, time in mine])
        return rows

    def subtask_of(self, key: Any) -> int:
        """Which one has a key."""
        return operator_index(key_group(key, MAX_PARALLELISM), len(self.rigs), MAX_PARALLELISM)

    def watermark(self, time: int) -> list[tuple[Any, ...]]:
        """Event time has come so far everywhere."""
        return [row for rig in self.rigs for row in rig.watermark(time)]

    def write(self) -> list[SnapshotContents]:
        """A snapshot of each."""
        written = []
        for rig in self.rigs:
            written.append(take_snapshot(rig.operator.backend.snapshot(), rig.operator.key_groups))
        return written

    def restart(self, parallelism: int) -> None:
        """Write, forget, and restore with another parallelism."""
        written = self.write()
        for rig in self.rigs:
            self.late += rig.late
            rig.operator.close()
        self._start(parallelism, written)

    @property
    def all_late(self) -> list[Any]:
        """Late rows so far."""
        return [*self.late, *(record for rig in self.rigs for record in rig.late)]


def cut(items: Iterable[Any], sizes: Sequence[int]) -> Iterator[list[Any]]:
    """Cut a list into batches of these sizes, in turn."""
    left, turn = list(items), 0
    while left:
        size = sizes[turn % len(sizes)]
        yield left[:size]
        left = left[size:]
        turn += 1
