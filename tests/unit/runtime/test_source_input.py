"""Driving readers: splits, waiting, ends, wake-ups, sizes, misuse; and readers on asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from firesteel.common import Duration
from firesteel.common.typeinfo import RowTypeInfo, TupleTypeInfo, Types
from firesteel.common.types import Row
from firesteel.common.watermark_strategy import WatermarkGeneratorKind, WatermarkStrategy
from firesteel.core.errors import ProgramError, UnsupportedFeatureError
from firesteel.functions.source import (
    END,
    NEED_SPLITS,
    AsyncSourceReader,
    Boundedness,
    EnumeratorSpec,
    ReaderContext,
    Source,
    SourceBatch,
    SourceReader,
    Split,
    Wait,
)
from firesteel.graph.specs import OperatorKind
from firesteel.runtime.loop.interrupts import CancelToken, InterruptGuard
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.records.batch import END_OF_INPUT, MAX_WATERMARK, InBand, InputBatch, Watermark
from firesteel.runtime.records.rows import to_records
from firesteel.runtime.sources import source_input
from firesteel.runtime.sources.source_input import SourceInput
from firesteel.runtime.sources.source_time import SourceTime
from tests.unit.checkpoint_faults.whole_job import operator
from tests.unit.runtime.mini_job import MiniJob, Vertex
from tests.unit.runtime.support import INFO, ManualClock

MONOTONOUS = WatermarkStrategy.for_monotonous_timestamps()


class ScriptedReader(SourceReader[Any]):
    """Answers what the test says."""

    def __init__(self, context: ReaderContext) -> None:
        self.context = context
        self.script: deque[Any] = deque()
        self.polls: list[int] = []
        self.splits: list[Split] = []
        self.no_more = self.closed = 0
        self.paused: list[str] = []

    def poll(self, max_records: int) -> Any:
        self.polls.append(max_records)
        answer = self.script.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def add_splits(self, splits: Sequence[Split]) -> None:
        self.splits += splits

    def no_more_splits(self) -> None:
        self.no_more += 1

    def pause_splits(self, split_ids: Sequence[str]) -> None:
        self.paused += split_ids

    def resume_splits(self, split_ids: Sequence[str]) -> None:
        self.paused = [split for split in self.paused if split not in split_ids]

    def snapshot(self) -> list[Split]:
        return self.splits

    def close(self) -> None:
        self.closed += 1


class AnySource(Source[Any]):
    def __init__(self, reader_class: Any = ScriptedReader, type_info: Any = None) -> None:
        self.reader_class, self.type_info = reader_class, type_info
        self.reader: Any = None

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def enumerator(self) -> EnumeratorSpec:
        return EnumeratorSpec("static")

    def create_reader(self, context: ReaderContext) -> Any:
        self.reader = self.reader_class(context)
        return self.reader

    def produced_type(self) -> Any:
        return self.type_info


class Bench:
    """An input on a loop with a manual clock."""

    def __init__(self, source: AnySource) -> None:
        self.clock = ManualClock()
        self.loop = TaskLoop(self.clock)
        self.split_requests = self.woken = 0
        self.input = SourceInput("src", source, INFO, self.clock, CancelToken(), self._ask, self._wake, 1000)
        self.input.run_on(self.loop, InterruptGuard())
        self.reader = source.reader

    def _ask(self) -> None:
        self.split_requests += 1

    def _wake(self) -> None:
        self.woken += 1

    def run(self) -> None:
        while self.loop.run_once(block=False):
            pass


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench(AnySource())
    bench.input.open()
    yield bench
    bench.loop.close()


def batch_of(got: InputBatch | InBand | None) -> Any:
    """The values of a batch that the input gave, which have no timestamps."""
    assert isinstance(got, InputBatch)
    assert got.batch.timestamps is None
    return got.batch.values


def batch(*values: Any, finished: bool = False) -> SourceBatch[Any]:
    return SourceBatch(list(values), "s", len(values), None, finished)


def test_splits_are_asked_for_once(bench: Bench) -> None:
    bench.reader.script.extend([NEED_SPLITS, batch(1, 2), END])
    assert bench.input.poll() is None
    assert bench.input.poll() is None
    assert bench.split_requests == 1
    bench.input.add_splits([Split("s", {})], False)
    assert bench.woken == 1
    assert bench.reader.splits == [Split("s", {})]
    assert batch_of(bench.input.poll()) == [1, 2]
    assert bench.input.positions == {"s": 2}
    assert bench.input.poll() is END_OF_INPUT
    assert bench.input.poll() is None


def test_the_end_of_the_input_no_longer_holds_back_an_alignment_group() -> None:
    """The task may wait for a last checkpoint, with which the others of its group can't help."""
    clock = ManualClock()
    loop = TaskLoop(clock)
    strategy = MONOTONOUS.with_watermark_alignment("group", Duration.of_seconds(1), Duration.of_millis(100))
    time = SourceTime("src", "task", strategy, clock, None)
    reports: list[tuple[str, int]] = []
    source = AnySource()
    input_ = SourceInput(
        "src", source, INFO, clock, CancelToken(), lambda: None, lambda: None, 1000, time, 0.2,
        report_watermark=lambda group, watermark: reports.append((group, watermark)),
    )  # fmt: skip
    input_.run_on(loop, InterruptGuard())
    input_.open()
    input_.add_splits([Split("s", {})], True)
    source.reader.script.extend([SourceBatch([1], "s", 1, [500]), Wait(), END])
    input_.poll()
    time.periodic()
    clock.now += 0.1
    loop.run_once(block=False)
    assert reports == [("group", 499)]
    assert input_.poll() is None
    source.reader.context.wake_up()
    loop.run_once(block=False)
    assert input_.poll() is END_OF_INPUT
    input_.close()
    assert reports[-1] == ("group", MAX_WATERMARK)
    loop.close()


