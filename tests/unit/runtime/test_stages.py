"""Stages of a chain by themselves, without task, executor and channels; row kinds go wherever timestamps go."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from firesteel.common.typeinfo import Types
from firesteel.common.types import Row
from firesteel.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from firesteel.core.errors import ProgramError
from firesteel.expressions import col
from firesteel.functions.async_functions import AsyncFunction
from firesteel.functions.batch_functions import ChangelogMapFunction
from firesteel.functions.functions import KeyedProcessFunction, ProcessFunction
from firesteel.functions.output_tag import OutputTag
from firesteel.functions.sink import Sink, SinkWriter
from firesteel.graph.specs import ChainSpec, OperatorKind, OperatorSpec, OutputSpec, PartitionerKind
from firesteel.runtime.chain.chain import ChainPlan
from firesteel.runtime.chain.partitioners import SingleOutput, create_output
from firesteel.runtime.chain.stages import AsyncStage, ChainStage, ColumnStage, Outlet, RowStage, WatermarkStage
from firesteel.runtime.exchange.serialization import MessageReader, MessageWriter
from firesteel.runtime.operator_base.context import OperatorContext
from firesteel.runtime.operators import create_operator
from firesteel.runtime.records.batch import Batch, Watermark, merge
from firesteel.runtime.records.columns import StreamColumns, columns_of
from firesteel.runtime.records.rows import to_list, to_rows
from tests.unit.runtime.support import INFO, FakeOutput, ManualClock, executor_of, line, opened, spec

INSERT, BEFORE, AFTER, DELETE = range(4)
ROW = Types.ROW_NAMED(["n", "m"], [Types.LONG(), Types.LONG()])
NUMBERS = StreamColumns(ROW)


def one_stage(*operators: OperatorSpec) -> Any:
    """The only stage of a chain, its operators open."""
    plan = opened(line(*operators))
    (stage,) = plan.stages
    return stage


def stepped(stage: ChainStage) -> list[tuple[Outlet, Any]]:
    """All that the stage gives, one step after the other."""
    outputs: list[tuple[Outlet, Any]] = []
    while stage.pending:
        outputs += stage.step()
    return outputs


def records(stage: ChainStage, outlet: Outlet | None = None) -> list[tuple[Any, Any, Any]]:
    """Value, timestamp and row kind of what goes to an outlet."""
    triples: list[tuple[Any, Any, Any]] = []
    for to, item in stepped(stage):
        if to is (outlet or stage.outlet) and isinstance(item, Batch):
            rows = to_rows(item)
            none: list[Any] = [None] * len(rows)
            triples += zip(rows.values, rows.timestamps or none, rows.kinds or none, strict=True)
    return triples


def test_rows() -> None:
    stage = one_stage(spec(OperatorKind.MAP, lambda n: n + 1), spec(OperatorKind.FLAT_MAP, lambda n: [n] * (n % 3)))
    assert isinstance(stage, RowStage)
    stage.push(Batch([1, 2, 3, 4], [10, 20, 30, 40]))
    stage.advance(Watermark(40))
    outputs = stepped(stage)
    assert [value for _, item in outputs if isinstance(item, Batch) for value in item.values] == [2, 2, 4, 5, 5]
    assert outputs[-1] == (stage.outlet, Watermark(40))
    assert not stage.pending


def test_columns_and_watermarks() -> None:
    class First(TimestampAssigner):
        def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
            return int(value[0])

    condition = spec(OperatorKind.COLUMNS_FILTER, col("n") > 1, extra={"input_type": ROW})
    stage = one_stage(condition)
    assert isinstance(stage, ColumnStage)
    stage.push(Batch([Row(n=1, m=5), Row(n=2, m=6)], [10, 20]))
    assert records(stage) == [(Row(n=2, m=6), 20, None)]

    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(First())
    assigned = one_stage(spec(OperatorKind.WATERMARKS, strategy))
    assert isinstance(assigned, WatermarkStage)
    assigned.push(Batch([(7, "a"), (9, "b")]))
    assert records(assigned) == [((7, "a"), 7, None), ((9, "b"), 9, None)]
    assigned.look_at_clock()
    assert stepped(assigned) == [(assigned.outlet, Watermark(8))]


def test_a_stage_in_front_of_another_one() -> None:
    """As a partition of a batch job does it: no stack, no thread, no channel."""
    plan = opened(
        line(
            spec(OperatorKind.FLAT_MAP, str.split),
            spec(OperatorKind.MAP, lambda word: (word, len(word))),
            spec(OperatorKind.FILTER, lambda pair: pair[1] > 2),
        )
    )
    words, pairs = plan.stages
    words.push(Batch(["to be or", "not to be"]))
    triples = []
    while words.pending:
        for outlet, item in words.step():
            assert outlet.children == [pairs]
            assert isinstance(item, Batch)
            pairs.push(item)
            triples += records(pairs)
    assert triples == [(("not", 3), None, None)]


class Twice(ProcessFunction[Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value
        yield OutputTag("side"), value


KINDS = [INSERT, BEFORE, AFTER, DELETE, INSERT]


@pytest.mark.parametrize("stamps", [None, [1, 2, 3, 4, 5]])
def test_kinds_go_through_rows(stamps: list[int] | None) -> None:
    none: list[Any] = [None] * 5
    times = stamps or none
    stage = one_stage(spec(OperatorKind.MAP, lambda n: -n))
    stage.push(Batch([1, 2, 3, 4, 5], stamps, KINDS))
    assert records(stage) == list(zip([-1, -2, -3, -4, -5], times, KINDS, strict=True))

    even = one_stage(spec(OperatorKind.MAP, lambda n: n), spec(OperatorKind.FILTER, lambda n: n % 2 == 0))
    even.push(Batch([1, 2, 3, 4, 5], stamps, KINDS))
    assert records(even) == [(2, times[1], BEFORE), (4, times[3], DELETE)]

    flat = one_stage(spec(OperatorKind.FLAT_MAP, lambda n: [n] * n))
    flat.push(Batch([1, 2, 3], stamps and stamps[:3], KINDS[:3]))
    first, second, third = zip([1, 2, 3], times, KINDS, strict=False)
    assert records(flat) == [first, second, second, third, third, third]

    forked = one_stage(
        spec(OperatorKind.PROCESS, Twice(), extra={"side_outputs": {"side": Types.PICKLED_BYTE_ARRAY()}})
    )
    side = forked.side("side")
    forked.push(Batch([4, 5], stamps and stamps[3:], KINDS[3:]))
    assert records(forked, side) == list(zip([4, 5], times[3:], KINDS[3:], strict=True))


def test_kinds_go_through_columns() -> None:
    stage = one_stage(
        spec(OperatorKind.COLUMNS_FILTER, col("n") > 1, extra={"input_type": ROW}),
        spec(
            OperatorKind.COLUMNS_PROJECT,
            (col("m"),),
            extra={"input_type": ROW, "result_type": Types.TUPLE([Types.LONG()])},
        ),
    )
    stage.push(Batch([Row(n=n, m=-n) for n in range(1, 6)], [1, 2, 3, 4, 5], KINDS))
    ((_, batch),) = [item for item in stepped(stage) if len(item[1])]
    assert isinstance(batch.kinds, np.ndarray)
    assert to_list(batch.kinds) == KINDS[1:]
    assert to_list(batch.timestamps) == [2, 3, 4, 5]
    mapped = one_stage(
        spec(OperatorKind.COLUMNS_MAP, lambda b: b.slice(1), extra={"input_type": ROW, "result_type": ROW})
    )
    mapped.push(Batch([Row(n=1, m=2), Row(n=2, m=2)], None, [INSERT, DELETE]))
    with pytest.raises(ProgramError, match="1 rows came of 2, which are changes"):
        stepped(mapped)


def test_kinds_go_through_watermarks_and_calls() -> None:
    class Number(TimestampAssigner):
        def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
            return int(value)

    assigned = one_stage(
        spec(OperatorKind.WATERMARKS, WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Number()))
    )
    assigned.push(Batch([1, 2, 3], None, KINDS[:3]))
    assert records(assigned) == [(1, 1, INSERT), (2, 2, BEFORE), (3, 3, AFTER)]

    class Double(AsyncFunction[Any, Any]):
        async def async_invoke(self, value: Any) -> list[Any]:
            return [value, value]

    stage = one_stage(calls(Double()))
    assert isinstance(stage, AsyncStage)
    came = threading.Event()
    stage.operator.on_results = came.set
    try:
        stage.push(Batch([1, 2], [10, 20], [AFTER, DELETE]))
        triples: list[Any] = []
        while len(triples) < 4:
            while stage.pending or stage.ready:
                for _, item in stage.step():
                    assert isinstance(item, Batch)
                    triples += zip(item.values, item.timestamps or [], item.kinds or [], strict=True)
            if len(triples) < 4:
                assert came.wait(10)
                came.clear()
        assert triples == [(1, 10, AFTER), (1, 10, AFTER), (2, 20, DELETE), (2, 20, DELETE)]
    finally:
        stage.operator.close()


class KindsOfSigns(ChangelogMapFunction):
    """Rows whose ``n`` is negative are deletes; kinds that came turn into ``m``."""

    def map_changes(self, batch: pa.RecordBatch, kinds: Any, timestamps: Any) -> Any:
        numbers = batch.column(0).to_numpy()
        chosen = np.flatnonzero(numbers != 0)
        before = np.zeros(len(numbers), np.int64) if kinds is None else kinds.astype(np.int64)
        rows = pa.RecordBatch.from_arrays([pa.array(abs(numbers)), pa.array(before)], names=["n", "m"])
        signs = np.where(numbers < 0, DELETE, INSERT).astype(np.int8)
        return rows.take(pa.array(chosen)), signs[chosen], None if timestamps is None else timestamps[chosen]


def test_a_function_of_batches_sets_kinds_and_sees_those_that_came() -> None:
    declared = Types.ROW_NAMED(["n", "m"], [Types.LONG(), Types.LONG()])
    extra = {"input_type": declared, "result_type": declared}
    stage = one_stage(spec(OperatorKind.COLUMNS_MAP, KindsOfSigns(), extra=extra))
    batch = StreamColumns(declared).from_rows(Batch([Row(n=n, m=0) for n in (1, 0, -3)], [1, 2, 3], KINDS[:3]))
    stage.push(batch)
    assert [(tuple(row), stamp, kind) for row, stamp, kind in records(stage)] == [
        ((1, INSERT), 1, INSERT),
        ((3, AFTER), 3, DELETE),
    ]
    assert stage.operators[0].fewer == 1


def calls(function: AsyncFunction[Any, Any], capacity: int = 10, **more: Any) -> OperatorSpec:
    extra = {"ordered": True, "capacity": capacity, "timeout_ms": 0, "retry": None}
    return spec(OperatorKind.ASYNC_WAIT, function, extra=extra, **more)


def test_kinds_of_calls_are_part_of_checkpoints() -> None:
    class Never(AsyncFunction[Any, Any]):
        async def async_invoke(self, value: Any) -> list[Any]:
            raise AssertionError("nothing is begun here")

    operator: Any = create_operator(calls(Never(), capacity=0))
    operator.open(OperatorContext(INFO, ManualClock()))
    try:
        operator.put(Batch(["a"], [1]))
        operator.put(Batch(["b"], None, [DELETE]))
        assert [entry.constructor_arguments for entry in operator._backlog] == [("a", 1), ("b", None, DELETE)]
    finally:
        operator.close()


@pytest.mark.parametrize("columnar", [False, True])
@pytest.mark.parametrize("kind", [k for k in PartitionerKind if k is not PartitionerKind.CUSTOM])
def test_kinds_reach_the_channels(kind: PartitionerKind, columnar: bool) -> None:
    channels = [FakeOutput(number) for number in range(3)]
    output = create_output(
        OutputSpec(0, 0, kind, key_selector=lambda row: row[0]), "op", channels, 128, random.Random(3)
    )
    rows = [Row(n=n, m=0) for n in range(5)]
    batch_in = Batch(rows, [1, 2, 3, 4, 5], KINDS)
    for channel, batch in output.route(NUMBERS.from_rows(batch_in) if columnar else batch_in):
        shipped = MessageReader("test").loads(bytearray(b"".join(MessageWriter().dumps(batch)[0])))
        for row, stamp, row_kind in zip(
            to_rows(shipped).values, to_list(shipped.timestamps) or [], to_list(shipped.kinds) or [], strict=True
        ):
            assert (stamp, row_kind) == (row[0] + 1, KINDS[row[0]])
        assert isinstance(shipped.kinds, np.ndarray) == isinstance(shipped.values, pa.RecordBatch)
        channel.write(shipped)
    copies = 3 if kind is PartitionerKind.BROADCAST else 1
    assert sum(channel.records_out for channel in channels) == 5 * copies


def test_parts_of_columns_with_kinds() -> None:
    whole = NUMBERS.from_rows(Batch([Row(n=n, m=0) for n in range(5)], [1, 2, 3, 4, 5], KINDS))
    again = merge(list(whole.cut(2)))
    assert columns_of(again).equals(columns_of(whole))
    assert (to_list(again.timestamps), to_list(again.kinds)) == ([1, 2, 3, 4, 5], KINDS)


class Count(KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        ctx.timer_service().register_event_time_timer(5)
        yield value

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield "timer"


def test_results_of_timers_are_inserted() -> None:
    stage = one_stage(spec(OperatorKind.KEYED_PROCESS, Count(), key_selectors=(lambda value: value,)))
    stage.push(Batch(["a"], [1], [DELETE]))
    stage.advance(Watermark(5))
    assert records(stage) == [("a", 1, DELETE), ("timer", 5, None)]


@pytest.mark.parametrize(
    "operator",
    [
        spec(OperatorKind.REDUCE, lambda a, b: a, key_selectors=(lambda row: row[0],)),
        spec(OperatorKind.SINK_FUNCTION, lambda value: None),
    ],
)
def test_operators_that_would_take_a_deleted_row_for_an_inserted_one_refuse_it(operator: OperatorSpec) -> None:
    stage = one_stage(operator)
    stage.push(Batch([Row(n=1, m=1)], None, [INSERT]))
    stepped(stage)
    stage.push(Batch([Row(n=1, m=1), Row(n=1, m=1)], None, [INSERT, DELETE]))
    with pytest.raises(ProgramError, match=r"inserted \(\+I\) only, and got Row\(n=1, m=1\) of the kind -D"):
        stepped(stage)


class PlainSink(Sink[Any]):
    """Its writer does not look at kinds of rows."""

    def create_writer(self, context: Any) -> SinkWriter[Any]:
        raise NotImplementedError  # no row gets so far


def test_sinks_that_do_not_look_at_kinds_refuse_deleted_rows() -> None:
    sink = create_operator(spec(OperatorKind.SINK, PlainSink()))
    with pytest.raises(ProgramError, match=r"takes rows that are inserted \(\+I\) only"):
        sink.refuse_changes(Batch([1], None, [DELETE]))


class Gate(AsyncFunction[Any, Any]):
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.opened = threading.Event()

    async def async_invoke(self, value: Any) -> list[Any]:
        import asyncio

        await asyncio.get_running_loop().run_in_executor(None, self.opened.wait, 10)
        return [value]


def test_a_call_behind_a_call_keeps_the_order_when_it_takes_no_more() -> None:
    class Now(AsyncFunction[Any, Any]):
        async def async_invoke(self, value: Any) -> list[Any]:
            return [value]

    gate = Gate()
    chain = ChainSpec([calls(Now()), calls(gate, capacity=1)], [[1], []], [OutputSpec(1, 0, PartitionerKind.FORWARD)])
    plan: ChainPlan = opened(chain)
    out = FakeOutput()
    plan.outlet_of(chain.outputs[0]).outputs.append(SingleOutput("op", [out]))
    executor = executor_of(plan)
    first: Any = plan.operators[0]
    came = threading.Event()
    for stage in plan.async_stages:
        stage.operator.on_results = came.set

    def worked_off(done: Any) -> None:
        while not done():
            came.clear()
            while executor.pending and not executor.blocked:
                executor.step()
            if not done():
                assert came.wait(10)

    try:
        for number in range(3):  # the second call takes one, the others wait in front of it
            executor.feed(Batch([number], [number]))
            executor.step()
            worked_off(lambda: not first._in_flight)
        executor.advance(Watermark(2))
        gate.opened.set()
        worked_off(lambda: executor.empty and not executor.pending)
        assert out.values == [0, 1, 2]
        assert out.elements == [(3, Watermark(2))]
    finally:
        gate.opened.set()
        for operator in plan.operators:
            operator.close()
