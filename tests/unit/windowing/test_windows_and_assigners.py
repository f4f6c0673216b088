"""Windows as values, assigners, and what they refuse."""

from __future__ import annotations

import io
import pickle
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel.common import Time
from firesteel.common.time import Duration, Span
from firesteel.core.errors import ProgramError
from firesteel.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    CountWindow,
    CountWindowSerializer,
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    GlobalWindow,
    GlobalWindows,
    GlobalWindowSerializer,
    MergingWindowAssigner,
    ProcessingTimeSessionWindows,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeEvictor,
    TimeWindow,
    TimeWindowSerializer,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)

NO_TIMESTAMP = -(2**63)


def _anything(value: Any) -> Any:
    """Hides the type from the type checker."""
    return value


class At(WindowAssigner.WindowAssignerContext):
    """A clock, and value state in a list."""

    def __init__(self, now: int = 0) -> None:
        self.now = now
        self.counts: dict[str, Any] = {}

    def get_current_processing_time(self) -> int:
        return self.now

    def get_runtime_context(self) -> Any:
        return self

    def get_state(self, descriptor: Any) -> Any:
        self.name = descriptor.name
        return self

    def value(self) -> Any:
        return self.counts.get(self.name)

    def update(self, value: Any) -> None:
        self.counts[self.name] = value


@given(st.integers(-(10**13), 10**13), st.integers(1, 10**6), st.integers(1, 10**6), st.data())
def test_a_record_is_in_each_window_that_holds_its_time(time: int, size: int, slide: int, data: Any) -> None:
    size = min(size, slide * 50)
    offset = data.draw(st.integers(1 - slide, slide - 1))
    windows = SlidingEventTimeWindows(size, slide, offset).assign_windows(None, time, At())
    assert all(w.start <= time < w.end and w.end - w.start == size and (w.start - offset) % slide == 0 for w in windows)
    assert len(set(windows)) == len(windows) in (size // slide, -(-size // slide))
    assert windows == sorted(windows, reverse=True)
    assert SlidingProcessingTimeWindows(size, slide, offset).assign_windows(None, 5, At(time)) == windows


def test_tumbling_windows_start_at_the_offset() -> None:
    day = TumblingEventTimeWindows.of(Time.days(1), Time.hours(-8))
    [window] = day.assign_windows(None, 0, At())
    assert (window.start, window.end) == (-8 * 3_600_000, 16 * 3_600_000)
    assert TumblingProcessingTimeWindows.of(Time.seconds(5)).assign_windows(None, 0, At(12_345)) == [
        TimeWindow(10_000, 15_000)
    ]
    assert TimeWindow.get_window_start_with_offset(-1, 0, 10) == -10


@pytest.mark.parametrize(
    "assigner", [TumblingEventTimeWindows(5), SlidingEventTimeWindows(5, 2), EventTimeSessionWindows(5)]
)
def test_event_time_needs_a_timestamp(assigner: Any) -> None:
    with pytest.raises(ProgramError, match=r"without a timestamp .*assign_timestamps_and_watermarks"):
        assigner.assign_windows(None, NO_TIMESTAMP, At())
    assert assigner.is_event_time()


def test_count_windows() -> None:
    context = At()
    tumbling, sliding = CountTumblingWindowAssigner.of(3), CountSlidingWindowAssigner.of(4, 2)
    gaps = CountSlidingWindowAssigner.of(1, 3)
    assert [tumbling.assign_windows(None, 0, context)[0].id for _ in range(7)] == [0, 0, 0, 1, 1, 1, 2]
    assert [[w.id for w in sliding.assign_windows(None, 0, context)] for _ in range(6)] == [
        [0], [0], [1, 0], [1, 0], [2, 1], [2, 1],
    ]  # fmt: skip
    context.counts.clear()
    assert [[w.id for w in gaps.assign_windows(None, 0, context)] for _ in range(5)] == [[0], [], [], [1], []]


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 10)), max_size=12))
def test_windows_that_overlap_or_touch_are_merged(parts: list[tuple[int, int]]) -> None:
    class Merges(MergingWindowAssigner.MergeCallback[TimeWindow]):
        def merge(self, to_be_merged: Any, merge_result: TimeWindow) -> None:
            merges.append((sorted(to_be_merged), merge_result))

    merges: list[Any] = []
    windows = [TimeWindow(start, start + length) for start, length in parts]
    TimeWindow.merge_windows(windows, Merges())
    covered = {at for w in windows for at in range(2 * w.start, 2 * w.end + 1)}  # half steps, ends included
    for members, result in merges:
        assert len(members) > 1
        assert (result.start, result.end) == (members[0].start, max(w.end for w in members))
        assert {at for w in members for at in range(2 * w.start, 2 * w.end + 1)} == set(
            range(2 * result.start, 2 * result.end + 1)
        )
        assert not {2 * result.start - 1, 2 * result.end + 1} & covered
    alone = [w for w in windows if not any(w in members for members, _ in merges)]
    assert not any(a is not b and a.intersects(b) for a in alone for b in windows)


