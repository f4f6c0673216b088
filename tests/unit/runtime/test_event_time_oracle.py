"""Whole pipelines on one loop and a manual clock, beside plain Python: sources with splits, exchange, timers.

Random streams out of order, splits, pauses, batch sizes, parallelism from 1 to 5. Without idleness no record is late,
and each key's records come out in the order of their timestamps. With idleness what is late is told, nothing is lost.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from firesteel.common import Duration, TimestampAssigner, Types, WatermarkGenerator, WatermarkOutput, WatermarkStrategy
from firesteel.functions.functions import KeyedProcessFunction
from firesteel.functions.output_tag import OutputTag
from firesteel.functions.source import (
    END,
    Boundedness,
    EnumeratorSpec,
    ReaderContext,
    Source,
    SourceBatch,
    SourceReader,
    Split,
    Wait,
)
from firesteel.functions.state import ValueStateDescriptor
from firesteel.graph.execution_states import ExecutionState
from firesteel.graph.specs import OperatorKind, OutputSpec, PartitionerKind
from firesteel.runtime.chain.chain import ChainPlan
from firesteel.runtime.chain.partitioners import SingleOutput, create_output
from firesteel.runtime.exchange.channels import ChannelId
from firesteel.runtime.exchange.local import LocalPipe
from firesteel.runtime.loop.interrupts import CancelToken, InterruptGuard
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.operator_base.context import OperatorContext
from firesteel.runtime.records.batch import MAX_WATERMARK, Watermark
from firesteel.runtime.sources.source_input import SourceInput
from firesteel.runtime.sources.source_time import SourceTime
from firesteel.runtime.task.channel_inputs import ChannelInputs
from firesteel.runtime.task.task import StreamTask
from tests.examples import examples
from tests.unit.runtime.support import INFO, FakeOutput, ManualClock, Reports, line, spec

DELAY = 30
IDLE_SECONDS = 5
LATE = OutputTag("late", Types.PICKLED_BYTE_ARRAY())
Event = tuple[int, int, int]
"""Key, timestamp, number."""


class Second(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value[1]  # type: ignore[no-any-return]


class Punctuated(WatermarkGenerator):
    """Now and then behind a record."""

    def __init__(self) -> None:
        self.latest = 0

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        self.latest = max(self.latest, event_timestamp)
        if event[2] % 3 == 0:
            output.emit_watermark(self.latest - DELAY - 1)

    def on_periodic_emit(self, output: WatermarkOutput) -> None: ...


class Sorter(KeyedProcessFunction[int, Event, Any]):
    """Puts each key's records in order; those that are late go to a side output."""

    def open(self, runtime_context: Any) -> None:
        descriptor = ValueStateDescriptor("waiting", Types.PICKLED_BYTE_ARRAY())
        self.waiting = runtime_context.get_state(descriptor)
        self.watermark = -(2**63)

    def process_element(self, value: Event, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        timers = ctx.timer_service()
        assert ctx.timestamp() == value[1]
        assert timers.current_watermark() >= self.watermark, "never back"
        self.watermark = timers.current_watermark()
        if value[1] <= self.watermark:
            yield LATE, value
            return
        self.waiting.update([*(self.waiting.value() or ()), value])
        timers.register_event_time_timer(value[1])

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        assert timestamp <= ctx.timer_service().current_watermark()
        waiting = self.waiting.value()
        assert min(event[1] for event in waiting) == timestamp, "timers fire in order"
        yield from sorted(event for event in waiting if event[1] == timestamp)
        self.waiting.update([event for event in waiting if event[1] > timestamp] or None)


class ScriptedReader(SourceReader[Event]):
    """Answers by a script; pauses in between."""

    def __init__(self, script: Sequence[Any]) -> None:
        self.script = deque(script)

    def poll(self, max_records: int) -> Any:
        return self.script.popleft() if self.script else END

    def add_splits(self, splits: Sequence[Split]) -> None: ...

    def no_more_splits(self) -> None: ...

    def pause_splits(self, split_ids: Sequence[str]) -> None: ...

    def resume_splits(self, split_ids: Sequence[str]) -> None: ...

    def snapshot(self) -> list[Split]:
        return []


@dataclass(frozen=True)
class Scripted(Source[Event]):
    script: tuple[Any, ...]

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def enumerator(self) -> EnumeratorSpec:
        return EnumeratorSpec("static", {})

    def create_reader(self, context: ReaderContext) -> ScriptedReader:
        return ScriptedReader(self.script)


@dataclass
class Case:
    """One random run."""

    seed: int
    parallelism: int
    splits: int
    records: int
    largest_batch: int
    punctuated: bool
    idleness: bool

    def strategy(self) -> WatermarkStrategy:
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(DELAY))
        if self.punctuated:
            strategy = WatermarkStrategy.for_generator(Punctuated)
        strategy = strategy.with_timestamp_assigner(Second())
        return strategy.with_idleness(Duration.of_seconds(IDLE_SECONDS)) if self.idleness else strategy


