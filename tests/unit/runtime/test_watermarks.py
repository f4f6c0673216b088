"""Minima over inputs, channels and splits: idle ones, ended ones, those that wake up."""

from __future__ import annotations

import logging
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel.common import (
    Duration,
    Row,
    TimestampAssigner,
    Types,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)
from firesteel.common.coerce import make_coercer
from firesteel.connectors.malformed import MalformedRecord
from firesteel.core.errors import ProgramError
from firesteel.expressions import col
from firesteel.runtime.exchange.channels import ChannelId
from firesteel.runtime.operator_base.watermarks import HELD_SECONDS, CombinedWatermark
from firesteel.runtime.records.batch import END_OF_INPUT, MAX_WATERMARK, MIN_WATERMARK, Batch, InputBatch, Watermark
from firesteel.runtime.records.columns import as_array
from firesteel.runtime.sources.source_time import SourceTime
from firesteel.runtime.task.channel_inputs import ChannelInputs
from firesteel.runtime.task.channel_watermarks import ChannelWatermarks
from tests.unit.runtime.support import FakeInput, ManualClock


def channels(*inputs: int, clock: ManualClock | None = None) -> ChannelWatermarks:
    ids = [(ChannelId(0, up, 0), index) for up, index in enumerate(inputs)]
    return ChannelWatermarks(ids, "Task (1/1)#0", clock or ManualClock())


def test_the_slowest_channel_counts() -> None:
    marks = channels(0, 0)
    assert marks.update(0, Watermark(10)) is None
    assert marks.update(1, Watermark(5)) == Watermark(5)
    assert marks.update(1, Watermark(20)) == Watermark(10)
    assert marks.update(1, Watermark(30)) is None
    assert marks.update(0, Watermark(25)) == Watermark(25)
    assert marks.update(0, Watermark(24)) is None, "never back"


def test_idle_channels_are_left_out() -> None:
    marks = channels(0, 0)
    marks.update(0, Watermark(10))
    assert marks.update(1, Watermark(MIN_WATERMARK, idle=True)) == Watermark(10)
    assert marks.update(0, Watermark(20)) == Watermark(20)


def test_when_all_are_idle_so_is_the_task_and_the_greatest_counts() -> None:
    marks = channels(0, 0)
    marks.update(0, Watermark(10))
    marks.update(1, Watermark(5))
    assert marks.update(0, Watermark(10, idle=True)) is None
    assert marks.update(1, Watermark(5, idle=True)) == Watermark(10, idle=True)
    assert marks.update(1, Watermark(8)) == Watermark(10), "awake, but behind: the watermark does not go back"


def test_a_channel_that_wakes_up_behind_the_others_does_not_hold_them_back() -> None:
    marks = channels(0, 0)
    marks.update(0, Watermark(10))
    marks.update(1, Watermark(5, idle=True))
    assert marks.update(0, Watermark(50)) == Watermark(50)
    assert marks.update(1, Watermark(20)) is None
    assert marks.update(0, Watermark(60)) == Watermark(60)
    assert marks.update(1, Watermark(70)) is None, "it has caught up"
    assert marks.update(0, Watermark(90)) == Watermark(70)


def test_a_channel_at_its_end_pushes_nobody_past_idle_ones() -> None:
    marks = channels(0, 0)
    marks.update(0, Watermark(10))
    marks.update(1, Watermark(5))
    assert marks.update(1, Watermark(MAX_WATERMARK)) == Watermark(10)
    assert marks.update(0, Watermark(10, idle=True)) == Watermark(10, idle=True)
    assert marks.update(0, Watermark(30)) == Watermark(30)
    assert marks.update(0, Watermark(MAX_WATERMARK)) == Watermark(MAX_WATERMARK)


def test_two_inputs_have_a_watermark_each() -> None:
    marks = channels(0, 0, 1)
    marks.update(0, Watermark(10))
    marks.update(1, Watermark(20))
    assert marks.update(2, Watermark(7)) == Watermark(7)
    assert (marks.input_watermark(0), marks.input_watermark(1)) == (10, 7)
    assert marks.update(2, Watermark(7, idle=True)) == Watermark(10)
    assert marks.update(0, Watermark(30)) == Watermark(20)


UPDATES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.booleans()), max_size=80)


