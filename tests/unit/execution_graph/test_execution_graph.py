from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel.common.job_status import JobStatus
from firesteel.core.ids import AllocationId
from firesteel.graph.execution_graph import ExecutionGraph, FailureRecord, LogicalSlot
from firesteel.graph.execution_states import ExecutionState
from firesteel.graph.job_archive import TASKMANAGERS, WORST, archive_of
from firesteel.graph.job_graph import JobGraph
from firesteel.protocol.deployment import Deployment, Placement, TaskFailure
from firesteel.rest.views import job_exceptions
from firesteel.testing.clock import ManualClock
from firesteel_jobmaster.deployments import deployment_of, placement_of
from tests.archives import with_rows
from tests.unit.jobmaster.jobs import job, vertex, vertex_id

E = ExecutionState


def slots(count: int, tm: str = "tm") -> list[LogicalSlot]:
    return [
        LogicalSlot(AllocationId(f"{tm}-{i}"), tm, f"http://{tm}:80", i, {"unix": f"/run/{i}"}, i) for i in range(count)
    ]


def placed(graph: JobGraph, clock: ManualClock | None = None) -> ExecutionGraph:
    result = ExecutionGraph(graph, clock or ManualClock(), salt="s")
    result.place(slots(result.slots_needed))
    return result


@given(st.lists(st.tuples(st.integers(1, 5), st.sampled_from("abc")), min_size=1, max_size=6))
def test_slot_sharing(shape: list[tuple[int, str]]) -> None:
    graph = job(*(vertex(i, p, group=g) for i, (p, g) in enumerate(shape)))
    execution_graph = placed(graph)
    assert execution_graph.slots_needed == graph.slots_needed()
    for slot in execution_graph.placed_slots():
        inside = execution_graph.executions_in(slot.allocation_id)
        assert len({e.vertex.slot_sharing_group for e in inside}) == 1
        assert len({e.subtask for e in inside}) == 1, "the i-th subtasks share a slot"
        assert len({e.vertex.id for e in inside}) == len(inside), "at most one of each vertex"
    everything = [e for s in execution_graph.placed_slots() for e in execution_graph.executions_in(s.allocation_id)]
    assert sorted(e.id for e in everything) == sorted(e.id for e in execution_graph.executions())


def test_placement_gives_free_slots_to_what_has_none() -> None:
    graph = ExecutionGraph(job(vertex(1, 2)), ManualClock())
    graph.place(slots(1))
    assert [e.slot.allocation_id if e.slot else None for e in graph.executions()] == ["tm-0", None]
    graph.place(slots(2))
    graph.place(slots(2))
    assert [e.slot.allocation_id if e.slot else None for e in graph.executions()] == ["tm-0", "tm-1"]
    graph.unplace("tm-0")
    assert graph.executions_in("tm-0") == []
    graph.place(slots(3)[1:])
    assert [e.slot.allocation_id if e.slot else None for e in graph.executions()] == ["tm-2", "tm-1"]


def test_a_placement_has_only_the_subtasks_of_its_regions() -> None:
    graph = placed(job(vertex(1, 3), vertex(2, 3), partitioner="FORWARD"))
    assert len(graph.regions) == 3
    placement = placement_of(graph, [1])
    assert placement.slots == {vertex_id(1): {1: "tm-1"}, vertex_id(2): {1: "tm-1"}}
    assert Placement.unpack(placement.packed) == placement
    with pytest.raises(ValueError, match="malformed placement"):
        Placement.unpack("bm8gcGxhY2VtZW50")


def test_counts_follow_every_attempt() -> None:
    graph = placed(job(vertex(1, 2), vertex(2, 2), partitioner="FORWARD"))
    first, *others = graph.in_regions([0])
    for execution in (first, *others):
        execution.machine.move(ExecutionState.SCHEDULED, "test")
        execution.machine.move(ExecutionState.DEPLOYING, "test")
        execution.report(ExecutionState.RUNNING, "test")
    assert not graph.all_run()
    first.end_of_data = True
    assert graph.tally.ended == {first.vertex.id: 1}
    for execution in (first, *others):
        execution.report(ExecutionState.FINISHED, "test")
    assert graph.has_ended(0)
    assert not graph.has_ended(1)
    assert graph.tally.outputs_ended == graph.tally.finished == len(others) + 1
    graph.restart(graph.regions[0])
    assert graph.is_ready(0)
    assert not graph.has_ended(0)
    assert graph.tally.outputs_ended == graph.tally.finished == 0
    assert graph.tally.states[ExecutionState.CREATED] == graph.tally.total == 4
    graph.unplace("tm-0")
    assert not graph.is_ready(0)


