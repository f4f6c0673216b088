"""Windows and joins in the API: the operators that come of them, and what is refused."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from firesteel.common import Time, Types, WatermarkStrategy
from firesteel.common.time import Duration
from firesteel.core.errors import GraphError, UnsupportedFeatureError
from firesteel.datastream import DataStream, OutputTag, StreamExecutionEnvironment
from firesteel.datastream.functions import (
    AggregateFunction,
    AllWindowFunction,
    CoGroupFunction,
    FlatJoinFunction,
    JoinFunction,
    ProcessAllWindowFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    SourceFunction,
    WindowFunction,
)
from firesteel.datastream.window import (
    CountEvictor,
    CountSlidingWindowAssigner,
    CountTrigger,
    CountTumblingWindowAssigner,
    DeltaTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from firesteel.graph.specs import OperatorKind, PartitionerKind
from firesteel.windowing.spec import WindowGathering
from tests.unit.datastream.fakes import environment

SECOND = TumblingEventTimeWindows.of(Time.seconds(1))
CLOCK = TumblingProcessingTimeWindows.of(Time.seconds(1))
SESSIONS = EventTimeSessionWindows.with_gap(Time.seconds(1))
STRATEGY = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1))
TAG: OutputTag[Any] = OutputTag("late", Types.TUPLE([Types.STRING(), Types.INT()]))


def _anything(value: Any) -> Any:
    """Hides the type from the type checker."""
    return value


class Sum(AggregateFunction[Any, Any, Any]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + int(value[1])

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class Apply(WindowFunction[Any, Any, Any, Any]):
    def apply(self, key: Any, window: Any, inputs: Any) -> Any: ...


class Process(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any: ...


class Silent(SourceFunction[Any]):
    def run(self, ctx: Any) -> None:
        ctx.collect_with_timestamp(1, 1)

    def cancel(self) -> None:
        pass


class Speaks(Silent):
    def run(self, ctx: Any) -> None:
        ctx.emit_watermark(1)


class ApplyAll(AllWindowFunction[Any, Any, Any]):
    def apply(self, window: Any, inputs: Any) -> Any: ...


class ProcessAll(ProcessAllWindowFunction[Any, Any, Any]):
    def process(self, context: Any, elements: Any) -> Any: ...


class Pairs(ProcessJoinFunction[Any, Any, Any]):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Any: ...


@pytest.fixture
def timed(pairs: DataStream) -> DataStream:
    return pairs.assign_timestamps_and_watermarks(STRATEGY)


@pytest.fixture
def keyed(timed: DataStream) -> Any:
    return timed.key_by(lambda pair: pair[0], Types.STRING())


def window_operator(stream: DataStream) -> Any:
    return stream._inputs[0].source


def test_reduce(keyed: Any) -> None:
    stream = keyed.window(SECOND).allowed_lateness(5).side_output_late_data(TAG).reduce(lambda a, b: a)
    operator = window_operator(stream)
    assert (operator.name, operator.kind) == ("WINDOW", OperatorKind.ALIGNED_WINDOW)
    assert stream.get_type() == keyed._record_type == operator.coerce_to
    spec = operator.function
    assert (spec.allowed_lateness, spec.late_tag, spec.gathering) == (5, TAG, WindowGathering.REDUCE)
    assert isinstance(spec.trigger, EventTimeTrigger)
    assert operator.key_selectors == (keyed._key_selector,)
    assert [i.partitioner for i in operator.inputs[0]] == [PartitionerKind.HASH]
    assert stream.get_side_output(TAG).get_type() == keyed._record_type


def test_types_of_results(keyed: Any) -> None:
    windowed = keyed.window(SECOND)
    assert windowed.get_input_type() == keyed._record_type
    assert windowed.get_execution_environment() is keyed.get_execution_environment()
    assert windowed.reduce(lambda a, b: a, Process()).get_type() == Types.PICKLED_BYTE_ARRAY()
    assert windowed.aggregate(Sum(), output_type=Types.LONG()).get_type() == Types.LONG()
    assert windowed.aggregate(Sum(), Apply(), Types.LONG(), Types.INT()).get_type() == Types.INT()
    assert windowed.apply(Apply(), Types.INT()).get_type() == windowed.process(Process(), Types.INT()).get_type()


@pytest.mark.parametrize(
    ("change", "aligned"),
    [
        (lambda w: w, True),
        (lambda w: w.trigger(EventTimeTrigger()), True),
        (lambda w: w.trigger(PurgingTrigger.of(EventTimeTrigger())), False),
        (lambda w: w.trigger(CountTrigger.of(5)), False),
        (lambda w: w.evictor(CountEvictor.of(5)), False),
    ],
)
def test_windows_that_fire_at_their_end_have_operators_of_their_own(keyed: Any, change: Any, aligned: bool) -> None:
    kind = OperatorKind.ALIGNED_WINDOW if aligned else OperatorKind.WINDOW
    assert window_operator(change(keyed.window(SECOND)).process(Process())).kind is kind
    sessions = window_operator(change(keyed.window(SESSIONS)).process(Process()))
    assert sessions.kind is (OperatorKind.SESSION_WINDOW if aligned else OperatorKind.WINDOW)


def test_count_windows(keyed: Any, pairs: DataStream) -> None:
    tumbling, sliding = (
        window_operator(w.apply(Apply())).function for w in (keyed.count_window(3), keyed.count_window(3, 2))
    )
    assert isinstance(tumbling.assigner, CountTumblingWindowAssigner)
    assert isinstance(sliding.assigner, CountSlidingWindowAssigner)
    assert repr(tumbling.trigger) == "PurgingTrigger(CountTrigger(3))"
    assert window_operator(pairs.count_window_all(3).apply(ApplyAll())).parallelism == 1


def test_windows_over_the_whole_stream_run_in_one_subtask(timed: DataStream) -> None:
    stream = timed.window_all(SECOND).process(ProcessAll(), Types.STRING())
    operator = window_operator(stream)
    assert (operator.name, operator.parallelism, operator.non_parallel) == ("WINDOW_ALL", 1, True)
    with pytest.raises(GraphError, match=r"parallelism|parallel"):
        stream.set_parallelism(2)
    for windowed in (timed.window_all(SECOND), timed.key_by(lambda p: p[0]).window_all(SECOND)):
        assert window_operator(windowed.reduce(lambda a, b: a, ApplyAll())).function.gathering is WindowGathering.REDUCE
        assert window_operator(windowed.aggregate(Sum(), ProcessAll())).function.gathering is WindowGathering.AGGREGATE


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        (lambda s: s.window(SECOND), GraphError, r"window\(\) belongs to keyed streams: .*window_all\(\)"),
        (lambda s: s.count_window(5), GraphError, r"count_window\(\) belongs to keyed streams"),
        (lambda s: s.interval_join(s), GraphError, r"interval_join\(\) belongs to keyed streams"),
        (lambda s: s.window_all(TumblingEventTimeWindows), TypeError, r"leave out \.of"),
        (lambda s: s.window_all(5), TypeError, "made by a WindowAssigner, not 5"),
        (lambda s: s.window_all(SESSIONS).trigger(NeverTrigger()), TypeError, "does not support merging"),
        (lambda s: s.window_all(SECOND).apply(Apply()), TypeError, "AllWindowFunction, not Apply .*different classes"),
    ],
)
def test_refused_on_streams_without_keys(timed: DataStream, build: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        build(timed)


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        (lambda k: k.window(SESSIONS).trigger(DeltaTrigger.of(1, lambda a, b: 1)), TypeError, "support merging"),
        (lambda k: k.window(SECOND).trigger(EventTimeTrigger), TypeError, "takes a Trigger"),
        (lambda k: k.window(SECOND).evictor(CountEvictor), TypeError, "takes an Evictor"),
        (lambda k: k.window(SECOND).allowed_lateness(-1), ValueError, "at least 0"),
        (lambda k: k.window(SECOND).allowed_lateness("1 s"), TypeError, "is a Time, Duration or"),
        (lambda k: k.window(SECOND).side_output_late_data("late"), TypeError, "takes an OutputTag"),
        (lambda k: k.window(CLOCK).allowed_lateness(5).apply(Apply()), GraphError, "allowed_lateness.*event-time"),
        (lambda k: k.window(CLOCK).side_output_late_data(TAG).apply(Apply()), GraphError, "side_output_late_data"),
        (lambda k: k.window(SECOND).reduce(5), TypeError, "reduce"),
        (lambda k: k.window(SECOND).reduce(lambda a, b: a, ApplyAll()), TypeError, "WindowFunction, not ApplyAll"),
        (lambda k: k.window(SECOND).reduce(lambda a, b: a, lambda k, w, i: i), TypeError, "WindowFunction"),
        (lambda k: k.window(SECOND).aggregate(lambda a, b: a), TypeError, "AggregateFunction"),
        (lambda k: k.window(SECOND).aggregate(Sum), TypeError, r"write Sum\(\)"),
        (lambda k: k.window(SECOND).aggregate(Sum(), accumulator_type=int), TypeError, "accumulator_type"),
        (lambda k: k.window(SECOND).apply(Process()), TypeError, "WindowFunction, not Process .*different classes"),
        (lambda k: k.window(SECOND).process(Process(), "INT"), TypeError, "output_type"),
        (lambda k: k.count_window(0), ValueError, "at least 1"),
        (lambda k: k.count_window(5, -1), ValueError, "at least 0"),
        (lambda k: CountTrigger.of(0), ValueError, "at least 1"),
        (lambda k: PurgingTrigger.of(_anything(5)), TypeError, "takes a Trigger"),
        (lambda k: DeltaTrigger.of(1, _anything(5)), TypeError, "delta function"),
    ],
)
def test_refused_on_keyed_streams(keyed: Any, build: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        build(keyed)


def test_a_late_tag_has_one_type(keyed: Any) -> None:
    stream = keyed.window(SECOND).side_output_late_data(TAG).process(Process())
    with pytest.raises(GraphError, match=r"'late' .*has the type"):
        stream.get_side_output(OutputTag("late", Types.INT()))


class TestWarnings:
    """Event-time windows that will never fire."""

    @pytest.mark.parametrize(
        ("make", "warns"),
        [
            (lambda s: s, True),
            (lambda s: s.map(lambda v: v), True),
            (lambda s: s.assign_timestamps_and_watermarks(WatermarkStrategy.no_watermarks()), True),
            (lambda s: s.assign_timestamps_and_watermarks(STRATEGY).map(lambda v: v), False),
            (lambda s: s.map(lambda v: v).union(s.map(lambda v: v).assign_timestamps_and_watermarks(STRATEGY)), True),
            (
                lambda s: (
                    s.assign_timestamps_and_watermarks(STRATEGY).key_by(lambda v: v[0]).count_window(1).apply(Apply())
                ),
                False,
            ),
        ],
    )
    def test_windows(self, env: StreamExecutionEnvironment, make: Any, warns: bool, caplog: Any) -> None:
        stream = make(env.from_collection([("a", 1)]))
        with caplog.at_level(logging.WARNING):
            stream.key_by(lambda value: value[0]).window(SECOND).apply(Apply())
            stream.window_all(SESSIONS).apply(ApplyAll())
        assert len(caplog.records) == (2 if warns else 0)
        if warns:
            assert "no watermarks come from" in caplog.text
            assert "TumblingEventTimeWindows(1000, 0)" in caplog.text
            assert "Source: Collection Source" in caplog.text or "Timestamps/Watermarks" in caplog.text

    @pytest.mark.parametrize("function", [Speaks(), Silent()])
    def test_of_a_source_function(self, env: StreamExecutionEnvironment, function: Any, caplog: Any) -> None:
        with caplog.at_level(logging.WARNING):
            env.add_source(function).window_all(SESSIONS).apply(ApplyAll())
        assert len(caplog.records) == (type(function) is Silent)

    def test_not_for_processing_time_and_counts(self, pairs: DataStream, caplog: Any) -> None:
        with caplog.at_level(logging.WARNING):
            pairs.key_by(lambda value: value[0]).window(CLOCK).apply(Apply())
            pairs.key_by(lambda value: value[0]).count_window(5).apply(Apply())
            pairs.window_all(GlobalWindows.create()).apply(ApplyAll())
        assert not caplog.records

    def test_joins(self, pairs: DataStream, caplog: Any) -> None:
        keyed = pairs.key_by(lambda value: value[0])
        with caplog.at_level(logging.WARNING):
            keyed.interval_join(keyed).between(Time.seconds(0), Time.seconds(1)).process(Pairs())
            pairs.join(pairs).where(lambda v: v[0]).equal_to(lambda v: v[0]).window(SECOND).apply(lambda a, b: a)
        assert ["an interval join" in r.getMessage() for r in caplog.records] == [True, True, False]


class First(JoinFunction[Any, Any, Any]):
    def join(self, first: Any, second: Any) -> Any: ...


class Flat(FlatJoinFunction[Any, Any, Any]):
    def join(self, first: Any, second: Any) -> Any: ...


class Groups(CoGroupFunction[Any, Any, Any]):
    def co_group(self, first: Any, second: Any) -> Any: ...


@pytest.mark.parametrize("function", [First(), Flat(), lambda a, b: a])
def test_join(timed: DataStream, function: Any) -> None:
    windowed = timed.join(timed).where(lambda v: v[0]).equal_to(lambda v: v[0]).window(SECOND)
    windowed.trigger(ProcessingTimeTrigger()).evictor(CountEvictor.of(5)).allowed_lateness(3)
    stream = windowed.side_output_late_data(OutputTag("late")).apply(function, Types.STRING())
    operator = window_operator(stream)
    assert (operator.name, operator.kind) == ("Join", OperatorKind.WINDOW)
    assert operator.function.allowed_lateness == 3
    assert len(operator.inputs[0]) == 2
    assert stream.get_type() == Types.STRING()


def test_marking_the_sides_of_a_join_needs_no_exchange(env: StreamExecutionEnvironment, pairs: DataStream) -> None:
    wide = env.from_sequence(1, 5).map(lambda v: (v, v)).set_parallelism(3).assign_timestamps_and_watermarks(STRATEGY)
    wide.set_parallelism(3)
    parallel_once = pairs.assign_timestamps_and_watermarks(STRATEGY).set_parallelism(1)
    stream = wide.co_group(parallel_once).where(lambda v: v[0]).equal_to(lambda v: v[0]).window(SECOND).apply(Groups())
    assert window_operator(stream).name == "CoGroup"
    assert [i.source.parallelism for i in window_operator(stream).inputs[0]] == [3, 1]


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        (lambda s: s.join(5), TypeError, r"join\(\) takes a DataStream, not int"),
        (lambda s: s.join(environment().from_collection([1])), GraphError, "different environments"),
        (lambda s: s.join(s).window(SECOND), GraphError, r"a\.join\(b\)\.window.*lacks the keys"),
        (lambda s: s.co_group(s).window(SECOND), GraphError, r"a\.co_group\(b\)\.window.*lacks the keys"),
        (lambda s: s.join(s).where(lambda v: v).window(SECOND), GraphError, "lacks the key of the second stream"),
        (lambda s: s.join(s).where(5), TypeError, "key_selector"),
        (lambda s: s.join(s).where(lambda v: v).equal_to(5), TypeError, "key_selector"),
        (lambda s: s.join(s).where(lambda v: v).equal_to(lambda v: v).apply(First()), GraphError, "needs windows"),
        (lambda s: both(s.join(s)).window(5), TypeError, "WindowAssigner"),
        (lambda s: both(s.join(s)).window(SECOND).apply(5), TypeError, "apply"),
        (lambda s: both(s.join(s)).window(SESSIONS).trigger(NeverTrigger()), TypeError, "support merging"),
        (lambda s: both(s.co_group(s)).window(SECOND).apply(First), TypeError, r"write First\(\)"),
    ],
)
def test_joins_that_are_refused(timed: DataStream, build: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        build(timed)


def both(streams: Any) -> Any:
    return streams.where(lambda v: v[0]).equal_to(lambda v: v[0])


def test_interval_join(keyed: Any) -> None:
    joined = keyed.interval_join(keyed).in_event_time().between(Time.seconds(-1), Time.seconds(2))
    joined.lower_bound_exclusive().upper_bound_exclusive().side_output_left_late_data(TAG)
    stream = joined.process(Pairs(), Types.STRING())
    operator = window_operator(stream)
    assert (operator.name, operator.kind, len(operator.inputs)) == ("Interval Join", OperatorKind.INTERVAL_JOIN, 2)
    assert (operator.extra["lower"], operator.extra["upper"]) == (-999, 1999)
    assert operator.extra["late_tags"] == (TAG, None)
    assert (stream.get_type(), stream.get_side_output(TAG).get_type()) == (Types.STRING(), TAG.type_info)


SPAN = (Time.seconds(0), Time.seconds(1))


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        (lambda k: k.interval_join(k.map(lambda v: v)), GraphError, "two keyed streams"),
        (lambda k: k.interval_join(5), TypeError, "takes a DataStream"),
        (lambda k: k.interval_join(k).process(Pairs()), GraphError, r"lacks the interval.*between"),
        (lambda k: k.interval_join(k).in_processing_time(), UnsupportedFeatureError, "only supported in event time"),
        (lambda k: k.interval_join(k).between(*reversed(SPAN)), ValueError, "1000 ms is above the upper bound 0 ms"),
        (lambda k: k.interval_join(k).between(0, 5), TypeError, "the lower bound of between.*is a Time"),
        (lambda k: k.interval_join(k).between(*SPAN).process(Process()), TypeError, "ProcessJoinFunction"),
        (lambda k: k.interval_join(k).between(*SPAN).side_output_right_late_data(5), TypeError, "OutputTag"),
        (
            lambda k: k.interval_join(k).between(SPAN[0], SPAN[0]).lower_bound_exclusive().process(Pairs()),
            ValueError,
            "leaves no time between them",
        ),
    ],
)
def test_interval_joins_that_are_refused(keyed: Any, build: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        build(keyed)


def test_a_late_tag_of_another_type_is_refused() -> None:
    env = environment()
    typed = env.from_collection([("a", 1)], Types.TUPLE([Types.STRING(), Types.INT()]))
    windows = typed.key_by(lambda pair: pair[0]).window(TumblingEventTimeWindows(10))
    with pytest.raises(GraphError, match="tag 'late' is of type String, and records that come too late are"):
        windows.side_output_late_data(OutputTag("late", Types.STRING()))
    windows.side_output_late_data(OutputTag("late", Types.TUPLE([Types.STRING(), Types.INT()])))
    windows.side_output_late_data(OutputTag("late"))
    untyped = env.from_collection([("a", 1)]).key_by(lambda pair: pair[0]).window(TumblingEventTimeWindows(10))
    untyped.side_output_late_data(OutputTag("late", Types.STRING()))
