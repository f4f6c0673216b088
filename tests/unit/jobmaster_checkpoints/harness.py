"""A coordinator with a job whose tasks run, and a storage that does what the test says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from firesteel.checkpoint.handles import FileState, checksum
from firesteel.checkpoint.metadata import EnumeratorState
from firesteel.checkpoint.subtask_state import KeyedState, OperatorListState, OperatorSubtaskState, TaskState
from firesteel.core.ids import AllocationId, VertexId
from firesteel.graph.execution_graph import Execution, ExecutionGraph, LogicalSlot
from firesteel.graph.execution_states import ExecutionState
from firesteel.graph.job_archive import at_once
from firesteel.graph.job_graph import JobGraph
from firesteel.testing.clock import ManualClock
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.checkpoint_work import Close, Complete, Discard, Dispose, Prepare, Undo, Work, WorkResult
from firesteel_jobmaster.checkpoints.completed import CompletedCheckpoints
from firesteel_jobmaster.checkpoints.coordinator import CheckpointCoordinator
from firesteel_jobmaster.checkpoints.settings import CheckpointSettings
from tests.unit.jobmaster import jobs


class Storage:
    """Files, metadata and the store, in a test's hands."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.metadata: dict[int, set[str]] = {}
        self.store: list[int] = []
        self.last_id = 0
        self.entered: set[int] = set()
        """Checkpoints that went into the store, and were not taken back: none may come behind a newer one."""
        self.closed = False
        self.savepoints: set[str] = set()

    def do(
        self,
        work: Work,
        error: str | None = None,
        stored: bool = False,
        fenced: bool = False,
        hung: bool = False,
        removed: bool = False,
    ) -> WorkResult:
        """Do a piece of work; with an error nothing is done, or, if ``stored`` or ``removed``, all but the answer."""
        failed = WorkResult(work, None, stored, fenced=fenced, hung=hung, removed=removed, location=_location(work))
        failed = replace(failed, error=error)
        if error is not None and not stored and not removed:
            return failed
        match work:
            case Prepare(_, above, savepoint):
                self.last_id = max(self.last_id, above) + 1
                location = "" if savepoint is None else f"{savepoint}/savepoint-{self.last_id}"
                return WorkResult(work, checkpoint_id=self.last_id, location=location)
            case Complete(metadata, savepoint, in_store):
                if not in_store:
                    self.savepoints.add(savepoint)
                    return WorkResult(work, location=savepoint)
                missing = metadata.files() - self.files
                assert not missing, f"files of checkpoint {metadata.checkpoint_id} were removed before: {missing}"
                assert metadata.checkpoint_id not in self.metadata, "a second checkpoint of one id"
                newest = max(self.entered, default=0)
                assert metadata.checkpoint_id > newest, f"{metadata.checkpoint_id} comes behind {newest}"
                self.entered.add(metadata.checkpoint_id)
                self.metadata[metadata.checkpoint_id] = set(metadata.files())
                self.store.append(metadata.checkpoint_id)
                return failed if error is not None else WorkResult(work, stored=True, location=_location(work))
            case Undo(checkpoint_id, _, files) | Discard(checkpoint_id, files):
                assert not work.savepoint or work.savepoint not in self.savepoints, "a savepoint was removed"
                self._forget(checkpoint_id, isinstance(work, Undo))
                if isinstance(work, Undo):  # nobody has heard of it, so an older one may still complete
                    self.entered.discard(checkpoint_id)
                own = {f for f in self.files if f.startswith(f"chk-{checkpoint_id}/")}
                self._remove((files | own) - work.keep)
                if removed:
                    return failed
            case Dispose(checkpoint_id, _, files_of_it, keep):
                self._forget(checkpoint_id, True)
                self._remove((files_of_it or frozenset()) - keep)
            case Close(drop, _):
                for instruction in drop:
                    self.do(instruction)
                self.closed = True
        return WorkResult(work)

    def _forget(self, checkpoint_id: int, may_be_there: bool) -> None:
        assert may_be_there or checkpoint_id not in self.store, f"checkpoint {checkpoint_id} is discarded but complete"
        if checkpoint_id in self.store:
            self.store.remove(checkpoint_id)
        self.metadata.pop(checkpoint_id, None)

    def _remove(self, files: Any) -> None:
        self.files -= files
        for checkpoint_id in self.store:
            lost = self.metadata[checkpoint_id] - self.files
            assert not lost, f"files of completed checkpoint {checkpoint_id} were removed: {lost}"


