"""How many bytes of columns are copied on their way: none where a view does. And how long their memory lives."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from firesteel.common import Types
from firesteel.expressions import col
from firesteel.expressions.keys import ColumnKey
from firesteel.graph.specs import OperatorKind, OutputSpec, PartitionerKind
from firesteel.runtime.chain.chain import ChainExecutor
from firesteel.runtime.chain.partitioners import SingleOutput, create_output
from firesteel.runtime.exchange.channels import ChannelId
from firesteel.runtime.exchange.local import LocalPipe
from firesteel.runtime.loop.interrupts import CancelToken, InterruptGuard
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.records.batch import Batch
from firesteel.runtime.records.copies import COPIES
from tests.unit.exchange.test_link import Pair
from tests.unit.runtime.support import FakeOutput, ManualClock, line, opened, spec

ROW = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.LONG()])
ROWS = 40_000


def batch_of(rows: int) -> Batch:
    numbers = np.arange(rows)
    values = pa.RecordBatch.from_pydict({"a": numbers % 7, "b": numbers})
    return Batch(values, np.arange(rows))


@pytest.fixture
def copied() -> Iterator[Any]:
    begun = COPIES.bytes
    return iter(lambda: COPIES.bytes - begun, None)


def addresses(batch: Batch) -> set[int]:
    assert isinstance(batch.values, pa.RecordBatch)
    return {buffer.address for column in batch.values.columns for buffer in column.buffers() if buffer is not None}


def test_slices_and_projections_are_views(copied: Any) -> None:
    plain = {"input_type": ROW, "result_type": Types.ROW_NAMED(["b"], [Types.LONG()])}
    chain = line(
        spec(OperatorKind.COLUMNS_PROJECT, (col("b"),), extra=plain),
        outputs=[OutputSpec(0, 0, PartitionerKind.FORWARD)],
    )
    plan = opened(chain)
    channel = FakeOutput()
    plan.outlet_of(chain.outputs[0]).outputs.append(SingleOutput("out", [channel]))
    executor = ChainExecutor(plan, InterruptGuard(), CancelToken())
    batch_in = batch_of(ROWS)
    executor.feed(batch_in)
    while executor.pending:
        executor.step()
    assert len(channel.batches) > 1, "it came in slices"
    assert sum(map(len, channel.batches)) == ROWS
    assert all(addresses(batch) <= addresses(batch_in) for batch in channel.batches)
    assert all(np.shares_memory(batch.timestamps, batch_in.timestamps) for batch in channel.batches)
    assert next(copied) == 0


def test_partitioning_copies_each_row_once_and_broadcast_none(copied: Any) -> None:
    batch_in = batch_of(ROWS)
    for count in (3, 9):
        channels = [FakeOutput(number) for number in range(count)]
        before = next(copied)
        output = create_output(
            OutputSpec(0, 0, PartitionerKind.HASH, ColumnKey(["a"], [0])),
            "op",
            channels,
            128,
            None,  # type: ignore[arg-type]
        )
        parts = [batch for _, batch in output.route(batch_in)]
        assert sum(map(len, parts)) == ROWS
        assert next(copied) - before == ROWS * 24
    before = next(copied)
    output = create_output(OutputSpec(0, 0, PartitionerKind.BROADCAST), "op", channels, 128, None)  # type: ignore[arg-type]
    assert all(addresses(batch) == addresses(batch_in) for _, batch in output.route(batch_in))
    assert next(copied) == before


def test_the_way_to_another_slot_copies_once(copied: Any) -> None:
    batch_in = batch_of(ROWS)
    pair = Pair().connect()
    output, channel = pair.a.output(1, window=1 << 21), pair.b.input(1, window=1 << 21)
    pair.run()
    for number in range(3):
        before = next(copied)
        output.write(batch_in)
        pair.run()
        got = channel.poll()
        assert isinstance(got, Batch)
        assert isinstance(got.values, pa.RecordBatch)
        assert got.values.equals(batch_in.values)
        assert np.array_equal(got.timestamps, batch_in.timestamps)  # type: ignore[arg-type]
        written = next(copied) - before
        assert written == pytest.approx(ROWS * 16, rel=0.01), f"into message {number}, and nowhere else"
    assert pair.b.counters.bytes_received > 3 * ROWS * 24
    pair.close()


def test_memory_of_columns_lives_as_long_as_a_slice_of_them_waits() -> None:
    before = pa.total_allocated_bytes()
    loop = TaskLoop(ManualClock())
    pipe = LocalPipe(ChannelId(0, 0, 0), loop, 1 << 16)
    numbers = pa.array(range(ROWS), pa.int64())
    pipe.output.write(Batch(pa.RecordBatch.from_arrays([numbers], ["n"]).slice(ROWS - 10, 10)))
    pipe.output.write(Batch(pa.RecordBatch.from_arrays([numbers], ["n"])))
    assert pipe.output.writable, "some large batches may wait"
    for _ in range(2):
        pipe.output.write(Batch(pa.RecordBatch.from_arrays([numbers], ["n"])))
    del numbers
    gc.collect()
    assert not pipe.output.writable, "back-pressure: the producer waits while the batches do"
    first, second = pipe.input.poll(), pipe.input.poll()
    pipe.input.poll()
    pipe.input.poll()
    assert isinstance(first, Batch)
    assert isinstance(second, Batch)
    loop.run_once(block=False)
    assert pipe.output.writable
    pipe.input.close()
    assert isinstance(first.values, pa.RecordBatch)
    assert first.values.column(0).to_pylist() == list(range(ROWS - 10, ROWS))
    del first, second
    gc.collect()
    assert pa.total_allocated_bytes() <= before
    loop.close()