def test_a_finished_split_has_no_position(bench: Bench) -> None:
    bench.input.add_splits([Split("s", {})], True)
    assert bench.input.positions == {"s": None}
    bench.reader.script.extend([batch(1, finished=True), END])
    bench.input.poll()
    assert bench.input.positions == {}


@pytest.mark.parametrize("position", [None, 7, [1, "a"], {"at": 1.5}])
def test_a_position_of_plain_data_goes_into_a_checkpoint(bench: Bench, position: Any) -> None:
    bench.input.add_splits([Split("s", {"a": 1}), Split("t", {})], True)
    bench.reader.script.append(SourceBatch([1], "t", position))
    bench.input.poll()
    assert [split["position"] for split in bench.input.position().splits] == [None, position]


@pytest.mark.parametrize("position", [np.int64(7), b"7", datetime(2024, 1, 1), float("nan"), {1: 2}, (1, 2)])
def test_a_position_that_is_no_plain_data_is_named(bench: Bench, position: Any) -> None:
    bench.input.add_splits([Split("s", {}), Split("t", {})], True)
    bench.reader.script.append(SourceBatch([1], "t", position))
    bench.input.poll()
    with pytest.raises(
        ProgramError, match=r"source 'src': the position of split 't' is not plain data: .*Give batches"
    ):
        bench.input.position()


class OddReader(ScriptedReader):
    """Is at a number of numpy's in its split."""

    def poll(self, max_records: int) -> Any:
        position: Any = np.int64(1)
        return SourceBatch([1], self.splits[0].id, position) if self.splits else Wait()


def test_a_position_that_is_no_plain_data_fails_the_task() -> None:
    source = operator("source", OperatorKind.SOURCE, AnySource(OddReader), extra={"watermark_strategy": MONOTONOUS})
    drop = operator("drop", OperatorKind.FILTER, lambda value: False)
    job = MiniJob([Vertex("source", lambda: [source, drop], 1)], {"source": [[]]}, 1)
    try:
        job.steps(20)
        job.trigger()
        with pytest.raises(AssertionError, match="the position of split 'source-0' is not plain data"):
            job.steps(20)
        assert job.failures[0].error_class.endswith("ProgramError")
        assert job.declined == {}
    finally:
        job.crash()


