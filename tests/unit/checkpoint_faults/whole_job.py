"""A JobMaster's core, real tasks, and real checkpoints between them, in one thread: the test is network and clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from firesteel.checkpoint.assign import TaskRestore
from firesteel.checkpoint.savepoint_places import savepoint_directory
from firesteel.checkpoint.storage import CheckpointStorage, StorageParameters, load_checkpoint_storage
from firesteel.checkpoint.store import CompletedCheckpointStore
from firesteel.checkpoint.subtask_state import TaskState
from firesteel.common import Types, WatermarkStrategy
from firesteel.config import Settings
from firesteel.functions.functions import KeyedProcessFunction
from firesteel.functions.state import ListStateDescriptor, ValueStateDescriptor
from firesteel.graph.execution_graph import Execution
from firesteel.graph.execution_states import ExecutionState
from firesteel.graph.job_graph import JobEdge, JobGraph, JobVertex, OperatorInfo, SourceInfo
from firesteel.graph.specs import OperatorKind as K
from firesteel.graph.specs import OperatorSpec
from firesteel.graph.specs import PartitionerKind as P
from firesteel.protocol import messages as m
from firesteel.protocol.checkpoint_messages import DeclineReason
from firesteel.protocol.deployment import TaskFailure
from firesteel.runtime.checkpoints.task_checkpoints import CheckpointServices
from firesteel.runtime.records.batch import Barrier
from firesteel.testing.clock import ManualClock
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.checkpoint_work import Work
from firesteel_jobmaster.checkpoints.worker import CheckpointWorker
from firesteel_jobmaster.core import JobMasterCore
from firesteel_jobmaster.settings import JobMasterSettings
from tests.archives import job_archive
from tests.unit.ha.directories import checkpoint_store
from tests.unit.jobmaster.jobs import JOB
from tests.unit.runtime.mini_job import MAX_PARALLELISM, SHELVES, Checkpoint, ListSource, MiniJob, Shelf, ShelfSink
from tests.unit.runtime.mini_job import Vertex as MiniVertex

INTERVAL, TIMEOUT, STEP = 1.0, 20.0, 0.25
"""Seconds of the test's clock: between checkpoints, of one, and for each round of the loop."""
KEYS = 5
PROCESSED = [0]
"""Records that were numbered, in all attempts of all jobs."""
ANYTHING = Checkpoint(0, {}, {})
OPEN: list[WholeJob] = []
"""Jobs of this test."""
OpenStorage = Callable[[], CheckpointStorage]


