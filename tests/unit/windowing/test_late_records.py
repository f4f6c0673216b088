"""Late records that are dropped: what is counted, and what the log says, for each operator that drops some."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from firesteel.common import WatermarkStrategy
from firesteel.connectors.data_generator import DataGeneratorSource
from firesteel.functions.source import Split
from firesteel.graph.specs import ChainSpec, OperatorKind
from firesteel.runtime.exchange.channels import ChannelId
from firesteel.runtime.loop.interrupts import CancelToken
from firesteel.runtime.operator_base.context import OperatorContext, TaskRuntimeContext
from firesteel.runtime.operators.late_records import LateRecords
from firesteel.runtime.operators.stateless import MapOperator
from firesteel.runtime.records.batch import END_OF_INPUT, MAX_WATERMARK, MIN_WATERMARK, Watermark
from firesteel.runtime.sources.source_input import SourceInput
from firesteel.runtime.sources.source_time import SourceTime
from firesteel.runtime.task.channel_watermarks import ChannelWatermarks
from firesteel.windowing.assigners import SlidingEventTimeWindows, TumblingEventTimeWindows
from firesteel.windowing.session_assigners import EventTimeSessionWindows
from tests.unit.runtime.support import FakeInput, ManualClock, spec
from tests.unit.runtime.test_task import bench_of, forward
from tests.unit.windowing.column_rig import ColumnRig
from tests.unit.windowing.harness import INFO, Clock, Rig, spec_of
from tests.unit.windowing.test_interval_join import Pair

HOUR = 3_600_000
LAST = 1_795_000_000_000


def rows(rig: Any, stamps: list[int]) -> None:
    if isinstance(rig, ColumnRig):
        rig.records([("a", number, None, None, number) for number in range(len(stamps))], stamps)
    else:
        rig.records([(("a", number), stamp) for number, stamp in enumerate(stamps)])


def windows(assigner: Any, kind: OperatorKind) -> Rig:
    return Rig(spec_of(assigner, None, "all"), kind)


OPERATORS: dict[str, Callable[[], Any]] = {
    "any windows": lambda: windows(TumblingEventTimeWindows(10), OperatorKind.WINDOW),
    "windows of one size": lambda: windows(TumblingEventTimeWindows(10), OperatorKind.ALIGNED_WINDOW),
    "sliding windows": lambda: windows(SlidingEventTimeWindows(10, 5), OperatorKind.ALIGNED_WINDOW),
    "sessions": lambda: windows(EventTimeSessionWindows(10), OperatorKind.SESSION_WINDOW),
    "windows over columns": lambda: ColumnRig(TumblingEventTimeWindows(10), late_tag=None),
    "sessions over columns": lambda: ColumnRig(EventTimeSessionWindows(10), late_tag=None),
    "interval join": lambda: Rig(
        Pair(), OperatorKind.INTERVAL_JOIN, inputs=2, lower=0, upper=5, late_tags=(None, None)
    ),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_the_first_the_second_the_fourth_and_so_on_is_a_warning(name: str, caplog: pytest.LogCaptureFixture) -> None:
    rig: Any = OPERATORS[name]()
    rig.watermark(LAST + 24 * HOUR)
    for number in range(9):
        rows(rig, [LAST + number])
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 4
    numbers = [record.getMessage().partition(": ")[2].split(" ")[0] for record in caplog.records]
    assert numbers == ["1", "2", "4", "8"]
    assert "1 late record was dropped so far; the last one has the time 2026-11-18T11:06:40.000+00:00" in caplog.text
    assert f"({LAST + 7}), and the watermark is at 2026-11-19T11:06:40.000+00:00 ({LAST + 24 * HOUR})" in caplog.text
    assert "23:59:59.993000 ahead" in caplog.text
    assert rig.operator.late_records.count == 9
    assert next(n for name, n in rig.metrics.values().items() if name.endswith("numLateRecordsDropped")) == 9


def test_many_at_once_are_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    rig = ColumnRig(TumblingEventTimeWindows(10), late_tag=None)
    rig.watermark(LAST)
    rows(rig, [5] * 1000)
    rows(rig, [6, LAST])
    assert [record.getMessage().partition(": ")[2].split(" ")[0] for record in caplog.records] == ["1000"]
    assert rig.operator.late_records.count == 1001


@pytest.mark.parametrize("late_tag", [True, False])
def test_what_is_not_dropped_is_not_warned_of(late_tag: bool, caplog: pytest.LogCaptureFixture) -> None:
    rig = ColumnRig(TumblingEventTimeWindows(10), lateness=0 if late_tag else 100)
    rig.watermark(50)
    rows(rig, [5])
    assert caplog.records == []
    assert rig.operator.late_records.count == 0


@pytest.mark.parametrize(
    ("timestamp", "watermark", "words"),
    [
        (0, MAX_WATERMARK, "1970-01-01T00:00:00.000+00:00 (0), and the watermark is at the end of the input. A"),
        (MIN_WATERMARK + 1, MAX_WATERMARK - 1, f"{MIN_WATERMARK + 1}, and the watermark is at {MAX_WATERMARK - 1}. A"),
    ],
)
def test_times_beyond_the_calendar_are_numbers(
    timestamp: int, watermark: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    context = OperatorContext(INFO, clock)
    late = LateRecords("WINDOW", context, TaskRuntimeContext(INFO, "WINDOW", None, context.metrics))
    late.drop(timestamp, watermark)
    assert words in caplog.text


def test_the_warning_names_the_subtask_that_the_watermark_follows(caplog: pytest.LogCaptureFixture) -> None:
    channels = [(ChannelId(edge, up, 0), 0) for edge, up in ((3, 0), (3, 1), (4, 0))]
    marks = ChannelWatermarks(channels, "Task", ManualClock(), {3: "Source: clicks"})
    context = OperatorContext(INFO, Clock(), watermark_origin=marks.origin)
    late = LateRecords("WINDOW", context, TaskRuntimeContext(INFO, "WINDOW", None, context.metrics))
    marks.update(0, Watermark(5, idle=True))
    marks.update(1, Watermark(HOUR))
    marks.update(2, Watermark(HOUR + 1))
    late.drop(7, HOUR)
    assert "which comes from 'Source: clicks', subtask 2. A record whose time" in caplog.text
    marks.update(1, Watermark(MAX_WATERMARK))
    late.drop(7, HOUR + 1)
    assert "which comes from channel 4:0->0. A record whose time" in caplog.text, "of an edge without a name"


def test_the_warning_names_the_source_behind_several_exchanges() -> None:
    """The subtask in front has said where its own watermark comes from, so the log need not stop there."""
    channels = [(ChannelId(3, up, 0), 0) for up in (0, 1)]
    marks = ChannelWatermarks(channels, "Task", ManualClock(), {3: "Count"})
    marks.update(0, Watermark(7, origin="source 'clicks', split 'topic-0' (subtask 0)"))
    marks.update(1, Watermark(5, origin="source 'clicks', split 'topic-1' (subtask 1)"))
    assert marks.origin() == "source 'clicks', split 'topic-1' (subtask 1)", "the slower one"
    marks.update(1, Watermark(9, origin="source 'clicks', split 'topic-2' (subtask 1)"))
    assert marks.origin() == "source 'clicks', split 'topic-0' (subtask 0)"
    marks.update(0, Watermark(9, idle=True))
    assert marks.origin() == "source 'clicks', split 'topic-2' (subtask 1)", "the last that it sent"


def nothing() -> None: ...


def test_the_warning_names_the_source_and_split_of_its_own_chain() -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    time = SourceTime("clicks", "task", strategy, ManualClock(), None)
    source = DataGeneratorSource(lambda index: index, 10)
    input_ = SourceInput("clicks", source, INFO, ManualClock(), CancelToken(), nothing, nothing, 9, time)
    assert input_.watermark_origin() == "source 'clicks'", "it has no split yet"
    time.take("topic-0", ["a"], [HOUR])
    time.take("topic-1", ["b"], [5])
    time.periodic()
    assert input_.watermark_origin() == "source 'clicks', split 'topic-1'"
    time.finished("topic-1")
    assert input_.watermark_origin() == "source 'clicks', split 'topic-0'"
    without = SourceInput("clicks", source, INFO, ManualClock(), CancelToken(), nothing, nothing, 9)
    assert without.watermark_origin() == "source 'clicks'"
    without.add_splits([Split("topic-7", {})], False)
    assert without.watermark_origin() == "source 'clicks', split 'topic-7'"


def test_the_operator_that_makes_watermarks_in_a_chain_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """One in another branch makes none for it."""
    assigner = spec(OperatorKind.WATERMARKS, WatermarkStrategy.no_watermarks(), name="Timestamps")
    operators = [spec(OperatorKind.MAP, str, name="head"), assigner, spec(OperatorKind.MAP, str, name="behind")]
    chain = ChainSpec([*operators, spec(OperatorKind.MAP, str, name="beside")], [[1, 3], [2], [], []], [])
    origins: dict[str, str] = {}
    monkeypatch.setattr(
        MapOperator, "open", lambda self, context: origins.update({self.name: context.watermark_origin()})
    )
    bench_of(chain, FakeInput([END_OF_INPUT])).task.start()
    assert origins == {"behind": "'Timestamps'", "beside": "channel 0:0->0", "head": "channel 0:0->0"}


@pytest.mark.parametrize("assigner_is_last", [True, False])
def test_a_watermark_that_leaves_the_task_says_where_it_was_made(assigner_is_last: bool) -> None:
    assigner = spec(OperatorKind.WATERMARKS, WatermarkStrategy.for_monotonous_timestamps(), name="Timestamps")
    head = spec(OperatorKind.MAP, str, name="head")
    operators = [head, assigner] if assigner_is_last else [assigner, head]
    from_other_task = Watermark(HOUR, origin="source 'clicks' (subtask 3)")
    bench = bench_of(forward(*operators), FakeInput([from_other_task, END_OF_INPUT]))
    bench.task.start()
    bench.run()
    origins = {mark.origin for _, mark in bench.output.elements if isinstance(mark, Watermark)}
    assert origins == {"'Timestamps' (subtask 2/4)"}


def test_a_watermark_that_passes_a_task_keeps_where_it_was_made() -> None:
    from_other_task = Watermark(HOUR, origin="source 'clicks' (subtask 3)")
    chain = forward(spec(OperatorKind.MAP, str, name="head"))
    bench = bench_of(chain, FakeInput([from_other_task, END_OF_INPUT]))
    bench.task.start()
    bench.run()
    marks = [mark for _, mark in bench.output.elements if isinstance(mark, Watermark)]
    assert [(mark.timestamp, mark.origin) for mark in marks[:1]] == [(HOUR, from_other_task.origin)]