def test_an_answer_without_splits_is_asked_for_again(bench: Bench) -> None:
    bench.reader.script.extend([NEED_SPLITS, NEED_SPLITS])
    bench.input.poll()
    bench.input.add_splits([], False)
    assert bench.input.poll() is None
    assert bench.split_requests == 1
    bench.clock.now += 1
    bench.run()
    assert bench.input.poll() is None
    assert bench.split_requests == 2


def test_no_more_splits_is_told_once(bench: Bench) -> None:
    bench.reader.script.append(NEED_SPLITS)
    bench.input.poll()
    bench.input.add_splits([], True)
    bench.input.add_splits([], True)
    assert bench.reader.no_more == 1
    assert bench.woken == 1


def test_a_reader_that_asks_after_no_more_is_wrong(bench: Bench) -> None:
    bench.input.add_splits([], True)
    bench.reader.script.append(NEED_SPLITS)
    with pytest.raises(ProgramError, match="has to return END"):
        bench.input.poll()


def test_wait_ends_after_its_time(bench: Bench) -> None:
    bench.reader.script.extend([Wait(2.0), batch(1)])
    assert bench.input.poll() is None
    bench.clock.now += 1.9
    bench.run()
    assert bench.woken == 0
    bench.clock.now += 0.2
    bench.run()
    assert bench.woken == 1
    assert batch_of(bench.input.poll()) == [1]


def test_wake_up_ends_a_wait_from_any_thread(bench: Bench) -> None:
    bench.reader.script.extend([Wait(), batch(1)])
    assert bench.input.poll() is None
    thread = threading.Thread(target=bench.reader.context.wake_up)
    thread.start()
    thread.join()
    bench.run()
    assert bench.woken == 1
    assert batch_of(bench.input.poll()) == [1]


def test_empty_batches_are_skipped(bench: Bench) -> None:
    bench.reader.script.extend([batch(), batch(finished=True), batch(1)])
    assert batch_of(bench.input.poll()) == [1]


def test_polls_grow_while_they_are_quick(bench: Bench) -> None:
    bench.reader.script.extend([batch(1)] * 12)
    for _ in range(12):
        bench.input.poll()
    assert bench.reader.polls[:3] == [1, 2, 4], "each record may give any number of others, each of which may be slow"
    assert bench.reader.polls[-1] == 1000


class Obedient(ScriptedReader):
    """Gives as many as it is asked for."""

    def poll(self, max_records: int) -> Any:
        self.polls.append(max_records)
        return batch(*range(max_records))


