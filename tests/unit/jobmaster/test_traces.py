"""Traces of a job, from the states of its graph: starts, recoveries, checkpoints."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from firesteel.common.job_status import JobStatus
from firesteel.graph.execution_graph import ExecutionGraph, FailureRecord
from firesteel.graph.execution_states import ExecutionState
from firesteel.traces.context import TraceContext
from firesteel.traces.tracing import Span
from firesteel_jobmaster.checkpoints.statistics import METRICS, CheckpointStatistics
from firesteel_jobmaster.traces import JobTraces
from tests.unit.jobmaster.jobs import two_by_two
from tests.unit.runtime.support import ManualClock


class World:
    """A graph whose attempts go where the test says, and what is exported."""

    def __init__(self, start: TraceContext | None = None) -> None:
        self.clock = ManualClock()
        self.graph = ExecutionGraph(two_by_two(), self.clock)
        self.spans: list[Span] = []
        self.statistics = CheckpointStatistics(10)
        self.traces = JobTraces(self._take, self.graph, start, lambda: self.statistics.last_restored, [{"name": "o"}])
        self.statistics.on_end = self.traces.checkpoint_ended
        self.graph.move_job(JobStatus.CREATED, "test")
        self.graph.move_job(JobStatus.RUNNING, "test")

    def _take(self, spans: Iterable[Span]) -> None:
        self.spans += spans

    @property
    def now(self) -> int:
        return self.clock.epoch_ms()

    def later(self, milliseconds: int) -> None:
        self.clock.now += milliseconds / 1000

    def run(self, *states: ExecutionState) -> None:
        """All attempts go through these states, 10 ms apart."""
        for state in states:
            self.later(10)
            for execution in self.graph.executions():
                if not execution.state.is_terminal:
                    execution.machine.move(state, "test")
            self.traces.look()

    def start(self) -> None:
        self.run(
            ExecutionState.SCHEDULED, ExecutionState.DEPLOYING, ExecutionState.INITIALIZING, ExecutionState.RUNNING
        )

    def fail(self) -> None:
        """One attempt fails, and all others are cancelled."""
        self.later(1000)
        failed = {"error_class": "builtins.ValueError", "message": "no"}
        first, *others = self.graph.executions()
        first.machine.move(ExecutionState.FAILED, "no")
        self.graph.record_failure(FailureRecord(failed, self.now, "Map (1/2)#0"), 0)
        for execution in others:
            execution.machine.move(ExecutionState.CANCELING, "test")
        self.traces.look()
        self.later(5)
        for execution in others:
            execution.machine.move(ExecutionState.CANCELED, "test")
        self.traces.look()

    def restart(self) -> None:
        self.later(100)
        for region in range(len(self.graph.regions)):
            self.graph.restart(self.graph.regions[region])

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]


def test_the_start_is_below_the_submission() -> None:
    submission = TraceContext.new()
    world = World(submission)
    begun = world.now
    root = world.traces.root
    assert world.traces.for_slots() == {"traceparent": root.header, "reporters": [{"name": "o"}]}
    world.start()
    (start,) = world.named("JobInitialization")
    assert (start.parent, start.context, start.begin_ms, start.end_ms) == (submission, root, begun, begun + 40)
    assert start.context.trace_id == submission.trace_id
    assert start.links == []
    executions = world.graph.executions()
    attempts = world.named("Attempt")
    assert [span.context for span in attempts] == [root.below(execution.id) for execution in executions]
    assert all(span.parent == root for span in attempts)
    assert {(span.begin_ms - begun, span.end_ms - begun) for span in attempts} == {(10, 40)}
    assert {(s.begin_ms - begun, s.end_ms - begun) for s in world.named("Deploy")} == {(20, 30)}
    assert {(s.begin_ms - begun, s.end_ms - begun) for s in world.named("Initialize")} == {(30, 40)}
    (slots,), (deployment,) = world.named("Slots"), world.named("Deployment")
    assert [(s.begin_ms - begun, s.end_ms - begun) for s in (slots, deployment)] == [(0, 10), (10, 30)]
    world.spans.clear()
    world.traces.look()
    assert world.spans == [], "each thing once"


def test_a_recovery_is_a_trace_of_its_own_linked_to_what_was_before() -> None:
    world = World()
    world.start()
    before = world.traces.root
    world.statistics.begin(7, world.now, world.graph.executions())
    world.later(50)
    world.statistics.complete(7, world.now, "file:/c/chk-7")
    (checkpoint,) = world.named("Checkpoint")
    assert checkpoint.links == [before]
    world.spans.clear()
    world.fail()
    root, failed = world.traces.root, world.now - 5
    assert root.trace_id != before.trace_id
    assert world.spans == [], "it is not over yet"
    world.restart()
    world.statistics.restored(7, world.now, "file:/c/chk-7")
    world.start()
    (recovery,) = world.named("Recovery")
    assert (recovery.context, recovery.parent, recovery.links) == (root, None, [before, checkpoint.context])
    assert (recovery.begin_ms, recovery.end_ms, recovery.error) == (failed, failed + 145, "")
    assert recovery.attributes["failure.message"] == "no"
    assert recovery.attributes["checkpoint.id"] == 7
    assert recovery.events == {"first task is RUNNING": failed + 145}
    times = {span.name: (span.begin_ms - failed, span.end_ms - failed) for span in world.spans if span.parent == root}
    assert times == {
        "Cancelling": (0, 5), "RestartDelay": (5, 105), "Slots": (105, 115), "Deployment": (115, 135),
        "Attempt": (115, 145),
    }  # fmt: skip
    assert {span.attributes["attempt"] for span in world.named("Attempt")} == {1}
    assert world.named("Restore")


def test_a_start_that_fails_says_why() -> None:
    world = World()
    world.run(ExecutionState.SCHEDULED, ExecutionState.DEPLOYING)
    world.fail()
    (start,) = world.named("JobInitialization")
    assert start.error == "builtins.ValueError: no"
    world.graph.move_job(JobStatus.FAILING, "no")
    world.graph.move_job(JobStatus.FAILED, "no")
    world.traces.look()
    (recovery,) = world.named("Recovery")
    assert (recovery.error, recovery.links) == ("builtins.ValueError: no", [start.context])


def test_a_job_that_is_quickly_done_has_its_start_all_the_same() -> None:
    world = World()
    world.run(ExecutionState.SCHEDULED, ExecutionState.DEPLOYING, ExecutionState.INITIALIZING)
    for execution in world.graph.executions():  # one after the other: never all at once
        execution.machine.move(ExecutionState.RUNNING, "test")
        execution.machine.move(ExecutionState.FINISHED, "test")
    world.graph.move_job(JobStatus.FINISHED, "test")
    world.traces.look()
    (start,) = world.named("JobInitialization")
    assert start.error == ""
    assert start.attributes["job.state"] == "FINISHED"


def test_a_checkpoint_shows_the_phases_of_each_subtask() -> None:
    world = World()
    world.start()
    began, execution = world.now, world.graph.executions()[0]
    world.statistics.begin(3, began, [execution])
    world.later(100)
    metrics = {**dict.fromkeys(METRICS, 0), "start_delay_ms": 10, "alignment_ms": 20, "sync_ms": 5, "async_ms": 40}
    world.statistics.acknowledge(3, execution, world.now, {**metrics, "state_size": 77})
    world.later(30)
    world.spans.clear()
    world.statistics.complete(3, world.now, "file:/c/chk-3")
    times = {span.name: (span.begin_ms - began, span.end_ms - began) for span in world.spans}
    assert times == {
        "Checkpoint": (0, 130), "Trigger": (0, 10), "Subtask": (0, 100), "StartDelay": (0, 10),
        "Completion": (100, 130), "Commit": (130, 130),
    }  # fmt: skip
    (subtask,) = world.named("Subtask")
    assert subtask.parent == TraceContext.of_checkpoint(world.graph.job_graph.job_id, 3)
    assert subtask.context == subtask.parent.below(execution.id), "where its slot finds it"
    assert subtask.attributes["checkpoint.state_size"] == 77
    assert (subtask.attributes["vertex.id"], subtask.attributes["attempt"]) == (execution.vertex.id, 0)


@pytest.mark.parametrize("number", [4, None])
def test_a_checkpoint_that_fails_says_why(number: int | None) -> None:
    world = World()
    world.start()
    if number is not None:
        world.statistics.begin(number, world.now, world.graph.executions())
    world.spans.clear()
    world.statistics.fail(number, world.now + 10, "it took too long")
    (checkpoint,) = world.spans
    assert checkpoint.error == "it took too long"
    assert checkpoint.attributes.get("checkpoint.id") == number


def test_what_goes_wrong_here_is_no_matter_of_the_job(caplog: pytest.LogCaptureFixture) -> None:
    world = World()

    def breaks(_: Iterable[Span]) -> None:
        raise RuntimeError("no room")

    world.traces._export = breaks
    world.start()
    world.statistics.fail(None, world.now, "it took too long")
    assert [record.levelname for record in caplog.records if "a trace of job" in record.getMessage()] == ["ERROR"] * 2
