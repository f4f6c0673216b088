"""Time in a chain: watermarks behind their records, timers in slices, side outputs, timestamps of results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from firesteel.common import Duration, TimestampAssigner, Types, WatermarkGenerator, WatermarkOutput, WatermarkStrategy
from firesteel.core.errors import ProgramError
from firesteel.functions.functions import (
    CoProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
)
from firesteel.functions.output_tag import OutputTag
from firesteel.functions.timerservice import TimeDomain
from firesteel.graph.specs import ChainSpec, OperatorKind, OperatorSpec, OutputSpec, PartitionerKind
from firesteel.runtime.chain import stages as stages_module
from firesteel.runtime.chain.chain import ChainExecutor, ChainPlan
from firesteel.runtime.chain.partitioners import SingleOutput
from firesteel.runtime.operator_base.side_outputs import SideRecord
from firesteel.runtime.operator_base.timed import TimedTransform
from firesteel.runtime.operators import OPERATORS
from firesteel.runtime.records.batch import MAX_WATERMARK, MIN_WATERMARK, Batch, Watermark
from firesteel.state.backend import Timer
from tests.unit.runtime.support import FakeOutput, ManualClock, executor_of, line, opened, spec

MAP, PROCESS, KEYED_PROCESS = OperatorKind.MAP, OperatorKind.PROCESS, OperatorKind.KEYED_PROCESS


class Chain:
    """A chain with fake outputs behind its last operator, and behind side outputs of operator 0."""

    def __init__(self, chain: ChainSpec, *tags: str) -> None:
        last = len(chain.operators) - 1
        chain.outputs.append(OutputSpec(last, 0, PartitionerKind.FORWARD))
        chain.outputs.extend(OutputSpec(0, n + 1, PartitionerKind.FORWARD, tag=tag) for n, tag in enumerate(tags))
        self.clock = ManualClock()
        self.plan: ChainPlan = opened(chain, self.clock)
        self.out, self.sides = FakeOutput(), {tag: FakeOutput() for tag in tags}
        for output in chain.outputs:
            target = self.out if output.tag is None else self.sides[output.tag]
            self.plan.outlet_of(output).outputs.append(SingleOutput("op", [target]))
        self.executor: ChainExecutor = executor_of(self.plan)

    def run(self) -> None:
        while self.executor.pending:
            self.executor.step()

    def feed(self, values: list[Any], stamps: list[int] | None = None, input_index: int = 0) -> None:
        self.executor.feed(Batch(values, stamps), input_index)
        self.run()

    def advance(self, timestamp: int, idle: bool = False) -> None:
        self.executor.advance(Watermark(timestamp, idle))
        self.run()

    def fire(self, now: int) -> None:
        self.executor.fire(now)
        self.run()


def keyed(function: Any, kind: OperatorKind = KEYED_PROCESS, **more: Any) -> OperatorSpec:
    inputs = 2 if kind is OperatorKind.KEYED_CO_PROCESS else 1
    return spec(kind, function, key_selectors=(lambda value: value[0],) * inputs, **more)


class Alarm(KeyedProcessFunction[str, Any, Any]):
    """A record (key, time) sets a timer; what happens is told."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        timers = ctx.timer_service()
        timers.register_event_time_timer(value[1])
        yield "record", value, ctx.timestamp(), timers.current_watermark()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        watermark = ctx.timer_service().current_watermark()
        yield "timer", ctx.get_current_key(), timestamp, ctx.timestamp(), ctx.time_domain(), watermark


def test_timers_fire_in_order_behind_the_records_before_the_watermark() -> None:
    chain = Chain(line(keyed(Alarm())))
    chain.feed([("a", 30), ("b", 10), ("a", 30), ("a", 10)], [1, 2, 3, 4])
    assert chain.out.elements == []
    chain.advance(9)
    chain.advance(10)
    chain.feed([("c", 5)], [11])
    assert [value[:3] for value in chain.out.values[4:]] == [
        ("timer", "b", 10),
        ("timer", "a", 10),
        ("record", ("c", 5), 11),
    ], "a timer behind the watermark waits for the next one, as in Flink"
    assert chain.out.values[4][3:] == (10, TimeDomain.EVENT_TIME, 10)
    assert chain.out.values[6][3] == 10
    chain.advance(MAX_WATERMARK)
    assert [value[:3] for value in chain.out.values[7:]] == [("timer", "c", 5), ("timer", "a", 30)]
    assert chain.out.timestamps == [1, 2, 3, 4, 10, 10, 11, 5, 30]
    marks = [(4, Watermark(9)), (6, Watermark(10)), (9, Watermark(MAX_WATERMARK))]
    assert chain.out.elements == marks, "a watermark leaves behind what its timers gave"