@given(UPDATES)
def test_against_a_look_at_all_channels(updates: list[Any]) -> None:
    """As long as nobody wakes up behind the others, it is the minimum over those that are not idle."""
    marks = channels(0, 0, 1, 1)
    state = [[MIN_WATERMARK, False] for _ in range(4)]
    last, idle = MIN_WATERMARK, False
    for channel, timestamp, now_idle in updates:
        before = state[channel]
        woken = before[1] and not now_idle
        if woken:
            timestamp = max(timestamp, 100 + last)
        state[channel] = [max(before[0], timestamp), now_idle]
        got = marks.update(channel, Watermark(timestamp, now_idle))
        inputs = []
        for first in (0, 2):
            parts = state[first : first + 2]
            active = [mark for mark, quiet in parts if not quiet]
            inputs.append((min(active) if active else max(mark for mark, _ in parts), not active))
        active = [mark for mark, quiet in inputs if not quiet]
        if got is not None:
            assert got.timestamp >= last
            assert (got.timestamp, got.idle) != (last, idle)
            last, idle = got.timestamp, got.idle
        assert idle is (not active)
        if active:
            assert last >= min(active) or last == MIN_WATERMARK or woken
            assert last <= max(max(mark for mark, _ in state), MIN_WATERMARK)


def test_the_input_that_holds_the_watermark_back_is_named_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    clock = ManualClock()
    marks = channels(0, 0, clock=clock)
    marks.update(1, Watermark(5))
    marks.update(0, Watermark(6))
    for second in range(int(HELD_SECONDS) * 2):
        clock.now += 1
        marks.update(0, Watermark(10 + second))
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert "Task (1/1)#0: the watermark has stood at 1970-01-01T00:00:00.005+00:00 (5) for 60 s" in lines[0]
    assert "channel 0:1->0 (input 1) holds it back" in lines[0]
    clock.now += HELD_SECONDS
    marks.update(1, Watermark(500))
    marks.update(0, Watermark(600))
    assert len(caplog.records) == 2, "it went on"


def test_an_input_that_has_ended_is_held_back_by_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """So a program without watermarks, of whose sources one ends first, hears nothing of them."""
    caplog.set_level(logging.WARNING)
    clock = ManualClock()
    marks = channels(0, 0, clock=clock)
    for _ in range(int(HELD_SECONDS) * 2):
        clock.now += 1
        marks.update(0, Watermark(MAX_WATERMARK))
    assert not caplog.records


def test_the_inputs_of_a_task_give_batches_and_watermarks_in_order() -> None:
    first, second = FakeInput(), FakeInput()
    inputs = ChannelInputs([(first, 0), (second, 1)], lambda: None)
    first.give(Batch([1]), Watermark(5), Batch([2]), Watermark(MAX_WATERMARK), END_OF_INPUT)
    second.give(Watermark(3), Batch([3]), Watermark(MAX_WATERMARK), END_OF_INPUT)
    items: list[Any] = []
    while not items or items[-1] is not END_OF_INPUT:
        items.append(inputs.poll())
    assert [item for item in items if isinstance(item, Watermark)] == [
        Watermark(3),
        Watermark(5),
        Watermark(MAX_WATERMARK),
    ]
    assert sorted(value for item in items if isinstance(item, InputBatch) for value in item.batch.values) == [1, 2, 3]
    assert inputs.input_watermarks(7) == {
        "currentInputWatermark": 7,
        "currentInput1Watermark": MAX_WATERMARK,
        "currentInput2Watermark": MAX_WATERMARK,
    }


def test_parts_that_have_ended_count_only_together() -> None:
    combined = CombinedWatermark()
    assert combined.update([(MAX_WATERMARK, False), (3, True)])
    assert (combined.watermark, combined.idle) == (MIN_WATERMARK, True)
    assert combined.update([(MAX_WATERMARK, False), (MAX_WATERMARK, True)])
    assert (combined.watermark, combined.idle) == (MAX_WATERMARK, False)


# --- sources -------------------------------------------------------------------------------------------------------


class Itself(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value)


MONOTONOUS = WatermarkStrategy.for_monotonous_timestamps()
TEN_SECONDS = Duration.of_seconds(10)


def source(strategy: WatermarkStrategy, clock: ManualClock | None = None, coerce: Any = None) -> SourceTime:
    return SourceTime("source", "Source (1/1)#0", strategy, clock or ManualClock(), coerce)


