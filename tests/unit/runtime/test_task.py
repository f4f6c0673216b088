"""The life of a task, on a real loop with a manual clock, between fake channels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from firesteel.checkpoint.assign import OperatorRestore, TaskRestore
from firesteel.checkpoint.handles import InlineState
from firesteel.checkpoint.subtask_state import TaskState
from firesteel.functions.functions import MapFunction
from firesteel.functions.sink import Sink, SinkWriter
from firesteel.graph.execution_states import ExecutionState as E
from firesteel.graph.specs import ChainSpec, OperatorKind, OutputSpec, PartitionerKind
from firesteel.runtime.chain.chain import ChainPlan
from firesteel.runtime.chain.partitioners import SingleOutput
from firesteel.runtime.loop.interrupts import CancelToken, InterruptGuard
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.operator_base.context import OperatorContext
from firesteel.runtime.operators import CollectOperator
from firesteel.runtime.records.batch import END_OF_INPUT, Barrier, Batch
from firesteel.runtime.task.channel_inputs import ChannelInputs
from firesteel.runtime.task.task import StreamTask
from tests.unit.runtime.support import INFO, FakeInput, FakeOutput, ManualClock, Reports, line, spec

STORY: list[str] = []


class Told(MapFunction[Any, Any]):
    """Writes down what happens to it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def open(self, runtime_context: Any) -> None:
        STORY.append(f"open {self.name}")

    def map(self, value: Any) -> Any:
        if value == "bad":
            raise ValueError(value)
        return value

    def close(self) -> None:
        STORY.append(f"close {self.name}")


class ToldWriter(SinkWriter[Any]):
    def open(self) -> None:
        STORY.append("open sink")

    def write(self, values: Any, timestamps: Any) -> None:
        STORY.append(f"write {list(values)}")

    def finish(self) -> Any:
        STORY.append("finish sink")
        return ["results"]

    def commit(self, committables: Any) -> None:
        STORY.append(f"commit {list(committables)}")

    def abort(self) -> None:
        STORY.append("abort sink")

    def close(self) -> None:
        STORY.append("close sink")


class ToldSink(Sink[Any]):
    def create_writer(self, context: Any) -> ToldWriter:
        return ToldWriter()


