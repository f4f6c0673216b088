"""State is read beside the task's loop: what is done meanwhile, and how it ends."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from socket import gethostname
from typing import Any, BinaryIO

import pytest

from firesteel.checkpoint.assign import OperatorRestore, TaskRestore
from firesteel.checkpoint.chunks import write_chunks
from firesteel.checkpoint.handles import InlineState, StateHandle
from firesteel.checkpoint.subtask_state import OperatorListState
from firesteel.common import Types
from firesteel.core.errors import CheckpointStorageError, StateAwayError, TaskInterrupt, class_name
from firesteel.functions.checkpointed import CheckpointedFunction
from firesteel.functions.functions import MapFunction
from firesteel.functions.state import ListStateDescriptor
from firesteel.graph.execution_states import ExecutionState as E
from firesteel.graph.specs import OperatorKind as K
from firesteel.graph.specs import OutputSpec, PartitionerKind
from firesteel.protocol.checkpoint_messages import DeclineReason
from firesteel.runtime.chain.chain import ChainPlan
from firesteel.runtime.chain.partitioners import SingleOutput
from firesteel.runtime.checkpoints.background import Apart, RestoreThreads
from firesteel.runtime.checkpoints.task_checkpoints import CheckpointServices
from firesteel.runtime.loop.interrupts import CancelToken, Interrupter, InterruptGuard
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.operator_base.context import OperatorContext
from firesteel.runtime.records.batch import Barrier, Batch
from firesteel.runtime.task.channel_inputs import ChannelInputs
from firesteel.runtime.task.task import StreamTask
from firesteel.state.operator_state import HeapOperatorState
from firesteel.state.snapshots import StateInfo
from tests.unit.runtime.support import INFO as SOMEWHERE
from tests.unit.runtime.support import FakeInput, FakeOutput, ManualClock, Reports, line, spec

INFO = replace(SOMEWHERE, subtask=0, parallelism=1)
LIST = ListStateDescriptor("seen", Types.LONG())
SECONDS = 20.0


class Counting(MapFunction, CheckpointedFunction):  # type: ignore[type-arg]
    """Adds to each record how many there are in its list."""

    def initialize_state(self, context: Any) -> None:
        self.before = list(context.get_operator_state_store().get_list_state(LIST).get())

    def snapshot_state(self, context: Any) -> None: ...

    def map(self, value: Any) -> Any:
        return value, self.before


@dataclass
class Bench:
    """A task that goes on from a list of three, and the work that another thread would do."""

    apart: Apart | None = None
    open_state: Callable[[StateHandle], BinaryIO] = lambda handle: io.BytesIO(written())
    work: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock, self.reports, self.output = ManualClock(), Reports(), FakeOutput()
        self.loop = TaskLoop(self.clock)
        chain = line(spec(K.MAP, Counting(), name="counts"))
        chain.outputs.append(OutputSpec(0, 0, PartitionerKind.FORWARD))
        plan = ChainPlan(chain)
        plan.stage_of[0].outlet.outputs.append(SingleOutput("op", [self.output]))
        self.channel = FakeInput()
        self.token = CancelToken("v_0_0")
        self.task = StreamTask(
            INFO, plan, ChannelInputs([(self.channel, 0)], lambda: self.task.wake()), [(self.output, 100)],
            OperatorContext(INFO, self.clock, checkpointing=True),
            self.loop, InterruptGuard(), self.token, self.reports,
            restore=TaskRestore(7, False, {"0" * 32: OperatorRestore(operator=(LISTS,))}),
            checkpoints=CheckpointServices(
                final=True, open_state=self.open_state, apart=self.apart or (lambda _, work: self.work.append(work))
            ),
        )  # fmt: skip
        self.task.start()
        self.run()

    def run(self) -> None:
        while self.loop.run_once(block=False):
            pass


def written() -> bytes:
    """The state, in a chunk for each element."""
    state = HeapOperatorState()
    chunks = []
    for number in range(3):
        state.get_list_state(LIST).update([number] * (number + 1))
        entry_chunks = [chunk for part in state.snapshot() for chunk in part]
        chunks += [(chunk.state, chunk.key_group, chunk.count, chunk.data) for chunk in entry_chunks]
    return write_chunks(chunks)


def described() -> OperatorListState:
    state = HeapOperatorState()
    state.get_list_state(LIST)
    infos: list[StateInfo] = list(state.snapshot().states)
    return OperatorListState(tuple(info.to_json() for info in infos), (InlineState(b"elsewhere"),))


LISTS = described()


@pytest.fixture
def bench_of() -> Iterator[Callable[..., Bench]]:
    benches: list[Bench] = []

    def make(**arguments: Any) -> Bench:
        benches.append(Bench(**arguments))
        return benches[-1]

    yield make
    for bench in benches:
        bench.loop.close()


def test_the_loop_is_free_until_the_state_is_there(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of()
    bench.channel.give(Batch([1]))
    called: list[str] = []
    bench.task.when_open(lambda: called.append("held"))
    bench.run()
    assert (bench.reports.states, bench.output.values, called) == ([E.INITIALIZING], [], [])
    (work,) = bench.work
    work()
    bench.run()
    assert bench.reports.states == [E.INITIALIZING, E.RUNNING]
    assert bench.output.values == [(1, [2, 2, 2])]
    assert called == ["held"]
    bench.task.when_open(lambda: called.append("at once"))
    assert called == ["held", "at once"]


def test_a_checkpoint_is_declined_meanwhile(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of()
    bench.task.trigger_checkpoint(Barrier(8, 0))
    assert bench.reports.declined == {8: DeclineReason.TASK_NOT_READY}


def test_a_cancel_is_heard_while_the_storage_does_not_answer(bench_of: Callable[..., Bench]) -> None:
    requested, answer, threads = threading.Event(), threading.Event(), RestoreThreads()

    def silent(handle: StateHandle) -> BinaryIO:
        requested.set()
        assert answer.wait(SECONDS)
        return io.BytesIO(written())

    bench = bench_of(apart=threads.run, open_state=silent)
    try:
        assert requested.wait(SECONDS)
        bench.task.cancel()
        bench.run()
        assert bench.reports.states == [E.INITIALIZING, E.CANCELED]
        assert not threads.join(0)
    finally:
        answer.set()
    assert threads.join(SECONDS)
    bench.run()
    assert bench.reports.states == [E.INITIALIZING, E.CANCELED]
    assert bench.output.closed


def test_a_task_that_is_cancelled_reads_no_further_chunk(bench_of: Callable[..., Bench]) -> None:
    class Watched(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell() > 0 and bench.task.state is E.INITIALIZING:
                bench.task.cancel()
            return super().read(size)

    stream = Watched(written())
    bench = bench_of(open_state=lambda handle: stream)
    (work,) = bench.work
    whole = len(stream.getvalue())
    bytes_read: list[int] = []
    bench.task.when_open(lambda: bytes_read.append(1))
    stream.close = lambda: bytes_read.append(-stream.tell())  # type: ignore[method-assign]
    work()
    bench.run()
    assert bench.reports.states == [E.INITIALIZING, E.CANCELED]
    assert len(bytes_read) == 1
    assert 0 < -bytes_read[0] < whole


def test_a_task_that_fails_meanwhile_does_not_open(bench_of: Callable[..., Bench]) -> None:
    bench = bench_of()
    assert bench.output.on_error is not None
    bench.output.on_error(OSError("the peer is gone"))
    (work,) = bench.work
    work()
    bench.run()
    assert bench.reports.states == [E.INITIALIZING, E.FAILED]


def test_what_can_not_be_read_fails_the_task(bench_of: Callable[..., Bench]) -> None:
    def broken(handle: StateHandle) -> BinaryIO:
        raise CheckpointStorageError("the disk says no")

    bench = bench_of(open_state=broken)
    (work,) = bench.work
    work()
    bench.run()
    assert bench.reports.states == [E.INITIALIZING, E.FAILED]
    failure = bench.reports.failure
    assert failure is not None
    assert (failure.kind, failure.error_class) == ("external", class_name(StateAwayError)), "it is not the job's"
    assert failure.message.endswith(f"can't be read on {gethostname()}: the disk says no")


def test_user_code_that_never_comes_back_is_interrupted() -> None:
    threads, interrupter, token = RestoreThreads(), Interrupter(), CancelToken("v_0_0")
    begun, ended = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        try:
            while True:
                pass
        except TaskInterrupt:
            ended.set()
            raise

    threads.run(token, work)
    assert begun.wait(SECONDS)
    (guard,) = threads.guards()
    interrupter.interrupt(guard)
    assert not threads.join(0)  # it was not cancelled
    token.cancelled = True
    interrupter.interrupt(guard)
    assert ended.wait(SECONDS)
    assert threads.join(SECONDS)
    assert threads.guards() == []
