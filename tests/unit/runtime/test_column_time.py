"""Event time of columns is that of rows: the same timestamps, and watermarks at the same positions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel.common import Duration, Instant, Row, Types, WatermarkStrategy
from firesteel.common.watermark_strategy import TimestampAssigner, WatermarkGenerator, WatermarkOutput
from firesteel.core.errors import GraphError, ProgramError
from firesteel.datastream import StreamExecutionEnvironment
from firesteel.expressions import col, when
from firesteel.expressions.expression import ColumnTimestamps
from firesteel.expressions.timestamps import computing_timestamps
from firesteel.graph.specs import OperatorKind, OutputSpec, PartitionerKind
from firesteel.runtime.chain.chain import ChainExecutor
from firesteel.runtime.chain.partitioners import SingleOutput
from firesteel.runtime.loop.interrupts import CancelToken, InterruptGuard
from firesteel.runtime.records.batch import Batch, Timestamps, Values, Watermark
from firesteel.runtime.records.columns import StreamColumns
from firesteel.runtime.records.rows import to_list, to_records
from firesteel.runtime.sources.source_time import SourceTime
from tests.unit.runtime.support import FakeOutput, ManualClock, line, opened, spec

ROW = Types.ROW_NAMED(["ts", "n"], [Types.LONG(), Types.INT()])
COLUMNS = StreamColumns(ROW)
NOTHING: list[Any] = [None]


class ByField(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value.ts + value.n)


class AtEachThird(WatermarkGenerator):
    """Emits a watermark behind some records, and one by the clock."""

    def __init__(self) -> None:
        self.latest = 0

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        self.latest = max(self.latest, event_timestamp)
        if event.n % 3 == 0:
            output.emit_watermark(event_timestamp - 1)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        output.emit_watermark(self.latest - 5)


BASES: dict[str, Callable[[], WatermarkStrategy]] = {
    "none": WatermarkStrategy.no_watermarks,
    "monotonous": WatermarkStrategy.for_monotonous_timestamps,
    "bounded": lambda: WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(7)),
    "generator": lambda: WatermarkStrategy.for_generator(AtEachThird),
}
ASSIGNERS: dict[str, Callable[[WatermarkStrategy], WatermarkStrategy]] = {
    "given": lambda strategy: strategy,
    "python": lambda strategy: strategy.with_timestamp_assigner(ByField()),
    "expression": lambda strategy: strategy.with_timestamp_assigner(col("ts") + col("n")),
}
STEPS = st.lists(
    st.one_of(
        st.just("periodic"),
        st.tuples(st.sampled_from(["a", "b"]), st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), max_size=9)),
    ),
    max_size=12,
)


def emitted(strategy: WatermarkStrategy, steps: list[Any], *, columnar: bool, stamped: bool) -> list[Any]:
    """Records with timestamps, and watermarks where they stand."""
    clock = ManualClock()
    time = SourceTime("source", "task", strategy, clock, None, ROW)
    items: list[Any] = []
    for step in steps:
        clock.now += 1
        if step == "periodic":
            items.append(time.periodic())
            continue
        split, pairs = step
        rows = [Row(ts=ts, n=n) for ts, n in pairs]
        stamps = [100 + ts for ts, _ in pairs] if stamped else None
        if not rows:
            continue
        if columnar:
            array = None if stamps is None else np.array(stamps, np.int64)
            pieces: Any = time.take_columns(split, COLUMNS.from_records(rows), array)
        else:
            pieces = time.take(split, rows, stamps)
        for values, piece_stamps, watermark in pieces:
            assert isinstance(values, pa.RecordBatch) is columnar
            assert piece_stamps is None or isinstance(piece_stamps, np.ndarray) is columnar
            items += zip(to_records(values), to_list(piece_stamps) or NOTHING * len(values), strict=True)
            items.append(watermark)
    return items


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("assigner", ASSIGNERS)
@given(steps=STEPS, stamped=st.booleans())
def test_sources_have_the_same_time_by_rows_and_by_columns(
    base: str, assigner: str, steps: list[Any], stamped: bool
) -> None:
    if assigner == "given" and base == "generator":
        stamped = True  # the generator needs something to read
    strategy = ASSIGNERS[assigner](BASES[base]())
    assert emitted(strategy, steps, columnar=True, stamped=stamped) == emitted(
        strategy, steps, columnar=False, stamped=stamped
    )


def ran(strategy: WatermarkStrategy, steps: list[Any], *, columnar: bool) -> tuple[list[Any], list[Any], list[Any]]:
    """What leaves a chain with ``assign_timestamps_and_watermarks``: records, timestamps, watermarks."""
    chain = line(
        spec(OperatorKind.WATERMARKS, strategy, extra={"input_type": ROW}),
        outputs=[OutputSpec(0, 0, PartitionerKind.FORWARD)],
    )
    plan = opened(chain)
    channel = FakeOutput()
    plan.outlet_of(chain.outputs[0]).outputs.append(SingleOutput("out", [channel]))
    executor = ChainExecutor(plan, InterruptGuard(), CancelToken("t"))

    def drain() -> None:
        while executor.pending:
            executor.step()

    for step in steps:
        if step == "periodic":
            executor.emit_watermarks()
        else:
            rows = [Row(ts=ts, n=n) for ts, n in step[1]]
            values: Values = COLUMNS.from_records(rows) if columnar else rows
            executor.feed(Batch(values))
        drain()
    executor.advance(Watermark(2**63 - 1))
    drain()
    return (
        [record for batch in channel.batches for record in to_records(batch.values)],
        channel.timestamps,
        channel.elements,
    )


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("assigner", ["python", "expression"])
@given(steps=STEPS)
def test_operators_have_the_same_time_by_rows_and_by_columns(base: str, assigner: str, steps: list[Any]) -> None:
    strategy = ASSIGNERS[assigner](BASES[base]())
    assert ran(strategy, steps, columnar=True) == ran(strategy, steps, columnar=False)


def test_columns_stay_columns_behind_timestamps() -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(col("ts"))
    chain = line(
        spec(OperatorKind.WATERMARKS, strategy, extra={"input_type": ROW}),
        outputs=[OutputSpec(0, 0, PartitionerKind.FORWARD)],
    )
    plan = opened(chain)
    channel = FakeOutput()
    plan.outlet_of(chain.outputs[0]).outputs.append(SingleOutput("out", [channel]))
    executor = ChainExecutor(plan, InterruptGuard(), CancelToken("t"))
    batch = COLUMNS.from_records([Row(ts=n, n=0) for n in range(5)])
    executor.feed(Batch(batch))
    while executor.pending:
        executor.step()
    [routed] = channel.batches
    assert isinstance(routed.values, pa.RecordBatch)
    assert isinstance(routed.timestamps, np.ndarray)
    assert routed.timestamps.tolist() == [0, 1, 2, 3, 4]


def stamps_of(expression: Any, type_info: Any, rows: list[Row]) -> Timestamps:
    columns = StreamColumns(type_info)
    batch = columns.from_records(rows)
    declared = dict(zip(columns.names, columns.types, strict=True))
    timestamps: Timestamps = computing_timestamps(ColumnTimestamps(expression), declared)(
        dict(zip(columns.names, batch.columns, strict=True)), batch.num_rows
    )
    return timestamps


def test_timestamps_are_numbers_or_times() -> None:
    at = Types.ROW_NAMED(["at", "instant", "small"], [Types.SQL_TIMESTAMP(), Types.INSTANT(), Types.SHORT()])
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_900)
    expected = int(moment.replace(tzinfo=UTC).timestamp() * 1000 // 1)
    instant = Instant(expected // 1000, 678_900_000)
    rows = [
        Row(at=moment, instant=instant, small=-7),
        Row(at=moment + timedelta(days=1), instant=Instant(5, 0), small=9),
    ]
    assert to_list(stamps_of(col("at"), at, rows)) == [expected, expected + 86_400_000]
    assert to_list(stamps_of(col("instant"), at, rows)) == [expected, 5000]
    assert to_list(stamps_of(col("small"), at, rows)) == [-7, 9]


def test_rows_without_a_timestamp_are_named() -> None:
    nothing = when(col("n") > 1).then(col("ts")).otherwise(None)
    with pytest.raises(ProgramError, match=r"is null in row 1 of a batch of 3"):
        stamps_of(nothing, ROW, [Row(ts=1, n=5), Row(ts=2, n=0), Row(ts=3, n=0)])


def test_expressions_are_checked_when_the_graph_is_built() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    rows = env.from_collection([(1, 2)], ROW)
    with pytest.raises(ProgramError, match=r"no column 'tz'; there are 'ts', 'n'"):
        rows.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(col("tz")))
    with pytest.raises(ProgramError, match="a timestamp is a whole number of milliseconds"):
        rows.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(col("ts") / 2))
    with pytest.raises(GraphError, match="needs a stream whose records have typed fields"):
        env.from_collection([1]).assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(col("ts")))
    with pytest.raises(TypeError, match="or an expression, not int"):
        strategy.with_timestamp_assigner(1)  # type: ignore[arg-type]


def test_a_batch_without_rows_has_no_time() -> None:
    time = SourceTime("source", "task", WatermarkStrategy.for_monotonous_timestamps(), ManualClock(), None, ROW)
    empty = Batch(COLUMNS.from_records([]))
    assert isinstance(empty.values, pa.RecordBatch)
    [(values, stamps, watermark)] = time.take_columns("a", empty.values, None)
    assert (len(values), stamps, watermark) == (0, None, None)