def test_the_watermark_does_not_change_inside_a_batch() -> None:
    chain = Chain(line(keyed(Alarm())))
    chain.advance(5)
    chain.feed([("a", n) for n in range(3000)], list(range(3000)))
    assert {value[3] for value in chain.out.values} == {5}


def test_a_million_timers_are_worked_off_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def tick() -> float:
        nonlocal now
        now += 0.000_010
        return now

    monkeypatch.setattr(stages_module, "_now", tick)
    fired = 0

    class Quiet(Alarm):
        def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:  # type: ignore[override]
            ctx.timer_service().register_event_time_timer(7)

        def on_timer(self, timestamp: int, ctx: Any) -> None:  # type: ignore[override]
            nonlocal fired
            fired += 1

    chain = Chain(line(keyed(Quiet())))
    count = 20_000
    chain.feed([(key,) for key in range(count)])
    chain.executor.advance(Watermark(7))
    steps = 0
    while chain.executor.pending:
        before = fired
        chain.executor.step()
        assert fired - before <= 250, "a slice ends by the clock although nothing comes out"
        steps += 1
    assert fired == count
    assert steps > 50


def test_a_timer_with_many_results_is_suspended_while_the_output_is_full() -> None:
    pulled = 0

    class Many(Alarm):
        def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
            nonlocal pulled
            for number in range(1_000_000):
                pulled = number
                yield number

    chain = Chain(line(keyed(Many())))
    chain.feed([("a", 1)], [1])
    chain.executor.advance(Watermark(5))
    while len(chain.out.values) < 100:
        chain.executor.step()
    chain.out.writable = False
    while not chain.executor.blocked:
        chain.executor.step()
    assert pulled < 5000
    assert chain.out.elements == []
    chain.executor.drop()
    assert not chain.executor.pending


def test_processing_time_timers_give_results_without_timestamps() -> None:
    class Later(Alarm):
        def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
            timers = ctx.timer_service()
            timers.register_processing_time_timer(timers.current_processing_time() + value[1])
            yield value

    chain = Chain(line(keyed(Later())))
    chain.feed([("a", 20), ("b", 10)], [1, 2])
    assert chain.executor.earliest_timer() == 100_010
    chain.fire(100_009)
    assert len(chain.out.values) == 2
    chain.fire(100_030)
    assert [(value[1], value[3], value[4]) for value in chain.out.values[2:]] == [
        ("b", 100_010, TimeDomain.PROCESSING_TIME),
        ("a", 100_020, TimeDomain.PROCESSING_TIME),
    ]
    assert chain.out.timestamps == [1, 2, None, None]
    assert chain.executor.earliest_timer() is None


def test_timers_set_in_on_timer_fire_with_the_same_watermark() -> None:
    class Chainy(Alarm):
        def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
            yield timestamp
            if timestamp < 50:
                ctx.timer_service().register_event_time_timer(timestamp + 10)

    chain = Chain(line(keyed(Chainy())))
    chain.feed([("a", 10)], [1])
    chain.advance(35)
    assert chain.out.values[1:] == [10, 20, 30]
    chain.advance(100)
    assert chain.out.values[4:] == [40, 50]


def test_on_timer_may_return_nothing_or_a_list_and_its_results_are_fitted() -> None:
    class Listed(Alarm):
        def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:  # type: ignore[override]
            ctx.timer_service().register_event_time_timer(value[1])

        def on_timer(self, timestamp: int, ctx: Any) -> Any:
            return {1: None, 2: [1], 3: 5}[timestamp]

    chain = Chain(line(keyed(Listed(), output_type=Types.DOUBLE())))
    chain.feed([("a", 1), ("a", 2)])
    chain.advance(2)
    assert repr(chain.out.values) == "[1.0]"
    chain.feed([("a", 3)])
    with pytest.raises(ProgramError, match="on_timer returned 5"):
        chain.advance(3)


class Both(KeyedCoProcessFunction[str, Any, Any, Any]):
    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterator[Any]:
        ctx.timer_service().register_event_time_timer(value[1])
        yield 1, value, ctx.timestamp(), ctx.get_current_key()

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterator[Any]:
        ctx.timer_service().delete_event_time_timer(value[1])
        yield 2, value

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield ctx.get_current_key(), timestamp, ctx.time_domain()


def test_both_sides_of_a_keyed_co_process_function_share_timers() -> None:
    chain = Chain(line(keyed(Both(), OperatorKind.KEYED_CO_PROCESS)))
    chain.feed([("a", 10), ("b", 10)], [1, 2], 0)
    chain.feed([("a", 10)], [3], 1)
    chain.advance(10)
    assert chain.out.values == [
        (1, ("a", 10), 1, "a"),
        (1, ("b", 10), 2, "b"),
        (2, ("a", 10)),
        ("b", 10, TimeDomain.EVENT_TIME),
    ]