def test_windows_are_values() -> None:
    for window in (TimeWindow(1, 5), CountWindow(3), GlobalWindow.get()):
        copy = pickle.loads(pickle.dumps(window))
        assert copy == window
        assert hash(copy) == hash(window)
    assert TimeWindow(1, 5) != TimeWindow(1, 6)
    assert (CountWindow(1) == TimeWindow(1, 5), CountWindow(1) == CountWindow(2)) == (False, False)
    assert repr(TimeWindow(1, 5)) == "TimeWindow(start=1, end=5)"
    assert (TimeWindow(1, 5).max_timestamp(), GlobalWindow.get().max_timestamp()) == (4, 2**63 - 1)
    assert TimeWindow(1, 5).cover(TimeWindow(4, 9)) == TimeWindow(1, 9)


@pytest.mark.parametrize(
    ("serializer", "window", "size"),
    [
        (TimeWindowSerializer(), TimeWindow(-7, 2**62), 16),
        (CountWindowSerializer(), CountWindow(9), 8),
        (GlobalWindowSerializer(), GlobalWindow.get(), 1),
    ],
)
def test_serializers(serializer: Any, window: Any, size: int) -> None:
    stream = io.BytesIO()
    serializer.serialize(window, stream)
    assert stream.tell() == size
    stream.seek(0)
    assert serializer.deserialize(stream) == window
    assert serializer == type(serializer)()


class ByLength(SessionWindowTimeGapExtractor):
    def extract(self, element: Any) -> int:
        return len(element)


def test_dynamic_gaps() -> None:
    assert EventTimeSessionWindows.with_dynamic_gap(ByLength()).assign_windows("abc", 10, At()) == [TimeWindow(10, 13)]
    by_clock = ProcessingTimeSessionWindows.with_dynamic_gap(lambda element: 7)
    assert by_clock.assign_windows("abc", 10, At(100)) == [TimeWindow(100, 107)]
    with pytest.raises(ProgramError, match="positive int of milliseconds, but the extractor gave 0"):
        DynamicEventTimeSessionWindows(ByLength()).assign_windows("", 10, At())


SECOND = (Time.seconds(1), Duration.of_seconds(1), timedelta(seconds=1))


@pytest.mark.parametrize("second", SECOND, ids=lambda value: type(value).__name__)
def test_spans_of_all_kinds_make_the_same_windows(second: Span) -> None:
    whole = Time.seconds(10)
    for of in (
        lambda s: TumblingEventTimeWindows.of(whole, s),
        lambda s: TumblingProcessingTimeWindows.of(s),
        lambda s: SlidingEventTimeWindows.of(whole, s, Duration.of_millis(5)),
        lambda s: SlidingProcessingTimeWindows.of(whole, s),
        lambda s: EventTimeSessionWindows.with_gap(s),
        lambda s: ProcessingTimeSessionWindows.with_gap(s),
        lambda s: TimeEvictor.of(s),
        lambda s: ContinuousEventTimeTrigger.of(s),
        lambda s: ContinuousProcessingTimeTrigger.of(s),
    ):
        assert vars(of(second)) == vars(of(Time.seconds(1)))


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: TumblingEventTimeWindows.of(Duration.of_nanos(1_500_000)), ValueError, "whole number of milliseconds"),
        (lambda: TumblingEventTimeWindows.of(timedelta(microseconds=1)), ValueError, "whole number of milliseconds"),
        (
            lambda: TumblingEventTimeWindows.of(_anything(5)),
            TypeError,
            "the size is a Time, Duration or",
        ),
        (lambda: TumblingEventTimeWindows.of(Time.seconds(0)), ValueError, "must be at least 1, not 0"),
        (lambda: TumblingEventTimeWindows.of(Time.seconds(1), Time.seconds(-1)), ValueError, "smaller than the size"),
        (
            lambda: SlidingEventTimeWindows.of(Time.seconds(9), Time.seconds(1), Time.seconds(1)),
            ValueError,
            "the slide",
        ),
        (lambda: SlidingEventTimeWindows.of(Time.seconds(9), Time.seconds(0)), ValueError, "the slide"),
        (lambda: EventTimeSessionWindows.with_gap(Time.seconds(0)), ValueError, "the gap"),
        (
            lambda: EventTimeSessionWindows.with_dynamic_gap(_anything(ByLength)),
            TypeError,
            "SessionWindowTimeGapExtractor or a",
        ),
        (lambda: CountTumblingWindowAssigner(0), ValueError, "at least 1"),
        (lambda: CountSlidingWindowAssigner(3, True), TypeError, "is an int, not bool"),
    ],
)
def test_bad_windows_are_refused(make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


def test_default_triggers() -> None:
    names = [
        type(assigner.get_default_trigger(None)).__name__
        for assigner in (
            TumblingEventTimeWindows(5),
            TumblingProcessingTimeWindows(5),
            EventTimeSessionWindows(5),
            ProcessingTimeSessionWindows(5),
            GlobalWindows.create(),
            CountTumblingWindowAssigner(5),
        )
    ]
    assert names == [
        "EventTimeTrigger", "ProcessingTimeTrigger", "EventTimeTrigger", "ProcessingTimeTrigger", "NeverTrigger",
        "PurgingTrigger",
    ]  # fmt: skip
