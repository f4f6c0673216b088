"""What one task does for checkpoints: declined, given up, superseded, restored, committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from firesteel.checkpoint.assign import OperatorRestore, TaskRestore
from firesteel.checkpoint.subtask_state import TaskState
from firesteel.common import Types
from firesteel.core.errors import CheckpointStorageError
from firesteel.functions.checkpointed import CheckpointedFunction, CheckpointListener
from firesteel.functions.functions import KeyedProcessFunction, MapFunction
from firesteel.functions.sink import Sink, SinkWriter
from firesteel.functions.state import ListStateDescriptor, ValueStateDescriptor
from firesteel.graph.execution_states import ExecutionState as E
from firesteel.graph.specs import ChainSpec, OutputSpec, PartitionerKind
from firesteel.graph.specs import OperatorKind as K
from firesteel.protocol.checkpoint_messages import DeclineReason
from firesteel.runtime.chain.chain import ChainPlan
from firesteel.runtime.chain.partitioners import SingleOutput
from firesteel.runtime.checkpoints.task_checkpoints import CheckpointServices
from firesteel.runtime.checkpoints.uploads import InlineStream
from firesteel.runtime.loop.interrupts import CancelToken, InterruptGuard
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.operator_base.context import OperatorContext
from firesteel.runtime.records.batch import END_OF_INPUT, Barrier, Batch, CancelBarrier
from firesteel.runtime.task.channel_inputs import ChannelInputs
from firesteel.runtime.task.task import StreamTask
from tests.unit.runtime.support import INFO as SOMEWHERE
from tests.unit.runtime.support import FakeInput, FakeOutput, ManualClock, Reports, line, spec

INFO = replace(SOMEWHERE, subtask=0, parallelism=1)
STORY: list[Any] = []


class Bench:
    """A task of two channels."""

    def __init__(
        self,
        *operators: Any,
        restore: TaskRestore | None = None,
        services: CheckpointServices | None = None,
        checkpointing: bool = True,
    ) -> None:
        self.clock, self.reports = ManualClock(), Reports()
        self.loop = TaskLoop(self.clock)
        chain: ChainSpec = line(*operators)
        self.output = FakeOutput()
        outputs = []
        if operators[-1].kind is not K.SINK:
            chain.outputs.append(OutputSpec(len(operators) - 1, 0, PartitionerKind.FORWARD))
        self.plan = ChainPlan(chain)
        context = OperatorContext(INFO, self.clock, checkpointing=checkpointing)
        if chain.outputs:
            self.plan.stage_of[len(operators) - 1].outlet.outputs.append(SingleOutput("op", [self.output]))
            outputs.append((self.output, 100))
        self.channels = [FakeInput(), FakeInput()]
        self.task = StreamTask(
            INFO, self.plan, ChannelInputs([(c, 0) for c in self.channels], lambda: self.task.wake()), outputs,
            context, self.loop, InterruptGuard(), CancelToken(), self.reports, restore=restore,
            checkpoints=services or CheckpointServices(final=True),
        )  # fmt: skip
        self.task.start()
        self.run()

    def run(self) -> None:
        while self.loop.run_once(block=False):
            pass

    def give(self, *items: Any) -> None:
        for channel in self.channels:
            channel.give(*items)
        self.run()

    def later(self, seconds: float) -> None:
        self.clock.now += seconds
        self.run()

    @property
    def states(self) -> list[Any]:
        return list(self.reports.states)


@pytest.fixture(autouse=True)
def benches() -> Iterator[None]:
    STORY.clear()
    MADE.clear()
    yield
    for bench in MADE:
        bench.loop.close()


MADE: list[Bench] = []


def bench_of(*operators: Any, **more: Any) -> Bench:
    MADE.append(Bench(*operators, **more))
    return MADE[-1]


class Told(MapFunction, CheckpointedFunction, CheckpointListener):  # type: ignore[type-arg]
    def initialize_state(self, context: Any) -> None:
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("seen", Types.LONG()))
        STORY.append(("restored", context.is_restored(), list(self.state.get())))

    def snapshot_state(self, context: Any) -> None:
        if context.get_checkpoint_id() == 13:
            raise ValueError("unlucky")
        STORY.append(("snapshot", context.get_checkpoint_id(), context.get_checkpoint_timestamp()))

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        STORY.append(("complete", checkpoint_id))

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        STORY.append(("aborted", checkpoint_id))

    def map(self, value: Any) -> Any:
        self.state.add(value)
        return value


def restored(state: TaskState, number: int = 1) -> TaskRestore:
    operators = {
        id_: OperatorRestore(
            {name: (part,) for name, part in operator.keyed.items()},
            () if operator.operator is None else (operator.operator,),
            operator.splits,
            operator.committables,
            operator.keys,
        )
        for id_, operator in state.operators.items()
    }
    return TaskRestore(number, state.finished, operators)


def test_a_function_is_asked_told_and_restored() -> None:
    bench = bench_of(spec(K.MAP, Told()))
    bench.give(Batch([1]), Barrier(1, 5), Batch([2]))
    assert bench.output.elements == [(2, Barrier(1, 5))]
    bench.task.checkpoint_complete(1)
    bench.give(Barrier(2, 6))
    bench.task.checkpoint_aborted(2)
    bench.run()
    assert STORY == [
        ("restored", False, []), ("snapshot", 1, 5), ("complete", 1), ("snapshot", 2, 6), ("aborted", 2),
    ]  # fmt: skip
    assert set(bench.reports.checkpoint_metrics) == {
        "start_delay_ms", "alignment_ms", "sync_ms", "async_ms", "state_size", "checkpointed_size",
        "processed_in_alignment", "persisted", "unaligned", "states",
    }  # fmt: skip
    [(_, name, kind, entries, size, counted, _)] = bench.reports.checkpoint_metrics["states"]
    assert (name, kind, entries, counted) == ("seen", "split", 4, True)
    assert size == bench.reports.checkpoint_metrics["state_size"]
    STORY.clear()
    bench_of(spec(K.MAP, Told()), restore=restored(bench.reports.acknowledged[1]))
    assert STORY == [("restored", True, [1, 1])]


def test_what_snapshot_state_raises_declines_the_checkpoint_and_the_task_goes_on() -> None:
    bench = bench_of(spec(K.MAP, Told()))
    bench.give(Barrier(13, 0), Batch([7]))
    assert bench.reports.declined == {13: DeclineReason.TASK_FAILURE}
    assert bench.reports.decline_failure is not None
    assert bench.reports.decline_failure.message == "unlucky"
    assert bench.output.values == [7, 7]
    bench.give(Barrier(14, 0))
    assert 14 in bench.reports.acknowledged


class ShowsAtTheEnd(Sink[Any]):
    def create_writer(self, context: Any) -> SinkWriter[Any]:
        return _AtTheEnd()


class _AtTheEnd(SinkWriter[Any]):
    def write(self, values: Any, timestamps: Any) -> None:
        STORY.append(list(values))

    def finish(self) -> Any:
        return ["results"]


def test_a_sink_that_shows_its_results_at_the_end_declines_checkpoints_by_hand() -> None:
    bench = bench_of(
        spec(K.MAP, Lambda()), spec(K.SINK, ShowsAtTheEnd(), name="late"), services=CheckpointServices(),
        checkpointing=False,
    )  # fmt: skip
    bench.give(Batch([7]), Barrier(1, 0), Batch([8]))
    assert bench.reports.declined == {1: DeclineReason.TASK_FAILURE}
    assert bench.reports.decline_failure is not None
    assert "sink 'late': ShowsAtTheEnd shows its results when the job ends" in bench.reports.decline_failure.message
    assert bench.reports.acknowledged == {}
    assert bench.states[-1] is E.RUNNING
    assert STORY == [[7], [7], [8], [8]]


class Lambda(MapFunction[Any, Any]):
    def map(self, value: Any) -> Any:
        return value


class Keeps(KeyedProcessFunction[Any, Any, Any]):
    def open(self, runtime_context: Any) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.last.update(Stubborn() if value == "stubborn" else value)
        return ()


class Stubborn:
    def __reduce__(self) -> Any:
        raise TypeError("I stay")


def keyed(function: Any = None) -> Any:
    return spec(K.KEYED_PROCESS, function or Keeps(), key_selectors=(lambda value: 1,), name="keeps")


def test_values_that_can_not_be_serialised_decline_the_checkpoint_with_state_and_key() -> None:
    bench = bench_of(keyed())
    bench.give(Batch(["stubborn"]), Barrier(1, 0))
    assert bench.reports.declined == {1: DeclineReason.ASYNC_EXCEPTION}
    failure = bench.reports.decline_failure
    assert failure is not None
    assert "state 'last' of key 1" in failure.message
    bench.give(Batch(["fine"]), Barrier(2, 0))
    assert 2 in bench.reports.acknowledged


class Broken(InlineStream):
    def write(self, data: Any) -> None:
        raise CheckpointStorageError("no space left")


def test_a_storage_that_takes_nothing_declines_the_checkpoint() -> None:
    services = CheckpointServices(lambda number, hint: Broken() if number == 1 else InlineStream())
    bench = bench_of(keyed(), services=services)
    bench.give(Batch(["x"]), Barrier(1, 0))
    assert bench.reports.declined == {1: DeclineReason.ASYNC_EXCEPTION}
    bench.give(Barrier(2, 0))
    assert 2 in bench.reports.acknowledged


def test_a_state_that_can_not_be_sent_is_declined_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of(keyed())

    def refuse(*_: Any) -> None:
        raise TypeError("Object of type int64 is not JSON serializable")

    with monkeypatch.context() as patch:
        patch.setattr(bench.reports, "acknowledge_checkpoint", refuse)
        bench.give(Batch(["x"]), Barrier(1, 0))
    assert bench.reports.declined == {1: DeclineReason.ASYNC_EXCEPTION}
    assert bench.reports.decline_failure is not None
    assert "int64" in bench.reports.decline_failure.message
    bench.give(Barrier(2, 0))
    assert list(bench.reports.acknowledged) == [2]


def test_a_checkpoint_that_is_given_up_while_it_is_written_is_not_acknowledged() -> None:
    work: list[Callable[[], None]] = []
    bench = bench_of(keyed(), services=CheckpointServices(submit=work.append))
    bench.give(Batch(["x"]), Barrier(1, 0))
    bench.task.checkpoint_aborted(1)
    bench.run()
    for write in work:
        write()
    bench.run()
    assert bench.reports.acknowledged == {}
    assert bench.reports.declined == {}


def test_a_barrier_that_is_overtaken_is_declined_and_those_behind_are_told() -> None:
    bench = bench_of(spec(K.MAP, Lambda()))
    bench.channels[0].give(Barrier(1, 0))
    bench.give(Barrier(2, 0))
    assert bench.reports.declined == {1: DeclineReason.SUBSUMED}
    assert [element for _, element in bench.output.elements] == [CancelBarrier(1), Barrier(2, 0)]
    assert list(bench.reports.acknowledged) == [2]


def test_an_abort_frees_the_channels_and_those_behind_are_told() -> None:
    bench = bench_of(spec(K.MAP, Lambda()))
    bench.channels[0].give(Barrier(1, 0), Batch(["waits"]))
    bench.run()
    assert bench.output.values == []
    bench.task.checkpoint_aborted(1)
    bench.run()
    assert bench.output.values == ["waits"]
    assert [element for _, element in bench.output.elements] == [CancelBarrier(1)]
    assert bench.reports.declined == {}


def test_a_task_whose_input_has_ended_waits_for_a_checkpoint_of_its_own() -> None:
    bench = bench_of(spec(K.MAP, Told()))
    bench.task.trigger_checkpoint(Barrier(1, 0))
    bench.run()
    assert bench.reports.acknowledged == {}, "its barriers come by its channels"
    bench.give(END_OF_INPUT)
    assert bench.reports.ends == 1
    assert bench.reports.acknowledged[1].finished
    assert bench.states[-1:] == [E.RUNNING]
    bench.task.checkpoint_complete(1)
    bench.run()
    assert bench.states[-1:] == [E.FINISHED]
    bench.task.trigger_checkpoint(Barrier(2, 0))
    assert bench.reports.declined == {2: DeclineReason.TASK_CLOSING}


def test_all_checkpoints_that_wait_for_the_end_of_the_input_are_taken_in_their_order() -> None:
    bench = bench_of(spec(K.MAP, Told()))
    for number in (2, 1, 2, 3):
        bench.task.trigger_checkpoint(Barrier(number, 0))
    bench.task.checkpoint_aborted(3)
    bench.run()
    bench.give(END_OF_INPUT)
    assert list(bench.reports.acknowledged) == [1, 2]
    assert bench.reports.declined == {}
    bench.task.checkpoint_complete(1)
    bench.run()
    assert bench.states[-1] is E.FINISHED


class Alarm(KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_processing_time_timer(ctx.timer_service().current_processing_time() + 1000)
        return ()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield "rings"


@pytest.mark.parametrize("finished", [True, False])
def test_a_task_that_had_finished_rings_no_timer_that_its_end_had_silenced(finished: bool) -> None:
    first = bench_of(keyed(Alarm()))
    first.give(Batch([1]), *([END_OF_INPUT] if finished else [Barrier(1, 0)]))
    if finished:
        first.task.trigger_checkpoint(Barrier(1, 0))
        first.run()
    state = first.reports.acknowledged[1]
    assert state.finished == finished
    restore = restored(state)
    second = bench_of(keyed(Alarm()), restore=restore)
    second.later(5)
    second.give(END_OF_INPUT)
    assert second.output.values == ([] if finished else ["rings"])


def test_a_snapshot_under_way_holds_the_next_barrier_and_no_record_is_lost() -> None:
    work: list[Callable[[], None]] = []
    bench = bench_of(keyed(), services=CheckpointServices(submit=work.append))
    bench.give(Batch(["x"]), Barrier(1, 0), Batch(["y"]), Barrier(2, 0), Batch(["z"]))
    while work:
        work.pop(0)()
    bench.run()
    assert sorted(bench.reports.acknowledged) == [1, 2]


class KeepsList(Keeps):
    def open(self, runtime_context: Any) -> None:
        self.last = runtime_context.get_list_state(ListStateDescriptor("last", Types.LONG()))


@pytest.mark.parametrize(
    ("reads", "problem"),
    [
        (spec(K.MAP, Lambda(), name="keeps"), "operator 'keeps': the checkpoint has state of its part 'keyed', which"),
        (keyed(KeepsList()), "state 'last' can't be read with its type of now: it was value state and is list state"),
    ],
)
def test_state_that_does_not_fit_fails_the_task_and_says_where(reads: Any, problem: str) -> None:
    first = bench_of(keyed())
    first.give(Batch(["x"]), Barrier(1, 0))
    second = bench_of(reads, restore=restored(first.reports.acknowledged[1]))
    assert second.states[-1] is E.FAILED
    assert second.reports.failure is not None
    assert second.reports.failure.operator == "keeps"
    assert second.reports.failure.message.startswith(problem)
