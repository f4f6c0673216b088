"""A whole job in one loop, without slots: subtasks over local channels, and a coordinator in a few lines."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from firesteel.checkpoint import savepoints
from firesteel.checkpoint.assign import OperatorRestore, TaskRestore, assign
from firesteel.checkpoint.metadata import OperatorState
from firesteel.checkpoint.subtask_state import TaskState
from firesteel.functions.source import (
    END,
    NEED_SPLITS,
    Boundedness,
    EnumeratorSpec,
    Polled,
    ReaderContext,
    Source,
    SourceBatch,
    SourceReader,
    Split,
)
from firesteel.functions.two_phase import (
    ALREADY_COMMITTED,
    COMMITTED,
    CommitResult,
    Committable,
    Committer,
    TwoPhaseCommitSink,
    TwoPhaseWriter,
)
from firesteel.graph.execution_states import ExecutionState
from firesteel.graph.physical import downstream_channels, upstream_channels
from firesteel.graph.specs import ChainSpec, OperatorKind, OutputSpec, PartitionerKind
from firesteel.protocol.checkpoint_messages import DeclineReason
from firesteel.protocol.deployment import TaskFailure
from firesteel.runtime.chain.chain import ChainPlan
from firesteel.runtime.chain.partitioners import create_output
from firesteel.runtime.checkpoints.in_flight import must_align, partitioners
from firesteel.runtime.checkpoints.task_checkpoints import CheckpointServices
from firesteel.runtime.checkpoints.uploads import InlineStream
from firesteel.runtime.exchange.channels import ChannelId, InputChannel, OutputChannel
from firesteel.runtime.exchange.local import LocalPipe
from firesteel.runtime.loop.interrupts import CancelToken, InterruptGuard
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.operator_base.context import OperatorContext, TaskInfo
from firesteel.runtime.records.batch import Barrier
from firesteel.runtime.sources.source_input import SourceInput
from firesteel.runtime.sources.source_time import SourceTime
from firesteel.runtime.task.bridge import BridgedInput, BridgedOutput
from firesteel.runtime.task.channel_inputs import ChannelInputs
from firesteel.runtime.task.latencies import LatencyTracker
from firesteel.runtime.task.task import StreamTask
from firesteel.state.backend import StateBackend, load_state_backend
from tests.unit.runtime.support import ManualClock

MAX_PARALLELISM = 16


class ListSource(Source[Any]):
    """Each split is a list of records, read a few at a time."""

    def __init__(self, at_once: int = 3) -> None:
        self._at_once = at_once

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def enumerator(self) -> EnumeratorSpec:
        return EnumeratorSpec("none")

    def create_reader(self, context: ReaderContext) -> SourceReader[Any]:
        return ListReader(self._at_once)


class ListReader(SourceReader[Any]):
    """See ``ListSource``."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._splits: list[Split] = []
        self._no_more = False

    def add_splits(self, splits: Sequence[Split]) -> None:
        self._splits += splits

    def no_more_splits(self) -> None:
        self._no_more = True

    def pause_splits(self, split_ids: Sequence[str]) -> None: ...

    def resume_splits(self, split_ids: Sequence[str]) -> None: ...

    def snapshot(self) -> list[Split]:
        return list(self._splits)

    def poll(self, max_records: int) -> Polled[Any]:
        if not self._splits:
            return END if self._no_more else NEED_SPLITS
        split = self._splits.pop(0)
        records: Any = split.data["records"]
        start: Any = split.position or 0
        stop = min(start + self._at_once, len(records))
        finished = stop >= len(records)
        if not finished:
            self._splits.append(split.at(stop))
        values = [tuple(record) for record in records[start:stop]]
        return SourceBatch(values, split.id, stop, [time for _, time in values], split_finished=finished)


class Shelf:
    """Where a sink shows its results; what is visible stays, whatever happens to the job."""

    def __init__(self) -> None:
        self.visible: list[Any] = []
        self.pages: dict[bytes, list[Any]] = {}
        self.committed: list[bytes] = []
        self.number = 0


SHELVES: dict[str, Shelf] = {}