class SetsTimer(ProcessFunction[Any, Any]):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        timers = ctx.timer_service()
        yield timers.current_watermark(), timers.current_processing_time()
        getattr(timers, value)(5)


class CoSetsTimer(CoProcessFunction[Any, Any, Any]):
    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any]:
        ctx.timer_service().register_event_time_timer(5)
        return []

    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any]:
        return [ctx.timer_service().current_watermark()]


@pytest.mark.parametrize("kind", ["register", "delete"])
@pytest.mark.parametrize("domain", ["event", "processing"])
def test_functions_without_keys_read_the_time_and_set_no_timers(kind: str, domain: str) -> None:
    chain = Chain(line(spec(PROCESS, SetsTimer(), name="op")))
    chain.advance(8)
    what = "Setting" if kind == "register" else "Deleting"
    chain.executor.feed(Batch([f"{kind}_{domain}_time_timer"]))
    chain.executor.step()
    with pytest.raises(ProgramError, match=f"{what} timers is only supported on keyed streams.*'op'"):
        chain.run()
    assert chain.out.values == [(8, 100_000)]


@pytest.mark.parametrize("kind", [OperatorKind.CO_PROCESS, OperatorKind.KEYED_CO_PROCESS])
def test_co_process_functions_set_no_timers(kind: OperatorKind) -> None:
    operator = spec(kind, CoSetsTimer()) if kind is OperatorKind.CO_PROCESS else keyed(CoSetsTimer(), kind)
    chain = Chain(line(operator))
    chain.feed(["a"], None, 1)
    assert chain.out.values == [MIN_WATERMARK]
    with pytest.raises(ProgramError, match="Setting timers is only supported on keyed streams"):
        chain.feed(["a"], None, 0)


# --- forks and order -----------------------------------------------------------------------------------------------


def test_watermarks_go_down_every_branch_behind_the_records() -> None:
    operators = [spec(MAP, str), spec(OperatorKind.FLAT_MAP, lambda text: [text] * 3), spec(MAP, str)]
    chain = ChainSpec(operators, [[1, 2], [], []], [])
    chain.outputs = [OutputSpec(n, n, PartitionerKind.FORWARD) for n in range(3)]
    plan = opened(chain)
    outs = [FakeOutput() for _ in range(3)]
    for output, out in zip(chain.outputs, outs, strict=True):
        plan.outlet_of(output).outputs.append(SingleOutput("op", [out]))
    executor = executor_of(plan)
    for step in range(3):
        executor.feed(Batch(list(range(10))))
        while executor.pending:
            executor.step()
        executor.advance(Watermark(step, idle=step == 1))
        while executor.pending:
            executor.step()
    for out, factor in zip(outs, (1, 3, 1), strict=True):
        assert out.elements == [
            (10 * factor, Watermark(0)),
            (20 * factor, Watermark(1, idle=True)),
            (30 * factor, Watermark(2)),
        ]
    assert executor.output_watermark == 2


# --- assigning -----------------------------------------------------------------------------------------------------


class Itself(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value  # type: ignore[no-any-return]


class Punctuated(WatermarkGenerator):
    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        if event % 10 == 0:
            output.emit_watermark(event_timestamp)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        output.emit_watermark(10_000)


def watermarks(strategy: WatermarkStrategy) -> OperatorSpec:
    return spec(OperatorKind.WATERMARKS, strategy)


def test_periodic_watermarks_stay_one_below_the_latest_timestamp() -> None:
    bounded = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(20))
    chain = Chain(line(spec(MAP, int), watermarks(bounded.with_timestamp_assigner(Itself())), spec(MAP, int)))
    chain.feed([50, 100, 70])
    assert chain.out.timestamps == [50, 100, 70]
    assert chain.out.elements == []
    chain.executor.emit_watermarks()
    chain.run()
    chain.executor.emit_watermarks()
    chain.run()
    assert chain.out.elements == [(3, Watermark(79))], "once"
    chain.advance(500)
    assert len(chain.out.elements) == 1, "watermarks from upstream end here"
    chain.advance(MAX_WATERMARK)
    assert chain.out.elements[1:] == [(3, Watermark(MAX_WATERMARK))]