class Numbered(KeyedProcessFunction[Any, Any, Any]):
    """Gives each record with its number among those of its key; the list makes state that is worth a file."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        PROCESSED[0] += 1
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        self.seen.add(value[1])
        if sorted(self.seen.get()) != sorted(set(self.seen.get())):
            raise AssertionError(f"{value} is seen twice")
        yield value[0], count


def key_of(record: Any) -> Any:
    return record[0]


def operator(name: str, kind: K, function: Any, **more: Any) -> OperatorSpec:
    return OperatorSpec(name.encode().hex().ljust(32, "0")[:32], name, kind, function, **more)


def vertices(parallelism: int) -> list[MiniVertex]:
    """Lists of records, numbered by key, on a shelf."""
    never = {"watermark_strategy": WatermarkStrategy.no_watermarks()}
    source = operator("source", K.SOURCE, ListSource(1), extra=never)
    number = operator("number", K.KEYED_PROCESS, Numbered(), key_selectors=(key_of,))
    sink = operator("sink", K.SINK, ShelfSink("faults"))
    return [
        MiniVertex("source", lambda: [source], 1),
        MiniVertex("number", lambda: [number, sink], parallelism, [("source", P.HASH, key_of)]),
    ]


def graph_of(mini_vertices: Sequence[MiniVertex]) -> JobGraph:
    """The same job as a JobMaster sees it."""
    nodes: list[JobVertex] = []
    edges: list[JobEdge] = []
    for number, vertex in enumerate(mini_vertices):
        chain = vertex.chain()
        infos = tuple(OperatorInfo(spec.id, spec.name, spec.name, spec.kind.value) for spec in chain)
        source = None if vertex.inputs else SourceInfo(chain[0].id, "static", {"splits": []}, bounded=True)
        commits = any(spec.kind is K.SINK for spec in chain)
        nodes.append(
            JobVertex(
                f"{number:032x}", vertex.name, vertex.parallelism, MAX_PARALLELISM, "default", "c" * 64, infos, source,
                commits, None,
            )
        )  # fmt: skip
        for name, kind, _ in vertex.inputs:
            before = next(node for node in nodes if node.name == name)
            edges.append(JobEdge(len(edges), before.id, nodes[-1].id, before.operators[-1].id, 0, kind.value))
    graph = JobGraph(JOB, "faults", tuple(nodes), tuple(edges), {}, {"c" * 64: 10})
    graph.validate()
    return graph


class Attempt(MiniJob):
    """The tasks of one attempt, in the slots of the job."""

    def __init__(self, job: WholeJob, restores: dict[tuple[str, int], TaskRestore | None], seed: int) -> None:
        self.job, self.restores = job, restores
        job.begun.append(self)
        self.told: dict[tuple[str, int], ExecutionState] = {}
        anew = all(restore is None for restore in restores.values())
        super().__init__(job.vertices, {"source": job.splits}, seed, None if anew else ANYTHING)

    def services(self) -> CheckpointServices:
        storage = self.job.slot_storage
        return CheckpointServices(
            storage.open_state_stream,
            self.uploads.append,
            storage.open_state,
            final=True,
            open_savepoint=lambda directory, number, hint: savepoint_directory(
                directory, Settings(self.job.settings)
            ).open_state_stream(number, hint),
        )

    def _restore(self, vertex: MiniVertex, subtask: int, *_: Any) -> TaskRestore | None:  # type: ignore[override]
        return self.restores[vertex.name, subtask]

    def acknowledged(self, key: tuple[str, int], number: int, state: TaskState) -> None:
        self.job.acknowledged(self, key, number, state)

    def decline(self, key: tuple[str, int], number: int, reason: DeclineReason, failure: TaskFailure | None) -> None:
        self.job.declined(self, key, number, reason, failure)

    def ended(self, key: tuple[str, int]) -> None:
        self.job.later.append(lambda: self.job.end_of_data(self, key))

    def round(self) -> None:
        """Some passes of the loop; then what the tasks say is told."""
        for _ in range(6):
            done = self.loop.run_once(block=False)
            if self.uploads and not self.job.stalled and (not done or self.random.random() < 0.3):
                self.uploads.pop(0)()


class WholeJob:
    """A job from its start to its end.

    Args:
        directory: of checkpoints and of the store.
        seed: decides what happens when.
        parallelism: of the keyed operator.
        open_storage: makes the storage; None = as the settings say.
        store: of completed checkpoints; None = in the directory.
        shelf: where results are; None = it is empty.
        settings: more of the job.

    Attributes:
        stalled: storage does not answer.
        held: kinds of work that are not done, nor what is behind them.
    """

    def __init__(
        self,
        directory: Path,
        seed: int = 0,
        parallelism: int = 2,
        open_storage: OpenStorage | None = None,
        store: CompletedCheckpointStore | None = None,
        shelf: Shelf | None = None,
        **settings: str,
    ) -> None:
        self.directory, self.seed = directory, seed
        self.settings = {
            "execution.checkpointing.interval": f"{INTERVAL:g} s",
            "execution.checkpointing.timeout": f"{TIMEOUT:g} s",
            "execution.checkpointing.dir": str(directory / "checkpoints"),
            "execution.checkpointing.data-inline-threshold": "1 bytes",
            "execution.checkpointing.tolerable-failed-checkpoints": "1000",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "20",
            "restart-strategy.fixed-delay.delay": "1 s",
            **settings,
        }
        parameters = StorageParameters(JOB, Settings(self.settings))
        self.open_storage = open_storage or (lambda: load_checkpoint_storage(parameters))
        self.slot_storage = self.open_storage()
        self.store = store or checkpoint_store(directory / "store")
        self.vertices = vertices(parallelism)
        self.graph = graph_of(self.vertices)
        self.splits = [[(n % KEYS, n) for n in range(start, 60, 2)] for start in (0, 1)]
        self.expected = Counter((key, number + 1) for key in range(KEYS) for number in range(60 // KEYS))
        SHELVES["faults"] = self.shelf = shelf or Shelf()
        self.stalled = False
        self.held: tuple[type[Any], ...] = ()
        self.attempt: Attempt | None = None
        self.attempts = self.jobmasters = 0
        self.completed: list[int] = []
        self.begun: list[Attempt] = []
        OPEN.append(self)
        self._take_over(recovers=False)

    def _take_over(self, *, recovers: bool) -> None:
        self.clock = ManualClock()
        settings = JobMasterSettings.read(Settings(), self.settings)
        self.core = JobMasterCore(self.graph, settings, self.clock, may_recover=recovers)
        self.core.validates = True
        self.worker = CheckpointWorker(JOB, self.open_storage, self.store, settings.savepoints)
        self.timers: dict[str, float] = {}
        self.work: list[Work] = []
        self.later: list[Callable[[], None]] = []
        self.restores: dict[tuple[str, int], TaskRestore | None] = {}
        self.jobmasters += 1
        self.do(self.core.start())
        count = self.core.graph.slots_needed
        offers = tuple(m.SlotOffer(i, f"alloc-{i}-{self.jobmasters}", {"unix": f"/{i}"}, 100 + i) for i in range(count))
        self.do(self.core.resourcemanager_connected())
        self.do(self.core.offer_slots(m.OfferSlots("tm", "http://tm", offers))[1])

    # -- what the core says

    def do(self, instructions: Sequence[do.Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case do.CheckpointWork(work):
                    self.work.append(work)
                case do.SetTimer(name, seconds):
                    self.timers[name] = self.clock.monotonic() + seconds
                case do.ClearTimer(name):
                    self.timers.pop(name, None)
                case do.SubmitSlot(_, _, deployment):
                    for task in deployment.tasks:
                        key = self.key_of(task.execution_id)
                        self.restores[key] = None if task.restore is None else TaskRestore.from_plain(task.restore)
                    if len(self.restores) == len(self.core.graph.executions()):
                        restores, self.restores = self.restores, {}
                        self.later.append(lambda restores=restores: self._begin(restores))  # type: ignore[misc]
                case do.CancelSlotTasks(_, _, ids):
                    self.later.append(lambda ids=ids: self._cancel(ids))  # type: ignore[misc]
                case do.SendTriggerCheckpoint(_, _, ids, number, timestamp, options):
                    for key in self._present(ids):
                        assert self.attempt is not None
                        self.attempt.tasks[key].trigger_checkpoint(Barrier(number, timestamp, options))
                case do.NotifyCheckpointComplete(_, _, ids, number):
                    if number not in self.completed:
                        self.completed.append(number)
                    for key in self._present(ids):
                        assert self.attempt is not None
                        self.attempt.tasks[key].checkpoint_complete(number)
                case do.NotifyCheckpointAborted(_, _, ids, number):
                    for key in self._present(ids):
                        assert self.attempt is not None
                        self.attempt.tasks[key].checkpoint_aborted(number)

    def key_of(self, execution_id: str) -> tuple[str, int]:
        execution = self.core.graph.execution(execution_id)
        assert execution is not None
        return execution.vertex.name, execution.subtask

    def execution(self, key: tuple[str, int]) -> Execution:
        return next(e for e in self.core.graph.executions() if (e.vertex.name, e.subtask) == key)

    def _present(self, ids: Sequence[str]) -> list[tuple[str, int]]:
        current = {e.id for e in self.core.graph.executions()}
        return [self.key_of(id_) for id_ in ids if id_ in current and self.attempt is not None]

    def _begin(self, restores: dict[tuple[str, int], TaskRestore | None]) -> None:
        if self.attempt is not None:
            self.attempt.crash()
        self.attempts += 1
        self.attempt = Attempt(self, restores, self.seed + self.attempts)

    def _cancel(self, ids: Sequence[str]) -> None:
        for id_ in ids:
            self.report(id_, ExecutionState.CANCELED)

    # -- what the tasks say

    def report(self, execution_id: str, state: ExecutionState, failure: TaskFailure | None = None) -> None:
        update = m.TaskStateUpdate(execution_id, state.value, 0, failure.to_plain() if failure else None)
        self.do(self.core.update_task_states(m.UpdateTaskStates("tm", (update,))))

    def acknowledged(self, attempt: Attempt, key: tuple[str, int], number: int, state: TaskState) -> None:
        if attempt is self.attempt:
            text = state.to_bytes().decode()
            message = m.AcknowledgeCheckpoint(self.execution(key).id, number, {}, text)
            self.later.append(lambda: self.do(self.core.acknowledge_checkpoint(message)))

    def declined(
        self, attempt: Attempt, key: tuple[str, int], number: int, reason: DeclineReason, failure: TaskFailure | None
    ) -> None:
        if attempt is self.attempt:
            plain = failure.to_plain() if failure else None
            message = m.DeclineCheckpoint(self.execution(key).id, number, reason.value, plain)
            self.later.append(lambda: self.do(self.core.decline_checkpoint(message)))

    def end_of_data(self, attempt: Attempt, key: tuple[str, int]) -> None:
        if attempt is self.attempt:
            self.do(self.core.end_of_data(m.ExecutionRef(self.execution(key).id)))

    def _tell_states(self) -> None:
        attempt = self.attempt
        if attempt is None:
            return
        for key, state in list(attempt.states.items()):
            if attempt.told.get(key) is not state and attempt is self.attempt:
                attempt.told[key] = state
                failure = attempt.failures[-1] if state is ExecutionState.FAILED and attempt.failures else None
                self.report(self.execution(key).id, state, failure)

    # -- what tests do

    @property
    def state(self) -> str:
        return self.core.state.name

    @property
    def ended(self) -> bool:
        return self.core.state.is_terminal_state()

    def round(self) -> None:
        """A little of everything."""
        if self.attempt is not None:
            self.attempt.round()
        self._tell_states()
        later, self.later = self.later, []
        for action in later:
            action()
        while self.work and not self.stalled and not isinstance(self.work[0], self.held):
            self.do(self.core.checkpoint_work_done(self.worker.do(self.work.pop(0))))
        self.advance(STEP)

    def advance(self, seconds: float) -> None:
        """Time passes, and timers fire."""
        end = self.clock.monotonic() + seconds
        while due := [(at, name) for name, at in self.timers.items() if at <= end]:
            at, name = min(due)
            self.clock.advance(max(0.0, at - self.clock.monotonic()))
            del self.timers[name]
            self.do(self.core.timer_fired(name))
        self.clock.advance(end - self.clock.monotonic())

    def until(self, holds: Callable[[], bool], what: str, rounds: int = 800) -> None:
        for _ in range(rounds):
            if holds():
                return
            self.round()
        raise AssertionError(f"not within {rounds} rounds: {what} ({self.state}; {self.message()})")

    def to_end(self) -> None:
        """All records are on the shelf, each once."""
        self.until(lambda: self.ended, "the end")
        assert self.state == "FINISHED", self.message()
        assert Counter(self.shelf.visible) == self.expected
        self.rest()

    def rest(self) -> None:
        """Nothing is under way any more."""
        self.until(lambda: not self.work, "all work is done")
        if self.attempt is not None:
            self.attempt.crash()
            self.attempt = None

    def message(self) -> str:
        failure = job_archive(self.core).get("failure")
        return str(failure["message"]) if failure else ""

    def has_completed(self, count: int) -> Callable[[], bool]:
        """So many more checkpoints."""
        target = len(self.completed) + count
        return lambda: len(self.completed) >= target

    def kill_tasks(self) -> None:
        if self.attempt is None or self.ended:
            return
        self.attempt.crash()
        self.attempt = None
        for execution in self.core.graph.executions():
            if not execution.state.is_terminal:
                lost = TaskFailure("external", "firesteel.core.errors.TaskManagerLostError", "killed by a test", "")
                self.report(execution.id, ExecutionState.FAILED, lost)

    def kill_jobmaster(self) -> None:
        """It dies, and the slots with it; another one takes over."""
        if self.attempt is not None:
            self.attempt.crash()
            self.attempt = None
        self._take_over(recovers=True)

    def close(self) -> None:
        for attempt in self.begun:
            attempt.loop.close()

    def left(self) -> list[str]:
        """All files of checkpoints."""
        root = self.directory / "checkpoints"
        return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
