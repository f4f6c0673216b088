"""Windows by the clock, evictors, and triggers of one's own over random streams, against plain Python."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from firesteel.common.typeinfo import Types
from firesteel.datastream.state import ReducingStateDescriptor
from firesteel.datastream.window import (
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    CountTrigger,
    DeltaEvictor,
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeEvictor,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from firesteel.graph.specs import OperatorKind
from tests.unit.windowing.harness import LATE, Rig, spec_of
from tests.unit.windowing.oracle import Live, Oracle, Result
from tests.unit.windowing.test_against_oracle import (
    KEYS,
    LATENESS,
    assigner_of,
    in_order,
    results_of,
    tidy,
)

DENSE = st.lists(
    st.one_of(
        *[
            st.tuples(
                st.just("record"),
                st.sampled_from(["a", "a", "a", 3]),
                st.sampled_from([-5, 0, 1, 4, 5, 5]),
                st.integers(0, 14),
            )
        ]
        * 6,
        st.tuples(st.just("watermark"), st.integers(-5, 30)),
    ),
    min_size=15,
    max_size=60,
)
"""Many records in each window."""
GATHERINGS = st.sampled_from(["all", "reduce", "aggregate"])


# -- the clock: all times are even and all windows end at odd ones, so that nothing comes in the last millisecond

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("record"), KEYS, st.integers(-5, 5)),
        st.tuples(st.just("record"), KEYS, st.integers(-5, 5)),
        st.tuples(st.just("pass"), st.integers(1, 8)),
    ),
    min_size=8,
    max_size=60,
)
CLOCKS = st.one_of(
    st.builds(lambda half: ("tumbling", 2 * half, 2 * half), st.integers(1, 9)),
    st.builds(lambda half, slide: ("sliding", 2 * half, 2 * slide), st.integers(1, 9), st.integers(1, 9)),
    st.builds(lambda half: ("sessions", 2 * half, 0), st.integers(1, 5)),
)


@given(STEPS, CLOCKS, st.one_of(st.none(), st.integers(1, 6).map(lambda half: 2 * half)), st.booleans(), GATHERINGS)
def test_by_the_clock(
    steps: list[Any], shape: tuple[str, int, int], interval: int | None, purging: bool, gathering: str
) -> None:
    name, size, slide = shape
    kind = OperatorKind.WINDOW
    assigner: Any
    known: dict[str, Any] = {"size": size, "slide": slide}
    if name == "sessions":
        assigner, known = ProcessingTimeSessionWindows(size), {"gap": size}
        kind = OperatorKind.SESSION_WINDOW if interval is None else kind
    elif name == "tumbling":
        assigner = TumblingProcessingTimeWindows(size)
    else:
        assigner = SlidingProcessingTimeWindows(size, slide)
    purging = purging and interval is not None
    trigger: Any = None if interval is None else ContinuousProcessingTimeTrigger(interval)
    rig = Rig(spec_of(assigner, PurgingTrigger(trigger) if purging else trigger, gathering), kind)
    said: tuple[Any, ...] = ("event",) if interval is None else ("continuous", interval)
    oracle = Oracle(**known, trigger=said, purging=purging)
    now = 0
    for number, step in enumerate([*steps, ("pass", 1000)]):
        if step[0] == "record":
            record = (step[1], step[2], number)
            assert rig.records([(record, None)]) == []
            assert oracle.record(record, now) == []
            continue
        now += 2 * step[1]
        due = oracle.watermark(now)
        assert in_order(results_of(rig.time(now), gathering)) == in_order(
            tidy([result for _, result in due], gathering)
        )
    assert rig.entries == 0


# -- evictors


class Evicting(Oracle):
    """Takes records out before, or after, a window is evaluated. A record's last field is its time."""

    def __init__(self, evictor: tuple[Any, ...], **more: Any) -> None:
        super().__init__(**more)
        self.evictor = evictor

    def evict(self, records: list[Any]) -> None:
        kind, number, _ = self.evictor
        if kind == "count":
            del records[: max(0, len(records) - number)]
        elif kind == "time":
            latest = max(record[3] for record in records)
            records[:] = [record for record in records if record[3] > latest - number]
        else:
            last = records[-1]
            records[:] = [record for record in records if abs(record[1] - last[1]) < number]

    def fire(self, window: Live) -> list[Result]:
        if not window.records:
            return []
        if not self.evictor[2]:
            self.evict(window.records)
        result = (window.key, (window.start, window.end), list(window.records))
        if self.evictor[2]:
            self.evict(window.records)
        return [result]


EVICTORS = st.tuples(st.sampled_from(["count", "time", "delta"]), st.integers(1, 6), st.booleans())
WINDOWS = st.one_of(
    st.builds(lambda size: {"size": size, "slide": size}, st.integers(3, 25)),
    st.builds(lambda size, slide: {"size": size, "slide": slide}, st.integers(5, 25), st.integers(2, 15)),
    st.builds(lambda gap: {"gap": gap}, st.integers(1, 8)),
)


def evictor_of(evictor: tuple[Any, ...]) -> Any:
    kind, number, after = evictor
    if kind == "count":
        return CountEvictor(number, after)
    if kind == "time":
        return TimeEvictor(number, after)
    return DeltaEvictor(number, lambda old, last: abs(old[1] - last[1]), after)