def test_a_punctuated_generator_ends_the_batch_where_it_emits() -> None:
    strategy = WatermarkStrategy.for_generator(Punctuated).with_timestamp_assigner(Itself())
    chain = Chain(line(watermarks(strategy), spec(MAP, int)))
    chain.feed(list(range(1, 35)))
    assert chain.out.values == list(range(1, 35))
    assert chain.out.timestamps == list(range(1, 35))
    assert chain.out.elements == [(10, Watermark(10)), (20, Watermark(20)), (30, Watermark(30))]
    chain.executor.emit_watermarks()
    chain.run()
    assert chain.out.elements[3:] == [(34, Watermark(10_000))]


@pytest.mark.parametrize("wrong", ["5", 1.5, None, True])
def test_a_timestamp_that_is_no_int_is_refused(wrong: Any) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Itself())
    chain = Chain(line(watermarks(strategy)))
    with pytest.raises(ProgramError, match="a timestamp is an int of milliseconds"):
        chain.feed([1, wrong])


def test_a_timestamp_beyond_64_bits_is_refused() -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Itself())
    with pytest.raises(ProgramError, match="has to fit into 64 bits"):
        Chain(line(watermarks(strategy))).feed([1, 2**63])


# --- side outputs --------------------------------------------------------------------------------------------------

TAG = OutputTag("side", Types.DOUBLE())


class Sides(ProcessFunction[Any, Any]):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield value
        yield TAG, value
        yield OutputTag("unread"), value
        yield ("just", "a pair")


def test_side_outputs_leave_apart_with_their_timestamps() -> None:
    chain = Chain(line(spec(PROCESS, Sides(), extra={"side_outputs": {"side": Types.DOUBLE()}})), "side")
    chain.feed([1, 2], [10, 20])
    chain.advance(30)
    assert chain.out.values == [1, ("just", "a pair"), 2, ("just", "a pair")]
    assert chain.out.timestamps == [10, 10, 20, 20]
    assert [repr(value) for value in chain.sides["side"].values] == ["1.0", "2.0"], "fitted to the tag's type"
    assert chain.sides["side"].timestamps == [10, 20]
    assert chain.sides["side"].elements == [(2, Watermark(30))]


def test_unread_tags_are_dropped_even_if_nothing_is_read() -> None:
    chain = Chain(line(spec(PROCESS, Sides(), output_type=None)))
    chain.feed([1, 2])
    assert chain.out.values == [1, ("just", "a pair"), 2, ("just", "a pair")]


def test_a_tag_of_another_type_is_refused_where_it_is_used() -> None:
    chain = Chain(line(spec(PROCESS, Sides(), extra={"side_outputs": {"side": Types.LONG()}})), "side")
    with pytest.raises(ProgramError, match="side output 'side' with the type Double, but it has the type Long"):
        chain.feed([1])


def test_timers_have_side_outputs() -> None:
    class Noisy(Alarm):
        def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
            yield TAG, timestamp / 4

    chain = Chain(line(keyed(Noisy(), extra={"side_outputs": {"side": Types.DOUBLE()}})), "side")
    chain.feed([("a", 10)], [1])
    chain.advance(10)
    assert chain.sides["side"].values == [2.5]
    assert chain.sides["side"].timestamps == [10]


def test_without_tags_results_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firesteel.functions.output_tag._tags_exist", False)
    chain = Chain(line(spec(PROCESS, SetsTimer()), spec(MAP, str)))
    operator: Any = chain.plan.operators[0]
    assert operator.tagged is False
    assert operator.coerce is None


# --- operators that set timestamps themselves ------------------------------------------------------------------------


class Window(TimedTransform):
    """Gives results with timestamps of its own, and late records apart."""

    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        for value in self.with_keys(records, input_index):
            before = self.stamp.value
            if value[1] == "late":
                yield SideRecord("late", value)
            elif value[1] == "plain":
                yield before
            else:
                self.stamp.value = 1000 + value[1]
                self.timers.register_event_time_timer("window", value[1])
                yield before

    def on_event_time(self, timer: Timer) -> Iterator[Any]:
        yield timer
        self.stamp.value = None
        yield "no timestamp"

    def on_processing_time(self, timer: Timer) -> Iterator[Any]:
        yield timer


def test_results_carry_the_timestamps_that_an_operator_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPERATORS, OperatorKind.KEYED_MAP, Window)
    window = spec(OperatorKind.KEYED_MAP, None, key_selectors=(lambda value: value[0],))
    chain = Chain(line(window), "late")
    chain.feed([("a", 1), ("a", "plain"), ("a", "late"), ("a", 2)])
    assert chain.out.values == [None, None, None], "what it set for one record is not seen by the next"
    assert chain.out.timestamps == [1001, None, 1002]
    assert chain.sides["late"].values == [("a", "late")]
    chain.advance(1)
    assert chain.out.values[3:] == [Timer(1, "a", "window"), "no timestamp"]
    assert chain.out.timestamps[3:] == [1, None]