class Bench:
    """A task and everything around it."""

    def __init__(
        self,
        chain: ChainSpec,
        *inputs: FakeInput,
        needs_commit: bool = False,
        timeout: int = 100,
        restore: TaskRestore | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.loop = TaskLoop(self.clock)
        self.reports = Reports()
        self.guard = InterruptGuard()
        self.token = CancelToken()
        self.plan = ChainPlan(chain)
        self.output = FakeOutput()
        last = len(chain.operators) - 1
        outputs = []
        if chain.outputs:
            self.plan.stage_of[last].outlet.outputs.append(SingleOutput("op", [self.output]))
            outputs.append((self.output, timeout))
        self.inputs = list(inputs)
        self.task = StreamTask(
            INFO,
            self.plan,
            ChannelInputs([(channel, 0) for channel in inputs], lambda: self.task.wake()),
            outputs,
            OperatorContext(INFO, self.clock),
            self.loop,
            self.guard,
            self.token,
            self.reports,
            needs_commit=needs_commit,
            restore=restore,
        )

    def state(self) -> E:
        return self.task.state

    def run(self) -> None:
        """Until nothing is left to do."""
        while self.loop.run_once(block=False):
            pass


@pytest.fixture(autouse=True)
def _new_story() -> Iterator[None]:
    STORY.clear()
    yield
    for bench in BENCHES:
        bench.loop.close()
    BENCHES.clear()


BENCHES: list[Bench] = []


def bench_of(chain: ChainSpec, *inputs: FakeInput, **more: Any) -> Bench:
    """Closed after the test."""
    BENCHES.append(Bench(chain, *inputs, **more))
    return BENCHES[-1]


def forward(*operators: Any) -> ChainSpec:
    """A line with an output."""
    return line(*operators, outputs=[OutputSpec(len(operators) - 1, 0, PartitionerKind.FORWARD)])


TWO = (spec(OperatorKind.MAP, Told("head")), spec(OperatorKind.MAP, Told("tail")))


def test_operators_open_and_close_from_tail_to_head_and_the_output_ends() -> None:
    channel = FakeInput([Batch([1, 2]), END_OF_INPUT])
    bench = bench_of(forward(*TWO), channel)
    bench.task.start()
    bench.run()
    assert STORY == ["open tail", "open head", "close tail", "close head"]
    assert bench.reports.states == [E.INITIALIZING, E.RUNNING, E.FINISHED]
    assert bench.output.values == [1, 2]
    assert bench.output.ended
    assert channel.closed
    assert bench.reports.metrics["numRecordsIn"] == bench.reports.metrics["numRecordsOut"] == 2
    assert bench.reports.metrics["numBytesOut"] == 20


def test_channels_take_turns_and_the_input_ends_with_the_last() -> None:
    first, second = FakeInput([Batch(["a1"]), Batch(["a2"])]), FakeInput([Batch(["b1"]), END_OF_INPUT])
    bench = bench_of(forward(*TWO), first, second)
    bench.task.start()
    bench.run()
    assert bench.output.values == ["a1", "b1", "a2"]
    assert bench.state() is E.RUNNING
    first.give(END_OF_INPUT)
    bench.run()
    assert bench.state() is E.FINISHED


def test_an_idle_task_flushes_once_and_wakes_when_something_arrives() -> None:
    channel = FakeInput([Batch([1])])
    bench = bench_of(forward(*TWO), channel)
    bench.task.start()
    bench.run()
    assert not bench.task.runnable
    assert bench.output.flushes == 1
    bench.task.wake()
    bench.run()
    assert bench.output.flushes == 1
    channel.give(Batch([2]))
    bench.run()
    assert bench.output.values == [1, 2]
    assert bench.output.flushes == 2


def test_full_batches_only_means_no_flush_when_idle() -> None:
    bench = bench_of(forward(*TWO), FakeInput([Batch([1])]), timeout=-1)
    bench.task.start()
    bench.run()
    assert bench.output.flushes == 0


def test_a_full_output_stops_the_task_and_times_add_up() -> None:
    channel = FakeInput([Batch([1]), Batch([2])])
    bench = bench_of(forward(*TWO), channel)
    bench.task.start()
    bench.output.writable = False
    bench.clock.now += 1
    bench.run()
    assert bench.output.values == [1]
    assert not bench.task.runnable
    bench.clock.now += 5
    bench.output.open_up()
    bench.run()
    assert bench.output.values == [1, 2]
    bench.clock.now += 2
    metrics = bench.task.metrics()
    assert (metrics["busyTimeMs"], metrics["backPressuredTimeMs"], metrics["idleTimeMs"]) == (1000, 5000, 2000)


def test_a_user_error_fails_the_task_and_aborts_its_sink() -> None:
    chain = line(TWO[0], spec(OperatorKind.SINK, ToldSink()))
    bench = bench_of(chain, FakeInput([Batch(["good", "bad"])]), needs_commit=True)
    bench.task.start()
    bench.run()
    assert bench.reports.states[-1] is E.FAILED
    assert bench.reports.failure is not None
    assert (bench.reports.failure.kind, bench.reports.failure.record) == ("user", "'bad'")
    assert STORY[-3:] == ["abort sink", "close sink", "close head"]
    assert "finish sink" not in STORY
    assert not bench.task.runnable
    assert bench.guard.active is None


def left_to_do(state: TaskState) -> list[bytes]:
    handles = [
        h for operator in state.operators.values() for committables in operator.committables for h in committables.items
    ]
    return [handle.data for handle in handles if isinstance(handle, InlineState)]


def test_a_sink_commits_when_what_it_left_to_do_is_in_a_complete_checkpoint() -> None:
    chain = line(TWO[0], spec(OperatorKind.SINK, ToldSink()))
    bench = bench_of(chain, FakeInput([Batch([1]), END_OF_INPUT]), needs_commit=True)
    bench.task.start()
    bench.run()
    assert bench.reports.ends == 1
    assert bench.state() is E.RUNNING
    assert STORY[-2:] == ["finish sink", "close head"]
    bench.task.trigger_checkpoint(Barrier(1, 0))
    bench.run()
    state = bench.reports.acknowledged[1]
    assert state.finished
    assert left_to_do(state) == [b'["results"]']
    assert bench.state() is E.RUNNING
    bench.task.checkpoint_complete(1)
    bench.run()
    assert bench.state() is E.FINISHED
    assert STORY[-2:] == ["commit ['results']", "close sink"]
    bench.task.checkpoint_complete(1)
    bench.run()
    assert STORY.count("commit ['results']") == 1


def test_what_a_lost_writer_left_to_do_is_done_by_another() -> None:
    chain = line(TWO[0], spec(OperatorKind.SINK, ToldSink()))
    first = bench_of(chain, FakeInput([Batch([1]), END_OF_INPUT]), needs_commit=True)
    first.task.start()
    first.run()
    first.task.trigger_checkpoint(Barrier(1, 0))
    first.run()
    state = first.reports.acknowledged[1]
    parts = {id_: OperatorRestore(committables=operator.committables) for id_, operator in state.operators.items()}
    STORY.clear()
    second = bench_of(chain, FakeInput([END_OF_INPUT]), needs_commit=True, restore=TaskRestore(1, True, parts))
    second.task.start()
    second.run()
    assert second.reports.ends == 1
    assert "finish sink" not in STORY, "it has written nothing"
    second.task.trigger_checkpoint(Barrier(2, 0))
    second.run()
    assert left_to_do(second.reports.acknowledged[2]) == left_to_do(state), "this one may be lost, too"
    second.task.checkpoint_complete(2)
    second.run()
    assert second.state() is E.FINISHED
    assert STORY[-2:] == ["commit ['results']", "close sink"]


def test_what_may_be_in_a_checkpoint_is_not_aborted() -> None:
    for given_up in (False, True):
        STORY.clear()
        bench = bench_of(
            line(TWO[0], spec(OperatorKind.SINK, ToldSink())), FakeInput([END_OF_INPUT]), needs_commit=True
        )
        bench.task.start()
        bench.run()
        bench.task.trigger_checkpoint(Barrier(1, 0))
        bench.run()
        if given_up:
            bench.task.checkpoint_aborted(1)
            bench.run()
        bench.task.cancel()
        assert ("abort sink" in STORY) is given_up


def test_without_need_of_commit_it_commits_at_once() -> None:
    chain = line(TWO[0], spec(OperatorKind.SINK, ToldSink()))
    bench = bench_of(chain, FakeInput([END_OF_INPUT]))
    bench.task.start()
    bench.run()
    assert STORY[-2:] == ["commit ['results']", "close sink"]
    assert bench.reports.ends == 0


def test_cancel_while_waiting_for_commit_aborts() -> None:
    chain = line(TWO[0], spec(OperatorKind.SINK, ToldSink()))
    bench = bench_of(chain, FakeInput([END_OF_INPUT]), needs_commit=True)
    bench.task.start()
    bench.run()
    bench.task.cancel()
    bench.task.checkpoint_complete(1)
    assert bench.state() is E.CANCELED
    assert STORY[-2:] == ["abort sink", "close sink"]


def test_a_cancelled_task_ends_at_its_next_slice_and_drops_its_channels() -> None:
    channel = FakeInput([Batch(list(range(1000)))])
    bench = bench_of(forward(*TWO), channel)
    bench.task.start()
    bench.token.cancelled = True
    bench.run()
    assert bench.reports.states == [E.INITIALIZING, E.RUNNING, E.CANCELED]
    assert bench.output.values == []
    assert bench.output.closed
    assert channel.closed
    assert STORY[-2:] == ["close tail", "close head"]


def test_cleaning_up_is_not_interrupted() -> None:
    seen: list[Any] = []

    class Looks(Told):
        def close(self) -> None:
            active = bench.guard.active
            seen.append(active is not None and active.cancelled)

    bench = bench_of(forward(spec(OperatorKind.MAP, Looks("head")), TWO[1]), FakeInput())
    bench.task.start()
    bench.task.cancel()
    assert bench.state() is E.CANCELED
    assert seen == [False]


def test_a_function_that_fails_to_open_fails_the_task_and_closes_what_was_opened() -> None:
    class Broken(Told):
        def open(self, runtime_context: Any) -> None:
            raise OSError("no file")

    bench = bench_of(forward(spec(OperatorKind.MAP, Broken("head")), TWO[1]), FakeInput())
    bench.task.start()
    assert bench.reports.states == [E.INITIALIZING, E.FAILED]
    assert STORY == ["open tail", "close tail", "close head"]


def test_a_function_that_fails_to_close_fails_the_task() -> None:
    class Broken(Told):
        def close(self) -> None:
            super().close()
            raise OSError("disk full")

    bench = bench_of(forward(spec(OperatorKind.MAP, Broken("head")), TWO[1]), FakeInput([END_OF_INPUT]))
    bench.task.start()
    bench.run()
    assert bench.reports.states[-1] is E.FAILED
    assert STORY.count("close tail") == STORY.count("close head") == 1


def test_the_task_waits_until_the_client_has_its_results() -> None:
    bench = bench_of(
        line(spec(OperatorKind.COLLECT, extra={"buffer_bytes": 10_000})), FakeInput([Batch([1, 2]), END_OF_INPUT])
    )
    bench.task.start()
    bench.run()
    (collect,) = bench.plan.consumers
    assert isinstance(collect, CollectOperator)
    assert bench.state() is E.RUNNING
    assert collect.fetch(0, 1000).count == 2
    bench.run()
    assert bench.state() is E.RUNNING
    collect.fetch(2, 0)
    bench.run()
    assert bench.state() is E.FINISHED