class ShelfSink(TwoPhaseCommitSink[Any]):
    def __init__(self, name: str) -> None:
        self.name = name

    def create_writer(self, context: Any) -> TwoPhaseWriter[Any]:
        return _ShelfWriter(SHELVES[self.name])

    def create_committer(self, context: Any) -> Committer:
        return _ShelfCommitter(SHELVES[self.name])


class _ShelfWriter(TwoPhaseWriter[Any]):
    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._records: list[Any] = []

    def write(self, values: Any, timestamps: Any) -> None:
        self._records += values

    def prepare_commit(self, *, end_of_input: bool) -> Sequence[bytes]:
        if not self._records:
            return ()
        self._shelf.number += 1
        page = str(self._shelf.number).encode()
        self._shelf.pages[page], self._records = self._records, []
        return (page,)


class _ShelfCommitter(Committer):
    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def commit(self, committables: Sequence[Committable]) -> Sequence[CommitResult]:
        return [self._one(committable.data) for committable in committables]

    def _one(self, page: bytes) -> CommitResult:
        if page in self._shelf.committed:
            return ALREADY_COMMITTED
        self._shelf.committed.append(page)
        self._shelf.visible += self._shelf.pages[page]
        return COMMITTED


@dataclass
class Vertex:
    """A vertex of the job.

    Attributes:
        name: unique.
        chain: makes its operators; outputs of the last one are given by ``inputs`` of others.
        parallelism: of now.
        inputs: name of the vertex before it, partitioner, key selector.
        two_inputs: each of them is an input of its own; else they are one.
    """

    name: str
    chain: Callable[[], list[Any]]
    parallelism: int
    inputs: list[tuple[str, PartitionerKind, Any]] = field(default_factory=list)
    two_inputs: bool = False


@dataclass
class Checkpoint:
    """A checkpoint that is complete."""

    number: int
    parallelism: dict[str, int]
    states: dict[tuple[str, int], TaskState]


W = TypeVar("W", bound="Wires")
Task = tuple[str, int]
"""Vertex and subtask."""


class Wires:
    """Connects tasks that are all in one slot."""

    def __init__(self, loop: TaskLoop, window: int = 400) -> None:
        self.loop, self._window = loop, window
        self.pipes: dict[ChannelId, LocalPipe] = {}

    def output(self, channel: ChannelId, target: Task, owner: Task) -> OutputChannel:
        """The sending end, for the task that owns it."""
        return self._pipe(channel).output

    def input(self, channel: ChannelId, origin: Task, owner: Task) -> InputChannel:
        return self._pipe(channel).input

    def _pipe(self, channel: ChannelId) -> LocalPipe:
        return self.pipes.setdefault(channel, LocalPipe(channel, self.loop, self._window))

    def close(self) -> None:
        """The processes of all tasks are gone."""


def bridged(wires: type[W], vertices: Collection[str]) -> type[W]:
    """Wires on which the tasks of some vertices hang as if each had a thread of its own."""

    class Bridges(wires):  # type: ignore[valid-type, misc]
        def output(self, channel: ChannelId, target: Task, owner: Task) -> OutputChannel:
            end = super().output(channel, target, owner)
            return BridgedOutput(end, self.loop, self.loop) if owner[0] in vertices else end

        def input(self, channel: ChannelId, origin: Task, owner: Task) -> InputChannel:
            end = super().input(channel, origin, owner)
            return BridgedInput(end, self.loop, self.loop) if owner[0] in vertices else end

    return Bridges


