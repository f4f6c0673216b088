"""Batches of columns follow the time that they take: sources ask for more or fewer rows, operators take them apart."""

from __future__ import annotations

import pyarrow as pa
import pytest

from firesteel.common import Types
from firesteel.graph.specs import OperatorKind, OutputSpec, PartitionerKind
from firesteel.runtime.chain.chain import ChainExecutor
from firesteel.runtime.chain.partitioners import SingleOutput
from firesteel.runtime.chain.stages import FIRST_COLUMNS, SMALLEST_COLUMNS
from firesteel.runtime.loop.interrupts import CancelToken, InterruptGuard
from firesteel.runtime.loop.work_time import CROWDED, work_seconds
from firesteel.runtime.records.batch import Batch
from firesteel.runtime.sources.source_input import COLUMN_BYTES, COLUMN_SECONDS, _Limits
from tests.unit.runtime.support import FakeOutput, line, opened, spec

ROW = Types.ROW_NAMED(["n"], [Types.LONG()])


class Machine:
    """Needs so many seconds for a row, by clocks of its own; crowded, it works only in one of so many seconds."""

    def __init__(self, seconds: float, crowded: int = 1) -> None:
        self.seconds, self.crowded = seconds, crowded
        self.now = self.processor = 0.0
        self.sizes: list[int] = []

    def work(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.sizes.append(batch.num_rows)
        self.processor += self.seconds * batch.num_rows
        self.now += self.crowded * self.seconds * batch.num_rows
        return batch

    def run(self, rows: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """The sizes in which a batch goes in."""
        monkeypatch.setattr("firesteel.runtime.chain.stages._now", lambda: self.now)
        monkeypatch.setattr("firesteel.runtime.chain.stages._processor_time", lambda: self.processor)
        operator = spec(OperatorKind.COLUMNS_MAP, self.work, extra={"input_type": ROW, "result_type": ROW})
        plan = opened(line(operator, outputs=[OutputSpec(0, 0, PartitionerKind.FORWARD)]))
        channel = FakeOutput()
        plan.outlet_of(plan.spec.outputs[0]).outputs.append(SingleOutput("out", [channel]))
        executor = ChainExecutor(plan, InterruptGuard(), CancelToken())
        executor.feed(Batch(pa.RecordBatch.from_pydict({"n": pa.array(range(rows), pa.int64())})))
        while executor.pending:
            executor.step()
        assert [n for batch in channel.batches for n in batch.values.column(0).to_pylist()] == list(range(rows))  # type: ignore[union-attr]
        return self.sizes


def test_a_slow_operator_gets_small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = Machine(10e-6).run(100_000, monkeypatch)
    assert sizes[0] == FIRST_COLUMNS
    assert set(sizes[1:-1]) <= {999, 1000}, "10 ms' worth"


def test_a_very_slow_operator_gets_no_smaller_ones_than_the_smallest(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = Machine(1e-3).run(20_000, monkeypatch)
    assert set(sizes[1:-1]) == {SMALLEST_COLUMNS}


def test_a_quick_operator_gets_ever_larger_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Machine(1e-9).run(120_000, monkeypatch) == [FIRST_COLUMNS, 2 * FIRST_COLUMNS, 4 * FIRST_COLUMNS, 5312]


def batch_of(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": pa.array(range(rows), pa.int64())})


def test_a_source_is_asked_for_so_many_rows_as_fit_its_time() -> None:
    limits = _Limits(131_072, COLUMN_SECONDS, COLUMN_BYTES)
    assert limits.next_count(1000, batch_of(1000), 0.0001) == 2000, "quick: twice as many"
    assert limits.next_count(1000, batch_of(1000), COLUMN_SECONDS) == 1000, "about right"
    assert limits.next_count(1000, batch_of(1000), 4 * COLUMN_SECONDS) == 250, "slow: its time's worth"
    assert limits.next_count(131_072, batch_of(131_072), 0.0001) == 131_072, "the option's bound"
    assert limits.next_count(1, batch_of(1), 1.0) == 1
    of_columns = limits._replace(least=1024)
    for size in (5000, 64):
        assert of_columns.next_count(size, batch_of(size), 60.0) == 1024, "fixed costs do not shrink with a batch"
    wide = pa.RecordBatch.from_pydict({"text": ["x" * 100_000] * 100})
    for bounds in (limits, of_columns):
        assert bounds.next_count(100, wide, 0.0001) == COLUMN_BYTES // 100_000, "no more bytes than that"


def test_waiting_for_a_processor_makes_slices_no_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = Machine(1e-6, crowded=CROWDED).run(100_000, monkeypatch)
    assert set(sizes[:-1]) == {FIRST_COLUMNS}, "16 ms of work, of which the clock sees 131"


def test_waiting_for_anything_else_counts() -> None:
    assert work_seconds(0.8, 0.001) == 0.1
    assert work_seconds(0.012, 0.010) == 0.010