class Pipeline:
    """Source subtasks -> by key -> sorting subtasks."""

    def __init__(self, case: Case, rng: random.Random) -> None:
        self.case, self.rng = case, rng
        self.clock = ManualClock()
        self.loop = TaskLoop(self.clock)
        count = case.parallelism
        pipes = [[LocalPipe(ChannelId(0, up, down), self.loop, 4096) for down in range(count)] for up in range(count)]
        self.events: list[Event] = []
        self.reports = [Reports() for _ in range(2 * count)]
        self.outs = [FakeOutput() for _ in range(count)]
        self.late_ones = [FakeOutput() for _ in range(count)]
        self.tasks: list[StreamTask] = []
        for up in range(count):
            self.source_task(up, pipes[up])
        for down in range(count):
            self.sorting_task(down, [pipes[up][down] for up in range(count)])

    def script(self, subtask: int) -> tuple[list[Split], list[Any]]:
        """Batches of this subtask's splits, mixed, with pauses; each split at most ``DELAY`` out of order."""
        rng, case = self.rng, self.case
        waiting: dict[str, deque[Event]] = {}
        for split in range(subtask, case.splits, case.parallelism):
            stamps = sorted(rng.randrange(500) for _ in range(rng.randrange(case.records + 1)))
            events = [(rng.randrange(4), stamp, len(self.events) + n) for n, stamp in enumerate(stamps)]
            self.events += events
            shaken = sorted(events, key=lambda event: event[1] + rng.randrange(DELAY))
            waiting[str(split)] = deque(shaken)
        splits = [Split(split_id, {}) for split_id in waiting]
        answers: list[Any] = []
        while waiting:
            split_id = rng.choice(sorted(waiting))
            left = waiting[split_id]
            size = rng.randint(1, case.largest_batch)
            batch = [left.popleft() for _ in range(min(size, len(left)))]
            if not left:
                del waiting[split_id]
            answers.append(SourceBatch(batch, split_id, None, split_finished=not left))
            if rng.random() < 0.3:
                answers.append(Wait(rng.choice([0.05, 0.3, 2 * IDLE_SECONDS])))
        return splits, answers

    def task(self, number: int, plan: ChainPlan, inputs: Any, outputs: Any) -> None:
        info = replace(INFO, subtask=number % self.case.parallelism, parallelism=self.case.parallelism)
        context = OperatorContext(info, self.clock)
        guard, token = InterruptGuard(), CancelToken()
        reports = self.reports[number]
        self.tasks.append(StreamTask(info, plan, inputs, outputs, context, self.loop, guard, token, reports))

    def source_task(self, up: int, pipes: list[LocalPipe]) -> None:
        splits, answers = self.script(up)
        plan = ChainPlan(line(spec(OperatorKind.SOURCE), spec(OperatorKind.MAP, lambda event: event)))
        edge = OutputSpec(1, 0, PartitionerKind.HASH, key_selector=lambda event: event[0])
        channels = [pipe.output for pipe in pipes]
        plan.outlet_of(edge).outputs.append(create_output(edge, "map", channels, 128, self.rng))
        time = SourceTime("source", "task", self.case.strategy(), self.clock, None)
        number = len(self.tasks)
        source = SourceInput(
            "source",
            Scripted(tuple(answers)),
            INFO,
            self.clock,
            CancelToken(),
            lambda: None,
            lambda: self.tasks[number].wake(),
            1000,
            time,
            0.2,
        )
        source.run_on(self.loop, InterruptGuard())
        source.add_splits(splits, no_more=True)
        self.task(number, plan, source, [(channel, 100) for channel in channels])

    def sorting_task(self, down: int, pipes: list[LocalPipe]) -> None:
        sorter = spec(
            OperatorKind.KEYED_PROCESS,
            Sorter(),
            key_selectors=(lambda event: event[0],),
            extra={"side_outputs": {"late": Types.PICKLED_BYTE_ARRAY()}},
        )
        plan = ChainPlan(line(sorter))
        for tag, out in ((None, self.outs[down]), ("late", self.late_ones[down])):
            edge = OutputSpec(0, 0, PartitionerKind.FORWARD, tag=tag)
            plan.outlet_of(edge).outputs.append(SingleOutput("sorter", [out]))
        number = len(self.tasks)
        inputs = ChannelInputs([(pipe.input, 0) for pipe in pipes], lambda: self.tasks[number].wake(), "", self.clock)
        self.task(number, plan, inputs, [(self.outs[down], 100), (self.late_ones[down], 100)])

    def run(self) -> None:
        for task in self.tasks:
            task.start()
        for _ in range(5000):
            while self.loop.run_once(block=False):
                pass
            if all(task.ended for task in self.tasks):
                break
            self.clock.now += 0.07
        failures = [report.failure.traceback for report in self.reports if report.failure]
        assert not failures, failures[0]
        assert {task.state for task in self.tasks} == {ExecutionState.FINISHED}