class MiniJob:
    """One attempt of a job.

    Args:
        vertices: in topological order.
        splits: of each source vertex, plain lists of records.
        seed: decides what happens when.
        restore: what it goes on from.
        options: of barriers.
        attempt: number of all its tasks.
        elsewhere: what other threads would do: done one after the other, now and then.
        wires: makes what connects the tasks, on the loop of the job.
        watermark_interval: seconds between periodic watermarks of sources; 0 = never.
        same_program: the checkpoint was written by the same program.
        latency_interval: seconds between latency markers; 0 = never.
    """

    state_backend: StateBackend = load_state_backend("hashmap")

    def __init__(
        self,
        vertices: Sequence[Vertex],
        splits: Mapping[str, Sequence[Sequence[Any]]],
        seed: int,
        restore: Checkpoint | None = None,
        options: Mapping[str, Any] | None = None,
        first_checkpoint: int = 1,
        attempt: int = 0,
        elsewhere: list[Callable[[], None]] | None = None,
        wires: Callable[[TaskLoop, ManualClock], Wires] = lambda loop, clock: Wires(loop),
        watermark_interval: float = 0.0,
        same_program: bool = True,
        latency_interval: float = 0.0,
    ) -> None:
        self._latency_interval = latency_interval
        self._watermark_interval, self._same_program = watermark_interval, same_program
        self.attempt = attempt
        self.vertices, self.random, self.options = vertices, random.Random(seed), options
        self.clock = ManualClock()
        self.loop = TaskLoop(self.clock)
        self.uploads: list[Callable[[], None]] = [] if elsewhere is None else elsewhere
        self.tasks: dict[tuple[str, int], StreamTask] = {}
        self.completed: Checkpoint | None = restore
        self.states: dict[tuple[str, int], ExecutionState] = {}
        self.failures: list[TaskFailure] = []
        self.declined: dict[int, DeclineReason] = {}
        self.at_end: set[tuple[str, int]] = set()
        self.pending: dict[int, dict[tuple[str, int], TaskState]] = {}
        self.savepoint: Checkpoint | None = None
        self._barriers: dict[int, Barrier] = {}
        self.number = max(first_checkpoint, 1 if restore is None else restore.number + 1) - 1
        self.wires = wires(self.loop, self.clock)
        try:
            for vertex in vertices:
                for subtask in range(vertex.parallelism):
                    self._build(vertex, subtask, splits.get(vertex.name), restore)
        except BaseException:
            self.wires.close()
            self.loop.close()
            raise
        for task in self.tasks.values():
            task.start()

    # -- tasks

    def _build(self, vertex: Vertex, subtask: int, splits: Any, restore: Checkpoint | None) -> None:
        key = (vertex.name, subtask)
        operators = copy.deepcopy(vertex.chain())
        targets = [(down, *edge) for down in self.vertices for edge in down.inputs if edge[0] == vertex.name]
        outputs = [
            OutputSpec(len(operators) - 1, self._edge(down, position), edge[1], edge[2])
            for down in self.vertices
            for position, edge in enumerate(down.inputs)
            if edge[0] == vertex.name
        ]
        assert len(targets) == len(outputs)
        children = [[i + 1] for i in range(len(operators) - 1)] + [[]]
        plan = ChainPlan(ChainSpec(operators, children, outputs))
        info = TaskInfo("1" * 32, "job", f"{vertex.name}_{subtask}_0", vertex.name, subtask, vertex.parallelism,
                        MAX_PARALLELISM, self.attempt)  # fmt: skip
        plan.use_state_backend(self.state_backend, info, self.clock, directory=self.directory_of(info))
        context = OperatorContext(info, self.clock, checkpointing=True)
        for index, operator in enumerate(plan.operators):
            operator.create(context)
            assert operator.spec.id == operators[index].id
        guard, token = InterruptGuard(), CancelToken()
        task_restore = None if restore is None else self._restore(vertex, subtask, operators, restore)
        inputs: Any
        if splits is not None:
            head = plan.operators[0]
            time = SourceTime(head.name, info.full_name, head.spec.extra["watermark_strategy"], self.clock, None)
            inputs = SourceInput(
                vertex.name, head.function, info, self.clock, token, lambda: None,
                lambda: self.tasks[key].wake(), 100, time, self._watermark_interval, operator=head,
                finished=task_restore is not None and task_restore.finished,
            )  # fmt: skip
            inputs.run_on(self.loop, guard)
        else:
            edges = [
                (self._edge(vertex, position), position if vertex.two_inputs else 0, kind)
                for position, (_, kind, _) in enumerate(vertex.inputs)
            ]
            inputs = ChannelInputs(self._inputs(vertex, subtask), lambda: self.tasks[key].wake(), info.full_name,
                                   self.clock, partitioners(operators[0], edges),
                                   must_align=must_align(operators[0]))  # fmt: skip
        channels = []
        for spec in outputs:
            down = next(v for v in self.vertices for p in range(len(v.inputs)) if self._edge(v, p) == spec.edge)
            numbers = downstream_channels(spec.partitioner, subtask, vertex.parallelism, down.parallelism)
            edge = [
                self.wires.output(ChannelId(spec.edge, subtask, number), (down.name, number), key) for number in numbers
            ]
            plan.outlet_of(spec).outputs.append(
                create_output(spec, vertex.name, edge, MAX_PARALLELISM, random.Random(1), dictionaries=True)
            )
            channels += edge
        self.tasks[key] = StreamTask(
            info, plan, inputs, [(channel, 0) for channel in channels], context, self.loop, guard, token,
            _Reporter(self, key), needs_commit=False, watermark_interval=0.0,
            latencies=None if not self._latency_interval else LatencyTracker(
                plan.outputs(), self.clock, self._latency_interval, 128, vertex.name, subtask
            ),
            checkpoints=self.services(),
            restore=task_restore,
        )  # fmt: skip
        if splits is not None:
            mine = [] if restore is not None else [
                Split(f"{vertex.name}-{number}", {"records": list(records)})
                for number, records in enumerate(splits) if number % vertex.parallelism == subtask
            ]  # fmt: skip
            self.loop.call_soon(lambda: inputs.add_splits(mine, True, 1))

    def directory_of(self, info: TaskInfo) -> str:
        """Where a task's state may be in files."""
        return ""

    def services(self) -> CheckpointServices:
        """What tasks get from their slot."""
        return CheckpointServices(
            lambda number, hint: InlineStream(),
            self.uploads.append,
            final=True,
            unaligned=bool((self.options or {}).get("unaligned")),
        )

    def _edge(self, down: Vertex, position: int) -> int:
        index = next(i for i, v in enumerate(self.vertices) if v is down)
        return index * 10 + position

    def _inputs(self, vertex: Vertex, subtask: int) -> list[tuple[Any, int]]:
        inputs = []
        for position, (up_name, kind, _) in enumerate(vertex.inputs):
            up = next(v for v in self.vertices if v.name == up_name)
            for number in upstream_channels(kind, subtask, up.parallelism, vertex.parallelism):
                name = ChannelId(self._edge(vertex, position), number, subtask)
                channel = self.wires.input(name, (up_name, number), (vertex.name, subtask))
                inputs.append((channel, position if vertex.two_inputs else 0))
        return inputs

    def _restore(self, vertex: Vertex, subtask: int, operators: Sequence[Any], from_: Checkpoint) -> TaskRestore:
        parallelism = from_.parallelism[vertex.name]
        written = [from_.states[vertex.name, number] for number in range(parallelism)]
        operator_restores: dict[str, OperatorRestore] = {}
        for spec in operators:
            subtasks = {n: s.operators[spec.id] for n, s in enumerate(written) if spec.id in s.operators}
            state = OperatorState(
                operator_id=spec.id, name=spec.name, uid=None, parallelism=parallelism, max_parallelism=MAX_PARALLELISM,
                subtasks=subtasks,
            )  # fmt: skip
            operator_restores[spec.id] = assign(
                state, vertex.parallelism, MAX_PARALLELISM, same_program=self._same_program
            )[subtask]
        finished = all(state.finished for state in written)
        plain = TaskRestore(from_.number, finished, operator_restores).to_plain()
        return TaskRestore.from_plain(plain)

    # -- the coordinator: ``completed`` is what an attempt behind this one has to go on from

    def trigger(self, savepoint: bool = False, stop: str = "") -> int:
        """Begin a checkpoint, or a savepoint; its number.

        Args:
            savepoint: nobody hears that it is complete, unless the job stops with it; it is found in ``savepoint``.
            stop: how the job stops with it.
        """
        self.number += 1
        options = self.options
        if savepoint:
            options = {savepoints.OPTION: "/savepoint", savepoints.FORMAT_OPTION: savepoints.CANONICAL}
            options |= {savepoints.STOP_OPTION: stop} if stop else {}
        barrier = self._barriers[self.number] = Barrier(self.number, self.clock.epoch_ms(), options)
        self.pending[self.number] = {
            key: TaskState(finished=True) for key, state in self.states.items() if state is ExecutionState.FINISHED
        }
        for key, task in self.tasks.items():
            if task.plan.operators[0].spec.kind is OperatorKind.SOURCE or key in self.at_end:
                task.trigger_checkpoint(barrier)
        return self.number

    def acknowledged(self, key: tuple[str, int], number: int, state: TaskState) -> None:
        """A task has written its state."""
        pending = self.pending.get(number)
        if pending is None:
            return
        pending[key] = TaskState.from_bytes(state.to_bytes())
        if len(pending) == len(self.tasks):
            parallelism = {vertex.name: vertex.parallelism for vertex in self.vertices}
            checkpoint, options = Checkpoint(number, parallelism, pending), self._barriers[number].options
            if savepoints.OPTION in options:
                self.savepoint = checkpoint
                if not options.get(savepoints.STOP_OPTION):
                    del self.pending[number]
                    return
            self.completed = checkpoint
            self.pending = {n: p for n, p in self.pending.items() if n > number}
            if self.random.random() < 0.8:  # else the news is lost
                self.loop.call_soon(lambda: self._tell(number))

    def decline(self, key: tuple[str, int], number: int, reason: DeclineReason, failure: TaskFailure | None) -> None:
        """A task does not take part."""
        self.declined[number] = reason
        assert failure is None, failure

    def _tell(self, number: int) -> None:
        for task in self.tasks.values():
            if self.random.random() < 0.9:
                task.checkpoint_complete(number)

    def abort(self, number: int) -> None:
        """Give a checkpoint up."""
        if self.pending.pop(number, None) is not None:
            for task in self.tasks.values():
                task.checkpoint_aborted(number)

    def ended(self, key: tuple[str, int]) -> None:
        """A task waits for a last checkpoint; one that began before needs it, too."""
        self.at_end.add(key)
        for number in list(self.pending):
            self.loop.call_soon(
                lambda number=number: self.tasks[key].trigger_checkpoint(self._barriers[number])  # type: ignore[misc]
            )

    # -- running

    @property
    def finished(self) -> bool:
        return all(self.states.get(key) is ExecutionState.FINISHED for key in self.tasks)

    def steps(self, count: int) -> None:
        """Passes of the loop; now and then something is written."""
        for _ in range(count):
            done = self.loop.run_once(block=False)
            if self.uploads and (not done or self.random.random() < 0.3):
                self.uploads.pop(0)()
            assert not self.failures, self.failures[0].traceback

    def rest(self) -> None:
        """Until nothing is left to do at this time of the clock."""
        for _ in range(100_000):
            if self.uploads:
                self.uploads.pop(0)()
            elif not self.loop.run_once(block=False):
                assert not self.failures, self.failures[0].traceback
                return
        raise AssertionError(f"the job does not come to rest: {self.states}")

    def live_for_a_while(self, chance: random.Random) -> None:
        """Random steps with checkpoints, of which some are given up."""
        for _ in range(chance.randrange(1, 12)):
            self.steps(chance.randrange(1, 30))
            if self.pending and chance.random() < 0.15:
                self.abort(chance.choice(list(self.pending)))
            if len(self.pending) < 2:
                self.trigger()

    def to_end(self) -> None:
        """Until all tasks have finished, with a checkpoint whenever nothing else happens."""
        for _ in range(200):
            self.steps(50)
            if self.finished:
                return
            for number in list(self.pending):
                if number < self.number:
                    self.abort(number)
            if not self.pending or self.random.random() < 0.2:
                self.trigger()
        raise AssertionError(f"the job does not end: {self.states}, {self.pending}")

    def crash(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        self.wires.close()
        self.loop.close()


class _Reporter:
    def __init__(self, job: MiniJob, key: tuple[str, int]) -> None:
        self._job, self._key = job, key

    def state(self, execution_id: str, state: ExecutionState, failure: Any, metrics: Any) -> None:
        self._job.states[self._key] = state
        if failure is not None:
            self._job.failures.append(failure)

    def end_of_data(self, execution_id: str) -> None:
        self._job.ended(self._key)

    def acknowledge_checkpoint(self, execution_id: str, checkpoint_id: int, metrics: Any, state: TaskState) -> None:
        self._job.acknowledged(self._key, checkpoint_id, state)

    def decline_checkpoint(self, execution_id: str, checkpoint_id: int, reason: DeclineReason, failure: Any) -> None:
        self._job.decline(self._key, checkpoint_id, reason, failure)


SOURCE = OperatorKind.SOURCE