def test_a_source_keeps_a_watermark_for_each_split() -> None:
    time = source(MONOTONOUS)
    time.add("a")
    time.add("b")
    assert time.take("a", [1, 2], [100, 200]) == [([1, 2], [100, 200], None)]
    assert time.periodic() is None, "nothing came from the other split"
    time.take("b", [3], [50])
    assert time.periodic() == Watermark(49)
    assert time.periodic() is None
    time.take("b", [3], [500])
    assert time.periodic() == Watermark(199)
    assert time.finished("a") == Watermark(499), "at once: no record may come that would have somebody look again"
    assert time.periodic() is None
    assert time.finished("b") is None
    assert time.periodic() is None


def test_watermarks_of_an_expression_follow_their_own_column_and_leave_nulls_out() -> None:
    strategy = WatermarkStrategy.for_expression(col("mark")).with_timestamp_assigner(col("ts"))
    row = Types.ROW_NAMED(["ts", "mark"], [Types.LONG(), Types.LONG()])
    time = SourceTime("source", "Source (1/1)#0", strategy, ManualClock(), None, row)

    def take(split: str, *rows: tuple[int, int | None]) -> None:
        columns = [pa.array(column, pa.int64()) for column in zip(*rows, strict=True)]
        ((_, stamps, _),) = time.take_columns(split, pa.RecordBatch.from_arrays(columns, ["ts", "mark"]), None)
        assert as_array(stamps).tolist() == [row[0] for row in rows]  # type: ignore[union-attr]

    time.add("b")
    take("a", (100, 70), (90, None), (95, 60))
    take("b", (50, None))
    assert time.periodic() is None, "the other split has given none"
    take("b", (50, 80))
    assert time.periodic() == Watermark(70), "the watermark itself, not one millisecond less"
    records = [Row(ts=200, mark=75), Row(ts=201, mark=None)]
    assert time.take("a", records, None)[0][1] == [200, 201]
    assert time.periodic() == Watermark(75)


def test_a_source_without_timestamps_makes_no_watermarks() -> None:
    time = source(MONOTONOUS)
    assert time.take("a", [1], None) == [([1], None, None)]
    assert time.periodic() is None


def test_an_assigner_sees_records_of_the_declared_type() -> None:
    time = source(MONOTONOUS.with_timestamp_assigner(Itself()), coerce=make_coercer(Types.DOUBLE()))
    ((values, stamps, _),) = time.take("a", [7], None)
    assert repr(values) == "[7.0]"
    assert stamps == [7]


class OnEachEvent(WatermarkGenerator):
    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        output.emit_watermark(event_timestamp - 1)

    def on_periodic_emit(self, output: WatermarkOutput) -> None: ...


@pytest.mark.parametrize("strategy", [MONOTONOUS, WatermarkStrategy.for_generator(OnEachEvent)])
def test_a_malformed_record_has_no_timestamp_and_takes_no_time_on(strategy: WatermarkStrategy) -> None:
    time = source(strategy.with_timestamp_assigner(lambda value: value["ts"]))
    bad = MalformedRecord("topic-0", 7, "no JSON", b"{")
    pieces = time.take("a", [bad, {"ts": 5}], [900, 901])
    assert [stamp for _, stamps, _ in pieces for stamp in stamps or ()] == [MIN_WATERMARK, 5]
    time.periodic()
    assert time.watermark == 4, "not 899, the time at which Kafka got the malformed record"
    with pytest.raises(KeyError):
        time.take("a", [{}], [902])


def test_an_idle_split_holds_back_nobody_and_wakes_up() -> None:
    clock = ManualClock()
    time = source(MONOTONOUS.with_idleness(TEN_SECONDS), clock)
    time.add("silent")
    time.take("a", [1], [100])
    assert time.periodic() is None
    clock.now += 5
    time.take("a", [1], [200])
    clock.now += 5
    assert time.periodic() == Watermark(199)
    assert time.needs_interval
    clock.now += 5
    assert time.periodic() == Watermark(199, idle=True)
    assert not time.needs_interval, "an idle source sleeps"
    assert time.watermark == MAX_WATERMARK, "and holds back no alignment group"
    assert time.take("silent", [1], [150]) == [([1], [150], Watermark(199))]
    time.take("a", [1], [300])
    assert time.periodic() is None
    time.take("silent", [1], [400])
    assert time.periodic() == Watermark(299)