CASES = st.builds(
    Case,
    seed=st.integers(0, 2**32),
    parallelism=st.integers(1, 5),
    splits=st.integers(1, 8),
    records=st.integers(0, 60),
    largest_batch=st.sampled_from([1, 3, 20, 1000]),
    punctuated=st.booleans(),
    idleness=st.booleans(),
)


@settings(max_examples=examples(60), deadline=None)
@given(CASES)
def test_pipelines_beside_plain_python(case: Case) -> None:
    pipeline = Pipeline(case, random.Random(case.seed))
    try:
        pipeline.run()
    finally:
        pipeline.loop.close()
    late = [event for out in pipeline.late_ones for event in out.values]
    by_key: dict[int, list[Event]] = defaultdict(list)
    for out in pipeline.outs:
        for event, stamp in zip(out.values, out.timestamps, strict=True):
            assert stamp == event[1]
            by_key[event[0]].append(event)
        marks = [mark for _, mark in out.elements if isinstance(mark, Watermark)]
        assert [mark.timestamp for mark in marks] == sorted(mark.timestamp for mark in marks)
        assert marks[-1] == Watermark(MAX_WATERMARK)
        position = 0
        for count, mark in out.elements:
            if isinstance(mark, Watermark):
                assert all(event[1] <= mark.timestamp for event in out.values[position:count]), "it fired too early"
                position = count
    expected: dict[int, list[Event]] = defaultdict(list)
    for event in sorted(set(pipeline.events) - set(late), key=lambda event: (event[1], event)):
        expected[event[0]].append(event)
    assert by_key == expected
    assert len(late) == len(set(late))
    if not case.idleness:
        assert not late, "no record is later than the strategy allows"