def test_deployment_of_a_slot() -> None:
    graph = placed(job(vertex(1, 2, splits=["a"]), vertex(2, 2), vertex(3, 1, group="other", commits=True)))
    first, _second, third = (
        deployment_of(graph, s.allocation_id, graph.executions_in(s.allocation_id), placement_of(graph, [0]), {})
        for s in graph.placed_slots()
    )
    assert [(t.vertex_name, t.subtask, t.is_source, t.needs_commit) for t in first.tasks] == [
        ("V1", 0, True, False),
        ("V2", 0, False, False),
    ]
    assert [e.index for e in first.edges] == [0, 1]
    assert first.placement.slots == {
        vertex_id(1): {0: "tm-0", 1: "tm-1"},
        vertex_id(2): {0: "tm-0", 1: "tm-1"},
        vertex_id(3): {0: "tm-2"},
    }
    assert set(first.placement.peers) == {"tm-0", "tm-1", "tm-2"}
    assert first.placement.peers["tm-1"] == {"unix": "/run/1"}
    assert [e.index for e in third.edges] == [1]
    assert Deployment.from_plain(json.loads(json.dumps(first.to_plain()))) == first
    assert first.salt == "s"


def test_secrets_differ_between_jobs() -> None:
    graph = job(vertex(1, 1))
    assert ExecutionGraph(graph, ManualClock()).salt != ExecutionGraph(graph, ManualClock()).salt


def test_archive_in_flinks_terms() -> None:
    clock = ManualClock(epoch_ms=1000)
    graph = placed(job(vertex(1, 2), config={"pipeline.max-parallelism": "256"}), clock)
    first, second = graph.executions()
    clock.advance(1)
    for execution in (first, second):
        execution.machine.move(E.SCHEDULED, "test")
        execution.machine.move(E.DEPLOYING, "test")
    clock.advance(1)
    first.report(E.RUNNING, "test")
    first.update_metrics({"numRecordsIn": 7, "busyTimeMs": 12.5})
    clock.advance(3)
    archive = json.loads(json.dumps(with_rows(archive_of(graph))))
    assert archive["maxParallelism"] == 256
    assert archive["timestamps"]["INITIALIZING"] == 1000
    assert archive["timestamps"]["FAILED"] == 0
    assert (archive["start-time"], archive["end-time"], archive["duration"]) == (1000, -1, 5000)
    (v,) = archive["vertices"]
    assert (v["status"], v["start-time"], v["end-time"], v["duration"]) == ("RUNNING", 2000, -1, 4000)
    assert (v["tasks"]["RUNNING"], v["tasks"]["DEPLOYING"], v["tasks"]["FAILED"]) == (1, 1, 0)
    assert v["metrics"]["read-records"] == 7
    assert v["metrics"]["read-records-complete"] is False
    assert v["metrics"]["accumulated-busy-time"] == 12.5
    first_row, second_row = v["subtasks"]
    assert first_row["endpoint"] == "tm:80"
    assert first_row["status-duration"] == {
        "CREATED": 1000,
        "SCHEDULED": 0,
        "DEPLOYING": 1000,
        "INITIALIZING": 0,
        "RUNNING": 3000,
    }
    assert second_row["status-duration"]["RUNNING"] == -1
    assert archive["status-counts"]["RUNNING"] == 1
    assert archive[TASKMANAGERS] == {"tm": 2}
    first.report(E.FINISHED, "test")
    assert archive_of(graph)[TASKMANAGERS] == {"tm": 1}, "what has ended is not there any more"
    assert [n["id"] for n in archive["plan"]["nodes"]] == [v["id"]]
    assert archive["failure"] is None


def test_archive_of_an_unplaced_job() -> None:
    archive = with_rows(archive_of(ExecutionGraph(job(vertex(1, 1)), ManualClock())))
    (subtask,) = archive["vertices"][0]["subtasks"]
    assert (subtask["endpoint"], subtask["start-time"], subtask["duration"]) == ("(unassigned)", -1, -1)
    assert archive["net-runtime"] == 0


def test_the_net_runtime_counts_restarts() -> None:
    clock = ManualClock(epoch_ms=1000)
    graph = ExecutionGraph(job(vertex(1, 1)), clock)
    for state in (JobStatus.CREATED, JobStatus.RUNNING, JobStatus.RESTARTING, JobStatus.RUNNING):
        graph.move_job(state, "test")
        clock.advance(2)
    assert archive_of(graph)["net-runtime"] == 8000