def test_the_splits_that_hold_back_most_are_named() -> None:
    clock = ManualClock()
    time = source(WatermarkStrategy.for_monotonous_timestamps().with_idleness(Duration.of_seconds(5)), clock)
    for name, stamp in (("fast", 50), ("slow", 10), ("idle", 5)):
        time.take(name, [1], [stamp])
    assert time.periodic() is not None
    clock.now += 6
    for name, stamp in (("fast", 60), ("slow", 20)):
        time.take(name, [1], [stamp])
    time.periodic()
    assert time.furthest_behind(1) == {"slow": 19}
    assert time.furthest_behind(9) == {"slow": 19, "fast": 59}


def test_time_under_back_pressure_is_no_idleness() -> None:
    clock = ManualClock()
    time = source(MONOTONOUS.with_idleness(TEN_SECONDS), clock)
    time.take("a", [1], [100])
    clock.now += 60
    time.clock.exclude(55)
    assert time.periodic() == Watermark(99)
    clock.now += 5
    assert time.periodic() == Watermark(99, idle=True)


def test_a_source_without_splits_turns_idle() -> None:
    clock = ManualClock()
    time = source(MONOTONOUS.with_idleness(TEN_SECONDS), clock)
    assert time.periodic() is None
    clock.now += 10
    assert time.periodic() == Watermark(MIN_WATERMARK, idle=True)


def test_a_source_that_turns_idle_takes_the_time_of_splits_that_were_read_at_once() -> None:
    clock = ManualClock()
    time = source(MONOTONOUS.with_idleness(TEN_SECONDS), clock)
    for split, stamps in (("a", [100, 200]), ("b", [50])):  # each read between two looks at the clock
        time.take(split, stamps, stamps)
        assert time.finished(split) is None, "others may have older records"
    assert time.periodic() is None
    clock.now += 10
    assert time.periodic() == Watermark(199)
    assert time.periodic() == Watermark(199, idle=True)
    assert not time.needs_interval


class Punctuated(WatermarkGenerator):
    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        if event == "mark":
            output.emit_watermark(event_timestamp)
        elif event == "idle":
            output.mark_idle()

    def on_periodic_emit(self, output: WatermarkOutput) -> None: ...


def test_a_punctuated_generator_cuts_the_batch() -> None:
    time = source(WatermarkStrategy.for_generator(Punctuated))
    pieces = time.take("a", [1, "mark", 2, 3, "mark", "mark"], [10, 20, 30, 40, 50, 45])
    assert pieces == [
        ([1, "mark"], [10, 20], Watermark(20)),
        ([2, 3, "mark"], [30, 40, 50], Watermark(50)),
        (["mark"], [45], None),
    ]
    assert time.take("a", ["idle", 4], [60, 70])[0] == (["idle"], [60], Watermark(50, idle=True))


def test_a_supplier_has_to_give_a_generator() -> None:
    time = source(WatermarkStrategy.for_generator(lambda: 5))  # type: ignore[arg-type, return-value]
    with pytest.raises(ProgramError, match="returned 5; it has to return a WatermarkGenerator"):
        time.add("a")
    with pytest.raises(TypeError, match="hand over its class"):
        WatermarkStrategy.for_generator(Punctuated())  # type: ignore[arg-type]


def test_a_source_without_a_split_or_a_record_holds_back_no_alignment_group() -> None:
    time = source(MONOTONOUS.with_watermark_alignment("group", Duration.of_millis(50)))
    assert time.watermark == MAX_WATERMARK, "there may be fewer splits than subtasks"
    time.add("empty")
    assert time.periodic() is None
    assert time.watermark == MAX_WATERMARK, "a split may be empty for ever"
    time.take("full", [1], [100])
    time.finished("empty")
    time.periodic()
    assert time.watermark == 99
    time.finished("full")
    assert time.watermark == MAX_WATERMARK, "all splits have ended"
    time.take("next", [1], [200])
    time.periodic()
    assert time.watermark == 199


