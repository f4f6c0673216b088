"""All kinds of event-time windows over random streams, against plain Python."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel.datastream.window import (
    ContinuousEventTimeTrigger,
    CountTrigger,
    EventTimeSessionWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from firesteel.graph.specs import OperatorKind
from tests.unit.windowing.harness import LATE, Out, Rig, spec_of
from tests.unit.windowing.oracle import NEVER, Oracle, Result

KEYS = st.sampled_from(["a", "a", "a", 3])
TIMES = st.integers(-12, 40)
RECORDS = st.tuples(st.just("record"), KEYS, st.integers(-5, 5), TIMES)
WATERMARKS = st.tuples(st.just("watermark"), st.integers(-15, 50))
STREAMS = st.lists(st.one_of(RECORDS, RECORDS, RECORDS, WATERMARKS), min_size=12, max_size=60)
LATENESS = st.sampled_from([0, 2, 9, 30])
TRIGGERS = st.one_of(
    st.just(("event",)),
    st.tuples(st.just("count"), st.integers(1, 4)),
    st.tuples(st.just("continuous"), st.integers(1, 12)),
)
SHAPES = st.one_of(
    st.builds(lambda size: {"size": size, "slide": size}, st.integers(1, 25)),
    st.builds(lambda size, slide: {"size": size, "slide": slide}, st.integers(1, 25), st.integers(1, 25)),
).flatmap(
    lambda shape: st.integers(1 - shape["slide"], shape["slide"] - 1).map(lambda offset: {**shape, "offset": offset})
)


def assigner_of(shape: dict[str, int]) -> Any:
    if "gap" in shape:
        return EventTimeSessionWindows(shape["gap"])
    if shape["size"] == shape["slide"]:
        return TumblingEventTimeWindows(shape["size"], shape["offset"])
    return SlidingEventTimeWindows(shape["size"], shape["slide"], shape["offset"])


def trigger_of(trigger: tuple[Any, ...], purging: bool) -> Any:
    built: Any = None
    if trigger[0] == "count":
        built = CountTrigger(trigger[1])
    elif trigger[0] == "continuous":
        built = ContinuousEventTimeTrigger(trigger[1])
    elif purging:
        from firesteel.datastream.window import EventTimeTrigger

        built = EventTimeTrigger()
    return PurgingTrigger(built) if purging else built


def numbered(stream: list[Any]) -> list[Any]:
    """Each record gets a number, so that they can be told apart; watermarks only rise."""
    story, now = [], NEVER
    for number, item in enumerate(stream):
        if item[0] == "record":
            story.append(("record", (item[1], item[2], number), item[3]))
        elif item[0] != "watermark":
            story.append(item)
        elif item[1] > now:
            now = item[1]
            story.append(item)
    return story


def tidy(results: list[Result], gathering: str) -> list[Any]:
    """What comes out for these contents; records of merged windows in any order."""
    comparable = []
    for key, place, records in results:
        total = sum(record[1] for record in records)
        if gathering == "reduce":
            contents: Any = [total]
        elif gathering == "aggregate":
            contents = [(total, len(records))]
        else:
            contents = sorted(records, key=lambda record: record[2])
        comparable.append((key, place, contents))
    return comparable


def results_of(outs: list[Out], gathering: str) -> list[Any]:
    results = []
    for value, stamp, late in outs:
        assert not late
        key, (start, end), contents = value
        assert stamp == end - 1
        if gathering == "reduce":
            contents = [record[1] for record in contents]
        elif gathering == "all":
            contents = sorted(contents, key=lambda record: record[2])
        results.append((key, (start, end), contents))
    return results


def in_order(results: list[Any]) -> list[Any]:
    return sorted(results, key=repr)


def check(stream: list[Any], oracle: Oracle, rig: Rig, gathering: str) -> None:
    late: list[Any] = []
    batch: list[Any] = []
    expected: list[Result] = []

    def flush() -> None:
        outs = rig.records(batch)
        late.extend((out.value, out.timestamp) for out in outs if out.late)
        assert results_of([out for out in outs if not out.late], gathering) == tidy(expected, gathering)
        batch.clear()
        expected.clear()

    for item in [*numbered(stream), ("watermark", 10_000)]:
        if item[0] == "record":
            before = len(oracle.late)
            expected += oracle.record(item[1], item[2])
            batch.append((item[1], item[2]))
            if len(oracle.late) > before:
                oracle.late[-1] = (item[1], item[2])
            continue
        flush()
        results = rig.watermark(item[1])
        due = oracle.watermark(item[1])
        assert in_order(results_of(results, gathering)) == in_order(tidy([result for _, result in due], gathering))
        assert [out.value[1] for out in results] == sorted_by_time(results, due)
    assert late == oracle.late
    assert rig.entries == 0


def sorted_by_time(results: list[Out], due: list[tuple[int, Result]]) -> list[Any]:
    """The windows of the results, if they come in the order in which they were due (else something different)."""
    times: dict[Any, list[int]] = {}
    for moment, (key, place, _) in due:
        times.setdefault((key, place), []).append(moment)
    moments = [times[out.value[0], out.value[1]].pop(0) for out in results]
    return [out.value[1] for out in results] if moments == sorted(moments) else moments


@given(STREAMS, SHAPES, LATENESS, TRIGGERS, st.booleans(), st.sampled_from(["all", "reduce", "aggregate"]))
def test_fixed_windows(
    stream: list[Any], shape: dict[str, int], lateness: int, trigger: tuple[Any, ...], purging: bool, gathering: str
) -> None:
    spec = spec_of(
        assigner_of(shape), trigger_of(trigger, purging), gathering, allowed_lateness=lateness, late_tag=LATE
    )
    fixed: dict[str, Any] = dict(shape)
    oracle = Oracle(**fixed, lateness=lateness, trigger=trigger, purging=purging)
    check(stream, oracle, Rig(spec), gathering)


@given(STREAMS, SHAPES, LATENESS, st.sampled_from(["all", "reduce", "aggregate"]))
def test_aligned_windows(stream: list[Any], shape: dict[str, int], lateness: int, gathering: str) -> None:
    spec = spec_of(assigner_of(shape), None, gathering, allowed_lateness=lateness, late_tag=LATE)
    assert spec.aligned
    fixed: dict[str, Any] = dict(shape)
    check(stream, Oracle(**fixed, lateness=lateness), Rig(spec, OperatorKind.ALIGNED_WINDOW), gathering)


@given(STREAMS, st.integers(1, 8), LATENESS, TRIGGERS, st.booleans(), st.sampled_from(["all", "reduce", "aggregate"]))
def test_sessions(
    stream: list[Any], gap: int, lateness: int, trigger: tuple[Any, ...], purging: bool, gathering: str
) -> None:
    shape = {"gap": gap}
    spec = spec_of(
        assigner_of(shape), trigger_of(trigger, purging), gathering, allowed_lateness=lateness, late_tag=LATE
    )
    check(stream, Oracle(gap=gap, lateness=lateness, trigger=trigger, purging=purging), Rig(spec), gathering)


@given(STREAMS, st.integers(1, 8), LATENESS, st.sampled_from(["all", "reduce", "aggregate"]))
def test_plain_sessions(stream: list[Any], gap: int, lateness: int, gathering: str) -> None:
    spec = spec_of(EventTimeSessionWindows(gap), None, gathering, allowed_lateness=lateness, late_tag=LATE)
    assert spec.plain_sessions
    check(stream, Oracle(gap=gap, lateness=lateness), Rig(spec, OperatorKind.SESSION_WINDOW), gathering)


@pytest.mark.parametrize("kind", [OperatorKind.WINDOW, OperatorKind.ALIGNED_WINDOW])
def test_without_a_tag_late_records_are_counted(kind: OperatorKind) -> None:
    rig = Rig(spec_of(TumblingEventTimeWindows(10), None, "all"), kind)
    rig.watermark(9)
    assert rig.records([(("a", 1), 9), (("a", 2), 10), (("b", 3), 0)]) == []
    assert rig.operator.late_records.count == 2
    assert rig.watermark(19) == [Out(("a", (10, 20), [("a", 2)]), 19)]
