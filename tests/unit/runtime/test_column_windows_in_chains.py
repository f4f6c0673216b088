"""Windows over columns in a chain: results in parts, late rows apart, watermarks behind them, the clock."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from firesteel.common.typeinfo import Types
from firesteel.core.errors import ProgramError
from firesteel.datastream.window import TumblingEventTimeWindows, TumblingProcessingTimeWindows
from firesteel.expressions import count
from firesteel.expressions.keys import ColumnKey
from firesteel.functions.output_tag import OutputTag
from firesteel.graph.specs import OperatorKind, OperatorSpec, OutputSpec, PartitionerKind
from firesteel.runtime.chain.chain import ChainExecutor
from firesteel.runtime.chain.partitioners import SingleOutput
from firesteel.runtime.loop.interrupts import CancelToken, InterruptGuard
from firesteel.runtime.records.batch import Batch, Watermark
from firesteel.runtime.records.columns import StreamColumns
from firesteel.runtime.records.rows import to_records
from firesteel.windowing.columnar import ColumnWindowSpec
from tests.unit.runtime.support import FakeOutput, ManualClock, line, opened

BID = Types.ROW_NAMED(["auction", "price"], [Types.LONG(), Types.LONG()])
RESULT = Types.ROW_NAMED(
    ["auction", "window_start", "window_end", "count"], [Types.LONG(), Types.LONG(), Types.LONG(), Types.LONG()]
)


class Chain:
    """One operator with windows, its results, and its late rows if they are read."""

    def __init__(self, assigner: Any, tag: OutputTag[Any] | None = None, *, read: bool = True) -> None:
        windows = ColumnWindowSpec(assigner, (count(),), late_tag=tag)
        extra = {"input_type": BID, "result_type": RESULT}
        key = ColumnKey(["auction"], [0])
        spec = OperatorSpec("a" * 32, "WINDOW", OperatorKind.COLUMNS_WINDOW, windows, (key,), extra=extra)
        outputs = [OutputSpec(0, 0, PartitionerKind.FORWARD)]
        if tag is not None and read:
            outputs.append(OutputSpec(0, 1, PartitionerKind.FORWARD, tag=tag.tag_id))
        chain = line(spec, outputs=outputs)
        self.clock = ManualClock()
        self.plan = opened(chain, self.clock)
        self.channels = [FakeOutput() for _ in outputs]
        for output, channel in zip(chain.outputs, self.channels, strict=True):
            self.plan.outlet_of(output).outputs.append(SingleOutput("out", [channel]))
        self.executor = ChainExecutor(self.plan, InterruptGuard(), CancelToken("t"))

    def advance(self, time: int) -> int:
        """Event time; how many steps it took."""
        self.executor.advance(Watermark(time))
        return self.work()

    def feed(self, auctions: list[int], stamps: list[int] | None) -> None:
        batch = StreamColumns(BID).from_records([(auction, 1) for auction in auctions])
        self.executor.feed(Batch(batch, None if stamps is None else np.array(stamps, np.int64)))
        self.work()

    def work(self) -> int:
        steps = 0
        while self.executor.pending:
            self.executor.step()
            steps += 1
        return steps


def rows_of(channel: FakeOutput) -> list[tuple[Any, ...]]:
    return [tuple(row) for batch in channel.batches for row in to_records(batch.values)]


def stamps_of(batch: Batch) -> Any:
    assert batch.timestamps is not None
    return batch.timestamps


def test_a_window_of_many_keys_is_worked_off_in_steps() -> None:
    """Between two steps a cancel gets through, and a full output holds the rest back."""
    chain = Chain(TumblingEventTimeWindows(10))
    chain.feed(list(range(100_000)), [3] * 100_000)
    assert chain.advance(9) > 5
    (channel,) = chain.channels
    assert max(len(batch) for batch in channel.batches) <= 20_000
    assert len(rows_of(channel)) == 100_000
    assert {int(time) for batch in channel.batches for time in stamps_of(batch)} == {9}


@pytest.mark.parametrize("kind", [BID, None, Types.ROW([Types.INT(), Types.INT()])])
def test_late_rows_leave_apart(kind: Any) -> None:
    """As columns, or as records that are fitted to the tag's type."""
    tag: OutputTag[Any] = OutputTag("late", kind)
    chain = Chain(TumblingEventTimeWindows(10), tag)
    chain.advance(20)
    chain.feed([1, 2, 3], [25, 5, 7])
    chain.advance(29)
    main, late = chain.channels
    assert rows_of(main) == [(1, 20, 30, 1)]
    assert rows_of(late) == [(2, 1), (3, 1)]
    assert [time for batch in late.batches for time in stamps_of(batch)] == [5, 7]


def test_late_rows_that_nobody_reads_are_dropped() -> None:
    chain = Chain(TumblingEventTimeWindows(10), OutputTag("late"), read=False)
    chain.advance(20)
    chain.feed([2], [5])
    assert rows_of(chain.channels[0]) == []


def test_rows_without_timestamps_are_refused() -> None:
    chain = Chain(TumblingEventTimeWindows(10))
    with pytest.raises(ProgramError, match="without a timestamp came to TumblingEventTimeWindows"):
        chain.feed([1], None)


def test_the_clock_fires() -> None:
    chain = Chain(TumblingProcessingTimeWindows(10))
    chain.feed([1, 1, 2], None)
    assert chain.executor.earliest_timer() == 100_010
    chain.clock.now += 0.012
    chain.executor.fire(chain.clock.epoch_ms())
    chain.work()
    assert rows_of(chain.channels[0]) == [(1, 100_000, 100_010, 2), (2, 100_000, 100_010, 1)]
    assert chain.executor.earliest_timer() is None