def _location(work: Work) -> str:
    return f"chk-{work.metadata.checkpoint_id}/_metadata" if isinstance(work, Complete) else ""


class FakeJob:
    """The job of a coordinator.

    Attributes:
        work: that has not been done.
        done: work that has.
        out: other instructions, since the test last looked.
        timers: name -> monotonic second.
        failed: with what the coordinator has failed the job.
        settled: how often it became settled.
        decided: how often the job heard that its end need not wait for a checkpoint any more.
        ended_at: when the last checkpoint ended.
        snapshots: how often enumerators were asked for their state.
    """

    def __init__(self, graph: JobGraph | None = None, storage: Storage | None = None, **settings: Any) -> None:
        self.clock = ManualClock()
        self.graph = ExecutionGraph(graph or jobs.two_by_two(), self.clock)
        self.storage = storage or Storage()
        self.work: list[Work] = []
        self.done: list[Work] = []
        self.out: list[do.Instruction] = []
        self.timers: dict[str, float] = {}
        self.failed: list[str] = []
        self.unrestorable: list[Exception] = []
        self.fenced: list[str] = []
        self.cancelled: list[str] = []
        self.settled = self.decided = 0
        self.ended_at = float("-inf")
        self.snapshots = 0
        self.enumerators: dict[str, Any] = {}
        self.safe: list[tuple[str, dict[int, int]]] = []
        self.settings = CheckpointSettings(**{"interval": 10.0, **settings})
        self.completed = CompletedCheckpoints(
            self.graph.job_graph, self.settings, lambda work: self.emit(do.CheckpointWork(work))
        )
        self.coordinator = CheckpointCoordinator(self, self.settings, self.clock, self.completed)
        self.graph.place(slots(self.graph.slots_needed))

    # -- what the coordinator sees

    def emit(self, instruction: do.Instruction) -> None:
        match instruction:
            case do.CheckpointWork(work):
                self.work.append(work)
            case do.SetTimer(name, seconds):
                self.timers[name] = self.clock.monotonic() + seconds
            case do.ClearTimer(name):
                if self.timers.pop(name, None) is not None and ":" in name:
                    self.ended_at = self.clock.monotonic()
            case _:
                self.out.append(instruction)

    def enumerator_state(self, vertex_id: str, serials: Mapping[int, int], number: int) -> EnumeratorState:
        self.snapshots += 1
        enumerator = self.enumerators.get(vertex_id)
        if isinstance(enumerator, Exception):
            raise enumerator
        plain: dict[str, Any] = {"serials": {str(k): v for k, v in serials.items()}}
        return EnumeratorState("static", {**plain, "number": number} if number else plain)

    def splits_are_safe(self, vertex_id: str, serials: Mapping[int, int]) -> None:
        self.safe.append((vertex_id, dict(serials)))

    def checkpoints_fail(self, message: str) -> None:
        self.failed.append(message)
        self.coordinator.tasks_failed(message)

    def checkpoints_settled(self) -> None:
        self.settled += 1

    def checkpoint_decided(self) -> None:
        self.decided += 1

    def cancel_job(self, cause: str) -> None:
        self.cancelled.append(cause)

    def restore_failed(self, error: Exception) -> None:
        self.unrestorable.append(error)

    def leadership_lost(self, message: str) -> None:
        self.fenced.append(message)
        self.coordinator.close("SUSPENDED")

    # -- what tests do

    @property
    def executions(self) -> list[Execution]:
        return self.graph.executions()

    def execution(self, vertex: int, subtask: int) -> Execution:
        return self.graph.vertices[VertexId(jobs.vertex_id(vertex))].executions()[subtask]

    def run(self) -> FakeJob:
        for execution in self.executions:
            self.move(execution, ExecutionState.RUNNING)
        return self

    def move(self, execution: Execution, state: ExecutionState) -> None:
        for step in (ExecutionState.SCHEDULED, ExecutionState.DEPLOYING, ExecutionState.INITIALIZING):
            if execution.machine.can(step):
                execution.machine.move(step, "test")
        if execution.state is not state:
            execution.machine.move(state, "test")
        if state in (ExecutionState.RUNNING, ExecutionState.FINISHED):
            self.coordinator.tasks_changed(execution)

    def advance(self, seconds: float) -> None:
        """Time passes; timers fire in their order."""
        end = self.clock.monotonic() + seconds
        while due := [(at, name) for name, at in self.timers.items() if at <= end]:
            at, name = min(due)
            self.clock.advance(max(0.0, at - self.clock.monotonic()))
            del self.timers[name]
            self.coordinator.timer_fired(name)
        self.clock.advance(end - self.clock.monotonic())

    def do_work(self, **how: Any) -> WorkResult:
        """Do the oldest piece of work."""
        self.done.append(self.work.pop(0))
        done = self.storage.do(self.done[-1], **how)
        self.coordinator.work_done(done)
        return done

    def do_all(self) -> None:
        """Do all of it."""
        while self.work:
            self.do_work()

    def write(self, execution: Execution, checkpoint_id: int, **more: Any) -> TaskState:
        """A task writes a file."""
        path = f"chk-{checkpoint_id}/{execution.id}"
        self.storage.files.add(path)
        handle = FileState(path, 3, checksum(b"abc"))
        operator = more.pop("operator", None)
        state = OperatorSubtaskState({"state": KeyedState(({"name": "s"},), (0, 127), (handle,))}, operator)
        return TaskState({execution.vertex.operators[0].id: state}, **more)

    def acknowledge(self, execution: Execution, checkpoint_id: int, **more: Any) -> None:
        """A task has written its state."""
        state = self.write(execution, checkpoint_id, **more)
        self.coordinator.acknowledge(execution, checkpoint_id, {"state_size": 3}, state.to_bytes().decode())

    def acknowledge_all(self, checkpoint_id: int, **more: Any) -> None:
        """All that run have."""
        for execution in self.executions:
            if execution.state is ExecutionState.RUNNING:
                self.acknowledge(execution, checkpoint_id, **more)

    def begin(self) -> int:
        """A checkpoint is triggered at its time; returns its id."""
        self.advance(self.settings.interval)
        self.do_work()
        return self.storage.last_id

    def take(self) -> int:
        """A checkpoint from its beginning to its end."""
        checkpoint_id = self.begin()
        self.acknowledge_all(checkpoint_id)
        self.do_all()
        return checkpoint_id

    def instructions_of(self, kind: type[Any]) -> list[Any]:
        """Instructions of a kind, which are removed from what came out."""
        instructions = [i for i in self.out if isinstance(i, kind)]
        self.out = [i for i in self.out if not isinstance(i, kind)]
        return instructions

    def fail(self, cause: str = "a task failed") -> None:
        self.coordinator.tasks_failed(cause)
        for execution in self.executions:
            if not execution.state.is_terminal:
                execution.machine.move(ExecutionState.FAILED, cause)

    def restart(self) -> None:
        """All tasks fail, and run again as new attempts."""
        self.fail()
        self.again()

    def again(self) -> None:
        """All tasks run as new attempts."""
        for vertex in self.graph.vertices.values():
            for subtask in vertex.subtasks:
                slot = subtask.current.slot
                subtask.restart().slot = slot
        self.run()

    def counts(self) -> dict[str, int]:
        counts: dict[str, int] = at_once(self.coordinator.statistics.in_slices())["counts"]
        return counts


def slots(count: int) -> list[LogicalSlot]:
    """As many, each at a TaskManager of its own."""
    return [
        LogicalSlot(AllocationId(f"alloc-{i}"), f"tm-{i}", f"http://tm-{i}", 0, {"unix": f"/{i}"}, 100 + i)
        for i in range(count)
    ]


def union_state() -> OperatorListState:
    """A list that all subtasks see whole."""
    return OperatorListState(({"name": "u", "kind": "union"},))