def test_a_chain_that_is_slow_gets_small_batches_and_larger_ones_when_it_is_quick_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A barrier waits behind a batch."""
    now = 0.0
    monkeypatch.setattr(source_input, "_now", lambda: now)
    bench = Bench(AnySource(Obedient))
    bench.input.open()
    for _ in range(30):
        now += 0.020 * len(batch_of(bench.input.poll()))
    polls = bench.reader.polls
    assert polls[:3] == [1, 2, 4]
    assert set(polls[2:]) <= {4, 5}, "0.1 s"
    for _ in range(12):
        now += 0.000_01 * len(batch_of(bench.input.poll()))
    assert polls[-1] == 1000
    bench.loop.close()


def test_time_without_records_slows_nobody_down(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(source_input, "_now", lambda: now)
    bench.reader.script.extend([batch(1, 2), Wait(5.0), batch(3), batch(4)])
    assert batch_of(bench.input.poll()) == [1, 2]
    assert bench.input.poll() is None
    now += 5.0
    bench.clock.now += 5.0
    bench.run()
    assert batch_of(bench.input.poll()) == [3]
    assert batch_of(bench.input.poll()) == [4]
    assert bench.reader.polls == sorted(bench.reader.polls)


def test_polls_of_large_records_are_small(bench: Bench) -> None:
    for _ in range(4):
        bench.reader.script.append(batch(*["x" * 100_000] * 20))
        bench.input.poll()
    assert 1 <= bench.reader.polls[-1] <= 11


def test_an_error_of_the_reader_comes_out(bench: Bench) -> None:
    bench.reader.script.append(OSError("gone"))
    with pytest.raises(OSError, match="gone"):
        bench.input.poll()


def test_an_answer_of_another_kind_is_refused(bench: Bench) -> None:
    bench.reader.script.append([1, 2])
    with pytest.raises(ProgramError, match="returned list"):
        bench.input.poll()


def test_close_happens_once_and_nothing_wakes_after_it(bench: Bench) -> None:
    bench.reader.script.append(Wait(1.0))
    bench.input.poll()
    bench.input.close()
    bench.input.close()
    bench.clock.now += 2
    bench.run()
    assert (bench.reader.closed, bench.woken) == (1, 0)


def test_pause_and_resume_pass_through(bench: Bench) -> None:
    bench.input.pause_splits(["s"])
    assert bench.reader.paused == ["s"]
    bench.input.resume_splits(["s"])
    assert bench.reader.paused == []


@pytest.mark.parametrize(
    ("type_info", "columns", "expected"),
    [
        (None, {"n": [1, 2]}, [1, 2]),
        (Types.LONG(), {"n": [1, None]}, [1, None]),
        (None, {"a": [1, 2], "b": ["x", None]}, [(1, "x"), (2, None)]),
        (Types.TUPLE([Types.LONG()]), {"a": [1]}, [(1,)]),
        (Types.ROW_NAMED(["id", "t"], [Types.LONG(), Types.STRING()]), {"id": [1], "t": ["x"]}, [Row(id=1, t="x")]),
    ],
)
def test_columns_stand_for_records(type_info: Any, columns: dict[str, Any], expected: list[Any]) -> None:
    bench = Bench(AnySource(type_info=type_info))
    bench.reader.script.append(SourceBatch(pa.RecordBatch.from_pydict(columns), "s", 1))
    fed = bench.input.poll()
    assert isinstance(fed, InputBatch)
    records = to_records(fed.batch.values)
    assert records == expected
    assert [type(value) for value in records] == [type(value) for value in expected]
    keep_columns = isinstance(type_info, RowTypeInfo | TupleTypeInfo)
    assert isinstance(fed.batch.values, pa.RecordBatch) == keep_columns
    bench.loop.close()


class AsyncReader(AsyncSourceReader[int]):
    """Gives what splits say; asks when it has none."""

    def __init__(self, context: ReaderContext) -> None:
        self.context = context
        self.values: deque[int] = deque()
        self.no_more = False
        self.polls = 0
        self.story: list[str] = []
        self.closed = threading.Event()

    def open(self) -> None:
        self.story.append("open")

    async def poll(self, max_records: int) -> Any:
        self.polls += 1
        await asyncio.sleep(0)
        if self.values:
            value = self.values.popleft()
            if value < 0:
                raise ValueError(value)
            return SourceBatch([value], "s", value)
        return END if self.no_more else NEED_SPLITS

    def add_splits(self, splits: Sequence[Split]) -> None:
        self.values.extend(int(split.id) for split in splits)

    def no_more_splits(self) -> None:
        self.no_more = True

    def pause_splits(self, split_ids: Sequence[str]) -> None:
        self.story.append(f"pause on {threading.current_thread().name}")

    def resume_splits(self, split_ids: Sequence[str]) -> None:
        self.story.append(f"resume on {threading.current_thread().name}")

    def snapshot(self) -> list[Split]:
        return []

    def close(self) -> None:
        self.story.append("close")
        self.closed.set()


class AsyncBench(Bench):
    """Waits for the other thread through the loop itself."""

    def poll_until(self, item: Any) -> Any:
        while True:
            got = self.input.poll()
            if got is not None or (item is None and self.split_requests):
                return got
            self.loop.run_once(block=True)


def test_a_reader_on_asyncio_runs_ahead_only_a_little_and_is_closed_on_its_thread() -> None:
    bench = AsyncBench(AnySource(AsyncReader))
    bench.input.open()
    bench.poll_until(None)
    assert bench.split_requests == 1
    bench.input.add_splits([Split(str(i), {}) for i in range(5)], True)
    got = [bench.poll_until(1) for _ in range(6)]
    assert [fed.batch.values[0] for fed in got[:5]] == list(range(5))
    assert got[5] is END_OF_INPUT
    assert bench.split_requests == 1
    assert bench.reader.polls <= 10, "it does not poll while it waits for splits"
    bench.input.close()
    assert bench.reader.story == ["open", "close"]
    bench.loop.close()


def test_an_error_on_the_asyncio_thread_comes_out_of_poll() -> None:
    bench = AsyncBench(AnySource(AsyncReader))
    bench.input.open()
    bench.input.add_splits([Split("-1", {})], True)
    with pytest.raises(ValueError, match="-1"):
        bench.poll_until(1)
    bench.input.close()
    assert bench.reader.story == ["open", "close"]
    bench.loop.close()


def test_a_reader_on_asyncio_that_asks_after_no_more_is_wrong() -> None:
    class Asks(AsyncReader):
        async def poll(self, max_records: int) -> Any:
            return NEED_SPLITS

    bench = AsyncBench(AnySource(Asks))
    bench.input.open()
    bench.input.add_splits([], True)
    with pytest.raises(ProgramError, match="has to return END"):
        bench.poll_until(1)
    bench.input.close()
    bench.loop.close()


def test_pausing_happens_on_the_asyncio_thread() -> None:
    bench = AsyncBench(AnySource(AsyncReader))
    bench.input.open()
    bench.input.pause_splits(["s"])
    bench.input.resume_splits(["s"])
    bench.input.add_splits([], True)
    assert bench.poll_until(1) is END_OF_INPUT
    bench.input.close()
    assert bench.reader.story == ["open", "pause on firesteel-reader src", "resume on firesteel-reader src", "close"]
    bench.loop.close()


def test_closing_cancels_a_poll_that_waits() -> None:
    class Forever(AsyncReader):
        async def poll(self, max_records: int) -> Any:
            await asyncio.Event().wait()

    bench = AsyncBench(AnySource(Forever))
    bench.input.open()
    bench.input.close()
    assert bench.reader.closed.is_set()
    bench.loop.close()


def test_a_reader_on_asyncio_that_was_never_opened_is_closed_too() -> None:
    bench = AsyncBench(AnySource(AsyncReader))
    bench.input.close()
    bench.loop.close()


def test_a_source_gives_its_own_watermarks_where_no_strategy_does() -> None:
    own = WatermarkStrategy(WatermarkGeneratorKind.OF_SOURCE)
    for strategy, expected in ((own, [Watermark(3, False), Watermark(3, True)]), (MONOTONOUS, [])):
        source = AnySource()
        clock, loop = ManualClock(), TaskLoop(ManualClock())
        time = SourceTime("src", "src (1/1)#0", strategy, clock, None)
        input_ = SourceInput("src", source, INFO, clock, CancelToken(), lambda: None, lambda: None, 1000, time)
        input_.run_on(loop, InterruptGuard())
        source.reader.script.extend(
            [
                SourceBatch([1], "s", None, [4], watermark=3),
                SourceBatch([], "s", None, watermark=2),
                SourceBatch([2], "s", None, [9]),
                SourceBatch([], "s", None, idle=True),
                END,
            ]
        )
        pieces = []
        while (piece := input_.poll()) is not END_OF_INPUT:
            pieces.append(piece)
        assert [piece.batch.values for piece in pieces if isinstance(piece, InputBatch)] == [[1], [2]]
        assert [piece for piece in pieces if not isinstance(piece, InputBatch)] == expected
        if expected:
            assert [isinstance(piece, InputBatch) for piece in pieces] == [True, False, True, False]
        loop.close()


def test_the_slowest_split_lets_go_of_the_watermark_when_it_ends_with_an_empty_batch() -> None:
    """No other record comes, so nothing else would have anybody look again."""
    source, clock = AnySource(), ManualClock()
    loop = TaskLoop(clock)
    time = SourceTime("src", "src (1/1)#0", MONOTONOUS, clock, None)
    input_ = SourceInput("src", source, INFO, clock, CancelToken(), lambda: None, lambda: None, 1000, time, 0.2)
    input_.run_on(loop, InterruptGuard())
    input_.add_splits([Split("slow", None), Split("fast", None)], no_more=True)
    source.reader.script.extend(
        [
            SourceBatch([1], "slow", 1, [10]),
            SourceBatch([2], "fast", 1, [1000]),
            Wait(),
            SourceBatch([], "slow", None, split_finished=True),
            Wait(),
        ]
    )
    pieces: list[Any] = []

    def poll() -> None:
        while (piece := input_.poll()) is not None:
            pieces.append(piece)

    def intervals() -> None:
        for _ in range(5):
            clock.now += 0.2
            while loop.run_once(block=False):
                pass
            poll()

    poll()
    intervals()
    assert [piece for piece in pieces if isinstance(piece, Watermark)] == [Watermark(9)]
    source.reader.context.wake_up()
    intervals()
    assert [piece for piece in pieces if isinstance(piece, Watermark)] == [Watermark(9), Watermark(999)]
    loop.close()


async def cancelled_future() -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def exits() -> None:
    raise SystemExit(3)


async def exits_in_a_task() -> None:
    await asyncio.create_task(exits())


@pytest.mark.parametrize(
    ("what", "error"),
    [(cancelled_future, ProgramError), (exits, SystemExit), (exits_in_a_task, SystemExit)],
)
def test_whatever_a_poll_raises_comes_out(what: Any, error: type[BaseException]) -> None:
    class Raises(AsyncReader):
        async def poll(self, max_records: int) -> Any:
            await what()

    bench = AsyncBench(AnySource(Raises))
    bench.input.open()
    with pytest.raises(error):
        bench.poll_until(1)
    bench.input.close()
    assert bench.reader.story == ["open", "close"]
    bench.loop.close()


@pytest.mark.parametrize("opened", [True, False])
def test_open_and_close_of_a_reader_on_asyncio_may_be_coroutine_functions(opened: bool) -> None:
    class Coroutines(AsyncReader):
        async def open(self) -> None:  # type: ignore[override]
            await asyncio.sleep(0)
            self.story.append("open")

        async def close(self) -> None:  # type: ignore[override]
            await asyncio.sleep(0)
            self.story.append("close")

    bench = AsyncBench(AnySource(Coroutines))
    if opened:
        bench.input.open()
        bench.input.add_splits([], True)
        assert bench.poll_until(1) is END_OF_INPUT
    bench.input.close()
    assert bench.reader.story == (["open", "close"] if opened else ["close"])
    bench.loop.close()


def test_coroutine_functions_of_an_ordinary_reader_are_refused() -> None:
    class AsyncOpen(ScriptedReader):
        async def open(self) -> None: ...  # type: ignore[override]

    with pytest.raises(UnsupportedFeatureError, match=r"source 'src': AsyncOpen.open\(\) is a coroutine function"):
        SourceInput("src", AnySource(AsyncOpen), INFO, ManualClock(), CancelToken(), lambda: None, lambda: None, 1000)
