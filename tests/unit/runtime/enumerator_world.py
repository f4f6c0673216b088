"""A user's enumerator in its task, the JobMaster's link to it, and readers that are a few lines each; all by hand.

What passes between them waits in queues until the test delivers it. ``World.barrier`` does what the coordinator does:
readers first, each at its own time, then the enumerator.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from firesteel.checkpoint.assign import TaskRestore, assign
from firesteel.checkpoint.metadata import EnumeratorState, OperatorState
from firesteel.checkpoint.subtask_state import TaskState
from firesteel.functions.source import (
    Boundedness,
    ReaderContext,
    Source,
    SourceReader,
    Split,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from firesteel.graph.execution_graph import Execution
from firesteel.graph.execution_states import ExecutionState
from firesteel.graph.job_graph import USER_ENUMERATOR, JobVertex, OperatorInfo, SourceInfo
from firesteel.graph.specs import ChainSpec, OperatorKind, OperatorSpec
from firesteel.protocol.checkpoint_messages import DeclineReason
from firesteel.protocol.deployment import TaskFailure
from firesteel.protocol.messages import Splits
from firesteel.runtime.chain.chain import ChainPlan
from firesteel.runtime.checkpoints.task_checkpoints import CheckpointServices
from firesteel.runtime.checkpoints.uploads import InlineStream
from firesteel.runtime.loop.interrupts import CancelToken, InterruptGuard
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.operator_base.context import OperatorContext, TaskInfo
from firesteel.runtime.operators import EnumeratorOperator
from firesteel.runtime.records.batch import Barrier
from firesteel.runtime.sources.enumerator_input import EnumeratorInput
from firesteel.runtime.task.task import StreamTask
from firesteel_jobmaster.enumerator_link import EnumeratorLink
from firesteel_jobmaster.split_assignments import ALL
from tests.unit.runtime.support import ManualClock

SOURCE, ENUMERATOR = "1" * 32, "2" * 32
LENGTH = 3
"""Records of a split."""


class Named(Source[Any]):
    """Splits with these names; handed out two at a time to whoever asks, or all at once to whoever is there."""

    def __init__(self, names: Sequence[str], *, eager: bool = False) -> None:
        self.names, self.eager = list(names), eager

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def create_enumerator(self, context: SplitEnumeratorContext) -> SplitEnumerator:
        return NamedEnumerator(context, list(self.names), self.eager)

    def restore_enumerator(self, context: SplitEnumeratorContext, checkpoint: Any) -> SplitEnumerator:
        return NamedEnumerator(context, checkpoint, self.eager)

    def create_reader(self, context: ReaderContext) -> SourceReader[Any]:
        raise AssertionError("the readers of this world are simpler")


class NamedEnumerator(SplitEnumerator):
    def __init__(self, context: SplitEnumeratorContext, left: list[str], eager: bool) -> None:
        self.context, self.left, self.eager = context, left, eager
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def add_reader(self, subtask_id: int) -> None:
        self.calls.append(f"add_reader {subtask_id}")
        if self.eager and len(self.context.registered_readers()) == self.context.current_parallelism():
            self.context.assign_splits(
                {0: [Split(name, {}) for name in self.left[::2]], 1: [Split(name, {}) for name in self.left[1::2]]}
                if self.context.current_parallelism() > 1
                else {0: [Split(name, {}) for name in self.left]}
            )
            self.left = []

    def handle_split_request(self, subtask_id: int, requester_hostname: str | None) -> None:
        self.calls.append(f"request {subtask_id} {requester_hostname}")
        for _ in range(2):
            if self.left:
                self.context.assign_split(Split(self.left.pop(0), {}), subtask_id)
        if not self.left:
            self.context.signal_no_more_splits(subtask_id)

    def add_splits_back(self, splits: Sequence[Split], subtask_id: int) -> None:
        self.calls.append(f"back {[split.id for split in splits]} {subtask_id}")
        self.left += [split.id for split in splits]

    def snapshot_state(self, checkpoint_id: int) -> Any:
        return list(self.left)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.calls.append(f"complete {checkpoint_id}")

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self.calls.append(f"aborted {checkpoint_id}")

    def close(self) -> None:
        self.calls.append("close")


def source_vertex(parallelism: int) -> JobVertex:
    info = SourceInfo(SOURCE, USER_ENUMERATOR, {}, bounded=True, coordinator=ENUMERATOR)
    return JobVertex(SOURCE, "Source: s", parallelism, 128, "default", "c" * 64, (_info(SOURCE),), info)


def enumerator_vertex() -> JobVertex:
    name = "SplitEnumerator: Source: s"
    return JobVertex(ENUMERATOR, name, 1, 1, "default", "d" * 64, (_info(ENUMERATOR),), enumerates=SOURCE)


def _info(id_: str) -> OperatorInfo:
    return OperatorInfo(id_, "s", None, "x")


class EnumeratorTask:
    """The task of one attempt.

    Attributes:
        said: to the JobMaster, in order: ``("events", number, events)``, ``("ack", checkpoint, TaskState)``,
            ``("decline", checkpoint, failure)``.
        states: it has been in.
    """

    def __init__(self, source: Source[Any], readers: int, restore: TaskRestore | None = None) -> None:
        self.clock = ManualClock()
        self.loop = TaskLoop(self.clock)
        self.said: deque[tuple[str, int, Any]] = deque()
        self.states: list[ExecutionState] = []
        self.failure: TaskFailure | None = None
        self.uploads: deque[Callable[[], None]] = deque()
        spec = OperatorSpec(ENUMERATOR, "SplitEnumerator: Source: s", OperatorKind.ENUMERATOR, source)
        plan = ChainPlan(ChainSpec([spec], [[]], []))
        info = TaskInfo("1" * 32, "job", f"{ENUMERATOR}_0_0", spec.name, 0, 1, 1, 0)
        operator = plan.operators[0]
        assert isinstance(operator, EnumeratorOperator)
        self.operator = operator
        guard, token = InterruptGuard(), CancelToken()
        self.input = EnumeratorInput(
            operator,
            readers,
            token,
            lambda number, events: self.said.append(("events", number, list(events))),
            lambda: self.task.wake(),
            finished=restore is not None and restore.finished,
        )
        self.input.run_on(self.loop, guard)
        self.task = StreamTask(
            info, plan, self.input, [], OperatorContext(info, self.clock, checkpointing=True), self.loop, guard, token,
            self, watermark_interval=0.0,
            checkpoints=CheckpointServices(lambda number, hint: InlineStream(), self.uploads.append),
            restore=restore,
        )  # fmt: skip
        self.task.start()

    @property
    def enumerator(self) -> Any:
        return self.operator._enumerator

    def run(self, passes: int = 50, *, writes: bool = True) -> None:
        """The task works, and perhaps writes what it has to."""
        for _ in range(passes):
            self.loop.run_once(block=False)
            if self.uploads and writes:
                self.uploads.popleft()()

    def close(self) -> None:
        self.task.cancel()
        self.loop.close()

    # -- TaskReporter

    def state(
        self, execution_id: str, state: ExecutionState, failure: TaskFailure | None, metrics: dict[str, Any]
    ) -> None:
        self.states.append(state)
        self.failure = failure or self.failure

    def end_of_data(self, execution_id: str) -> None:
        raise AssertionError("it has nothing to commit")

    def acknowledge_checkpoint(
        self, execution_id: str, checkpoint_id: int, metrics: Mapping[str, Any], state: TaskState
    ) -> None:
        self.said.append(("ack", checkpoint_id, state))

    def decline_checkpoint(
        self, execution_id: str, checkpoint_id: int, reason: DeclineReason, failure: TaskFailure | None
    ) -> None:
        self.said.append(("decline", checkpoint_id, failure))


class Reader:
    """A source subtask: splits with positions."""

    def __init__(self, execution: Execution, splits: Sequence[Split]) -> None:
        self.execution, self.splits = execution, list(splits)
        self.number = self.serial = 0
        self.done = False
        self.on_the_way: deque[Splits] = deque()

    def read(self, counted: Counter[tuple[str, int]]) -> None:
        if self.splits:
            split = self.splits.pop(0)
            position: Any = split.position or 0
            counted[split.id, position] += 1
            if position + 1 < LENGTH:
                self.splits.insert(0, split.at(position + 1))

    def take(self) -> None:
        """What was pushed arrives."""
        if self.on_the_way:
            push = self.on_the_way.popleft()
            assert push.serial == self.serial + 1
            assert not (self.done and push.splits), "splits behind the last one"
            self.serial = push.serial
            self.splits += [Split.from_plain(plain) for plain in push.splits]
            self.done = self.done or push.no_more


class World:
    """See the module.

    Args:
        source: of all attempts.
        parallelism: of its readers, at first.
    """

    def __init__(self, source: Source[Any], parallelism: int) -> None:
        self.source = source
        self.attempt = self.number = 0
        self.point: tuple[Any, ...] | None = None
        self.link: EnumeratorLink
        self.begin(parallelism)

    def begin(self, parallelism: int) -> None:
        """An attempt, from the last checkpoint if there is one; perhaps with another parallelism."""
        vertex = source_vertex(parallelism)
        self.attempt += 1
        self.link = EnumeratorLink(vertex)
        splits: list[list[Split]] = [[] for _ in range(parallelism)]
        self.counted: Counter[tuple[str, int]] = Counter()
        restore = None
        if self.point is not None:
            number, readers, enumerator, link_state, counted = self.point
            for position, split in enumerate(split for reader in readers for split in reader):
                splits[position % parallelism].append(split)
            self.counted = Counter(counted)
            self.link.restart(EnumeratorState.from_plain(link_state.to_plain(), "kept").returned)
            states = {0: enumerator.operators[ENUMERATOR]} if enumerator.operators else {}
            operator = OperatorState(ENUMERATOR, "e", None, 1, 1, states, enumerator.finished)
            plain = TaskRestore(number, enumerator.finished, {ENUMERATOR: assign(operator, 1, 1)[0]}).to_plain()
            restore = TaskRestore.from_plain(plain)
        self.readers = [
            Reader(Execution(vertex, subtask, self.attempt, ManualClock()), splits[subtask])
            for subtask in range(parallelism)
        ]
        self.task = EnumeratorTask(self.source, parallelism, restore)
        self.execution = Execution(enumerator_vertex(), 0, self.attempt, ManualClock())
        self.down: deque[Any] = deque()
        """On its way to the enumerator: events, and the trigger of a checkpoint, in one lane."""
        self.acknowledged: dict[int, tuple[int, list[Split], bool]] = {}
        self.counts: dict[int, Counter[tuple[str, int]]] = {}
        self.pending: int | None = None
        self.link.enumerator_runs(self.execution)
        for reader in self.readers:
            self.link.reader_runs(reader.execution)
        self.send()

    def crash(self, parallelism: int) -> None:
        """Everything of the region is lost, and begins again."""
        self.task.close()
        self.begin(parallelism)

    # -- messages

    def send(self) -> None:
        """The JobMaster puts what it has to say into the lane."""
        message = self.link.take()
        if message is not None:
            self.down.append(message[1:])

    def ask(self, reader: Reader, *, again: bool = False) -> None:
        """A reader asks, perhaps once more under the same number."""
        if not reader.done:
            reader.number += not again or not reader.number
            self.link.reader_asks(reader.execution, reader.number)
            self.send()

    def deliver_down(self, *, twice: bool = False) -> None:
        """The next message of the lane reaches the task."""
        if not self.down:
            return
        message = self.down.popleft()
        if isinstance(message, Barrier):
            self.task.task.trigger_checkpoint(message)
            return
        for _ in range(1 + twice):
            self.task.input.take(*message)

    def deliver_up(self, *, twice: bool = False) -> None:
        """The next message of the task reaches the JobMaster."""
        if not self.task.said:
            return
        kind, number, what = self.task.said.popleft()
        if kind == "events":
            for _ in range(1 + twice):
                for execution, push in self.link.received(self.execution, number, what):
                    self.readers[execution.subtask].on_the_way.append(push)
        elif kind == "ack" and number == self.pending:
            self._complete(what)

    # -- checkpoints

    def barrier(self, subtask: int) -> None:
        """A reader takes its snapshot for the checkpoint under way, or the next one; the last one triggers."""
        if self.pending is None:
            self.number += 1
            self.pending, self.acknowledged = self.number, {}
        if subtask in self.acknowledged or len(self.acknowledged) == len(self.readers):
            return
        reader = self.readers[subtask]
        finished = reader.done and not reader.splits and not reader.on_the_way
        self.acknowledged[subtask] = (reader.serial, list(reader.splits), finished)
        self.counts[subtask] = Counter(self.of_reader[subtask])
        if len(self.acknowledged) == len(self.readers):
            self.down.append(Barrier(self.pending, 0, {}))

    def give_up(self) -> None:
        """The checkpoint under way is aborted."""
        if self.pending is not None:
            self.task.task.checkpoint_aborted(self.pending)
            self.pending = None

    def _complete(self, state: TaskState) -> None:
        assert self.pending is not None
        serials = {n: ALL if finished else serial for n, (serial, _, finished) in self.acknowledged.items()}
        link_state = self.link.snapshot(serials, state.splits_serial)
        self.link.completed(serials)
        readers = [self.acknowledged[n][1] for n in sorted(self.acknowledged)]
        counted = sum(self.counts.values(), Counter(self.base))
        self.point = (self.pending, readers, TaskState.from_bytes(state.to_bytes()), link_state, counted)
        self.task.task.checkpoint_complete(self.pending)
        self.pending = None

    # -- what was read

    @property
    def of_reader(self) -> dict[int, Counter[tuple[str, int]]]:
        """Records that each reader has given in this attempt."""
        if getattr(self, "_of_attempt", None) != self.attempt:
            self._of_attempt = self.attempt
            self._of_reader = {n: Counter[tuple[str, int]]() for n in range(len(self.readers))}
            self.base = Counter(self.counted)
            self.counts = {}
        return self._of_reader

    def read(self, subtask: int) -> None:
        """A reader reads one record."""
        self.readers[subtask].read(self.of_reader[subtask])

    @property
    def total(self) -> Counter[tuple[str, int]]:
        """All that has been read and not been lost."""
        return sum(self.of_reader.values(), Counter(self.base))

    def finish(self) -> None:
        """Everybody works until all is read."""
        for _ in range(400):
            for reader in self.readers:
                if not reader.splits and not reader.on_the_way:
                    self.ask(reader)
            self.task.run()
            while self.down or self.task.said:
                self.deliver_down()
                self.task.run()
                self.deliver_up()
            for subtask, reader in enumerate(self.readers):
                reader.take()
                for _ in range(5):
                    self.read(subtask)
            if all(reader.done and not reader.splits and not reader.on_the_way for reader in self.readers):
                return
        raise AssertionError("it does not come to its end")
