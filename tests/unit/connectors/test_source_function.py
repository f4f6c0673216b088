"""Source functions: a thread that hands records over, driven by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from firesteel.common.watermark_strategy import WatermarkStrategy
from firesteel.connectors.enumerators import create_enumerator
from firesteel.connectors.source_function import AHEAD, FunctionReader, SourceFunctionSource
from firesteel.core.errors import CheckpointVersionError
from firesteel.functions.source import END, NEED_SPLITS, ReaderContext, SourceBatch, Split, Wait
from firesteel.functions.source_function import SourceFunction
from firesteel.runtime.loop.interrupts import CancelToken, InterruptGuard
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.records.batch import Watermark
from firesteel.runtime.sources.source_input import SourceInput
from firesteel.runtime.sources.source_time import SourceTime
from tests.unit.runtime.support import INFO, ManualClock

SECONDS = 60.0


class Context(ReaderContext):
    """Knows when it was woken."""

    subtask_index = 0
    parallelism = 1

    def __init__(self) -> None:
        self.woken = threading.Semaphore(0)

    def monotonic(self) -> float:
        return 0.0

    def wake_up(self) -> None:
        self.woken.release()


class Running(SourceFunction[Any]):
    def __init__(self, run: Callable[[Any], None]) -> None:
        self._run = run
        self.cancelled, self.closed = threading.Event(), threading.Event()

    def run(self, ctx: SourceFunction.SourceContext[Any]) -> None:
        self._run(ctx)

    def cancel(self) -> None:
        self.cancelled.set()

    def close(self) -> None:
        self.closed.set()


def started(function: SourceFunction[Any]) -> tuple[FunctionReader, Context]:
    context = Context()
    reader = FunctionReader(function, context)
    assert reader.poll(10) is NEED_SPLITS
    reader.add_splits([Split("subtask-0", {"subtask": 0})])
    reader.no_more_splits()
    return reader, context


def batches(reader: FunctionReader, context: Context, size: int = 10) -> Iterator[SourceBatch[Any]]:
    """All batches until the end; waits to be woken whenever there is nothing."""
    while True:
        answer = reader.poll(size)
        if answer is END:
            return
        if isinstance(answer, Wait):
            assert context.woken.acquire(timeout=SECONDS)
        else:
            assert isinstance(answer, SourceBatch)
            yield answer


def answers(reader: FunctionReader, context: Context, size: int = 10) -> list[SourceBatch[Any]]:
    return list(batches(reader, context, size))


def test_records_and_timestamps_in_order() -> None:
    def run(ctx: Any) -> None:
        with ctx.get_checkpoint_lock():
            for i in range(25):
                ctx.collect(i)
        for i in range(5):
            ctx.collect_with_timestamp(i, 100 + i)
        ctx.mark_as_temporarily_idle()
        ctx.collect("last")

    function = Running(run)
    reader, context = started(function)
    batches = answers(reader, context)
    assert [value for batch in batches for value in batch.values] == [*range(25), *range(5), "last"]
    stamps: list[Any] = []
    for batch in batches:
        stamps.extend([None] * len(batch.values) if batch.timestamps is None else batch.timestamps)
    assert stamps == [
        *[None] * 25, *range(100, 105), None,
    ]  # fmt: skip
    assert all(len(batch.values) <= 10 for batch in batches)
    assert batches[-1].split_finished
    assert reader.snapshot() == []
    assert function.closed.is_set()
    reader.close()
    assert not function.cancelled.is_set()


class Stamp:
    timestamp = 7


def test_a_record_that_is_collected_again_and_again_is_what_it_was() -> None:
    def run(ctx: Any) -> None:
        mine = {"n": 0}
        for _ in range(3):
            mine["n"] += 1
            ctx.collect(mine)
            ctx.collect_with_timestamp(mine, 5)

    reader, context = started(Running(run))
    numbers = [record["n"] for batch in answers(reader, context) for record in batch.values]
    assert sorted(numbers) == [1, 1, 2, 2, 3, 3]
    reader.close()


def test_watermarks_and_idleness_stand_where_they_were_said() -> None:
    def run(ctx: Any) -> None:
        ctx.emit_watermark(1)
        ctx.collect_with_timestamp("a", 5)
        ctx.collect_with_timestamp("b", 6)
        ctx.emit_watermark(5)
        ctx.emit_watermark(Stamp())
        ctx.collect("c")
        ctx.mark_as_temporarily_idle()
        ctx.collect("d")

    reader, context = started(Running(run))
    items: list[Any] = []
    for batch in answers(reader, context):  # however they were cut
        stamps: Any = batch.timestamps or [None] * len(batch.values)
        items += zip(batch.values, stamps, strict=True)
        items += [batch.watermark] * (batch.watermark is not None) + ["idle"] * batch.idle
    assert items == [1, ("a", 5), ("b", 6), 5, 7, ("c", None), "idle", ("d", None)]
    reader.close()


def test_a_function_waits_while_nobody_takes_its_records() -> None:
    emitted: list[int] = []

    def run(ctx: Any) -> None:
        for i in range(3 * AHEAD):
            ctx.collect(i)
            emitted.append(i)

    reader, context = started(Running(run))
    first = reader.poll(1)
    if isinstance(first, Wait):
        assert context.woken.acquire(timeout=SECONDS)
        first = reader.poll(1)
    assert isinstance(first, SourceBatch)
    reader.pause_splits(["subtask-0"])
    assert isinstance(reader.poll(5), Wait)
    assert reader.snapshot() == [Split("subtask-0", {"subtask": 0})]
    assert len(emitted) <= AHEAD + 2
    reader.resume_splits(["subtask-0"])
    rest = [value for batch in answers(reader, context, 1000) for value in batch.values]
    assert first.values + rest == list(range(3 * AHEAD))
    reader.close()


def test_an_error_of_run_comes_after_what_it_gave() -> None:
    def run(ctx: Any) -> None:
        ctx.collect(1)
        raise ValueError("no more")

    function = Running(run)
    reader, context = started(function)
    assert next(batches(reader, context)).values == [1]
    with pytest.raises(ValueError, match="no more"):
        next(batches(reader, context))
    assert function.closed.is_set()
    reader.close()


def test_cancel_ends_functions_that_wait_for_room_and_those_that_do_not_look() -> None:
    def endless(ctx: Any) -> None:
        i = 0
        while True:
            ctx.collect(i)
            i += 1

    def busy(ctx: Any) -> None:
        began.set()
        while True:
            pass

    began = threading.Event()
    for run in (endless, busy):
        function = Running(run)
        reader, context = started(function)
        assert began.wait(SECONDS) if run is busy else context.woken.acquire(timeout=SECONDS)
        reader.close()
        assert function.cancelled.is_set()
        assert function.closed.wait(SECONDS)
        reader._thread.join(SECONDS)
        assert not reader._thread.is_alive()


def test_what_is_refused() -> None:
    def run(ctx: Any) -> None:
        with pytest.raises(TypeError, match=r"emit_watermark\(\) takes a watermark in ms, an int, not 'soon'"):
            ctx.emit_watermark("soon")
        with pytest.raises(TypeError, match="takes a timestamp in ms, an int, not"):
            ctx.collect_with_timestamp(1, 1.5)
        ctx.collect("all refused")

    reader, context = started(Running(run))
    assert answers(reader, context)[0].values == ["all refused"]
    with pytest.raises(CheckpointVersionError, match="version 9"):
        FunctionReader(Running(run), context).add_splits([Split("x", {}, version=9)])
    reader.close()
    assert not SourceFunctionSource(Running(run)).replayable


def test_whether_a_class_speaks_of_watermarks() -> None:
    class Speaks(Running):
        def run(self, ctx: Any) -> None:
            def inner() -> None:
                ctx.emit_watermark(1)

            inner()

    assert SourceFunctionSource(Speaks(lambda ctx: None)).speaks_of_watermarks
    assert not SourceFunctionSource(Running(lambda ctx: ctx.emit_watermark(1))).speaks_of_watermarks


def test_each_subtask_gets_one_split() -> None:
    enumerator = create_enumerator("subtasks", {})
    assert not enumerator.exhausted
    assert [s.id for s in enumerator.next_splits(1, 2)] == ["subtask-1"]
    assert enumerator.next_splits(1, 2) == []
    again = create_enumerator("subtasks", {})
    again.restore(enumerator.snapshot())
    assert again.next_splits(1, 2) == []
    assert not again.exhausted
    splits = again.next_splits(0, 2)
    assert again.exhausted
    again.add_splits_back(splits)
    assert not again.exhausted
    assert again.next_splits(0, 2) == splits


def test_a_function_takes_over_the_splits_of_subtasks_that_are_no_more() -> None:
    """It ran with three subtasks, and goes on with two: this one has the state of two functions."""
    go_on = threading.Event()

    def run(ctx: Any) -> None:
        ctx.collect_with_timestamp("a", 5)
        assert go_on.wait(SECONDS)
        ctx.collect_with_timestamp("b", 7)

    context = Context()
    reader = FunctionReader(Running(run), context)
    first, second = (Split(f"subtask-{i}", {"subtask": i}) for i in (0, 2))
    reader.add_splits([first, second])
    assert [reader.is_silent(split.id) for split in (first, second)] == [False, True]
    assert reader.snapshot() == [first, second]
    reader.no_more_splits()
    assert next(batches(reader, context)).values == ["a"]
    go_on.set()
    last = answers(reader, context)
    assert [value for batch in last for value in batch.values] == ["b"]
    assert [(batch.split_id, batch.split_finished) for batch in last[-2:]] == [(first.id, True), (second.id, True)]
    assert reader.snapshot() == []
    with pytest.raises(CheckpointVersionError, match="of version 2 was written by a later release"):
        reader.add_splits([Split("subtask-4", {}, None, 2)])
    reader.close()


@pytest.mark.parametrize("at_once", [True, False])
def test_splits_of_subtasks_that_are_no_more_hold_back_no_watermark(at_once: bool) -> None:
    end = threading.Event()

    def run(ctx: Any) -> None:
        ctx.collect_with_timestamp("a", 5)
        end.wait(SECONDS)

    clock, woken = ManualClock(), threading.Semaphore(0)
    loop = TaskLoop(clock)
    time = SourceTime("src", "src", WatermarkStrategy.for_monotonous_timestamps(), clock, None)
    source_input_ = SourceInput(
        "src", SourceFunctionSource(Running(run)), INFO, clock, CancelToken(), lambda: None, woken.release, 10, time
    )
    source_input_.run_on(loop, InterruptGuard())
    source_input_.open()
    splits = [Split(f"subtask-{i}", {"subtask": i}) for i in (0, 2)]
    for new_splits in [splits] if at_once else [[split] for split in splits]:
        source_input_.add_splits(new_splits, False)
    piece: Any = None
    while piece is None:
        piece = source_input_.poll() or (loop.run_once(block=True) and None)
    assert piece.batch.values == ["a"]
    assert time.periodic() == Watermark(4)
    assert [split["id"] for split in source_input_.position().splits] == ["subtask-0", "subtask-2"]
    end.set()
    source_input_.close()
    loop.close()
