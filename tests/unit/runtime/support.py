"""Fakes for tests of the runtime's parts: channels, a clock, chains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from firesteel.checkpoint.subtask_state import TaskState
from firesteel.graph.execution_states import ExecutionState
from firesteel.graph.specs import ChainSpec, OperatorKind, OperatorSpec, OutputSpec
from firesteel.protocol.checkpoint_messages import DeclineReason
from firesteel.protocol.deployment import TaskFailure
from firesteel.runtime.chain.chain import ChainExecutor, ChainPlan
from firesteel.runtime.exchange.channels import ChannelId, InputChannel, OutputChannel
from firesteel.runtime.exchange.inbox import Inbox
from firesteel.runtime.loop.interrupts import CancelToken, InterruptGuard
from firesteel.runtime.operator_base.context import OperatorContext, TaskInfo
from firesteel.runtime.records.batch import END_OF_INPUT, Batch, InBand
from firesteel.runtime.records.rows import to_list

INFO = TaskInfo("1" * 32, "job", "v_0_0", "Map -> Sink", 1, 4, 128, 2, {"color": "red"})


class ManualClock:
    """Time that tests move."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def epoch_ms(self) -> int:
        return int(self.now * 1000)


class FakeOutput(OutputChannel):
    """Remembers what is written."""

    def __init__(self, down: int = 0) -> None:
        super().__init__(ChannelId(0, 0, down))
        self.window = 1 << 20
        self.batches: list[Batch] = []
        self.elements: list[tuple[int, InBand]] = []
        """Each with the number of records before it."""
        self.flushes = 0
        self.ended = self.closed = False

    def write(self, batch: Batch) -> None:
        assert not self.ended
        self.batches.append(batch)
        self.records_out += len(batch)
        self.bytes_out += 10 * len(batch)

    def send(self, element: InBand) -> None:
        assert not self.ended
        self.elements.append((self.records_out, element))

    def flush(self) -> None:
        self.flushes += 1

    def end(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.closed = True

    @property
    def values(self) -> list[Any]:
        return [value for batch in self.batches for value in batch.values]

    @property
    def timestamps(self) -> list[Any]:
        none: list[Any] = [None]
        stamps = [to_list(batch.timestamps) or none * len(batch) for batch in self.batches]
        return [stamp for part in stamps for stamp in part]

    def open_up(self) -> None:
        self.writable = True
        if self.on_writable is not None:
            self.on_writable()


class FakeInput(InputChannel):
    """Gives what tests put in."""

    def __init__(self, items: Iterable[Batch | InBand] = ()) -> None:
        super().__init__(ChannelId(0, 0, 0), FakeInbox(items))
        self.items = self.inbox.queue
        self.closed = False
        self.released = 0

    def give(self, *items: Batch | InBand) -> None:
        self.items.extend(items)
        if self.on_readable is not None:
            self.on_readable()

    def barrier_ahead(self) -> None: ...

    def release(self, size: int) -> None:
        self.released += 1

    def close(self) -> None:
        self.closed = True


class FakeInbox(Inbox):
    """Gives one item at a time, however small."""

    def __init__(self, items: Iterable[Batch | InBand]) -> None:
        super().__init__(0)
        self.queue.extend(items)


class Reports:
    """A ``TaskReporter`` that remembers."""

    def __init__(self) -> None:
        self.states: list[ExecutionState] = []
        self.failure: TaskFailure | None = None
        self.metrics: dict[str, int] = {}
        self.ends = 0
        self.acknowledged: dict[int, TaskState] = {}
        self.checkpoint_metrics: Mapping[str, Any] = {}
        self.declined: dict[int, DeclineReason] = {}
        self.decline_failure: TaskFailure | None = None

    def state(
        self, execution_id: str, state: ExecutionState, failure: TaskFailure | None, metrics: dict[str, int]
    ) -> None:
        self.states.append(state)
        self.failure, self.metrics = failure, metrics

    def end_of_data(self, execution_id: str) -> None:
        self.ends += 1

    def acknowledge_checkpoint(
        self, execution_id: str, checkpoint_id: int, metrics: Mapping[str, Any], state: TaskState
    ) -> None:
        self.acknowledged[checkpoint_id] = state
        self.checkpoint_metrics = metrics

    def decline_checkpoint(
        self, execution_id: str, checkpoint_id: int, reason: DeclineReason, failure: TaskFailure | None
    ) -> None:
        self.declined[checkpoint_id] = reason
        self.decline_failure = failure


def spec(kind: OperatorKind, function: Any = None, **more: Any) -> OperatorSpec:
    return OperatorSpec("0" * 32, more.pop("name", kind.value), kind, function, **more)


def line(*operators: OperatorSpec, outputs: Sequence[OutputSpec] = ()) -> ChainSpec:
    """A chain without forks."""
    children = [[i + 1] for i in range(len(operators) - 1)] + [[]]
    return ChainSpec(list(operators), children, list(outputs))


def opened(chain: ChainSpec, clock: ManualClock | None = None, **context: Any) -> ChainPlan:
    """A plan whose operators are open."""
    plan = ChainPlan(chain)
    for index, operator in enumerate(plan.operators):
        operator.open(OperatorContext(INFO, clock or ManualClock(), plan.stage_of[index].stamp, **context))
    return plan


def executor_of(plan: ChainPlan) -> ChainExecutor:
    """An executor with a guard and a token of its own."""
    return ChainExecutor(plan, InterruptGuard(), CancelToken())


def run(plan: ChainPlan, values: list[Any], stamps: list[int] | None = None, input_index: int = 0) -> ChainExecutor:
    """Move one batch through."""
    executor = executor_of(plan)
    executor.feed(Batch(values, stamps), input_index)
    while executor.pending:
        executor.step()
    return executor


__all__ = [
    "END_OF_INPUT",
    "INFO",
    "FakeInput",
    "FakeOutput",
    "ManualClock",
    "Reports",
    "executor_of",
    "line",
    "opened",
    "run",
    "spec",
]
