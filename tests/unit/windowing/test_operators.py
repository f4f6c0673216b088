"""What the operators of windows do beside what the oracle looks at: clocks, custom parts, contexts, state, errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from firesteel.common.typeinfo import Types
from firesteel.core.errors import ProgramError
from firesteel.datastream.functions import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    ReduceFunction,
    WindowFunction,
)
from firesteel.datastream.state import ListStateDescriptor, ReducingStateDescriptor, ValueStateDescriptor
from firesteel.datastream.window import (
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    CountSlidingWindowAssigner,
    CountTrigger,
    CountTumblingWindowAssigner,
    DeltaEvictor,
    DeltaTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    Evictor,
    GlobalWindows,
    MergingWindowAssigner,
    NeverTrigger,
    ProcessingTimeSessionWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeEvictor,
    TimeWindow,
    TimeWindowSerializer,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from firesteel.graph.specs import OperatorKind
from firesteel.runtime.operator_base.context import TaskInfo
from firesteel.runtime.operator_base.failures import find_site
from firesteel.runtime.operator_base.keyed_base import state_parameters
from firesteel.state.backend import load_state_backend
from firesteel.state.keys import NO_KEY
from firesteel.state.snapshots import Purpose
from firesteel.testing.snapshots import take_snapshot
from firesteel.windowing.assigners import WindowAssigner
from tests.unit.windowing.harness import Clock, Everything, Out, Rig, Sum, spec_of

KINDS = pytest.mark.parametrize("kind", [OperatorKind.WINDOW, OperatorKind.ALIGNED_WINDOW])


def emitted(rig: Rig, *numbers: int, key: str = "a", at: int | None = None) -> list[Any]:
    return [out.value for out in rig.records([((key, number), at) for number in numbers])]


def test_tumbling_processing_time_windows_fire_when_the_clock_passes_their_end() -> None:
    rig = Rig(spec_of(TumblingProcessingTimeWindows(10), None, "reduce"))
    rig.time(3)
    assert emitted(rig, 1, 2) == []
    rig.time(9)
    assert rig.time(9) == []  # fired before
    assert rig.entries == 0
    rig.time(12)
    emitted(rig, 5)
    assert rig.time(100) == [Out(("a", (10, 20), [("a", 5)]), 19)]
    assert rig.entries == 0


def test_results_of_a_processing_time_window_have_its_last_millisecond() -> None:
    rig = Rig(spec_of(TumblingProcessingTimeWindows(10), None, "all"))
    rig.time(3)
    emitted(rig, 1, 2)
    emitted(rig, 7, key="b")
    assert rig.time(8) == []
    assert rig.time(9) == [Out(("a", (0, 10), [("a", 1), ("a", 2)]), 9), Out(("b", (0, 10), [("b", 7)]), 9)]


def test_a_record_is_in_all_sliding_processing_time_windows_of_its_moment() -> None:
    rig = Rig(spec_of(SlidingProcessingTimeWindows(10, 5, 0), None, "aggregate"))
    rig.time(7)
    emitted(rig, 4)
    assert [out.value for out in rig.time(50)] == [("a", (0, 10), [(4, 1)]), ("a", (5, 15), [(4, 1)])]


def test_a_processing_time_session_ends_after_its_gap() -> None:
    rig = Rig(spec_of(ProcessingTimeSessionWindows(10), None, "all"))
    for now, number in ((0, 1), (6, 2), (14, 3)):
        assert rig.time(now) == []
        emitted(rig, number)
    assert rig.time(22) == []
    assert [out.value for out in rig.time(23)] == [("a", (0, 24), [("a", 1), ("a", 2), ("a", 3)])]
    assert rig.entries == 0


def test_a_continuous_trigger_fires_at_each_interval_of_the_clock_and_at_the_end() -> None:
    rig = Rig(spec_of(TumblingProcessingTimeWindows(25), ContinuousProcessingTimeTrigger(10), "reduce"))
    rig.time(3)
    emitted(rig, 1)
    assert [out.value[2] for out in rig.time(12)] == [[("a", 1)]]
    emitted(rig, 1)
    assert [(out.value[2], out.timestamp) for out in rig.time(60)] == [([("a", 2)], 24)] * 2  # at 20 and at 24
    assert rig.entries == 0


def with_backend(name: str, folder: Path) -> Callable[[Any], None]:
    """Has an operator keep its state there."""

    def use(operator: Any) -> None:
        info = TaskInfo("1" * 32, "job", "v_0_0", "WINDOW", 0, 1, 128, 0)
        parameters = state_parameters(operator.spec, info, Clock(), 1, str(folder))
        operator.use_backend(load_state_backend(name), parameters)

    return use


def entries_in(rig: Rig) -> int:
    """Entries of all states and timers that a savepoint has."""
    rig.operator.keyed.key = NO_KEY
    return sum(
        chunk.count for chunk in take_snapshot(rig.operator.keyed.snapshot(purpose=Purpose(canonical=True))).chunks
    )


COUNTED: list[tuple[WindowAssigner[Any, Any], int]] = [
    (CountTumblingWindowAssigner(3), 6),
    (CountSlidingWindowAssigner(3, 3), 6),
    (CountSlidingWindowAssigner(2, 5), 10),
]
"""Count windows, and the number of records that fill some and leave none open."""


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("gathering", ["all", "reduce", "aggregate"])
@pytest.mark.parametrize(("assigner", "records"), COUNTED, ids=repr)
def test_count_windows_that_are_full_leave_nothing_behind(
    assigner: WindowAssigner[Any, Any], records: int, gathering: str, backend: str, tmp_path: Path
) -> None:
    rig = Rig(spec_of(assigner, None, gathering), before_open=with_backend(backend, tmp_path))
    try:
        for number in range(records - 1):
            for key in ("a", "b", "c"):
                emitted(rig, number, key=key)
        assert entries_in(rig) > 0
        for key in ("a", "b", "c"):
            emitted(rig, records - 1, key=key)
        assert entries_in(rig) == 0
        assert sum(len(emitted(rig, number)) for number in range(records)) == 2, "the next windows are whole"
    finally:
        rig.operator.close()


class Numbered(ProcessWindowFunction[Any, Any, Any, Any]):
    """How many windows have used the state of this one."""

    def process(self, key: Any, context: ProcessWindowFunction.Context[Any], elements: Any) -> Any:
        state = context.window_state().get_state(ValueStateDescriptor("windows", Types.LONG()))
        state.update((state.value() or 0) + 1)
        yield context.window().id, state.value()


def test_count_windows_with_state_of_their_own_are_numbered_on() -> None:
    rig = Rig(spec_of(CountTumblingWindowAssigner(2), None, "all", window_function=Numbered()))
    assert emitted(rig, 1, 2, 3, 4, 5, 6) == [(0, 1), (1, 1), (2, 1)]


def test_count_windows_with_another_trigger_are_numbered_on() -> None:
    """They are never thrown away: records of a second window 0 would come to those of the first."""
    rig = Rig(spec_of(CountTumblingWindowAssigner(2), CountTrigger(2), "all"))
    assert emitted(rig, 1, 2, 3, 4) == [("a", 0, [("a", 1), ("a", 2)]), ("a", 1, [("a", 3), ("a", 4)])]


class OncePerWindow(Trigger[Any, Any]):
    """Fires and throws the records away, once for each number of a window; it remembers for which."""

    fired = ValueStateDescriptor("fired", Types.BOOLEAN())

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        fired: Any = ctx.get_partitioned_state(self.fired)
        if fired.value():
            return TriggerResult.CONTINUE
        fired.update(True)
        return TriggerResult.FIRE_AND_PURGE

    def on_processing_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        raise AssertionError

    on_event_time = on_processing_time

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        raise AssertionError

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        raise AssertionError


def test_count_windows_with_a_trigger_that_purges_and_remembers_are_numbered_on() -> None:
    rig = Rig(spec_of(CountTumblingWindowAssigner(1), OncePerWindow(), "all"))
    assert emitted(rig, 1, 2, 3) == [("a", 0, [("a", 1)]), ("a", 1, [("a", 2)]), ("a", 2, [("a", 3)])]


def test_count_windows_of_earlier_versions_go_on_where_they_were() -> None:
    """Their counters went on for ever."""
    rig = Rig(spec_of(CountTumblingWindowAssigner(3), None, "all"))
    rig.operator.keyed.key = "a"
    counter = rig.operator.keyed.get_state(ValueStateDescriptor("tumble-count-assigner", Types.LONG()))
    counter.update(6)
    assert emitted(rig, 1, 2, 3, 4, 5, 6) == [
        ("a", 2, [("a", 1), ("a", 2), ("a", 3)]), ("a", 0, [("a", 4), ("a", 5), ("a", 6)]),
    ]  # fmt: skip
    assert rig.entries == 0


def test_sliding_count_windows_hold_the_last_records() -> None:
    rig = Rig(spec_of(CountSlidingWindowAssigner(3, 1), None, "all"))
    sums = [[number for _, number in contents] for _, _, contents in emitted(rig, *range(1, 6))]
    assert sums == [[1, 2, 3], [2, 3, 4], [3, 4, 5]]


def test_global_windows_fire_by_their_trigger_alone() -> None:
    never = Rig(spec_of(GlobalWindows(), None, "all"))
    assert emitted(never, *range(5)) == []
    assert never.watermark(2**63 - 1) == []
    counting = Rig(spec_of(GlobalWindows(), CountTrigger.of(2), "reduce"))
    assert [value[2] for value in emitted(counting, 1, 2, 3, 4)] == [[("a", 3)], [("a", 10)]]
    purging = Rig(spec_of(GlobalWindows(), PurgingTrigger.of(CountTrigger.of(2)), "reduce"))
    assert [value[2] for value in emitted(purging, 1, 2, 3, 4)] == [[("a", 3)], [("a", 7)]]


def test_a_delta_trigger_fires_when_a_value_has_moved_by_more_than_its_threshold() -> None:
    rig = Rig(spec_of(GlobalWindows(), PurgingTrigger.of(DeltaTrigger.of(5, lambda old, new: new[1] - old[1])), "all"))
    assert [[n for _, n in value[2]] for value in emitted(rig, 1, 6, 7, 8, 12, 13)] == [[1, 6, 7], [8, 12, 13]]
    assert not DeltaTrigger(1, lambda old, new: 1).can_merge()


@pytest.mark.parametrize(
    ("evictor", "expected"),
    [
        (CountEvictor.of(2), [[1, 2], [3, 4]]),
        (CountEvictor.of(1, do_evict_after=True), [[1, 2], [2, 3, 4]]),
        (TimeEvictor(3), [[1, 2], [2, 3, 4]]),
        (DeltaEvictor.of(2, lambda old, last: abs(last[1] - old[1])), [[1, 2], [3, 4]]),
        (CountEvictor.of(0), [[], []]),
    ],
)
def test_evictors_take_out_elements_before_or_after_the_function(evictor: Any, expected: list[list[int]]) -> None:
    rig = Rig(spec_of(GlobalWindows(), CountTrigger.of(2), "all", evictor=evictor))
    outs = rig.records([(("a", number), number) for number in range(1, 5)])
    assert [[n for _, n in out.value[2]] for out in outs] == expected


def test_evictors_come_before_reduce_and_aggregate() -> None:
    for gathering, expected in (("reduce", [[("a", 3)], [("a", 7)]]), ("aggregate", [[(3, 2)], [(7, 2)]])):
        rig = Rig(spec_of(GlobalWindows(), CountTrigger.of(2), gathering, evictor=CountEvictor.of(2)))
        assert [value[2] for value in emitted(rig, 1, 2, 3, 4)] == expected
    nothing = Rig(spec_of(GlobalWindows(), CountTrigger.of(1), "aggregate", evictor=CountEvictor.of(0)))
    assert [value[2] for value in emitted(nothing, 9)] == [[(0, 0)]]
    assert nothing.entries == 0


def test_an_evictor_may_take_out_what_it_likes() -> None:
    class Odd(Evictor[Any, Any]):
        def evict_before(self, elements: Any, size: int, window: Any, evictor_context: Any) -> None:
            assert size == len(elements)
            assert evictor_context.get_current_watermark() == -(2**63)
            elements[:] = [element for element in elements if element.value[1] % 2]

        def evict_after(self, elements: Any, size: int, window: Any, evictor_context: Any) -> None:
            del elements[:1]

    rig = Rig(spec_of(GlobalWindows(), CountTrigger.of(3), "all", evictor=Odd()))
    assert [[n for _, n in value[2]] for value in emitted(rig, 1, 2, 3, 4, 5, 7)] == [[1, 3], [3, 5, 7]]


class Longest(MergingWindowAssigner[Any, TimeWindow]):
    """A window of a tenth for each record; all of a hundred are merged."""

    def assign_windows(self, element: Any, timestamp: int, context: Any) -> list[TimeWindow]:
        start = timestamp // 10 * 10
        return [TimeWindow(start, start + 10)]

    def merge_windows(self, windows: Iterable[TimeWindow], callback: Any) -> None:
        groups: dict[int, set[TimeWindow]] = {}
        for window in windows:
            groups.setdefault(window.start // 100, set()).add(window)
        for members in groups.values():
            whole = TimeWindow(min(w.start for w in members), max(w.end for w in members))
            callback.merge(members, whole)

    def get_default_trigger(self, env: Any) -> Trigger[Any, TimeWindow]:
        return EventTimeTrigger()

    def get_window_serializer(self) -> TimeWindowSerializer:
        return TimeWindowSerializer()

    def is_event_time(self) -> bool:
        return True


class EveryOther(Trigger[Any, TimeWindow]):
    """Fires at each second record and at the end; lists what it saw."""

    seen = ListStateDescriptor("seen", Types.PICKLED_BYTE_ARRAY())
    count = ReducingStateDescriptor("count", lambda a, b: a + b, Types.LONG())

    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        seen: Any = ctx.get_partitioned_state(self.seen)
        count: Any = ctx.get_partitioned_state(self.count)
        seen.add(element[1])
        count.add(1)
        ctx.register_event_time_timer(window.max_timestamp())
        return TriggerResult.FIRE if count.get() % 2 == 0 else TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        raise AssertionError

    def on_event_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        ends.append((time, list(ctx.get_partitioned_state(self.seen).get()), ctx.get_current_watermark()))  # type: ignore[attr-defined]
        return TriggerResult.FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(self.seen)
        ctx.merge_partitioned_state(self.count)

    def clear(self, window: TimeWindow, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())
        ctx.get_partitioned_state(self.seen).clear()
        ctx.get_partitioned_state(self.count).clear()


ends: list[Any] = []


def test_custom_assigners_and_triggers_that_merge() -> None:
    ends.clear()
    rig = Rig(spec_of(Longest(), EveryOther(), "all"))
    outs = rig.records([(("a", 1), 5), (("a", 2), 55), (("a", 3), 130), (("a", 4), 25), (("a", 5), 31)])
    assert [(out.value[1], [n for _, n in out.value[2]]) for out in outs] == [
        ((0, 60), [1, 2]),
        ((0, 60), [1, 2, 4, 5]),
    ]
    assert [out.value[1] for out in rig.watermark(1000)] == [(0, 60), (130, 140)]
    assert ends == [(59, [1, 2, 4, 5], 1000), (139, [3], 1000)]
    assert rig.entries == 0


def test_windows_must_not_end_earlier_by_merging() -> None:
    class Shrinking(Longest):
        def merge_windows(self, windows: Iterable[TimeWindow], callback: Any) -> None:
            callback.merge(windows, TimeWindow(0, 5))

    rig = Rig(spec_of(Shrinking(), None, "all"))
    rig.watermark(20)
    rig.records([(("a", 1), 60)])
    with pytest.raises(ProgramError, match=r"merged windows into TimeWindow\(start=0, end=5\).*watermark 20"):
        rig.records([(("a", 1), 90)])


def test_a_trigger_has_to_return_a_result() -> None:
    class Forgetful(NeverTrigger[Any, Any]):
        def on_element(self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext) -> Any:
            return None

    with pytest.raises(ProgramError, match=r"Forgetful returned None; on_element.*TriggerResult"):
        emitted(Rig(spec_of(GlobalWindows(), Forgetful(), "all")), 1)


def test_a_purged_window_gives_nothing() -> None:
    class PurgeAll(EventTimeTrigger[Any, Any]):
        def on_element(self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
            super().on_element(element, timestamp, window, ctx)
            return TriggerResult.PURGE if element[1] == 0 else TriggerResult.CONTINUE

    for assigner in (TumblingEventTimeWindows(10), EventTimeSessionWindows(10)):
        rig = Rig(spec_of(assigner, PurgeAll(), "reduce"))
        rig.records([(("a", 5), 1), (("a", 0), 2), (("b", 4), 1), (("b", 0), 1), (("b", 6), 1)])
        assert [out.value[::2] for out in rig.watermark(50)] == [("b", [("b", 6)])]
        assert rig.entries == 0


class CountsEvaluations(ProcessWindowFunction[Any, Any, Any, Any]):
    """Yields what its context knows; counts evaluations of the window and of the key."""

    mine = ValueStateDescriptor("evaluations", Types.LONG())
    log: list[Any] = []

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterator[Any]:
        counts = []
        for store in (context.window_state(), context.global_state()):
            state = store.get_state(self.mine)
            state.update((state.value() or 0) + 1)
            counts.append(state.value())
        yield context.window().start, context.current_watermark(), context.current_processing_time(), *counts

    def clear(self, context: Any) -> None:
        self.log.append(context.window().start)
        context.window_state().get_state(self.mine).clear()


@KINDS
def test_window_functions_see_times_and_state_of_window_and_key(kind: OperatorKind) -> None:
    CountsEvaluations.log.clear()
    spec = spec_of(TumblingEventTimeWindows(10), None, "all", allowed_lateness=10, window_function=CountsEvaluations())
    rig = Rig(spec, kind)
    rig.clock.now = 77
    rig.records([(("a", 1), 1), (("a", 1), 12)])
    assert [out.value for out in rig.watermark(9)] == [(0, 9, 77, 1, 1)]
    assert [out.value for out in rig.records([(("a", 2), 3)])] == [(0, 9, 77, 2, 2)]
    assert [out.value for out in rig.watermark(19)] == [(10, 19, 77, 1, 3)]
    assert CountsEvaluations.log == [0]
    assert rig.watermark(29) == []
    assert CountsEvaluations.log == [0, 10]
    assert rig.entries == 1  # global state of the key


def test_sessions_have_no_state_of_windows() -> None:
    rig = Rig(spec_of(EventTimeSessionWindows(10), None, "all", window_function=CountsEvaluations()))
    rig.records([(("a", 1), 1)])
    with pytest.raises(ProgramError, match="Per-window state is not allowed when using merging windows"):
        rig.watermark(100)


class AppliesByKey(WindowFunction[Any, Any, Any, Any]):
    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> list[Any]:
        return [(key, window.start, *inputs)]


class AppliesToAll(AllWindowFunction[Any, Any, Any]):
    def apply(self, window: Any, inputs: Iterable[Any]) -> None:
        windows_fired.append((window.start, *inputs))


class ProcessesAll(ProcessAllWindowFunction[Any, Any, Any]):
    def process(self, context: Any, elements: Iterable[Any]) -> Iterator[Any]:
        yield context.window().start, *elements

    def clear(self, context: Any) -> None:
        windows_fired.append(context.window().start)


windows_fired: list[Any] = []


@KINDS
def test_each_kind_of_window_function_is_called_with_the_reduced_element(kind: OperatorKind) -> None:
    windows_fired.clear()
    for function, expected in (
        (AppliesByKey(), [("a", 0, ("a", 3))]),
        (AppliesToAll(), []),
        (ProcessesAll(), [(0, ("a", 3))]),
    ):
        rig = Rig(spec_of(TumblingEventTimeWindows(10), None, "reduce", window_function=function), kind)
        rig.records([(("a", 1), 1), (("a", 2), 2)])
        assert [out.value for out in rig.watermark(9)] == expected
    assert windows_fired == [(0, ("a", 3)), 0]


@KINDS
def test_without_a_window_function_results_are_coerced(kind: OperatorKind) -> None:
    spec = spec_of(TumblingEventTimeWindows(10), None, "aggregate", window_function=None)
    rig = Rig(spec, kind, output_type=Types.TUPLE([Types.BYTE(), Types.LONG()]))
    rig.records([(("a", 200), 1)])
    assert rig.watermark(9) == [Out((-56, 1), 9)]


class Opened(ReduceFunction[Any]):
    calls: list[str] = []

    def open(self, runtime_context: Any) -> None:
        self.calls.append("open")

    def close(self) -> None:
        self.calls.append("close")

    def reduce(self, value1: Any, value2: Any) -> Any:
        return value1[0], value1[1] * value2[1]


class OpenedToo(Everything):
    def open(self, runtime_context: Any) -> None:
        Opened.calls.append("open window")

    def close(self) -> None:
        Opened.calls.append("close window")


@KINDS
def test_functions_are_opened_and_closed(kind: OperatorKind) -> None:
    Opened.calls.clear()
    spec = spec_of(TumblingEventTimeWindows(10), None, "reduce", window_function=OpenedToo())
    spec.gather_function = Opened()
    rig = Rig(spec, kind)
    rig.records([(("a", 3), 1), (("a", 4), 1)])
    assert rig.watermark(9) == [Out(("a", (0, 10), [("a", 12)]), 9)]
    rig.operator.close()
    assert Opened.calls == ["open", "open window", "close window", "close"]


@KINDS
def test_errors_of_programs(kind: OperatorKind) -> None:
    class Wrong(WindowFunction[Any, Any, Any, Any]):
        def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Any:
            return 5

    rig = Rig(spec_of(TumblingEventTimeWindows(10), None, "all", window_function=Wrong()), kind)
    with pytest.raises(ProgramError, match="without a timestamp came to TumblingEventTimeWindows"):
        rig.records([(("a", 1), None)])
    rig.records([(("a", 1), 1)])
    with pytest.raises(ProgramError, match="apply returned 5"):
        rig.watermark(9)


@KINDS
def test_what_a_window_hands_out_does_not_change_later(kind: OperatorKind) -> None:
    class Keeps(WindowFunction[Any, Any, Any, Any]):
        def apply(self, key: Any, window: Any, inputs: Any) -> Any:
            return [inputs]

    spec = spec_of(TumblingEventTimeWindows(10), None, "all", allowed_lateness=50, window_function=Keeps())
    rig = Rig(spec, kind)
    rig.records([(("a", 1), 1)])
    first = rig.watermark(9)
    rig.records([(("a", 2), 2)])
    assert first == [Out([("a", 1)], 9)]


def test_aligned_windows_are_found_again_in_restored_state() -> None:
    from firesteel.windowing.aligned import PREFIX, AlignedWindows, Tables

    tables: dict[str, Any] = {f"{PREFIX}10": {"a": 1}, "other": {}, f"{PREFIX}-20": {"b": 2}}
    windows = AlignedWindows(
        TumblingEventTimeWindows(10),
        0,
        Tables(lambda name: tables.setdefault(name, {}), tables.__delitem__, lambda: tables),
    )
    assert [(due.start, dict(due.table), due.fires, due.ends) for due in windows.advance(19)] == [
        (-20, {"b": 2}, True, True),
        (10, {"a": 1}, True, True),
    ]
    assert list(tables) == ["other"]


@KINDS
def test_records_of_a_window_come_in_the_order_in_which_they_came(kind: OperatorKind) -> None:
    """Also where they are of several panes by turns, of which each is in two windows."""

    class Order(ProcessWindowFunction[Any, Any, Any, Any]):
        def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Any:
            yield context.window().start, [number for _, number in elements]

    rig = Rig(spec_of(SlidingEventTimeWindows(10, 5, 0), None, "all", window_function=Order()), kind)
    rig.records([(("a", number), time) for number, time in enumerate((7, 2, 8, 3, 12, 6, 7))])
    fired = [out.value for out in rig.watermark(100)]
    assert fired == [(-5, [1, 3]), (0, [0, 1, 2, 3, 5, 6]), (5, [0, 2, 4, 5, 6]), (10, [4])]


@KINDS
@pytest.mark.parametrize("step", [3, 1])
def test_many_records_in_the_order_of_time_go_to_their_windows(kind: OperatorKind, step: int) -> None:
    """Also where some of these have ended, and are kept for late records or are not any more."""

    class Held(ProcessWindowFunction[Any, Any, Any, Any]):
        def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Any:
            yield context.window().start, [number for _, number in elements]

    times = range(0, 400, step)
    rig = Rig(spec_of(TumblingEventTimeWindows(10), None, "all", allowed_lateness=20, window_function=Held()), kind)
    rig.records([(("a", -1), 45)])
    rig.watermark(59)
    early = [out.value for out in rig.records([(("a", time), time) for time in times])]
    assert [start for start, _ in early] == [time // 10 * 10 for time in times if 40 <= time < 60]
    assert early[-1] == (50, [time for time in times if 50 <= time < 60])
    fired = [out.value for out in rig.watermark(1000)]
    assert fired == [(start, [time for time in times if start <= time < start + 10]) for start in range(60, 400, 10)]


@KINDS
def test_a_key_selector_or_function_that_raises_names_the_record(kind: OperatorKind) -> None:
    def key_of(value: Any) -> Any:
        return value[0] / value[1] and "a"

    class Picky(Sum):
        def add(self, value: Any, accumulator: list[int]) -> list[int]:
            return super().add((value[0], 1 // (value[1] - 7)), accumulator)

    def raised(numbers: Sequence[int], **more: Any) -> tuple[Any, ...]:
        spec = spec_of(TumblingEventTimeWindows(10), None, "aggregate")
        spec.gather_function = Picky()
        with pytest.raises(ZeroDivisionError) as caught:
            Rig(spec, kind, **more).records([((5, number), 3) for number in numbers])
        return find_site(caught.value.__traceback__)

    assert raised([1, 2, 0, 4], key=key_of) == ("WINDOW", "(5, 0)")
    assert raised([1, 2, 7, 4]) == ("WINDOW", "(5, 7)")