@given(DENSE, WINDOWS, EVICTORS, LATENESS, st.booleans(), GATHERINGS)
def test_evictors(
    stream: list[Any], shape: dict[str, int], evictor: tuple[Any, ...], lateness: int, counting: bool, gathering: str
) -> None:
    if "gap" in shape:
        assigner: Any = EventTimeSessionWindows(shape["gap"])
        evictor = ("time", *evictor[1:])  # what the order of records is where sessions merge is not defined
    else:
        assigner = assigner_of({**shape, "offset": 0})
    trigger = ("count", 2) if counting else ("event",)
    known: dict[str, Any] = dict(shape)
    oracle = Evicting(evictor, **known, lateness=lateness, trigger=trigger)
    spec = spec_of(
        assigner,
        CountTrigger(2) if counting else None,
        gathering,
        evictor=evictor_of(evictor),
        allowed_lateness=lateness,
        late_tag=LATE,
    )
    rig = Rig(spec)
    now = -(2**63)
    for number, item in enumerate([*stream, ("watermark", 10_000)]):
        if item[0] == "record":
            record = (item[1], item[2], number, item[3])
            outs = [out for out in rig.records([(record, item[3])]) if not out.late]
            assert results_of(outs, gathering) == tidy(oracle.record(record, item[3]), gathering)
        elif item[1] > now:
            now = item[1]
            due = oracle.watermark(now)
            assert in_order(results_of(rig.watermark(now), gathering)) == in_order(
                tidy([result for _, result in due], gathering)
            )
    assert rig.entries == 0


# -- a trigger of one's own


class Own(Trigger[Any, Any]):
    def __init__(self) -> None:
        self.count = ReducingStateDescriptor("seen", lambda a, b: a + b, Types.LONG())
        self.opened: list[str] = []

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        ctx.get_metric_group().counter("elements").inc()
        state: Any = ctx.get_partitioned_state(self.count)
        state.add(1)
        last = window.max_timestamp()
        if element[1] == 5:
            ctx.delete_event_time_timer(last)
        elif last > ctx.get_current_watermark():
            ctx.register_event_time_timer(last)
        if element[1] == -5:
            return TriggerResult.PURGE
        if state.get() % 3 == 0:
            return TriggerResult.FIRE if element[1] >= 0 else TriggerResult.FIRE_AND_PURGE
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE if time == window.max_timestamp() else TriggerResult.CONTINUE

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        raise AssertionError("fixed windows do not merge")

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())
        ctx.get_partitioned_state(self.count).clear()


class OwnOracle(Oracle):
    """The same; a window notes in ``next_fire`` that its timer is set."""

    elements = 0

    def record(self, value: Any, timestamp: int) -> list[Result]:
        results: list[Result] = []
        in_time = False
        for window in self.windows(value[0], timestamp):
            if self.over(window):
                continue
            in_time = True
            if window not in self.live:
                self.live.append(window)
            window.records.append(value)
            window.counted += 1
            self.elements += 1
            if value[1] == 5:
                window.next_fire = None
            elif window.last > self.now:
                window.next_fire = window.last
            if value[1] == -5:
                window.records.clear()
            elif window.counted % 3 == 0:
                results += self.fire(window)
                if value[1] < 0:
                    window.records.clear()
            if self.lateness == 0:  # the timer that ends the window is the same one
                window.next_fire = window.last
        if not in_time and timestamp + self.lateness <= self.now:
            self.late.append(value)
        return results

    def watermark(self, time: int) -> list[tuple[int, Result]]:
        before, self.now = self.now, time
        results = []
        for window in self.live:
            if window.next_fire is not None and before < window.last <= time:
                results += [(window.last, result) for result in self.fire(window)]
        self.live = [window for window in self.live if not self.over(window)]
        return results


@given(DENSE, WINDOWS, LATENESS)
def test_a_trigger_of_ones_own(stream: list[Any], shape: dict[str, int], lateness: int) -> None:
    if "gap" in shape:
        shape = {"size": shape["gap"], "slide": shape["gap"]}
    tumbling = shape["size"] == shape["slide"]
    size = shape["size"]
    assigner = TumblingEventTimeWindows(size) if tumbling else SlidingEventTimeWindows(size, shape["slide"])
    rig = Rig(spec_of(assigner, Own(), "all", allowed_lateness=lateness, late_tag=LATE))
    known: dict[str, Any] = dict(shape)
    oracle = OwnOracle(**known, lateness=lateness)
    now = -(2**63)
    for number, item in enumerate([*stream, ("watermark", 10_000)]):
        if item[0] == "record":
            record = (item[1], item[2], number)
            outs = [out for out in rig.records([(record, item[3])]) if not out.late]
            assert results_of(outs, "all") == tidy(oracle.record(record, item[3]), "all")
        elif item[1] > now:
            now = item[1]
            due = oracle.watermark(now)
            assert in_order(results_of(rig.watermark(now), "all")) == in_order(
                tidy([result for _, result in due], "all")
            )
    assert rig.entries == 0
    counted = [value for name, value in rig.metrics.values().items() if name.endswith("elements")]
    assert counted == ([oracle.elements] if oracle.elements else [])
