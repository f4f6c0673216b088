"""Restored state becomes of the type of now on another thread: the slot's loop waits for no step of it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from firesteel.checkpoint.assign import OperatorRestore, TaskRestore
from firesteel.checkpoint.chunks import write_chunks
from firesteel.checkpoint.handles import InlineState
from firesteel.checkpoint.subtask_state import KeyedState
from firesteel.common import Types
from firesteel.functions.functions import KeyedProcessFunction
from firesteel.functions.state import MapStateDescriptor, StateMigration, ValueStateDescriptor
from firesteel.graph.execution_states import ExecutionState as E
from firesteel.graph.specs import OperatorKind as K
from firesteel.graph.specs import OutputSpec, PartitionerKind
from firesteel.runtime.chain.chain import ChainPlan
from firesteel.runtime.chain.partitioners import SingleOutput
from firesteel.runtime.checkpoints.restore import open_inline
from firesteel.runtime.checkpoints.task_checkpoints import CheckpointServices
from firesteel.runtime.loop.interrupts import CancelToken, InterruptGuard
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.operator_base.context import OperatorContext
from firesteel.runtime.records.batch import Barrier, Batch
from firesteel.runtime.task.channel_inputs import ChannelInputs
from firesteel.runtime.task.task import StreamTask
from firesteel.state.backend import load_state_backend
from firesteel.state.heap import HeapKeyedState
from tests.unit.runtime.support import INFO as SOMEWHERE
from tests.unit.runtime.support import FakeInput, FakeOutput, ManualClock, Reports, line, spec

INFO = replace(SOMEWHERE, subtask=0, parallelism=1)
STEPS: list[str] = []


def number(text: str) -> int:
    STEPS.append(text)
    return int(text)


class Reads(KeyedProcessFunction[Any, Any, Any]):
    """Gives what it has of each key, and asks for another state at its first record only."""

    def __init__(self, step: Callable[[str], Any]) -> None:
        self._step = step

    def open(self, runtime_context: Any) -> None:
        descriptor = ValueStateDescriptor("value", Types.LONG())
        descriptor.enable_state_migration(StateMigration(1).add_step(0, self._step))
        self._context, self._value = runtime_context, runtime_context.get_state(descriptor)

    def process_element(self, value: Any, ctx: Any) -> Any:
        late = self._context.get_map_state(MapStateDescriptor("late", Types.STRING(), Types.LONG()))
        yield self._value.value(), dict(late.items())


def restored() -> TaskRestore:
    before = HeapKeyedState()
    value = before.get_state(ValueStateDescriptor("value", Types.STRING()))
    late = before.get_map_state(MapStateDescriptor("late", Types.STRING(), Types.INT()))
    for key in (1, 2):
        before.key = key
        value.update(str(key * 10))
        late.put("a", key)
    snapshot = before.snapshot()
    chunks = [(c.state, c.key_group, c.count, c.data) for some in snapshot for c in some]
    states = tuple(info.to_json() for info in snapshot.states)
    part = KeyedState(states, (0, 127), (InlineState(write_chunks(chunks)),))
    return TaskRestore(7, False, {"0" * 32: OperatorRestore(keyed={"keyed": (part,)})})


class Bench:
    """A task that goes on from two keys, and the work that another thread would do."""

    def __init__(self, backend: str, step: Callable[[str], Any] = number) -> None:
        STEPS.clear()
        self.work: list[Callable[[], None]] = []
        self.clock, self.reports, self.output = ManualClock(), Reports(), FakeOutput()
        self.loop, self.channel = TaskLoop(self.clock), FakeInput()
        reads = spec(K.KEYED_PROCESS, Reads(step), name="reads", key_selectors=(lambda record: record,))
        chain = line(reads)
        chain.outputs.append(OutputSpec(0, 0, PartitionerKind.FORWARD))
        plan = ChainPlan(chain)
        plan.use_state_backend(load_state_backend(backend), INFO, self.clock)
        plan.stage_of[0].outlet.outputs.append(SingleOutput("op", [self.output]))
        self.task = StreamTask(
            INFO, plan, ChannelInputs([(self.channel, 0)], lambda: self.task.wake()), [(self.output, 100)],
            OperatorContext(INFO, self.clock, checkpointing=True), self.loop, InterruptGuard(), CancelToken("v_0_0"),
            self.reports, restore=restored(),
            checkpoints=CheckpointServices(
                final=True, open_state=open_inline, apart=lambda _, work: self.work.append(work)
            ),
        )  # fmt: skip
        self.task.start()
        self.run()

    def run(self) -> None:
        while self.loop.run_once(block=False):
            pass

    def others_work(self) -> None:
        """What another thread does."""
        self.work.pop(0)()
        self.run()


@pytest.fixture(params=["hashmap", "rocksdb"])
def bench_of(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Bench]]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    benches: list[Bench] = []

    def make(*arguments: Any) -> Bench:
        benches.append(Bench(request.param, *arguments))
        return benches[-1]

    yield make
    for bench in benches:
        bench.task.cancel()
        bench.run()
        bench.loop.close()
    assert not list(tmp_path.iterdir()), "files of a database are left"


def test_steps_run_elsewhere_and_records_wait_for_them(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of()
    bench.channel.give(Batch([1, 2]))
    called: list[str] = []
    bench.task.when_open(lambda: called.append("held"))
    bench.others_work()
    assert (bench.reports.states, STEPS, called) == ([E.INITIALIZING], [], [])
    bench.task.trigger_checkpoint(Barrier(8, 0))
    assert 8 in bench.reports.declined
    bench.others_work()
    assert (bench.reports.states, sorted(STEPS), called) == ([E.INITIALIZING, E.RUNNING], ["10", "20"], ["held"])
    assert bench.output.values == [(10, {"a": 1}), (20, {"a": 2})]
    assert bench.work == []


def test_a_step_that_fails_fails_the_task(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of(lambda text: text * 2)
    bench.others_work()
    assert bench.reports.states == [E.INITIALIZING]
    bench.others_work()
    assert bench.reports.states == [E.INITIALIZING, E.FAILED]
    assert "a step of its StateMigration gave something else" in str(bench.reports.failure)


def test_a_cancel_is_heard_meanwhile(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of()
    bench.others_work()
    bench.task.cancel()
    bench.run()
    assert bench.reports.states == [E.INITIALIZING, E.CANCELED]
    bench.others_work()
    assert bench.reports.states == [E.INITIALIZING, E.CANCELED]
    assert STEPS == [], "nobody wants them any more"


def test_a_cancel_between_two_entries_waits_for_no_step(bench_of: Callable[..., Bench]) -> None:
    benches: list[Bench] = []

    def step(text: str) -> int:
        if not STEPS:
            benches[0].task.cancel()
            benches[0].run()
        return number(text)

    benches.append(bench_of(step))
    benches[0].others_work()
    benches[0].others_work()
    assert benches[0].reports.states == [E.INITIALIZING, E.CANCELED]
    assert STEPS, "it was under way"