def test_a_job_that_a_jobmaster_before_had_begun_runs_since_its_submission() -> None:
    graph = ExecutionGraph(job(vertex(1, 1)), ManualClock(epoch_ms=60_000))
    graph.submitted(1000)
    graph.move_job(JobStatus.CREATED, "test")
    graph.move_job(JobStatus.RUNNING, "test")
    archive = archive_of(graph)
    assert (archive["start-time"], archive["net-runtime"]) == (1000, 59_000)
    graph.submitted(70_000)  # the clock of the Dispatcher's host is ahead
    assert archive_of(graph)["start-time"] == 1000


def test_the_failure_history_is_bounded_and_keeps_the_reason() -> None:
    graph = ExecutionGraph(job(vertex(1, 1)), ManualClock())
    for i in range(40):
        plain = TaskFailure("external", "E", f"number {i}", "").to_plain()
        entry = graph.record_failure(FailureRecord(plain, i), rank=3)
    assert entry.add(FailureRecord(plain | {"message": "the reason"}, 40), rank=1)
    assert not entry.add(FailureRecord(plain | {"message": "another"}, 41), rank=1)
    archive = with_rows(archive_of(graph))
    messages = [e["message"] for e in archive["exceptions"]]
    assert messages == ["number 0", *(f"number {i}" for i in range(25, 39)), "the reason"]
    assert [e["message"] for e in archive["exceptions"][-1]["concurrent"]] == ["number 39", "another"]
    assert archive["exceptions-dropped"]


def test_failures_with_the_same_cause_are_counted_beyond_the_history() -> None:
    graph = ExecutionGraph(job(vertex(1, 1)), ManualClock())
    for at in range(40):
        for message in (f"no price for {at}\nmore", "else"):
            plain = TaskFailure("user", "E", message, "").to_plain()
            graph.record_failure(FailureRecord(plain, 100 + at, "price (1/2)#0"), rank=3)
    shown = job_exceptions(with_rows(archive_of(graph)), 100)["exceptionHistory"]["entries"]
    assert len(shown) == 16
    repeats = {entry["firesteel-repeats"]["number"]: entry["firesteel-repeats"] for entry in shown}
    assert repeats == {n: {"number": n, "count": 40, "first_ms": 100, "last_ms": 139} for n in (0, 1)}


def test_the_archive_names_the_worst_subtasks_of_those_that_run() -> None:
    graph = placed(job(vertex(1, 3)))
    values: list[dict[str, float]] = [
        {"busyTimeMsPerSecond": 200, "numRecordsIn": 10, "currentInputWatermark": 90, "numRecordsInPerSecond": 1},
        {"busyTimeMsPerSecond": 900, "numRecordsIn": 30, "currentInputWatermark": 70, "numRecordsInPerSecond": 3},
        {"busyTimeMsPerSecond": 100, "numRecordsIn": 20, "backPressuredTimeMsPerSecond": 50},
    ]
    for value, (in_usage, sent) in zip(values, ((0.25, 0), (1, 0.5), (0, 0.75)), strict=True):
        value |= {"buffers.inPoolUsage": in_usage, "buffers.outPoolUsage": sent}
    assert archive_of(graph)["vertices"][0][WORST] == {}, "nothing runs yet"
    for execution, metrics in zip(graph.executions(), values, strict=True):
        for state in (E.SCHEDULED, E.DEPLOYING):
            execution.machine.move(state, "test")
        execution.report(E.RUNNING, "test")
        execution.update_metrics(metrics)
    worst = archive_of(graph)["vertices"][0][WORST]
    assert worst["busy"] == {"value": 900, "subtask": 1}
    assert worst["backPressured"] == {"value": 50, "subtask": 2}
    assert worst["watermark"] == {"value": 70, "subtask": 1}
    assert (worst["inPool"], worst["outPool"]) == ({"value": 1, "subtask": 1}, {"value": 0.75, "subtask": 2})
    assert (worst["numRecordsInPerSecond"], worst["busyTimeMsPerSecond"]) == (4, 400), "of all, and their average"
    assert worst["skew"] == pytest.approx(40.82, abs=0.01)
    for execution in graph.executions():
        execution.report(E.FINISHED, "test")
    assert archive_of(graph)["vertices"][0][WORST] == {}, "nothing runs any more"