def test_splits_that_are_ahead_of_their_group_are_paused() -> None:
    clock = ManualClock()
    strategy = MONOTONOUS.with_idleness(TEN_SECONDS).with_watermark_alignment("group", Duration.of_millis(50))
    time = source(strategy, clock)
    calls: list[Any] = []

    def pause(ids: list[str]) -> None:
        calls.append(("pause", ids))

    def resume(ids: list[str]) -> None:
        calls.append(("resume", ids))

    time.take("fast", [1], [1001])
    time.take("slow", [1], [101])
    time.periodic()
    assert time.watermark == 100
    time.align(100, pause, resume)
    time.align(100, pause, resume)
    assert calls == [("pause", ["fast"])]
    clock.now += 60
    time.take("slow", [1], [1001])
    time.periodic()
    assert not time.splits["fast"].idle, "a paused split is not idle"
    time.align(950, pause, resume)
    assert calls[1:] == [("resume", ["fast"])]
    clock.now += 9
    assert time.periodic() is None, "the pause does not count"
    time.align(MAX_WATERMARK, pause, resume)
    assert len(calls) == 2


def test_the_channel_that_holds_an_input_back_is_told_with_the_time_since_when() -> None:
    clock = ManualClock()
    ids = [(ChannelId(3, 0, 0), 0), (ChannelId(3, 1, 0), 0), (ChannelId(5, 0, 0), 1), (ChannelId(5, 1, 0), 1)]
    marks = ChannelWatermarks(ids, "Task (1/1)#0", clock)
    marks.update(0, Watermark(10))
    clock.now += 2
    marks.update(1, Watermark(5))
    marks.update(2, Watermark(70, idle=True))
    marks.update(3, Watermark(MAX_WATERMARK))
    clock.now += 3
    marks.update(0, Watermark(20))
    marks.update(1, Watermark(5))
    first = {"input": 1, "members": 2, "idle": 0, "ended": 0, "all_idle": False}
    second = {"input": 2, "members": 2, "idle": 1, "ended": 1, "all_idle": True}
    slowest = {"watermark": 5, "ahead": 20, "edge": 3, "subtask": 1, "still_ms": 3000}
    assert marks.progress() == [{**first, **slowest}, second]


def test_a_channel_that_was_never_heard_of_holds_back_from_the_beginning() -> None:
    clock = ManualClock()
    marks = channels(0, 0, clock=clock)
    clock.now += 4
    marks.update(0, Watermark(10))
    (row,) = marks.progress()
    assert (row["watermark"], row["ahead"], row["subtask"], row["still_ms"]) == (MIN_WATERMARK, 10, 1, 4000)


def test_a_source_tells_its_slowest_split_and_how_long_that_had_no_records() -> None:
    clock = ManualClock()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Itself())
    source = SourceTime("numbers", "Source (1/1)#0", strategy, clock, None)
    clock.now += 1
    (empty,) = [source.progress()]
    assert (empty["members"], empty["watermark"], empty["still_ms"]) == (0, MIN_WATERMARK, 1000)
    source.add("silent")
    source.take("slow", [5], None)
    source.take("fast", [50], None)
    source.periodic()
    assert source.progress() == {
        "input": 0, "members": 3, "idle": 0, "ended": 0, "all_idle": False, "watermark": MIN_WATERMARK, "ahead": 49,
        "still_ms": 0, "silent_ms": -1, "idleness": False, "split": "silent",
    }  # fmt: skip
    source.finished("silent")
    clock.now += 7
    source.take("fast", [60], None)
    source.periodic()
    progress = source.progress()
    assert (progress["split"], progress["watermark"], progress["ahead"]) == ("slow", 4, 59)
    assert (progress["still_ms"], progress["silent_ms"]) == (7000, 7000)


def test_idle_splits_hold_nothing_back() -> None:
    clock = ManualClock()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Itself())
    source = SourceTime("numbers", "Source (1/1)#0", strategy.with_idleness(Duration.of_seconds(5)), clock, None)
    source.take("slow", [5], None)
    source.take("fast", [50], None)
    clock.now += 6
    source.take("fast", [60], None)
    source.periodic()
    progress = source.progress()
    assert (progress["split"], progress["idle"], progress["idleness"]) == ("fast", 1, True)
    clock.now += 6
    source.periodic()
    assert source.progress() == {"input": 0, "members": 2, "idle": 2, "ended": 0, "all_idle": True}
